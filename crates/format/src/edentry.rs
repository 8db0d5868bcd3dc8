//! The extended dentry (DirectFS): a name, where it stands, and what it leads to.
//!
//! One line with a name of up to 32 bytes; longer names take up to four more lines
//! that follow. An edentry is written once, before the record that publishes
//! it, and never changed: a rename makes a new one.
//!
//! ```text
//!  0 head    hash 32 | 0 | kind 8 | name length 8 | 0xED
//!  8 parent  offset of the directory's inode
//! 16 child   node id of the inode (generation 24 | line 40)
//! 24 slot    offset of the directory slot that refers to this edentry
//! 32 name
//! ```

use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, KnownLayout};

/// An edentry on the medium, up to the end of its first line.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Edentry {
    pub head: AtomicU64,
    pub parent: AtomicU64,
    pub child: AtomicU64,
    pub slot: AtomicU64,
    /// Name bytes, little-endian in each word, zero-filled to the end of a word, and of the second one at least.
    pub name: [AtomicU64; WORDS],
}

/// Words of a name in the first line.
pub const WORDS: usize = 4;
/// Offset of the name within an edentry.
pub const NAME: u64 = 32;
/// Longest name.
pub const NAME_MAX: usize = 255;
const MARK: u64 = 0xED;

const _: () = assert!(size_of::<Edentry>() == crate::LINE as usize && offset_of!(Edentry, name) == NAME as usize);

/// Lines that an edentry with a name of `name_len` bytes takes: 1 to 5.
#[inline]
pub const fn lines(name_len: usize) -> u32 {
    (NAME as usize + name_len).div_ceil(crate::LINE as usize) as u32
}

/// The bits of a name's first two words that lie behind its end. Look-ups of
/// short names compare these words whole: anything there would hide the name.
pub const fn behind(name_len: usize) -> [u64; 2] {
    const fn from(byte: usize) -> u64 {
        if byte >= 8 { 0 } else { u64::MAX << (byte * 8) }
    }
    [from(name_len), from(name_len.saturating_sub(8))]
}

/// The head word, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Upper half of the name hash.
    pub hash: u32,
    /// `DT_*` number of the child.
    pub kind: u8,
    /// Length of the name, 1–255.
    pub name_len: u8,
}

impl Head {
    /// Packs it.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.hash as u64) << 32 | (self.kind as u64) << 16 | (self.name_len as u64) << 8 | MARK
    }

    /// Unpacks the word; `None` if it is not the head of an edentry.
    #[inline]
    pub const fn unpack(word: u64) -> Option<Head> {
        let head = Head { hash: (word >> 32) as u32, kind: (word >> 16) as u8, name_len: (word >> 8) as u8 };
        if word & 0xff != MARK || head.name_len == 0 { None } else { Some(head) }
    }
}
