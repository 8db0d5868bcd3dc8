//! `SIGSEGV` and `SIGBUS` stay deliverable: a blocked one ends the program at the next fault, where
//! a call would have answered `EFAULT`.
//!
//! So they are taken out of the masks that the program sets, and what it has set is kept beside, for when it
//! asks, and for the program that it executes. One that was sent while the program
//! has it blocked is blocked after all, until it is let through. New threads begin without them, and masks that hold
//! for one call only (`sigsuspend`, `ppoll`, …) are left as they are.

use crate::signals::{SIGBUS, SIGSEGV};
use crate::tls::{self, Tls};
use crate::{errno, init, next, signals};
use core::ffi::{c_int, c_void};
use pm::faults;
use pm::sys::abi::*;

/// The two, as a mask.
pub const FAULTS: u64 = 1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1);

const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// Lets the two through, as this thread has come with them blocked.
pub fn start(tls: &Tls) {
    let mut before = 0u64;
    // SAFETY: both masks outlive the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, SIG_UNBLOCK, &raw const FAULTS_MASK, &raw mut before, 8) };
    tls.hidden.set(before & FAULTS);
}

static FAULTS_MASK: u64 = FAULTS;

/// Whether the program believes that it has this signal blocked.
pub fn is_hidden(tls: &Tls, signal: c_int) -> bool {
    tls.hidden.get() & 1 << (signal - 1) != 0
}

/// The next program gets the mask that this one believes to have; `undo` if there is none.
pub fn pass_on(tls: &Tls, undo: bool) {
    let hidden = tls.hidden.get();
    if hidden != 0 {
        let how = if undo { SIG_UNBLOCK } else { SIG_BLOCK };
        // SAFETY: the mask outlives the call.
        let _ = unsafe { pm::call!(__NR_rt_sigprocmask, how, &raw const hidden, 0, 8) };
    }
}

/// `pthread_sigmask`: the mask without the two, which are kept beside.
///
/// # Safety
/// As for `pthread_sigmask`; what is not there is `EFAULT`.
unsafe fn change(next: Change, how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let tls = tls::get();
    if !init::is_mounted() {
        // SAFETY: by contract.
        return unsafe { next(how, set, old) };
    }
    let hidden = tls.hidden.get();
    let mut wanted = 0u64;
    if !set.is_null() {
        // SAFETY: by contract.
        let Ok(given) = (unsafe { faults::read(set) }) else { return pm::Errno::EFAULT.0 };
        wanted = given;
    }
    let (now, given) = match how {
        SIG_BLOCK => (hidden | wanted & FAULTS, wanted & !FAULTS),
        // One that was sent meanwhile is blocked indeed.
        SIG_UNBLOCK => (hidden & !wanted, wanted),
        SIG_SETMASK => (wanted & FAULTS, wanted & !FAULTS),
        _ => (hidden, wanted),
    };
    // libc's is longer.
    let (given, mut before) = ([given, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0u64; 16]);
    let place = if set.is_null() { core::ptr::null() } else { given.as_ptr() };
    if !set.is_null() {
        // First, so that a signal that is let through finds it so.
        tls.hidden.set(now);
    }
    // SAFETY: masks of ours, as long as libc's.
    let result = unsafe { next(how, place, before.as_mut_ptr()) };
    if result != 0 {
        tls.hidden.set(hidden);
        return result;
    }
    // SAFETY: by contract.
    if !old.is_null() && unsafe { faults::write(old, &(before[0] | hidden)) }.is_err() {
        return pm::Errno::EFAULT.0;
    }
    0
}

/// A signal was sent that the program believes to have blocked: now it is, and waits.
///
/// # Safety
/// `info` and `context` are the kernel's frame of `signal`.
#[cold]
pub unsafe fn hold(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: by contract.
    unsafe { signals::block_in(context, 1 << (signal - 1)) };
    // SAFETY: a `siginfo_t` is 128 bytes.
    let info = unsafe { core::ptr::read_unaligned(info.cast()) };
    signals::raise(signal as u32, Some(&info));
}

/// The same for the older functions: one that returns the mask before, as far as an `int` holds it.
pub fn change_older(how: c_int, mask: u64) -> Result<u64, c_int> {
    let mut before = 0u64;
    match next!(Change, "pthread_sigmask") {
        // SAFETY: masks of ours.
        Some(next) => match unsafe { change(next, how, &mask, &mut before) } {
            0 => Ok(before),
            error => Err(error),
        },
        None => Err(pm::Errno::ENOSYS.0),
    }
}

/// The mask of one signal; `EINVAL`.
fn only(signal: c_int) -> Result<u64, c_int> {
    if (1..=64).contains(&signal) { Ok(1 << (signal - 1)) } else { Err(pm::Errno::EINVAL.0) }
}

/// As libc returns it.
fn returned(result: Result<u64, c_int>, of: impl FnOnce(u64) -> c_int) -> c_int {
    match result {
        Ok(before) => of(before),
        Err(error) => {
            errno::set(error);
            -1
        }
    }
}

export! {
    fn sigblock(mask: c_int) -> c_int {
        returned(change_older(SIG_BLOCK, u64::from(mask as u32)), |before| before as c_int)
    }
    fn sigsetmask(mask: c_int) -> c_int {
        returned(change_older(SIG_SETMASK, u64::from(mask as u32)), |before| before as c_int)
    }
    fn sighold(signal: c_int) -> c_int {
        returned(only(signal).and_then(|mask| change_older(SIG_BLOCK, mask)), |_| 0)
    }
    fn sigrelse(signal: c_int) -> c_int {
        returned(only(signal).and_then(|mask| change_older(SIG_UNBLOCK, mask)), |_| 0)
    }
    fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
        match next!(Change, "pthread_sigmask") {
            Some(next) => change(next, how, set, old),
            None => pm::Errno::ENOSYS.0,
        }
    }
    fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
        match pthread_sigmask(how, set, old) {
            0 => 0,
            error => {
                errno::set(error);
                -1
            }
        }
    }
}
