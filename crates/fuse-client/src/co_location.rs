//! Both sides on one processor, though another may be idle.
//!
//! Two who yield to each other never sleep, so that the kernel has no occasion to look for another place for one of
//! them; and a virtual processor that is idle is taken to be somebody else's by a kernel that knows that it is a guest,
//! which wakes a sleeper beside whoever wakes him. So they stay together, where a call takes two microseconds; apart it takes
//! half of one. The client says now and then on which processor he has been answered after he yielded. A daemon's thread
//! that has yielded to him there for some hundred calls leaves that processor, with a request, and its client, who
//! would be woken beside it, does not sleep meanwhile: an idle processor may take a fifth of a millisecond to
//! come. If the others are busy that costs both a few turns; it is done ten times in a second at most, unless so many
//! requests were met apart since the last time that it has paid.
//!
//! Where neither spinning nor yielding is worth it, since others want the processors, both sleep, and being
//! together is what costs least: who wakes a sleeper of another processor sends for it, and waits in its queue. The kernel's
//! FUSE has that by the way it wakes. So a daemon's thread that has woken its client elsewhere several times, one after
//! the other, goes to where he was.

use super::adaptive_spin::spin_for;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use pm::{clock, processor};

/// A client says where he is after so many calls in which he yielded.
const SAY: u32 = 64;
/// A daemon yields so often before it leaves.
const STAY: u32 = 256;
/// Nanoseconds between two times, unless it has paid.
const AGAIN_NS: i64 = 100_000_000;
/// It has paid when so many requests came while the daemon spun, for then they were apart.
const PAID: u32 = 2048;
/// How long a client stays awake for a daemon that leaves.
const AWAKE_NS: i64 = 1_000_000;

/// So many clients are woken elsewhere, one after the other, before a daemon goes there.
const ELSEWHERE: u32 = 8;
/// Nanoseconds between two times.
const JOIN_AGAIN_NS: i64 = 10_000_000;

/// Said instead of a place: 0 that there is none, for nobody yields; 1 that it is not known.
pub const NOWHERE: u32 = 0;
const SOMEWHERE: u32 = 1;
/// A processor's number in what is said.
const FIRST: u32 = 2;

/// Where a client is, and how often a daemon met him there. Losing an update to another thread does no harm.
#[derive(Debug)]
pub struct CoLocation {
    /// Times that yielding was worth it.
    times: AtomicU32,
    /// What a client says.
    place: AtomicU32,
    /// When a daemon left last.
    left_ns: AtomicI64,
    /// Requests that came to a daemon apart since then.
    apart: AtomicU32,
    /// Clients that a daemon has woken elsewhere, one after the other.
    elsewhere: AtomicU32,
    /// When it went to one last.
    joined_ns: AtomicI64,
}

/// What a client says who is about to sleep.
pub fn here() -> u32 {
    processor::number().map_or(SOMEWHERE, |number| number.saturating_add(FIRST))
}

impl CoLocation {
    pub const fn new() -> CoLocation {
        CoLocation {
            times: AtomicU32::new(0),
            place: AtomicU32::new(SOMEWHERE),
            left_ns: AtomicI64::new(i64::MIN / 2),
            apart: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            joined_ns: AtomicI64::new(i64::MIN / 2),
        }
    }

    /// What a client says who yields, or does not.
    pub fn place(&self, yields: bool) -> u32 {
        if yields { self.place.load(Relaxed) } else { NOWHERE }
    }

    /// A client yielded, and had his answer.
    pub fn answered(&self) {
        let times = self.times.load(Relaxed).wrapping_add(1);
        self.times.store(times, Relaxed);
        if times.is_multiple_of(SAY) {
            self.place.store(here(), Relaxed);
        }
    }

    /// A daemon's thread yielded to a client who says that he is at `place`, and was asked. `leaving` says that
    /// he is not to sleep, and is taken back when he has been answered. Whether it has left.
    pub fn asked(&self, place: u32, leaving: &AtomicU32) -> bool {
        let times = self.times.load(Relaxed) + 1;
        self.times.store(times % STAY, Relaxed);
        times == STAY && place >= FIRST && self.leave(place - FIRST, leaving)
    }

    /// A daemon's thread has woken a client who fell asleep at `place`. Whether it has gone there.
    pub fn woke(&self, place: u32) -> bool {
        if place < FIRST || processor::number() == Some(place - FIRST) {
            self.elsewhere.store(0, Relaxed);
            return false;
        }
        let times = self.elsewhere.load(Relaxed) + 1;
        self.elsewhere.store(times % ELSEWHERE, Relaxed);
        if times < ELSEWHERE {
            return false;
        }
        let now = clock::monotonic();
        let is_soon = now - self.joined_ns.load(Relaxed) < JOIN_AGAIN_NS;
        if !is_soon {
            self.joined_ns.store(now, Relaxed);
        }
        !is_soon && processor::join(place - FIRST)
    }

    /// A request has come while a daemon's thread spun.
    #[inline]
    pub fn met_apart(&self) {
        self.apart.store(self.apart.load(Relaxed).saturating_add(1), Relaxed);
    }

    #[cold]
    fn leave(&self, number: u32, leaving: &AtomicU32) -> bool {
        let now = clock::monotonic();
        let is_soon = now - self.left_ns.load(Relaxed) < AGAIN_NS && self.apart.load(Relaxed) < PAID;
        if is_soon || processor::number() != Some(number) {
            return false;
        }
        self.left_ns.store(now, Relaxed);
        self.apart.store(0, Relaxed);
        leaving.store(1, Relaxed);
        processor::leave(number)
    }
}

/// Waits for `done` as a client whose daemon goes to another processor.
#[cold]
pub fn stay_awake<T>(done: impl FnMut() -> Option<T>) -> Option<T> {
    spin_for(AWAKE_NS, done, clock::monotonic).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who is met on his processor often enough is left alone there, and once more if it has paid.
    /// Method: one thread for both.
    #[test]
    fn leaves_after_a_while() {
        let (client, daemon, leaving) = (CoLocation::new(), CoLocation::new(), AtomicU32::new(0));
        assert_eq!((client.place(false), client.place(true)), (NOWHERE, SOMEWHERE));
        (0..SAY).for_each(|_| client.answered());
        let place = client.place(true);
        assert!(place >= FIRST);
        let left = |daemon: &CoLocation| daemon.left_ns.load(Relaxed) > 0;
        // Somewhere else, or nobody knows where.
        assert!((0..STAY * 2).all(|_| !daemon.asked(SOMEWHERE, &leaving)));
        assert!((0..STAY * 2).all(|_| !daemon.asked(u32::MAX, &leaving)));
        assert!(!left(&daemon));
        let here = || processor::number().unwrap() + FIRST;
        // The kernel may move this thread between the two looks.
        assert!((0..100).any(|_| {
            let _ = (0..STAY).filter(|_| daemon.asked(here(), &leaving)).count();
            left(&daemon)
        }));
        let once = daemon.left_ns.load(Relaxed);
        assert_eq!(leaving.load(Relaxed), 1);
        let _ = (0..STAY * 4).filter(|_| daemon.asked(here(), &leaving)).count();
        assert!(daemon.left_ns.load(Relaxed) == once || clock::monotonic() - once > AGAIN_NS);
        let once = daemon.left_ns.load(Relaxed);
        (0..PAID).for_each(|_| daemon.met_apart());
        assert!((0..100).any(|_| {
            let _ = (0..STAY).filter(|_| daemon.asked(here(), &leaving)).count();
            daemon.left_ns.load(Relaxed) != once
        }));
        assert_eq!(daemon.apart.load(Relaxed), 0);
    }

    /// Goal: who wakes its clients elsewhere several times, one after the other, goes there, not sooner and not again at once.
    /// Method: one thread, which says where it is not.
    #[test]
    fn goes_to_who_sleeps() {
        let daemon = CoLocation::new();
        // A processor that nobody has: it can't go there, but for a time it will not try again.
        let nowhere = FIRST + 100_000;
        assert!((0..ELSEWHERE * 2).all(|_| !daemon.woke(SOMEWHERE)));
        assert!((1..ELSEWHERE).all(|_| !daemon.woke(nowhere)) && daemon.joined_ns.load(Relaxed) < 0);
        assert!(!daemon.woke(nowhere) && daemon.joined_ns.load(Relaxed) > 0);
        let once = daemon.joined_ns.load(Relaxed);
        assert!((0..ELSEWHERE * 4).all(|_| !daemon.woke(nowhere)));
        let again = daemon.joined_ns.load(Relaxed);
        assert!(again == once || again - once >= JOIN_AGAIN_NS);
    }
}
