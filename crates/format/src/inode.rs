//! The inode: one line (DenseFS §3.1), eight words.
//!
//! ```text
//!  0 head      generation 32 | flags 8 | kind 8 | permission index 16
//!  8 links     files: blocks 32 | link count 32      directories: sub-directories 64
//! 16 size      files, symlinks: bytes                directories: entries
//! 24 mtime     ns since the epoch
//! 32 ctime
//! 40 root      files, directories: data root (extent.rs)   symlinks: text   devices: rdev
//! 48 cachelet  volatile: generation 32 | cachelet index + 1   (ByVFS §3.2)
//! 56 extra     directories: own edentry; offset of the cold line instead if flag COLD
//! ```
//! Everything but `cachelet` is written through lane records or, for words that
//! stand alone (size and times of a data write), by one 8-byte store.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::{FromBytes, KnownLayout};

/// An inode on the medium.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Inode {
    pub head: AtomicU64,
    pub links: AtomicU64,
    pub size: AtomicU64,
    pub mtime: AtomicU64,
    pub ctime: AtomicU64,
    pub root: AtomicU64,
    pub cachelet: AtomicU64,
    pub extra: AtomicU64,
}

const _: () = assert!(size_of::<Inode>() == 64);

/// Offsets of the words, for record operations.
#[allow(missing_docs)]
pub mod word {
    pub const HEAD: u64 = 0;
    pub const LINKS: u64 = 8;
    pub const SIZE: u64 = 16;
    pub const MTIME: u64 = 24;
    pub const CTIME: u64 = 32;
    pub const ROOT: u64 = 40;
    pub const CACHELET: u64 = 48;
    pub const EXTRA: u64 = 56;
}

/// `extra` is the offset of a [`Cold`] line.
pub const COLD: u8 = 1;
/// A directory whose counts must be taken again before they are used.
pub const RECOUNT: u8 = 2;
/// Made by `O_TMPFILE` without `O_EXCL` and never linked: may be linked once.
pub const LINKABLE: u8 = 4;
// 8 is not used.
/// Of a snapshot: nobody changes it, or the names in it ([`Features::FROZEN`](crate::Features::FROZEN)).
pub const FROZEN: u8 = 16;

/// The first word of an inode, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Rises with every reuse of the line; 24 bits count.
    pub generation: u32,
    /// [`COLD`], [`RECOUNT`], [`LINKABLE`], [`FROZEN`].
    pub flags: u8,
    /// `DT_*` number; 0 in a freed inode.
    pub kind: u8,
    /// Index into the permission table.
    pub permission: u16,
}

impl Head {
    /// Unpacks the word.
    #[inline]
    pub const fn unpack(word: u64) -> Head {
        Head { generation: (word >> 32) as u32, flags: (word >> 24) as u8, kind: (word >> 16) as u8, permission: word as u16 }
    }

    /// Packs it.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | (self.flags as u64) << 24 | (self.kind as u64) << 16 | self.permission as u64
    }
}

/// Packs the links word of anything but a directory.
#[inline]
pub const fn pack_links(nlink: u32, blocks: u32) -> u64 {
    (blocks as u64) << 32 | nlink as u64
}

/// The links word of anything but a directory: (link count, blocks).
#[inline]
pub const fn unpack_links(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Inode {
    /// The unpacked head, as it is now.
    #[inline]
    pub fn head(&self) -> Head {
        Head::unpack(self.head.load(Relaxed))
    }
}

/// What few inodes have: a line of its own, allocated when somebody sets one of these.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct Cold {
    /// Access time, if `flags` says so.
    pub atime: AtomicU64,
    /// Birth time, if `flags` says so.
    pub btime: AtomicU64,
    /// Extended attributes: first block 32 | number of bytes 32; 0 if none.
    pub xattr: AtomicU64,
    /// A directory's own edentry; in a cache also that of a file which has a lower line: one of its names.
    pub own: AtomicU64,
    /// Bit 0: atime is set. Bit 1: btime is set.
    pub flags: AtomicU64,
    /// Offset of what is known of the original ([`crate::cache::Lower`]); 0: none.
    pub lower: AtomicU64,
    /// What a cached file's original shows: `st_blocks` 32 | `st_nlink` 32; 0.
    pub shown: AtomicU64,
    /// Room, 0.
    pub reserved: [AtomicU64; 1],
}

const _: () = assert!(size_of::<Cold>() == 64 && offset_of!(Cold, lower) == 40);

impl Cold {
    /// Words that are 0 in an image without the feature that uses them.
    pub fn unused(&self) -> impl Iterator<Item = &AtomicU64> {
        self.reserved.iter().chain([&self.lower, &self.shown])
    }
}

/// Node identity from an inode's offset and generation: generation 24 | line 40.
#[inline]
pub const fn node_id(offset: u64, generation: u32) -> u64 {
    ((generation as u64 & 0xff_ffff) << 40) | (offset / crate::LINE)
}

/// The offset of the inode that a node identity names.
#[inline]
pub const fn node_offset(id: u64) -> u64 {
    (id & 0xff_ffff_ffff) * crate::LINE
}

/// The generation in a node identity, 24 bits.
#[inline]
pub const fn node_generation(id: u64) -> u32 {
    (id >> 40) as u32
}
