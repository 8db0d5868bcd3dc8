//! Whether to yield before sleeping: as it was lately worth it.
//!
//! Where both sides share one processor, spinning only keeps the other from answering, and
//! a sleep costs both of them: the one is put aside and the other woken, each time. If the other
//! is about to run anyway, yielding is enough: it answers, yields itself, and nobody
//! has slept. That takes a third of the time. With nobody else to run it costs half a
//! microsecond in vain; and if a third program wants the processor, it gets all of a turn,
//! milliseconds, where a sleeper that is woken would be let in at once. That outweighs a thousand turns that
//! were worth it. So a few turns are tried, and no more for a while after some in vain; for a
//! long while after one that has taken long, whatever it brought, and ever longer unless as many went
//! well in between.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use pm::{clock, file};

/// Turns given away before sleeping.
const TURNS: u32 = 3;
/// How often it may be in vain, one after the other.
const ENOUGH: u32 = 4;
/// Sleeps without yielding before it is tried again, after it was in vain. That costs little, and
/// an idle minute must not spoil the next busy one.
const REST: u32 = 32;
/// The same after a long turn: at first, and at most.
const LONG_REST: u32 = 256;
const LONG_REST_MAX: u32 = 65536;
/// Longer than this a turn was a third program's: the kernel's ticks are a millisecond or more apart.
const LONG_NS: i64 = 500_000;

/// What came of yielding. Losing an update to another thread does no harm.
#[derive(Debug)]
pub struct Yielding {
    /// Times in vain, one after the other.
    vain: AtomicU32,
    /// Times that were worth it since the last long rest.
    good: AtomicU32,
    /// Sleeps before the next trial.
    left: AtomicU32,
    /// How many it was after the last long turn.
    rest: AtomicU32,
}

impl Yielding {
    /// As if it were worth it.
    pub const fn new() -> Yielding {
        Yielding { vain: AtomicU32::new(0), good: AtomicU32::new(0), left: AtomicU32::new(0), rest: AtomicU32::new(0) }
    }

    /// Whether it is done at present.
    pub fn is_worth_it(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Gives way, a few times at most, until `done` gives something; `None`: sleep. `waits`: we wait for what the
    /// other does, so that a long turn was a third program's, or bad luck; else it may as well have been his own work.
    pub fn yield_until<T>(&self, waits: bool, done: impl FnMut() -> Option<T>) -> Option<T> {
        self.yield_by(waits, done, file::give_way, clock::monotonic)
    }

    fn yield_by<T>(
        &self,
        waits: bool,
        mut done: impl FnMut() -> Option<T>,
        mut turn: impl FnMut(),
        mut now: impl FnMut() -> i64,
    ) -> Option<T> {
        let left = self.left.load(Relaxed);
        if left != 0 {
            self.left.store(left - 1, Relaxed);
            return None;
        }
        let mut begun = now();
        for _ in 0..TURNS {
            turn();
            let found = done();
            let ended = now();
            if waits && ended - begun > LONG_NS {
                self.rest_long();
                return found;
            }
            if found.is_some() {
                self.good.store(self.good.load(Relaxed).saturating_add(1), Relaxed);
                if self.vain.load(Relaxed) != 0 {
                    self.vain.store(0, Relaxed);
                }
                return found;
            }
            begun = ended;
        }
        let vain = self.vain.load(Relaxed) + 1;
        // After a rest a single trial decides.
        self.vain.store(vain.min(ENOUGH - 1), Relaxed);
        if vain >= ENOUGH {
            self.left.store(REST, Relaxed);
        }
        None
    }

    /// Twice as long as the last time, unless that has paid since.
    fn rest_long(&self) {
        let last = self.rest.load(Relaxed);
        let next = if self.good.load(Relaxed) >= last { LONG_REST } else { (last * 2).min(LONG_REST_MAX) };
        self.good.store(0, Relaxed);
        self.rest.store(next, Relaxed);
        self.left.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_NS: i64 = 3_000;

    /// One try: the answer comes in turn `answered` (0: in none) and each turn takes `turn_ns`. Turns given away.
    fn turns(yielding: &Yielding, answered: u32, turn_ns: i64) -> u32 {
        let (count, time) = (core::cell::Cell::new(0), core::cell::Cell::new(0));
        let turn = || {
            count.set(count.get() + 1);
            time.set(time.get() + turn_ns);
        };
        let found = yielding.yield_by(true, || (count.get() == answered).then_some(()), turn, || time.get());
        assert_eq!(found.is_some(), answered != 0 && count.get() == answered);
        count.get()
    }

    /// Goal: what is worth it is done every time; what never is costs little on the average, and is tried
    /// again; a few in vain change nothing.
    #[test]
    fn in_vain() {
        let yielding = Yielding::new();
        assert!((0..1000).all(|_| turns(&yielding, 1, SHORT_NS) == 1), "worth it");
        for _ in 0..10 {
            assert!((1..ENOUGH).all(|_| turns(&yielding, 0, SHORT_NS) == TURNS), "a few in vain");
            assert_eq!(turns(&yielding, TURNS, SHORT_NS), TURNS, "the last turn's answer counts");
        }
        let all: u32 = (0..10_000).map(|_| turns(&yielding, 0, SHORT_NS)).sum();
        assert!((TURNS * ENOUGH..1000).contains(&all), "{all} turns in 10,000 sleeps");
        let first = (0..=REST).position(|_| turns(&yielding, 1, SHORT_NS) == 1).expect("tried again");
        assert!(first > 0, "it had rested");
        assert!((0..1000).all(|_| turns(&yielding, 1, SHORT_NS) == 1), "worth it again");
    }

    /// Goal: a third program's turns are paid for once in some thousand calls, however many others go
    /// well between them, and more often only after as many that did.
    #[test]
    fn long_turns() {
        let yielding = Yielding::new();
        let (mut long, mut given) = (0, 0);
        for _ in 0..1_000_000u32 {
            // Every hundredth turn is a third program's.
            let turn_ns = if given % 100 == 99 { 2 * LONG_NS } else { SHORT_NS };
            let done = turns(&yielding, 1, turn_ns);
            given += done;
            long += if turn_ns > LONG_NS { done } else { 0 };
        }
        assert!((10..=30).contains(&long), "{long} long turns in a million calls");
        // Then it has gone: so many go well that a single one costs the shortest rest.
        let rested = |yielding: &Yielding| (0..=LONG_REST_MAX).position(|_| turns(yielding, 1, SHORT_NS) == 1);
        rested(&yielding).expect("tried again");
        assert!((0..LONG_REST_MAX).all(|_| turns(&yielding, 1, SHORT_NS) == 1), "worth it");
        assert_eq!(turns(&yielding, 1, 2 * LONG_NS), 1);
        assert_eq!(rested(&yielding), Some(LONG_REST as usize));
        // Who does not wait gave it to whoever has work.
        let long = core::cell::Cell::new(0);
        let turn = || long.set(long.get() + 2 * LONG_NS);
        assert!((0..1000).all(|_| yielding.yield_by(false, || Some(()), turn, || long.get()).is_some()));
    }
}
