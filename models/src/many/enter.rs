//! A directory entered by many and closed by one at a time; who is inside, or has closed it, may die.
//!
//! Follows `engine/src/lane/enter.rs` (`enter`, `close_directory`, `wait_until_left`, `close_if_left`, `reopen`), who
//! looks whether it is empty before and after that (`names/rmdir.rs`), and what `lane/adopt.rs` (`adopt_lane`) does with a dead lane's directories. It stands on sequential consistency, which
//! loom does not have.

use super::mortal::{AtomicU32, Ordering, Robust, life};
use super::{any, schedules};
use Ordering::SeqCst;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Mark;

const THREADS: usize = 5;
/// One access in so many is the last.
const ODDS: u32 = 60;

#[derive(Default)]
struct Lane {
    mutex: Robust,
    entered: AtomicU32,
    closed: AtomicU32,
    /// Inside for certain, so that the model can tell.
    inside: Mark,
}

/// One lane a thread, and a directory.
#[derive(Default)]
struct Shared {
    lanes: [Lane; THREADS],
    /// 0, or the lane + 1 that has closed it.
    flags: AtomicU32,
    /// Names in it: one or none.
    names: AtomicU32,
    /// Lane + 1 that has it to itself, so that the model can tell.
    alone: Mark,
}

impl Shared {
    fn adopt_if_dead(&self, own: usize, number: usize) {
        let lane = &self.lanes[number];
        if lane.mutex.try_take(own as u32 + 1) {
            lane.inside.store(0, SeqCst);
            if lane.closed.load(SeqCst) != 0 {
                self.reopen(number);
            }
            lane.closed.store(0, SeqCst);
            lane.entered.store(0, SeqCst);
            lane.mutex.give_back();
        }
    }

    fn reopen(&self, number: usize) {
        if self.flags.load(SeqCst) == number as u32 + 1 {
            let _ = self.alone.compare_exchange(number as u32 + 1, 0, SeqCst, SeqCst);
            self.flags.store(0, SeqCst);
        }
    }

    /// Published first, then looked.
    fn enter_and_leave(&self, own: usize) {
        let lane = &self.lanes[own];
        loop {
            lane.entered.store(1, SeqCst);
            let flags = self.flags.load(SeqCst);
            if flags == 0 {
                break;
            }
            lane.entered.store(0, SeqCst);
            self.adopt_if_dead(own, flags as usize - 1);
            thread::yield_now();
        }
        lane.inside.store(1, SeqCst);
        for _ in 0..2 {
            // An access, at which others run and this one may die.
            lane.entered.load(SeqCst);
            assert_eq!(self.alone.load(SeqCst), 0, "entered while it is another's");
        }
        self.names.store(any(2), SeqCst);
        lane.inside.store(0, SeqCst);
        lane.entered.store(0, SeqCst);
    }

    /// The flag first, then looked.
    fn close_and_open(&self, own: usize) {
        let lane = &self.lanes[own];
        lane.closed.store(1, SeqCst);
        if self.flags.compare_exchange(0, own as u32 + 1, SeqCst, SeqCst).is_err() {
            lane.closed.store(0, SeqCst);
            return;
        }
        for (number, other) in self.lanes.iter().enumerate().filter(|(number, _)| *number != own) {
            while other.entered.load(SeqCst) != 0 {
                self.adopt_if_dead(own, number);
                thread::yield_now();
            }
        }
        self.alone.store(own as u32 + 1, SeqCst);
        for _ in 0..2 {
            lane.closed.load(SeqCst);
            let inside = self.lanes.iter().filter(|other| other.inside.load(SeqCst) != 0).count();
            assert_eq!(inside, 0, "somebody is inside");
        }
        self.reopen(own);
        lane.closed.store(0, SeqCst);
    }

    /// Looked whether it is empty, closed without waiting, and looked again.
    fn remove_if_left(&self, own: usize) {
        let lane = &self.lanes[own];
        if self.names.load(SeqCst) != 0 {
            return;
        }
        lane.closed.store(1, SeqCst);
        if self.flags.compare_exchange(0, own as u32 + 1, SeqCst, SeqCst).is_err() {
            lane.closed.store(0, SeqCst);
            return;
        }
        let others = || self.lanes.iter().enumerate().filter(|(number, _)| *number != own);
        let left = others().all(|(_, other)| other.entered.load(SeqCst) == 0);
        if left && self.names.load(SeqCst) == 0 {
            self.alone.store(own as u32 + 1, SeqCst);
            for _ in 0..2 {
                assert_eq!(self.names.load(SeqCst), 0, "a name in a directory removed");
            }
        }
        self.reopen(own);
        lane.closed.store(0, SeqCst);
    }

    fn live(&self, own: usize) {
        assert!(self.lanes[own].mutex.try_take(own as u32 + 1));
        for _ in 0..4 {
            match any(4) {
                0 => self.close_and_open(own),
                1 => self.remove_if_left(own),
                _ => self.enter_and_leave(own),
            }
        }
        self.lanes[own].mutex.give_back();
    }
}

/// Goal: who has a directory to himself is alone, what is removed is empty, and it opens again whoever dies.
#[test]
fn alone_or_open() {
    schedules(30_000, || {
        let shared = Arc::new(Shared::default());
        let start = |own: usize| {
            let shared = shared.clone();
            thread::spawn(move || {
                if life(ODDS, || shared.live(own)).is_none() {
                    shared.lanes.iter().for_each(|lane| lane.mutex.is_left_by(own as u32 + 1));
                }
            })
        };
        let all: Vec<_> = (0..THREADS).map(start).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        (0..THREADS).for_each(|number| shared.adopt_if_dead(THREADS, number));
        assert_eq!(shared.flags.load(SeqCst), 0, "closed by the dead");
    });
}
