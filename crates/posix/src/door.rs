//! What a door (preload, C API, server) lends to the core.

use pm::Errno;
use pm::file::File;

/// Where descriptor numbers come from.
///
/// For a preloaded program they are real kernel numbers, each held by a
/// placeholder; for the C API they are its own.
pub trait Numbers: Sync {
    /// The lowest free number that is at least `lowest`. `EMFILE` when there is
    /// none, `EINVAL` if `lowest` is out of range.
    fn take(&self, lowest: u32, cloexec: bool) -> Result<u32, Errno>;

    /// Exactly `fd`, whatever the kernel had there is closed (`dup2`). `EBADF` if out of range.
    fn take_exact(&self, fd: u32, cloexec: bool) -> Result<(), Errno>;

    /// Before a handle for [`Numbers::keep`] is opened: the kernel gives out the lowest free number.
    fn before_handle(&self) {}

    /// Keeps the number of a handle (`O_PATH`) on a directory of the kernel's as one of ours, so that what goes by it can be
    /// asked of the kernel at once. `None` where numbers are not the kernel's.
    fn keep(&self, handle: File) -> Option<Result<u32, Errno>> {
        let _ = handle;
        None
    }

    /// As `take`, for another number of what `fd` stands for.
    fn take_like(&self, fd: u32, lowest: u32, cloexec: bool) -> Result<u32, Errno> {
        let _ = fd;
        self.take(lowest, cloexec)
    }

    /// Whether `fd`, one of ours, is the kernel's number of the directory that it stands for.
    fn is_directory(&self, fd: u32) -> bool {
        let _ = fd;
        false
    }

    /// Nobody uses `fd` any more.
    fn give_back(&self, fd: u32);

    /// The kernel has put something else on `fd` (or is about to close it): do not close it.
    fn lost(&self, fd: u32) {
        let _ = fd;
    }
}

/// Services of the door around a [`Process`](crate::Process).
pub trait Door: Sync {
    /// Descriptor numbers; `None`: the process has its own.
    fn numbers(&self) -> Option<&dyn Numbers> {
        None
    }

    /// Whether there is a kernel namespace beside ours. Without one, whatever
    /// is not ours does not exist.
    fn has_kernel(&self) -> bool {
        true
    }

    /// Makes a system call on the program's behalf, result as the kernel gives it.
    ///
    /// # Safety
    /// As for the call itself.
    unsafe fn kernel(&self, nr: usize, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise is the same.
        unsafe { pm::sys::raw(nr, args) }
    }

    /// The program's working directory is now one of ours: moves the kernel's to the
    /// same directory, `path` (NUL-terminated) in the kernel's mount. `false`: the
    /// kernel has no directory with inode number `ino` there.
    fn enter_in_kernel(&self, _path: &[u8], _ino: u64) -> bool {
        false
    }

    /// The program's working directory is now one of ours, which the kernel has not: moves
    /// the kernel's to a place where missed relative calls fail (a deleted directory).
    fn enter_virtual_cwd(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether a signal waits for the call in progress to end: a call that
    /// waits gives up with `EINTR`.
    fn interrupted(&self) -> bool {
        false
    }

    /// From now on the program may touch pages that are not in place yet: the
    /// door asks [`Process::map_fault`](crate::Process::map_fault) before such a fault reaches it.
    fn watch_faults(&self) {}

    /// Whether it does: else all pages are in place from the beginning.
    fn watches_faults(&self) -> bool {
        false
    }

    /// Directory under which kernel objects for FIFOs, sockets and devices
    /// may be made (`$XDG_RUNTIME_DIR`, or `/tmp`). A subdirectory per user is made there.
    fn private_directory(&self) -> &[u8] {
        b"/tmp"
    }
}

/// Numbers of our own: a bitmap, lowest first. For doors without a kernel table. The word of the lowest ones comes last.
#[repr(transparent)]
pub struct Bitmap {
    words: [core::sync::atomic::AtomicU64; Bitmap::WORDS],
}

impl Bitmap {
    const WORDS: usize = crate::FD_MAX as usize / 64;
    /// How many of the lowest numbers one word has.
    pub(crate) const FIRST: u32 = 64;
    /// Where the word of the lowest numbers is, bytes from the beginning.
    pub(crate) const LOWEST: usize = (Bitmap::WORDS - 1) * 8;

    /// The word of a number, if it has one.
    #[inline]
    fn word(&self, fd: u32) -> Option<&core::sync::atomic::AtomicU64> {
        self.words.get((Bitmap::WORDS - 1).wrapping_sub(fd as usize / 64))
    }

    /// All numbers free.
    pub const fn new() -> Self {
        Bitmap { words: [const { core::sync::atomic::AtomicU64::new(0) }; Bitmap::WORDS] }
    }

    #[inline(never)]
    fn give_back_far(&self, fd: u32) {
        if let Some(word) = self.word(fd) {
            word.fetch_and(!(1 << (fd % 64)), AcqRel);
        }
    }

    /// The lowest free number where it is one of the first, as it is nearly always.
    #[inline]
    pub(crate) fn take_fast(&self) -> Option<u32> {
        let word = &self.words[Bitmap::WORDS - 1];
        let seen = word.load(Acquire);
        let bit = (!seen).trailing_zeros();
        // With the lowest zero set.
        let taken = seen | seen.wrapping_add(1);
        (seen != u64::MAX && word.compare_exchange(seen, taken, AcqRel, Acquire).is_ok()).then_some(bit)
    }
}

impl Default for Bitmap {
    fn default() -> Self {
        Self::new()
    }
}

use core::sync::atomic::Ordering::{AcqRel, Acquire};

impl Numbers for Bitmap {
    fn take(&self, lowest: u32, _cloexec: bool) -> Result<u32, Errno> {
        if lowest >= crate::FD_MAX {
            return Err(Errno::EINVAL);
        }
        if lowest == 0
            && let Some(fd) = self.take_fast()
        {
            return Ok(fd);
        }
        let first = lowest as usize / 64;
        for (index, word) in self.words.iter().rev().enumerate().skip(first) {
            let below = if index == first { (1u64 << (lowest % 64)) - 1 } else { 0 };
            let mut seen = word.load(Acquire);
            while seen | below != u64::MAX {
                let bit = (!(seen | below)).trailing_zeros();
                let fd = index as u32 * 64 + bit;
                if fd >= crate::FD_MAX {
                    return Err(Errno::EMFILE);
                }
                match word.compare_exchange(seen, seen | 1 << bit, AcqRel, Acquire) {
                    Ok(_) => return Ok(fd),
                    Err(now) => seen = now,
                }
            }
        }
        Err(Errno::EMFILE)
    }

    fn take_exact(&self, fd: u32, _cloexec: bool) -> Result<(), Errno> {
        if fd >= crate::FD_MAX {
            return Err(Errno::EBADF);
        }
        self.word(fd).ok_or(Errno::EBADF)?.fetch_or(1 << (fd % 64), AcqRel);
        Ok(())
    }

    #[inline]
    fn give_back(&self, fd: u32) {
        if fd >= Bitmap::FIRST {
            return self.give_back_far(fd);
        }
        self.words[Bitmap::WORDS - 1].fetch_and(!(1 << fd), AcqRel);
    }

    fn lost(&self, fd: u32) {
        self.give_back(fd);
    }
}
