//! What follows from the rest: counts, the index, the bitmap, the lanes' counters.

use super::Fixer;
use super::names::slots;
use crate::check::IssueKind;
use crate::index::CHAIN_MAX;
use core::mem::offset_of;
use format::bucket::{self, BUCKETS_MIN, ENTRIES, NEXT, SPLIT};
use format::inode::{self, RECOUNT, pack_links, unpack_links, word};
use format::layout::{BLOCK, LANE_AREA, LANE_BYTES, LANES, LINE, Layout, ROOT};
use format::{Root, lane};
use heap::format;
use heap::vec::Vec;

const BUCKETS: u64 = ROOT + offset_of!(Root, buckets) as u64;
const INDEX: u64 = ROOT + offset_of!(Root, index) as u64;

impl Fixer<'_> {
    /// Counts of directories, link counts.
    pub(super) fn write_counts(&mut self) {
        let counts: Vec<(u64, u64, u64)> =
            self.directories.iter().map(|(offset, found)| (*offset, found.entries, found.directories)).collect();
        for (offset, entries, directories) in counts {
            let said = (self.get(offset + word::SIZE), self.get(offset + word::LINKS));
            if said != (entries, directories) && self.head(offset).flags & RECOUNT == 0 {
                let detail = format!("the directory has {entries} entries and {directories} directories");
                self.act(IssueKind::EntryCount, offset, false, detail);
                self.set(offset + word::SIZE, entries);
                self.set(offset + word::LINKS, directories);
            }
        }
        for (offset, found) in core::mem::take(&mut self.links) {
            let (said, blocks) = unpack_links(self.get(offset + word::LINKS));
            if u64::from(said) != found && self.head(offset).kind != base::Kind::Directory as u8 {
                self.act(IssueKind::LinkCount, offset, false, format!("the inode has {found} names, it said {said}"));
                self.set(offset + word::LINKS, pack_links(found as u32, blocks));
            }
        }
    }

    /// Claims the segments of the index; whether they can stay.
    pub(super) fn claim_index(&mut self) -> bool {
        let buckets = self.get(BUCKETS);
        let most = (self.used.len() as u64).saturating_mul(BLOCK / LINE);
        let mut sound = (BUCKETS_MIN..=most).contains(&buckets);
        let last = if sound { bucket::place(buckets - 1).0 } else { 0 };
        let mut claimed = Vec::new();
        for segment in 0..self.fs.root().index.len() {
            let base = self.get(INDEX + segment as u64 * 8);
            let blocks = bucket::segment_buckets(segment) * LINE / BLOCK;
            let fits = base != 0
                && base.is_multiple_of(BLOCK)
                && blocks <= self.used.len() as u64
                && (0..blocks).all(|i| self.is_free(base + i * BLOCK, 64));
            if fits && sound {
                for at in (0..blocks).map(|i| base + i * BLOCK) {
                    self.claim(at, 64);
                    claimed.push(at);
                }
            } else if segment <= last {
                sound = false;
            } else if base != 0 {
                self.act(
                    IssueKind::Root,
                    INDEX + segment as u64 * 8,
                    false,
                    format!("segment {segment} of the index is not needed"),
                );
                self.set(INDEX + segment as u64 * 8, 0);
            }
        }
        if !sound {
            claimed.into_iter().for_each(|at| self.release(at, 64));
        }
        sound
    }

    /// Names, as (hash, edentry).
    fn all_names(&self) -> Vec<(u64, u64)> {
        let mut names = Vec::new();
        for directory in self.directories.keys() {
            for slot in slots(self.blocks_of(*directory)) {
                let at = self.get(slot);
                if let Some((entry, name)) = self.accepted(*directory, slot, at) {
                    names.push((self.fs.hash(*directory, name.raw(entry.head.name_len)), at));
                }
            }
        }
        names
    }

    /// The index, rebuilt if anything about it is wrong.
    pub(super) fn write_index(&mut self, sound: bool) {
        let names = self.all_names();
        if sound && self.index_is_right(&names) {
            return;
        }
        self.act(IssueKind::Index, ROOT, false, format!("the index is built again from {} names", names.len()));
        if !sound && !self.new_segments(names.len() as u64) {
            return;
        }
        let buckets = self.get(BUCKETS);
        for number in 0..buckets {
            let Ok(at) = self.fs.bucket_place(number) else { return };
            (0..ENTRIES as u64).for_each(|i| self.set(at + i * 8, 0));
            // It may have been split when there were more of them.
            self.set(at + SPLIT, 0);
            self.set(at + NEXT, 0);
        }
        for (hash, at) in names {
            if !self.insert(hash, at, buckets) {
                return;
            }
        }
    }

    fn insert(&mut self, hash: u64, edentry: u64, buckets: u64) -> bool {
        let Ok(mut at) = self.fs.bucket_offset(hash, buckets) else { return false };
        for _ in 0..CHAIN_MAX {
            let free = (0..ENTRIES as u64).find(|i| self.get(at + i * 8) == 0);
            if let Some(i) = free {
                self.set(at + i * 8, bucket::pack_entry(hash, edentry));
                return true;
            }
            at = match self.get(at + NEXT) {
                0 => {
                    let Some(new) = self.take_lines(1) else { return false };
                    self.set(at + NEXT, new);
                    new
                }
                next => next,
            };
        }
        false
    }

    /// Whether every name is in its chain, and nothing else is anywhere; claims overflow buckets.
    fn index_is_right(&mut self, names: &[(u64, u64)]) -> bool {
        let buckets = self.get(BUCKETS);
        let mut entries = 0;
        let mut claimed = Vec::new();
        let mut right = true;
        'all: for number in 0..buckets {
            let Ok(home) = self.fs.bucket_place(number) else { return false };
            let mut at = home;
            loop {
                entries += (0..ENTRIES as u64).filter(|i| self.get(at + i * 8) != 0).count();
                at = self.get(at + NEXT);
                if at == 0 {
                    break;
                }
                if !self.claim(at, 1) {
                    right = false;
                    break 'all;
                }
                claimed.push(at);
            }
        }
        right = right && entries == names.len() && names.iter().all(|(hash, edentry)| self.is_indexed(*hash, *edentry, buckets));
        if !right {
            claimed.into_iter().for_each(|at| self.release(at, 1));
        }
        right
    }

    fn is_indexed(&self, hash: u64, edentry: u64, buckets: u64) -> bool {
        let wanted = bucket::pack_entry(hash, edentry);
        let Ok(mut at) = self.fs.bucket_offset(hash, buckets) else { return false };
        for _ in 0..CHAIN_MAX {
            if (0..ENTRIES as u64).any(|i| self.get(at + i * 8) == wanted) {
                return true;
            }
            at = self.get(at + NEXT);
            if at == 0 {
                break;
            }
        }
        false
    }

    /// New segments for an index that is lost.
    fn new_segments(&mut self, names: u64) -> bool {
        let buckets = (names / 3 + 1).next_power_of_two().max(BUCKETS_MIN);
        let last = bucket::place(buckets - 1).0;
        for segment in 0..self.fs.root().index.len() {
            let at = INDEX + segment as u64 * 8;
            let blocks = bucket::segment_buckets(segment) * LINE / BLOCK;
            let new = if segment > last {
                0
            } else {
                match self.take_blocks(blocks) {
                    Some(block) => block * BLOCK,
                    None => return false,
                }
            };
            self.set(at, new);
        }
        self.set(BUCKETS, buckets);
        true
    }

    /// The bitmap says what is used.
    pub(super) fn write_bitmap(&mut self) {
        let (mut freed, mut taken) = (0u64, 0u64);
        for place in 0..self.used.len() {
            let (says, used) = (self.was_used(place), self.used[place]);
            freed += u64::from((says & !used).count_ones());
            taken += u64::from((used & !says).count_ones());
            self.set(Layout::bitmap_word(self.fs.layout.first_block() + place as u64), used);
        }
        let at = Layout::bitmap_word(self.fs.layout.first_block());
        if freed > 0 {
            self.act(IssueKind::Leaked, at, false, format!("{freed} lines that nothing uses are given back"));
        }
        if taken > 0 {
            self.act(IssueKind::UsedButFree, at, false, format!("{taken} lines that are used are taken out of the free ones"));
        }
    }

    /// The lanes' counters add up; no truncation waits for what cannot be.
    pub(super) fn write_lanes(&mut self) {
        let lines: u64 = self.used.iter().map(|bits| u64::from(bits.count_ones())).sum();
        let files: u64 = self.inodes.iter().map(|bits| u64::from(bits.count_ones())).sum();
        for (word, total) in [(lane::word::LINES, lines), (lane::word::FILES, files)] {
            let others = (0..LANES).fold(0u64, |sum, number| sum.wrapping_add(self.get(lane_at(number) + word)));
            let first = self.get(lane_at(0) + word);
            if others != total {
                self.act(IssueKind::Counter, lane_at(0) + word, false, format!("the lanes' counters add up to {total} now"));
                self.set(lane_at(0) + word, total.wrapping_sub(others.wrapping_sub(first)));
            }
        }
        for number in 0..LANES {
            let intent = self.get(lane_at(number) + lane::word::INTENT);
            if intent != 0 && !self.fs.is_allocatable(inode::node_offset(intent) / BLOCK, 1) {
                self.act(IssueKind::Record, lane_at(number), false, "a truncation of what cannot be is forgotten".into());
                self.set(lane_at(number) + lane::word::INTENT, 0);
            }
            let unused = (lane::word::RESERVED..LANE_BYTES).step_by(8).map(|word| lane_at(number) + word);
            let unused: Vec<u64> = unused.filter(|at| self.get(*at) != 0).collect();
            for at in unused {
                self.act(IssueKind::Record, at, false, "a word of a lane that means nothing becomes 0".into());
                self.set(at, 0);
            }
        }
    }
}

/// Offset of a lane.
pub(super) const fn lane_at(number: u32) -> u64 {
    LANE_AREA + number as u64 * LANE_BYTES
}
