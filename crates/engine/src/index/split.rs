//! The index grows: linear hashing, a bucket at a time, a segment when one is used up.
//!
//! Bucket `n` is made from bucket `n` without its highest bit. Both have the
//! same lock. The record raises the number of buckets first and clears what has
//! moved after that; the new bucket was written aside. If what stays fits into
//! the home bucket, its overflow buckets are given up.

use super::CHAIN_MAX;
use super::change::{Item, entry_word};
use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use base::{Cx, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::bucket::{self, ENTRIES, NEXT};
use format::lane::Kind;
use format::superblock::Root;
use format::{BLOCK, layout};
use pm::Errno;

/// Most entries that one record moves. A longer chain is left as it is: it takes
/// an index that could not grow for long.
const ITEMS_MAX: usize = 32;
/// Most overflow buckets that one record gives up.
const OVERFLOW_MAX: usize = 8;
/// After a failure to find room for a segment: insertions before the next try.
const PATIENCE: u32 = 4096;

/// A few things, in place of a vector.
struct List<T: Copy, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    fn new(nothing: T) -> Self {
        List { items: [nothing; N], len: 0 }
    }

    fn push(&mut self, item: T) -> Result<()> {
        *self.items.get_mut(self.len).ok_or(Errno::ENOSPC)? = item;
        self.len += 1;
        Ok(())
    }

    fn as_slice(&self) -> &[T] {
        &self.items[..self.len]
    }
}

/// What a chain holds, before its bucket is split.
struct Chain {
    /// Entries that stay, and where each is.
    stay: List<Item, ITEMS_MAX>,
    /// Entries that go, and their places.
    go: List<Item, ITEMS_MAX>,
    go_at: List<(u64, usize), ITEMS_MAX>,
    overflow: List<u64, OVERFLOW_MAX>,
    /// More overflow buckets than are listed.
    long: bool,
}

impl Fs {
    /// After an insertion that found its home bucket full: splits the next bucket.
    /// Nothing depends on success.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow_index(&self, cx: &Cx) {
        let lock = &self.header().split.0;
        match lock.load(Relaxed) {
            0 => {
                let _ = self.try_split(cx);
            }
            holder => self.adopt_if_dead(holder - 1),
        }
    }

    fn try_split(&self, cx: &Cx) -> Result<()> {
        let mut tx = self.begin(cx, Kind::IndexSplit)?;
        // Nothing else is held here; holders of bucket locks never wait for this one.
        tx.lock(&self.header().split.0)?;
        let number = self.root().buckets.load(Acquire);
        let (segment, _) = bucket::place(number);
        let Some(base) = self.root().index.get(segment) else { return Ok(()) };
        if base.load(Acquire) == 0 {
            drop(tx);
            return self.add_segment(cx, segment);
        }
        tx.lock_bucket(number)?;
        self.split_into(&mut tx, number)
    }

    /// Makes bucket `number` out of the one it is split from. Both locks are held.
    fn split_into(&self, tx: &mut Tx, number: u64) -> Result<()> {
        let home = self.bucket_place(number ^ 1 << number.ilog2())?;
        let chain = self.read_chain(home, number)?;
        let target = self.bucket_place(number)?;
        self.write_chain(tx, target, chain.go.as_slice())?;
        let image = &self.image;
        tx.set(layout::ROOT + offset_of!(Root, buckets) as u64, number + 1)?;
        if chain.overflow.len > 0 && !chain.long && chain.stay.len <= ENTRIES {
            let bucket = self.bucket(home)?;
            for index in 0..ENTRIES {
                let item = chain.stay.as_slice().get(index).copied().unwrap_or(Item::NONE);
                image.store_volatile32(&bucket.cachelets[index], item.hint);
                tx.set(entry_word(home, index), item.entry)?;
            }
            tx.set(home + NEXT, 0)?;
            for overflow in chain.overflow.as_slice() {
                tx.free_lines(*overflow, 1)?;
            }
        } else {
            for (bucket, index) in chain.go_at.as_slice() {
                tx.set(entry_word(*bucket, *index), 0)?;
            }
        }
        tx.commit()
    }

    /// Reads the chain at `home`, and tells what goes to bucket `number`.
    fn read_chain(&self, home: u64, number: u64) -> Result<Chain> {
        let mut chain = Chain {
            stay: List::new(Item::NONE),
            go: List::new(Item::NONE),
            go_at: List::new((0, 0)),
            overflow: List::new(0),
            long: false,
        };
        let mut offset = home;
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry == 0 {
                    continue;
                }
                let item = Item { entry, hint: self.hint_of(bucket, index).wrapping_add(1) };
                if bucket::number(self.hash_of(bucket::entry_offset(entry))?, number + 1) == number {
                    chain.go.push(item)?;
                    chain.go_at.push((offset, index))?;
                } else {
                    chain.stay.push(item)?;
                }
            }
            offset = bucket.next.load(Acquire);
            if offset == 0 {
                return Ok(chain);
            }
            chain.long |= chain.overflow.push(offset).is_err();
        }
        Err(corrupt("chain of buckets", home))
    }

    /// Writes a new bucket aside, with as many overflow buckets as it takes.
    fn write_chain(&self, tx: &mut Tx, target: u64, items: &[Item]) -> Result<()> {
        let (first, rest) = items.split_at(items.len().min(ENTRIES));
        let mut next = 0;
        for chunk in rest.chunks(ENTRIES) {
            let offset = tx.lines(1, Arena::Other)?;
            self.write_bucket(offset, chunk, next)?;
            next = offset;
        }
        self.write_bucket(target, first, next)?;
        if next == 0 {
            tx.object(target, 1)
        } else {
            tx.order();
            Ok(())
        }
    }

    /// The hash of the name of an edentry.
    fn hash_of(&self, offset: u64) -> Result<u64> {
        let mut name = crate::dir::NameBuffer::new();
        let entry = self.read_edentry(offset, &mut name)?;
        Ok(self.hash(entry.parent, name.bytes(entry.head.name_len)))
    }

    /// Gives the index another segment, as large as all before it.
    fn add_segment(&self, cx: &Cx, segment: usize) -> Result<()> {
        let wait = &self.header().reserved2[0];
        let left = wait.load(Relaxed);
        if left > 0 {
            wait.store(left - 1, Relaxed);
            return Ok(());
        }
        let blocks = bucket::segment_buckets(segment) * format::LINE / BLOCK;
        let result = self.find_segment_room(cx, segment, blocks);
        if result.is_err() {
            wait.store(PATIENCE, Relaxed);
        }
        result
    }

    /// Looks for a contiguous run, growing the image as long as that helps.
    fn find_segment_room(&self, cx: &Cx, segment: usize, blocks: u64) -> Result<()> {
        let mut near = 0;
        for _ in 0..4096 {
            let mut tx = self.begin(cx, Kind::IndexGrow)?;
            tx.lock(&self.header().split.0)?;
            if self.root().index[segment].load(Acquire) != 0 {
                return Ok(());
            }
            let (first, count) = tx.blocks(blocks, near)?;
            if count == blocks {
                // Every bucket is written whole before it comes into use: no zeroing here.
                let word = layout::ROOT + offset_of!(Root, index) as u64 + segment as u64 * 8;
                tx.set(word, first * BLOCK)?;
                return tx.commit();
            }
            drop(tx);
            // The run at the end of the image is the one that growing makes longer.
            let grown = self.root().grown.load(Acquire);
            near = if first + count == grown { first } else { grown };
            self.grow(self.lane_of(cx)?)?;
        }
        Err(Errno::ENOSPC.into())
    }
}
