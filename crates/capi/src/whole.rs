//! Whole files in one call, for callers to whom each call of C is dear.

use crate::{Namespace, bp_close, bp_fstat, bp_open, bp_pread, call, fail};
use libc::{c_char, c_int, c_void, off_t, size_t, ssize_t};
use posix::Outcome;

/// Opens a file, reads from `offset` on, and closes it.
///
/// # Safety
/// `ns` is null or a namespace, `path` NUL-terminated, `out` writable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_read_path(
    ns: *const Namespace,
    path: *const c_char,
    out: *mut c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let fd = unsafe { bp_open(ns, path, libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if fd < 0 {
        return -1;
    }
    let mut done = 0;
    let result = loop {
        // SAFETY: `out` has `len` bytes, of which `done` are filled.
        let got = unsafe { bp_pread(ns, fd, out.cast::<u8>().add(done).cast(), len - done, offset + done as off_t) };
        if got <= 0 {
            break if got < 0 { got } else { done as ssize_t };
        }
        done += got as usize;
        if done == len {
            break done as ssize_t;
        }
    };
    close_quietly(ns, fd);
    result
}

/// Opens a regular file for reading and says where its bytes lie: `start` is null if not in one piece.
///
/// # Safety
/// `ns` is null or a namespace, `path` NUL-terminated; `start` and `len` are writable. What `start` shows may be read until
/// the fd is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_open_view(
    ns: *const Namespace,
    path: *const c_char,
    start: *mut *const c_void,
    len: *mut size_t,
) -> c_int {
    if start.is_null() || len.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { bp_open(ns, path, libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if fd < 0 {
        return -1;
    }
    // SAFETY: all fields are integers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: room for it.
    if unsafe { bp_fstat(ns, fd, &raw mut stat) } < 0 {
        close_quietly(ns, fd);
        return -1;
    }
    let size = stat.st_size as usize;
    // SAFETY: the caller's promise.
    let found = unsafe { call(ns, |process, thread| view(process, thread, fd, size)) };
    if found < 0 {
        close_quietly(ns, fd);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        *start = found as *const c_void;
        *len = size;
    }
    fd
}

/// The address, 0 where there is none.
fn view(process: &posix::Process, thread: &posix::ThreadState, fd: c_int, size: usize) -> Outcome {
    Outcome::Done(match process.view(thread, fd as usize, size) {
        Ok(address) => address.unwrap_or(0) as isize,
        Err(error) => -(error.errno().0 as isize),
    })
}

/// Closes an fd and leaves errno as it is.
fn close_quietly(ns: *const Namespace, fd: c_int) {
    // SAFETY: libc tells where this thread's is.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the caller of our caller has a namespace, in which we have opened it.
    unsafe {
        bp_close(ns, fd);
        *errno = before;
    }
}
