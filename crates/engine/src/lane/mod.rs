//! An operation: what it locks, reserves and records, and how it commits.
//!
//! 1. [`Fs::begin`] takes the thread's lane.
//! 2. Locks and directories entered are listed in the lane's state *before*
//!    they are taken, so that whoever finds the holder dead knows what to undo.
//! 3. New objects are written aside and named with [`Tx::object`]; stores to
//!    what exists are collected (`set`, `raise`, `count`, …).
//! 4. [`Tx::commit`]: record written, one fence: **the commit point**; stores
//!    applied, fence; record retired.
//! 5. Dropping what `begin` returned gives back locks, and reservations that no commit used.
//!
//! `commit` may be called several times in one operation (a chain of records);
//! locks stay until then.

pub mod adopt;
pub mod apply;
mod aside;
pub mod enter;
pub mod lock;
pub mod record;
pub mod slot;
#[cfg(test)]
mod stopped;
pub mod take;

use crate::alloc::{Arena, fault};
use crate::fs::Fs;
use crate::segment::{Cachelet, LaneState};
use base::{Cx, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use format::lane::{Kind, OBJECTS_MAX, OPS_MAX, Op, State, word};
use format::{LINE, Lane, layout};
use pm::Errno;
use record::{ClearBits, Counters, SetBits, Stores, TOGETHER, Writer};
use zerocopy::{FromBytes, KnownLayout};

/// After that many records a lane looks whether another one's user has died.
const LOOK_EVERY: u32 = 64;

/// Most locks that an operation holds: two buckets, two inodes, the counts of what is shared, and some of the rest.
const LOCKS: usize = 9;

/// An operation in progress on this thread's lane.
pub struct Tx<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) number: u32,
    pub(crate) lane: &'a Lane,
    pub(crate) state: &'a LaneState,
    kind: Kind,
    /// Whether it has nothing to order and to write back ([`Fs::is_plain`]): then its records have no checksum.
    pub(crate) plain: bool,
    /// How many locks it holds: the first ones that `state.held` lists.
    pub(crate) held: u8,
    /// Whether a directory slot is reserved (`state.slot`).
    pub(crate) slot: bool,
    /// How many objects and stores the record has.
    objects: u8,
    ops: u8,
    /// Change of the lane's counters that the next commit records.
    lines: i64,
    files: i64,
    /// Whether the stores listed free something.
    frees: bool,
    /// Whether blocks are reserved that no record makes the image's ([`Tx::blocks_aside`]).
    aside: bool,
    /// Whether this operation has taken of what is kept back.
    spare: bool,
    /// The directory that is closed (`state.closed`).
    closed: Option<&'a Cachelet>,
    /// What it held has been given back, or is not this operation's to give back.
    pub(crate) over: bool,
}

impl Fs {
    /// Starts an operation: `EROFS`, or `ENOLCK` when every lane is taken.
    #[inline(always)]
    pub(crate) fn begin<'a>(&'a self, cx: &Cx, kind: Kind) -> Result<Tx<'a>> {
        self.writable()?;
        Ok(Tx::new(self, self.lane_of(cx)?, kind, self.is_plain()))
    }
}

impl<'a> Tx<'a> {
    /// An operation of a lane that has locked and written nothing yet.
    #[inline(always)]
    fn new(fs: &'a Fs, number: u32, kind: Kind, plain: bool) -> Self {
        Tx {
            fs,
            number,
            lane: fs.lane(number),
            state: fs.lane_state(number),
            kind,
            plain,
            held: 0,
            slot: false,
            objects: 0,
            ops: 0,
            lines: 0,
            files: 0,
            frees: false,
            aside: false,
            spare: false,
            closed: None,
            over: false,
        }
    }

    /// Adds an operation to the record. `EFBIG`-like overflow is a bug of the
    /// caller, who must stay within [`Tx::room`]; it is refused with `EIO`.
    pub(crate) fn push(&mut self, op: Op) -> Result<()> {
        if usize::from(self.ops) >= OPS_MAX - 1 {
            return Err(Errno::EIO.into());
        }
        self.put(op);
        Ok(())
    }

    fn put(&mut self, op: Op) {
        let (place, value) = op.pack();
        // `push` and `commit_with` look for room: always there.
        if let Some(slot) = self.lane.ops.get(usize::from(self.ops)) {
            self.fs.image.store(&slot.place, place);
            self.fs.image.store(&slot.value, value);
            self.ops += 1;
        }
    }

    /// Operations that still fit into the record (one is kept for the lane's counters).
    pub(crate) fn room(&self) -> usize {
        OPS_MAX - 1 - usize::from(self.ops)
    }

    /// The word at `at` becomes `value`.
    #[inline]
    pub(crate) fn set(&mut self, at: u64, value: u64) -> Result<()> {
        self.push(Op::Set { at, value })
    }

    /// The signed word at `at` becomes at least `value`.
    #[inline]
    pub(crate) fn raise(&mut self, at: u64, value: i64) -> Result<()> {
        self.push(Op::Max { at, value })
    }

    /// Sets bits of the word at `at`.
    #[inline]
    pub(crate) fn set_bits(&mut self, at: u64, bits: u64) -> Result<()> {
        self.push(Op::SetBits { at, bits })
    }

    /// Number of inodes this record makes (+) or frees (−), for `statfs`.
    #[inline]
    pub(crate) fn files(&mut self, change: i64) {
        self.files += change;
    }

    /// Puts a new object of `lines` lines at `offset` under the record's
    /// checksum and starts its write-back; call it after the object is written.
    /// Objects larger than a few lines (data, extent nodes) are flushed by
    /// their writer and ordered by [`Tx::order`] instead.
    #[inline]
    pub(crate) fn object(&mut self, offset: u64, lines: u32) -> Result<()> {
        // No checksum is taken, and nothing written back: the order of stores is proof.
        if self.plain {
            return Ok(());
        }
        if usize::from(self.objects) >= OBJECTS_MAX {
            return Err(Errno::EIO.into());
        }
        self.fs.image.store(&self.lane.objects[usize::from(self.objects)], offset | u64::from(lines) << 48);
        self.fs.image.flush(offset, u64::from(lines) * LINE);
        self.objects += 1;
        Ok(())
    }

    /// Orders what was written aside before the record (an extra fence; only
    /// for objects not under the checksum).
    pub(crate) fn order(&self) {
        self.fs.image.fence();
    }

    /// Commits and applies the stores listed. An error before the commit leaves
    /// everything as it was; one after it means a damaged image (`Corrupt`).
    pub(crate) fn commit(&mut self) -> Result<()> {
        let Counters { lines, files, .. } = self.counters();
        self.put(Op::Counters { lines, files });
        let ops = usize::from(self.ops);
        let state = self.head(ops);
        if !self.plain {
            return self.commit_to_medium(state);
        }
        self.publish(state);
        let applied = apply::apply::<false>(self.fs, self.lane, ops);
        self.retired(state, ops);
        self.state.released.store(state.pack(), Release);
        applied
    }

    /// As `commit`, with `stores` after those listed: none of them is read back from the record.
    #[inline(always)]
    pub(crate) fn commit_with<S: Stores>(&mut self, stores: S) -> Result<()> {
        const { assert!(S::COUNT + Counters::COUNT <= TOGETHER) };
        let (image, listed) = (&self.fs.image, usize::from(self.ops));
        let Some(mut writer) = Writer::new(image, self.lane, listed) else { return Err(Errno::EIO.into()) };
        let counters = self.counters();
        counters.write(&mut writer);
        stores.write(&mut writer);
        let state = self.head(listed + writer.written());
        if !self.plain {
            return self.commit_to_medium(state);
        }
        self.publish(state);
        let applied = apply::apply::<false>(self.fs, self.lane, listed);
        stores.make(image);
        counters.make(image);
        self.retired(state, listed);
        stores.release(self.fs, self.number);
        self.state.released.store(state.pack(), Release);
        applied
    }

    /// Adds stores to those listed.
    #[inline]
    pub(crate) fn list<S: Stores>(&mut self, stores: S) -> Result<()> {
        const { assert!(S::COUNT <= TOGETHER) };
        let Some(mut writer) = Writer::new(&self.fs.image, self.lane, self.ops.into()) else {
            return Err(Errno::EIO.into());
        };
        stores.write(&mut writer);
        self.ops += writer.written() as u8;
        self.frees = true;
        Ok(())
    }

    /// What the next commit makes of the lane's counters.
    #[inline(always)]
    fn counters(&self) -> Counters<'a> {
        let (lines, files) = (self.lane.lines.load(Relaxed), self.lane.files.load(Relaxed));
        Counters { lane: self.lane, lines: lines.wrapping_add(self.lines as u64), files: files.wrapping_add(self.files as u64) }
    }

    /// The state word of the next record, with so many stores.
    #[inline(always)]
    fn head(&self, ops: usize) -> State {
        let sequence = State::next(self.lane.state.load(Relaxed));
        State { sequence, kind: self.kind as u16, objects: self.objects, ops: ops as u8 }
    }

    /// The commit point where stores become visible in order: that is all there is to it.
    #[inline(always)]
    fn publish(&self, state: State) {
        let image = &self.fs.image;
        image.store(&self.lane.checksum, apply::mark(state));
        image.store(&self.lane.state, state.pack());
    }

    /// Writes the state word and the checksum, and makes the record durable: it counts.
    fn show_on_medium(&self, state: State) -> Result<()> {
        let image = &self.fs.image;
        let lane = image.offset_of(self.lane);
        let sum = apply::checksum(self.fs, self.lane, state)?;
        image.store(&self.lane.checksum, sum);
        image.store(&self.lane.state, state.pack());
        image.flush(lane, word::OPS + u64::from(state.ops) * 16);
        image.flush(lane + word::OBJECTS, u64::from(state.objects) * 8);
        image.fence();
        Ok(())
    }

    /// As `commit`, where stores reach the medium in any order unless told:
    /// three persists, of the record with its objects, of what it does, and of its end.
    #[cold]
    #[inline(never)]
    fn commit_to_medium(&mut self, state: State) -> Result<()> {
        self.show_on_medium(state)?;
        let image = &self.fs.image;
        let lane = image.offset_of(self.lane);
        let applied = apply::apply::<false>(self.fs, self.lane, usize::from(state.ops));
        image.fence();
        image.store(&self.lane.state, State::ended(state.pack()));
        image.flush(lane, 8);
        // Not left to the next record's fence: what this one has freed may be
        // another's from here on, and a record found whole is applied again.
        image.fence();
        self.frees = true;
        self.retired(state, usize::from(state.ops));
        self.state.released.store(state.pack(), Release);
        applied
    }

    /// Retires the record: its reservations are the image's now, what the
    /// `listed` stores of it freed can be used again.
    #[inline(always)]
    fn retired(&mut self, state: State, listed: usize) {
        self.fs.image.store(&self.lane.state, State::ended(state.pack()));
        for taken in &self.state.taken {
            taken.store(0, Release);
        }
        if self.frees || self.state.reserved_count.load(Relaxed) != 0 || state.sequence.is_multiple_of(LOOK_EVERY) {
            self.retired_slow(state.sequence, listed);
        }
        self.start_afresh();
    }

    /// What only some records leave to do.
    #[cold]
    #[inline(never)]
    fn retired_slow(&mut self, sequence: u32, listed: usize) {
        self.forget_reservations();
        // First: until all that this record frees is released, an adopter cannot tell it from what has been taken again.
        if sequence.is_multiple_of(LOOK_EVERY) {
            self.fs.look_at_a_lane(self.number, sequence / LOOK_EVERY);
        }
        if self.frees {
            self.fs.release_freed(self.number, listed);
        }
        self.spare_is_back();
    }

    /// What makes up for the blocks taken of those kept back is free: others may have tried in vain before.
    fn spare_is_back(&self) {
        if self.spare {
            self.fs.make_up_next();
        }
    }

    /// What is reserved besides is the image's now; blocks that things were put aside in are free again.
    fn forget_reservations(&mut self) {
        if self.aside {
            self.fs.return_reservations(self.number, self.state);
            return;
        }
        let reserved = self.state.reserved_count.swap(0, AcqRel) as usize;
        for entry in self.state.reserved.iter().take(reserved) {
            entry.run.store(0, Relaxed);
        }
    }

    #[inline]
    fn start_afresh(&mut self) {
        (self.objects, self.ops, self.lines, self.files) = (0, 0, 0, 0);
        (self.frees, self.aside) = (false, false);
    }

    /// Gives up what has been recorded and reserved since the last commit.
    pub(crate) fn abandon(&mut self) {
        self.fs.put_back_lines(self.state);
        self.fs.return_reservations(self.number, self.state);
        self.spare_is_back();
        self.start_afresh();
    }

    /// The end of an operation that reserved more than it used.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        self.abandon();
        self.give_slot_back();
    }

    /// Changes what kind of record the next commit writes; returns what it was.
    pub(crate) fn now(&mut self, kind: Kind) -> Kind {
        core::mem::replace(&mut self.kind, kind)
    }

    /// Clears bits of the word at `at`.
    #[inline]
    pub(crate) fn clear_bits(&mut self, at: u64, bits: u64) -> Result<()> {
        self.push(Op::ClearBits { at, bits })
    }

    /// Allocates `count` (1–64) lines in one block; returns their offset. They
    /// are the image's once the record commits. `ENOSPC`.
    pub(crate) fn lines(&mut self, count: u32, arena: Arena) -> Result<u64> {
        let (offset, SetBits { word, bits }) = self.new_lines(count, arena)?;
        self.set_bits(self.fs.image.offset_of(word), bits)?;
        Ok(offset)
    }

    /// As [`Tx::lines`], but for the store that allocates them, which the caller
    /// must put into the record.
    #[inline(always)]
    pub(crate) fn new_lines(&mut self, count: u32, arena: Arena) -> Result<(u64, SetBits<'a>)> {
        let (offset, _, allocated) = self.new_place::<AtomicU64>(count, arena)?;
        Ok((offset, allocated))
    }

    /// As [`Tx::new_lines`], and what is to be written on the first one.
    #[inline(always)]
    pub(crate) fn new_place<T: FromBytes + KnownLayout>(
        &mut self,
        count: u32,
        arena: Arena,
    ) -> Result<(u64, &'a T, SetBits<'a>)> {
        if fault::strikes(fault::Kind::Space) {
            return Err(Errno::ENOSPC.into());
        }
        let fs = self.fs;
        let (block, start, bits) = fs.take_lines(self.number, self.state, count, arena)?;
        let offset = block * layout::BLOCK + u64::from(start) * LINE;
        let (word, place) = fs.at_both(layout::Layout::bitmap_word(block), offset, "lines of a magazine")?;
        self.lines += i64::from(count);
        Ok((offset, place, SetBits { word, bits }))
    }

    /// Allocates up to `want` contiguous blocks, after block `near` if that is
    /// free (0: anywhere); returns the first and how many. `ENOSPC`.
    pub(crate) fn blocks(&mut self, want: u64, near: u64) -> Result<(u64, u64)> {
        if fault::strikes(fault::Kind::Space) {
            return Err(Errno::ENOSPC.into());
        }
        let (block, count) = self.fs.reserve_blocks(self.number, self.state, want, near)?;
        self.push(Op::SetRun { at: layout::Layout::bitmap_word(block), count })?;
        self.lines += (count * layout::LINES_PER_BLOCK) as i64;
        Ok((block, count))
    }

    /// As [`Tx::blocks`], of just `want` blocks; returns the first.
    pub(crate) fn run(&mut self, want: u64, near: u64) -> Result<u64> {
        if fault::strikes(fault::Kind::Space) {
            return Err(Errno::ENOSPC.into());
        }
        let block = self.fs.reserve_run(self.number, self.state, want, near)?;
        self.set_run(block, want)
    }

    /// As [`Tx::run`], of the blocks kept back for an operation that frees as many.
    pub(crate) fn spare_run(&mut self, want: u64) -> Result<u64> {
        if fault::strikes(fault::Kind::Spare) {
            return Err(Errno::ENOSPC.into());
        }
        let block = self.fs.take_spare(self.state, want)?;
        self.spare = true;
        self.set_run(block, want)
    }

    fn set_run(&mut self, block: u64, count: u64) -> Result<u64> {
        self.push(Op::SetRun { at: layout::Layout::bitmap_word(block), count })?;
        self.lines += (count * layout::LINES_PER_BLOCK) as i64;
        Ok(block)
    }

    /// As [`Tx::blocks`], for the slots of a directory.
    pub(crate) fn slot_blocks(&mut self, want: u64, near: u64) -> Result<(u64, u64)> {
        if fault::strikes(fault::Kind::Space) {
            return Err(Errno::ENOSPC.into());
        }
        let (block, count) = self.fs.reserve_slot_blocks(self.number, self.state, want, near)?;
        self.push(Op::SetRun { at: layout::Layout::bitmap_word(block), count })?;
        self.lines += (count * layout::LINES_PER_BLOCK) as i64;
        Ok((block, count))
    }

    /// Frees `count` lines at `offset`, all in one block.
    pub(crate) fn free_lines(&mut self, offset: u64, count: u32) -> Result<()> {
        if !self.fs.is_allocatable(offset / layout::BLOCK, 1) {
            return Err(crate::fs::corrupt("lines to be freed", offset));
        }
        let ClearBits { word, bits, .. } = self.old_lines(offset, count)?;
        self.clear_bits(self.fs.image.offset_of(word), bits)?;
        self.frees = true;
        Ok(())
    }

    /// As [`Tx::free_lines`], for lines that something has been read from, so
    /// that they are in the image; the store that frees them is the caller's to
    /// put into the record.
    #[inline]
    pub(crate) fn old_lines(&mut self, offset: u64, count: u32) -> Result<ClearBits<'a>> {
        let first = offset % layout::BLOCK / LINE;
        let (block, count) = (offset / layout::BLOCK, u64::from(count));
        if first + count > 64 || count == 0 || block < u64::from(self.fs.first_block) {
            return Err(crate::fs::corrupt("lines to be freed", offset));
        }
        let fs = self.fs;
        let word = fs.at(layout::Layout::bitmap_word(block), "bitmap word")?;
        self.lines -= count as i64;
        Ok(ClearBits { word, bits: (u64::MAX >> (64 - count)) << first, block, count: count as u32 })
    }

    /// Frees `count` blocks from `block` on.
    pub(crate) fn free_blocks(&mut self, block: u64, count: u64) -> Result<()> {
        if count == 0 || count >= 1 << 24 || !self.fs.is_allocatable(block, count) {
            return Err(crate::fs::corrupt("blocks to be freed", block * layout::BLOCK));
        }
        self.push(Op::ClearRun { at: layout::Layout::bitmap_word(block), count })?;
        self.lines -= (count * layout::LINES_PER_BLOCK) as i64;
        self.frees = true;
        Ok(())
    }
}

impl Tx<'_> {
    /// Whether anything is reserved that no commit has used.
    fn has_reserved(&self) -> bool {
        let state = self.state;
        let reserved = state.reserved_count.load(Relaxed) != 0;
        reserved || state.slot.load(Relaxed) != 0 || state.taken.iter().any(|taken| taken.load(Relaxed) != 0)
    }

    /// Ends the operation, as dropping it does.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        if self.has_reserved() {
            self.give_up();
        }
        self.leave_directories();
        self.unlock_all();
        self.over = true;
    }
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.over {
            self.end();
        }
    }
}
