//! Inserting and removing entries: under the bucket's lock, by the operation's record.

use super::{CHAIN_MAX, Hit};
use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use base::{Node, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::Acquire;
use format::LINE;
use format::bucket::{self, Bucket, ENTRIES, NEXT};
use format::hash::fingerprint;

/// What a scan of a chain under its lock has found.
pub(crate) struct Scan {
    /// The name, if it is there.
    pub(crate) hit: Option<Hit>,
    /// First free entry: bucket and index.
    free: Option<(u64, usize)>,
    /// Last bucket of the chain.
    last: u64,
    /// The home bucket had no free entry: the index wants to grow.
    pub(crate) full: bool,
}

/// Where an entry will stand once the record is committed.
pub(crate) struct Inserted {
    bucket: u64,
    index: usize,
}

/// An entry on its way to another bucket, with its cachelet's number + 1.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) entry: u64,
    pub(super) hint: u32,
}

impl Item {
    pub(super) const NONE: Item = Item { entry: 0, hint: 0 };
}

/// Offset of an entry's word.
#[inline]
pub(crate) fn entry_word(bucket: u64, index: usize) -> u64 {
    bucket + offset_of!(Bucket, entries) as u64 + index as u64 * 8
}

impl Fs {
    /// The entry of a name, for the holder of its bucket's lock.
    #[inline]
    pub(crate) fn hit(&self, parent: u64, name: &[u8], hash: u64) -> Result<Option<Hit>> {
        let home = self.bucket_offset(hash, self.root().buckets.load(Acquire))?;
        let (mut offset, print) = (home, fingerprint(hash));
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry >> 48 == print
                    && let Some(hit) = self.hit_locked(bucket, offset, index, entry, parent, name, hash)?
                {
                    return Ok(Some(hit));
                }
            }
            offset = bucket.next.load(Acquire);
            if offset == 0 {
                return Ok(None);
            }
        }
        Err(corrupt("chain of buckets", home))
    }

    /// Scans the whole chain of `hash`, whose lock the caller holds.
    #[inline]
    pub(crate) fn scan(&self, parent: u64, name: &[u8], hash: u64) -> Result<Scan> {
        let home = self.bucket_offset(hash, self.root().buckets.load(Acquire))?;
        let (mut offset, print) = (home, fingerprint(hash));
        let mut scan = Scan { hit: None, free: None, last: home, full: false };
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry == 0 && scan.free.is_none() {
                    scan.free = Some((offset, index));
                }
                if entry >> 48 == print && scan.hit.is_none() {
                    scan.hit = self.hit_locked(bucket, offset, index, entry, parent, name, hash)?;
                }
            }
            scan.last = offset;
            if offset == home {
                scan.full = scan.free.is_none();
            }
            offset = bucket.next.load(Acquire);
            if offset == 0 {
                return Ok(scan);
            }
        }
        Err(corrupt("chain of buckets", home))
    }

    #[allow(clippy::too_many_arguments)]
    fn hit_locked(
        &self,
        bucket: &Bucket,
        offset: u64,
        index: usize,
        entry: u64,
        parent: u64,
        name: &[u8],
        hash: u64,
    ) -> Result<Option<Hit>> {
        let Some((id, kind)) = self.matches(entry, parent, name, hash)? else { return Ok(None) };
        let node = Node { id, hint: self.hint_of(bucket, index) };
        Ok(Some(Hit { node, kind, edentry: bucket::entry_offset(entry), bucket: offset, index, entry }))
    }

    /// Records a new entry for the edentry at `edentry`, in a free place that the scan saw.
    #[inline]
    pub(crate) fn insert(&self, tx: &mut Tx, scan: &Scan, hash: u64, edentry: u64) -> Result<Inserted> {
        let Some((bucket, index)) = scan.free else { return self.insert_overflow(tx, scan, hash, edentry) };
        // What the entry's last user left must not lead anybody from the new name.
        self.image.store_volatile32(&self.bucket(bucket)?.cachelets[index], 0);
        tx.set(entry_word(bucket, index), bucket::pack_entry(hash, edentry))?;
        Ok(Inserted { bucket, index })
    }

    #[cold]
    #[inline(never)]
    fn insert_overflow(&self, tx: &mut Tx, scan: &Scan, hash: u64, edentry: u64) -> Result<Inserted> {
        let offset = tx.lines(1, Arena::Other)?;
        self.write_bucket(offset, &[Item { entry: bucket::pack_entry(hash, edentry), hint: 0 }], 0)?;
        tx.object(offset, 1)?;
        tx.set(scan.last + NEXT, offset)?;
        Ok(Inserted { bucket: offset, index: 0 })
    }

    /// Writes a whole bucket that nobody can see yet.
    pub(super) fn write_bucket(&self, offset: u64, items: &[Item], next: u64) -> Result<()> {
        let bucket = self.bucket(offset)?;
        for i in 0..ENTRIES {
            let item = items.get(i).copied().unwrap_or(Item::NONE);
            self.image.store(&bucket.entries[i], item.entry);
            self.image.store_volatile32(&bucket.cachelets[i], item.hint);
        }
        self.image.store_volatile32(&bucket.generation, self.generation);
        self.image.store_volatile32(&bucket.reserved, 0);
        self.image.store(&bucket.next, next);
        self.image.flush(offset, LINE);
        Ok(())
    }

    /// After the commit: lets the new entry lead to its cachelet at once.
    #[inline]
    pub(crate) fn suggest_for(&self, inserted: &Inserted, number: u32) {
        if let Ok(bucket) = self.bucket(inserted.bucket) {
            self.suggest(bucket, inserted.index, number);
        }
    }

    /// Records that the entry of a hit now stands for another edentry with the same name and hash.
    pub(crate) fn redirect(&self, tx: &mut Tx, hit: &Hit, hash: u64, edentry: u64) -> Result<Inserted> {
        self.image.store_volatile32(&self.bucket(hit.bucket)?.cachelets[hit.index], 0);
        tx.set(entry_word(hit.bucket, hit.index), bucket::pack_entry(hash, edentry))?;
        Ok(Inserted { bucket: hit.bucket, index: hit.index })
    }

    /// Records the removal of the entry of a hit.
    #[inline]
    pub(crate) fn remove(&self, tx: &mut Tx, hit: &Hit) -> Result<()> {
        tx.set(entry_word(hit.bucket, hit.index), 0)
    }
}
