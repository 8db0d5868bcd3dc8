//! Superblocks, root, permission table, orphan table.

use super::{Checker, IssueKind};
use crate::fs::Fs;
use core::sync::atomic::Ordering::Relaxed;
use format::inode::{node_generation, node_offset};
use format::layout::{self, BLOCK, LINE};
use format::permission::{self, Permission};
use format::superblock::SuperblockError;
use format::{Superblock, bucket};
use heap::format;
use zerocopy::IntoBytes;

/// A copy of the superblock as it is mapped; `None` outside the image.
pub(crate) fn superblock_at(fs: &Fs, at: u64) -> Option<Superblock> {
    let mut copy = Superblock::new(0, [0; 2], 0, 0, 0);
    fs.image.copy_out(at, pm::UserSlice::from_mut(copy.as_mut_bytes())).ok()?;
    Some(copy)
}

/// Why a copy of the superblock is none.
fn unusable(error: Option<SuperblockError>) -> &'static str {
    match error {
        Some(SuperblockError::NotAnImage) => "it does not begin as an image does",
        Some(SuperblockError::Version(_)) => "it is of another version of the format",
        Some(SuperblockError::Features(_)) => "it has features that this program does not know",
        Some(SuperblockError::Damaged) => "its checksum is not right",
        Some(SuperblockError::Truncated) => "the file is shorter than it says",
        None => "it lies outside of the file",
    }
}

impl Checker<'_> {
    /// Both copies of the superblock.
    pub(super) fn superblocks(&mut self) {
        let places = [0, layout::SUPERBLOCK_COPY];
        let copies = places.map(|at| superblock_at(self.fs, at));
        for (copy, at) in copies.iter().zip(places) {
            match copy.as_ref().map(Superblock::validate) {
                Some(Ok(_)) => {}
                other => {
                    let why = unusable(other.and_then(Result::err));
                    self.issue(IssueKind::Superblock, at, format!("this copy of the superblock cannot be used: {why}"));
                }
            }
        }
        if let [Some(first), Some(second)] = copies
            && first.as_bytes() != second.as_bytes()
            && first.validate().is_ok()
            && second.validate().is_ok()
        {
            let what = match first.version == second.version {
                true => "the two copies differ",
                false => "the two copies differ: an upgrade was interrupted; bypath upgrade finishes it, a repair undoes it",
            };
            self.issue(IssueKind::Superblock, layout::SUPERBLOCK_COPY, what.into());
        }
    }

    /// The root, and the space of the index.
    pub(super) fn root(&mut self) {
        let fs = self.fs;
        let root = fs.root();
        self.expected = self.totals().0.clamp(1, fs.layout.block_count().saturating_mul(64));
        match root.flags.load(Relaxed) {
            0 => {}
            1 => self.issue(IssueKind::Root, layout::ROOT, "a write to the medium failed once: the image is read-only".into()),
            flags => self.issue(IssueKind::Root, layout::ROOT, format!("flags {flags:#x}")),
        }
        for (word, what) in root.unused().into_iter().zip(["cache", "table of shares", "table of returned space"]) {
            let value = word.load(Relaxed);
            if what == "table of shares" && fs.may_have_shares() {
                continue;
            }
            if value != 0 && what == "cache" && fs.is_cache() {
                self.claim_blocks(value / BLOCK, 1, "the state of a cache");
            } else if value != 0 {
                self.issue(
                    IssueKind::Root,
                    layout::ROOT,
                    format!("a {what} at {value:#x}, which the superblock knows nothing of"),
                );
            }
        }
        let buckets = root.buckets.load(Relaxed);
        let last = if buckets < bucket::BUCKETS_MIN { 0 } else { bucket::place(buckets - 1).0 };
        if buckets < bucket::BUCKETS_MIN || last >= root.index.len() {
            self.issue(IssueKind::Root, layout::ROOT, format!("{buckets} buckets"));
        }
        for (segment, base) in root.index.iter().enumerate() {
            let base = base.load(Relaxed);
            if base == 0 && segment > last {
                continue;
            }
            let blocks = bucket::segment_buckets(segment) * LINE / BLOCK;
            if base == 0 || base % BLOCK != 0 {
                self.issue(IssueKind::Root, layout::ROOT, format!("segment {segment} of the index lies at {base:#x}"));
            } else {
                self.claim_blocks(base / BLOCK, blocks, "a segment of the index");
            }
        }
    }

    /// Entries in use must be found where their search goes.
    pub(super) fn permissions(&mut self) {
        let mut used = heap::vec![false; layout::PERMISSIONS as usize];
        let mut entries = heap::vec::Vec::new();
        let place = |index: u64| layout::PERMISSION_TABLE + index * 16;
        let fs = self.fs;
        let pages = (0..layout::PERMISSIONS).step_by(256).filter(|first| !fs.image.known_zero(place(*first), BLOCK));
        for index in pages.flat_map(|first| first..first + 256) {
            let at = place(index);
            let Ok(entry) = self.fs.at::<Permission>(at, "permission") else { return };
            let (owner, mode) = (entry.owner.load(Relaxed), entry.mode.load(Relaxed));
            if mode & permission::VALID == 0 {
                if mode != 0 {
                    self.issue(IssueKind::Permission, at, format!("entry {index} is not valid, but has a mode"));
                }
                continue;
            }
            used[index as usize] = true;
            if mode & !(permission::VALID | 0o7777) != 0 {
                self.issue(IssueKind::Permission, at, format!("mode {mode:#x}"));
            }
            entries.push((index as u16, owner, mode as u16 & 0o7777));
        }
        for (index, owner, mode) in entries {
            let mut at = permission::start(owner as u32, (owner >> 32) as u32, mode);
            while at != index && used[usize::from(at)] {
                at = at.wrapping_add(1);
            }
            if at != index {
                let place = layout::PERMISSION_TABLE + u64::from(index) * 16;
                self.issue(IssueKind::Permission, place, format!("entry {index} is not where its search ends"));
            }
        }
    }

    /// Inodes without a name: each refers to one, and what they hold is claimed.
    pub(super) fn orphans(&mut self) {
        let before = self.report.lines_used;
        for number in self.fs.orphan_numbers() {
            let at = layout::ORPHAN_TABLE + number * 8;
            let Ok(slot) = self.fs.orphan_slot(number) else { return };
            let id = slot.load(Relaxed);
            if id == 0 {
                continue;
            }
            let offset = node_offset(id);
            let same = self.line_bit(offset).is_some()
                && self
                    .fs
                    .inode(offset)
                    .is_ok_and(|inode| inode.head().generation & 0xff_ffff == node_generation(id) && inode.head().kind != 0);
            if !same {
                self.issue(IssueKind::Orphan, at, format!("refers to {offset:#x}, which is not that inode"));
                continue;
            }
            if self.is_met(offset) {
                self.issue(IssueKind::Orphan, at, format!("the inode at {offset:#x} has a name, or is listed twice"));
                continue;
            }
            self.report.orphans += 1;
            self.meet(offset, 0);
            // Directories that were removed have no entries left.
            self.wait_for_directories();
        }
        self.report.orphan_lines = self.report.lines_used - before;
    }
}
