//! How long to spin before sleeping: as long as it was lately worth it.
//!
//! On a free processor the other side answers within a microsecond, and a sleep
//! would cost several; on a busy one it can't answer before we sleep. Neither is
//! known beforehand, and it changes. So the budget follows the answers: it holds
//! twice what the last ones took, falls by half whenever it was spent in vain, and
//! once in a while (the rarer, the more often that was in vain) is the longest
//! again, to see whether times have changed.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Rounds of the longest spin; about 20 µs.
const MOST: u32 = 4096;
/// Rounds of the shortest.
const LEAST: u32 = 8;
/// After how many short spins in vain a long one is tried: at first, and at most.
const TRY: u32 = 16;
const TRY_MAX: u32 = 1024;

/// A budget that adapts. Losing an update to another thread does no harm.
#[derive(Debug)]
pub struct Patience {
    rounds: AtomicU32,
    /// Spins in vain since the last long one.
    vain: AtomicU32,
    /// How many make the next one long.
    wait: AtomicU32,
}

impl Patience {
    /// As if there were a free processor.
    pub const fn new() -> Patience {
        Patience { rounds: AtomicU32::new(MOST), vain: AtomicU32::new(0), wait: AtomicU32::new(TRY) }
    }

    /// Spins until `done` gives something; `None` if it was not worth waiting for.
    pub fn spin<T>(&self, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let tries = self.vain.load(Relaxed) >= self.wait.load(Relaxed);
        let budget = if tries { MOST } else { self.rounds.load(Relaxed).clamp(LEAST, MOST) };
        for round in 0..budget {
            if let Some(found) = done() {
                // A store only where it says something new: the word is shared.
                let enough = (round * 2 + LEAST * 8).min(MOST);
                if tries || enough > budget || enough < budget / 2 {
                    self.rounds.store(enough.max(budget - budget / 8), Relaxed);
                }
                if tries {
                    self.vain.store(0, Relaxed);
                    self.wait.store(TRY, Relaxed);
                }
                return Some(found);
            }
            core::hint::spin_loop();
        }
        if tries {
            self.vain.store(0, Relaxed);
            self.wait.store((self.wait.load(Relaxed) * 2).clamp(TRY, TRY_MAX), Relaxed);
        } else {
            self.vain.store(self.vain.load(Relaxed).saturating_add(1), Relaxed);
            self.rounds.store(budget / 2, Relaxed);
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
        // Slower ones too, as long as they come before the budget ends.
        assert!((0..100).all(|_| answers(&patience, 500)), "kept");
    }
}
