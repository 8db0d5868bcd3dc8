//! What a medium may hold after a crash, given what was stored, flushed and fenced.

use super::alike::Changed;
use super::memory::Memory;
use super::record::{Event, What};
use pm::record::{Site, Stored};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of a line.
pub type Line = [u8; 64];

/// A store that may be lost.
#[derive(Clone, Copy)]
struct Loose {
    at: u8,
    len: u8,
    value: u64,
    how: Stored,
    site: Site,
}

/// A line that was stored to since it was last known to be on the medium.
#[derive(Default)]
struct Dirty {
    stores: Vec<Loose>,
    /// Of whom a write-back is under way, and how many of the stores it covers.
    flushed: Vec<(u8, usize)>,
}

/// One of the contents a line may have.
#[derive(Clone, Copy)]
pub struct Choice {
    /// The contents.
    pub line: Line,
    /// Its share in the hash of a state.
    pub hash: u64,
    /// First store that is missing, if one is.
    pub missing: Option<Site>,
}

/// A line and the contents it may have, the oldest first, the newest last; at least two.
pub struct Choices {
    /// Number of the line.
    pub line: u32,
    /// The contents.
    pub of: Vec<Choice>,
}

/// What is on the medium for certain, and what may be.
pub struct Medium {
    /// Certain contents.
    pub certain: Memory,
    dirty: BTreeMap<u32, Dirty>,
    /// Hash of what is certain, relative to where it started.
    pub hash: u64,
    /// The lines that differ from where it started, and their shares in that hash.
    pub changed: Changed,
    /// How to get back to where the runs under way began, the outermost first: lines, what they held, and the change of their shares.
    journals: Vec<Vec<(u32, Line, u64)>>,
}

/// What a run interrupts.
pub struct Outer {
    dirty: BTreeMap<u32, Dirty>,
    hash: u64,
}

/// Mixes 64 bits.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ x >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 32
}

/// Numbers that are hashes already.
pub type Numbers = HashSet<u64, BuildHasherDefault<Mixed>>;
/// What goes by such numbers.
pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Mixed>>;

/// The hash of a number that is one.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // One number is what it is; of several each counts.
        self.0 = if self.0 == 0 { number } else { mix(self.0 ^ number) };
    }
}

/// The number of some bytes.
pub fn hash_of_bytes(bytes: &[u8]) -> u64 {
    // Four sums side by side, so that none waits for the other.
    let (groups, rest) = bytes.as_chunks::<32>();
    let mut sums = [bytes.len() as u64; 4];
    let mut add = |group: &[u8; 32]| {
        for (sum, word) in sums.iter_mut().zip(group.as_chunks::<8>().0) {
            *sum = (sum.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    };
    groups.iter().for_each(&mut add);
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    add(&last);
    sums.into_iter().fold(0, |number, sum| mix(number ^ sum))
}

/// A line's share in the hash of a state.
pub fn hash_of(number: u32, line: &Line) -> u64 {
    let words = line.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    mix(words.fold(u64::from(number).wrapping_mul(0xa076_1d64_78bd_642f), |sum, word| mix(sum ^ word).rotate_left(17)))
}

impl Loose {
    fn put(&self, line: &mut Line) {
        let (at, len) = (usize::from(self.at), usize::from(self.len));
        line[at..at + len].copy_from_slice(&self.value.to_le_bytes()[..len]);
    }
}

impl Medium {
    /// A medium that certainly holds `start`.
    pub fn new(start: &Memory) -> Medium {
        let certain = Memory::new(super::memory::LIMIT);
        certain.put(0, start.bytes());
        Medium { certain, dirty: BTreeMap::new(), hash: 0, changed: Changed::new(), journals: Vec::new() }
    }

    /// Contents of a line that are certain.
    pub fn line(&self, number: u32) -> Line {
        self.certain.get(u64::from(number) * 64)
    }

    /// A line becomes certain, here and in `mirror`.
    pub fn set_line(&mut self, number: u32, line: &Line, mirror: &Memory) {
        let before = self.line(number);
        if before != *line {
            let change = hash_of(number, &before) ^ hash_of(number, line);
            if let Some(journal) = self.journals.last_mut() {
                journal.push((number, before, change));
            }
            self.certain.put(u64::from(number) * 64, line);
            mirror.put(u64::from(number) * 64, line);
            self.hash ^= change;
            self.share(number, change);
        }
    }

    /// The share of a line changes.
    fn share(&mut self, number: u32, change: u64) {
        let share = self.changed.entry(number).or_insert(0);
        *share ^= change;
        if *share == 0 {
            self.changed.remove(&number);
        }
    }

    /// A run begins on what is certain now.
    pub fn nest(&mut self) -> Outer {
        self.journals.push(Vec::new());
        Outer { dirty: std::mem::take(&mut self.dirty), hash: self.hash }
    }

    /// It is over: back to where it began.
    pub fn unnest(&mut self, outer: Outer, mirror: &Memory) {
        for (number, line, change) in self.journals.pop().into_iter().flatten().rev() {
            self.share(number, change);
            self.certain.put(u64::from(number) * 64, &line);
            mirror.put(u64::from(number) * 64, &line);
        }
        self.dirty = outer.dirty;
        self.hash = outer.hash;
    }

    /// Takes an event into account; what becomes certain does so in `mirror` too.
    pub fn event(&mut self, event: &Event, mirror: &Memory) {
        match event.what {
            What::Store { offset, len, value, how } => {
                let loose = Loose { at: (offset % 64) as u8, len, value, how, site: event.site };
                self.dirty.entry(offset / 64).or_default().stores.push(loose);
            }
            What::Flush { offset, len } if len > 0 => {
                for (_, dirty) in self.dirty.range_mut(offset / 64..=(offset + len - 1) / 64) {
                    let covers = dirty.stores.len();
                    dirty.flushed.retain(|(thread, _)| *thread != event.thread);
                    dirty.flushed.push((event.thread, covers));
                }
            }
            What::Flush { .. } => {}
            What::Fence => self.fence(event.thread, mirror),
        }
    }

    fn fence(&mut self, thread: u8, mirror: &Memory) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|number, dirty| {
            let Some(covers) = dirty.flushed.iter().find(|(t, _)| *t == thread).map(|(_, covers)| *covers) else { return true };
            let mut line = self.line(*number);
            for store in dirty.stores.drain(..covers) {
                store.put(&mut line);
            }
            dirty.flushed.retain_mut(|(t, rest)| {
                *rest = rest.saturating_sub(covers);
                *t != thread && *rest > 0
            });
            self.set_line(*number, &line, mirror);
            !dirty.stores.is_empty()
        });
        self.dirty = dirty;
    }

    /// A store reaches the medium at once (media that keep the order of stores); whether it changed anything.
    pub fn store_now(&mut self, event: &Event, mirror: &Memory) -> bool {
        let What::Store { offset, len, value, how } = event.what else { return false };
        let mut line = self.line(offset / 64);
        let before = line;
        Loose { at: (offset % 64) as u8, len, value, how, site: event.site }.put(&mut line);
        self.set_line(offset / 64, &line, mirror);
        line != before
    }

    /// The lines that are not certain.
    pub fn choices(&self) -> Vec<Choices> {
        let lines = self.dirty.iter().filter_map(|(number, dirty)| {
            let of = self.contents(*number, &dirty.stores);
            (of.len() > 1).then_some(Choices { line: *number, of })
        });
        lines.collect()
    }

    /// What a line may hold: any prefix of its stores; of a copy any part. The
    /// certain content comes first, that with all stores last.
    fn contents(&self, number: u32, stores: &[Loose]) -> Vec<Choice> {
        let mut line = self.line(number);
        let choice = |line: Line, missing: Option<Site>| Choice { line, hash: hash_of(number, &line), missing };
        let mut of = vec![choice(line, stores.first().map(|store| store.site))];
        let mut at = 0;
        while at < stores.len() {
            let bulk = stores[at..].iter().take_while(|s| s.how == Stored::Bulk && s.site == stores[at].site).count();
            if bulk > 1 {
                let group = &stores[at..at + bulk];
                for part in parts(bulk) {
                    let mut torn = line;
                    group.iter().enumerate().filter(|(i, _)| part >> i & 1 != 0).for_each(|(_, store)| store.put(&mut torn));
                    of.push(choice(torn, Some(group[0].site)));
                }
            }
            let step = bulk.max(1);
            stores[at..at + step].iter().for_each(|store| store.put(&mut line));
            at += step;
            of.push(choice(line, stores.get(at).map(|store| store.site)));
        }
        let last = of.len() - 1;
        let mut seen: Vec<Line> = Vec::new();
        let mut kept = Vec::with_capacity(of.len());
        for (i, choice) in of.into_iter().enumerate() {
            let again = seen.contains(&choice.line) || i != last && choice.line == line;
            if !again || i == last && choice.line != kept.first().map_or(line, |c: &Choice| c.line) || kept.is_empty() {
                seen.push(choice.line);
                kept.push(choice);
            }
        }
        kept
    }
}

/// Parts of a copy of `n` words that may have reached the medium: each word
/// alone, all but each, the first half, the second.
fn parts(n: usize) -> impl Iterator<Item = u64> {
    let all = if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    let half = (1u64 << (n / 2).min(63)) - 1;
    (0..n.min(64)).flat_map(move |i| [1 << i, all & !(1 << i)]).chain([half, all & !half])
}
