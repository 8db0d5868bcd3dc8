//! Who may do what, from owner and mode. The rules themselves are [`base::Cred`]'s and [`base::Caller`]'s.

use crate::index::Seen;
use crate::names::{SET_GID, SET_UID};
use crate::segment::cachelet::{Cachelet, ODD};
use base::{Caller, Cred, Cx, Kind, R, Result, W, X};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;

/// The mode word of a directory that everybody may search, and the bits that say so.
const SEARCH: (u32, u32) = ((Kind::Directory as u32) << 16 | 0o111, 0xff_0000 | 0o111);

/// Search permission on a directory; `ENOTDIR` if it is none.
#[inline]
pub(crate) fn may_search(cred: &Cred, dir: &Seen) -> Result<()> {
    if !dir.is(Kind::Directory) {
        return Err(Errno::ENOTDIR.into());
    }
    if !cred.may(Kind::Directory, dir.mode(), dir.uid, dir.gid, X) {
        return Err(Errno::EACCES.into());
    }
    Ok(())
}

/// Whether a cachelet is a directory's that everybody, its owner or the superuser may search, and was so while its
/// sequence was `sequence`. False: find out on the slow path.
#[inline(always)]
pub(crate) fn may_search_fast(who: &Caller, dir: &Cachelet, sequence: u32) -> bool {
    let word = dir.mode.load(Relaxed);
    let as_owner = || (word >> 16) as u8 == Kind::Directory as u8 && who.may_search_own(dir.uid.load(Relaxed), word);
    (word & SEARCH.1 == SEARCH.0 || as_owner()) && dir.is_still(sequence, ODD)
}

/// The kernel's `protected_hardlinks`: without privilege only one's own files,
/// or plain ones that one may read and write.
pub(crate) fn may_link(cx: &Cx, seen: &Seen) -> Result<()> {
    let cred = &cx.cred;
    if cred.uid == seen.uid || cred.is_privileged_over(seen.uid, seen.gid) {
        return Ok(());
    }
    let mode = seen.mode();
    let special = mode & SET_UID != 0 || mode & (SET_GID | 0o10) == SET_GID | 0o10;
    if seen.is(Kind::Regular) && !special && cred.may(Kind::Regular, mode, seen.uid, seen.gid, R | W) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}
