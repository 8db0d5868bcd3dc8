//! Where a file's blocks are: the data root and extent nodes.
//!
//! ```text
//! root: 0                                             nothing allocated
//!       block 32 | length 24 | 0 5 | shared 1 | 01    one extent from file block 0 on
//!       node block 32 | 0 22 | depth 8 | 10           a tree; depth 0: the node is a leaf
//! entry (16 bytes): 0 31 | shared 1 | file block 32  |  leaf: block 32 | length 32;  inner: node block 32 | 0
//! node: one block; count and depth in the first 16 bytes, then 255 entries in order of file block
//! ```
//! Nodes are replaced, not changed, except where a single 8-byte store does it
//! (a longer last extent, an appended entry with the count after it).
//!
//! Other extents may have the blocks of one that says [`SHARED`] too, in an image with
//! [`Features::SHARED`](crate::Features::SHARED): [`crate::shares`] says how many. In any other the bit is 0, and what
//! has it is damaged.

use crate::layout::BLOCK;
use core::mem::size_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use zerocopy::{FromBytes, KnownLayout};

/// Entries in a node.
pub const NODE_ENTRIES: usize = 255;
/// Deepest tree: 255³ extents are more than a file of 16 TiB can have in runs of 256 KiB; one more for good measure.
pub const DEPTH_MAX: u8 = 4;
/// Largest file, bytes.
pub const FILE_MAX: u64 = 16 << 40;

/// In a root word that is one extent: other extents may have its blocks too.
pub const SHARED: u64 = 4;
/// The same in the first word of a leaf's entry.
pub const ENTRY_SHARED: u64 = 1 << 32;

/// A run of blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First block within the file.
    pub file: u64,
    /// First block in the image.
    pub block: u64,
    /// Number of blocks.
    pub len: u64,
    /// Other extents may have the blocks too.
    pub shared: bool,
}

/// An entry of a node.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// First block within the file, and in a leaf whether the blocks are [`shared`](ENTRY_SHARED).
    pub file: AtomicU64,
    /// In a leaf the first block in the image, and the number of blocks; else the node below.
    pub run: AtomicU64,
}

impl Entry {
    /// First block within the file.
    #[inline]
    pub fn key(&self) -> u64 {
        self.file.load(Relaxed) & !ENTRY_SHARED
    }

    /// The extent that an entry of a leaf is.
    #[inline]
    pub fn extent(&self) -> Extent {
        let (file, run) = (self.file.load(Relaxed), self.run.load(Relaxed));
        Extent { file: file & !ENTRY_SHARED, block: run >> 32, len: run & 0xffff_ffff, shared: file & ENTRY_SHARED != 0 }
    }
}

impl Extent {
    /// The words of a leaf's entry.
    #[inline]
    pub const fn pack(self) -> (u64, u64) {
        (self.file | if self.shared { ENTRY_SHARED } else { 0 }, self.block << 32 | self.len)
    }

    /// The extent of blocks `from..to` of the file, which are among this one's.
    #[inline]
    pub const fn part(self, from: u64, to: u64) -> Extent {
        Extent { file: from, block: self.block + (from - self.file), len: to - from, shared: self.shared }
    }

    /// First block of the file behind it.
    #[inline]
    pub const fn end(self) -> u64 {
        self.file.saturating_add(self.len)
    }
}

/// A node.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(4096))]
pub struct Node {
    /// Number of entries.
    pub count: AtomicU64,
    /// Depth: 0 for a leaf.
    pub depth: AtomicU64,
    /// Entries, sorted by file block.
    pub entries: [Entry; NODE_ENTRIES],
}

const _: () = assert!(size_of::<Node>() == BLOCK as usize);

/// A data root, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// No blocks.
    Empty,
    /// One extent from the start of the file.
    One {
        /// First block in the image.
        block: u64,
        /// Number of blocks.
        len: u64,
        /// Other extents may have the blocks too.
        shared: bool,
    },
    /// A tree of nodes.
    Tree {
        /// Block number of the top node.
        node: u64,
        /// Its depth.
        depth: u8,
    },
}

/// Longest extent that [`Root::One`] can hold, blocks.
pub const ONE_MAX: u64 = (1 << 24) - 1;

impl Root {
    /// Unpacks the word; `None` if it is damaged.
    #[inline]
    pub const fn unpack(word: u64) -> Option<Root> {
        match word & 3 {
            0 if word == 0 => Some(Root::Empty),
            1 if word as u8 & !(SHARED as u8) == 1 => {
                Some(Root::One { block: word >> 32, len: word >> 8 & ONE_MAX, shared: word & SHARED != 0 })
            }
            2 if word as u32 >> 2 <= DEPTH_MAX as u32 => Some(Root::Tree { node: word >> 32, depth: (word >> 2) as u8 }),
            _ => None,
        }
    }

    /// First block and length, if the word is of a single run of blocks, to be read.
    #[inline]
    pub const fn one(word: u64) -> Option<(u64, u64)> {
        if word as u8 & !(SHARED as u8) == 1 { Some((word >> 32, word >> 8 & ONE_MAX)) } else { None }
    }

    /// The same, if nobody else can have the blocks: they may be written.
    #[inline]
    pub const fn own(word: u64) -> Option<(u64, u64)> {
        if word as u8 == 1 { Some((word >> 32, word >> 8 & ONE_MAX)) } else { None }
    }

    /// The word without the bits that must be 0, for whoever fixes it.
    pub const fn cleaned(word: u64) -> u64 {
        match word & 3 {
            1 => word & !(0xfc & !SHARED),
            2 => word & !0xffff_fc00,
            _ => word,
        }
    }

    /// Packs it. `len` must be at most [`ONE_MAX`].
    #[inline]
    pub const fn pack(self) -> u64 {
        match self {
            Root::Empty => 0,
            Root::One { block, len, shared } => block << 32 | len << 8 | if shared { SHARED } else { 0 } | 1,
            Root::Tree { node, depth } => node << 32 | (depth as u64) << 2 | 2,
        }
    }
}

/// A symlink's root word: offset of its text (whole lines within a block); its length is the inode's size.
#[inline]
pub const fn symlink_lines(len: u64) -> u32 {
    len.div_ceil(crate::LINE) as u32
}
