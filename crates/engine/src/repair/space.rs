//! Space for what must be made new.

use super::Fixer;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{BLOCK, LINE, ROOT};

/// By how many blocks a full image grows.
const GROW_BLOCKS: u64 = 256;

impl Fixer<'_> {
    /// Lines of a block that can be given out.
    fn free_lines(&self, place: usize) -> u64 {
        if self.plan.changes.aside.contains(&(self.fs.layout.first_block() + place as u64)) {
            return 0;
        }
        let taken = if self.salvaged { self.used[place] } else { self.used[place] | self.was_used(place) };
        !taken
    }

    /// `lines` (1 to 64) zeroed lines in one block, claimed; `None` if the image is full.
    pub(super) fn take_lines(&mut self, lines: u64) -> Option<u64> {
        let run = u64::MAX >> (64 - lines);
        loop {
            for step in 0..self.used.len() {
                let place = (self.hint + step) % self.used.len();
                let free = self.free_lines(place);
                let fits = (0..=64 - lines).find(|shift| free & run << shift == run << shift);
                if let Some(shift) = fits {
                    self.hint = place;
                    let at = (self.fs.layout.first_block() + place as u64) * BLOCK + shift * LINE;
                    self.claim(at, lines);
                    for word in 0..lines * LINE / 8 {
                        self.set_fresh(at + word * 8, 0);
                    }
                    return Some(at);
                }
            }
            if !self.grow(1) {
                self.no_space = true;
                return None;
            }
        }
    }

    /// `count` zeroed blocks in a row, claimed; the first. `None` if the image is full.
    pub(super) fn take_blocks(&mut self, count: u64) -> Option<u64> {
        loop {
            let mut run = 0;
            for place in 0..self.used.len() {
                run = if self.free_lines(place) == u64::MAX { run + 1 } else { 0 };
                if run == count {
                    let first = self.fs.layout.first_block() + place as u64 + 1 - count;
                    for block in first..first + count {
                        self.claim(block * BLOCK, 64);
                        for word in 0..BLOCK / 8 {
                            self.set_fresh(block * BLOCK + word * 8, 0);
                        }
                    }
                    return Some(first);
                }
            }
            if !self.grow(count) {
                self.no_space = true;
                return None;
            }
        }
    }

    /// More blocks for the image, as its limit and its file allow.
    fn grow(&mut self, want: u64) -> bool {
        let grown = self.fs.root().grown.load(Relaxed);
        let most = self.fs.layout.block_count().min(self.fs.image.len() / BLOCK);
        let target = (grown + want.max(GROW_BLOCKS)).min(most);
        if target <= grown {
            return false;
        }
        self.set(ROOT + core::mem::offset_of!(format::Root, grown) as u64, target);
        self.fs.refresh_valid();
        let blocks = (target - self.fs.layout.first_block()) as usize;
        for vector in [&mut self.used, &mut self.meta, &mut self.inodes] {
            vector.resize(blocks, 0);
        }
        if !self.shared.is_empty() {
            self.shared.resize(blocks, 0);
        }
        true
    }
}
