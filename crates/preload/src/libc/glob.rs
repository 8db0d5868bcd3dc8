//! `glob`: libc's own, which can be told whose directory functions to use
//! (`GLOB_ALTDIRFUNC`): ours, unless the program brings its own.

use core::ffi::{c_char, c_int, c_void};

use pm::sys::abi;

use super::dir::{self, Dir, Dirent};
use crate::runtime::errno;
use crate::{next, serve};

const ALTDIRFUNC: c_int = 1 << 9;
/// Out of memory; also when libc has no `glob`.
const NO_SPACE: c_int = 1;

/// `glob_t`, which is `glob64_t` on 64-bit machines.
#[repr(C)]
pub struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offsets: usize,
    flags: c_int,
    functions: Functions,
}

/// Its directory functions.
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut Dirent>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int>,
}

const _: () = assert!(size_of::<Glob>() == 72);

const OURS: Functions =
    Functions { closedir: Some(close), readdir: Some(read), opendir: Some(open), lstat: Some(lstat), stat: Some(stat) };

unsafe extern "C" fn close(dir: *mut c_void) {
    // SAFETY: from `open`.
    unsafe { dir::closedir(dir.cast::<Dir>()) };
}

unsafe extern "C" fn read(dir: *mut c_void) -> *mut Dirent {
    // SAFETY: from `open`.
    unsafe { dir::readdir64(dir.cast::<Dir>()) }
}

unsafe extern "C" fn open(path: *const c_char) -> *mut c_void {
    // SAFETY: a string of libc's.
    unsafe { dir::opendir(path) }.cast()
}

unsafe extern "C" fn lstat(path: *const c_char, out: *mut c_void) -> c_int {
    // SAFETY: a string and a `struct stat` of libc's.
    errno::ret_int(unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, path, out, abi::AT_SYMLINK_NOFOLLOW) })
}

unsafe extern "C" fn stat(path: *const c_char, out: *mut c_void) -> c_int {
    // SAFETY: a string and a `struct stat` of libc's.
    errno::ret_int(unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, path, out, 0) })
}

type ErrorFunction = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type Libc = unsafe extern "C" fn(*const c_char, c_int, Option<ErrorFunction>, *mut Glob) -> c_int;

/// `glob(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn glob64(pattern: *const c_char, flags: c_int, on_error: Option<ErrorFunction>, out: *mut Glob) -> c_int {
    let Some(libc) = next!(Libc, "glob64") else { return NO_SPACE };
    if flags & ALTDIRFUNC != 0 {
        // SAFETY: the program's arguments.
        return unsafe { libc(pattern, flags, on_error, out) };
    }
    // The fields are unused without the flag, but they are the program's.
    // SAFETY: a place in the program's structure.
    let functions = unsafe { &raw mut (*out).functions };
    // SAFETY: as above; any bits are valid options of function pointers only if they
    // are never called, so they are kept as bytes.
    let saved = unsafe { functions.cast::<[usize; 5]>().read() };
    // SAFETY: as above.
    unsafe { functions.write(OURS) };
    // SAFETY: the program's arguments.
    let result = unsafe { libc(pattern, flags | ALTDIRFUNC, on_error, out) };
    // SAFETY: as above.
    unsafe { functions.cast::<[usize; 5]>().write(saved) };
    // SAFETY: as above.
    unsafe { (*out).flags &= !ALTDIRFUNC };
    result
}

export! {
    fn glob(pattern: *const c_char, flags: c_int, on_error: Option<ErrorFunction>, out: *mut Glob) -> c_int {
        glob64(pattern, flags, on_error, out)
    }
}
