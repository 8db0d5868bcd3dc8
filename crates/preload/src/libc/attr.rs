//! Mode, owner, times.

use super::{HERE, NOFOLLOW, Text};
use crate::runtime::errno::{ret_int, set};
use crate::{direct, serve};
use pm::sys::abi::*;

const EINVAL: i32 = 22;

/// Seconds and nanoseconds, twice: access and modification.
type Times = [i64; 4];

/// `struct timeval[2]` as `struct timespec[2]`; `None` if out of range.
///
/// # Safety
/// `times` is null or points to two `timeval`.
unsafe fn from_timeval(times: *const Times) -> Option<Option<Times>> {
    if times.is_null() {
        return Some(None);
    }
    // SAFETY: by contract.
    let [a, a_micro, m, m_micro] = unsafe { *times };
    let right = 0..1_000_000i64;
    (right.contains(&a_micro) && right.contains(&m_micro)).then_some(Some([a, a_micro * 1000, m, m_micro * 1000]))
}

/// Sets times given as `timeval`s.
///
/// # Safety
/// As for `utimensat`.
unsafe fn set_timeval(dirfd: i32, path: Text, times: *const Times, flags: i32) -> i32 {
    // SAFETY: by contract.
    let Some(times) = (unsafe { from_timeval(times) }) else {
        set(EINVAL);
        return -1;
    };
    let at = times.as_ref().map_or(core::ptr::null(), |t| t.as_ptr());
    // SAFETY: by contract; `at` is null or our own array.
    ret_int(unsafe { direct!(path: utimensat, __NR_utimensat, dirfd, path, at, flags) })
}

export! {
    fn [chmod, __chmod](path: Text, mode: u32) -> i32 {
        ret_int(direct!(path: fchmodat, __NR_fchmodat, HERE, path, mode))
    }
    fn [fchmod, __fchmod](fd: i32, mode: u32) -> i32 {
        ret_int(serve!(__NR_fchmod, fd, mode))
    }
    fn fchmodat(dirfd: i32, path: Text, mode: u32, flags: i32) -> i32 {
        if flags == 0 {
            return ret_int(direct!(path: fchmodat, __NR_fchmodat, dirfd, path, mode));
        }
        if flags & !(NOFOLLOW | 0x1000) != 0 {
            set(EINVAL);
            return -1;
        }
        let result = serve!(__NR_fchmodat2, dirfd, path, mode, flags);
        // Kernels before 6.6 lack the call; glibc answers so too.
        ret_int(if result == -38 { -95 } else { result })
    }
    fn lchmod(path: Text, mode: u32) -> i32 {
        fchmodat(HERE, path, mode, NOFOLLOW)
    }
    fn [chown, __chown](path: Text, uid: u32, gid: u32) -> i32 {
        ret_int(direct!(path: fchownat, __NR_fchownat, HERE, path, uid, gid, 0))
    }
    fn [lchown, __lchown](path: Text, uid: u32, gid: u32) -> i32 {
        ret_int(direct!(path: fchownat, __NR_fchownat, HERE, path, uid, gid, NOFOLLOW))
    }
    fn [fchown, __fchown](fd: i32, uid: u32, gid: u32) -> i32 {
        ret_int(serve!(__NR_fchown, fd, uid, gid))
    }
    fn fchownat(dirfd: i32, path: Text, uid: u32, gid: u32, flags: i32) -> i32 {
        ret_int(direct!(path: fchownat, __NR_fchownat, dirfd, path, uid, gid, flags))
    }
    fn utime(path: Text, times: *const [i64; 2]) -> i32 {
        if times.is_null() {
            return ret_int(direct!(path: utimensat, __NR_utimensat, HERE, path, 0, 0));
        }
        let [a, m] = *times;
        let times: Times = [a, 0, m, 0];
        ret_int(direct!(path: utimensat, __NR_utimensat, HERE, path, times.as_ptr(), 0))
    }
    fn [utimes, __utimes](path: Text, times: *const Times) -> i32 {
        set_timeval(HERE, path, times, 0)
    }
    fn lutimes(path: Text, times: *const Times) -> i32 {
        set_timeval(HERE, path, times, NOFOLLOW)
    }
    fn futimes(fd: i32, times: *const Times) -> i32 {
        set_timeval(fd, core::ptr::null(), times, 0)
    }
    fn futimesat(dirfd: i32, path: Text, times: *const Times) -> i32 {
        set_timeval(dirfd, path, times, 0)
    }
    fn utimensat(dirfd: i32, path: Text, times: *const Times, flags: i32) -> i32 {
        if path.is_null() {
            set(EINVAL);
            return -1;
        }
        ret_int(direct!(path: utimensat, __NR_utimensat, dirfd, path, times, flags))
    }
    fn futimens(fd: i32, times: *const Times) -> i32 {
        if fd < 0 {
            set(9);
            return -1;
        }
        ret_int(direct!(path: utimensat, __NR_utimensat, fd, 0, times, 0))
    }
}
