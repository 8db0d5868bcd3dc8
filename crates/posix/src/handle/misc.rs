//! Calls that change what the core remembers about the process.

use super::rw::LIMIT_UNKNOWN;
use crate::{Outcome, Process, ThreadState};
use core::sync::atomic::Ordering::Relaxed;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `setrlimit`, `prlimit64`: the kernel's; a limit on file sizes is asked
    /// for again at the next write.
    pub unsafe fn limits(&self, _thread: &ThreadState, _args: [usize; 6]) -> Outcome {
        self.file_limit.store(LIMIT_UNKNOWN, Relaxed);
        Outcome::Kernel
    }
}
