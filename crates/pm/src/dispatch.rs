//! Syscall User Dispatch: the kernel hands a thread's system calls back as `SIGSYS`, by where they are made.
//!
//! Linux 6.17 can do so for one range of addresses; older ones, from 5.11 on, for all but one. What is set is the calling
//! thread's; new threads and children begin without it, and `exec` ends it.

use crate::sys::abi::__NR_prctl;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `PR_SET_SYSCALL_USER_DISPATCH`.
const SET: usize = 59;
const OFF: usize = 0;
/// `PR_SYS_DISPATCH_EXCLUSIVE_ON`.
const ALL_BUT: usize = 1;
/// `PR_SYS_DISPATCH_INCLUSIVE_ON`.
const ONLY: usize = 2;

/// What a kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Calls from one range.
    Only,
    /// Calls from below an address.
    Below,
    /// Nothing.
    Never,
}

const ALL: [How; 3] = [How::Only, How::Below, How::Never];
/// Index and one in [`ALL`]; 0: not asked yet.
static HOW: AtomicUsize = AtomicUsize::new(0);

fn set(how: usize, begin: usize, len: usize) -> bool {
    // SAFETY: changes only who gets the calls of this thread's instructions; there is no selector.
    unsafe { crate::call!(__NR_prctl, SET, how, begin, len, 0) }.is_ok()
}

/// What this kernel can do, as asked for ranges from which nothing is handed back. A thread that has something set loses it.
pub fn how() -> How {
    static NOTHING: AtomicUsize = AtomicUsize::new(0);
    if let Some(index) = HOW.load(Relaxed).checked_sub(1) {
        return ALL[index];
    }
    let index = match () {
        () if cfg!(not(target_arch = "x86_64")) => 2,
        () if set(ONLY, NOTHING.as_ptr() as usize, 1) && set(OFF, 0, 0) => 0,
        () if set(ALL_BUT, 1, usize::MAX - 1) && set(OFF, 0, 0) => 1,
        () => 2,
    };
    HOW.store(index + 1, Relaxed);
    ALL[index]
}

/// Has the calls that this thread makes in `range` handed back; with [`How::Below`] those that it makes below its end.
pub fn hand_back(range: &Range<usize>) -> bool {
    match how() {
        How::Only => set(ONLY, range.start, range.len()),
        How::Below => set(ALL_BUT, range.end, usize::MAX - range.end),
        How::Never => false,
    }
}

/// Has all calls that this thread makes handed back, but for those that it makes in `range`.
pub fn hand_back_all_but(range: &Range<usize>) -> bool {
    how() != How::Never && set(ALL_BUT, range.start, range.len())
}

unsafe extern "C" {
    fn getauxval(kind: u64) -> u64;
}

/// Whether a program may set the bases of its segment registers by instructions of its own (`HWCAP2_FSGSBASE`): Linux 5.9.
pub fn sets_bases() -> bool {
    const AT_HWCAP2: u64 = 26;
    const FSGSBASE: u64 = 2;
    // SAFETY: it looks the number up, and knows that 0 means none.
    cfg!(target_arch = "x86_64") && unsafe { getauxval(AT_HWCAP2) } & FSGSBASE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: asking changes nothing: this thread's calls, and those of one that has a range without code, are the kernel's.
    #[test]
    fn asking() {
        let (first, second) = (how(), how());
        assert_eq!(first, second);
        let nothing = [0u8; 8];
        let begin = nothing.as_ptr() as usize;
        if first == How::Only {
            assert!(hand_back(&(begin..begin + 8)));
            assert!(std::fs::metadata("/").is_ok());
            assert!(set(OFF, 0, 0));
        }
    }
}
