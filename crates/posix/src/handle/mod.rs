//! One file per family of calls. Arguments and results are the kernel's.

use crate::{Outcome, Process, ThreadState};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;

impl Process {
    /// Serves system call `nr` if it concerns a file, descriptor or path of ours.
    ///
    /// # Safety
    /// `args` are what a program hands the kernel: its pointers must be good
    /// for what the call does with them. (Null and low ones are answered `EFAULT`.)
    pub unsafe fn handle(&self, thread: &ThreadState, nr: usize, args: [usize; 6]) -> Outcome {
        let _ = (thread, nr, args);
        Outcome::Kernel
    }

    /// Second step for a call that [`handle`](Self::handle) left to the kernel
    /// and that failed with `errno` (positive): the path may lead into a mount
    /// through symlinks outside, or relative to the kernel's working directory.
    /// [`Outcome::Kernel`] means that the failure stands.
    ///
    /// # Safety
    /// As for [`handle`](Self::handle).
    pub unsafe fn handle_after_failure(&self, thread: &ThreadState, nr: usize, args: [usize; 6], errno: i32) -> Outcome {
        let _ = (thread, nr, args, errno);
        Outcome::Kernel
    }

    /// The door saw a call that may have changed user, groups or capabilities.
    pub fn credentials_changed(&self) {
        self.credentials.refresh();
    }

    #[inline]
    pub(crate) fn umask_now(&self) -> u16 {
        let mask = self.umask.load(Relaxed);
        if mask == u32::MAX { self.umask_ask() } else { mask as u16 }
    }

    #[cold]
    fn umask_ask(&self) -> u16 {
        // SAFETY: any mask is valid; set back at once.
        let mask = unsafe { pm::sys::raw(abi::__NR_umask as usize, [0o77, 0, 0, 0, 0, 0]) };
        // SAFETY: as above.
        unsafe { pm::sys::raw(abi::__NR_umask as usize, [mask as usize, 0, 0, 0, 0, 0]) };
        self.umask.store(mask as u32 & 0o777, Relaxed);
        mask as u16 & 0o777
    }
}
