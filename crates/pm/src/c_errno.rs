//! C's `errno`, where a failing call has to set it: at one distance from the thread pointer in all threads.
//!
//! To ask libc for its address is a call through a table, to a function that reads another table and the thread pointer: five
//! lines of data for four bytes. libc is loaded before any thread starts, so its thread-local variables lie in the static
//! block, at a distance from the thread pointer that is the same in every thread (ELF Handling For Thread-Local Storage, §3.4).

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// libc's way to tell where this thread's `errno` is.
pub type Locate = unsafe extern "C" fn() -> *mut i32;

/// Where `errno` is, seen from the thread pointer; one for each libc that is in use, which is one.
#[derive(Debug)]
pub struct CErrno {
    locate: Locate,
    /// Bytes; 0 until first asked for: there the thread pointer itself lies.
    #[cfg(target_arch = "x86_64")]
    distance: AtomicIsize,
}

impl CErrno {
    /// As `locate` tells it.
    ///
    /// # Safety
    /// It does, in every thread.
    pub const unsafe fn new(locate: Locate) -> CErrno {
        CErrno {
            locate,
            #[cfg(target_arch = "x86_64")]
            distance: AtomicIsize::new(0),
        }
    }

    /// Sets this thread's `errno`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn set(&self, errno: i32) {
        let mut distance = self.distance.load(Relaxed);
        if distance == 0 {
            distance = self.measure();
        }
        // SAFETY: at this distance lies the `errno` of whichever thread this is, which nobody else writes meanwhile.
        unsafe {
            core::arch::asm!("mov dword ptr fs:[{}], {:e}", in(reg) distance, in(reg) errno, options(nostack, preserves_flags));
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[cold]
    #[inline(never)]
    fn measure(&self) -> isize {
        let thread: isize;
        // SAFETY: the thread pointer's first word holds it (x86-64 psABI, §3.4.2).
        unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(readonly, nostack, preserves_flags)) };
        // SAFETY: it only tells.
        let distance = (unsafe { (self.locate)() } as isize).wrapping_sub(thread);
        self.distance.store(distance, Relaxed);
        distance
    }

    /// Sets this thread's `errno`.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn set(&self, errno: i32) {
        // SAFETY: libc tells where this thread's is.
        unsafe { *(self.locate)() = errno };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[link(name = "c")]
    unsafe extern "C" {
        safe fn __errno_location() -> *mut i32;
    }

    /// Goal: each thread's own is set, whichever asked first. Method: eight threads set theirs, and read what libc says once
    /// all have, spinning meanwhile (whoever sleeps may be told an error).
    #[test]
    fn each_thread_has_its_own() {
        use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
        // SAFETY: libc tells.
        static ERRNO: CErrno = unsafe { CErrno::new(__errno_location) };
        static DONE: AtomicU32 = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for number in 1001..=1008 {
                scope.spawn(move || {
                    ERRNO.set(number);
                    DONE.fetch_add(1, SeqCst);
                    while DONE.load(SeqCst) != 8 {
                        core::hint::spin_loop();
                    }
                    // SAFETY: of this thread.
                    assert_eq!(unsafe { *__errno_location() }, number);
                });
            }
        });
    }
}
