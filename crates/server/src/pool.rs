//! Threads that serve requests: as many as it takes.
//!
//! A request may have to wait for a process that was stopped in the middle of a change, for
//! however long that is stopped. Nobody answers it with an error for that, and it must not keep
//! a thread from the others: when no thread is left to read requests, and one has been at its request for
//! a while, there is one more. Those that are too many end when they have no more to do.
//!
//! The kernel lets a caller who is killed go only once its request is answered, and asks for
//! that by an `INTERRUPT`, once, for any signal. One that does not end the program is none of our
//! business: the call goes on. So whoever was interrupted is looked at until its request
//! is answered, or until a signal waits for it that ends it: then the wait is called off.

use base::{Cx, Holder};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfs::Backend;

/// Threads there may be more than asked for. Each holds a lane, of which there are 1,024.
const MORE_MAX: usize = 128;
/// A request that takes longer may be waiting for somebody.
const SLOW: Duration = Duration::from_millis(4);
/// One that takes longer is worth a line in the log.
const LONG: Duration = Duration::from_secs(1);
/// Pauses of the one who looks after all that: while nobody reads requests, while one has been interrupted or is slow, else.
const PAUSE_FULL: Duration = Duration::from_millis(2);
const PAUSE_SLOW: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);

/// A request being served.
#[derive(Debug)]
struct Served {
    unique: u64,
    pid: u32,
    begun: Instant,
    interrupted: bool,
    called_off: bool,
    /// Who keeps it waiting has been reported.
    told: bool,
}

/// A thread that serves requests.
#[derive(Debug, Default)]
pub struct Seat {
    served: Mutex<Option<Served>>,
    /// What the file system knows its waits by; 0: nothing.
    lane: AtomicUsize,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Pool {
    seats: Mutex<Vec<Arc<Seat>>>,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    /// Whoever looks after them sleeps for long.
    rests: AtomicBool,
    changed: Condvar,
    /// What `changed` goes with.
    bell: Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// The thread of `cx` takes the seat.
    pub fn take(&self, backend: &dyn Backend, cx: &Cx) {
        self.lane.store(backend.kernel_mount().waits_as(cx) as usize, SeqCst);
    }

    fn lane(&self) -> u32 {
        self.lane.load(SeqCst) as u32
    }

    /// A request begins.
    pub(crate) fn begin(&self, unique: u64, pid: u32) {
        let begun = Instant::now();
        *locked(&self.served) = Some(Served { unique, pid, begun, interrupted: false, called_off: false, told: false });
    }

    /// It has ended.
    pub(crate) fn end(&self, backend: &dyn Backend) {
        let served = locked(&self.served).take();
        if served.is_some_and(|served| served.called_off) {
            backend.kernel_mount().call_off(self.lane(), true);
        }
    }
}

impl Pool {
    /// A seat for one more thread; `None` if there are enough.
    pub fn seat(&self, least: usize) -> Option<Arc<Seat>> {
        let mut seats = locked(&self.seats);
        if seats.len() >= least + MORE_MAX {
            return None;
        }
        let seat = Arc::new(Seat::default());
        seats.push(Arc::clone(&seat));
        Some(seat)
    }

    /// A thread leaves.
    pub fn leave(&self, seat: &Arc<Seat>) {
        locked(&self.seats).retain(|other| !Arc::ptr_eq(other, seat));
    }

    /// A thread is about to read requests. False if so many do that this one can go, of `least` at least.
    pub fn rest(&self, least: usize) -> bool {
        if self.idle.fetch_add(1, SeqCst) < least {
            return true;
        }
        self.idle.fetch_sub(1, SeqCst);
        false
    }

    /// A thread has read one.
    pub fn work(&self) {
        if self.idle.fetch_sub(1, SeqCst) == 1 && self.rests.swap(false, SeqCst) {
            self.wake();
        }
    }

    /// Wakes whoever looks after the threads.
    pub fn wake(&self) {
        let _bell = locked(&self.bell);
        self.changed.notify_all();
    }

    /// The kernel has interrupted a request; whether somebody is at it.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let seats = locked(&self.seats);
        let found = seats.iter().any(|seat| match &mut *locked(&seat.served) {
            Some(served) if served.unique == unique => {
                served.interrupted = true;
                true
            }
            _ => false,
        });
        drop(seats);
        if found {
            self.rests.store(false, SeqCst);
            self.wake();
        }
        found
    }

    /// Looks after the threads until `stop`: starts one more with `more` where that is needed, calls off what is not wanted any
    /// more, and reports who keeps others waiting.
    pub fn look_after(&self, backend: &dyn Backend, least: usize, stop: &AtomicBool, more: &dyn Fn(), report: &dyn Fn(&str)) {
        while !stop.load(SeqCst) {
            let slow = self.look(backend, report);
            let is_full = self.idle.load(SeqCst) == 0;
            if is_full && slow > 0 && locked(&self.seats).len() < least + slow {
                more();
            }
            let pause = if is_full { PAUSE_FULL } else { [PAUSE, PAUSE_SLOW][usize::from(slow > 0)] };
            let bell = locked(&self.bell);
            self.rests.store(true, SeqCst);
            if is_full || self.idle.load(SeqCst) > 0 {
                drop(self.changed.wait_timeout(bell, pause));
            }
        }
    }

    /// Looks at each request that takes long; how many do.
    fn look(&self, backend: &dyn Backend, report: &dyn Fn(&str)) -> usize {
        let seats: Vec<_> = locked(&self.seats).clone();
        let mut slow = 0;
        for seat in seats {
            let mut served = locked(&seat.served);
            let Some(served) = served.as_mut().filter(|served| served.begun.elapsed() > SLOW) else { continue };
            slow += 1;
            if served.interrupted && !served.called_off && is_ending(served.pid) {
                served.called_off = true;
                backend.kernel_mount().call_off(seat.lane(), false);
            }
            if !served.told
                && served.begun.elapsed() > LONG
                && let Some(Holder { pid, is_stopped }) = backend.kernel_mount().kept_waiting_by(seat.lane())
            {
                served.told = true;
                let how = if is_stopped { ", which is stopped" } else { "" };
                report(&format!("a request of process {} waits for process {pid}{how}", served.pid));
            }
        }
        slow
    }
}

/// Signals that end no program by themselves: those that stop it or let it go on, and four that are ignored.
const HARMLESS: u64 = bits(&[17, 18, 19, 20, 21, 22, 23, 28]);
const SIGKILL: u64 = bits(&[9]);

const fn bits(signals: &[u32]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < signals.len() {
        bits |= 1 << (signals[at] - 1);
        at += 1;
    }
    bits
}

/// Whether a signal waits for a thread that ends its program; or nothing is known of that thread.
fn is_ending(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => ends(&status),
        Err(_) => true,
    }
}

/// As [`is_ending`], by what the kernel tells of it.
fn ends(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd") | mask("ShdPnd");
    let survived = mask("SigBlk") | mask("SigIgn") | mask("SigCgt") | HARMLESS;
    pending & (SIGKILL | !survived) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what ends a program counts, wherever it is noted.
    #[test]
    fn fatal_signals() {
        let status = |own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64| {
            format!(
                "Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n\
                 SigCgt:\t{caught:016x}\n"
            )
        };
        let (term, child, stop) = (1 << 14, 1 << 16, 1 << 18);
        assert!(!ends(&status(0, 0, 0, 0, 0)));
        assert!(ends(&status(SIGKILL, 0, u64::MAX, u64::MAX, u64::MAX)), "cannot be helped");
        assert!(ends(&status(0, term, 0, 0, 0)) && ends(&status(term, 0, 0, 0, 0)));
        assert!(
            !ends(&status(0, term, term, 0, 0)) && !ends(&status(0, term, 0, term, 0)) && !ends(&status(0, term, 0, 0, term))
        );
        assert!(!ends(&status(0, child | stop, 0, 0, 0)));
        assert!(is_ending(u32::MAX), "nobody");
    }

    /// Goal: threads that are too many go, the others stay; a thread that reads the last request rings.
    #[test]
    fn as_many_as_it_takes() {
        let pool = Pool::default();
        assert!(pool.rest(2) && pool.rest(2) && !pool.rest(2), "two of three stay");
        pool.rests.store(true, SeqCst);
        pool.work();
        assert!(pool.rests.load(SeqCst));
        pool.work();
        assert!(!pool.rests.load(SeqCst), "nobody reads any more");
        let seat = pool.seat(1).unwrap();
        seat.begin(7, 1);
        assert!(pool.interrupt(7) && !pool.interrupt(8));
        pool.leave(&seat);
        assert!(!pool.interrupt(7));
        assert_eq!(std::iter::from_fn(|| pool.seat(1)).take(1000).count(), 1 + MORE_MAX);
    }
}
