//! Whether to spin before sleeping, and how long: as it was lately worth it.
//!
//! On a free processor the other side answers within a microsecond or two, and a sleep
//! costs ten and more; on a busy one it can't answer before we sleep. Neither is
//! known beforehand, and it changes. So a spin is long or short. A long one lasts about
//! as long as two sleeps and wake-ups take: an interrupt on the other side must not
//! send both to sleep, since who is woken late is late for the next as well. A few
//! of these waits in vain, which many that are worth it make up for, the last two one after
//! the other, and it is over: then a spin is hardly one, and only once in a while (the rarer,
//! the more often that was in vain) a long one is tried, to see whether times have changed.
//!
//! Who loses the processor while it spins has spent its share of it: it will be late with all that follows, where a
//! sleeper that is woken is let in at once. So that is over at once too, whatever came of that spin.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use pm::clock;

/// A long spin: nanoseconds, whatever a round takes (11 ns to 50, by processor).
const MOST_NS: i64 = 100_000;
/// Rounds between two looks at the clock; most answers come before the first.
const LOOK: u32 = 64;
/// Rounds of a short one.
const LEAST: u32 = 8;
/// How many long ones in vain make them short.
const ENOUGH: u32 = 4;
/// So many that were worth it make up for one in vain: what that takes from the others who want the processor is more than a sleep.
const WEIGHT: u32 = 16;
/// So long between two looks at the clock, and somebody else had the processor meanwhile: an interrupt takes less.
const TAKEN_NS: i64 = 200_000;
/// After how many short ones in vain a long one is tried: at first, and at most.
const TRY: u32 = 16;
const TRY_MAX: u32 = 1024;

/// How long spins are at present. Losing an update to another thread does no harm.
#[derive(Debug)]
pub struct AdaptiveSpin {
    /// Patient spins in vain, times [`WEIGHT`], less those that were worth it.
    vain: AtomicU32,
    /// Short ones in vain before the next long one.
    left: AtomicU32,
    /// How many it will be the next time.
    wait: AtomicU32,
}

impl AdaptiveSpin {
    /// As if there were a free processor.
    pub const fn new() -> AdaptiveSpin {
        AdaptiveSpin { vain: AtomicU32::new(0), left: AtomicU32::new(0), wait: AtomicU32::new(TRY) }
    }

    /// There is a free processor now.
    pub fn begin_anew(&self) {
        self.vain.store(0, Relaxed);
        self.left.store(0, Relaxed);
        self.wait.store(TRY, Relaxed);
    }

    /// Spins until `done` gives something; `None` if it was not worth waiting for.
    pub fn spin<T>(&self, done: impl FnMut() -> Option<T>) -> Option<T> {
        self.spin_by(done, clock::monotonic)
    }

    fn spin_by<T>(&self, mut done: impl FnMut() -> Option<T>, now: impl FnMut() -> i64) -> Option<T> {
        let left = self.left.load(Relaxed);
        if left != 0 {
            for _ in 0..LEAST {
                if let Some(found) = done() {
                    return Some(found);
                }
                core::hint::spin_loop();
            }
            self.left.store(left - 1, Relaxed);
            return None;
        }
        let (found, is_taken) = spin_for(MOST_NS, done, now);
        let vain = self.vain.load(Relaxed);
        if is_taken {
            self.vain.store((ENOUGH - 1) * WEIGHT, Relaxed);
            self.rest();
            return found;
        }
        if found.is_some() {
            // A store only where it says something new: the word is shared.
            if vain != 0 {
                self.vain.store(vain - 1, Relaxed);
                if vain == 1 {
                    self.wait.store(TRY, Relaxed);
                }
            }
            return found;
        }
        let vain = vain + WEIGHT;
        // Once they are short, a single trial decides.
        self.vain.store(vain.min((ENOUGH - 1) * WEIGHT), Relaxed);
        // That is: the last but one was in vain too.
        if vain >= ENOUGH * WEIGHT {
            self.rest();
        }
        None
    }

    /// Short ones for a while, the next time for twice as long.
    fn rest(&self) {
        let wait = self.wait.load(Relaxed);
        self.left.store(wait, Relaxed);
        self.wait.store((wait * 2).min(TRY_MAX), Relaxed);
    }
}

/// Spins until `done` gives something, `ns` nanoseconds at most; and whether somebody else had the processor meanwhile.
pub fn spin_for<T>(ns: i64, mut done: impl FnMut() -> Option<T>, mut now: impl FnMut() -> i64) -> (Option<T>, bool) {
    let mut until = i64::MAX;
    let mut last = None;
    loop {
        let mut found = None;
        for _ in 0..LOOK {
            found = done();
            if found.is_some() {
                break;
            }
            core::hint::spin_loop();
        }
        // Most answers come before the first look.
        if found.is_some() && last.is_none() {
            return (found, false);
        }
        let time = now();
        let is_taken = last.is_some_and(|last| time - last > TAKEN_NS);
        if is_taken {
            return (found.or_else(done), true);
        }
        if found.is_some() || time > until {
            return (found, false);
        }
        until = until.min(time + ns);
        last = Some(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// One wait on a processor where a round takes 10 ns, for an answer that comes after `answer_ns`: whether it was
    /// waited for, and how many rounds.
    fn wait(spin: &AdaptiveSpin, answer_ns: i64) -> (bool, u32) {
        let rounds = Cell::new(0);
        let time = || i64::from(rounds.get()) * 10;
        let done = || {
            rounds.set(rounds.get() + 1);
            (time() > answer_ns).then_some(())
        };
        (spin.spin_by(done, time).is_some(), rounds.get())
    }

    /// Goal: what is never worth it costs little, on the average of many calls;
    /// what becomes worth it is noticed, and then waited for every time.
    #[test]
    fn follows_the_answers() {
        let spin = AdaptiveSpin::new();
        let all: u32 = (0..4096).map(|_| wait(&spin, i64::MAX).1).sum();
        assert!(all / 4096 < 100, "{} rounds a call", all / 4096);
        let answers = |spin: &AdaptiveSpin, after_ns: i64| wait(spin, after_ns).0;
        let first = (0..=TRY_MAX).position(|_| answers(&spin, MOST_NS / 2)).expect("noticed");
        assert!(first > 0, "it had given up");
        assert!((0..100).all(|_| answers(&spin, MOST_NS / 2)), "kept");
        // A late one now and then, and a few too late, change nothing.
        assert!(answers(&spin, MOST_NS - 100), "kept");
        assert!((1..ENOUGH).all(|_| !answers(&spin, MOST_NS * 2)), "too late");
        assert!((0..100).all(|_| answers(&spin, MOST_NS / 2)), "kept");
    }

    /// Goal: who has lost the processor in a spin does not spin on, and few are tried while that happens, though each is answered.
    #[test]
    fn loses_the_processor() {
        let spin = AdaptiveSpin::new();
        let mut all = 0;
        for n in 0..4096u32 {
            let (rounds, time) = (Cell::new(0u32), Cell::new(0i64));
            let done = || {
                rounds.set(rounds.get() + 1);
                // The other side runs in our place, and has answered when we are let in again.
                time.set(time.get() + if rounds.get() == LOOK * 2 { TAKEN_NS * 5 } else { 10 });
                (rounds.get() > LOOK * 2).then_some(())
            };
            let found = spin.spin_by(done, || time.get());
            assert!(n != 0 || found.is_some());
            all += rounds.get();
        }
        assert!(all / 4096 < LOOK / 4, "{} rounds a call", all / 4096);
    }

    /// Goal: where others want the processor, so that two of four answers come too late, few are waited for; and
    /// one that has not come in time now and then, as interrupts will have it, changes nothing.
    #[test]
    fn worth_more_than_it_costs() {
        let cost = |late: u32, of: u32| {
            let spin = AdaptiveSpin::new();
            let rounds = |n: u32| wait(&spin, if n % of < late { i64::MAX } else { MOST_NS / 10 }).1;
            (0..4096).map(rounds).sum::<u32>() / 4096
        };
        let long = (MOST_NS / 100) as u32;
        assert!(cost(2, 4) < long / 4, "{} rounds a call", cost(2, 4));
        assert!(cost(1, 100) > long, "{} rounds a call", cost(1, 100));
    }
}
