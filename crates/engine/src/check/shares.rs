//! What files share: the table says of each block how many extents have it.

use super::{Checker, IssueKind};
use crate::fs::Fs;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{BLOCK, Layout};
use format::shares::{self, WORDS};
use format::{Features, extent::Extent};
use heap::format;
use heap::vec::Vec;

/// A leaf of the table: the first block that it is about, and its offset.
pub(crate) type Leaf = (u64, u64);

impl Fs {
    /// Whether extents of this image may say that they are shared.
    pub(crate) fn may_have_shares(&self) -> bool {
        self.files.features.load(Relaxed) & Features::SHARED.0 != 0
    }

    /// The words of a part of the table that lead anywhere: number, and where to.
    fn table_entries(&self, at: u64, blocks: u64) -> impl Iterator<Item = (u64, u64)> {
        let word = move |i: u64| self.at::<AtomicU64>(at + i * 8, "table of what is shared").map_or(0, |word| word.load(Relaxed));
        (0..blocks * WORDS).map(move |i| (i, word(i))).filter(|(_, word)| *word != 0)
    }

    /// Goes through the table of what is shared; each part of it is `claimed` before it is followed. The leaves.
    pub(crate) fn table_leaves(&self, layout: &Layout, claimed: &mut dyn FnMut(u64, u64) -> bool) -> Vec<Leaf> {
        let (top, blocks, mut leaves) = (self.root().shares.load(Relaxed), shares::top_blocks(layout), Vec::new());
        if top == 0 || !claimed(top, blocks) {
            return leaves;
        }
        for (i, middle) in self.table_entries(top, blocks) {
            if !claimed(middle, 1) {
                continue;
            }
            for (j, leaf) in self.table_entries(middle, 1) {
                if claimed(leaf, 1) {
                    leaves.push(((i * WORDS + j) * WORDS, leaf));
                }
            }
        }
        leaves
    }
}

impl Checker<'_> {
    /// Claims the table, and compares it with what was met.
    pub(super) fn counts(&mut self) {
        let fs = self.fs;
        if !fs.may_have_shares() {
            return;
        }
        let leaves = fs.table_leaves(&fs.layout, &mut |at, blocks| {
            if fs.table_entries(at, blocks).next().is_none() {
                self.issue(IssueKind::ShareCount, at, "a part of the table of what is shared with nothing in it".into());
            }
            at.is_multiple_of(BLOCK) && self.claim_blocks(at / BLOCK, blocks, "the table of what is shared")
        });
        let mut says: Vec<u32> = heap::vec![0; self.shared.len()];
        for (first, leaf) in leaves {
            for (i, count) in fs.table_entries(leaf, 1) {
                match self.place(first + i).filter(|_| count <= shares::COUNT_MAX) {
                    Some(place) => says[place] = count as u32,
                    None => self.issue(IssueKind::ShareCount, leaf + i * 8, format!("{count} extents more have what cannot be")),
                }
            }
        }
        let met = core::mem::take(&mut self.shared);
        for (place, (said, met)) in says.into_iter().zip(met).enumerate() {
            let more = met.saturating_sub(1);
            if said != more {
                let at = (fs.layout.first_block() + place as u64) * BLOCK;
                self.issue(
                    IssueKind::ShareCount,
                    at,
                    format!("{more} extents more than one have this block, the table says {said}"),
                );
            }
        }
    }

    /// The blocks of an extent are used, if it says so by others too.
    pub(super) fn claim_extent(&mut self, inode: u64, extent: Extent) -> bool {
        if !extent.shared {
            return self.claim_blocks(extent.block, extent.len, "data");
        }
        if self.shared.is_empty() {
            self.issue(IssueKind::Extent, inode, "an extent that says it is shared, in an image that shares nothing".into());
            return self.claim_blocks(extent.block, extent.len, "data");
        }
        let mut whole = true;
        for block in extent.block..extent.block.saturating_add(extent.len) {
            let place = self.place(block);
            if place.is_none_or(|place| self.shared[place] == 0) {
                whole &= self.claim_blocks(block, 1, "shared data");
            }
            let Some(place) = place else { return false };
            self.shared[place] += 1;
        }
        whole
    }
}
