//! Whether to spin before sleeping, and how long: as it was lately worth it.
//!
//! On a free processor the other side answers within a microsecond or two, and a sleep
//! costs ten and more; on a busy one it can't answer before we sleep. Neither is
//! known beforehand, and it changes. So there are two moods. A patient one waits about
//! as long as a sleep and a wake-up take: an interrupt on the other side must not
//! send both to sleep, since who is woken late is late for the next as well. A few
//! of these waits in vain, one after the other, and it is over: then a spin is hardly
//! one, and only once in a while (the rarer, the more often that was in vain) a
//! patient one is tried, to see whether times have changed.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Rounds of a patient spin; 53 µs where a round takes 26 ns (Zen 4).
const MOST: u32 = 2048;
/// Rounds of an impatient one.
const LEAST: u32 = 8;
/// How many patient ones in vain, one after the other, make impatient.
const ENOUGH: u32 = 4;
/// After how many impatient ones in vain a patient one is tried: at first, and at most.
const TRY: u32 = 16;
const TRY_MAX: u32 = 1024;

/// A mood. Losing an update to another thread does no harm.
#[derive(Debug)]
pub struct Patience {
    /// Patient spins in vain, one after the other.
    vain: AtomicU32,
    /// Impatient ones in vain before the next patient one.
    left: AtomicU32,
    /// How many it will be the next time.
    wait: AtomicU32,
}

impl Patience {
    /// As if there were a free processor.
    pub const fn new() -> Patience {
        Patience { vain: AtomicU32::new(0), left: AtomicU32::new(0), wait: AtomicU32::new(TRY) }
    }

    /// There is a free processor now.
    pub fn begin_anew(&self) {
        self.vain.store(0, Relaxed);
        self.left.store(0, Relaxed);
        self.wait.store(TRY, Relaxed);
    }

    /// Spins until `done` gives something; `None` if it was not worth waiting for.
    pub fn spin<T>(&self, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let left = self.left.load(Relaxed);
        let is_patient = left == 0;
        for _ in 0..if is_patient { MOST } else { LEAST } {
            if let Some(found) = done() {
                // A store only where it says something new: the word is shared.
                if is_patient && self.vain.load(Relaxed) != 0 {
                    self.vain.store(0, Relaxed);
                    self.wait.store(TRY, Relaxed);
                }
                return Some(found);
            }
            core::hint::spin_loop();
        }
        if !is_patient {
            self.left.store(left - 1, Relaxed);
            return None;
        }
        let vain = self.vain.load(Relaxed) + 1;
        // Once impatient, a single trial decides.
        self.vain.store(vain.min(ENOUGH - 1), Relaxed);
        if vain >= ENOUGH {
            let wait = self.wait.load(Relaxed);
            self.left.store(wait, Relaxed);
            self.wait.store((wait * 2).min(TRY_MAX), Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds_in_vain(patience: &Patience) -> u32 {
        let mut rounds = 0;
        assert_eq!(
            patience.spin(|| -> Option<()> {
                rounds += 1;
                None
            }),
            None
        );
        rounds
    }

    /// Goal: what is never worth it costs little, on the average of many calls;
    /// what becomes worth it is noticed, and then waited for every time.
    #[test]
    fn follows_the_answers() {
        let patience = Patience::new();
        let all: u32 = (0..4096).map(|_| rounds_in_vain(&patience)).sum();
        assert!(all / 4096 < 32, "{} rounds a call", all / 4096);
        let answers = |patience: &Patience, after: u32| {
            let mut rounds = 0;
            patience
                .spin(|| {
                    rounds += 1;
                    (rounds > after).then_some(())
                })
                .is_some()
        };
        let first = (0..=TRY_MAX).position(|_| answers(&patience, 300)).expect("noticed");
        assert!(first > 0, "it had given up");
        assert!((0..100).all(|_| answers(&patience, 300)), "kept");
        // A late one now and then, and a few too late, change nothing.
        assert!(answers(&patience, MOST - 1), "kept");
        assert!((1..ENOUGH).all(|_| !answers(&patience, MOST)), "too late");
        assert!((0..100).all(|_| answers(&patience, 500)), "kept");
    }
}
