//! Which images are alike: they differ at most in bytes that nothing refers to.
//!
//! A state that is alike to one that was found right is not recovered again, nor is what recovery makes of it used
//! again, if that is alike to an image that was. What nothing refers to, and therefore does not count:
//!
//! - lines that the bitmap has as free;
//! - of a lane without a record and without a truncation noted, all but its counters and the number of its last record.
//!
//! Of an image with a record or a note in any lane every byte counts: a record covers lines that are still free, and a
//! lane's last operations are read again where a truncation is noted. That nothing reads the rest is what the explorer is
//! there to show. So one in so many alike states is tried in full and must have the same answer, every other one of these
//! with rubbish wherever nothing counts ([`Effort::alike_every`](super::explore::Effort)).

use super::memory::LIMIT;
use super::model::{Line, hash_of, mix};
use super::mutate::word_of;
use format::lane::{State, word};
use format::layout::{BLOCK, LANE_AREA, LANE_BYTES, LINE, Layout, PERMISSION_TABLE};
use std::collections::BTreeMap;

/// Lines of a lane.
const LANE_LINES: u32 = (LANE_BYTES / LINE) as u32;
/// Which of them begins with the state word; the counters are there too, ...
const HEAD: u32 = 0;
/// ... and in which, and where, a truncation is noted.
const NOTE: u32 = (word::INTENT / LINE) as u32;
const NOTE_AT: usize = (word::INTENT % LINE) as usize;

const _: () = assert!(LANE_AREA.is_multiple_of(LANE_BYTES) && word::FILES < LINE);

/// The bits of the words of a lane's head that count while it is idle: the number of its last record, and its counters.
const COUNTING: [u64; 4] = [u64::MAX << 32, 0, u64::MAX, u64::MAX];

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

/// Whether a line is the head of a lane.
fn is_head(number: u32) -> bool {
    is_of_lane(number) && number % LANE_LINES == HEAD
}

/// A line that keeps the bits of `from` that count where a lane is idle, and has those of `others` elsewhere.
fn mixed(number: u32, from: &Line, others: &Line) -> Line {
    let mut line = *others;
    let counting = |at: usize| match (is_head(number), number % LANE_LINES == NOTE && is_of_lane(number)) {
        (true, _) => COUNTING.get(at).copied().unwrap_or(0),
        (_, true) if at == NOTE_AT / 8 => u64::MAX,
        _ => 0,
    };
    for (at, word) in line.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (kept, other) = (word_of(&from[at * 8..]), u64::from_le_bytes(*word));
        *word = (kept & counting(at) | other & !counting(at)).to_le_bytes();
    }
    line
}

fn is_of_lane(number: u32) -> bool {
    (LANE_AREA..PERMISSION_TABLE).contains(&(u64::from(number) * LINE))
}

impl<F: Fn(u32) -> Line> Image<'_, F> {
    /// A number that images have in common that are alike.
    pub fn alike(&self) -> u64 {
        if self.is_busy() {
            return self.number;
        }
        let mut alike = 0;
        self.each(|number, share, counts| {
            alike ^= match counts {
                true => share,
                // What is as it was in the beginning has no share.
                false if is_head(number) && share != 0 => self.share_of_idle_head(number),
                false => 0,
            }
        });
        alike
    }

    /// The share of what counts of an idle lane's head: of one that was never used, none.
    fn share_of_idle_head(&self, number: u32) -> u64 {
        let counting = mixed(number, &(self.line)(number), &[0; LINE as usize]);
        if counting == [0; LINE as usize] { 0 } else { hash_of(number, &counting) }
    }

    /// The changed lines that do not count, or not all.
    pub fn idle_lines(&self) -> Vec<u32> {
        let mut idle = Vec::new();
        if !self.is_busy() {
            self.each(|number, _, counts| {
                if !counts {
                    idle.push(number)
                }
            });
        }
        idle
    }

    /// Goes through the changed lines: their numbers, their shares, and whether they count. No lane is busy.
    fn each(&self, mut with: impl FnMut(u32, u64, bool)) {
        let first = Layout::new(LIMIT).map_or(0, |layout| layout.first_block());
        // The block looked at last, and its bitmap word: lines come in order.
        let mut last = (0, 0);
        let mut counts = |number: u32| {
            let block = u64::from(number) * LINE / BLOCK;
            if block < first {
                return !is_of_lane(number);
            }
            if last.0 != block {
                let at = Layout::bitmap_word(block);
                let line = (self.line)((at / LINE) as u32);
                last = (block, word_of(&line[(at % LINE) as usize..]));
            }
            last.1 >> (number % 64) & 1 != 0
        };
        let is_over = |number: u32| self.over.binary_search_by_key(&number, |(other, _)| *other).is_ok();
        for (number, share) in self.changed.iter().filter(|(number, _)| !is_over(**number)) {
            with(*number, *share, counts(*number));
        }
        for (number, change) in self.over {
            with(*number, change ^ self.changed.get(number).copied().unwrap_or(0), counts(*number));
        }
    }

    /// Whether a lane has a record, or has noted a truncation.
    fn is_busy(&self) -> bool {
        let lanes = (LANE_AREA / LINE) as u32..(PERMISSION_TABLE / LINE) as u32;
        let over = self.over.iter().map(|(number, _)| *number).filter(|number| lanes.contains(number));
        let changed = self.changed.range(lanes.clone()).map(|(number, _)| *number);
        changed.chain(over).any(|number| match number % LANE_LINES {
            HEAD => State::counts(word_of(&(self.line)(number))),
            NOTE => word_of(&(self.line)(number)[NOTE_AT..]) != 0,
            _ => false,
        })
    }
}

/// The line with rubbish, which depends on `seed`, in place of what does not count. No record comes to life by that.
pub fn soiled(number: u32, line: &Line, seed: u64) -> Line {
    let mut rubbish = [0; LINE as usize];
    for (at, word) in rubbish.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = mix(seed ^ u64::from(number) << 8 ^ at as u64).to_le_bytes();
    }
    if is_head(number) {
        // The rest of the state word: of a lane that was used, and is idle.
        let rest = if word_of(line) == 0 { 0 } else { State::ended(word_of(&rubbish)) };
        rubbish[..8].copy_from_slice(&rest.to_le_bytes());
    }
    mixed(number, line, &rubbish)
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Effort, Explorer, Media};
    use super::super::model::hash_of;
    use super::super::mutate::{Change, Mutant};
    use super::super::record::What;
    use super::super::workload::{self, Op, Start};
    use super::*;

    /// Goal: what may be referred to counts, what cannot does not. Method: one line after another is changed, in an image
    /// without anything under way, in one with a record, in one with a truncation noted.
    #[test]
    fn what_nothing_refers_to_does_not_count() {
        let _clock = super::super::clock_is_ours();
        let explorer = Explorer::new(Media::Power, Start::Some, Effort::default());
        let base = &explorer.base;
        let lane = (LANE_AREA / LINE) as u32;
        let block = |used: bool| {
            let mut lines = (0..base.bytes().len() as u64 / BLOCK).flat_map(|block| (0..64).map(move |line| (block, line)));
            let first = Layout::new(LIMIT).expect("a layout").first_block();
            let is = |(block, line): &(u64, u64)| {
                *block > first && (u64::from_le_bytes(base.get(Layout::bitmap_word(*block))) >> line & 1 != 0) == used
            };
            let (block, line) = lines.find(is).expect("a line");
            (block * 64 + line) as u32
        };
        let (used, free) = (block(true), block(false));
        let number = |changes: &[(u32, usize, u8)]| {
            let held = |line: u32| {
                let mut bytes: Line = base.get(u64::from(line) * LINE);
                changes.iter().filter(|(other, ..)| *other == line).for_each(|(_, at, bits)| bytes[*at] ^= bits);
                bytes
            };
            let share = |line: u32| (line, hash_of(line, &base.get(u64::from(line) * LINE)) ^ hash_of(line, &held(line)));
            let mut lines: Vec<u32> = changes.iter().map(|(line, ..)| *line).collect();
            lines.sort_unstable();
            let shares: Vec<(u32, u64)> = lines.into_iter().map(share).collect();
            let whole = shares.iter().fold(0, |sum, (_, share)| sum ^ share);
            let (none, nothing) = (Changed::new(), []);
            let over = Image { number: whole, changed: &none, over: &shares, line: held }.alike();
            let changed: Changed = shares.into_iter().collect();
            assert_eq!(over, Image { number: whole, changed: &changed, over: &nothing, line: held }.alike());
            over
        };
        let (counter, sequence) = ((lane + HEAD, word::FILES as usize, 1), (lane + HEAD, 4, 1));
        let counted =
            [used, (PERMISSION_TABLE / LINE) as u32, 0, (Layout::bitmap_word(0) / LINE) as u32].map(|line| (line, 8, 1));
        // Of a head, the checksum.
        let idle = [free, lane + 2, lane + LANE_LINES - 1, lane + LANE_LINES].map(|line| (line, 8, 1));
        for counts in counted.into_iter().chain([counter, sequence]) {
            assert_ne!(number(&[counts]), 0, "{counts:?}");
            idle.iter().for_each(|idle| assert_eq!(number(&[counts, *idle]), number(&[counts]), "{counts:?} {idle:?}"));
        }
        let ended: Line = base.get(u64::from(lane) * LINE);
        assert!(!State::counts(word_of(&ended)) && word_of(&ended) != 0, "a lane that was used");
        // A record that has not ended; one in a lane that was never used; a note.
        for busy in [(lane + HEAD, 1, 0x80), (lane + LANE_LINES, 0, 1), (lane + NOTE, NOTE_AT, 1)] {
            let of_it = number(&[busy]);
            idle.iter().filter(|idle| idle.0 != busy.0).for_each(|idle| assert_ne!(number(&[busy, *idle]), of_it));
        }
    }

    fn explored(media: Media, alike_every: u64, mutant: Option<Mutant>, words: &[&str]) -> super::super::counts::Counts {
        let effort = Effort { cap: 8, cap_inside: 3, inside_every: 16, alike_every };
        let mut explorer = Explorer::new(media, Start::Some, effort);
        explorer.mutant = mutant;
        let first = explorer.first_tree();
        let ops: Vec<Op> = words.iter().filter_map(|word| workload::parse(word)).collect();
        for (one, two) in ops.iter().flat_map(|one| ops.iter().map(move |two| (*one, *two))) {
            let Ok(recorded) = explorer.run(&[one], &first) else { continue };
            let Some(tree) = recorded.after().filter(|_| recorded.done).cloned() else { continue };
            let recorded = explorer.run(&[one, two], &tree).expect("a run");
            explorer.explore(&format!("{one} {two}"), &recorded);
        }
        explorer.counts
    }

    /// Goal: states that are alike have the same answer, whatever is where nothing is referred to, and trying fewer of them
    /// finds no less. Method: sequences of two, each state in full; the same where alike ones are left out; the same where
    /// none is, but every other one is filled with rubbish; and the first two of code without a flush that it needs.
    #[test]
    fn alike_states_have_the_same_answer() {
        let _clock = super::super::clock_is_ours();
        let words = ["create(bar)", "unlink(foo)", "truncate(foo,0)", "append(foo,100)"];
        for media in Media::ALL {
            let [full, fewer, soiled] = [0, 1 << 40, 1].map(|alike_every| explored(media, alike_every, None, &words));
            for other in [fewer, soiled] {
                assert_eq!((full.tried, full.inside, full.points), (other.tried, other.inside, other.points));
                assert_eq!(other.violations, 0);
            }
            assert_eq!((full.violations, full.alike, soiled.alike), (0, 0, 0));
            assert!(fewer.alike * 8 > fewer.tried && fewer.used < full.used && soiled.used > full.used, "{fewer:?} {full:?}");
        }
        let mut explorer = Explorer::new(Media::Power, Start::Some, Effort::default());
        let tree = explorer.first_tree();
        let recorded = explorer.run(&workload::parse("create(bar)").map_or_else(Vec::new, |op| vec![op]), &tree).expect("a run");
        let flushes = recorded.events.iter().filter(|event| matches!(event.what, What::Flush { .. }));
        let mut caught = 0;
        for event in flushes {
            let mutant = Some(Mutant { change: Change::NoFlush, site: event.site });
            let found = [0, 1 << 40].map(|alike_every| explored(Media::Power, alike_every, mutant, &words[..2]).violations > 0);
            assert_eq!(found[0], found[1], "{}", event.site);
            caught += u32::from(found[0]);
        }
        assert!(caught > 0);
    }
}
