//! Where relative paths start (`posix::here`): readers while the working directory changes from one mount to another, by
//! two threads in turn.

use crate::here::{Beginning, Here};
use loom::sync::atomic::Ordering::{AcqRel, Acquire};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Process {
    /// The working directory's word: the number of a directory.
    word: AtomicU64,
    /// `posix::lock`.
    moving: Mutex<()>,
    here: Here,
}

/// Directories 1 and 3 are of one mount, 2 is of another.
fn beginning(word: u64) -> Beginning {
    (if word == 2 { 2 } else { 1 }, word * 10, word as u32 * 100)
}

fn is_whole(seen: Beginning) -> bool {
    seen == beginning(seen.1 / 10)
}

impl Process {
    fn new() -> Arc<Process> {
        let here = Here { node: AtomicU64::new(0), state: AtomicU32::new(0), hint: AtomicU32::new(0) };
        let process = Process { word: AtomicU64::new(1), moving: Mutex::new(()), here };
        process.here.set(Some(beginning(1)));
        Arc::new(process)
    }

    /// `Process::move_to`: `Descriptors::put`, `Process::note_here`.
    fn change(&self, word: u64) {
        let _moving = self.moving.lock().unwrap();
        self.word.swap(word, AcqRel);
        self.here.set(None);
        self.here.set(Some(beginning(self.word.load(Acquire))));
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
                assert!(is_whole(seen), "{seen:?}");
            }
        }
        changes.join().unwrap();
        assert_eq!(process.here.get(), Some(beginning(3)));
    });
}

/// Goal: who has changed the working directory does not start where it was before. Method: two threads change it.
#[test]
fn never_old() {
    all(3, || {
        let process = Process::new();
        let change = |word| {
            let process = process.clone();
            move || {
                process.change(word);
                let seen = process.here.get();
                assert!(seen.is_none_or(|seen| seen != beginning(1) && is_whole(seen)), "{seen:?}");
            }
        };
        let first = thread::spawn(change(2));
        change(3)();
        first.join().unwrap();
        assert_eq!(process.here.get(), Some(beginning(process.word.load(Acquire))));
    });
}
