//! `open` in all its forms. Three ways, each a function, so that none saves registers for another:
//! what is there and at hand, what is to be made, and everything else.

use crate::{CWD, Namespace, number};
use libc::{c_char, c_int, mode_t};
use posix::Process;

/// `open`; the mode is always given and counts only with `O_CREAT` or `O_TMPFILE`.
///
/// # Safety
/// As for the call in C: pointers are valid for what it does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_open(ns: *const Namespace, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(ns, CWD, path, flags, mode) }
}

/// `openat`.
///
/// # Safety
/// As for the call in C: pointers are valid for what it does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_openat(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(ns, dir, path, flags, mode) }
}

/// `creat`.
///
/// # Safety
/// As for the call in C: pointers are valid for what it does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_creat(ns: *const Namespace, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { make(ns, CWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

#[inline(always)]
unsafe fn open_at(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if !Process::may_be_there(flags as u32) {
        // SAFETY: the caller's promise.
        return unsafe { make(ns, dir, path, flags, mode) };
    }
    // SAFETY: the caller's promise; the thread's state is not used after the call.
    let quick = unsafe {
        ns.as_ref().and_then(|ns| {
            ns.process.quick_open::<true>(|| crate::namespace::thread(), dir as usize, path as usize, flags as u32)
        })
    };
    match quick {
        Some(result) => number(result) as c_int,
        // SAFETY: the caller's promise.
        None => unsafe { open_anyhow(ns, dir, path, flags, mode) },
    }
}

#[inline(never)]
unsafe fn make(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // Whatever else it says means nothing: so the rest need not be kept for who does it properly.
    let mode = mode & 0o7777;
    // SAFETY: as above.
    let quick = unsafe {
        ns.as_ref().and_then(|ns| {
            ns.process.quick_create::<true>(crate::namespace::thread(), dir as usize, path as usize, flags as u32, mode as usize)
        })
    };
    match quick {
        Some(result) => number(result) as c_int,
        // SAFETY: the caller's promise.
        None if flags & libc::O_CREAT != 0 => unsafe { open_slowly(ns, dir, path, flags, mode) },
        // SAFETY: as above.
        None => unsafe { open_anyhow(ns, dir, path, flags, mode) },
    }
}

#[cold]
#[inline(never)]
unsafe fn open_slowly(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let words = crate::words([dir as usize, path as usize, flags as usize, mode as usize]);
    // SAFETY: the caller's promise.
    unsafe { crate::call(ns, |process, thread| process.openat_slow(thread, words)) as c_int }
}

#[cold]
#[inline(never)]
unsafe fn open_anyhow(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let words = crate::words([dir as usize, path as usize, flags as usize, mode as usize]);
    // SAFETY: the caller's promise.
    unsafe { crate::call(ns, |process, thread| process.openat_or_make(thread, words)) as c_int }
}
