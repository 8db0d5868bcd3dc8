//! `dup` and its kin.

use super::{done, err, fail};
use crate::descriptors::Entry;
use crate::{FD_MAX, Outcome, Process, ThreadState};
use base::Error;
use pm::Errno;
use pm::sys::abi;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// Another number, at least `lowest`, for what `entry`, number `old`, stands for.
    pub(crate) fn dup_above(&self, entry: Entry, old: usize, lowest: u32, cloexec: bool) -> base::Result<usize> {
        let numbers = self.numbers();
        let fd = numbers.take_like(old as u32, lowest, cloexec)?;
        self.dup_onto(entry, fd, cloexec).inspect_err(|_| numbers.give_back(fd))
    }

    /// `fd`, a number that is ours and free, stands for what `entry` does.
    fn dup_onto(&self, entry: Entry, fd: u32, cloexec: bool) -> base::Result<usize> {
        let mount = self.mounts.get(entry.slot()).ok_or(Error::Posix(Errno::EBADF))?;
        mount.backend.dup(entry.description(), fd)?;
        self.descriptors.put(fd, entry.with_cloexec(cloexec));
        Ok(fd as usize)
    }

    /// `dup(fd)`.
    pub unsafe fn dup(&self, _thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let Some(file) = self.file(args[0]) else { return Outcome::Kernel };
        done(self.dup_above(file.entry, args[0], 0, false))
    }

    /// `dup2(old, new)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn dup2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let (old, new) = (args[0] as u32, args[1] as u32);
        if old == new && self.file(args[0]).is_some() {
            return Outcome::Done(new as isize);
        }
        // SAFETY: the caller's promise.
        unsafe { self.dup_to(thread, (abi::__NR_dup2, args), old, new, false) }
    }

    /// `dup3(old, new, flags)`.
    pub unsafe fn dup3(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let (old, new, flags) = (args[0] as u32, args[1] as u32, args[2] as u32);
        if flags & !abi::O_CLOEXEC != 0 || old == new {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { self.dup_to(thread, (abi::__NR_dup3, args), old, new, flags & abi::O_CLOEXEC != 0) }
    }

    unsafe fn dup_to(&self, thread: &ThreadState, call: (u32, [usize; 6]), old: u32, new: u32, cloexec: bool) -> Outcome {
        let Some(source) = self.file(old as usize) else {
            if new >= FD_MAX || !self.descriptors.is_ours(new as usize) || !self.door.has_kernel() {
                return Outcome::Kernel;
            }
            // A kernel descriptor replaces one of ours.
            // SAFETY: the caller's promise.
            let result = unsafe { self.door.kernel(call.0 as usize, call.1) };
            if result >= 0 && self.let_go(thread, new) {
                self.numbers().lost(new);
            }
            return Outcome::Done(result);
        };
        if new >= FD_MAX {
            return fail(Errno::EBADF);
        }
        let entry = source.entry;
        let numbers = self.numbers();
        // What stands under a number of ours is any other's too, but for a directory's own.
        if (!self.let_go(thread, new) || numbers.is_directory(new))
            && let Err(errno) = numbers.take_exact(new, cloexec)
        {
            numbers.give_back(new);
            return fail(errno);
        }
        let result = match self.dup_onto(entry, new, cloexec) {
            Ok(fd) => Ok(fd),
            Err(error) => {
                self.numbers().give_back(new);
                err(error.errno())
            }
        };
        done(result)
    }
}
