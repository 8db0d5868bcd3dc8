//! `open` in all its forms.

use crate::{CWD, Namespace, number};
use libc::{c_char, c_int, mode_t};

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
    // SAFETY: the caller's promise.
    match unsafe { ns.as_ref().and_then(|ns| ns.process.open_fast(dir as usize, path as usize, flags as u32)) } {
        Some(result) => number(result) as c_int,
        // SAFETY: the caller's promise.
        None => unsafe { open_slow(ns, dir, path, flags, mode) },
    }
}

unsafe fn open_slow(ns: *const Namespace, dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let words = crate::words([dir as usize, path as usize, flags as usize, mode as usize]);
    // SAFETY: the caller's promise.
    unsafe { crate::call(ns, |process, thread| process.openat_slow(thread, words)) as c_int }
}
