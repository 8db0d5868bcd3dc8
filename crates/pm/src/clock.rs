//! The clock that stamps files.

//!
//! The kernel's function (vDSO) is asked, never libc's: a sanitizer puts its own in front of that, which falls over
//! before the sanitizer has started, and what it does while it starts may be the first call that comes to us.

use crate::sys::abi;
use crate::vdso::{self, ClockGettime};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Now, nanoseconds since the epoch, from the kernel's coarse clock: what its
/// own file systems stamp with.
pub fn now() -> i64 {
    read(abi::CLOCK_REALTIME_COARSE as i32)
}

/// Nanoseconds of the monotonic clock, for waiting.
pub fn monotonic() -> i64 {
    read(abi::CLOCK_MONOTONIC as i32)
}

/// As [`monotonic`], in steps of a few milliseconds, for what grows old.
#[inline]
pub fn coarse() -> i64 {
    read(abi::CLOCK_MONOTONIC_COARSE as i32)
}

/// Steps of a made-up clock; 0: the kernel's is used.
#[cfg(feature = "sim")]
static STEPS: core::sync::atomic::AtomicI64 = core::sync::atomic::AtomicI64::new(0);

/// From now on the clocks are made up: they start at `start` nanoseconds (not
/// 0) and go on by a microsecond each time they are read.
#[cfg(feature = "sim")]
pub fn make_up(start: i64) {
    STEPS.store(start, core::sync::atomic::Ordering::Relaxed);
}

fn read(clock: i32) -> i64 {
    ask(Clock::here().0, clock)
}

#[inline(always)]
fn ask(clock_gettime: ClockGettime, clock: i32) -> i64 {
    #[cfg(feature = "sim")]
    if STEPS.load(core::sync::atomic::Ordering::Relaxed) != 0 {
        return STEPS.fetch_add(1000, core::sync::atomic::Ordering::Relaxed);
    }
    let mut time = core::mem::MaybeUninit::<abi::__kernel_timespec>::uninit();
    // SAFETY: room for a timespec; x86-64 and aarch64 have 64-bit time_t.
    unsafe { clock_gettime(clock, time.as_mut_ptr()) };
    // SAFETY: of a clock that there is, it tells the time.
    let time = unsafe { time.assume_init() };
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}

/// The clock that stamps files, at hand: whoever keeps it asks the kernel's function itself, and not what libc has in
/// front of it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(ClockGettime);

impl Clock {
    /// That of this program, for as long as it lives.
    #[inline]
    pub fn here() -> Clock {
        /// Its address; 0: not looked up yet. All find the same.
        static KNOWN: AtomicUsize = AtomicUsize::new(0);
        match KNOWN.load(Relaxed) {
            0 => {
                let found = vdso::clock_gettime().unwrap_or(by_call);
                KNOWN.store(found as *const () as usize, Relaxed);
                Clock(found)
            }
            // SAFETY: stored above: a function of this type.
            known => Clock(unsafe { core::mem::transmute::<usize, ClockGettime>(known) }),
        }
    }

    /// As [`now`].
    #[inline(always)]
    pub fn now(self) -> i64 {
        ask(self.0, abi::CLOCK_REALTIME_COARSE as i32)
    }
}

/// As the kernel's function, where it has mapped none.
///
/// # Safety
/// `time` is valid.
unsafe extern "C" fn by_call(clock: i32, time: *mut abi::__kernel_timespec) -> i32 {
    // SAFETY: the caller's.
    unsafe { crate::sys::raw(abi::__NR_clock_gettime as usize, [clock as usize, time as usize, 0, 0, 0, 0]) as i32 }
}
