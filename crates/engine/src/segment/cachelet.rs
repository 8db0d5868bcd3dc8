//! The cachelet (DirectFS): what is cached of an inode and its name, in 128 bytes.
//!
//! One for each cached inode; its name is one of the inode's names. It is found
//! from a bucket (by name, warm) or from the inode's versioned reference (ByVFS).
//! Type-stable: readers need no lock, they check identity and sequence.
//!
//! Invariants
//! - `sequence` is odd while the cachelet is being changed; only the holder of
//!   `owner` (or a loader that has just taken it) changes it.
//! - A cachelet whose `node` is 0 caches nothing. With `opens > 0`, `owner != 0`
//!   or a directory entered by a lane it is never given to another inode.
//! - The image is the truth. `INVALID` means: load again from the inode.
//!
//! Flags and their words in DirectFS: [`UNREADABLE`], [`DELETING`], [`INVALID`].

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};
use format::layout::LANES;
use zerocopy::{FromBytes, KnownLayout};

/// Longest name kept in a cachelet, bytes.
pub const NAME_SHORT: usize = 40;

/// Contents are not to be used: load them from the inode.
pub const INVALID: u32 = 1;
/// The inode is gone (no links, no opens); the node is stale.
pub const DEAD: u32 = 2;
/// A directory whose name is gone, kept for those who have it open.
pub const REMOVED: u32 = 4;
/// Flags that say that a cachelet is no longer what was looked for ([`Cachelet::is_still`]).
pub const ODD: u32 = INVALID | DEAD | REMOVED | UNCOMPARED;
/// The inode has a cold line (atime, btime, xattrs).
pub const COLD: u32 = 8;
/// A directory whose counts must be retaken.
pub const RECOUNT: u32 = 16;
/// Flags that say that, or that not all attributes are in it.
pub const ODD_ATTRIBUTES: u32 = ODD | COLD | RECOUNT;
/// A directory closed to entry for a while (being recounted or evicted).
pub const UNREADABLE: u32 = 32;
/// A directory being removed: nobody may enter; nobody may make names in it.
pub const DELETING: u32 = 64;
/// Used since the CLOCK hand last passed.
pub const REFERENCED: u32 = 128;
/// About to be given to another inode: openers keep off.
pub const EVICTING: u32 = 512;
/// A process has mapped the file since the last time that nobody had it open:
/// its blocks are zeroed, not freed.
pub const MAPPED: u32 = 256;
/// A file has blocks beyond its end, given out ahead of need: taken back at the last close.
pub const AHEAD: u32 = 1024;

/// A directory of a cache not all of whose names are here: that one is missing says nothing. The bit that says of a file
/// that it has blocks [`AHEAD`].
pub const PARTIAL: u32 = AHEAD;

/// The kernel may keep the attributes of this inode, and what is mapped of it.
pub const KNOWN: u32 = 2048;
/// The kernel may keep names in this directory, and that there are none.
pub const NAMES_KNOWN: u32 = 4096;
/// The kernel executes the file, or has: whoever opens it for writing asks. Also of a node that nobody may change
/// (`frozen.rs`); of a directory that alone.
pub const EXECUTED: u32 = 8192;
/// A process has mapped the file's own pages, and may store into them without a call. Stays
/// when the mapping has gone: what the kernel has read of the file meanwhile may be old.
pub const STORED: u32 = 16384;
/// The file may have capabilities, which a change of its contents takes away: whoever makes one looks. Set with [`COLD`]
/// when a cachelet is loaded, so that loading need not look itself.
pub const CAPABLE: u32 = 32768;
/// A process has mapped holes of the file as zeroes: who fills one takes the zeroes away (`file/zeros.rs`). The bit that
/// says of a directory that [`NAMES_KNOWN`]: there is no other left.
pub const HOLES: u32 = NAMES_KNOWN;
/// A file is being overwritten whole or not at all (`file/atomic.rs`): who reads it looks whether the one who does it lives.
/// The bit that says of a directory that it is [`UNREADABLE`].
pub const OVERWRITTEN: u32 = UNREADABLE;
/// A file of a cache may lack bytes here: its original is compared before it is opened. The bit that says of other files that
/// they are [`EXECUTED`], which keeps the fast path from opening them.
pub const UNSURE: u32 = EXECUTED;
/// These bits of a word of flags say which lane has closed a directory, or is about to give a cachelet away: its number + 1.
pub const CLOSER: u32 = 0x7fff << CLOSER_SHIFT;
const CLOSER_SHIFT: u32 = 16;
const _: () = assert!(CAPABLE < CLOSER & CLOSER.wrapping_neg() && LANES < CLOSER >> CLOSER_SHIFT);
/// A node of a cache that nobody has compared with its original since the shared cache was made (`lower/compare.rs`): the fast
/// path leaves it to the slow one.
pub const UNCOMPARED: u32 = 1 << 31;

/// The lane + 1 that a word of flags names; 0: none.
#[inline]
pub const fn closer(flags: u32) -> u32 {
    (flags & CLOSER) >> CLOSER_SHIFT
}

/// A word of flags that names lane `number`, and nothing else.
#[inline]
pub const fn closed_by(number: u32) -> u32 {
    (number + 1) << CLOSER_SHIFT & CLOSER
}

/// A cachelet, two lines: what is asked of a directory that names are changed in, and of a file that is read, lies on
/// the first.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(128))]
#[allow(missing_docs)]
pub struct Cachelet {
    pub sequence: AtomicU32,
    pub flags: AtomicU32,
    /// Node id of the inode; 0: free.
    pub node: AtomicU64,
    /// Files: copy of the data root. Directories: slot cursor (next 32 | last freed + 1 32).
    pub root: AtomicU64,
    /// name length 8 | kind 8 | mode 16.
    pub mode: AtomicU32,
    pub uid: AtomicU32,
    pub gid: AtomicU32,
    /// Rises when blocks are taken from the file or moved; odd while that is going on.
    pub map_sequence: AtomicU32,
    pub size: AtomicU64,
    /// Files: the time. Directories: `st_dev` (`segment/device.rs`).
    pub mtime: AtomicU64,
    pub ctime: AtomicU64,

    /// Lane + 1 that holds the inode.
    pub owner: AtomicU32,
    /// Open file descriptions on it.
    pub opens: AtomicU32,
    /// Link count; sub-directories + 2 for directories.
    pub nlink: AtomicU32,
    /// Blocks allocated.
    pub blocks: AtomicU32,
    /// Offset of the parent directory's inode, for the name below; 0: no name cached.
    pub parent: AtomicU64,
    /// The name, zero-filled.
    pub name: [AtomicU64; 5],
}

const _: () = assert!(size_of::<Cachelet>() == 128);

impl Cachelet {
    /// Whether none of the `odd` flags is set, and the sequence is still `sequence`: of what was read before this, that
    /// it was so.
    #[inline]
    pub(crate) fn is_still(&self, sequence: u32, odd: u32) -> bool {
        fence(Acquire);
        self.flags.load(Acquire) & odd == 0 && self.sequence.load(Relaxed) == sequence
    }

    /// For the holder of `owner`: whether it is this node's and says what is so.
    #[inline]
    pub(crate) fn is_sound(&self, node: u64) -> bool {
        self.node.load(Acquire) == node && self.flags.load(Acquire) & (DEAD | INVALID) == 0
    }
}

/// Packs the mode word.
#[inline]
pub const fn pack_mode(name_len: u8, kind: u8, mode: u16) -> u32 {
    (name_len as u32) << 24 | (kind as u32) << 16 | mode as u32
}
