//! Raw system calls.
//!
//! libc's wrappers are out of bounds here: inside a preloaded program they are
//! our own symbols. A result in `-4095..0` is a negated error number, as the
//! kernel returns it.

pub use linux_raw_sys::general as abi;

use crate::Errno;

/// Makes system call `nr` with six arguments and returns the kernel's raw result.
///
/// # Safety
/// The arguments must be what the kernel expects of call `nr`; pointers must
/// stay valid for as long as the kernel uses them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn raw(nr: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the clobbers are those of
    // the x86-64 system-call convention.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes system call `nr` with six arguments and returns the kernel's raw result.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn raw(nr: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the clobbers are those of
    // the aarch64 system-call convention.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") nr,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// Turns the kernel's raw result into a `Result`.
#[inline]
pub fn check(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// `sys::call!(__NR_x, a, b, …)` — a raw system call with up to six arguments
/// (each cast to `usize`), as `Result<usize, Errno>`. Must stand in `unsafe`.
#[macro_export]
macro_rules! call {
    ($nr:expr) => { $crate::call!(@ $nr, 0, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr) => { $crate::call!(@ $nr, $a, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr) => { $crate::call!(@ $nr, $a, $b, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => { $crate::call!(@ $nr, $a, $b, $c, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::call!(@ $nr, $a, $b, $c, $d, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::call!(@ $nr, $a, $b, $c, $d, $e, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { $crate::call!(@ $nr, $a, $b, $c, $d, $e, $f) };
    (@ $nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::check($crate::sys::raw(
            $nr as usize,
            [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize],
        ))
    };
}
