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
use format::lane::Op;

/// What a scan of a chain under its lock has found.
pub(crate) struct Scan<'a> {
    /// The name, if it is there.
    pub(crate) hit: Option<Hit>,
    /// First free entry.
    free: Option<Spot<'a>>,
    /// Last bucket of the chain.
    last: u64,
    /// The home bucket had no free entry: the index wants to grow.
    pub(crate) full: bool,
}

/// A place for an entry.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    bucket: &'a Bucket,
    /// Offset of the bucket.
    offset: u64,
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
#[inline(always)]
pub(crate) fn entry_word(bucket: u64, index: usize) -> u64 {
    bucket + offset_of!(Bucket, entries) as u64 + index as u64 * 8
}

impl Fs {
    /// The entry of a name, for the holder of its bucket's lock.
    #[inline(always)]
    pub(crate) fn hit(&self, parent: u64, name: &[u8], hash: u64) -> Result<Option<Hit>> {
        let home = self.bucket_offset(hash, self.root().buckets.load(Acquire))?;
        let (bucket, print) = (self.bucket(home)?, fingerprint(hash));
        for index in 0..ENTRIES {
            let entry = bucket.entries[index].load(Acquire);
            if entry >> 48 == print {
                if let Some(hit) = self.hit_locked(bucket, home, index, entry, parent, name, hash)? {
                    return Ok(Some(hit));
                }
                break;
            }
        }
        self.hit_in_chain(home, parent, name, hash)
    }

    #[inline(never)]
    fn hit_in_chain(&self, home: u64, parent: u64, name: &[u8], hash: u64) -> Result<Option<Hit>> {
        Ok(self.scan_chain(home, parent, name, hash)?.hit)
    }

    /// Scans the whole chain of `hash`, whose lock the caller holds.
    #[inline(always)]
    pub(crate) fn scan(&self, parent: u64, name: &[u8], hash: u64) -> Result<Scan<'_>> {
        let home = self.bucket_offset(hash, self.root().buckets.load(Acquire))?;
        let (bucket, print) = (self.bucket(home)?, fingerprint(hash));
        let (mut free, mut known) = (ENTRIES, bucket.next.load(Acquire) != 0);
        for index in (0..ENTRIES).rev() {
            let entry = bucket.entries[index].load(Acquire);
            if entry == 0 {
                free = index;
            }
            known |= entry >> 48 == print;
        }
        if !known && free < ENTRIES {
            let spot = Spot { bucket, offset: home, index: free };
            return Ok(Scan { hit: None, free: Some(spot), last: home, full: false });
        }
        self.scan_chain(home, parent, name, hash)
    }

    #[inline(never)]
    fn scan_chain(&self, home: u64, parent: u64, name: &[u8], hash: u64) -> Result<Scan<'_>> {
        let (mut offset, print) = (home, fingerprint(hash));
        let mut scan = Scan { hit: None, free: None, last: home, full: false };
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry == 0 && scan.free.is_none() {
                    scan.free = Some(Spot { bucket, offset, index });
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
    #[inline(always)]
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

    /// A new entry for the edentry at `edentry`, in a free place that the scan
    /// saw: its place, and the store that makes it. What leads from there to a
    /// cachelet is the caller's to set before the commit ([`Fs::lead`]): what the
    /// entry's last user left must not lead anybody from the new name.
    #[inline(always)]
    pub(crate) fn insert<'a>(&'a self, tx: &mut Tx, scan: &Scan<'a>, hash: u64, edentry: u64) -> Result<(Spot<'a>, Op)> {
        match scan.free {
            Some(spot) => {
                let at = entry_word(spot.offset, spot.index);
                Ok((spot, Op::Set { at, value: bucket::pack_entry(hash, edentry) }))
            }
            None => self.insert_overflow(tx, scan, hash, edentry),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_overflow<'a>(&'a self, tx: &mut Tx, scan: &Scan, hash: u64, edentry: u64) -> Result<(Spot<'a>, Op)> {
        let offset = tx.lines(1, Arena::Other)?;
        self.write_bucket(offset, &[Item { entry: bucket::pack_entry(hash, edentry), hint: 0 }], 0)?;
        tx.object(offset, 1)?;
        let spot = Spot { bucket: self.bucket(offset)?, offset, index: 0 };
        Ok((spot, Op::Set { at: scan.last + NEXT, value: offset }))
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

    /// Lets an entry that the next commit makes lead to its cachelet. The bucket's lock is held.
    #[inline(always)]
    pub(crate) fn lead(&self, spot: &Spot, number: u32) {
        self.suggest(spot.bucket, spot.index, number);
    }

    /// The entry of a hit stands for another edentry with the same name and hash:
    /// its place, and the store that makes it so.
    #[inline]
    pub(crate) fn redirect(&self, hit: &Hit, hash: u64, edentry: u64) -> Result<(Spot<'_>, Op)> {
        let spot = Spot { bucket: self.bucket(hit.bucket)?, offset: hit.bucket, index: hit.index };
        let at = entry_word(hit.bucket, hit.index);
        Ok((spot, Op::Set { at, value: bucket::pack_entry(hash, edentry) }))
    }

    /// The store that removes the entry of a hit.
    #[inline(always)]
    pub(crate) fn remove(&self, hit: &Hit) -> Op {
        Op::Set { at: entry_word(hit.bucket, hit.index), value: 0 }
    }
}
