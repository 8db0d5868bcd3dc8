//! `sigprocmask`, `pthread_sigmask` and their kin: `SIGSEGV` and `SIGBUS` are kept beside ([`crate::runtime::masks`]).

use crate::next;
use crate::runtime::masks::{kept, waiting};
use crate::runtime::{errno, phase, tls};
use core::ffi::c_int;
use pm::faults;
use pm::sys::abi::*;

const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// `pthread_sigmask`: the mask without the two, which are kept beside. `next` changes it indeed.
///
/// # Safety
/// As for `pthread_sigmask`; what is not there is `EFAULT`.
unsafe fn change(how: c_int, set: *const u64, old: *mut u64, next: impl FnOnce(*const u64, *mut u64) -> c_int) -> c_int {
    let tls = tls::get();
    if !phase::is_mounted() {
        return next(set, old);
    }
    let hidden = tls.hidden.get();
    let mut wanted = 0u64;
    if !set.is_null() {
        // SAFETY: by contract.
        let Ok(given) = (unsafe { faults::read(set) }) else { return pm::Errno::EFAULT.0 };
        wanted = given;
    }
    let (now, given) = match how {
        SIG_BLOCK => (hidden | wanted & kept(), wanted & !kept()),
        // One that was sent meanwhile is blocked indeed.
        SIG_UNBLOCK => (hidden & !wanted, wanted),
        SIG_SETMASK => (wanted & kept(), wanted & !kept()),
        _ => (hidden, wanted),
    };
    // libc's is longer.
    let (given, mut before) = ([given, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0u64; 16]);
    let place = if set.is_null() { core::ptr::null() } else { given.as_ptr() };
    if !set.is_null() {
        // First, so that a signal that is let through finds it so.
        tls.hidden.set(now);
    }
    let result = next(place, before.as_mut_ptr());
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

/// The same by its number; the kernel-style result.
///
/// # Safety
/// As for `rt_sigprocmask`.
pub unsafe fn by_number(args: [usize; 6]) -> isize {
    let [how, set, old, bytes, ..] = args;
    if bytes != 8 {
        return -(pm::Errno::EINVAL.0 as isize);
    }
    // SAFETY: masks of ours, or the program's own.
    let next = |set, old| unsafe { pm::call!(__NR_rt_sigprocmask, how, set, old, 8) }.map_or_else(|errno| errno.0, |_| 0);
    // SAFETY: by contract.
    -(unsafe { change(how as c_int, set as *const u64, old as *mut u64, next) } as isize)
}

/// Makes a call by its number; if it waits with a mask, that does not keep the program's own calls away ([`waiting`]).
///
/// # Safety
/// As for the system call.
pub unsafe fn wait_by_number(nr: usize, args: [usize; 6], make: impl FnOnce([usize; 6]) -> isize) -> isize {
    let (place, bytes) = match nr as u32 {
        __NR_rt_sigsuspend => (0, args[1]),
        __NR_ppoll => (3, args[4]),
        __NR_epoll_pwait | __NR_epoll_pwait2 => (4, args[5]),
        __NR_pselect6 => {
            // SAFETY: by contract.
            let Ok([mask, bytes]) = (unsafe { faults::read(args[5] as *const [usize; 2]) }) else { return make(args) };
            // SAFETY: by contract.
            let Some(mask) = (unsafe { waiting(mask as *const u64) }).filter(|_| bytes == 8) else { return make(args) };
            let sixth = [&raw const mask as usize, bytes];
            return make([args[0], args[1], args[2], args[3], args[4], sixth.as_ptr() as usize]);
        }
        _ => return make(args),
    };
    // SAFETY: by contract.
    let Some(mask) = (unsafe { waiting(args[place] as *const u64) }).filter(|_| bytes == 8) else { return make(args) };
    let mut args = args;
    args[place] = &raw const mask as usize;
    make(args)
}

/// The same for the older functions: one that returns the mask before, as far as an `int` holds it.
pub fn change_older(how: c_int, mask: u64) -> Result<u64, c_int> {
    let mut before = 0u64;
    match next!(Change, "pthread_sigmask") {
        // SAFETY: masks of ours.
        Some(next) => match unsafe { change(how, &mask, &mut before, |set, old| next(how, set, old)) } {
            0 => Ok(before),
            error => Err(error),
        },
        None => Err(pm::Errno::ENOSYS.0),
    }
}

/// A mask as long as libc's, which reads the first word only.
fn longer(own: u64) -> [u64; 16] {
    let mut mask = [0; 16];
    mask[0] = own;
    mask
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
            // Masks of ours, as long as libc's, or the program's own.
            Some(next) => change(how, set, old, |set, old| next(how, set, old)),
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
    fn sigsuspend(mask: *const u64) -> c_int {
        let Some(next) = next!(unsafe extern "C" fn(*const u64) -> c_int, "sigsuspend") else { return -1 };
        match waiting(mask) {
            None => next(mask),
            Some(own) => next(longer(own).as_ptr()),
        }
    }
    fn epoll_pwait(epoll: c_int, events: *mut u8, count: c_int, timeout: c_int, mask: *const u64) -> c_int {
        type Own = unsafe extern "C" fn(c_int, *mut u8, c_int, c_int, *const u64) -> c_int;
        let Some(next) = next!(Own, "epoll_pwait") else { return -1 };
        match waiting(mask) {
            None => next(epoll, events, count, timeout, mask),
            Some(own) => next(epoll, events, count, timeout, longer(own).as_ptr()),
        }
    }
    fn epoll_pwait2(epoll: c_int, events: *mut u8, count: c_int, timeout: *const [i64; 2], mask: *const u64) -> c_int {
        type Own = unsafe extern "C" fn(c_int, *mut u8, c_int, *const [i64; 2], *const u64) -> c_int;
        let Some(next) = next!(Own, "epoll_pwait2") else {
            errno::set(pm::Errno::ENOSYS.0);
            return -1;
        };
        match waiting(mask) {
            None => next(epoll, events, count, timeout, mask),
            Some(own) => next(epoll, events, count, timeout, longer(own).as_ptr()),
        }
    }
}
