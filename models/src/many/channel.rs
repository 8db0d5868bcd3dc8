//! Requests to a daemon: four clients, two slots, three threads of the daemon of which one leads.
//!
//! Follows `vfs/src/wire/channel.rs` (`ring`, `call_follower`, `set_life`), `channel/client.rs` (`begin`, `wait`,
//! `claim`) and `channel/daemon.rs` (`receive`, `next`, `reply`), without what is about lives and deaths.
//! Sleeps have no time-outs here: a ring that is lost is a deadlock.

use super::mortal::{AtomicU32, AtomicU64, Ordering};
use super::schedules;
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;

const CLIENTS: u32 = 4;
const SLOTS: usize = 2;
const DAEMONS: u32 = 3;
const CALLS: u32 = 3;

const NOBODY: u32 = 0;
const LOOKS: u32 = 1;
const SLEEPS: u32 = 2;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const REQUEST: u32 = 2;
const TAKEN: u32 = 3;
const REPLYING: u32 = 4;
const REPLIED: u32 = 5;
const ABANDONED: u32 = 6;

/// A word that is slept on.
#[derive(Default)]
struct Futex {
    word: AtomicU32,
    queue: Mutex<()>,
    rung: Condvar,
}

impl Futex {
    /// Sleeps while the word is `value`.
    fn wait(&self, value: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word.load(SeqCst) == value {
            drop(self.rung.wait(queue));
        }
    }

    fn wake(&self, all: bool) {
        let _queue = self.queue.lock().unwrap();
        if all { self.rung.notify_all() } else { self.rung.notify_one() }
    }
}

#[derive(Default)]
struct Slot {
    state: Futex,
    unique: AtomicU64,
    sleeps: AtomicU32,
    /// What is asked, then what is answered.
    message: AtomicU64,
}

#[derive(Default)]
struct Channel {
    slots: [Slot; SLOTS],
    pending: AtomicU64,
    leader: AtomicU32,
    bell: Futex,
    bench: Futex,
    followers: AtomicU32,
    returning: AtomicU32,
    closing: AtomicU32,
}

impl Channel {
    fn ring(&self) {
        match self.leader.load(SeqCst) {
            SLEEPS if self.leader.compare_exchange(SLEEPS, LOOKS, SeqCst, Relaxed).is_ok() => {
                self.bell.word.fetch_add(1, SeqCst);
                self.bell.wake(false);
            }
            NOBODY if self.returning.load(SeqCst) == 0 => self.call_follower(),
            _ => {}
        }
    }

    fn call_follower(&self) {
        if self.followers.load(SeqCst) != 0 {
            self.bench.word.fetch_add(1, SeqCst);
            self.bench.wake(false);
        }
    }

    // ---- the client's side ----

    fn claim(&self) -> usize {
        loop {
            for (index, slot) in self.slots.iter().enumerate() {
                if slot.state.word.compare_exchange(FREE, CLAIMED, AcqRel, Relaxed).is_ok() {
                    return index;
                }
            }
            thread::yield_now();
        }
    }

    fn call(&self, asked: u64) -> u64 {
        let index = self.claim();
        let slot = &self.slots[index];
        slot.message.store(asked, Relaxed);
        slot.unique.store(slot.unique.load(Relaxed) + 1, Relaxed);
        slot.sleeps.store(0, Relaxed);
        slot.state.word.store(REQUEST, SeqCst);
        self.pending.fetch_or(1 << index, SeqCst);
        self.ring();
        loop {
            slot.sleeps.store(1, SeqCst);
            let state = slot.state.word.load(SeqCst);
            if state == REPLIED {
                break;
            }
            slot.state.wait(state);
        }
        let answered = slot.message.load(Relaxed);
        slot.state.word.store(FREE, Release);
        answered
    }

    // ---- the daemon's side ----

    fn take(&self) -> Option<usize> {
        let mut seen = self.pending.load(SeqCst);
        while seen != 0 {
            let index = seen.trailing_zeros();
            let before = self.pending.fetch_and(!(1 << index), SeqCst);
            if before & 1 << index != 0 {
                return Some(index as usize);
            }
            seen = before & !(1 << index);
        }
        None
    }

    fn next(&self) -> Option<usize> {
        let ends = || self.closing.load(SeqCst) != 0;
        let leads = self.leader.compare_exchange(NOBODY, LOOKS, SeqCst, Relaxed).is_ok();
        if self.returning.load(Relaxed) != 0 {
            self.returning.store(0, SeqCst);
        }
        if !leads {
            let rung = self.bench.word.load(SeqCst);
            self.followers.fetch_add(1, SeqCst);
            let is_needed = self.leader.load(SeqCst) == NOBODY;
            if !is_needed && !ends() {
                self.bench.wait(rung);
            }
            self.followers.fetch_sub(1, SeqCst);
            return None;
        }
        let mut found = self.take();
        if found.is_none() {
            let rung = self.bell.word.load(SeqCst);
            self.leader.store(SLEEPS, SeqCst);
            found = self.take();
            if found.is_none() && !ends() {
                self.bell.wait(rung);
                found = self.take();
            }
        }
        self.leader.store(NOBODY, SeqCst);
        if self.pending.load(SeqCst) != 0 {
            self.call_follower();
        }
        found
    }

    /// A thread of the daemon: answers with one more than it was asked, until it is told to end.
    fn serve(&self) {
        loop {
            let Some(index) = self.next() else {
                if self.closing.load(SeqCst) != 0 {
                    return;
                }
                thread::yield_now();
                continue;
            };
            let slot = &self.slots[index];
            if slot.state.word.compare_exchange(REQUEST, TAKEN, AcqRel, Acquire).is_err() {
                let _ = slot.state.word.compare_exchange(ABANDONED, FREE, AcqRel, Relaxed);
                continue;
            }
            let (unique, asked) = (slot.unique.load(Relaxed), slot.message.load(Relaxed));
            self.reply(slot, unique, asked + 1);
        }
    }

    fn reply(&self, slot: &Slot, unique: u64, answer: u64) {
        if slot.unique.load(Acquire) != unique {
            return;
        }
        if slot.state.word.compare_exchange(TAKEN, REPLYING, AcqRel, Acquire).is_err() {
            let _ = slot.state.word.compare_exchange(ABANDONED, FREE, AcqRel, Relaxed);
            return;
        }
        slot.message.store(answer, Relaxed);
        self.returning.store(1, SeqCst);
        slot.state.word.store(REPLIED, SeqCst);
        if slot.sleeps.load(SeqCst) != 0 {
            slot.state.wake(false);
        }
    }

    /// `set_life`.
    fn close(&self) {
        self.closing.store(1, SeqCst);
        for futex in [&self.bell, &self.bench] {
            futex.word.fetch_add(1, SeqCst);
            futex.wake(true);
        }
    }
}

/// Goal: every call has its own answer, and nobody sleeps on while there is something to do.
#[test]
fn everybody_is_answered() {
    schedules(6_000, || {
        let channel = Arc::new(Channel::default());
        let client = |number: u32| {
            let channel = channel.clone();
            thread::spawn(move || {
                for call in 0..CALLS {
                    let asked = u64::from(number * 100 + call * 10);
                    assert_eq!(channel.call(asked), asked + 1, "another's answer");
                }
            })
        };
        let daemon = |_| {
            let channel = channel.clone();
            thread::spawn(move || channel.serve())
        };
        let daemons: Vec<_> = (0..DAEMONS).map(daemon).collect();
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        channel.close();
        daemons.into_iter().for_each(|daemon| daemon.join().unwrap());
    });
}
