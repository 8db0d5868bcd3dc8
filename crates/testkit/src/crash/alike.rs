//! Which images are alike: they differ at most in bytes that nothing refers to.
//!
//! A state that is alike to one that was found right is not recovered again, nor is what recovery makes of it used
//! again, if that is alike to an image that was. What nothing refers to, and therefore does not count:
//!
//! - lines that the bitmap has as free;
//! - of a lane without a record and without a truncation noted, all but its counters and its sequence number.
//!
//! Of an image with a record or a note in any lane every byte counts: a record covers lines that are still free, and a
//! lane's last operations are read again where a truncation is noted. That nothing reads the rest is what the explorer is
//! there to show, so one in so many alike states is tried in full, and must have the same answer
//! ([`Effort::alike_every`](super::explore::Effort)).

use super::memory::LIMIT;
use super::model::Line;
use format::layout::{BLOCK, LANE_AREA, LANE_BYTES, LINE, Layout, PERMISSION_TABLE};
use std::collections::BTreeMap;

/// Lines of a lane.
const LANE_LINES: u32 = (LANE_BYTES / LINE) as u32;
/// Which of them begins with the state word, ...
const HEAD: u32 = 0;
/// ... and which with the note of a truncation; the counters are there too.
const COUNTERS: u32 = (format::lane::word::INTENT / LINE) as u32;

const _: () = assert!(LANE_AREA.is_multiple_of(LANE_BYTES) && format::lane::word::FILES / LINE == COUNTERS as u64);

/// Lines in which an image differs from the one that all began with, and their shares in its number.
pub type Changed = BTreeMap<u32, u64>;

/// An image.
pub struct Image<'a, F: Fn(u32) -> Line> {
    /// Its number, in which every byte counts.
    pub number: u64,
    /// Lines that an image near to it has changed, ...
    pub changed: &'a Changed,
    /// ... and those in which it differs from that one, in order, with the change of their shares.
    pub over: &'a [(u32, u64)],
    /// What a line holds.
    pub line: F,
}

fn first_word(line: &Line) -> u64 {
    super::mutate::word_of(line)
}

fn is_of_lane(number: u32) -> bool {
    (LANE_AREA..PERMISSION_TABLE).contains(&(u64::from(number) * LINE))
}

impl<F: Fn(u32) -> Line> Image<'_, F> {
    /// A number that images have in common that are alike.
    pub fn alike(&self) -> u64 {
        if self.lines_changed().any(|number| self.is_busy(number)) {
            return self.number;
        }
        let first = Layout::new(LIMIT).map_or(0, |layout| layout.first_block());
        // The block looked at last, and its bitmap word: lines come in order.
        let mut last = (0, 0);
        let mut counts = |number: u32| {
            let block = u64::from(number) * LINE / BLOCK;
            if block < first {
                return !is_of_lane(number) || number % LANE_LINES == COUNTERS;
            }
            if last.0 != block {
                let at = Layout::bitmap_word(block);
                let line = (self.line)((at / LINE) as u32);
                last = (block, super::mutate::word_of(&line[(at % LINE) as usize..]));
            }
            last.1 >> (number % 64) & 1 != 0
        };
        let near = self.changed.iter().filter(|(number, _)| self.over_of(**number).is_none());
        let mut alike = near.filter(|(number, _)| counts(**number)).fold(0, |sum, (_, share)| sum ^ share);
        for (number, change) in self.over {
            if counts(*number) {
                alike ^= change ^ self.changed.get(number).copied().unwrap_or(0);
            }
        }
        alike
    }

    fn over_of(&self, number: u32) -> Option<usize> {
        self.over.binary_search_by_key(&number, |(other, _)| *other).ok()
    }

    fn lines_changed(&self) -> impl Iterator<Item = u32> {
        let end = (PERMISSION_TABLE / LINE) as u32;
        let begin = (LANE_AREA / LINE) as u32;
        let over = self.over.iter().map(|(number, _)| *number).filter(move |number| (begin..end).contains(number));
        self.changed.range(begin..end).map(|(number, _)| *number).chain(over)
    }

    /// Whether this line of a lane says that the lane has something under way.
    fn is_busy(&self, number: u32) -> bool {
        let part = number % LANE_LINES;
        (part == HEAD || part == COUNTERS) && first_word(&(self.line)(number)) != 0
    }
}
