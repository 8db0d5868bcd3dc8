//! How many items of an array are known, and which of them a hash falls on (linear hashing): see [`Steps`](crate::Steps).
//!
//! Invariant: both words only grow, the bits first. So whoever reads the count and then the bits has bits at least as new; and
//! if the count is the truth after both were read, the bits belong to it, for newer ones would mean a greater count.

use crate::atomic::AtomicU32;
use crate::atomic::Ordering::{AcqRel, Acquire};

/// How many items are known: fewer than 2^32.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counted {
    count: AtomicU32,
    /// The bits of a hash that number an item in any case; the one above them counts where there is such an item.
    low_bits: AtomicU32,
}

impl Counted {
    /// These words, which are 0: none yet. (Those that a model tries cannot be made when compiling.)
    pub(crate) const fn none(count: AtomicU32, low_bits: AtomicU32) -> Counted {
        Counted { count, low_bits }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// The item that a hash falls on, and how many there are. It is below the count, or of the bits, and so below the
    /// count that they belong to, or item 0.
    #[inline]
    pub(crate) fn number(&self, hash: u64) -> (u32, u32) {
        let count = self.count.load(Acquire);
        let low_bits = self.low_bits.load(Acquire);
        let number = hash as u32 & (low_bits << 1 | 1);
        (if number < count { number } else { hash as u32 & low_bits }, count)
    }

    /// There are so many, and not none. Whoever says so has made all of them known.
    pub(crate) fn learn(&self, count: u32) {
        self.low_bits.fetch_max(u32::MAX >> (count - 1).leading_zeros() >> 1, AcqRel);
        self.count.fetch_max(count, AcqRel);
    }
}
