//! Which user namespace this process is in ([`base::ids`]).
//!
//! A link of `/proc` says that, and is all that is looked at in the initial one. In another one its maps are read.

use crate::path::CWD;
use base::ids;
use core::ffi::CStr;
use pm::sys::abi;

/// Where `/proc/self/ns/user` leads in the initial namespace: the kernel's own constant (`PROC_USER_INIT_INO`).
const INITIAL: &[u8] = b"user:[4026531837]";
/// Room for a map: some sixty ranges.
const MAP_BYTES: usize = 2048;

/// Looks which namespace it is by now. Without `/proc` it is taken for the initial one.
pub fn look() {
    let mut link = [0u8; 32];
    // SAFETY: a NUL-terminated path, and a buffer of that size.
    let len = unsafe { pm::call!(abi::__NR_readlinkat, CWD, c"/proc/self/ns/user".as_ptr(), link.as_mut_ptr(), link.len()) };
    match len {
        Ok(len) if link.get(..len) != Some(INITIAL) => look_into(),
        _ => ids::leave(),
    }
}

#[cold]
#[inline(never)]
fn look_into() {
    let (mut users, mut groups, mut word) = ([0; MAP_BYTES], [0; MAP_BYTES], [0; 16]);
    let maps = (read(c"/proc/self/uid_map", &mut users), read(c"/proc/self/gid_map", &mut groups));
    let mut overflow = |path| read(path, &mut word).and_then(ids::number).unwrap_or(65534);
    let overflow = [overflow(c"/proc/sys/kernel/overflowuid"), overflow(c"/proc/sys/kernel/overflowgid")];
    match maps {
        (Some(users), Some(groups)) => ids::enter(users, groups, overflow),
        _ => ids::leave(),
    }
}

/// What is in a small file of the kernel's.
fn read<'a>(path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { pm::call!(abi::__NR_openat, CWD, path.as_ptr(), abi::O_RDONLY | abi::O_CLOEXEC) }.ok()?;
    // SAFETY: a buffer of that size.
    let len = unsafe { pm::call!(abi::__NR_read, fd, into.as_mut_ptr(), into.len()) };
    // SAFETY: the descriptor just opened.
    let _ = unsafe { pm::call!(abi::__NR_close, fd) };
    let text = into.get(..len.ok()?)?;
    // Whole lines.
    Some(&text[..text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)])
}
