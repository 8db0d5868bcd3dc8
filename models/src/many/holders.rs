//! Entries of descriptor tables and the counts of descriptions (`openfiles/src/refcount.rs` itself): four processes, two of
//! them with two threads, open, duplicate and close; each dies wherever it likes, adopters too.
//!
//! Opening and ending follow `engine/src/process/descriptions.rs` (`open`, `end_description`, `end_half_made`),
//! closing `process/at_hand.rs` (`close_seen`), adopting `process/adopt.rs`.

use super::mortal::{AtomicU32, AtomicU64, Robust, life};
use super::{any, schedules};
use crate::refcount::{self, Holders, Settled};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const PROCESSES: u32 = 4;
const NUMBERS: u32 = 3;
const DESCRIPTIONS: u32 = 3;
/// One access in so many is the last.
const ODDS: u32 = 60;

#[derive(Default)]
struct Tables {
    entries: [[AtomicU32; NUMBERS as usize]; PROCESSES as usize],
    refs: [AtomicU64; DESCRIPTIONS as usize],
    nothing: AtomicU64,
    /// All threads of a process have stopped, and nobody has adopted it so far.
    dead: [AtomicBool; PROCESSES as usize],
    mutexes: [Robust; PROCESSES as usize],
}

impl Holders for Tables {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.entries.get(process as usize)?.get(fd as usize)
    }
    fn refs(&self, id: u32) -> &AtomicU64 {
        self.refs.get(id as usize).unwrap_or(&self.nothing)
    }
    /// As good as for ever for who means well; not for him whose other thread has died.
    fn pause(&self, turns: u32) -> bool {
        thread::yield_now();
        turns < 1000
    }
}

impl Tables {
    fn open(&self, process: u32, fd: u32) {
        let free = |id: &u32| self.refs(*id).compare_exchange(0, refcount::making(process), AcqRel, Relaxed).is_ok();
        let Some(id) = (0..DESCRIPTIONS).find(free) else { return };
        if self.entries[process as usize][fd as usize].compare_exchange(0, id + 1, AcqRel, Relaxed).is_err() {
            refcount::install(self, process, fd, id, |last| self.end(last, process));
        }
        self.refs(id).store(refcount::opened(process, fd), Release);
    }

    /// `end_description`: nobody holds it.
    fn end(&self, id: u32, process: u32) {
        assert_eq!(self.refs(id).load(Acquire), refcount::making(process), "ended by another");
        let others = (0..PROCESSES).filter(|other| *other != process);
        for entry in others.flat_map(|other| &self.entries[other as usize]) {
            assert_ne!(refcount::held(entry.load(Acquire)), Some(id), "ended while held");
        }
        self.refs(id).store(0, Release);
    }

    fn close(&self, process: u32, fd: u32) {
        let place = &self.entries[process as usize][fd as usize];
        let entry = place.load(Acquire);
        let Some(id) = entry.checked_sub(1).filter(|id| *id < DESCRIPTIONS) else { return };
        let opened = refcount::opened(process, fd);
        if self.refs(id).compare_exchange(opened, refcount::making(process), SeqCst, Relaxed).is_err() {
            if let Some(id) = refcount::put(self, process, fd) {
                self.end(id, process);
            }
            return;
        }
        if place.compare_exchange(entry, 0, AcqRel, Relaxed).is_err() {
            refcount::leave(place, id);
        }
        self.end(id, process);
    }

    /// A few calls of one thread, on any number of its process.
    fn work(&self, process: u32, calls: u32) {
        for _ in 0..calls {
            let fd = any(NUMBERS);
            let held = refcount::held(self.entries[process as usize][fd as usize].load(Acquire));
            match (held, any(3)) {
                (None, _) => self.open(process, fd),
                (Some(_), 0) => self.close(process, fd),
                (Some(id), _) => {
                    // As `dup2` and `fork`: what is held goes to another number, that lets go of what it holds.
                    let to = any(NUMBERS);
                    if to != fd
                        && self.entries[process as usize][to as usize].load(Acquire) != 0
                        && let Some(last) = refcount::put(self, process, to)
                    {
                        self.end(last, process);
                    }
                    refcount::get(self, process, to, id);
                }
            }
            self.adopt_one(process);
        }
    }

    /// Adopts one of the dead, if there is one.
    fn adopt_one(&self, own: u32) {
        for process in (0..PROCESSES).filter(|process| *process != own && self.dead[*process as usize].load(SeqCst)) {
            let mutex = &self.mutexes[process as usize];
            if mutex.try_take(own + 1) {
                if self.dead[process as usize].load(SeqCst) {
                    self.empty(process);
                    self.dead[process as usize].store(false, SeqCst);
                }
                mutex.give_back();
            }
        }
    }

    /// `empty_process`.
    fn empty(&self, process: u32) {
        for fd in 0..NUMBERS {
            loop {
                match refcount::settle(self, process, fd) {
                    Settled::Empty => break,
                    Settled::Last(id) => break self.end(id, process),
                    Settled::Again => {}
                }
            }
        }
        for id in 0..DESCRIPTIONS {
            if self.refs(id).load(Acquire) == refcount::making(process) {
                self.end(id, process);
            }
        }
    }

    /// With nobody at work: each count is how many hold the description.
    fn assert_counted(&self) {
        for id in 0..DESCRIPTIONS {
            let held = self.entries.iter().flatten().filter(|entry| refcount::held(entry.load(Relaxed)) == Some(id)).count() as u64;
            assert_eq!(refcount::count(self.refs(id).load(Relaxed)), held, "description {id}");
        }
    }
}

/// A process with so many threads, to its end or its death.
fn run(tables: &Arc<Tables>, process: u32, threads: u32) {
    let one = |tables: Arc<Tables>| thread::spawn(move || life(ODDS, || tables.work(process, 4)).is_none());
    let all: Vec<_> = (0..threads).map(|_| one(tables.clone())).collect();
    let deaths = all.into_iter().map(|thread| thread.join().unwrap()).filter(|died| *died).count();
    if deaths > 0 {
        tables.dead[process as usize].store(true, SeqCst);
        tables.mutexes.iter().for_each(|mutex| mutex.is_left_by(process + 1));
    }
}

/// Goal: whoever dies wherever, nobody's description is ended while another holds it, and none stays counted.
/// Method: at the end all the dead are adopted by one who lives; then the counts are those of the entries; then all is closed.
#[test]
fn counted_whoever_dies() {
    schedules(30_000, || {
        let tables = Arc::new(Tables::default());
        tables.open(0, 0);
        (1..PROCESSES).for_each(|process| assert!(refcount::get(&*tables, process, 0, 0)));
        let run = |process: u32| {
            let tables = tables.clone();
            thread::spawn(move || run(&tables, process, 1 + process % 2))
        };
        let all: Vec<_> = (0..PROCESSES).map(run).collect();
        all.into_iter().for_each(|process| process.join().unwrap());
        while tables.dead.iter().any(|dead| dead.load(SeqCst)) {
            tables.adopt_one(PROCESSES);
        }
        tables.assert_counted();
        for process in 0..PROCESSES {
            (0..NUMBERS).for_each(|fd| tables.close(process, fd));
        }
        assert!(tables.refs.iter().all(|refs| refs.load(Relaxed) == 0), "{:?}", tables.refs);
    });
}
