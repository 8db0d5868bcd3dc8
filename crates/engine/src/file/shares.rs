//! How many extents have a block: the counts (`format::shares`), and the record's stores that change them.
//!
//! - Counts change by records alone, under the lock [`Header::shares`], which is held until the record has ended. So a
//!   record says what they become, not by how much they change, and may be made again.
//! - **A record changes the counts of one run of blocks, whose counts lie in one leaf.** So what they become follows from
//!   what they are, and so does whether the leaf, and what leads to it, have nothing but zeros then: those blocks go, or
//!   come, with the same record. When nothing is shared any more there is no table.
//! - A count is read only by who holds the lock.
//!
//! [`Header::shares`]: crate::segment::Header

use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use base::Result;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::layout::ROOT;
use format::shares::{COUNT_MAX, WORDS, left_in_leaf, place, top_blocks};
use format::{BLOCK, Op, Root};
use pm::Errno;

const WHAT: &str = "table of what is shared";
/// Offset of the word that leads to the table.
const TABLE: u64 = ROOT + offset_of!(Root, shares) as u64;
/// Most stretches of equal counts that a record changes.
const RUNS_MAX: usize = 8;
/// Operations of a record that gives up one extent at most: those, and a leaf, a middle, a top and a word.
pub(crate) const RELEASE_OPS: usize = RUNS_MAX + 4;

/// Where the count of a block is: offsets of what leads there, 0 for what is not there.
struct Place {
    top: u64,
    middle: u64,
    leaf: u64,
    /// Number of the word in each.
    at: (u64, u64, u64),
}

/// Blocks that another extent can have too, by one record.
pub(super) struct Sharing {
    place: Place,
    block: u64,
    /// How many.
    pub(super) len: u64,
    /// Stretches of equal counts: how many blocks, and the count. Where there is no leaf all are 0, and none is listed.
    runs: [(u64, u64); RUNS_MAX],
}

impl Fs {
    /// A block of the table, or 0.
    fn table_block(&self, at: u64, blocks: u64) -> Result<u64> {
        let is_sound = at.is_multiple_of(BLOCK) && self.is_allocatable(at / BLOCK, blocks);
        if at == 0 || is_sound { Ok(at) } else { Err(corrupt(WHAT, at)) }
    }

    fn place_of_count(&self, block: u64) -> Result<Place> {
        let word = |at: u64| self.at::<AtomicU64>(at, WHAT).map(|word| word.load(Relaxed));
        let at = place(block);
        let top = self.table_block(self.root().shares.load(Acquire), top_blocks(&self.layout))?;
        let middle = if top == 0 { 0 } else { self.table_block(word(top + at.0 * 8)?, 1)? };
        let leaf = if middle == 0 { 0 } else { self.table_block(word(middle + at.1 * 8)?, 1)? };
        Ok(Place { top, middle, leaf, at })
    }

    /// How many blocks several extents have, and how many blocks more those would take if each had its own. Figures of no
    /// instant, where others are at work.
    pub fn shared_blocks(&self) -> Result<(u64, u64)> {
        let top = self.table_block(self.root().shares.load(Acquire), top_blocks(&self.layout))?;
        let (mut blocks, mut more) = (0, 0);
        if top == 0 {
            return Ok((blocks, more));
        }
        for middle in self.words(top, (top_blocks(&self.layout) * WORDS) as usize, WHAT)? {
            for leaf in self.table_below(middle)? {
                for count in self.table_below(leaf)?.iter().map(|count| count.load(Relaxed)).filter(|count| *count != 0) {
                    blocks += 1;
                    more += count;
                }
            }
        }
        Ok((blocks, more))
    }

    /// The words of what a word of the table leads to; none where it leads nowhere.
    fn table_below(&self, word: &AtomicU64) -> Result<&[AtomicU64]> {
        match self.table_block(word.load(Relaxed), 1)? {
            0 => Ok(&[]),
            at => self.table_words(at),
        }
    }

    /// The words of a leaf, or a middle.
    fn table_words(&self, at: u64) -> Result<&[AtomicU64]> {
        self.words(at, WORDS as usize, WHAT)
    }

    /// The count of `block`, and how many blocks from it on, at most `len`, have the same and lie in the same leaf.
    pub(crate) fn count_of(&self, block: u64, len: u64) -> Result<(u64, u64)> {
        let (place, len) = (self.place_of_count(block)?, len.min(left_in_leaf(block)));
        if place.leaf == 0 {
            return Ok((0, len));
        }
        let counts = self.table_words(place.leaf)?.iter().skip(place.at.2 as usize).take(len as usize);
        let mut counts = counts.map(|count| count.load(Relaxed));
        let Some(count) = counts.next().filter(|count| *count <= COUNT_MAX) else { return Err(corrupt(WHAT, place.leaf)) };
        Ok((count, 1 + counts.take_while(|other| *other == count).count() as u64))
    }

    /// Whether nobody else has any of `len` blocks from `block` on.
    pub(crate) fn is_unshared(&self, block: u64, len: u64) -> Result<bool> {
        let (mut at, end) = (block, block + len);
        while at < end {
            let (count, len) = self.count_of(at, end - at)?;
            if count != 0 {
                return Ok(false);
            }
            at += len;
        }
        Ok(true)
    }

    /// From which of `len` blocks from `block` on a record can give up the rest of them.
    pub(crate) fn release_start(&self, block: u64, len: u64) -> Result<u64> {
        let end = block + len;
        let floor = block.max((end - 1) / WORDS * WORDS);
        let place = self.place_of_count(floor)?;
        if place.leaf == 0 {
            return Ok(floor);
        }
        let counts = self.table_words(place.leaf)?;
        let count = |block: u64| counts.get((block % WORDS) as usize).map_or(0, |count| count.load(Relaxed));
        let (mut first, mut runs) = (end - 1, 1);
        while first > floor {
            runs += usize::from(count(first - 1) != count(first));
            if runs > RUNS_MAX {
                break;
            }
            first -= 1;
        }
        Ok(first)
    }

    /// What of `len` blocks from `block` on one record can give to another extent too. `EMLINK`: so many have the first
    /// that it cannot be counted.
    pub(super) fn sharing(&self, block: u64, len: u64) -> Result<Sharing> {
        let place = self.place_of_count(block)?;
        let mut sharing = Sharing { place, block, len: len.min(left_in_leaf(block)), runs: [(0, 0); RUNS_MAX] };
        if sharing.place.leaf == 0 {
            return Ok(sharing);
        }
        let counts = self.table_words(sharing.place.leaf)?.iter().skip(sharing.place.at.2 as usize).take(sharing.len as usize);
        let (mut run, mut before) = (0, None);
        for (done, count) in (0..).zip(counts.map(|count| count.load(Relaxed))) {
            if count > COUNT_MAX {
                return Err(corrupt(WHAT, sharing.place.leaf));
            }
            run += usize::from(before.is_some_and(|before| before != count));
            before = Some(count);
            let Some(run) = sharing.runs.get_mut(run).filter(|_| count < COUNT_MAX) else {
                sharing.len = done;
                break;
            };
            *run = (run.0 + 1, count);
        }
        if sharing.len == 0 && len != 0 { Err(Errno::EMLINK.into()) } else { Ok(sharing) }
    }

    /// Whether a leaf has nothing but zeros once one extent fewer has the `len` blocks from `block` on.
    fn is_emptied(&self, place: &Place, len: u64) -> Result<bool> {
        let (first, counts) = (place.at.2 as usize, self.table_words(place.leaf)?);
        let run = first..first + len as usize;
        let left = |(i, count): (usize, &AtomicU64)| count.load(Relaxed) > u64::from(run.contains(&i));
        Ok(!counts.iter().enumerate().any(left))
    }

    /// Whether no word of a part of the table but one leads anywhere.
    fn is_only(&self, table: u64, blocks: u64, number: u64) -> Result<bool> {
        let words = self.words(table, (blocks * WORDS) as usize, WHAT)?;
        Ok(!words.iter().enumerate().any(|(i, word)| i as u64 != number && word.load(Relaxed) != 0))
    }
}

impl Tx<'_> {
    /// One extent fewer has `len` blocks from `block` on ([`Fs::release_start`]): those that no other has are freed.
    pub(crate) fn release_shares(&mut self, block: u64, len: u64) -> Result<()> {
        let (fs, place) = (self.fs, self.fs.place_of_count(block)?);
        let is_emptied = place.leaf != 0 && fs.is_emptied(&place, len)?;
        let (mut at, end) = (block, block + len);
        while at < end {
            let (count, len) = fs.count_of(at, end - at)?;
            match count {
                0 => self.free_blocks(at, len)?,
                _ if is_emptied => {}
                _ => self.set_counts(&place, at, len, count - 1)?,
            }
            at += len;
        }
        if is_emptied { self.remove_leaf(&place) } else { Ok(()) }
    }

    /// Counts of blocks of one leaf become `count`.
    fn set_counts(&mut self, place: &Place, block: u64, len: u64, count: u64) -> Result<()> {
        let at = place.leaf + block % WORDS * 8;
        self.push(Op::Counts { at, count: len as u32, value: count as u32 })
    }

    /// Frees a leaf, and what led to it alone.
    fn remove_leaf(&mut self, place: &Place) -> Result<()> {
        let fs = self.fs;
        self.free_blocks(place.leaf / BLOCK, 1)?;
        if !fs.is_only(place.middle, 1, place.at.1)? {
            return self.set(place.middle + place.at.1 * 8, 0);
        }
        self.free_blocks(place.middle / BLOCK, 1)?;
        let blocks = top_blocks(&fs.layout);
        if !fs.is_only(place.top, blocks, place.at.0)? {
            return self.set(place.top + place.at.0 * 8, 0);
        }
        self.free_blocks(place.top / BLOCK, blocks)?;
        self.set(TABLE, 0)
    }

    /// One extent more has the first `len` blocks of these, no more than it says. `ENOSPC`.
    pub(super) fn share(&mut self, sharing: &Sharing, len: u64) -> Result<()> {
        let Sharing { place, block, runs, .. } = sharing;
        if place.leaf == 0 {
            return self.new_leaf(place, len);
        }
        let (mut at, end) = (*block, block + len);
        for (blocks, count) in runs.iter().filter(|run| run.0 != 0) {
            let blocks = (*blocks).min(end - at);
            if blocks == 0 {
                break;
            }
            self.set_counts(place, at, blocks, count + 1)?;
            at += blocks;
        }
        Ok(())
    }

    /// A leaf that says 1 of `len` blocks from the one on that `place` is of, and what leads to it. Written aside.
    fn new_leaf(&mut self, place: &Place, len: u64) -> Result<()> {
        let leaf = self.blocks(1, 0)?.0 * BLOCK;
        self.write_table(leaf, 1, place.at.2, len, 1)?;
        if place.middle != 0 {
            self.order();
            return self.set(place.middle + place.at.1 * 8, leaf);
        }
        let middle = self.blocks(1, 0)?.0 * BLOCK;
        self.write_table(middle, 1, place.at.1, 1, leaf)?;
        if place.top != 0 {
            self.order();
            return self.set(place.top + place.at.0 * 8, middle);
        }
        let blocks = top_blocks(&self.fs.layout);
        let top = self.run(blocks, 0)? * BLOCK;
        self.write_table(top, blocks, place.at.0, 1, middle)?;
        self.order();
        self.set(TABLE, top)
    }

    /// A new part of the table: zeros, but for `count` words from number `first` on.
    fn write_table(&self, at: u64, blocks: u64, first: u64, count: u64, value: u64) -> Result<()> {
        let fs = self.fs;
        fs.present(at, blocks * BLOCK)?;
        fs.image.zero(at, blocks * BLOCK)?;
        for word in fs.words(at + first * 8, count as usize, WHAT)? {
            fs.image.store(word, value);
        }
        fs.image.flush(at, blocks * BLOCK);
        Ok(())
    }
}
