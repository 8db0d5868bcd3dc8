//! The gate before changes of a cached directory: three who change it, two that write back one after the other, any of which
//! may die at any access, and a clock that jumps.
//!
//! This is not a model of `engine/src/lower/gate.rs` but that file itself.

use super::mortal::{AtomicU64, Ordering, Robust, life};
use super::{any, schedules};
use Ordering::SeqCst;
use passage::Gate;
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Mark;

use super::mortal as atomic;
#[path = "../../../crates/engine/src/lower/gate.rs"]
mod passage;

const LANES: usize = 3;
const CHANGES: u64 = 4;
/// Rounds and cuts of a writer at most.
const TAKES: u32 = 4;
const WRITERS: usize = 2;
const ROUNDS: usize = 32;
/// One access in so many is the last.
const ODDS: u32 = 80;
/// For so long the gate is closed; each time that somebody looks at the clock it goes on by one, one time in so many by more.
const CLOSED: u64 = 400;
const JUMPS: u32 = 60;

#[derive(Default)]
struct Lane {
    mutex: Robust,
    inside: AtomicU64,
    /// Of a change, by one record: both, or none.
    tree: [AtomicU64; 2],
    /// Noted under a number: a bit for each change.
    notes: [Mark; ROUNDS],
}

struct Shared {
    lanes: [Lane; LANES],
    closed: AtomicU64,
    round: AtomicU64,
    clock: Mark,
    /// The one that writes back (the directory's marker).
    marker: Robust,
    /// What was read and counts: the number, and the last change of each lane.
    taken: Mutex<Vec<(usize, [u64; LANES])>>,
}

/// With the number that it has for the robust mutexes.
struct By<'a>(&'a Shared, u32);

impl Gate for By<'_> {
    fn closed(&self) -> &AtomicU64 {
        &self.0.closed
    }

    fn lanes(&self) -> u32 {
        LANES as u32
    }

    fn inside(&self, lane: u32) -> &AtomicU64 {
        &self.0.lanes[lane as usize].inside
    }

    fn adopt_if_dead(&self, lane: u32) {
        let lane = &self.0.lanes[lane as usize];
        if lane.mutex.try_take(self.1) {
            lane.tree[1].store(lane.tree[0].load(SeqCst), SeqCst);
            lane.inside.store(0, SeqCst);
            lane.mutex.give_back();
        }
    }

    fn now(&self) -> u64 {
        let step = if any(JUMPS) == 0 { 2 * CLOSED } else { 1 };
        self.0.clock.fetch_add(step, SeqCst) + step
    }

    fn nap(&self) {
        thread::yield_now();
    }
}

impl Shared {
    fn change(&self, own: usize) {
        let lane = &self.lanes[own];
        assert!(lane.mutex.try_take(own as u32 + 1));
        for number in 1..=CHANGES {
            passage::enter(&By(self, own as u32 + 1), &lane.inside);
            lane.notes[self.round.load(SeqCst) as usize].fetch_or(1 << number, SeqCst);
            lane.tree.iter().for_each(|word| word.store(number, SeqCst));
            passage::leave(&lane.inside);
        }
        lane.mutex.give_back();
    }

    fn noted(&self, lane: usize, rounds: std::ops::Range<usize>) -> u64 {
        self.lanes[lane].notes[rounds].iter().fold(0, |all, notes| all | notes.load(SeqCst))
    }

    /// A round, or a cut; whether what was read counts.
    fn take(&self, by: u32) -> bool {
        let gate = By(self, by);
        let Some(until) = passage::close(&gate, CLOSED) else { return false };
        let now = self.round.load(SeqCst) as usize;
        self.round.store(now as u64 + 1, SeqCst);
        let read = |lane: usize| {
            let words = [0, 1].map(|word: usize| self.lanes[lane].tree[word].load(SeqCst));
            (words, self.noted(lane, 0..now + 1))
        };
        let all = [0, 1, 2].map(read);
        if !passage::open(&gate, until) {
            return false;
        }
        for ([first, second], notes) in all {
            assert_eq!(first, second, "half a change");
            (1..=first).for_each(|number| assert!(notes >> number & 1 != 0, "a change without its note"));
            // The last one may have died in between.
            (first + 2..=CHANGES).for_each(|number| assert!(notes >> number & 1 == 0, "a note without its change"));
        }
        self.taken.lock().unwrap().push((now, all.map(|(words, _)| words[0])));
        true
    }

    fn write_back(&self, by: u32) {
        while !self.marker.try_take(by) {
            thread::yield_now();
        }
        for _ in 0..TAKES {
            self.take(by);
        }
        self.marker.give_back();
    }

    fn lives(self: &Arc<Shared>, number: u32, live: impl FnOnce(&Shared) + Send + 'static) -> thread::JoinHandle<()> {
        let shared = self.clone();
        thread::spawn(move || {
            if life(ODDS, || live(&shared)).is_none() {
                shared.lanes.iter().map(|lane| &lane.mutex).chain([&shared.marker]).for_each(|mutex| mutex.is_left_by(number));
            }
        })
    }
}

/// Goal: what is read at a moment is whole and noted, what comes later is noted for later, and nobody waits for the dead.
#[test]
fn a_moment_without_changes() {
    schedules(10_000, || {
        let shared = Arc::new(Shared {
            lanes: Default::default(),
            closed: AtomicU64::new(0),
            round: AtomicU64::new(1),
            clock: Mark::new(1),
            marker: Robust::default(),
            taken: Mutex::new(Vec::new()),
        });
        let changes = (0..LANES).map(|own| shared.lives(own as u32 + 1, move |shared| shared.change(own)));
        let writers =
            (LANES..LANES + WRITERS).map(|own| shared.lives(own as u32 + 1, move |shared| shared.write_back(own as u32 + 1)));
        let all: Vec<_> = changes.chain(writers).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        while !shared.take(100) {}
        for (now, seen) in shared.taken.lock().unwrap().iter() {
            for (lane, seen) in seen.iter().enumerate() {
                let later = shared.noted(lane, now + 1..ROUNDS);
                let there = shared.lanes[lane].tree[0].load(SeqCst);
                (seen + 1..=there).for_each(|number| assert!(later >> number & 1 != 0, "a change noted for nobody"));
            }
        }
    });
}
