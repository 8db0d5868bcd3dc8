//! The descriptor table: which numbers are ours, and what they stand for.
//!
//! One packed word a number, read without a lock. The backend knows the same
//! number as the holder of the description; the order is always: backend first
//! (`open`, `dup`), then the table; and on `close` the table first, then the
//! backend, then the number goes back to the door.

use crate::here::{Beginning, Here};
use base::{DescriptionId, Kind, MOUNTS_MAX};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Numbers of ours are below this; it is also the number that holds the
/// working directory.
pub const FD_MAX: u32 = 16383;
/// The pseudo descriptor that holds the working directory.
pub const CWD_FD: u32 = FD_MAX;
/// Pseudo descriptors that hold mapped files start here.
pub const MAP_FD: u32 = FD_MAX + 1;
/// How many mappings of our files one process can have.
pub const MAPS_MAX: usize = 4095;
/// Pseudo descriptor for moments when another changes hands. It is the highest
/// that a backend sees.
pub const SPARE_FD: u32 = MAP_FD + MAPS_MAX as u32;

/// What a number stands for.
///
/// ```text
/// 63 62  61 .. 45 44    43..40 39..36 35 34   33     32        31 .. 0
/// W, R | unused | used | slot | DT_* | unused | path | cloexec | description
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u64);

/// In every entry, so that none is 0.
const USED: u64 = 1 << 44;
const _: () = assert!(MOUNTS_MAX == 16);
const CLOEXEC: u64 = 1 << 32;
const PATH: u64 = 1 << 33;
const READ: u64 = 1 << 62;
/// The sign: a word is asked at once whether it is there and may be written.
const WRITE: u64 = 1 << 63;

impl Entry {
    /// Packs one.
    #[inline]
    pub fn new(slot: usize, description: DescriptionId, kind: Kind, cloexec: bool, path_only: bool) -> Self {
        Entry(
            USED | ((slot % MOUNTS_MAX) as u64) << 40
                | (kind as u64) << 36
                | if cloexec { CLOEXEC } else { 0 }
                | if path_only { PATH } else { 0 }
                | description as u64,
        )
    }

    /// One of a file or directory opened with these `O_*`, not as a path only.
    #[inline]
    pub fn opened(slot: u8, description: DescriptionId, kind: Kind, flags: u32) -> Self {
        const _: () = assert!((CLOEXEC >> 13) as u32 == pm::sys::abi::O_CLOEXEC);
        debug_assert!(usize::from(slot) < MOUNTS_MAX);
        let cloexec = u64::from(flags & pm::sys::abi::O_CLOEXEC) << 13;
        Entry(USED | u64::from(slot) << 40 | (kind as u64) << 36 | access(flags) | cloexec | u64::from(description))
    }

    /// The same, open for reading and writing as these `O_*` say.
    #[inline]
    pub fn with_access(self, flags: u32) -> Self {
        Entry(if self.path_only() { self.0 } else { self.0 | access(flags) })
    }

    /// Open for reading.
    #[inline]
    pub fn readable(self) -> bool {
        self.0 & READ != 0
    }

    /// Open for writing.
    #[inline]
    pub fn writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Mount slot.
    #[inline]
    pub fn slot(self) -> usize {
        (self.0 >> 40) as usize % MOUNTS_MAX
    }

    /// Description in that mount's backend.
    #[inline]
    pub fn description(self) -> DescriptionId {
        self.0 as u32
    }

    /// Type of the open node.
    #[inline]
    pub fn kind(self) -> Kind {
        Kind::from_dt((self.0 >> 36) as u8 & 15).unwrap_or(Kind::Regular)
    }

    /// `FD_CLOEXEC`.
    #[inline]
    pub fn cloexec(self) -> bool {
        self.0 & CLOEXEC != 0
    }

    /// Opened with `O_PATH`.
    #[inline]
    pub fn path_only(self) -> bool {
        self.0 & PATH != 0
    }

    /// The same with another close-on-exec flag.
    #[inline]
    pub fn with_cloexec(self, cloexec: bool) -> Self {
        Entry(if cloexec { self.0 | CLOEXEC } else { self.0 & !CLOEXEC })
    }
}

/// `READ` and `WRITE` of these `O_*`.
#[inline]
const fn access(flags: u32) -> u64 {
    const _: () = assert!(READ == 1 << 62 && WRITE == 2 << 62);
    // `O_RDONLY` 0, `O_WRONLY` 1, `O_RDWR` 2: one more is the two bits; 3 is neither.
    (flags.wrapping_add(1) as u64) << 62
}

/// The table. The working directory's word comes last, at the border of a line if the table begins at one; what is
/// known of it lies behind.
#[repr(C)]
pub struct Descriptors {
    /// Every number ever put (the working directory's aside) is below this, so
    /// that a search for all of them is short.
    end: AtomicU32,
    words: [AtomicU64; FD_MAX as usize + 1],
    here: Here,
}

const _: () = assert!((core::mem::offset_of!(Descriptors, here) - 8).is_multiple_of(64));

impl Descriptors {
    /// An empty table.
    pub const fn new() -> Self {
        Descriptors {
            end: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; FD_MAX as usize + 1],
            here: Here { node: AtomicU64::new(0), state: AtomicU32::new(0), hint: AtomicU32::new(0) },
        }
    }

    /// Where relative paths start, if that is known.
    #[inline]
    pub fn here(&self) -> Option<Beginning> {
        self.here.get()
    }

    /// Takes note of where relative paths start now. By one thread at a time, and whenever the working directory's word was put.
    pub(crate) fn set_here(&self, beginning: Option<Beginning>) {
        self.here.set(beginning);
    }

    /// What `fd` stands for, if it is ours.
    #[inline]
    pub fn get(&self, fd: u32) -> Option<Entry> {
        let word = self.words.get(fd as usize)?.load(Ordering::Acquire);
        if word == 0 { None } else { Some(Entry(word)) }
    }

    /// Whether a program's `fd` argument is one of ours.
    #[inline]
    pub fn is_ours(&self, fd: usize) -> bool {
        fd < FD_MAX as usize && self.words[fd].load(Ordering::Relaxed) != 0
    }

    /// Puts an entry; returns what was there.
    #[inline]
    pub fn put(&self, fd: u32, entry: Entry) -> Option<Entry> {
        if fd < FD_MAX && fd >= self.end.load(Ordering::Relaxed) {
            self.end.fetch_max(fd + 1, Ordering::AcqRel);
        }
        self.swap(fd, entry.0)
    }

    /// Changes a word. Where relative paths start is not known then if it was the working directory's.
    #[inline]
    fn swap(&self, fd: u32, word: u64) -> Option<Entry> {
        let old = self.words.get(fd as usize)?.swap(word, Ordering::AcqRel);
        if fd == CWD_FD {
            self.here.set(None);
        }
        if old == 0 { None } else { Some(Entry(old)) }
    }

    /// Puts an entry at a number that nobody else has.
    #[inline]
    pub fn put_new(&self, fd: u32, entry: Entry) {
        if fd < FD_MAX && fd >= self.end.load(Ordering::Relaxed) {
            self.end.fetch_max(fd + 1, Ordering::AcqRel);
        }
        if let Some(word) = self.words.get(fd as usize) {
            word.store(entry.0, Ordering::Release);
        }
    }

    /// Takes an entry out of a program's number, which it is known to be.
    #[inline]
    pub fn take_own(&self, fd: u32) -> Option<Entry> {
        let old = self.words[(fd % FD_MAX.next_power_of_two()) as usize].swap(0, Ordering::AcqRel);
        if old == 0 { None } else { Some(Entry(old)) }
    }

    /// Takes an entry out.
    #[inline]
    pub fn take(&self, fd: u32) -> Option<Entry> {
        self.swap(fd, 0)
    }

    /// Changes the close-on-exec flag of `fd`.
    #[inline]
    pub fn set_cloexec(&self, fd: u32, cloexec: bool) {
        if let Some(word) = self.words.get(fd as usize) {
            // An entry that somebody closes meanwhile stays closed.
            let _ = word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| (old != 0).then(|| Entry(old).with_cloexec(cloexec).0));
        }
    }

    /// All numbers that were ever ours (without the working directory's).
    pub(crate) fn ever_put(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.end.load(Ordering::Acquire)
    }

    /// All numbers of ours in `first..=last` (without the working directory's).
    pub fn range(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, Entry)> {
        (first..last.saturating_add(1).min(self.end.load(Ordering::Acquire))).filter_map(|fd| Some((fd, self.get(fd)?)))
    }
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}
