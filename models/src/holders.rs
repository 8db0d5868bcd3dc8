//! Entries of descriptor tables and the counts of descriptions: a process that
//! dies at any step, another that goes on, and the adopter.
//!
//! This is not a model of `openfiles/src/refcount.rs` but that file itself.

use crate::refcount::{self, Holders, Intent, Settled};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

/// Two processes with two numbers each, and one description.
struct Tables {
    entries: [[AtomicU32; 2]; 2],
    refs: AtomicU64,
}

impl Holders for Tables {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.entries.get(process as usize)?.get(fd as usize)
    }
    fn refs(&self, _id: u32) -> &AtomicU64 {
        &self.refs
    }
    fn pause(&self, turns: u32) -> bool {
        thread::yield_now();
        turns < 100
    }
}

fn tables() -> Arc<Tables> {
    let word = AtomicU32::new;
    let tables = Tables { entries: [[word(1), word(0)], [word(0), word(0)]], refs: AtomicU64::new(refcount::opened(0, 0)) };
    assert!(refcount::get(&tables, 1, 0, 0));
    Arc::new(tables)
}

fn settled(tables: &Tables, process: u32, fd: u32) -> u32 {
    let mut ends = 0;
    loop {
        match refcount::settle(tables, process, fd) {
            Settled::Empty => return ends,
            Settled::Last(_) => ends += 1,
            Settled::Again => {}
        }
    }
}

/// Process 1 dies after `steps` of giving up number 0, or of taking number 1; then it is adopted.
fn dies_and_is_adopted(tables: &Tables, takes: bool, steps: u32) -> u32 {
    let (fd, before) = if takes { (1, 0) } else { (0, 1) };
    let intent = (steps > 0).then(|| Intent::announce(tables, 1, fd, 0, before)).flatten();
    if let Some(mut intent) = intent {
        if steps > 1 {
            intent.apply(tables);
        }
        if steps > 2 {
            intent.complete(tables);
        }
    }
    let ends = settled(tables, 1, 0) + settled(tables, 1, 1);
    // As `end_half_made` does.
    ends + u32::from(ends == 0 && tables.refs.load(SeqCst) == refcount::making(1))
}

fn every_schedule(takes: bool, living: fn(&Tables) -> u32) {
    for steps in 0..=3 {
        let mut builder = loom::model::Builder::new();
        // All schedules with so many changes of the thread that runs; without a bound they take hours.
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let tables = tables();
            let others = Arc::clone(&tables);
            let lives = thread::spawn(move || living(&others));
            let mut ends = dies_and_is_adopted(&tables, takes, steps);
            ends += lives.join().unwrap();
            let left: u64 = tables.entries.iter().flatten().map(|e| u64::from(refcount::held(e.load(Relaxed)).is_some())).sum();
            assert_eq!(refcount::count(tables.refs.load(Relaxed)), left, "dead after {steps}");
            assert_eq!(ends, u32::from(left == 0), "ended once, by the last");
        });
    }
}

/// Goal: the count is right while another process gives up, too.
#[test]
fn the_other_gives_up() {
    for takes in [false, true] {
        every_schedule(takes, |tables| u32::from(refcount::put(tables, 0, 0).is_some()));
    }
}

/// Goal: the count is right while another process takes and gives up.
#[test]
fn the_other_takes_and_gives_up() {
    for takes in [false, true] {
        every_schedule(takes, |tables| {
            assert!(refcount::get(tables, 0, 1, 0));
            u32::from(refcount::put(tables, 0, 1).is_some())
        });
    }
}
