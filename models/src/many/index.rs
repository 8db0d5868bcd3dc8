//! The index: names made and removed, and buckets split, while others look for names without a lock. Who changes
//! something may die at any access.
//!
//! Follows `engine/src/index/find.rs` (`find_hit`), `index/change.rs` (`room`, `insert`, `hit`) and
//! `index/split.rs` (`split_into`). Edentries are left out: an entry is the name itself and its child.

use super::lanes::{Lanes, Tx};
use super::mortal::{AtomicU64, Ordering, life};
use super::{any, schedules};
use Ordering::{AcqRel, Acquire, Relaxed, Release};
use shuttle::thread;
use std::sync::Arc;

/// Entries of a bucket; buckets at first and at most; overflow buckets; how long a chain can be.
const ENTRIES: usize = 2;
const BUCKETS_MIN: u64 = 2;
const BUCKETS_MAX: u64 = 6;
const OVERFLOWS: u64 = 6;
const CHAIN_MAX: usize = 8;

/// Names that stay, and names that come and go; they are their own hashes.
const STAYING: u64 = 4;
const NAMES: u64 = 10;

const WRITERS: u32 = 3;
const READERS: u32 = 2;
const SPLIT: usize = BUCKETS_MIN as usize;
/// One access in so many is the last.
const ODDS: u32 = 150;

/// Word 0 is the number of buckets; then buckets: entries, and the number of the next one (0: none).
fn entry_at(bucket: u64, index: usize) -> usize {
    1 + bucket as usize * (ENTRIES + 1) + index
}

fn next_at(bucket: u64) -> usize {
    entry_at(bucket, ENTRIES)
}

/// `bucket::number`: linear hashing.
fn home(name: u64, buckets: u64) -> u64 {
    let low = 1 << buckets.ilog2();
    let wide = name % (low * 2);
    if wide < buckets { wide } else { name % low }
}

fn entry(name: u64) -> u64 {
    (name + 1) | (name * 7 + 1) << 8
}

fn name_of(entry: u64) -> u64 {
    (entry & 0xff).wrapping_sub(1)
}

struct Index {
    lanes: Lanes,
    /// Overflow buckets in use, a bit each.
    used: AtomicU64,
}

impl Index {
    fn new() -> Index {
        let words = entry_at(BUCKETS_MAX + OVERFLOWS, 0);
        let index = Index { lanes: Lanes::new(WRITERS as usize + 1, SPLIT + 1, words), used: AtomicU64::new(0) };
        index.word(0).store(BUCKETS_MIN, Relaxed);
        index
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.lanes.words[at]
    }

    /// `find_hit`: without a lock.
    fn find(&self, name: u64) -> Option<u64> {
        'again: loop {
            let buckets = self.word(0).load(Acquire);
            let home = home(name, buckets);
            let chain = self.word(next_at(home)).load(Acquire);
            let mut bucket = home;
            for _ in 0..CHAIN_MAX {
                for index in 0..ENTRIES {
                    let entry = self.word(entry_at(bucket, index)).load(Acquire);
                    if name_of(entry) != name {
                        continue;
                    }
                    let stands = self.word(entry_at(bucket, index)).load(Relaxed) == entry;
                    if !stands || self.word(next_at(home)).load(Relaxed) != chain {
                        continue 'again;
                    }
                    return Some(entry >> 8);
                }
                bucket = if bucket == home { chain } else { self.word(next_at(bucket)).load(Acquire) };
                if self.word(next_at(home)).load(Relaxed) != chain {
                    continue 'again;
                }
                if bucket == 0 {
                    if self.word(0).load(Acquire) != buckets {
                        continue 'again;
                    }
                    return None;
                }
            }
            panic!("a chain without an end");
        }
    }

    /// The buckets of a chain. Its lock is held, or nobody is at work.
    fn chain(&self, home: u64) -> Vec<u64> {
        let mut chain = vec![home];
        while let next @ 1.. = self.word(next_at(chain[chain.len() - 1])).load(Acquire) {
            chain.push(next);
            assert!(chain.len() < CHAIN_MAX, "a chain without an end");
        }
        chain
    }

    /// Places of a chain, with what is there.
    fn places(&self, home: u64) -> Vec<(usize, u64)> {
        let places = self.chain(home).into_iter().flat_map(|bucket| (0..ENTRIES).map(move |index| entry_at(bucket, index)));
        places.map(|at| (at, self.word(at).load(Acquire))).collect()
    }

    /// Makes or removes a name, whichever can be done.
    fn change(&self, tx: &Tx, name: u64) {
        tx.lock(0, (name % BUCKETS_MIN) as usize);
        let home = home(name, self.word(0).load(Acquire));
        let places = self.places(home);
        if let Some((at, _)) = places.iter().find(|(_, entry)| name_of(*entry) == name) {
            tx.commit(&[(*at, 0)]);
        } else if let Some((at, _)) = places.iter().find(|(_, entry)| *entry == 0) {
            tx.commit(&[(*at, entry(name))]);
        } else if let Some(added) = self.write_aside(&[entry(name)], 0) {
            tx.commit(&[(next_at(*self.chain(home).last().unwrap()), added)]);
        }
        tx.unlock_all();
    }

    /// An overflow bucket that nobody can see yet. What a dead one took is lost to this model.
    fn write_aside(&self, entries: &[u64], next: u64) -> Option<u64> {
        let number = (0..OVERFLOWS).find(|number| self.used.fetch_or(1 << number, AcqRel) & 1 << number == 0)? + BUCKETS_MAX;
        self.write_bucket(number, entries, next);
        Some(number)
    }

    fn write_bucket(&self, bucket: u64, entries: &[u64], next: u64) {
        for index in 0..ENTRIES {
            self.word(entry_at(bucket, index)).store(entries.get(index).copied().unwrap_or(0), Release);
        }
        self.word(next_at(bucket)).store(next, Release);
    }

    /// `try_split`, `split_into`.
    fn split(&self, tx: &Tx) {
        tx.lock(0, SPLIT);
        let number = self.word(0).load(Acquire);
        if number < BUCKETS_MAX {
            tx.lock(1, (number % BUCKETS_MIN) as usize);
            self.split_into(tx, number);
        }
        tx.unlock_all();
    }

    fn split_into(&self, tx: &Tx, number: u64) {
        let from = number ^ 1 << number.ilog2();
        let placed = self.places(from).into_iter().filter(|(_, entry)| *entry != 0);
        let (go, stay): (Vec<_>, Vec<_>) = placed.partition(|(_, entry)| home(name_of(*entry), number + 1) == number);
        let moved: Vec<u64> = go.iter().map(|(_, entry)| *entry).collect();
        let (first, rest) = moved.split_at(moved.len().min(ENTRIES));
        let mut next = 0;
        for part in rest.chunks(ENTRIES) {
            let Some(aside) = self.write_aside(part, next) else { return };
            next = aside;
        }
        self.write_bucket(number, first, next);
        // The number of buckets first: who finds nothing where a name was looks at it again.
        let mut stores = vec![(0, number + 1)];
        let overflows = self.chain(from).split_off(1);
        if !overflows.is_empty() && stay.len() <= ENTRIES {
            let staying = (0..ENTRIES).map(|index| (entry_at(from, index), stay.get(index).map_or(0, |(_, entry)| *entry)));
            stores.extend(staying);
            stores.push((next_at(from), 0));
            tx.commit(&stores);
            // Only now: the record is gone.
            for bucket in overflows {
                self.used.fetch_and(!(1 << (bucket - BUCKETS_MAX)), AcqRel);
            }
        } else {
            stores.extend(go.iter().map(|(at, _)| (*at, 0)));
            tx.commit(&stores);
        }
    }

    fn write(&self, thread: u32) {
        let Some(tx) = self.lanes.take_lane(thread) else { return };
        for _ in 0..4 {
            match any(4) {
                0 => self.split(&tx),
                _ => self.change(&tx, STAYING + u64::from(any((NAMES - STAYING) as u32))),
            }
        }
        tx.give_back();
    }

    fn read(&self) {
        for _ in 0..4 {
            let name = u64::from(any(NAMES as u32 + 1));
            let child = self.find(name);
            assert!(child.is_none_or(|child| child == name * 7 + 1), "{child:?} under {name}");
            assert!(child.is_some() || name >= STAYING, "{name} is not found");
            assert!(child.is_none() || name < NAMES, "{name} was never made");
        }
    }

    /// Each name at most once, where it belongs. Nobody is at work.
    fn check(&self) {
        let buckets = self.word(0).load(Relaxed);
        let mut names = Vec::new();
        for bucket in 0..buckets {
            let here = self.places(bucket).into_iter().filter(|(_, entry)| *entry != 0).map(|(_, entry)| name_of(entry));
            names.extend(here.inspect(|name| assert_eq!(home(*name, buckets), bucket, "{name} is elsewhere")));
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "twice: {names:?}");
        assert!((0..STAYING).all(|name| names.contains(&name)), "lost: {names:?}");
    }
}

/// Goal: a name that nobody touches is always found, whatever is split beside it; a name is found with its own
/// child only; no name is lost or made twice by whoever finishes what a dead one began.
#[test]
fn names_are_found_while_buckets_split() {
    schedules(30_000, || {
        let index = Arc::new(Index::new());
        let tx = index.lanes.take_lane(WRITERS + 1).unwrap();
        (0..STAYING + 2).for_each(|name| index.change(&tx, name));
        tx.give_back();
        let writer = |thread: u32| {
            let index = index.clone();
            thread::spawn(move || {
                if life(ODDS, || index.write(thread)).is_none() {
                    index.lanes.has_died(thread);
                }
            })
        };
        let reader = |_| {
            let index = index.clone();
            thread::spawn(move || index.read())
        };
        let all: Vec<_> = (1..=WRITERS).map(writer).chain((0..READERS).map(reader)).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        index.lanes.settle(WRITERS + 1);
        index.check();
    });
}
