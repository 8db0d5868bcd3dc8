//! One file per family of calls. Arguments and results are the kernel's.
//!
//! A handler is a method named after its call, with the call's raw arguments:
//! a door that knows which call it serves goes straight to it, without the
//! switch in [`Process::handle`]. Every handler answers [`Outcome::Kernel`]
//! for what is not ours. Its `# Safety` is always that of [`Process::handle`].

mod attr;
pub(crate) mod buffers;
mod clone;
mod close;
mod copy;
pub(crate) mod cwd;
mod dir;
mod dup;
mod fcntl;
mod lock;
mod lower;
mod misc;
mod mmap;
mod mounting;
mod namespace;
mod number;
pub(crate) mod open;
mod parted;
mod poll;
mod runs;
pub(crate) mod rw;
mod same;
mod seek;
mod socket;
mod special;
mod splice;
mod stat;
mod statfs;
mod sync;
mod trees;
mod unsynced;
mod watch;
mod xattr;

pub use mmap::MapFault;
pub(crate) use mmap::Mappings;
pub use trees::Named;

use crate::path::{OpenFile, Place, Spot};
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Fast, Last, Node};
use core::sync::atomic::Ordering::Relaxed;
use parted::OF_THREADS;
use pm::Errno;
use pm::sys::abi;
use vfs::Backend;

/// How often a path is walked anew because what it led to was removed meanwhile.
pub(crate) const ATTEMPTS: u32 = 100;

/// A result, as the kernel would return it.
#[inline]
pub(crate) fn done(result: base::Result<usize>) -> Outcome {
    match result {
        Ok(value) => Outcome::Done(value as isize),
        Err(error) => Outcome::Done(-(error.errno().0 as isize)),
    }
}

/// A failure.
#[inline]
pub(crate) fn fail(errno: Errno) -> Outcome {
    Outcome::Done(-(errno.0 as isize))
}

pub(crate) const fn err<T>(errno: Errno) -> base::Result<T> {
    Err(Error::Posix(errno))
}

impl Process {
    /// Serves a call on the node at the end of a path, where the fast path finds it. `None`: take the slow path.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub(crate) unsafe fn at_found(
        &self,
        thread: &ThreadState,
        dirfd: usize,
        pointer: usize,
        last: Last,
        serve: impl FnOnce(&Cx, &dyn Backend, Node) -> base::Result<usize>,
    ) -> Option<Outcome> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.find_fast(self.credentials.caller(), dirfd, pointer, last == Last::Follow) }?;
        let (mount, Fast::Done(sight)) = found else { return None };
        match serve(&self.cx(thread), mount.backend, sight.node) {
            // It is gone.
            Err(Error::Posix(Errno::ESTALE)) => None,
            result => Some(done(result)),
        }
    }

    /// Resolves the path in argument `index`, relative to `dirfd`, and serves
    /// it with `serve` if it is ours; else passes call `nr` on.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub(crate) unsafe fn at<'a>(
        &'a self,
        thread: &'a ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        last: Last,
        serve: impl FnMut(&Cx<'a>, &Spot<'a>) -> base::Result<usize>,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.at_as(self.cx(thread), thread, call, dirfd, index, last, serve) }
    }

    /// As `at`, in another context.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn at_as<'a>(
        &'a self,
        cx: Cx<'a>,
        thread: &'a ThreadState,
        (nr, mut args): (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        last: Last,
        mut serve: impl FnMut(&Cx<'a>, &Spot<'a>) -> base::Result<usize>,
    ) -> Outcome {
        for _ in 0..ATTEMPTS {
            // SAFETY: the caller's promise.
            match unsafe { self.resolve(&cx, thread, 0, dirfd, args[index], last) } {
                // What the path led to was removed meanwhile: it leads elsewhere now, or nowhere.
                Ok(Place::Ours(spot)) => match serve(&cx, &spot) {
                    Err(Error::Posix(Errno::ESTALE)) => continue,
                    result => return done(result),
                },
                Ok(Place::Kernel) => return Outcome::Kernel,
                Ok(Place::Text(text)) => {
                    args[index] = text;
                    return Outcome::KernelWith { nr: nr as usize, args };
                }
                Err(Error::Posix(Errno::ESTALE)) => continue,
                Err(error) => return fail(error.errno()),
            }
        }
        fail(self.never_there())
    }

    /// What is said of a path that leads to something that is gone each time: there is no such thing; unless a file
    /// system answers everything so.
    #[cold]
    pub(crate) fn never_there(&self) -> Errno {
        let is_stale = self.mounts.iter().any(|(_, mount)| mount.backend.refuses() == Some(Errno::ESTALE));
        if is_stale { Errno::ESTALE } else { Errno::ENOENT }
    }

    /// Serves a call on descriptor `fd` if it is ours; `EBADF` for `O_PATH`.
    #[inline]
    pub(crate) fn on<'a>(
        &'a self,
        thread: &'a ThreadState,
        fd: usize,
        serve: impl FnOnce(&Cx<'a>, OpenFile<'a>) -> base::Result<usize>,
    ) -> Outcome {
        let Some(file) = self.file(fd) else { return Outcome::Kernel };
        if file.entry.path_only() {
            return fail(Errno::EBADF);
        }
        done(serve(&self.cx(thread), file))
    }

    /// As `on`, also for `O_PATH` descriptors.
    #[inline]
    pub(crate) fn on_any<'a>(
        &'a self,
        thread: &'a ThreadState,
        fd: usize,
        serve: impl FnOnce(&Cx<'a>, OpenFile<'a>) -> base::Result<usize>,
    ) -> Outcome {
        let Some(file) = self.file(fd) else { return Outcome::Kernel };
        done(serve(&self.cx(thread), file))
    }

    /// Whether a call names its object by descriptor alone: an empty path with
    /// `AT_EMPTY_PATH` (`null` too, where the call allows it).
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub(crate) unsafe fn empty_path(path: usize, flags: usize, null: bool) -> bool {
        flags as u32 & abi::AT_EMPTY_PATH != 0
            && match path {
                0 => null,
                low if crate::text::bad(low) => false,
                _ => pm::faults::is_byte(path as *const u8, 0),
            }
    }

    /// Second step for a call that [`handle`](Self::handle) left to the kernel
    /// and that failed with `errno` (positive): the path may lead into a mount
    /// through symlinks outside, or relative to a directory above it.
    /// [`Outcome::Kernel`] means that the failure stands.
    ///
    /// # Safety
    /// As for [`handle`](Self::handle).
    pub unsafe fn handle_after_failure(&self, thread: &ThreadState, nr: usize, args: [usize; 6], errno: i32) -> Outcome {
        let errno = Errno(errno);
        if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) || self.mounts.is_empty() || !number::takes_path(nr) {
            return Outcome::Kernel;
        }
        thread.retry.set(true);
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.handle(thread, nr, args) };
        thread.retry.set(false);
        outcome
    }

    /// The door saw a call that may have changed user, groups or capabilities.
    pub fn credentials_changed(&self) {
        self.credentials.changed();
        if self.note_namespace() {
            self.settle_here();
        }
    }

    /// Who we are, for the environment of the next program ([`environment::IDS`](crate::environment::IDS)); its length.
    pub fn carry_ids(&self, out: &mut [u8]) -> usize {
        self.credentials.carry(out)
    }

    /// Takes that over, before anything is mounted.
    pub fn take_ids_over(&self, text: &[u8]) {
        self.credentials.take_over(text);
    }

    /// Takes note of whether owners are shown as they are; whether that is new.
    pub(crate) fn note_namespace(&self) -> bool {
        let before = self.mounts.is_flat();
        self.mounts.show_owners(base::ids::is_initial());
        self.mounts.is_flat() != before
    }

    /// The mask, once something was mounted.
    #[inline]
    pub(crate) fn umask_known(&self) -> u16 {
        let mask = self.umask.load(Relaxed);
        if mask == OF_THREADS { parted::umask() } else { mask as u16 }
    }

    #[inline]
    pub(crate) fn umask_now(&self) -> u16 {
        let mask = self.umask.load(Relaxed);
        if mask == u32::MAX { self.umask_ask() } else { self.umask_known() }
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
