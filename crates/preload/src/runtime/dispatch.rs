//! System calls that the program makes by instructions of its own: the kernel hands them back to us ([`pm::dispatch`]), as
//! `SIGSYS`.
//!
//! Only calls from one range of addresses come, the program's code; libc, the loader, the vDSO and this library stand outside
//! and call as ever. Where the kernel knows no such range, all that stands below them is one.
//!
//! Invariants
//! - What the kernel keeps of it is a thread's, and children begin without: each thread, and each child of fork and vfork, sets
//!   it anew ([`set_here`]). `exec` ends it.
//! - `SIGSYS` is never blocked where code of the program runs: the kernel would end it
//!   ([`crate::runtime::masks`] keeps the signal out of what the program sets).

use crate::runtime::operation;
use crate::runtime::operation::SIG_UNBLOCK;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use pm::dispatch::{How, hand_back, how};

/// The signal.
pub const SIGSYS: i32 = 31;
/// It, as a mask.
pub const MASK: u64 = 1 << (SIGSYS - 1);
/// `SYS_USER_DISPATCH`: `si_code` of what the kernel hands back.
pub const HANDED_BACK: i32 = 2;

/// Begin and end of the range; 0: there is none.
static RANGE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// Whether this kernel can.
pub fn is_possible() -> bool {
    is_on() || how() != How::Never
}

/// Whether calls of the program's own come to us.
#[inline]
pub fn is_on() -> bool {
    RANGE.1.load(Acquire) != 0
}

/// From now on the calls made in `range` come to our handler, which must be in place; code of libc, the loader and ours is
/// in `outside`. Whether that can be had.
pub fn start(range: &Range<usize>, mut outside: impl Iterator<Item = Range<usize>>) -> bool {
    let begin = match how() {
        How::Only => range.start,
        How::Below => 0,
        How::Never => return false,
    };
    if range.is_empty() || outside.any(|other| begin < other.end && other.start < range.end) {
        return false;
    }
    RANGE.0.store(range.start, Release);
    RANGE.1.store(range.end, Release);
    set_here();
    true
}

/// In a thread or child that has just begun.
pub fn set_here() {
    if is_on() {
        operation::change_mask(SIG_UNBLOCK, MASK);
        hand_back(&(RANGE.0.load(Acquire)..RANGE.1.load(Acquire)));
    }
}
