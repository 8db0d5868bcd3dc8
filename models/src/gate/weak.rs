//! The gate on words whose accesses are acquire and release, and no more: who enters and who closes do not see each other.

use loom::sync::Arc;
use loom::sync::atomic;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;
use passage::Gate;

#[path = "../../../crates/engine/src/lower/gate.rs"]
mod passage;

#[derive(Default)]
struct Words {
    closed: AtomicU64,
    inside: AtomicU64,
    /// 1 in the middle of a change.
    changing: AtomicU64,
}

impl Gate for Words {
    fn closed(&self) -> &AtomicU64 {
        &self.closed
    }

    fn lanes(&self) -> u32 {
        1
    }

    fn inside(&self, _: u32) -> &AtomicU64 {
        &self.inside
    }

    fn adopt_if_dead(&self, _: u32) {}

    fn now(&self) -> u64 {
        1
    }

    fn nap(&self) {
        thread::yield_now();
    }
}

/// Goal: that the gate stands on sequential consistency is found.
#[test]
#[should_panic(expected = "both")]
fn weaker_words_are_not_enough() {
    loom::model(|| {
        let words = Arc::new(Words::default());
        let others = words.clone();
        let changes = thread::spawn(move || {
            passage::enter(&*others, &others.inside);
            others.changing.store(1, Release);
            others.changing.store(0, Release);
            passage::leave(&others.inside);
        });
        if let Some(until) = passage::close(&*words, 100) {
            assert_eq!(words.changing.load(Acquire), 0, "both");
            passage::open(&*words, until);
        }
        changes.join().unwrap();
    });
}
