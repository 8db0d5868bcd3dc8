//! The ledger's lock, which is a sequence lock to whoever only reads.
//!
//! Follows `session/src/lib.rs` (`lock`, `Guard::drop`) and
//! `session/src/nodes/fast.rs` (`version`, `is_still`).

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

struct Ledger {
    lock: AtomicU32,
    version: AtomicU64,
    /// They are the same whenever nobody holds the lock.
    words: [AtomicU64; 2],
}

impl Ledger {
    fn new() -> Self {
        Ledger { lock: AtomicU32::new(0), version: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Does nothing if the lock is taken.
    fn change(&self, own: u32) {
        if self.lock.compare_exchange(0, own, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release);
        let next = self.words[0].load(Relaxed) + 1;
        self.words.iter().for_each(|word| word.store(next, Relaxed));
        self.version.store(self.version.load(Relaxed) + 1, Release);
        self.lock.store(0, Release);
    }

    fn glance(&self) -> Option<[u64; 2]> {
        let version = self.version.load(Acquire);
        if self.lock.load(Acquire) != 0 {
            return None;
        }
        let seen = [self.words[0].load(Relaxed), self.words[1].load(Relaxed)];
        fence(Acquire);
        (self.lock.load(Acquire) == 0 && self.version.load(Relaxed) == version).then_some(seen)
    }
}

/// Goal: what a glance believes was so at one moment, beside somebody who changes it twice.
#[test]
fn a_glance_sees_one_moment() {
    loom::model(|| {
        let ledger = Arc::new(Ledger::new());
        let writer = {
            let ledger = ledger.clone();
            thread::spawn(move || (1..=2).for_each(|own| ledger.change(own)))
        };
        if let Some([first, second]) = ledger.glance() {
            assert_eq!(first, second, "two moments");
        }
        writer.join().unwrap();
        let after = ledger.glance().expect("nobody holds the lock");
        assert_eq!(after, [2, 2]);
    });
}
