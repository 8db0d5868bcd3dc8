//! `SIGSEGV` and `SIGBUS` stay deliverable: a blocked one ends the program at the next fault, where
//! a call would have answered `EFAULT`.
//!
//! So they are taken out of the masks that the program sets, and what it has set is kept beside, for when it
//! asks, and for the program that it executes. One that was sent while the program
//! has it blocked is blocked after all, until it is let through. New threads begin without them, and masks that hold
//! for one call only (`sigsuspend`, `ppoll`, …) are left as they are.
//!
//! The same holds for `SIGSYS` where it brings us the program's own system calls ([`crate::runtime::dispatch`]); handlers may
//! make such calls during those waits too, so it is taken out of their masks as well ([`waiting`]).

use crate::runtime::dispatch;
use crate::runtime::operation;
use crate::runtime::operation::{SIG_BLOCK, SIG_UNBLOCK, SIGBUS, SIGSEGV};
use crate::runtime::tls::Tls;
use core::ffi::{c_int, c_void};

/// The two, as a mask.
pub const FAULTS: u64 = 1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1);

/// What is kept out of the program's masks: where its own system calls come to us, the signal that brings them too.
pub fn kept() -> u64 {
    if dispatch::is_on() { FAULTS | dispatch::MASK } else { FAULTS }
}

/// A mask for one wait, eight bytes of the program's: `None` where it can be taken as it is.
///
/// # Safety
/// `mask` is null or the program's.
pub unsafe fn waiting(mask: *const u64) -> Option<u64> {
    if mask.is_null() || !dispatch::is_on() {
        return None;
    }
    // SAFETY: by contract.
    let given = unsafe { pm::faults::read(mask) }.ok()?;
    (given & dispatch::MASK != 0).then_some(given & !dispatch::MASK)
}

/// Lets the two through, as this thread has come with them blocked.
pub fn start(tls: &Tls) {
    tls.hidden.set(operation::change_mask(SIG_UNBLOCK, FAULTS) & FAULTS);
}

/// Whether the program believes that it has this signal blocked.
pub fn is_hidden(tls: &Tls, signal: c_int) -> bool {
    tls.hidden.get() & 1 << (signal - 1) != 0
}

/// The next program gets the mask that this one believes to have; `undo` if there is none.
pub fn pass_on(tls: &Tls, undo: bool) {
    let hidden = tls.hidden.get();
    if hidden != 0 {
        let how = if undo { SIG_UNBLOCK } else { SIG_BLOCK };
        operation::change_mask(how, hidden);
    }
}

/// A signal was sent that the program believes to have blocked: now it is, and waits.
///
/// # Safety
/// `info` and `context` are the kernel's frame of `signal`.
#[cold]
pub unsafe fn hold(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: by contract.
    unsafe { operation::block_in(context, 1 << (signal - 1)) };
    // SAFETY: a `siginfo_t` is 128 bytes.
    let info = unsafe { core::ptr::read_unaligned(info.cast()) };
    operation::raise(signal as u32, Some(&info));
}
