//! `errno`, which only the symbol wrappers touch.

use core::ffi::c_int;

#[link(name = "c")]
unsafe extern "C" {
    /// Address of the calling thread's `errno`.
    safe fn __errno_location() -> *mut c_int;
}

// SAFETY: libc tells.
static ERRNO: pm::CErrno = unsafe { pm::CErrno::new(__errno_location) };

/// Sets the calling thread's `errno`.
#[inline]
pub fn set(errno: i32) {
    ERRNO.set(errno);
}

/// The calling thread's `errno`.
#[inline]
pub fn get() -> i32 {
    let at = __errno_location();
    // SAFETY: libc returns a valid pointer to the calling thread's errno.
    unsafe { *at }
}

/// Turns a kernel-style result (`-errno` on failure) into libc's: −1 and `errno`.
#[inline]
pub fn ret(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set(-result as i32);
        -1
    } else {
        result
    }
}

/// As [`ret`], for functions that return `int`.
#[inline]
pub fn ret_int(result: isize) -> i32 {
    ret(result) as i32
}
