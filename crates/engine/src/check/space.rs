//! Who uses which line: claims, and the bitmap against them.

use super::{Checker, IssueKind};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{BLOCK, LINE, LINES_PER_BLOCK, Layout};
use heap::format;

impl Checker<'_> {
    /// Index of a block in the vectors, if it can be allocated.
    pub(super) fn place(&self, block: u64) -> Option<usize> {
        let place = usize::try_from(block.checked_sub(self.fs.layout.first_block())?).ok()?;
        (place < self.used.len()).then_some(place)
    }

    /// The bit of the line at `offset` in one of the vectors.
    pub(super) fn line_bit(&self, offset: u64) -> Option<(usize, u64)> {
        offset.is_multiple_of(LINE).then_some(())?;
        Some((self.place(offset / BLOCK)?, 1 << (offset % BLOCK / LINE)))
    }

    /// `lines` lines at `offset` are used by `what`: false if they cannot be
    /// (out of bounds, across blocks, or somebody else's).
    pub(super) fn claim_lines(&mut self, offset: u64, lines: u64, what: &str) -> bool {
        let first = offset % BLOCK / LINE;
        let (Some(place), true) =
            (self.place(offset / BLOCK), offset.is_multiple_of(LINE) && lines > 0 && first + lines <= LINES_PER_BLOCK)
        else {
            self.issue(IssueKind::DoubleUse, offset, format!("{what} of {lines} lines cannot be here"));
            return false;
        };
        let bits = (u64::MAX >> (64 - lines)) << first;
        self.claim(place, bits, offset, what)
    }

    /// `count` blocks from `block` on are used by `what`.
    pub(super) fn claim_blocks(&mut self, block: u64, count: u64, what: &str) -> bool {
        let end = block.checked_add(count).and_then(|end| self.place(end.wrapping_sub(1)));
        let (Some(first), Some(last)) = (self.place(block), end) else {
            self.issue(IssueKind::Extent, block.wrapping_mul(BLOCK), format!("{what}: {count} blocks outside the image"));
            return false;
        };
        let mut whole = true;
        for place in first..=last {
            let at = block + (place - first) as u64;
            whole &= self.claim(place, u64::MAX, at * BLOCK, what);
        }
        whole
    }

    fn claim(&mut self, place: usize, bits: u64, at: u64, what: &str) -> bool {
        let twice = self.used[place] & bits;
        if twice != 0 {
            self.issue(
                IssueKind::DoubleUse,
                at,
                format!("{what}: {} lines of it are used by something else", twice.count_ones()),
            );
        }
        self.used[place] |= bits;
        self.report.lines_used += u64::from((bits & !twice).count_ones());
        let step = (self.report.lines_used.saturating_mul(900) / self.expected).min(900) as u32;
        if step > self.told {
            self.told = step;
            (self.progress)(step);
        }
        twice == 0
    }

    /// The bitmap must say what was claimed, line for line.
    pub(super) fn bitmap(&mut self) {
        let first = self.fs.layout.first_block();
        for place in 0..self.used.len() {
            let block = first + place as u64;
            let used = self.used[place];
            self.report.blocks_used += u64::from(used != 0);
            let says = match self.fs.at::<AtomicU64>(Layout::bitmap_word(block), "bitmap word") {
                Ok(word) => word.load(Relaxed),
                Err(error) => return self.damaged(IssueKind::Root, error),
            };
            if used & !says != 0 {
                let line = (used & !says).trailing_zeros();
                let count = (used & !says).count_ones();
                self.issue(
                    IssueKind::UsedButFree,
                    block * BLOCK + u64::from(line) * LINE,
                    format!("{count} lines of this block are in use, but free in the bitmap"),
                );
            }
            if says & !used != 0 {
                let line = (says & !used).trailing_zeros();
                let count = (says & !used).count_ones();
                self.issue(
                    IssueKind::Leaked,
                    block * BLOCK + u64::from(line) * LINE,
                    format!("{count} lines of this block are used in the bitmap, but by nothing"),
                );
            }
        }
    }

    /// What the lanes have counted: lines and inodes.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.fs.lane_numbers().fold((0u64, 0u64), |(lines, files), number| {
            let lane = self.fs.lane(number);
            (lines.wrapping_add(lane.lines.load(Relaxed)), files.wrapping_add(lane.files.load(Relaxed)))
        })
    }

    /// The lanes' counters must add up to what there is.
    pub(super) fn counters(&mut self) {
        let (lines, files) = self.totals();
        let (lines_used, files_used) = (self.report.lines_used, self.report.files);
        if lines != lines_used {
            self.issue(
                IssueKind::Counter,
                format::layout::LANE_AREA,
                format!("the lanes count {lines} lines in use, there are {lines_used}"),
            );
        }
        if files != files_used {
            self.issue(
                IssueKind::Counter,
                format::layout::LANE_AREA,
                format!("the lanes count {files} inodes, there are {files_used}"),
            );
        }
    }

    /// A truncation under way is one of an inode of this image, though it may have been removed
    /// since its lane died: whoever finishes it looks. Nothing else is in a lane but its record.
    pub(super) fn intents(&mut self) {
        for number in self.fs.lane_numbers() {
            let lane = self.fs.lane(number);
            let at = format::layout::LANE_AREA + u64::from(number) * format::layout::LANE_BYTES;
            if lane.reserved.iter().any(|word| word.load(Relaxed) != 0) {
                self.issue(IssueKind::Record, at, "a lane with something in it that means nothing".into());
            }
            let intent = lane.intent.load(Relaxed);
            if intent != 0 && !self.fs.is_allocatable(format::inode::node_offset(intent) / format::BLOCK, 1) {
                self.issue(IssueKind::Record, at, format!("a truncation of {intent:#x}, which cannot be"));
            }
        }
    }
}
