//! How many buckets this process has seen in use: what a glance finds a bucket by,
//! without a look at the root block.
//!
//! The number may be older than the truth. What is found by it is right all the same,
//! for a cachelet or an edentry tells what name it is; that there is no such name
//! counts only if the root block says the same number afterwards.
//!
//! Invariants
//! - Both words only grow, and the bits are raised first: who reads the number and then the bits
//!   has bits at least as new. If that number is still the root block's after
//!   both were read, the bits belong to it, for newer ones would mean a greater number.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use format::bucket;

/// A number of buckets, and the [low bits](bucket::low_bits) that belong to it.
#[derive(Debug)]
pub(crate) struct KnownBuckets {
    count: AtomicU64,
    low_bits: AtomicU64,
}

impl KnownBuckets {
    /// As the root block says so far.
    pub(crate) const fn new(count: u64) -> Self {
        KnownBuckets { count: AtomicU64::new(count), low_bits: AtomicU64::new(bucket::low_bits(count)) }
    }

    /// The bucket of a hash, and how many there are for all that is known.
    #[inline(always)]
    pub(crate) fn number(&self, hash: u64) -> (u64, u64) {
        let count = self.count.load(Acquire);
        (bucket::number_by(hash, count, self.low_bits.load(Relaxed)), count)
    }

    /// Takes note of what the root block says.
    pub(crate) fn learn(&self, count: u64) {
        self.low_bits.fetch_max(bucket::low_bits(count), AcqRel);
        self.count.fetch_max(count, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers are those of the greatest count learnt, whatever came in between.
    #[test]
    fn learns_the_greatest() {
        let known = KnownBuckets::new(bucket::BUCKETS_MIN);
        let mut greatest = bucket::BUCKETS_MIN;
        for count in [1024, 1025, 1500, 1024, 2048, 2049, 1700, 5000] {
            known.learn(count);
            greatest = greatest.max(count);
            for hash in (0..300u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                assert_eq!(known.number(hash), (bucket::number(hash, greatest), greatest));
            }
        }
    }
}
