//! The identity by which the kernel checks this thread's calls on files, apart from all else that the process may do.

use crate::{call, sys::abi};

/// Neither a user nor a group: the calls only answer.
const NOBODY: u32 = u32::MAX;

/// Has calls on files of this thread checked as those of this user and group; the kernel takes root's privileges over files
/// away, and gives them back with root's number. False: it does not, and nothing has changed.
///
/// Other threads, and the process's rights over anything but files, stay as they are. Supplementary groups stay too.
pub fn act_as(uid: u32, gid: u32) -> bool {
    // SAFETY: numbers only; the answers are the identities before.
    let ids = unsafe { (call!(abi::__NR_setfsuid, uid), call!(abi::__NR_setfsgid, gid)) };
    let (Ok(old_uid), Ok(old_gid)) = ids else { return false };
    // SAFETY: as above.
    let now = unsafe { (call!(abi::__NR_setfsuid, NOBODY), call!(abi::__NR_setfsgid, NOBODY)) };
    if now == (Ok(uid as usize), Ok(gid as usize)) {
        return true;
    }
    // SAFETY: as above.
    let _ = unsafe { (call!(abi::__NR_setfsuid, old_uid), call!(abi::__NR_setfsgid, old_gid)) };
    false
}
