//! `sigprocmask`, `pthread_sigmask` and their kin: `SIGSEGV` and `SIGBUS` are kept beside ([`crate::runtime::masks`]).

use crate::next;
use crate::runtime::masks::FAULTS;
use crate::runtime::{errno, phase, tls};
use core::ffi::c_int;
use pm::faults;

const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// `pthread_sigmask`: the mask without the two, which are kept beside.
///
/// # Safety
/// As for `pthread_sigmask`; what is not there is `EFAULT`.
unsafe fn change(next: Change, how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let tls = tls::get();
    if !phase::is_mounted() {
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
