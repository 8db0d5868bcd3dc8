//! The clock that stamps files.

use crate::sys::abi;

unsafe extern "C" {
    // The vDSO behind it makes this a function call; libc's is no file function.
    fn clock_gettime(clock: i32, time: *mut abi::__kernel_timespec) -> i32;
}

/// Now, nanoseconds since the epoch, from the kernel's coarse clock: what its
/// own file systems stamp with.
#[inline]
pub fn now() -> i64 {
    read(abi::CLOCK_REALTIME_COARSE as i32)
}

/// Nanoseconds of the monotonic clock, for waiting.
pub fn monotonic() -> i64 {
    read(abi::CLOCK_MONOTONIC as i32)
}

#[inline]
fn read(clock: i32) -> i64 {
    let mut time = abi::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec; x86-64 and aarch64 have 64-bit time_t.
    unsafe { clock_gettime(clock, &mut time) };
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}
