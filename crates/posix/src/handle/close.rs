//! `close`, and what else ends what a number stands for.

use super::{done, fail};
use crate::descriptors::Entry;
use crate::{Outcome, Process, ThreadState};
use openfiles::Unclosed;
use pm::Errno;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `close(fd)`.
    #[inline]
    pub unsafe fn close(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        match self.close_number(thread, args[0] as u32) {
            Some(result) => Outcome::Done(result),
            None => Outcome::Kernel,
        }
    }

    /// The kernel has a file of its own on `fd` now: ends what it stood for here.
    pub fn became_kernels(&self, thread: &ThreadState, fd: u32) {
        if self.let_go(thread, fd) {
            self.numbers().lost(fd);
        }
    }

    /// `close`, if `fd` is ours.
    #[inline]
    fn close_number(&self, thread: &ThreadState, fd: u32) -> Option<isize> {
        if !self.descriptors.is_ours(fd as usize) {
            return None;
        }
        // Not the kernel's to close: somebody else has just closed ours.
        let Some(entry) = self.descriptors.take_own(fd) else { return Some(-(Errno::EBADF.0 as isize)) };
        if let Some(rest) = self.end_fast(entry, fd) {
            return Some(self.close_rest(thread, entry, fd, rest));
        }
        self.give_number_back(fd);
        Some(0)
    }

    /// What the fast path has left of a close; what that returns. The number is free in any case.
    #[cold]
    #[inline(never)]
    pub(crate) fn close_rest(&self, thread: &ThreadState, entry: Entry, fd: u32, rest: Unclosed) -> isize {
        let ended = self.end_rest(thread, entry, fd, rest);
        self.give_number_back(fd);
        ended.map_or_else(|error| -(error.errno().0 as isize), |()| 0)
    }

    /// Ends what `fd` stands for, but keeps the number. False if it was not ours.
    pub(crate) fn let_go(&self, thread: &ThreadState, fd: u32) -> bool {
        let Some(entry) = self.descriptors.take(fd) else { return false };
        if let Some(rest) = self.end_fast(entry, fd) {
            // As the kernel's `dup2`, which has nobody to tell.
            let _ = self.end_rest(thread, entry, fd, rest);
        }
        true
    }

    /// Ends what an entry stood for that was taken out of `fd`, on the fast path.
    #[inline]
    fn end_fast(&self, entry: Entry, fd: u32) -> Option<Unclosed> {
        let mount = self.mounts.held(entry.slot())?;
        // This process may have locked records of it.
        if self.has_record_locks() {
            return Some(Unclosed::All);
        }
        mount.close_fast(fd)
    }

    /// What [`Process::end_fast`] has left.
    #[cold]
    #[inline(never)]
    fn end_rest(&self, thread: &ThreadState, entry: Entry, fd: u32, rest: Unclosed) -> base::Result<()> {
        let Some(mount) = self.mounts.held(entry.slot()) else { return Ok(()) };
        let cx = self.cx(thread);
        if self.has_record_locks()
            && !entry.path_only()
            && let Some(file) = self.open_file(entry)
        {
            mount.backend.drop_process_locks(&cx, file.node);
        }
        mount.close_rest(&cx, fd, rest)
    }

    /// `close_range(first, last, flags)`.
    pub unsafe fn close_range(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const CLOSE_RANGE_CLOEXEC: u32 = 4;
        let (first, last, flags) = (args[0] as u32, args[1] as u32, args[2] as u32);
        if first > last || flags & !(2 | CLOSE_RANGE_CLOEXEC) != 0 {
            return fail(Errno::EINVAL);
        }
        for (fd, _) in self.descriptors.range(first, last) {
            if flags & CLOSE_RANGE_CLOEXEC != 0 {
                self.descriptors.set_cloexec(fd, true);
            } else if self.let_go(thread, fd) {
                self.numbers().lost(fd);
            }
        }
        if self.door.has_kernel() { Outcome::Kernel } else { done(Ok(0)) }
    }
}
