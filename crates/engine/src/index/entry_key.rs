//! A name in a directory, as the index looks for it: hashed once, and with its
//! bytes as words where it is short, as most names are. What compares or stores
//! such a name needs no loop over its bytes.

use crate::fs::Fs;
use crate::segment::cachelet::{Cachelet, NAME_SHORT};
use core::sync::atomic::Ordering::Relaxed;
use format::edentry::{Edentry, Head};
use format::hash;

/// Longest name that two words hold.
const WORDS_MAX: usize = 16;

/// What of an edentry's head a name does not tell: what it leads to, and what is not used.
const KIND: u64 = 0xffff_0000;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct EntryKey<'a> {
    /// Offset of the directory's inode.
    pub(crate) parent: u64,
    pub(crate) name: &'a [u8],
    /// Hash of both.
    pub(crate) hash: u64,
    /// The bytes of a name of up to 16, zero-filled; else of no meaning.
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl EntryKey<'_> {
    /// Whether `low` and `high` are the whole name.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.name.len() <= WORDS_MAX
    }

    /// Whether a cachelet can carry the name.
    #[inline]
    pub(crate) fn fits_cachelet(&self) -> bool {
        self.name.len() <= NAME_SHORT
    }

    /// The head of an edentry with this name that leads to something of this `DT_*`.
    #[inline]
    pub(crate) fn head(&self, kind: u8) -> u64 {
        self.hash >> 32 << 32 | Head { hash: 0, kind, name_len: self.name.len() as u8 }.pack()
    }

    /// Whether an edentry, its head read as `head`, is in this directory, and its name as long and of the same hash.
    #[inline]
    pub(crate) fn may_be_in(&self, edentry: &Edentry, head: u64) -> bool {
        (head ^ self.head(0)) & !KIND == 0 && edentry.parent.load(Relaxed) == self.parent
    }

    /// Whether an edentry has this name, its head read as `head`; only for a short
    /// one. Both words are compared whole: what is behind a name is zero.
    #[inline]
    pub(crate) fn is_in(&self, edentry: &Edentry, head: u64) -> bool {
        let [low, high, ..] = &edentry.name;
        self.may_be_in(edentry, head) && low.load(Relaxed) == self.low && high.load(Relaxed) == self.high
    }

    /// Whether a cachelet carries this name; only for a short one. Identity alone, as `carries_name`.
    #[inline]
    pub(crate) fn is_carried(&self, cachelet: &Cachelet) -> bool {
        let [low, high, ..] = &cachelet.name;
        cachelet.parent.load(Relaxed) == self.parent
            && cachelet.mode.load(Relaxed) >> 24 == self.name.len() as u32
            && low.load(Relaxed) == self.low
            && high.load(Relaxed) == self.high
    }
}

impl Fs {
    /// A name in the directory with its inode at `parent`.
    #[inline(always)]
    pub(crate) fn entry_key<'a>(&self, parent: u64, name: &'a [u8]) -> EntryKey<'a> {
        if name.len() > WORDS_MAX {
            return EntryKey { parent, name, hash: self.hash(parent, name), low: 0, high: 0 };
        }
        let (low, high) = hash::short_words(name);
        let hash = hash::name_short(self.name_key, parent, low, high, name.len() as u32);
        EntryKey { parent, name, hash, low, high }
    }
}
