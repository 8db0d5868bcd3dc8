//! `open` in all its forms.

use crate::{CWD, Namespace, fail, number};
use libc::{c_char, c_int, mode_t};

/// `BP_O_ATOMIC`.
const ATOMIC: c_int = posix::ATOMIC as c_int;

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
    unsafe { open_slow(ns, CWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

unsafe fn open_at(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if flags & ATOMIC != 0 {
        // SAFETY: the caller's promise.
        return unsafe { open_whole(ns, dir, path, flags & !ATOMIC, mode) };
    }
    // SAFETY: the caller's promise.
    match unsafe { ns.as_ref().and_then(|ns| ns.process.open_fast(dir as usize, path as usize, flags as u32)) } {
        Some(result) => number(result) as c_int,
        // SAFETY: the caller's promise.
        None => unsafe { open_slow(ns, dir, path, flags, mode) },
    }
}

/// As [`open_at`], and the file is overwritten whole or not at all; what cannot be is closed again.
#[cold]
unsafe fn open_whole(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    let fd = unsafe { open_slow(ns, dir, path, flags, mode) };
    // SAFETY: the caller's promise.
    let Some(ns) = unsafe { ns.as_ref() }.filter(|_| fd >= 0) else { return fd };
    if let Err(errno) = crate::namespace::with_thread(|thread| ns.process.open_whole(thread, fd as usize)) {
        // SAFETY: a number just opened.
        unsafe { crate::files::bp_close(ns, fd) };
        return fail(errno.0) as c_int;
    }
    fd
}

unsafe fn open_slow(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let words = crate::words([dir as usize, path as usize, flags as usize, mode as usize]);
    // SAFETY: the caller's promise.
    unsafe { crate::call(ns, |process, thread| process.openat_slow(thread, words)) as c_int }
}
