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
    // SAFETY: the caller's promise.
    let result = unsafe { fill(ns, fd, out, len, offset) };
    close_quietly(ns, fd);
    result
}

/// Reads from `offset` on until `out` is full or the file ends; as `pread`.
///
/// # Safety
/// `ns` is null or a namespace, `out` writable for `len` bytes.
unsafe fn fill(ns: *const Namespace, fd: c_int, out: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
    let mut done = 0;
    loop {
        // SAFETY: `out` has `len` bytes, of which `done` are filled.
        let got = unsafe { bp_pread(ns, fd, out.cast::<u8>().add(done).cast(), len - done, offset + done as off_t) };
        if got <= 0 {
            return if got < 0 { got } else { done as ssize_t };
        }
        done += got as usize;
        if done == len {
            return done as ssize_t;
        }
    }
}

/// Reads whole files, the bytes of one behind those of the one before. How many of them were looked at: those before the first that
/// has no room any more; `lens` says of each how many bytes it has, or why it could not be read, as a negated error number.
///
/// # Safety
/// `ns` is null or a namespace; `paths` are `count` texts, NUL-terminated; `out` is writable for `len` bytes, `lens` for `count`
/// numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_read_many(
    ns: *const Namespace,
    paths: *const *const c_char,
    count: size_t,
    out: *mut c_void,
    len: size_t,
    lens: *mut ssize_t,
) -> ssize_t {
    if count > 0 && (paths.is_null() || lens.is_null()) || len > 0 && out.is_null() {
        return fail(libc::EFAULT) as ssize_t;
    }
    let mut done = 0;
    for index in 0..count {
        // SAFETY: the caller's promise; `out` has `len` bytes, of which `done` are filled.
        let got = unsafe { read_whole(ns, *paths.add(index), out.cast::<u8>().add(done).cast(), len - done) };
        let Some(got) = got else { return index as ssize_t };
        done += got.max(0) as usize;
        // SAFETY: the caller's promise.
        unsafe { *lens.add(index) = got };
    }
    count as ssize_t
}

/// Reads a whole file: its bytes, or a negated error number. `None`: there is not so much room.
///
/// # Safety
/// As for [`bp_read_path`].
unsafe fn read_whole(ns: *const Namespace, path: *const c_char, out: *mut c_void, len: size_t) -> Option<ssize_t> {
    // SAFETY: libc tells where this thread's is.
    let errno = || unsafe { *libc::__errno_location() };
    // SAFETY: the caller's promise.
    let fd = unsafe { bp_open(ns, path, libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if fd < 0 {
        return Some(-(errno() as ssize_t));
    }
    let mut behind = 0u8;
    // SAFETY: the caller's promise.
    let mut got = unsafe { fill(ns, fd, out, len, 0) };
    let mut is_more = false;
    if got == len as ssize_t {
        // SAFETY: room for one byte.
        let more = unsafe { bp_pread(ns, fd, (&raw mut behind).cast(), 1, len as off_t) };
        is_more = more > 0;
        got = if more < 0 { more } else { got };
    }
    let result = if got < 0 { -(errno() as ssize_t) } else { got };
    close_quietly(ns, fd);
    (!is_more).then_some(result)
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
