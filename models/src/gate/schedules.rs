//! The gate before changes of a cached directory: who changes something and may die, who takes what has been noted for a
//! round, who makes a cut for the journal, and a writer that dies with the gate closed.
//!
//! This is not a model of `engine/src/lower/gate.rs` but that file itself. What goes through it follows
//! `cache/src/change.rs` (a note under the number of the round, then the change), `writeback/src/plan.rs` (`Plan::closed`)
//! and `engine/src/lane/adopt.rs` (a record is finished, then its lane is outside).

use super::atomic as words;
use super::passage::{self, Gate};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// For so long the gate is closed; the clock jumps by more.
const CLOSED: u64 = 100;
const JUMP: u64 = 1000;
/// Steps of a change, with which it may end: a note, two stores of one record, out.
const STEPS: u32 = 4;
const ROUNDS: usize = 8;

/// What is done in another order than it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The gate is opened before notes and tree have been read.
    OpenedBeforeTheCopy,
    /// A note is made behind the change.
    NoteAfterChange,
    /// A note is made before the gate is passed.
    NoteOutside,
    /// What was read is believed although the gate may have been open.
    Believed,
}

struct Shared {
    fault: Fault,
    closed: words::AtomicU64,
    inside: words::AtomicU64,
    clock: AtomicU64,
    /// The lane's owner is dead.
    is_dead: AtomicU32,
    round: AtomicU64,
    /// Of the changes noted under a number, a bit each.
    notes: [AtomicU64; ROUNDS],
    /// What a change makes equal to its number, both by one record.
    tree: [AtomicU64; 2],
    /// One cut or round at a time (`Journal::hold`); what they have seen: number, last change there, notes.
    taken: Mutex<Vec<(u64, u64, u64)>>,
}

impl Gate for Shared {
    fn closed(&self) -> &words::AtomicU64 {
        &self.closed
    }

    fn lanes(&self) -> u32 {
        1
    }

    fn inside(&self, _: u32) -> &words::AtomicU64 {
        &self.inside
    }

    fn adopt_if_dead(&self, _: u32) {
        if self.is_dead.load(Acquire) != 0 {
            let recorded = self.tree[0].load(Acquire);
            self.tree[1].store(recorded, Release);
            self.inside.store(0, words::Ordering::SeqCst);
        }
    }

    fn now(&self) -> u64 {
        // As it is, and nobody learns anything else by it.
        self.clock.fetch_add(0, Relaxed)
    }

    fn nap(&self) {
        thread::yield_now();
    }
}

impl Shared {
    fn new(fault: Fault) -> Arc<Shared> {
        Arc::new(Shared {
            fault,
            closed: words::AtomicU64::new(0),
            inside: words::AtomicU64::new(0),
            clock: AtomicU64::new(1),
            is_dead: AtomicU32::new(0),
            round: AtomicU64::new(1),
            notes: Default::default(),
            tree: Default::default(),
            taken: Mutex::new(Vec::new()),
        })
    }

    fn note(&self, number: u64) {
        let round = self.round.load(Acquire) as usize;
        self.notes[round].fetch_or(1 << number, Release);
    }

    /// A change that ends after so many steps.
    fn change(&self, number: u64, steps: u32) {
        if self.fault == Fault::NoteOutside {
            self.note(number);
        }
        passage::enter(self, &self.inside);
        let note = || {
            if self.fault != Fault::NoteOutside {
                self.note(number);
            }
        };
        let [first, second] = [0, 1].map(|word: usize| move || self.tree[word].store(number, Relaxed));
        let out = || passage::leave(&self.inside);
        let in_order: [&dyn Fn(); STEPS as usize] = match self.fault {
            Fault::NoteAfterChange => [&first, &second, &note, &out],
            _ => [&note, &first, &second, &out],
        };
        in_order.iter().take(steps as usize).for_each(|step| step());
    }

    fn dies(&self) {
        self.is_dead.store(1, Release);
    }

    fn jump(&self) {
        self.clock.fetch_add(JUMP, Relaxed);
    }

    /// `Plan::closed`, ended after so many steps; whether what was read counts.
    fn take(&self, steps: u32) -> bool {
        let mut taken = self.taken.lock().unwrap();
        let Some(until) = passage::close(self, CLOSED) else { return false };
        if steps == 0 {
            return false;
        }
        let now = self.round.load(Acquire);
        self.round.store(now + 1, Release);
        if steps == 1 {
            return false;
        }
        let early = self.fault == Fault::OpenedBeforeTheCopy && passage::open(self, until);
        let notes = self.notes.iter().take(now as usize + 1).fold(0, |all, notes| all | notes.load(Acquire));
        let tree = [0, 1].map(|word: usize| self.tree[word].load(Acquire));
        if steps == 2 {
            return false;
        }
        if !(early || passage::open(self, until) || self.fault == Fault::Believed) {
            return false;
        }
        assert_eq!(tree[0], tree[1], "half a change");
        let may_be_dead = self.is_dead.load(Relaxed) != 0;
        for number in 1..=2 {
            let (is_noted, is_there) = (notes >> number & 1 != 0, tree[0] >= number);
            assert!(is_noted || !is_there, "change {number} without its note");
            assert!(is_there || !is_noted || may_be_dead, "a note without its change {number}");
        }
        taken.push((now, tree[0], notes));
        true
    }

    /// What no take has seen stands under a later number.
    fn check(&self) {
        let taken = self.taken.lock().unwrap();
        let there = self.tree[0].load(Acquire);
        for (now, seen, _) in taken.iter() {
            let later = self.notes.iter().skip(*now as usize + 1).fold(0, |all, notes| all | notes.load(Acquire));
            (seen + 1..=there).for_each(|number| assert!(later >> number & 1 != 0, "change {number} is noted for nobody"));
        }
    }
}

/// All schedules with so many preemptions.
fn all(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Two changes beside a round and a cut, of two threads.
fn taken_and_cut(fault: Fault) {
    all(2, move || {
        let shared = Shared::new(fault);
        let [changes, cuts] = [0, 1].map(|_| shared.clone());
        let changes = thread::spawn(move || (1..=2).for_each(|number| changes.change(number, STEPS)));
        let cuts = thread::spawn(move || cuts.take(u32::MAX));
        shared.take(u32::MAX);
        cuts.join().unwrap();
        changes.join().unwrap();
        assert!(shared.take(u32::MAX), "nobody is inside");
        shared.check();
    });
}

/// A change beside a round whose time passes at any moment.
fn too_slow(fault: Fault) {
    all(3, move || {
        let shared = Shared::new(fault);
        let [changes, takes] = [0, 1].map(|_| shared.clone());
        let changes = thread::spawn(move || changes.change(1, STEPS));
        let takes = thread::spawn(move || takes.take(u32::MAX));
        shared.jump();
        takes.join().unwrap();
        changes.join().unwrap();
        assert!(shared.take(u32::MAX), "nobody is inside");
        shared.check();
    });
}

/// A change that dies at a step, beside two rounds.
fn change_dies(fault: Fault) {
    for steps in 0..STEPS {
        all(3, move || {
            let shared = Shared::new(fault);
            let changes = shared.clone();
            let changes = thread::spawn(move || {
                changes.change(1, steps);
                changes.dies();
            });
            shared.take(u32::MAX);
            changes.join().unwrap();
            assert!(shared.take(u32::MAX), "the dead is inside");
            shared.check();
        });
    }
}

/// Goal: a round and a cut each see whole changes with their notes; what they do not see is noted for the next.
#[test]
fn a_moment_without_changes() {
    taken_and_cut(Fault::None);
}

/// Goal: whoever takes too long does not believe what it has read, and keeps nobody out.
#[test]
fn closed_until_a_time() {
    too_slow(Fault::None);
}

/// Goal: the dead are outside, with all of their record or nothing.
#[test]
fn who_changes_dies() {
    change_dies(Fault::None);
}

/// Goal: a writer that dies with the gate closed keeps nobody out, and the next one takes what it has left.
#[test]
fn who_writes_back_dies() {
    for steps in 0..3 {
        all(2, move || {
            let shared = Shared::new(Fault::None);
            let [changes, next] = [0, 1].map(|_| shared.clone());
            let changes = thread::spawn(move || (1..=2).for_each(|number| changes.change(number, STEPS)));
            shared.take(steps);
            let next = thread::spawn(move || next.take(u32::MAX));
            shared.jump();
            next.join().unwrap();
            changes.join().unwrap();
            assert!(shared.take(u32::MAX), "nobody is inside");
            shared.check();
        });
    }
}

/// Goal: each fault is found.
mod faults {
    use super::*;

    #[test]
    #[should_panic(expected = "change")]
    fn opened_before_the_copy() {
        taken_and_cut(Fault::OpenedBeforeTheCopy);
    }

    #[test]
    #[should_panic(expected = "without its note")]
    fn note_after_change() {
        change_dies(Fault::NoteAfterChange);
    }

    #[test]
    #[should_panic(expected = "change")]
    fn note_outside() {
        taken_and_cut(Fault::NoteOutside);
    }

    #[test]
    #[should_panic(expected = "change")]
    fn believed() {
        too_slow(Fault::Believed);
    }
}
