//! Blocks kept back for what frees space.
//!
//! Who frees may need a block first: a hole in the middle of an extent makes two of one, a smaller set of
//! attributes is written aside. Where the image has no more, such blocks come from here: single ones for
//! the nodes of maps, and a run that lies together for attributes. What is freed makes up for them.
//!
//! They are taken in the reservation bitmap, and listed in the header of the segment; the bitmap calls them free, so
//! nothing of this outlives the segment. They are set aside when a lane first looks for room, and before
//! anybody takes another block while some are missing.
//!
//! Invariants
//! - A block comes here from a lane's list, or goes to one, so that it is in both for a moment: whoever
//!   dies in between leaves it where it is to stay (`settle_reservations`).
//! - Nobody waits here. Where another lane is filling it, one goes on without.

use super::reservation::CHUNK_BLOCKS;
use crate::fs::Fs;
use crate::segment::LaneState;
use crate::segment::lane_state::HELD_MAX;
use base::{Error, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use format::BLOCK;
use format::layout::Layout;
use pm::Errno;

/// Longest run, blocks: the largest set of attributes.
const RUN_MAX: u64 = format::xattr::ALL_MAX / BLOCK;
/// Part of the image that the run may be: a smaller image keeps less.
const PART: u64 = 256;
/// How often others may be faster.
const TRIES: u32 = 1000;
/// Chunks that are gone through for a run, where there is another way: a few hundred microseconds at most.
const CHUNKS_MAX: usize = 64;
/// In `Spare::patience`: nothing is missing.
const WHOLE: u32 = u32::MAX;
/// After what was missing could not be had: allocations before the next try.
const PATIENCE: u32 = 64;

/// First block and number of a run, as its word has it.
fn unpack(run: u64) -> (u64, u64) {
    (run & 0xff_ffff_ffff, run >> 40)
}

const fn pack(first: u64, count: u64) -> u64 {
    first | count << 40
}

impl Fs {
    /// Before room is taken, `blocks` or lines: sees to it that what is kept back is there, as far as possible.
    #[inline]
    pub(super) fn keep_spare(&self, number: u32, state: &LaneState, blocks: bool) {
        if self.header().spare.patience.load(Relaxed) != WHOLE {
            self.make_up(number, state, blocks);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_up(&self, number: u32, state: &LaneState, blocks: bool) {
        let spare = &self.header().spare;
        // Whole blocks go to the single ones first.
        let is_urgent = blocks && spare.blocks.iter().any(|kept| kept.load(Relaxed) == 0);
        match spare.patience.load(Relaxed) {
            WHOLE => {}
            left @ 1.. if !is_urgent => spare.patience.store(left - 1, Relaxed),
            _ => self.fill_spare(number, state),
        }
    }

    /// Whether a block is kept back.
    pub(super) fn is_spare(&self, block: u64) -> bool {
        let spare = &self.header().spare;
        let (first, count) = unpack(spare.run.load(Acquire));
        (first..first + count).contains(&block) || spare.blocks.iter().any(|kept| kept.load(Acquire) == block && block != 0)
    }

    /// How many blocks are to be kept back.
    pub(crate) fn spare_max(&self) -> u64 {
        self.spare_run_max() + self.header().spare.blocks.len() as u64
    }

    /// How long the run is to be.
    fn spare_run_max(&self) -> u64 {
        (self.layout.block_count() / PART).min(RUN_MAX)
    }

    /// How many blocks are kept back.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn spare_blocks(&self) -> u64 {
        let spare = &self.header().spare;
        let singles = spare.blocks.iter().filter(|kept| kept.load(Relaxed) != 0).count();
        unpack(spare.run.load(Relaxed)).1 + singles as u64
    }

    fn fill_spare(&self, number: u32, state: &LaneState) {
        let spare = &self.header().spare;
        // In the last place, which operations do not reach.
        let listed = &state.held[HELD_MAX - 1];
        listed.store(self.segment.offset_of(&spare.lock), Release);
        if spare.lock.compare_exchange(0, number + 1, AcqRel, Relaxed).is_ok() {
            // First: who takes something meanwhile says that it is missing. And whoever dies here leaves it so.
            spare.patience.store(PATIENCE, Release);
            let filled = self.fill_blocks(number, state).and_then(|blocks| Ok(self.fill_run(number, state)? && blocks));
            if filled == Ok(true) {
                // Who counts down meanwhile has it looked through once more, later.
                let _ = spare.patience.compare_exchange(PATIENCE, WHOLE, AcqRel, Relaxed);
            }
            spare.lock.store(0, Release);
        }
        listed.store(0, Release);
    }

    /// The single blocks; false if some are still missing.
    fn fill_blocks(&self, number: u32, state: &LaneState) -> Result<bool> {
        for kept in &self.header().spare.blocks {
            if kept.load(Acquire) == 0 {
                let (block, count) = self.run_of_a_chunk(number, state, 1)?;
                if count == 0 || !self.try_reserve(state, block, 0, u64::MAX)? {
                    return Ok(false);
                }
                kept.store(block, Release);
                self.unlist_last(state);
            }
        }
        Ok(true)
    }

    /// The run: grows at its end, or gives way to a longer one. False if it could be longer.
    fn fill_run(&self, number: u32, state: &LaneState) -> Result<bool> {
        let run = &self.header().spare.run;
        let want = self.spare_run_max();
        let (first, mut count) = unpack(run.load(Acquire));
        while count != 0 && count < want && self.is_allocatable(first + count, 1) {
            let next = first + count;
            let is_ready = self.ready_chunk_at_once(number, state, next / CHUNK_BLOCKS)?.is_some();
            if !is_ready || self.reservation_word(next)?.load(Relaxed) != 0 || !self.try_reserve(state, next, 0, u64::MAX)? {
                break;
            }
            if run.compare_exchange(pack(first, count), pack(first, count + 1), AcqRel, Relaxed).is_err() {
                self.return_last(number, state);
                return Ok(false);
            }
            self.unlist_last(state);
            count += 1;
        }
        if count >= want {
            return Ok(true);
        }
        let longer = self.run_of_a_chunk(number, state, want)?;
        if longer.1 > count && self.try_reserve(state, longer.0, 0, u64::MAX)? {
            let found = (longer.0, self.extend_reservation(state, longer.1)?);
            let before = pack(first, count);
            if found.1 <= count || run.compare_exchange(before, pack(found.0, found.1), AcqRel, Relaxed).is_err() {
                self.return_last(number, state);
                return Ok(false);
            }
            self.unlist_last(state);
            if count != 0 {
                self.release(number, before, 0);
            }
            count = found.1;
        }
        Ok(count >= want)
    }

    /// Takes `want` blocks that lie together of those kept back, for an operation that frees as many or more. `ENOSPC`.
    #[cold]
    pub(crate) fn take_spare(&self, state: &LaneState, want: u64) -> Result<u64> {
        let spare = &self.header().spare;
        let index = state.reserved_count.load(Relaxed) as usize;
        let entry = state.reserved.get(index).ok_or(Errno::EIO)?;
        entry.bits.store(0, Relaxed);
        let singles = spare.blocks.iter().filter(|_| want == 1);
        for kept in singles {
            let block = kept.load(Acquire);
            if !self.may_be_spare(block, 1) {
                continue;
            }
            entry.run.store(pack(block, 1), Release);
            if kept.compare_exchange(block, 0, AcqRel, Relaxed).is_ok() {
                return Ok(self.taken_from_spare(state, index, block));
            }
            entry.run.store(0, Release);
        }
        for _ in 0..TRIES {
            let run = spare.run.load(Acquire);
            let (first, count) = unpack(run);
            let Some(left) = count.checked_sub(want) else { break };
            let block = first + left;
            if !self.may_be_spare(block, want) {
                break;
            }
            entry.run.store(pack(block, want), Release);
            let rest = if left == 0 { 0 } else { pack(first, left) };
            if spare.run.compare_exchange(run, rest, AcqRel, Relaxed).is_ok() {
                return Ok(self.taken_from_spare(state, index, block));
            }
            entry.run.store(0, Release);
        }
        Err(Errno::ENOSPC.into())
    }

    /// Whether these blocks are nobody's as far as the image knows: a peer may have written anything to the segment.
    fn may_be_spare(&self, block: u64, count: u64) -> bool {
        let is_free = |block| self.image.word(Layout::bitmap_word(block)).is_some_and(|word| word.load(Acquire) == 0);
        self.is_allocatable(block, count) && (block..block + count).all(is_free)
    }

    fn taken_from_spare(&self, state: &LaneState, index: usize, block: u64) -> u64 {
        state.reserved_count.store(index as u32 + 1, Release);
        self.make_up_next();
        block
    }

    /// The next who looks for room makes up for what is missing first: something was taken, or freed in its place.
    pub(crate) fn make_up_next(&self) {
        self.header().spare.patience.store(0, Release);
    }

    /// A run of `want` free blocks within a chunk, the last one there, or the longest that was met; 0 blocks if there was none.
    fn run_of_a_chunk(&self, number: u32, state: &LaneState, want: u64) -> Result<(u64, u64)> {
        let mut longest = (0, 0);
        for chunk in self.chunks_from_hint().filter(|chunk| self.may_have_block(*chunk)).take(CHUNKS_MAX) {
            if !self.has_block(number, state, chunk)? {
                continue;
            }
            let mut count = 0;
            // From its end: files grow upwards.
            for block in (chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS).rev() {
                count = if self.reservation_word(block)?.load(Relaxed) == 0 { count + 1 } else { 0 };
                if count > longest.1 {
                    longest = (block, count);
                }
                if count >= want {
                    return Ok(longest);
                }
            }
        }
        Ok(longest)
    }

    /// Reserves `want` blocks that lie together. `ENOSPC` if there is no such place, and the image cannot grow.
    pub(crate) fn reserve_run(&self, number: u32, state: &LaneState, want: u64, near: u64) -> Result<u64> {
        let mut near = near;
        for _ in 0..TRIES {
            let (first, count) = self.reserve_blocks(number, state, want, near)?;
            if count >= want {
                return Ok(first);
            }
            self.return_last(number, state);
            near = self.place_of_run(number, state, want)?;
        }
        Err(Errno::ENOSPC.into())
    }

    /// Where a run may be: nearby, where the image grows, or anywhere.
    fn place_of_run(&self, number: u32, state: &LaneState, want: u64) -> Result<u64> {
        if let Some(first) = self.find_run(number, state, want, CHUNKS_MAX)? {
            return Ok(first);
        }
        let end = self.root().grown.load(Acquire);
        match self.grow(number) {
            Err(Error::Posix(Errno::ENOSPC)) => {}
            grown => return grown.map(|()| end),
        }
        self.return_stocks(number, state);
        self.find_run(number, state, want, usize::MAX)?.ok_or(Errno::ENOSPC.into())
    }

    /// Where `want` free blocks lie together, also across chunks, in the next `chunks` chunks that may have some.
    fn find_run(&self, number: u32, state: &LaneState, want: u64, chunks: usize) -> Result<Option<u64>> {
        let (mut first, mut next) = (0, 0);
        for chunk in self.chunks_from_hint().filter(|chunk| self.may_have_block(*chunk)).take(chunks) {
            if !self.has_block(number, state, chunk)? {
                continue;
            }
            for block in chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS {
                if self.reservation_word(block)?.load(Relaxed) != 0 {
                    continue;
                }
                if block != next {
                    first = block;
                }
                next = block + 1;
                if next - first >= want {
                    return Ok(Some(first));
                }
            }
        }
        Ok(None)
    }

    /// All chunks, beginning where lanes look for room.
    fn chunks_from_hint(&self) -> impl Iterator<Item = u64> {
        let chunks = self.chunks_in_use();
        let start = u64::from(self.header().chunk_hint.load(Relaxed)) % chunks.max(1);
        (start..chunks).chain(0..start)
    }

    /// Whether a chunk may have a free block: it is not ready, or has as many lines.
    fn may_have_block(&self, chunk: u64) -> bool {
        self.chunk(chunk).is_some_and(|chunk| chunk.ready.load(Acquire) != 1 || chunk.free.load(Relaxed) >= 64)
    }

    /// Makes a chunk ready, unless another lane is at it; whether it may have a free block.
    fn has_block(&self, number: u32, state: &LaneState, chunk: u64) -> Result<bool> {
        let Some(ready) = self.ready_chunk_at_once(number, state, chunk)? else { return Ok(false) };
        self.catch_up(state, chunk, ready)?;
        Ok(ready.free.load(Relaxed) >= 64)
    }

    /// What was reserved last is another's business now.
    fn unlist_last(&self, state: &LaneState) {
        if let Some(last) = (state.reserved_count.load(Relaxed) as usize).checked_sub(1) {
            state.reserved_count.store(last as u32, Release);
            if let Some(entry) = state.reserved.get(last) {
                entry.run.store(0, Release);
            }
        }
    }

    /// Gives back what was reserved last.
    fn return_last(&self, number: u32, state: &LaneState) {
        let last = (state.reserved_count.load(Relaxed) as usize).checked_sub(1);
        if let Some(entry) = last.and_then(|last| state.reserved.get(last)) {
            self.release(number, entry.run.load(Relaxed), entry.bits.load(Relaxed));
            self.unlist_last(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use crate::{Kind, NewNode};
    use format::lane;

    /// An image whose reserve is filled, and the lane of this thread.
    fn filled() -> (TestFs, u32) {
        let test = TestFs::new(64 << 20);
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        test.create(&test.cx(), test.root_node(), b"file", &new).unwrap();
        let number = test.lane_of(&test.cx()).unwrap();
        (test, number)
    }

    /// Goal: what is kept back is there from the first allocation on, nobody gets it but who frees, and what is taken is
    /// made up for by the next who looks for room.
    #[test]
    fn kept_back_and_made_up_for() {
        let (test, number) = filled();
        let (spare, state) = (&test.header().spare, test.lane_state(number));
        assert_eq!((test.spare_blocks(), spare.patience.load(Relaxed)), (RUN_MAX + 7, WHOLE));
        let taken = [1, RUN_MAX, 1].map(|want| test.take_spare(state, want).unwrap());
        assert_eq!((test.spare_blocks(), spare.patience.load(Relaxed)), (5, 0));
        assert!(
            taken.iter().all(|block| !test.is_spare(*block) && test.reservation_word(*block).unwrap().load(Relaxed) == u64::MAX)
        );
        assert!(test.take_spare(state, 2).is_err());
        let (first, _) = test.reserve_blocks(number, state, 1, 0).unwrap();
        assert!(!test.is_spare(first));
        assert_eq!((test.spare_blocks(), spare.patience.load(Relaxed)), (RUN_MAX + 7, WHOLE));
        test.return_reservations(number, state);
        assert_eq!(test.census().reserved_lines, 0);
    }

    /// Goal: what is taken and given back, unused, is kept back again before anybody gets it. Method: another lane tries to
    /// make up for it meanwhile, in vain.
    #[test]
    fn given_back_unused() {
        let (test, _) = filled();
        let mut tx = test.begin(&test.cx(), lane::Kind::Xattr).unwrap();
        tx.spare_run(3).unwrap();
        test.header().spare.patience.store(PATIENCE, Relaxed);
        drop(tx);
        assert_eq!(test.header().spare.patience.load(Relaxed), 0);
    }

    /// Goal: whoever dies while a block goes from here to him, or from him to here, loses nothing, and gives nothing away.
    /// Method: his list says what it says then; he is adopted.
    #[test]
    fn death_between_two_lists() {
        let (test, number) = filled();
        let (spare, state) = (&test.header().spare, test.lane_state(number));
        let used = |block| test.reservation_word(block).unwrap().load(Relaxed) != 0;
        let kept = spare.blocks[0].load(Relaxed);
        state.reserved[0].bits.store(0, Relaxed);
        state.reserved[0].run.store(pack(kept, 1), Relaxed);
        test.settle_reservations(number, state);
        assert!(used(kept) && test.is_spare(kept), "given away");
        let taken = test.take_spare(state, 3).unwrap();
        test.settle_reservations(number, state);
        assert!((taken..taken + 3).all(|block| !used(block)), "lost");
        assert_eq!(test.census().reserved_lines, 0);
    }

    /// Goal: what a peer writes here does no harm. Method: blocks beyond the image, of its tables, and of a file.
    #[test]
    fn nonsense_is_not_taken() {
        let (test, number) = filled();
        let (spare, state) = (&test.header().spare, test.lane_state(number));
        let mut tx = test.begin(&test.cx(), lane::Kind::Write).unwrap();
        let (theirs, _) = tx.blocks(1, 0).unwrap();
        tx.commit().unwrap();
        drop(tx);
        for block in [1, theirs, test.layout.block_count(), u64::MAX, 0xff_ffff_ffff] {
            spare.blocks.iter().for_each(|kept| kept.store(block, Relaxed));
            spare.run.store(pack(block.wrapping_sub(8) & 0xff_ffff_ffff, 9), Relaxed);
            assert!(test.take_spare(state, 1).is_err(), "{block:#x}");
            assert_eq!(state.reserved_count.load(Relaxed), 0);
        }
    }

    /// Goal: a run is found though it lies across two chunks, and where the image must grow for it.
    #[test]
    fn runs_across_chunks_and_beyond_the_end() {
        let (test, number) = filled();
        let state = test.lane_state(number);
        test.grow(number).unwrap();
        let grown = test.root().grown.load(Relaxed);
        let boundary = (test.layout.first_block() / CHUNK_BLOCKS + 2) * CHUNK_BLOCKS;
        assert!(boundary + 9 < grown, "{boundary} {grown}");
        for chunk in 0..grown.div_ceil(CHUNK_BLOCKS) {
            test.ready_chunk(number, state, chunk).unwrap();
        }
        // All but some pieces is somebody's.
        for block in test.layout.first_block()..grown {
            let is_free = (boundary - 5..boundary + 4).contains(&block) || block % 20 == 0;
            test.reservation_word(block).unwrap().store(if is_free { 0 } else { u64::MAX }, Relaxed);
        }
        assert_eq!(test.reserve_run(number, state, 9, 0), Ok(boundary - 5));
        assert_eq!(test.reserve_run(number, state, 9, 0), Ok(grown));
        assert!(test.root().grown.load(Relaxed) > grown);
    }
}
