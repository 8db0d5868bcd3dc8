//! Inode numbers behind a cache: a file shows its original's.
//!
//! | file | shows |
//! |---|---|
//! | brought from below, on the device of the root | its original's number there |
//! | made here; or on another device, whose numbers may be the same ones | [`OWN`] and its number in the image |
//!
//! So whoever knows a file by its number from the directory itself (git's index) knows it here. What was made here keeps
//! the number that it has shown when it is below as well ([`MADE`](bits::MADE)): until the image knows it no more, and
//! brings it as any file.
//!
//! No two files show the same: originals on one device have different numbers, those of the image are different, and no
//! original shows a number that has [`OWN`] and nothing above it. Those of the image fit a double, which some programs keep
//! numbers in.
//!
//! The image's own number is what a node is known by inside ([`Fs::own_number`]).

use super::bits;
use crate::fs::Fs;
use base::{Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU64, fence};
use format::cache::Lower;
use format::hash::{NumberKey, inode_number};
use format::inode::{node_generation, node_offset};

/// Set in the number of what shows none of an original; the image's own numbers are all below.
const OWN: u64 = 1 << 52;

/// In [`Numbers::second`]: ask for the original. No key has that there.
const ORIGINALS: u64 = u64::MAX;

/// How inode numbers are made that programs see: by the image's key, or as originals have them.
#[derive(Debug)]
pub(crate) struct Numbers {
    first: u64,
    /// The key's second word, or [`ORIGINALS`]: so an image that is no cache asks no more than how long its numbers are.
    second: AtomicU64,
}

impl Numbers {
    pub(crate) const fn new(key: NumberKey) -> Numbers {
        let (first, second) = key.words();
        Numbers { first, second: AtomicU64::new(second) }
    }

    /// The number of a node; `None`: its original is to be asked for.
    #[inline(always)]
    pub(crate) fn of(&self, id: u64) -> Option<u64> {
        let second = self.second.load(Relaxed);
        let key = NumberKey::of_words(self.first, second);
        // Asked first, as it is anyway.
        if key.is_short() {
            return Some(inode_number(key, id));
        }
        (second != ORIGINALS).then(|| inode_number(key, id))
    }
}

impl Fs {
    /// From now on files show the numbers of their originals: those of one file system, which keeps them.
    pub fn show_originals(&self) -> Result<()> {
        let [device, _] = self.cache_of()?.root;
        self.originals_on.store(device, Relaxed);
        self.numbers.second.store(ORIGINALS, Relaxed);
        Ok(())
    }

    /// The device of a node's original, if that is not the root's: something is mounted below it, or a subvolume.
    pub fn other_device(&self, node: Node) -> Option<u64> {
        let inode = self.inode(node_offset(node.id)).ok()?;
        let (_, lower) = self.lower_lines(inode).ok()??;
        self.is_elsewhere(lower).then(|| lower.device.load(Relaxed))
    }

    /// Whether an original is not on the root's device.
    pub(super) fn is_elsewhere(&self, lower: &Lower) -> bool {
        self.cache_state().is_ok_and(|state| state.root[0].load(Relaxed) != lower.device.load(Relaxed))
    }

    /// As [`Fs::ino`], of a node of a cache.
    #[inline(never)]
    pub(crate) fn ino_as_original(&self, id: u64) -> u64 {
        self.number_of_original(id).unwrap_or_else(|| self.own_number(id) | OWN)
    }

    /// The number of a node's original, if that is shown.
    fn number_of_original(&self, id: u64) -> Option<u64> {
        let inode = self.inode(node_offset(id)).ok()?;
        let (_, lower) = self.lower_lines(inode).ok()??;
        let (state, number) = (lower.state.load(Acquire), lower.number.load(Relaxed));
        let is_shown = state & bits::MADE == 0 && lower.device.load(Relaxed) == self.originals_on.load(Relaxed);
        fence(Acquire);
        // Of a node that has gone the lines may be anything.
        let is_there = inode.head().generation & 0xff_ffff == node_generation(id);
        // Names with the number 0 are no names to many programs.
        (is_shown && is_there && number != 0 && number / OWN != 1).then_some(number)
    }
}
