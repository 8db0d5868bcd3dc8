//! How much of a fixed array has ever been in use.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use zerocopy::{FromBytes, KnownLayout};

/// Number of the highest place ever taken + 1, of an array of `MAX`: scans stop there.
///
/// A peer may write anything here. So the word is this module's own, and what is
/// read from it never is above `MAX`.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(transparent)]
pub struct High<const MAX: u32>(AtomicU32);

impl<const MAX: u32> High<MAX> {
    /// Places below this may be in use. Sequentially consistent: who looks for what others have announced
    /// (`lane/enter.rs`) must not miss the place of one that came before.
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(SeqCst).min(MAX)
    }

    /// Whether this place has space. Says nothing of a place that the array does
    /// not have: for callers that find the place by its number first.
    #[inline]
    pub(crate) fn has(&self, number: u32) -> bool {
        number < self.0.load(Acquire)
    }

    /// The next place that nobody had, or `MAX`.
    #[cfg(feature = "sim")]
    pub(crate) fn take(&self) -> u32 {
        self.0.fetch_add(1, SeqCst).min(MAX)
    }

    /// Places below `end` may be in use from now on: they have space.
    pub(crate) fn raise(&self, end: u32) {
        self.0.fetch_max(end.min(MAX), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a peer writes bounds nothing, and what is announced stays.
    #[test]
    fn never_above_the_array() {
        let high = High::<8>(AtomicU32::new(0));
        high.raise(5);
        high.raise(3);
        assert_eq!((high.get(), high.has(4), high.has(5)), (5, true, false));
        high.raise(9);
        assert_eq!(high.get(), 8);
        for word in [9, u32::MAX] {
            high.0.store(word, SeqCst);
            assert_eq!(high.get(), 8);
        }
    }
}
