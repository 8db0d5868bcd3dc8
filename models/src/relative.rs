//! Where relative paths start (`posix::here`): readers while the working directory changes from one mount to another, by
//! two threads at once.

use crate::here::{Here, Spot};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

struct Process {
    /// The working directory's word: the number of a directory.
    word: AtomicU64,
    settling: AtomicU32,
    here: Here,
}

/// A directory of its own mount.
fn spot(word: u64) -> Spot {
    (word as u32, word * 10, word as u32 * 100)
}

impl Process {
    fn new() -> Arc<Process> {
        let here = Here { node: AtomicU64::new(0), state: AtomicU32::new(0), hint: AtomicU32::new(0) };
        let process = Process { word: AtomicU64::new(1), settling: AtomicU32::new(0), here };
        process.settle();
        Arc::new(process)
    }

    fn settle(&self) {
        self.here.settle(&self.settling, || Some(spot(self.word.load(Acquire))));
    }

    /// `Descriptors::put`, `Process::settle_here`.
    fn change(&self, word: u64) {
        self.word.swap(word, AcqRel);
        self.here.clear();
        self.settle();
    }
}

/// Runs all schedules, with at most so many preemptions.
fn all(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Goal: nobody starts at a node of one mount in another. Method: one thread changes twice, another reads.
#[test]
fn never_torn() {
    all(3, || {
        let process = Process::new();
        let other = process.clone();
        let changes = thread::spawn(move || [2, 3].map(|word| other.change(word)));
        for _ in 0..2 {
            if let Some(seen) = process.here.get() {
                assert_eq!(seen, spot(seen.0.into()));
            }
        }
        changes.join().unwrap();
        assert_eq!(process.here.get(), Some(spot(3)));
    });
}

/// Goal: who has changed the working directory does not start where it was before, nor is that to be seen in the end.
/// Method: two threads change it at once; the one that came second leaves it to the first.
#[test]
fn never_old() {
    all(3, || {
        let process = Process::new();
        let change = |word| {
            let process = process.clone();
            move || {
                process.change(word);
                let seen = process.here.get();
                assert!(seen.is_none_or(|seen| seen != spot(1) && seen == spot(seen.0.into())), "{seen:?}");
            }
        };
        let first = thread::spawn(change(2));
        change(3)();
        first.join().unwrap();
        assert_eq!(process.here.get(), Some(spot(process.word.load(Acquire))));
    });
}
