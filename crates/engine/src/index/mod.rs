//! The one index over (parent, name), for cache and medium (DirectFS's mindex).
//!
//! A lookup takes no lock and writes nothing that others read. Warm, it touches
//! one bucket line and one cachelet: the bucket's volatile half leads to a
//! cachelet that carries the name itself. Cold, it goes bucket → edentry →
//! inode's versioned reference (ByVFS) and leaves the cachelet behind.
//!
//! Invariants
//! - An entry is published and cleared under the bucket's lock, by a record.
//! - A cachelet carries a name only while the image has that name and it is this
//!   inode's: names are given and taken with the inode's `owner` held, and who
//!   gives one looks at the entry once more after taking `owner`.
//! - A split raises the number of buckets before it clears what has moved, and
//!   what has moved is in the new bucket before that. What stays keeps its place, or comes from
//!   behind to the home bucket before that is led to no longer. So a miss is a miss if the
//!   number of buckets is the same after the scan as before, and what is behind too.
//!
//! [`entry_key`] is what is asked for, [`find`] reads, [`Steps`](pm::Steps) is what the fast path goes by, [`change`] inserts and removes,
//! [`split`] makes the index grow.

pub(crate) mod change;
pub(crate) mod entry_key;
pub(crate) mod find;
pub(crate) mod split;

pub(crate) use change::{Room, Spot};
pub(crate) use entry_key::EntryKey;
pub(crate) use find::{Hit, Seen};

use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::Acquire;
use format::bucket::{self, BUCKETS_MIN, Bucket};
use format::hash;

/// Most buckets in one chain. Far more than a healthy index has; an index that
/// cannot grow for lack of space may come near it.
pub(crate) const CHAIN_MAX: usize = 1 << 16;

impl Fs {
    /// Hash of a name in the directory whose inode is at `parent`.
    #[inline]
    pub(crate) fn hash(&self, parent: u64, name: &[u8]) -> u64 {
        hash::name(self.name_key, parent, name)
    }

    /// The bucket for `hash`, the first of its chain, and of how many it is; until it is split
    /// ([`Bucket::is_split_since`]), which needs its lock.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> Result<(&Bucket, u64)> {
        let (bucket, known) = self.buckets.of_hash(hash);
        if !bucket.is_split_since(known) {
            return Ok((bucket, known));
        }
        self.home_slow(hash)
    }

    /// There may be more than this process knew.
    #[cold]
    #[inline(never)]
    fn home_slow(&self, hash: u64) -> Result<(&Bucket, u64)> {
        self.learn_buckets();
        let buckets = self.root().buckets.load(Acquire);
        Ok((self.bucket(self.bucket_offset(hash, buckets)?)?, buckets))
    }

    /// Takes note of how many buckets there are, and where.
    pub(crate) fn learn_buckets(&self) {
        self.buckets.learn(&self.image, self.root.buckets.load(Acquire), |segment| {
            let start = self.root.index.get(segment).map(|start| start.load(Acquire)).filter(|start| *start != 0)?;
            self.present(start, bucket::segment_buckets(segment) * format::LINE).ok()?;
            Some(start)
        });
    }

    /// Offset of the bucket for `hash` when `buckets` are in use.
    #[inline]
    pub(crate) fn bucket_offset(&self, hash: u64, buckets: u64) -> Result<u64> {
        // 32 segments at most; also keeps the arithmetic below from overflowing.
        if buckets.wrapping_sub(BUCKETS_MIN) >= BUCKETS_MIN << 31 {
            return Err(corrupt("number of buckets", buckets));
        }
        self.bucket_place(bucket::number(hash, buckets))
    }

    /// Offset of the bucket with this number.
    #[inline]
    pub(crate) fn bucket_place(&self, number: u64) -> Result<u64> {
        let (segment, within) = bucket::place(number);
        match self.root().index.get(segment) {
            Some(base) => Ok(base.load(Acquire).wrapping_add(within * format::LINE)),
            None => Err(corrupt("bucket number", number)),
        }
    }
}
