//! Inserting and removing entries: under the bucket's lock, by the operation's record.

use super::{CHAIN_MAX, EntryKey, Hit};
use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::lane::record::Set;
use base::{Node, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::LINE;
use format::bucket::{self, Bucket, ENTRIES};
use format::edentry::Edentry;
use format::hash::fingerprint;
use pm::Errno;

/// Where a name that is to be made finds a place in its chain.
#[derive(Clone, Copy)]
pub(crate) enum Room<'a> {
    At(Spot<'a>),
    /// Nowhere: a bucket is to be added to this one, the last.
    After(&'a Bucket),
    /// The name is there already.
    Taken,
}

/// A place for an entry.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    bucket: &'a Bucket,
    /// Index of the entry, perhaps with [`FULL`].
    index: u32,
}

/// The home bucket had no free entry: the index wants to grow.
const FULL: u32 = 1 << 8;
const _: () = assert!((FULL as usize).is_multiple_of(ENTRIES));

impl<'a> Spot<'a> {
    /// Whether the index wants to grow.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.index & FULL != 0
    }

    /// The store that gives the entry its value.
    #[inline]
    pub(crate) fn set(&self, hash: u64, edentry: u64) -> Set<'a> {
        Set { word: &self.bucket.entries[self.index as usize % ENTRIES], value: bucket::pack_entry(hash, edentry) }
    }
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
    pub(crate) fn hit<'a>(&'a self, key: &EntryKey) -> Result<Option<Hit<'a>>> {
        let bucket = self.home(key.hash)?.0;
        let print = fingerprint(key.hash);
        if let Some(index) = bucket.entries.iter().position(|entry| entry.load(Acquire) >> 48 == print)
            && let Some(hit) = self.hit_fast(bucket, index, key)
        {
            return Ok(Some(hit));
        }
        self.hit_in_chain(self.image.offset_of(bucket), key)
    }

    /// The entry at `index`, if it is that of a short name; the bucket's lock is held.
    #[inline]
    fn hit_fast<'a>(&'a self, bucket: &'a Bucket, index: usize, key: &EntryKey) -> Option<Hit<'a>> {
        let entry = bucket.entries[index].load(Acquire);
        let offset = bucket::entry_offset(entry);
        let edentry = self.image.at::<Edentry>(offset)?;
        let head = edentry.head.load(Acquire);
        if !key.is_short() || !key.is_in(edentry, head) {
            return None;
        }
        let node = Node { id: edentry.child.load(Relaxed), hint: self.hint_of(bucket, index) };
        Some(Hit { node, kind: (head >> 16) as u8, edentry: offset, place: Some((bucket, edentry)), index, entry })
    }

    #[cold]
    #[inline(never)]
    fn hit_in_chain<'a>(&'a self, home: u64, key: &EntryKey) -> Result<Option<Hit<'a>>> {
        let (mut offset, print) = (home, fingerprint(key.hash));
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry >> 48 == print
                    && let Some(hit) = self.hit_locked(bucket, index, entry, key)?
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

    /// Where an entry for a name can go, for the holder of its bucket's lock.
    #[inline]
    pub(crate) fn room(&self, key: &EntryKey) -> Result<Room<'_>> {
        let home = self.home(key.hash)?.0;
        let entries = home.entries.each_ref().map(|entry| entry.load(Acquire));
        // The usual answer: nothing that could be the name, nor anything behind it.
        if entries.iter().all(|entry| bucket::entry_fingerprint(*entry) != fingerprint(key.hash))
            && home.next.load(Acquire) == 0
            && let Some(index) = entries.iter().position(|entry| *entry == 0)
        {
            return Ok(Room::At(Spot { bucket: home, index: index as u32 }));
        }
        self.room_in_chain(home, key)
    }

    #[cold]
    #[inline(never)]
    fn room_in_chain<'a>(&'a self, home: &'a Bucket, key: &EntryKey) -> Result<Room<'a>> {
        if self.hit_in_chain(self.image.offset_of(home), key)?.is_some() {
            return Ok(Room::Taken);
        }
        let mut bucket = home;
        for _ in 0..CHAIN_MAX {
            if let Some(index) = bucket.entries.iter().position(|entry| entry.load(Acquire) == 0) {
                let full = if core::ptr::eq(bucket, home) { 0 } else { FULL };
                return Ok(Room::At(Spot { bucket, index: index as u32 | full }));
            }
            match bucket.next.load(Acquire) {
                0 => return Ok(Room::After(bucket)),
                next => bucket = self.bucket(next)?,
            }
        }
        Err(corrupt("chain of buckets", self.image.offset_of(home)))
    }

    #[inline]
    fn hit_locked<'a>(&'a self, bucket: &'a Bucket, index: usize, entry: u64, key: &EntryKey) -> Result<Option<Hit<'a>>> {
        let Some((id, kind)) = self.matches(entry, key)? else { return Ok(None) };
        let node = Node { id, hint: self.hint_of(bucket, index) };
        let offset = bucket::entry_offset(entry);
        Ok(Some(Hit { node, kind, edentry: offset, place: Some((bucket, self.edentry(offset)?)), index, entry }))
    }

    /// A new entry for the edentry at `edentry`: its place, and the store that
    /// makes it. What leads from there to a cachelet is the caller's to set before
    /// the commit ([`Fs::lead`]): what the entry's last user left must not lead
    /// anybody from the new name.
    #[inline]
    pub(crate) fn insert<'a>(&'a self, tx: &mut Tx<'a>, room: Room<'a>, hash: u64, edentry: u64) -> Result<(Spot<'a>, Set<'a>)> {
        match room {
            Room::At(spot) => Ok((spot, spot.set(hash, edentry))),
            Room::After(last) => self.insert_behind(tx, last, hash, edentry),
            Room::Taken => Err(Errno::EEXIST.into()),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_behind<'a>(&'a self, tx: &mut Tx, last: &'a Bucket, hash: u64, edentry: u64) -> Result<(Spot<'a>, Set<'a>)> {
        let offset = tx.lines(1, Arena::Other)?;
        self.write_bucket(offset, &[Item { entry: bucket::pack_entry(hash, edentry), hint: 0 }], 0)?;
        tx.object(offset, 1)?;
        let spot = Spot { bucket: self.bucket(offset)?, index: FULL };
        Ok((spot, Set { word: &last.next, value: offset }))
    }

    /// Writes a whole bucket that nobody can see yet.
    pub(super) fn write_bucket(&self, offset: u64, items: &[Item], next: u64) -> Result<()> {
        let bucket = self.bucket(offset)?;
        for i in 0..ENTRIES {
            let item = items.get(i).copied().unwrap_or(Item::NONE);
            self.image.store(&bucket.entries[i], item.entry);
            self.image.store_volatile32(&bucket.cachelets[i], item.hint);
        }
        self.image.store_volatile32(&bucket.split, 0);
        self.image.store(&bucket.next, next);
        self.image.flush(offset, LINE);
        Ok(())
    }

    /// Lets an entry that the next commit makes lead to its cachelet. The bucket's lock is held.
    #[inline]
    pub(crate) fn lead(&self, spot: &Spot, number: u32) {
        self.suggest(spot.bucket, spot.index as usize % ENTRIES, number);
    }

    /// The entry of a hit stands for another edentry with the same name and hash:
    /// its place, and the store that makes it so.
    pub(crate) fn redirect<'a>(&self, hit: &Hit<'a>, hash: u64, edentry: u64) -> Result<(Spot<'a>, Set<'a>)> {
        let Some((bucket, _)) = hit.place else { return Err(Errno::EIO.into()) };
        let spot = Spot { bucket, index: hit.index as u32 };
        Ok((spot, spot.set(hash, edentry)))
    }

    /// The store that removes the entry of a hit.
    #[inline]
    pub(crate) fn remove<'a>(&self, hit: &Hit<'a>) -> Result<Set<'a>> {
        let Some((bucket, _)) = hit.place else { return Err(Errno::EIO.into()) };
        Ok(Set { word: &bucket.entries[hit.index % ENTRIES], value: 0 })
    }
}
