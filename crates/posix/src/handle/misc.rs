//! Calls that change what the core remembers about the process.

use super::err;
use super::rw::LIMIT_UNKNOWN;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::Kind;
use core::sync::atomic::Ordering::Relaxed;
use pm::{Errno, faults};

const PAGE: u64 = 4096;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `setrlimit`, `prlimit64`: the kernel's; a limit on file sizes is asked for again at the next write.
    pub unsafe fn limits(&self, nr: u32, args: [usize; 6]) -> Outcome {
        if !self.door.has_kernel() {
            return Outcome::Kernel;
        }
        // SAFETY: the caller's promise.
        let result = unsafe { self.door.kernel(nr as usize, args) };
        // Once it holds: who asks before that is told the old one.
        self.file_limit.store(LIMIT_UNKNOWN, Relaxed);
        Outcome::Done(result)
    }

    /// `cachestat(fd, range, out, flags)`: of what a file has, everything is in memory.
    pub unsafe fn cachestat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            if bad(args[1]) || bad(args[2]) {
                return err(Errno::EFAULT);
            }
            // SAFETY: the caller's promise.
            let [start, len] = unsafe { faults::read(args[1] as *const [u64; 2]) }?;
            if file.entry.kind() != Kind::Regular {
                return err(Errno::EOPNOTSUPP);
            }
            if args[3] != 0 {
                return err(Errno::EINVAL);
            }
            let size = file.mount.backend.attr(cx, file.node)?.size;
            let end = if len == 0 { size } else { start.saturating_add(len).min(size) };
            let cached = if start < end { end.div_ceil(PAGE) - start / PAGE } else { 0 };
            // Cached, dirty, being written, evicted, recently evicted.
            // SAFETY: the caller's promise.
            unsafe { faults::write(args[2] as *mut [u64; 5], &[cached, 0, 0, 0, 0]) }?;
            Ok(0)
        })
    }
}
