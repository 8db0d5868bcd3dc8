//! Lanes handed over among threads, each of which may die at any access: the record of a dead one is made
//! whole or dropped by whoever meets it, once, and its locks get free.
//!
//! Follows `engine/src/lane/lock.rs` (`lock`, `unlock_to`, `Waiter`), `lane/adopt.rs` (`adopt_if_dead`,
//! `adopt_lane`, `free_lock`) and `lane/take.rs` (`take_lane`).

use super::mortal::{AtomicU32, AtomicU64, Ordering, Robust, life};
use super::{any, schedules};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Tally;

/// Locks that a lane can hold, stores that a record can have.
const HELD: usize = 3;
const STORES: usize = 16;

#[derive(Default)]
struct Lane {
    mutex: Robust,
    /// Locks taken or about to be, + 1.
    held: [AtomicU32; HELD],
    /// Of the record: 0, or how many stores it has.
    state: AtomicU32,
    stores: [(AtomicU32, AtomicU64); STORES],
}

/// Lanes, locks, and the words of an image.
pub struct Lanes {
    lanes: Vec<Lane>,
    pub locks: Vec<AtomicU32>,
    pub words: Vec<AtomicU64>,
}

/// An operation in a lane.
pub struct Tx<'a> {
    all: &'a Lanes,
    thread: u32,
    number: usize,
}

impl Lanes {
    pub fn new(lanes: usize, locks: usize, words: usize) -> Lanes {
        Lanes {
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            locks: (0..locks).map(|_| AtomicU32::default()).collect(),
            words: (0..words).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// `take_lane`.
    pub fn take_lane(&self, thread: u32) -> Option<Tx<'_>> {
        let number = (0..self.lanes.len()).find(|number| self.lanes[*number].mutex.try_take(thread))?;
        self.adopt_lane(number);
        Some(Tx { all: self, thread, number })
    }

    /// `adopt_if_dead`.
    fn adopt_if_dead(&self, thread: u32, number: usize) {
        if self.lanes[number].mutex.try_take(thread) {
            self.adopt_lane(number);
            self.lanes[number].mutex.give_back();
        }
    }

    /// `adopt_lane`: the record first, the locks last.
    fn adopt_lane(&self, number: usize) {
        let lane = &self.lanes[number];
        if lane.state.load(Acquire) != 0 {
            self.apply(lane);
            lane.state.store(0, Release);
        }
        for held in lane.held.iter().rev() {
            let at = held.load(Acquire);
            if at != 0 {
                let _ = self.locks[at as usize - 1].compare_exchange(number as u32 + 1, 0, AcqRel, Relaxed);
            }
            held.store(0, Release);
        }
    }

    fn apply(&self, lane: &Lane) {
        for (place, value) in lane.stores.iter().take(lane.state.load(Relaxed) as usize) {
            self.words[place.load(Relaxed) as usize].store(value.load(Relaxed), Release);
        }
    }

    /// Whoever looks after a thread that died.
    pub fn has_died(&self, thread: u32) {
        self.lanes.iter().for_each(|lane| lane.mutex.is_left_by(thread));
    }

    /// Adopts all the dead; nobody is at work.
    pub fn settle(&self, thread: u32) {
        (0..self.lanes.len()).for_each(|number| self.adopt_if_dead(thread, number));
        assert!(self.locks.iter().all(|lock| lock.load(Relaxed) == 0), "a lock of the dead");
    }
}

impl Tx<'_> {
    /// `lock`: listed before it is taken; waits while its holder lives.
    pub fn lock(&self, place: usize, which: usize) {
        let mine = self.number as u32 + 1;
        self.all.lanes[self.number].held[place].store(which as u32 + 1, Release);
        while let Err(holder) = self.all.locks[which].compare_exchange(0, mine, Acquire, Relaxed) {
            self.all.adopt_if_dead(self.thread, holder as usize - 1);
            thread::yield_now();
        }
    }

    /// `unlock_to`: the last one first.
    pub fn unlock_all(&self) {
        for held in self.all.lanes[self.number].held.iter().rev() {
            let at = held.load(Relaxed) as usize;
            if at != 0 {
                if self.all.locks[at - 1].load(Relaxed) == self.number as u32 + 1 {
                    self.all.locks[at - 1].store(0, Release);
                }
                held.store(0, Release);
            }
        }
    }

    /// Writes a record, commits it, applies it, retires it.
    pub fn commit(&self, stores: &[(usize, u64)]) {
        let lane = &self.all.lanes[self.number];
        assert!(stores.len() <= STORES);
        for ((place, value), store) in lane.stores.iter().zip(stores) {
            place.store(store.0 as u32, Relaxed);
            value.store(store.1, Relaxed);
        }
        lane.state.store(stores.len() as u32, Release);
        self.all.apply(lane);
        lane.state.store(0, Release);
    }

    pub fn give_back(self) {
        self.all.lanes[self.number].mutex.give_back();
    }
}

const THREADS: u32 = 6;
const LANES: usize = 4;
const LOCKS: usize = 2;
/// One access in so many is the last.
const ODDS: u32 = 80;

/// Each lock protects two words that change together.
struct Shared {
    lanes: Lanes,
    /// Changes that somebody has been told of; deaths.
    told: [Tally; LOCKS],
    deaths: Tally,
}

impl Shared {
    /// A thread's life: some changes, in a lane that it gives back now and then. Both words of a lock rise by one.
    fn live(&self, thread: u32) {
        for _ in 0..2 {
            let Some(tx) = self.lanes.take_lane(thread) else { continue };
            for _ in 0..2 {
                let which = any(LOCKS as u32) as usize;
                tx.lock(0, which);
                let [first, second] = [0, 1].map(|half| which * 2 + half);
                let before = self.lanes.words[first].load(Relaxed);
                assert_eq!(before, self.lanes.words[second].load(Relaxed), "half of a record");
                tx.commit(&[(first, before + 1), (second, before + 1)]);
                tx.unlock_all();
                self.told[which].fetch_add(1, SeqCst);
            }
            tx.give_back();
        }
    }
}

/// Goal: nobody sees half a record, none is made again over what came later, none is lost that somebody was told of,
/// and no lock stays taken. Method: all words are counted at the end; who died may have made one change more than was told.
#[test]
fn handed_over_among_six() {
    schedules(20_000, || {
        let shared =
            Arc::new(Shared { lanes: Lanes::new(LANES, LOCKS, LOCKS * 2), told: Default::default(), deaths: Tally::new(0) });
        let start = |thread: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                if life(ODDS, || shared.live(thread)).is_none() {
                    shared.deaths.fetch_add(1, SeqCst);
                    shared.lanes.has_died(thread);
                }
            })
        };
        let all: Vec<_> = (1..=THREADS).map(start).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        shared.lanes.settle(THREADS + 1);
        let (mut made, mut told) = (0, 0);
        for (which, count) in shared.told.iter().enumerate() {
            let [first, second] = [0, 1].map(|half| shared.lanes.words[which * 2 + half].load(Relaxed));
            assert_eq!(first, second, "half of a record");
            assert!(first >= count.load(SeqCst), "a change is lost");
            made += first;
            told += count.load(SeqCst);
        }
        assert!(made <= told + shared.deaths.load(SeqCst), "{made} made, {told} told");
    });
}
