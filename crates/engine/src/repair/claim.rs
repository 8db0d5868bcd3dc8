//! Who uses which line, and words of the copy.

use super::Fixer;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{BLOCK, LINE, LINES_PER_BLOCK, Layout};

impl Fixer<'_> {
    /// A word of the copy; 0 outside the image.
    pub(super) fn get(&self, at: u64) -> u64 {
        self.fs.at::<AtomicU64>(at, "word").map_or(0, |word| word.load(Relaxed))
    }

    /// Changes it.
    pub(super) fn set(&mut self, at: u64, value: u64) {
        self.plan.set(self.fs, at, value);
    }

    /// Changes a word of something that nothing refers to yet.
    pub(super) fn set_fresh(&mut self, at: u64, value: u64) {
        if let Ok(word) = self.fs.at::<AtomicU64>(at, "word") {
            self.fs.image.store(word, value);
            self.plan.changes.fresh.insert(at & !(LINE - 1));
        }
    }

    /// Index of a block in the vectors, if it can be allocated.
    pub(super) fn place(&self, block: u64) -> Option<usize> {
        let place = usize::try_from(block.checked_sub(self.fs.layout.first_block())?).ok()?;
        (place < self.used.len()).then_some(place)
    }

    /// The bit of the line at `offset`.
    pub(super) fn line_bit(&self, offset: u64) -> Option<(usize, u64)> {
        offset.is_multiple_of(LINE).then_some(())?;
        Some((self.place(offset / BLOCK)?, 1 << (offset % BLOCK / LINE)))
    }

    fn bits(&self, offset: u64, lines: u64) -> Option<(usize, u64)> {
        let (place, _) = self.line_bit(offset)?;
        let first = offset % BLOCK / LINE;
        (lines > 0 && first + lines <= LINES_PER_BLOCK).then(|| (place, (u64::MAX >> (64 - lines)) << first))
    }

    /// Whether `lines` lines at `offset` can be claimed.
    pub(super) fn is_free(&self, offset: u64, lines: u64) -> bool {
        self.bits(offset, lines).is_some_and(|(place, bits)| self.used[place] & bits == 0)
    }

    /// Claims them as metadata; false if they are somebody else's or outside.
    pub(super) fn claim(&mut self, offset: u64, lines: u64) -> bool {
        let Some((place, bits)) = self.bits(offset, lines).filter(|(place, bits)| self.used[*place] & bits == 0) else {
            return false;
        };
        self.used[place] |= bits;
        self.meta[place] |= bits;
        true
    }

    /// Gives up a claim.
    pub(super) fn release(&mut self, offset: u64, lines: u64) {
        if let Some((place, bits)) = self.bits(offset, lines) {
            self.used[place] &= !bits;
            self.meta[place] &= !bits;
        }
    }

    /// Whether an inode has been met.
    pub(super) fn is_met(&self, offset: u64) -> bool {
        self.line_bit(offset).is_some_and(|(place, bit)| self.inodes[place] & bit != 0)
    }

    /// Which lines of a block the bitmap calls used.
    pub(super) fn was_used(&self, place: usize) -> u64 {
        self.get(Layout::bitmap_word(self.fs.layout.first_block() + place as u64))
    }
}
