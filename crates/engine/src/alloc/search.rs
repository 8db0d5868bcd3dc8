//! Finding room: a lane's own chunks first, then any, then the image grows, and
//! only a search of everything may say `ENOSPC`.

use super::Arena;
use super::reservation::CHUNK_BLOCKS;
use crate::fs::Fs;
use crate::segment::LaneState;
use base::Result;
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use pm::Errno;

/// Which of a lane's claimed chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Lines = 0,
    Blocks = 1,
}

/// Where the lowest `count` neighbouring free bits of a word begin, if it has them.
#[inline]
pub(super) fn free_start(word: u64, count: u32) -> Option<u32> {
    let mut starts = !word;
    for _ in 1..count {
        starts &= starts >> 1;
    }
    // `starts` has a bit wherever `count` free bits begin: each step above has
    // shortened every run by one from its upper end.
    NonZeroU64::new(starts).map(NonZeroU64::trailing_zeros)
}

/// `count` (1–64) bits from `start` on.
#[inline]
pub(super) fn run(start: u32, count: u32) -> u64 {
    (u64::MAX >> (64 - count)) << start
}

/// The bits themselves.
#[inline]
pub(super) fn free_run(word: u64, count: u32) -> Option<u64> {
    free_start(word, count).map(|start| run(start, count))
}

/// How often others may be faster at reserving lines of a block, or at using up by what the image has grown.
const TRIES: u32 = 10_000;

impl Fs {
    /// Reserves `count` (1–64) neighbouring lines of one block; with `all`,
    /// everything else that is free in it too, unless the image is nearly full.
    /// Returns (block, bits), which are listed last among the lane's reservations.
    pub(super) fn reserve_lines(
        &self,
        number: u32,
        state: &LaneState,
        count: u32,
        arena: Arena,
        all: bool,
    ) -> Result<(u64, u64)> {
        self.keep_spare(number, state, false);
        // The block that was used up may have got lines back; those that follow
        // in the same chunk are likely to be empty still.
        let last = state.magazine(arena as usize).block.load(Relaxed);
        for block in last..last + 9 {
            let here = last != 0 && block / CHUNK_BLOCKS == last / CHUNK_BLOCKS;
            if here
                && (block == last || self.reservation_word(block)?.load(Relaxed) == 0)
                && let Some(bits) = self.reserve_in(state, block, count, all)?
            {
                return Ok((block, bits));
            }
        }
        self.search(number, state, Claim::Lines, |chunk, empty_only| {
            for block in chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS {
                let word = self.reservation_word(block)?.load(Relaxed);
                if word != 0 && (empty_only || word == u64::MAX) {
                    continue;
                }
                if let Some(bits) = self.reserve_in(state, block, count, all && empty_only)? {
                    return Ok(Some((block, bits)));
                }
            }
            Ok(None)
        })
    }

    /// Reserves lines of a block that has `count` neighbours free: those, or all that are free.
    fn reserve_in(&self, state: &LaneState, block: u64, count: u32, all: bool) -> Result<Option<u64>> {
        let seen = self.reservation_word(block)?.load(Relaxed);
        let Some(bits) = free_run(seen, count) else { return Ok(None) };
        let bits = if all { !seen } else { bits };
        if self.try_reserve(state, block, seen, bits)? {
            return Ok(Some(bits));
        }
        self.reserve_in_again(state, block, count)
    }

    /// Another lane was faster: just what is wanted, a few times.
    #[cold]
    #[inline(never)]
    fn reserve_in_again(&self, state: &LaneState, block: u64, count: u32) -> Result<Option<u64>> {
        for _ in 0..TRIES {
            let seen = self.reservation_word(block)?.load(Relaxed);
            let Some(bits) = free_run(seen, count) else { return Ok(None) };
            if self.try_reserve(state, block, seen, bits)? {
                return Ok(Some(bits));
            }
        }
        Ok(None)
    }

    /// Reserves up to `want` contiguous blocks, from `near` on if that is free: (first, how many).
    pub(crate) fn reserve_blocks(&self, number: u32, state: &LaneState, want: u64, near: u64) -> Result<(u64, u64)> {
        self.keep_spare(number, state, true);
        let want = want.clamp(1, (1 << 24) - 1);
        for start in [near, state.cursor.load(Relaxed)] {
            if start != 0 && self.is_allocatable(start, 1) {
                if self.ready_chunk_at_once(number, state, start / CHUNK_BLOCKS)?.is_none() {
                    continue;
                }
                if self.reservation_word(start)?.load(Relaxed) == 0 && self.try_reserve(state, start, 0, u64::MAX)? {
                    return self.extend_run(number, state, start, want);
                }
            }
        }
        let (first, _) = self.search(number, state, Claim::Blocks, |chunk, _| {
            for block in chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS {
                if self.reservation_word(block)?.load(Relaxed) == 0 && self.try_reserve(state, block, 0, u64::MAX)? {
                    return Ok(Some((block, u64::MAX)));
                }
            }
            Ok(None)
        })?;
        self.extend_run(number, state, first, want)
    }

    /// Reserves up to `want` contiguous blocks among those of inodes and
    /// edentries, for the slots of a directory: a scan of many directories then
    /// meets few pages of memory, and no file's data between them.
    pub(crate) fn reserve_slot_blocks(&self, number: u32, state: &LaneState, want: u64, near: u64) -> Result<(u64, u64)> {
        self.keep_spare(number, state, true);
        if near != 0
            && self.is_allocatable(near, 1)
            && self.ready_chunk_at_once(number, state, near / CHUNK_BLOCKS)?.is_some()
            && self.reservation_word(near)?.load(Relaxed) == 0
            && self.try_reserve(state, near, 0, u64::MAX)?
        {
            return Ok((near, self.extend_reservation(state, want)?));
        }
        // Where the last one was found; everything before it is taken, as a rule.
        let hint = &state.slot_block;
        let (first, _) = self.search(number, state, Claim::Lines, |chunk, _| {
            let (begin, end) = (chunk * CHUNK_BLOCKS, (chunk + 1) * CHUNK_BLOCKS);
            let from = hint.load(Relaxed).clamp(begin, end);
            for block in (from..end).chain(begin..from) {
                if self.reservation_word(block)?.load(Relaxed) == 0 && self.try_reserve(state, block, 0, u64::MAX)? {
                    return Ok(Some((block, u64::MAX)));
                }
            }
            Ok(None)
        })?;
        hint.store(first, Relaxed);
        Ok((first, self.extend_reservation(state, want)?))
    }

    /// Makes the chunks that a run may reach ready, and extends it.
    fn extend_run(&self, number: u32, state: &LaneState, first: u64, want: u64) -> Result<(u64, u64)> {
        let last = (first + want).min(self.root().grown.load(Acquire).min(self.layout.block_count()));
        for chunk in first / CHUNK_BLOCKS + 1..last.div_ceil(CHUNK_BLOCKS) {
            if self.ready_chunk_at_once(number, state, chunk)?.is_none() {
                break;
            }
        }
        let count = self.extend_reservation(state, want)?;
        state.cursor.store(first + count, Relaxed);
        Ok((first, count))
    }

    /// Looks for a chunk in which `take` succeeds: the claimed one; unclaimed
    /// ones with empty blocks; growth; any chunk; ENOSPC.
    fn search(
        &self,
        number: u32,
        state: &LaneState,
        claim: Claim,
        take: impl Fn(u64, bool) -> Result<Option<(u64, u64)>>,
    ) -> Result<(u64, u64)> {
        let claimed = state.chunks[claim as usize].load(Relaxed);
        if claimed != 0 {
            self.ready_chunk(number, state, claimed - 1)?;
            if let Some(found) = take(claimed - 1, true)? {
                return Ok(found);
            }
        }
        for _ in 0..TRIES {
            if let Some(found) = self.search_unclaimed(number, state, claim, &take)? {
                return Ok(found);
            }
            // Growing is better than crowding, up to the limit.
            match self.grow(number) {
                Ok(()) => {}
                Err(base::Error::Posix(Errno::ENOSPC)) => break,
                Err(error) => return Err(error),
            }
        }
        // No more blocks: what is kept back counts too.
        self.return_stocks(number, state);
        if let Some(found) = self.search_everything(number, state, &take)? {
            return Ok(found);
        }
        for other in 0..self.header().lanes_high.get() {
            if other != number {
                self.adopt_if_dead(other);
            }
        }
        self.search_everything(number, state, &take)?.ok_or(Errno::ENOSPC.into())
    }

    /// Looks into every chunk, however full.
    fn search_everything(
        &self,
        number: u32,
        state: &LaneState,
        take: &impl Fn(u64, bool) -> Result<Option<(u64, u64)>>,
    ) -> Result<Option<(u64, u64)>> {
        let mut in_loading = false;
        for chunk in 0..self.chunks_in_use() {
            if self.ready_chunk_at_once(number, state, chunk)?.is_none() {
                in_loading = true;
            } else if let Some(found) = take(chunk, false)? {
                return Ok(Some(found));
            }
        }
        // Those that somebody is loading last: that one may be stopped.
        for chunk in (0..self.chunks_in_use()).filter(|_| in_loading) {
            self.ready_chunk(number, state, chunk)?;
            if let Some(found) = take(chunk, false)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Claims the next chunk that nobody has claimed and that has a free block.
    fn search_unclaimed(
        &self,
        number: u32,
        state: &LaneState,
        claim: Claim,
        take: &impl Fn(u64, bool) -> Result<Option<(u64, u64)>>,
    ) -> Result<Option<(u64, u64)>> {
        let chunks = self.chunks_in_use();
        let start = u64::from(self.header().chunk_hint.load(Relaxed)) % chunks.max(1);
        for i in 0..chunks {
            let number_of_chunk = (start + i) % chunks;
            let Some(chunk) = self.ready_chunk_at_once(number, state, number_of_chunk)? else { continue };
            self.catch_up(state, number_of_chunk, chunk)?;
            if chunk.free.load(Relaxed) < 64 || !self.claim_chunk(chunk, number) {
                continue;
            }
            let before = state.chunks[claim as usize].swap(number_of_chunk + 1, AcqRel);
            if let Some(left) = before.checked_sub(1).and_then(|before| self.chunk(before)) {
                let _ = left.claim.compare_exchange(number + 1, 0, AcqRel, Relaxed);
            }
            if let Some(found) = take(number_of_chunk, true)? {
                self.header().chunk_hint.store(number_of_chunk as u32, Relaxed);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Claims a chunk, also from a lane that is no longer in use.
    fn claim_chunk(&self, chunk: &crate::segment::Chunk, number: u32) -> bool {
        let holder = chunk.claim.load(Relaxed);
        let stale = holder != 0 && {
            let state = self.lane_state(holder - 1);
            let at =
                self.segment.offset_of(chunk).wrapping_sub(self.areas.chunks) / size_of::<crate::segment::Chunk>() as u64 + 1;
            state.chunks.iter().all(|claimed| claimed.load(Relaxed) != at)
        };
        (holder == 0 || stale) && chunk.claim.compare_exchange(holder, number + 1, AcqRel, Relaxed).is_ok()
    }

    /// Chunks that have blocks with real space.
    pub(super) fn chunks_in_use(&self) -> u64 {
        self.root().grown.load(Acquire).min(self.layout.block_count()).div_ceil(CHUNK_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::free_run;

    /// Goal: runs are found where they are, lowest first. Method: against a plain search.
    #[test]
    fn finds_the_lowest_run() {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..2000 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ 0x1234;
            let dense = word | word.rotate_left(9);
            for count in 1..=64u32 {
                let mask = u64::MAX >> (64 - count);
                let expected = (0..=64 - count).map(|s| mask << s).find(|m| dense & m == 0);
                assert_eq!(free_run(dense, count), expected, "{dense:x} {count}");
            }
        }
        assert_eq!(free_run(0, 64), Some(u64::MAX));
        assert_eq!(free_run(u64::MAX, 1), None);
    }
}
