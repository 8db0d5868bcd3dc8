//! Calls by descriptor.

use crate::{Namespace, call, calls, fail, fast, words};
use libc::{c_char, c_int, c_uint, c_ulong, c_void, gid_t, iovec, mode_t, off_t, size_t, ssize_t, stat, timespec, uid_t};
use pm::sys::abi;
use posix::Outcome;

calls! {
    /// `close_range`.
    fn bp_close_range(first: c_uint, last: c_uint, flags: c_uint) -> c_int = close_range(first, last, flags);
    /// `read`.
    fn bp_read(fd: c_int, out: *mut c_void, len: size_t) -> ssize_t = read(fd, out, len);
    /// `readv`.
    fn bp_readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t = readv(fd, vector, count);
    /// `writev`.
    fn bp_writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t = writev(fd, vector, count);
    /// `preadv`.
    fn bp_preadv(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t = preadv(fd, vector, count, offset);
    /// `pwritev`.
    fn bp_pwritev(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t = pwritev(fd, vector, count, offset);
    /// `lseek`.
    fn bp_lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = lseek(fd, offset, whence);
    /// `fstat`.
    fn bp_fstat(fd: c_int, out: *mut stat) -> c_int = fstat(fd, out);
    /// `fchmod`.
    fn bp_fchmod(fd: c_int, mode: mode_t) -> c_int = fchmod(fd, mode);
    /// `fchown`.
    fn bp_fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int = fchown(fd, uid, gid);
    /// `futimens`.
    fn bp_futimens(fd: c_int, times: *const timespec) -> c_int = utimensat(fd, 0, times, 0);
    /// `ftruncate`.
    fn bp_ftruncate(fd: c_int, len: off_t) -> c_int = ftruncate(fd, len);
    /// `fallocate`.
    fn bp_fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int = fallocate(fd, mode, offset, len);
    /// `dup`.
    fn bp_dup(fd: c_int) -> c_int = dup(fd);
    /// `dup3`.
    fn bp_dup3(fd: c_int, new: c_int, flags: c_int) -> c_int = dup3(fd, new, flags);
    /// `fcntl`; the argument is always given.
    fn bp_fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = fcntl(fd, command, argument);
    /// `ioctl`; the argument is always given.
    fn bp_ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int = ioctl(fd, request, argument);
    /// `flock`.
    fn bp_flock(fd: c_int, operation: c_int) -> c_int = flock(fd, operation);
    /// `fsync`.
    fn bp_fsync(fd: c_int) -> c_int = fsync(fd);
    /// `fdatasync`.
    fn bp_fdatasync(fd: c_int) -> c_int = fdatasync(fd);
    /// `syncfs`.
    fn bp_syncfs(fd: c_int) -> c_int = syncfs(fd);
    /// `sendfile`.
    fn bp_sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = sendfile(to, from, offset, len);
    /// `copy_file_range`.
    fn bp_copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t
        = copy_file_range(from, from_offset, to, to_offset, len, flags);
    /// `getdents64`.
    fn bp_getdents64(fd: c_int, out: *mut c_void, len: size_t) -> ssize_t = getdents64(fd, out, len);
    /// `fgetxattr`.
    fn bp_fgetxattr(fd: c_int, name: *const c_char, out: *mut c_void, len: size_t) -> ssize_t = fgetxattr(fd, name, out, len);
    /// `fsetxattr`.
    fn bp_fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int = fsetxattr(fd, name, value, len, flags);
    /// `flistxattr`.
    fn bp_flistxattr(fd: c_int, out: *mut c_char, len: size_t) -> ssize_t = flistxattr(fd, out, len);
    /// `fremovexattr`.
    fn bp_fremovexattr(fd: c_int, name: *const c_char) -> c_int = fremovexattr(fd, name);
}

fast! {
    /// `close`.
    fn bp_close(fd: c_int) -> c_int = close_fast[thread](fd as usize), else close(fd);
    /// `write`.
    fn bp_write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t = write_fast[thread](fd as usize, data as usize, len), else write_slow(fd, data, len);
    /// `pwrite`.
    fn bp_pwrite(fd: c_int, data: *const c_void, len: size_t, offset: off_t) -> ssize_t = pwrite_fast[thread](fd as usize, data as usize, len, offset as usize), else pwrite_slow(fd, data, len, offset);
    /// `pread`.
    fn bp_pread(fd: c_int, out: *mut c_void, len: size_t, offset: off_t) -> ssize_t = pread_fast[thread](fd as usize, out as usize, len, offset as usize), else pread_slow(fd, out, len, offset);
}

/// `dup2`.
///
/// # Safety
/// `ns` is null or a namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_dup2(ns: *const Namespace, fd: c_int, new: c_int) -> c_int {
    if fd != new {
        // SAFETY: the caller's promise.
        return unsafe { bp_dup3(ns, fd, new, 0) };
    }
    // SAFETY: the caller's promise.
    if unsafe { bp_fcntl(ns, fd, libc::F_GETFD, 0) } < 0 { -1 } else { new }
}

/// `sync`.
///
/// # Safety
/// `ns` is null or a namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_sync(ns: *const Namespace) {
    // SAFETY: the caller's promise; the call has no result.
    unsafe {
        call(ns, |process, thread| {
            process.sync(thread, words([]));
            Outcome::Done(0)
        })
    };
}

/// `struct statvfs` from the kernel's figures.
///
/// # Safety
/// `out` is writable.
unsafe fn finish_statvfs(result: isize, from: &abi::statfs, out: *mut libc::statvfs) -> c_int {
    if result < 0 {
        return -1;
    }
    if out.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: all fields are integers, for which zero is a value.
    let mut figures: libc::statvfs = unsafe { std::mem::zeroed() };
    figures.f_bsize = from.f_bsize as _;
    figures.f_frsize = if from.f_frsize == 0 { from.f_bsize as _ } else { from.f_frsize as _ };
    figures.f_blocks = from.f_blocks as _;
    figures.f_bfree = from.f_bfree as _;
    figures.f_bavail = from.f_bavail as _;
    figures.f_files = from.f_files as _;
    figures.f_ffree = from.f_ffree as _;
    figures.f_favail = from.f_ffree as _;
    figures.f_fsid = from.f_fsid.val[0] as u32 as _;
    // ST_RDONLY and ST_NOSUID are the same bits in both.
    figures.f_flag = (from.f_flags as u64 & 3) as _;
    figures.f_namemax = from.f_namelen as _;
    // SAFETY: the caller's promise.
    unsafe { *out = figures };
    0
}

/// `statvfs`.
///
/// # Safety
/// As for the call in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_statvfs(ns: *const Namespace, path: *const c_char, out: *mut libc::statvfs) -> c_int {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut figures: abi::statfs = unsafe { std::mem::zeroed() };
    let at = &raw mut figures as usize;
    // SAFETY: the caller's promise, and room for a `struct statfs`.
    let result = unsafe { call(ns, |process, thread| process.statfs(thread, words([path as usize, at]))) };
    // SAFETY: the caller's promise.
    unsafe { finish_statvfs(result, &figures, out) }
}

/// `fstatvfs`.
///
/// # Safety
/// As for the call in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_fstatvfs(ns: *const Namespace, fd: c_int, out: *mut libc::statvfs) -> c_int {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut figures: abi::statfs = unsafe { std::mem::zeroed() };
    let at = &raw mut figures as usize;
    // SAFETY: room for a `struct statfs`.
    let result = unsafe { call(ns, |process, thread| process.fstatfs(thread, words([fd as usize, at]))) };
    // SAFETY: the caller's promise.
    unsafe { finish_statvfs(result, &figures, out) }
}

/// `mmap` of an open file: `MAP_FAILED` on error.
///
/// # Safety
/// As for the call in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_mmap(
    ns: *const Namespace,
    address: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let args = words([address as usize, len, prot as usize, flags as usize, fd as usize, offset as usize]);
    // SAFETY: the caller's promise.
    unsafe { call(ns, |process, thread| process.mmap(thread, args)) as *mut c_void }
}

/// Makes a call of the mapping family: ranges that are not ours are the kernel's.
///
/// # Safety
/// As for the call in C.
unsafe fn mapping(
    nr: u32,
    args: [usize; 6],
    ns: *const Namespace,
    serve: impl FnOnce(&posix::Process, &posix::ThreadState) -> Outcome,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        call(ns, |process, thread| match serve(process, thread) {
            Outcome::Kernel => Outcome::Done(pm::sys::raw(nr as usize, args)),
            Outcome::KernelWith { nr, args } => Outcome::Done(pm::sys::raw(nr, args)),
            done => done,
        })
    }
}

/// `munmap`.
///
/// # Safety
/// As for the call in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_munmap(ns: *const Namespace, address: *mut c_void, len: size_t) -> c_int {
    let args = words([address as usize, len]);
    // SAFETY: the caller's promise.
    unsafe { mapping(abi::__NR_munmap, args, ns, |process, thread| process.munmap(thread, args)) as c_int }
}

/// `msync`.
///
/// # Safety
/// As for the call in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_msync(ns: *const Namespace, address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let args = words([address as usize, len, flags as usize]);
    // SAFETY: the caller's promise.
    unsafe { mapping(abi::__NR_msync, args, ns, |process, thread| process.msync(thread, args)) as c_int }
}
