//! stat in both generations, statx, access.
//!
//! glibc's `struct stat` is the kernel's on x86-64 and aarch64.

use super::{HERE, NOFOLLOW, Text};
use crate::direct;
use crate::runtime::call::is_ours;
use crate::runtime::errno::{ret_int, set};
use crate::runtime::front_end::PROCESS;
use crate::runtime::{operation, phase, thread, tls};
use pm::sys::abi::*;

const EMPTY_PATH: i32 = 0x1000;
const EINVAL: i32 = 22;

/// The `version` argument of the old generation: 0 is the kernel's, 1 Linux's; the same here.
fn version_is_right(version: i32) -> bool {
    (0..=1).contains(&version)
}

/// # Safety
/// As for `newfstatat`.
unsafe fn old(version: i32, dirfd: i32, path: Text, out: *mut u8, flags: i32) -> i32 {
    if !version_is_right(version) {
        set(EINVAL);
        return -1;
    }
    // SAFETY: by contract.
    ret_int(unsafe { direct!(path: newfstatat, __NR_newfstatat, dirfd, path, out, flags) })
}

/// `fstat`. A FIFO of the kernel's may stand behind one in a mount.
///
/// # Safety
/// As for `fstat`.
#[inline(always)]
unsafe fn of_descriptor(fd: i32, out: *mut u8) -> i32 {
    // SAFETY: by contract.
    let result = unsafe { direct!(fd: fstat, __NR_fstat, fd, out) };
    // SAFETY: the kernel has written it.
    if result == 0 && unsafe { (*out.cast::<stat>()).st_mode } & S_IFMT == S_IFIFO {
        // SAFETY: as above.
        unsafe { fifo(fd, out) };
    }
    ret_int(result)
}

/// # Safety
/// `out` is a `struct stat` that the kernel has written.
#[cold]
#[inline(never)]
unsafe fn fifo(fd: i32, out: *mut u8) {
    let tls = tls::get();
    if phase::is_active(tls) && !is_ours(fd) {
        operation::enter(tls);
        // SAFETY: by contract.
        unsafe { PROCESS.fstat_behind(thread::state(tls), fd as usize, out as usize) };
        operation::leave(tls);
    }
}

export! {
    fn [stat, stat64, __stat, __stat64](path: Text, out: *mut u8) -> i32 {
        ret_int(direct!(path: newfstatat, __NR_newfstatat, HERE, path, out, 0))
    }
    fn [lstat, lstat64, __lstat, __lstat64](path: Text, out: *mut u8) -> i32 {
        ret_int(direct!(path: newfstatat, __NR_newfstatat, HERE, path, out, NOFOLLOW))
    }
    fn [fstat, fstat64, __fstat, __fstat64](fd: i32, out: *mut u8) -> i32 {
        of_descriptor(fd, out)
    }
    fn [fstatat, fstatat64, __fstatat, __fstatat64](dirfd: i32, path: Text, out: *mut u8, flags: i32) -> i32 {
        ret_int(direct!(path: newfstatat, __NR_newfstatat, dirfd, path, out, flags))
    }
    fn [__xstat, __xstat64](version: i32, path: Text, out: *mut u8) -> i32 {
        old(version, HERE, path, out, 0)
    }
    fn [__lxstat, __lxstat64](version: i32, path: Text, out: *mut u8) -> i32 {
        old(version, HERE, path, out, NOFOLLOW)
    }
    fn [__fxstat, __fxstat64](version: i32, fd: i32, out: *mut u8) -> i32 {
        if !version_is_right(version) {
            set(EINVAL);
            return -1;
        }
        of_descriptor(fd, out)
    }
    fn [__fxstatat, __fxstatat64](version: i32, dirfd: i32, path: Text, out: *mut u8, flags: i32) -> i32 {
        old(version, dirfd, path, out, flags)
    }
    fn statx(dirfd: i32, path: Text, flags: i32, mask: u32, out: *mut u8) -> i32 {
        ret_int(direct!(path: statx, __NR_statx, dirfd, path, flags, mask, out))
    }
    fn [access, __access](path: Text, want: i32) -> i32 {
        ret_int(direct!(path: faccessat, __NR_faccessat, HERE, path, want))
    }
    fn faccessat(dirfd: i32, path: Text, want: i32, flags: i32) -> i32 {
        if flags == 0 {
            ret_int(direct!(path: faccessat, __NR_faccessat, dirfd, path, want))
        } else if flags & !(NOFOLLOW | EMPTY_PATH | AT_EACCESS as i32) != 0 {
            set(EINVAL);
            -1
        } else {
            ret_int(direct!(path: faccessat2, __NR_faccessat2, dirfd, path, want, flags))
        }
    }
    fn [eaccess, euidaccess](path: Text, want: i32) -> i32 {
        ret_int(direct!(path: faccessat2, __NR_faccessat2, HERE, path, want, AT_EACCESS))
    }
}
