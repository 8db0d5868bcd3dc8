//! Descriptors: dup, fcntl, ioctl, locks, terminals.

use super::Text;
use crate::runtime::call::is_ours;
use crate::runtime::errno::{ret_int, set};
use crate::{direct, next, serve};
use core::ffi::{c_char, c_void};
use pm::sys::abi::*;

const EBADF: i32 = 9;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;

type Fcntl = unsafe extern "C" fn(i32, i32, usize) -> i32;

/// `dup2`, which aarch64 has only as `dup3`.
///
/// # Safety
/// As for `dup2`.
unsafe fn dup2_call(from: i32, to: i32) -> isize {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by contract.
    return unsafe { serve!(__NR_dup2, from, to) };
    #[cfg(not(target_arch = "x86_64"))]
    {
        if from == to {
            // SAFETY: by contract.
            let flags = unsafe { direct!(fd: fcntl, __NR_fcntl, from, F_GETFL) };
            return if flags < 0 { flags } else { to as isize };
        }
        crate::runtime::call::dup3(from, to, 0)
    }
}

/// # Safety
/// As for `fcntl`.
unsafe fn fcntl_call(fd: i32, command: i32, argument: usize) -> i32 {
    // F_GETOWN is F_GETOWN_EX in libc; waiting for a lock is a cancellation point.
    if matches!(command as u32, F_GETOWN | F_SETLKW | F_OFD_SETLKW)
        && !is_ours(fd)
        && let Some(next) = next!(Fcntl, "fcntl")
    {
        // SAFETY: by contract.
        return unsafe { next(fd, command, argument) };
    }
    // SAFETY: by contract.
    ret_int(unsafe { direct!(fd: fcntl, __NR_fcntl, fd, command, argument) })
}

/// `struct flock` of 64-bit machines.
#[repr(C)]
struct Lock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

/// `lockf` by record locks, as in libc.
///
/// # Safety
/// No pointers.
unsafe fn lockf_call(fd: i32, command: i32, len: i64) -> i32 {
    // F_RDLCK 0, F_WRLCK 1, F_UNLCK 2; SEEK_CUR 1
    let mut lock = Lock { kind: 1, whence: 1, start: 0, len, pid: 0 };
    let how = match command {
        3 => {
            lock.kind = 0;
            // SAFETY: the struct outlives the call.
            if unsafe { fcntl_call(fd, F_GETLK as i32, &raw mut lock as usize) } < 0 {
                return -1;
            }
            // SAFETY: takes no arguments.
            let own = unsafe { pm::sys::raw(__NR_getpid as usize, [0; 6]) } as i32;
            if lock.kind == 2 || lock.pid == own {
                return 0;
            }
            set(EACCES);
            return -1;
        }
        0 => {
            lock.kind = 2;
            F_SETLK
        }
        1 => F_SETLKW,
        2 => F_SETLK,
        _ => {
            set(EINVAL);
            return -1;
        }
    };
    // SAFETY: the struct outlives the call.
    unsafe { fcntl_call(fd, how as i32, &raw const lock as usize) }
}

/// For terminal functions: `errno` for a descriptor of ours.
fn not_a_terminal(fd: i32) -> bool {
    if is_ours(fd) {
        set(ENOTTY);
        return true;
    }
    false
}

export! {
    fn [dup, __dup](fd: i32) -> i32 {
        ret_int(serve!(__NR_dup, fd))
    }
    fn [dup2, __dup2](from: i32, to: i32) -> i32 {
        ret_int(dup2_call(from, to))
    }
    fn [dup3, __dup3](from: i32, to: i32, flags: i32) -> i32 {
        ret_int(serve!(__NR_dup3, from, to, flags))
    }
    fn [fcntl, fcntl64, __fcntl, __fcntl64](fd: i32, command: i32, argument: usize) -> i32 {
        fcntl_call(fd, command, argument)
    }
    fn [setrlimit, setrlimit64](resource: i32, limit: *const c_void) -> i32 {
        ret_int(serve!(__NR_prlimit64, 0, resource, limit, 0))
    }
    fn [prlimit, prlimit64](pid: i32, resource: i32, new: *const c_void, old: *mut c_void) -> i32 {
        ret_int(serve!(__NR_prlimit64, pid, resource, new, old))
    }
    fn flock(fd: i32, operation: i32) -> i32 {
        ret_int(serve!(__NR_flock, fd, operation))
    }
    fn [lockf, lockf64](fd: i32, command: i32, len: i64) -> i32 {
        lockf_call(fd, command, len)
    }
    fn [ioctl, __ioctl](fd: i32, request: usize, argument: usize) -> i32 {
        match super::loops::configured(fd, request, argument) {
            Some(result) => ret_int(result),
            None => ret_int(serve!(__NR_ioctl, fd, request, argument)),
        }
    }
    fn isatty(fd: i32) -> i32 {
        if not_a_terminal(fd) {
            return 0;
        }
        let mut settings = [0u32; 16];
        (ret_int(serve!(__NR_ioctl, fd, 0x5401, settings.as_mut_ptr())) == 0) as i32
    }
    fn tcgetattr(fd: i32, out: *mut c_void) -> i32 {
        if not_a_terminal(fd) {
            return -1;
        }
        match next!(unsafe extern "C" fn(i32, *mut c_void) -> i32, "tcgetattr") {
            Some(next) => next(fd, out),
            None => { set(EBADF); -1 }
        }
    }
    fn ttyname(fd: i32) -> *mut c_char {
        if not_a_terminal(fd) {
            return core::ptr::null_mut();
        }
        match next!(unsafe extern "C" fn(i32) -> *mut c_char, "ttyname") {
            Some(next) => next(fd),
            None => core::ptr::null_mut(),
        }
    }
    fn ttyname_r(fd: i32, out: *mut c_char, len: usize) -> i32 {
        if is_ours(fd) {
            return ENOTTY;
        }
        match next!(unsafe extern "C" fn(i32, *mut c_char, usize) -> i32, "ttyname_r") {
            Some(next) => next(fd, out, len),
            None => ENOTTY,
        }
    }
    fn pidfd_open(pid: i32, flags: u32) -> i32 {
        ret_int(serve!(__NR_pidfd_open, pid, flags))
    }
    fn open_tree(dirfd: i32, path: Text, flags: u32) -> i32 {
        ret_int(serve!(__NR_open_tree, dirfd, path, flags))
    }
}
