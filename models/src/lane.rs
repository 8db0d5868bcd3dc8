//! The lane of a thread that dies in the middle of a record: whoever meets it finishes
//! or drops the record, then frees the lock; so the next holder of the lock finds all of it or nothing.
//!
//! Follows `engine/src/lane/lock.rs` (`lock`, `unlock_to`), `engine/src/lane/adopt.rs`
//! (`adopt_if_dead`, `adopt_lane`, `free_lock`) and `engine/src/lane/take.rs` (`take_lane`). The robust
//! mutex of a lane is loom's: that the dead one has let go of it is where the model begins.

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;

const OLD: u64 = 0;
const RECORDED: u64 = 1;
/// Lane + 1 of the dead one, and of the next user of its lane.
const DEAD: u32 = 1;
const OTHER: u32 = 2;
/// Steps of an operation; after this one its record is committed.
const STEPS: u32 = 8;
const COMMITTED: u32 = 4;

#[derive(Default)]
struct Lane {
    mutex: Mutex<()>,
    listed: AtomicU32,
    /// Of the record, with what it stores: `value` is the word's at the end.
    state: AtomicU32,
    value: AtomicU64,
}

/// A lock, and the word that it protects.
#[derive(Default)]
struct Shared {
    lock: AtomicU32,
    word: AtomicU64,
    lane: Lane,
}

impl Shared {
    fn take(&self, owner: u32) -> bool {
        self.lock.compare_exchange(0, owner, Acquire, Relaxed).is_ok()
    }

    fn give_back(&self, owner: u32) {
        if self.lock.load(Relaxed) == owner {
            self.lock.store(0, Release);
        }
    }

    /// An operation in the lane that ends after `steps` stores.
    fn operate(&self, steps: u32) {
        let stores: [&dyn Fn(); STEPS as usize] = [
            &|| self.lane.listed.store(1, Release),
            &|| assert!(self.take(DEAD)),
            &|| self.lane.value.store(RECORDED, Relaxed),
            &|| self.lane.state.store(1, Release),
            &|| self.word.store(RECORDED, Release),
            &|| self.lane.state.store(0, Release),
            &|| self.give_back(DEAD),
            &|| self.lane.listed.store(0, Release),
        ];
        stores.iter().take(steps as usize).for_each(|store| store());
    }

    /// The caller holds the lane's mutex.
    fn adopt(&self) {
        if self.lane.state.load(Acquire) != 0 {
            self.word.store(self.lane.value.load(Relaxed), Release);
            self.lane.state.store(0, Release);
        }
        if self.lane.listed.load(Acquire) != 0 {
            let _ = self.lock.compare_exchange(DEAD, 0, AcqRel, Relaxed);
            self.lane.listed.store(0, Release);
        }
    }

    /// Another lane wants the lock: it adopts the dead one once, as a waiter does, and then takes the lock if it is free.
    fn wait_and_change(&self, steps: u32) -> bool {
        let mut taken = self.take(OTHER);
        if !taken && let Ok(_mutex) = self.lane.mutex.try_lock() {
            self.adopt();
            taken = self.take(OTHER);
        }
        if taken {
            let seen = self.word.load(Relaxed);
            // What was committed before the death is there; what was not, never is. Or the next user was first.
            let expected = if steps >= COMMITTED { RECORDED } else { OLD };
            assert!(seen == expected || seen == 7, "{seen} after {steps} steps");
            self.word.store(9, Relaxed);
            self.give_back(OTHER);
        }
        taken
    }

    /// The lane's next user: adopts what its last one has left, then makes a change of its own.
    fn take_lane_and_change(&self) -> bool {
        let Ok(_mutex) = self.lane.mutex.try_lock() else { return false };
        self.adopt();
        self.lane.listed.store(1, Release);
        let taken = self.take(DEAD);
        if taken {
            self.word.store(7, Relaxed);
            self.give_back(DEAD);
        }
        self.lane.listed.store(0, Release);
        taken
    }
}

/// Goal: wherever the user of a lane dies, the record counts whole or not at all for whoever has the lock next, its
/// lock gets free, and is taken from nobody else. Method: death after each step; then one who waits for the lock beside the lane's next user.
#[test]
fn handed_over_at_every_step() {
    for steps in 0..=STEPS {
        loom::model(move || {
            let shared = Arc::new(Shared::default());
            shared.operate(steps);
            let next = shared.clone();
            let next = thread::spawn(move || next.take_lane_and_change());
            let waited = shared.wait_and_change(steps);
            let changed = next.join().unwrap();
            // Whoever has met the dead one has freed the lock.
            assert_eq!(shared.lock.load(Acquire), 0, "after {steps} steps");
            assert_eq!(shared.lane.state.load(Acquire), 0);
            let word = shared.word.load(Acquire);
            match (waited, changed) {
                (false, false) => assert_eq!(word, if steps >= COMMITTED { RECORDED } else { OLD }),
                (true, false) => assert_eq!(word, 9, "the record was made again over what came later"),
                (false, true) => assert_eq!(word, 7),
                (true, true) => assert!(word == 7 || word == 9),
            }
        });
    }
}
