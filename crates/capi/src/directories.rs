//! Directory streams.

use crate::{Namespace, bp_close, bp_fcntl, bp_getdents64, bp_lseek, bp_openat, fail};
use libc::{c_char, c_int, c_long, dirent};

const BUFFER: usize = 32 * 1024;

/// `bp_dir`: an open directory and what was read ahead.
#[repr(C)]
pub struct Directory {
    /// Entries as `getdents64` gives them, which is how `struct dirent` looks.
    buffer: [u64; BUFFER / 8],
    ns: *const Namespace,
    fd: c_int,
    /// Next entry in the buffer, and the end of what is in it; bytes.
    at: usize,
    end: usize,
    /// Position of the next entry.
    position: i64,
}

// The program reads entries through the C library's type.
const _: () = assert!(std::mem::offset_of!(dirent, d_name) == 19 && std::mem::offset_of!(dirent, d_reclen) == 16);

/// `opendir`: null on error.
///
/// # Safety
/// `path` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_opendir(ns: *const Namespace, path: *const c_char) -> *mut Directory {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise.
    let fd = unsafe { bp_openat(ns, crate::CWD, path, flags, 0) };
    if fd < 0 { std::ptr::null_mut() } else { new(ns, fd) }
}

fn new(ns: *const Namespace, fd: c_int) -> *mut Directory {
    Box::into_raw(Box::new(Directory { buffer: [0; BUFFER / 8], ns, fd, at: 0, end: 0, position: 0 }))
}

/// `fdopendir`: the stream takes the descriptor over.
///
/// # Safety
/// `ns` is a namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_fdopendir(ns: *const Namespace, fd: c_int) -> *mut Directory {
    // SAFETY: the caller's promise.
    if unsafe { bp_fcntl(ns, fd, libc::F_GETFD, 0) } < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: as above.
    let position = unsafe { bp_lseek(ns, fd, 0, libc::SEEK_CUR) };
    let stream = new(ns, fd);
    // SAFETY: just made.
    unsafe { (*stream).position = position };
    stream
}

/// `readdir`: null at the end (errno unchanged) and on error. The entry is good
/// until the next call on this stream.
///
/// # Safety
/// `dir` is an open stream, used by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_readdir(dir: *mut Directory) -> *mut dirent {
    // SAFETY: the caller's promise.
    let Some(dir) = (unsafe { dir.as_mut() }) else {
        fail(libc::EBADF);
        return std::ptr::null_mut();
    };
    if dir.at >= dir.end {
        // SAFETY: the buffer is as long as we say.
        let got = unsafe { bp_getdents64(dir.ns, dir.fd, dir.buffer.as_mut_ptr().cast(), BUFFER) };
        if got <= 0 {
            return std::ptr::null_mut();
        }
        (dir.at, dir.end) = (0, got as usize);
    }
    let entry = dir.buffer.as_mut_ptr().cast::<u8>().wrapping_add(dir.at).cast::<dirent>();
    // SAFETY: a whole entry lies there; field by field, since it may be shorter than the type.
    dir.at += unsafe { (&raw const (*entry).d_reclen).read_unaligned() } as usize;
    // SAFETY: as above.
    dir.position = unsafe { (&raw const (*entry).d_off).read_unaligned() };
    entry
}

/// `closedir`.
///
/// # Safety
/// `dir` is an open stream; it is gone afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_closedir(dir: *mut Directory) -> c_int {
    if dir.is_null() {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: the caller's promise: made by `new`, and ours again.
    let dir = unsafe { Box::from_raw(dir) };
    // SAFETY: the namespace outlives its streams.
    unsafe { bp_close(dir.ns, dir.fd) }
}

/// `dirfd`.
///
/// # Safety
/// `dir` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_dirfd(dir: *const Directory) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (*dir).fd }
}

/// `telldir`.
///
/// # Safety
/// `dir` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_telldir(dir: *const Directory) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { (*dir).position }
}

/// `seekdir`.
///
/// # Safety
/// `dir` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_seekdir(dir: *mut Directory, position: c_long) {
    // SAFETY: the caller's promise.
    let dir = unsafe { &mut *dir };
    (dir.at, dir.end, dir.position) = (0, 0, position);
    // SAFETY: the namespace outlives its streams.
    unsafe { bp_lseek(dir.ns, dir.fd, position, libc::SEEK_SET) };
}

/// `rewinddir`.
///
/// # Safety
/// `dir` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_rewinddir(dir: *mut Directory) {
    // SAFETY: the caller's promise.
    unsafe { bp_seekdir(dir, 0) };
}
