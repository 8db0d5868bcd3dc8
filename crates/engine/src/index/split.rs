//! The index grows: linear hashing, a bucket at a time, a segment when one is used up.
//!
//! Bucket `n` is made from bucket `n` without its highest bit. Both have the
//! same lock. The old one is marked, so that nobody looks there by what he knew before;
//! the record raises the number of buckets first and clears what has
//! moved after that; the new bucket was written aside. If what stays fits into
//! the home bucket, its overflow buckets are given up: what stayed in them comes to where something has left, or
//! nothing was. No entry moves within a bucket: whoever looks through it without a lock would miss it.

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

/// Most entries of a chain that is split. A longer one is left as it is: it takes
/// an index that could not grow for long.
const ITEMS_MAX: usize = 40;
/// Most overflow buckets that one record gives up.
const OVERFLOW_MAX: usize = 6;
/// After a failure to find room for a segment: insertions before the next try.
const PATIENCE: u32 = 4096;

/// An entry of a chain, and where it is.
#[derive(Clone, Copy)]
struct Placed {
    item: Item,
    bucket: u64,
    index: usize,
}

/// What a chain holds, before its bucket is split: what goes first, in `items`
/// from the front, what stays from the back.
struct Chain {
    items: [Placed; ITEMS_MAX],
    go: usize,
    stay: usize,
    overflow: [u64; OVERFLOW_MAX],
    overflows: usize,
}

impl Chain {
    const fn new() -> Chain {
        Chain {
            items: [Placed { item: Item::NONE, bucket: 0, index: 0 }; ITEMS_MAX],
            go: 0,
            stay: 0,
            overflow: [0; OVERFLOW_MAX],
            overflows: 0,
        }
    }

    /// Notes an entry; `ENOSPC` if there are too many.
    #[inline]
    fn push(&mut self, placed: Placed, goes: bool) -> Result<()> {
        if self.go + self.stay >= ITEMS_MAX {
            return Err(Errno::ENOSPC.into());
        }
        if goes {
            self.items[self.go] = placed;
            self.go += 1;
        } else {
            self.stay += 1;
            self.items[ITEMS_MAX - self.stay] = placed;
        }
        Ok(())
    }

    fn going(&self) -> &[Placed] {
        &self.items[..self.go]
    }

    fn staying(&self) -> &[Placed] {
        &self.items[ITEMS_MAX - self.stay..]
    }
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
            holder => {
                self.adopt_if_dead(holder - 1);
            }
        }
    }

    fn try_split(&self, cx: &Cx) -> Result<()> {
        let mut tx = self.begin(cx, Kind::IndexSplit)?;
        // Nothing else is held here; holders of bucket locks never wait for this one.
        tx.lock(&self.header().split.0)?;
        let number = self.root().buckets.load(Acquire);
        if number >= u64::from(u32::MAX) {
            // As many as `pm::Steps` knows: chains grow from here on.
            return Ok(());
        }
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
        let mut chain = Chain::new();
        self.read_chain(home, number, &mut chain)?;
        self.write_chain(tx, self.bucket_place(number)?, chain.going())?;
        tx.set(layout::ROOT + offset_of!(Root, buckets) as u64, number + 1)?;
        // Before anything moves: who knows of fewer buckets asks the root from here on. If this comes to nothing, in vain.
        self.image.store_volatile32(&self.bucket(home)?.split, bucket::split_mark(number + 1));
        if (1..=OVERFLOW_MAX).contains(&chain.overflows) && chain.stay <= ENTRIES {
            let bucket = self.bucket(home)?;
            let at_home = |index: usize| chain.staying().iter().any(|one| one.bucket == home && one.index == index);
            let mut coming = chain.staying().iter().filter(|one| one.bucket != home);
            for index in (0..ENTRIES).filter(|index| !at_home(*index)) {
                let item = coming.next().map_or(Item::NONE, |placed| placed.item);
                self.image.store_volatile32(&bucket.cachelets[index], item.hint);
                tx.set(entry_word(home, index), item.entry)?;
            }
            tx.set(home + NEXT, 0)?;
            for overflow in &chain.overflow[..chain.overflows] {
                tx.free_lines(*overflow, 1)?;
            }
        } else {
            for placed in chain.going() {
                tx.set(entry_word(placed.bucket, placed.index), 0)?;
            }
        }
        tx.commit()
    }

    /// Reads the chain at `home`, and tells what goes to bucket `number`.
    fn read_chain(&self, home: u64, number: u64, chain: &mut Chain) -> Result<()> {
        let mut offset = home;
        for _ in 0..CHAIN_MAX {
            let bucket = self.bucket(offset)?;
            // All at once: their names lie anywhere.
            bucket.entries.iter().for_each(|entry| self.fetch_edentry(bucket::entry_offset(entry.load(Relaxed))));
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry == 0 {
                    continue;
                }
                let item = Item { entry, hint: self.hint_of(bucket, index).wrapping_add(1) };
                let goes = bucket::number(self.hash_of(bucket::entry_offset(entry))?, number + 1) == number;
                chain.push(Placed { item, bucket: offset, index }, goes)?;
            }
            offset = bucket.next.load(Acquire);
            if offset == 0 {
                return Ok(());
            }
            if let Some(place) = chain.overflow.get_mut(chain.overflows) {
                *place = offset;
            }
            chain.overflows += 1;
        }
        Err(corrupt("chain of buckets", home))
    }

    /// Writes a new bucket aside, with as many overflow buckets as it takes.
    fn write_chain(&self, tx: &mut Tx, target: u64, going: &[Placed]) -> Result<()> {
        let mut items = [Item::NONE; ENTRIES];
        let (first, rest) = going.split_at(going.len().min(ENTRIES));
        let mut next = 0;
        for chunk in rest.chunks(ENTRIES) {
            let offset = tx.lines(1, Arena::Other)?;
            for (item, placed) in items.iter_mut().zip(chunk) {
                *item = placed.item;
            }
            self.write_bucket(offset, &items[..chunk.len()], next)?;
            next = offset;
        }
        for (item, placed) in items.iter_mut().zip(first) {
            *item = placed.item;
        }
        self.write_bucket(target, &items[..first.len()], next)?;
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
        Ok(self.hash(entry.parent, name.raw(entry.head.name_len)))
    }

    /// Gives the index another segment, as large as all before it.
    fn add_segment(&self, cx: &Cx, segment: usize) -> Result<()> {
        let wait = &self.header().index_patience;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{Kind, NewNode};
    use std::format;
    use std::vec::Vec;

    /// Goal: who looks through a bucket while it is split misses nothing that stays there. Method: splits of an
    /// index with many chains; what was in the home bucket and stays is at its place, also where the chain behind
    /// it goes, and what was behind is where nothing else was.
    #[test]
    fn nothing_moves_within_a_bucket() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        for i in 0..12_000 {
            test.create(&cx, root, format!("{i}").as_bytes(), &new).unwrap();
        }
        let entries =
            |at: u64| -> Vec<u64> { test.bucket(at).unwrap().entries.iter().map(|entry| entry.load(Relaxed)).collect() };
        let behind = |at: u64| test.bucket(at).unwrap().next.load(Relaxed);
        let (mut given_up, mut came) = (0, 0);
        for _ in 0..1000 {
            let number = test.root().buckets.load(Acquire);
            let home = test.bucket_place(number ^ 1 << number.ilog2()).unwrap();
            let (before, chain) = (entries(home), behind(home));
            test.grow_index(&cx);
            if test.root().buckets.load(Acquire) == number {
                // A new step of the index came first.
                continue;
            }
            let after = entries(home);
            for (place, entry) in after.iter().enumerate().filter(|(_, entry)| **entry != 0) {
                match before.iter().position(|one| one == entry) {
                    Some(was) => assert_eq!(was, place),
                    None => came += 1,
                }
            }
            given_up += u32::from(chain != 0 && behind(home) == 0);
        }
        assert!(given_up > 10 && came > 10, "{given_up} chains given up, {came} entries from behind");
        for i in 0..12_000 {
            test.lookup(&cx, root, format!("{i}").as_bytes()).unwrap();
        }
    }
}
