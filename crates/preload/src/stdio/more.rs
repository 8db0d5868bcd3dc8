//! Library functions that open a stream by calls inside libc: `tmpfile`, `setmntent`.

use super::open::{fdopen, fopen};
use super::table::File;
use crate::runtime::call::path_is_ours;
use crate::runtime::{call, errno, placeholders};
use crate::{next, serve};
use core::ffi::{CStr, c_char};
use pm::sys::abi;

/// Where temporary files go (`P_tmpdir`).
const TMP: &CStr = c"/tmp";

/// `tmpfile(3)`; libc's own unless `/tmp` is ours.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile64() -> *mut File {
    // SAFETY: a string.
    if !unsafe { path_is_ours(abi::AT_FDCWD, TMP.as_ptr().cast()) } {
        placeholders::flush();
        return match next!(unsafe extern "C" fn() -> *mut File, "tmpfile64") {
            // SAFETY: no arguments.
            Some(libc) => unsafe { libc() },
            None => core::ptr::null_mut(),
        };
    }
    let flags = abi::O_RDWR | abi::O_EXCL | abi::O_TMPFILE;
    // SAFETY: a string.
    let fd = errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, TMP.as_ptr(), flags, 0o600) });
    if fd < 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: a string.
    let file = unsafe { fdopen(fd, c"w+".as_ptr()) };
    if file.is_null() {
        let saved = errno::get();
        call::close(fd);
        errno::set(saved);
    }
    file
}

export! {
    fn tmpfile() -> *mut File {
        tmpfile64()
    }
    fn setmntent(path: *const c_char, mode: *const c_char) -> *mut File {
        fopen(path, mode)
    }
    fn __setmntent(path: *const c_char, mode: *const c_char) -> *mut File {
        fopen(path, mode)
    }
}
