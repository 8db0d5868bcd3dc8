//! A bucket of the global index (DirectFS's mindex): one line, both sides.
//!
//! ```text
//!  0 entries[4]    fingerprint 16 | edentry line number 48      persistent
//! 32 cachelets[4]  cachelet index + 1 of the same entry, or anything: whoever follows it looks whose cachelet it is
//!                                                                volatile
//! 48 reserved      4 bytes
//! 52 split         of how many buckets it was split last: `split_mark`     volatile
//! 56 next          offset of an overflow bucket, 0 if none       persistent
//! ```
//! Buckets are numbered by linear hashing: with `n` buckets in use and `k` the
//! next power of two, a hash goes to bucket `h mod k`, or `h mod k/2` if that is
//! not in use yet. The lowest 10 bits of the number are always those of the
//! hash, so one lock serves a bucket and those it will be split into.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire};
use zerocopy::{FromBytes, KnownLayout};

/// Entries in a bucket.
pub const ENTRIES: usize = 4;
/// Buckets in the first segment of the index, and the number of bucket locks.
pub const BUCKETS_MIN: u64 = 1024;

/// A bucket.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Bucket {
    pub entries: [AtomicU64; ENTRIES],
    pub cachelets: [AtomicU32; ENTRIES],
    pub reserved: AtomicU32,
    pub split: AtomicU32,
    pub next: AtomicU64,
}

impl Bucket {
    /// Whether it may have been split since there were `count` buckets. If not, what belonged into it then does now. A
    /// split says so before anything moves; what an earlier one left, in whatever generation, is no more than `count`.
    #[inline]
    pub fn is_split_since(&self, count: u64) -> bool {
        // Where no mark fits, it is greater than any count.
        i64::from(self.split.load(Acquire) as i32) as u64 > count
    }
}

/// The mark of a bucket that is split to make `count` buckets.
pub const fn split_mark(count: u64) -> u32 {
    if count <= i32::MAX as u64 { count as u32 } else { u32::MAX }
}

/// Offset of the word whose upper half is the mark of its last split.
pub const SPLIT: u64 = 48;
/// Offset of the overflow reference.
pub const NEXT: u64 = 56;

const _: () = assert!(size_of::<Bucket>() == 64 && offset_of!(Bucket, next) == NEXT as usize);
const _: () = assert!(offset_of!(Bucket, split) == SPLIT as usize + 4);

/// An entry that refers to the edentry at `offset` under `hash`.
#[inline]
pub const fn pack_entry(hash: u64, offset: u64) -> u64 {
    (crate::hash::fingerprint(hash) << 48) | (offset / crate::LINE)
}

/// Fingerprint of an entry (0: the entry is free).
#[inline]
pub const fn entry_fingerprint(entry: u64) -> u64 {
    entry >> 48
}

/// Whether an entry may be the one of this hash. One name in 65,536 has a hash whose fingerprint is not its upper
/// end: its entry seems not to be its own, and what is free does. So "no" is no answer where that matters.
#[inline]
pub const fn seems_of(entry: u64, hash: u64) -> bool {
    (entry ^ hash) >> 48 == 0
}

/// Offset of the edentry of an entry.
#[inline]
pub const fn entry_offset(entry: u64) -> u64 {
    (entry & 0xffff_ffff_ffff) * crate::LINE
}

/// The bucket for `hash` when `buckets` (at least 2; any other number harms nobody) are in use.
#[inline]
pub const fn number(hash: u64, buckets: u64) -> u64 {
    // The bits that number a bucket in any case; the one above them counts where there is such a bucket.
    let low_bits = u64::MAX >> (buckets.wrapping_sub(1) | 1).leading_zeros() >> 1;
    let number = hash & (low_bits << 1 | 1);
    if number < buckets { number } else { hash & low_bits }
}

/// Segment of a bucket and its number within: segment 0 has [`BUCKETS_MIN`]
/// buckets, segment `i` as many as all before it.
#[inline]
pub const fn place(number: u64) -> (usize, u64) {
    let scaled = number / BUCKETS_MIN;
    if scaled == 0 {
        return (0, number);
    }
    let segment = 64 - scaled.leading_zeros();
    (segment as usize, number - (BUCKETS_MIN << (segment - 1)))
}

/// Buckets in a segment.
#[inline]
pub const fn segment_buckets(segment: usize) -> u64 {
    if segment == 0 { BUCKETS_MIN } else { BUCKETS_MIN << (segment - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places are dense and unique. Method: count through the first segments.
    #[test]
    fn places_are_dense() {
        let mut expected = (0, 0);
        for n in 0..BUCKETS_MIN * 16 {
            assert_eq!(place(n), expected);
            expected.1 += 1;
            if expected.1 == segment_buckets(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    /// Goal: a split moves entries only from the bucket split to the new one.
    #[test]
    fn splitting_moves_to_the_new_bucket_only() {
        for buckets in BUCKETS_MIN..BUCKETS_MIN * 4 {
            for hash in (0..200u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                let (before, after) = (number(hash, buckets), number(hash, buckets + 1));
                assert!(before == after || after == buckets);
                assert_eq!(after % BUCKETS_MIN, hash % BUCKETS_MIN);
            }
        }
    }
}
