//! The reservation bitmap: reservations, their return, and freed space.

use super::arena;
use crate::fs::{Fs, corrupt};
use crate::lane::lock::Waiter;
use crate::segment::lane_state::{RESERVED_MAX, Reserved};
use crate::segment::{Chunk, LaneState};
use base::Result;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};
use format::Lane;
use format::lane::{Op, State};
use format::layout::{self, Layout};
use pm::Errno;

/// Blocks in a chunk of the reservation bitmap.
pub(crate) const CHUNK_BLOCKS: u64 = 512;

/// Steps in which a chunk has all its blocks, however many lanes want the same one.
const CATCHES: u32 = 1 << 20;
/// How often the reservation word of a block may change while one who adopts looks at it.
const LOOKS: u32 = 1 << 16;
/// How often, and for how long each time, one who adopts waits until others have given back what they freed:
/// 10 ms for all that a lane lists, since a peer may have written anything there.
pub(super) const WAITS: u32 = 200;
const NAP: i64 = 50_000;

/// How many blocks of a chunk lie below block `end`.
fn blocks_below(chunk: u64, end: u64) -> u32 {
    end.saturating_sub(chunk * CHUNK_BLOCKS).min(CHUNK_BLOCKS) as u32
}

/// Value of `Chunk::ready` while lane `number` loads the chunk.
pub(crate) const fn loading_by(number: u32) -> u32 {
    (number + 1) << 8 | 2
}

impl Fs {
    /// Whether these blocks are for allocation at all (not superblock, tables, bitmap) and have grown.
    #[inline]
    pub(crate) fn is_allocatable(&self, block: u64, count: u64) -> bool {
        block >= self.layout.first_block()
            && block.checked_add(count).is_some_and(|end| end <= self.root().grown.load(Acquire).min(self.layout.block_count()))
    }

    /// A chunk of the reservation bitmap.
    #[inline]
    pub(crate) fn chunk(&self, number: u64) -> Option<&Chunk> {
        let count = self.layout.block_count().div_ceil(CHUNK_BLOCKS);
        if number >= count {
            return None;
        }
        self.segment.at(self.areas.chunks + number * size_of::<Chunk>() as u64)
    }

    /// The reservation word of a block whose chunk is ready.
    #[inline]
    pub(crate) fn reservation_word(&self, block: u64) -> Result<&AtomicU64> {
        // A number from the segment may be any: what wraps is out of bounds, or harmless.
        self.segment
            .word(self.areas.reservations.wrapping_add(block.wrapping_mul(8)))
            .ok_or_else(|| corrupt("reservation bitmap", block))
    }

    /// The reservation words of the blocks of a chunk that is ready, or is being made so.
    fn reservation_words(&self, chunk_number: u64) -> Result<&[AtomicU64]> {
        let at = self.areas.reservations.wrapping_add(chunk_number.wrapping_mul(CHUNK_BLOCKS * 8));
        self.segment.words(at, CHUNK_BLOCKS as usize).ok_or_else(|| corrupt("reservation bitmap", chunk_number))
    }

    /// Makes a chunk usable: loads its reservations from the bitmap if nobody has yet.
    #[inline]
    pub(crate) fn ready_chunk(&self, number: u32, state: &LaneState, chunk_number: u64) -> Result<&Chunk> {
        let chunk = self.chunk(chunk_number).ok_or(corrupt("chunk number", chunk_number))?;
        if chunk.ready.load(Acquire) != 1 {
            self.load_chunk(number, state, chunk_number, chunk)?;
        }
        Ok(chunk)
    }

    /// As [`Fs::ready_chunk`]; `None` while another lane loads the chunk, who may be stopped: there are others.
    #[inline]
    pub(super) fn ready_chunk_at_once(&self, number: u32, state: &LaneState, chunk_number: u64) -> Result<Option<&Chunk>> {
        if self.is_loading(number, chunk_number) {
            return Ok(None);
        }
        self.ready_chunk(number, state, chunk_number).map(Some)
    }

    /// Whether a lane other than `number` that lives is loading a chunk.
    #[inline]
    pub(super) fn is_loading(&self, number: u32, chunk_number: u64) -> bool {
        let ready = self.chunk(chunk_number).map_or(1, |chunk| chunk.ready.load(Acquire));
        ready > 1 && ready != loading_by(number) && !self.adopt_if_dead((ready >> 8).wrapping_sub(1))
    }

    #[cold]
    #[inline(never)]
    fn load_chunk(&self, number: u32, state: &LaneState, chunk_number: u64, chunk: &Chunk) -> Result<()> {
        self.segment_space(self.areas.reservations + chunk_number * CHUNK_BLOCKS * 8, CHUNK_BLOCKS * 8)?;
        let mut wait = Waiter::of(number);
        state.loading.store(chunk_number + 1, Release);
        loop {
            match chunk.ready.compare_exchange(0, loading_by(number), AcqRel, Acquire) {
                Ok(_) => break,
                Err(1) => {
                    state.loading.store(0, Release);
                    return Ok(());
                }
                Err(holder) if wait.once(self, holder >> 8) && !wait.is_nonsense() => {}
                Err(_) if wait.is_nonsense() => {
                    state.loading.store(0, Release);
                    return Err(corrupt("chunk of the reservation bitmap", chunk_number));
                }
                // Nobody is loading it.
                Err(holder) => {
                    let _ = chunk.ready.compare_exchange(holder, 0, AcqRel, Relaxed);
                }
            }
        }
        let grown = self.root().grown.load(Acquire).min(self.layout.block_count());
        let (blocks, usable) = (chunk_number * CHUNK_BLOCKS..(chunk_number + 1) * CHUNK_BLOCKS, self.layout.first_block()..grown);
        let words = self.reservation_words(chunk_number)?;
        let first = usable.start.max(blocks.start).min(blocks.end);
        let count = usable.end.clamp(first, blocks.end) - first;
        let (before, rest) = words.split_at((first - blocks.start) as usize);
        let (known, behind) = rest.split_at(count as usize);
        let bitmap = self.words(Layout::bitmap_word(first), known.len(), "bitmap word")?;
        // Blocks past the end count as taken; `catch_up` frees them later.
        before.iter().chain(behind).for_each(|reserved| reserved.store(u64::MAX, Relaxed));
        known.iter().zip(bitmap).for_each(|(reserved, word)| reserved.store(word.load(Acquire), Relaxed));
        // After the bitmap was read. These come back to the reservation bitmap when their records say so: whoever
        // gives them back waits until the chunk is ready, and does not pass it by.
        for number in 0..self.header().lanes_high.get() {
            self.each_freed(number, &blocks, |block, bits| {
                if let Ok(reserved) = self.reservation_word(block) {
                    reserved.fetch_or(bits, Relaxed);
                }
            });
        }
        chunk.free.store(words.iter().map(|reserved| reserved.load(Relaxed).count_zeros()).sum(), Relaxed);
        chunk.known.store(blocks_below(chunk_number, grown), Relaxed);
        chunk.ready.store(1, Release);
        state.loading.store(0, Release);
        // Whoever made the image grow meanwhile has passed this chunk by, or sees that it is ready.
        fence(SeqCst);
        self.catch_up(state, chunk_number, chunk)
    }

    /// Tells `each` which lines of `blocks` the record of a lane frees, if the reservation bitmap has not got all back yet.
    fn each_freed(&self, number: u32, blocks: &Range<u64>, mut each: impl FnMut(u64, u64)) {
        let (lane, released) = (self.lane(number), &self.lane_state(number).released);
        let stamp = State::stamp(lane.state.load(Acquire));
        // Nobody has used the lane since the segment was made, or the reservation bitmap has got back all.
        if [0, stamp].contains(&released.load(Acquire)) {
            return;
        }
        for (first, count, bits) in self.freed(lane, State::ops_of(stamp)) {
            fence(Acquire);
            // Else it has been given back, and perhaps this was written since then.
            if State::stamp(lane.state.load(Relaxed)) != stamp || released.load(Acquire) == stamp {
                return;
            }
            for block in first.max(blocks.start)..(first + count).min(blocks.end) {
                each(block, bits);
            }
        }
    }

    /// What the first `count` operations of a lane's record free, as `freed_by` says it.
    fn freed(&self, lane: &Lane, count: usize) -> impl Iterator<Item = (u64, u64, u64)> {
        let ops = lane.ops.iter().take(count).filter_map(|op| Op::unpack(op.place.load(Relaxed), op.value.load(Relaxed)));
        ops.filter_map(|op| self.freed_by(op))
    }

    /// The first block that a record's operation frees lines of, the number of such blocks, and which lines of each.
    fn freed_by(&self, op: Op) -> Option<(u64, u64, u64)> {
        let (at, count, bits) = match op {
            Op::ClearBits { at, bits } => (at, 1, bits),
            Op::ClearRun { at, count } => (at, count, u64::MAX),
            _ => return None,
        };
        // Bits of other words, such as an inode's flags, are nothing that was allocated.
        let first = at.wrapping_sub(layout::BITMAP) / 8;
        self.is_allocatable(first, count).then_some((first, count, bits))
    }

    /// The image has grown from block `from` to block `to`: a chunk that was
    /// loaded before gets the new blocks.
    pub(crate) fn chunks_grew(&self, state: &LaneState, from: u64, to: u64) -> Result<()> {
        // After the new size, before a look at the chunks: see `load_chunk`.
        fence(SeqCst);
        for number in from / CHUNK_BLOCKS..to.div_ceil(CHUNK_BLOCKS) {
            let Some(chunk) = self.chunk(number) else { break };
            // Nearly all are not: growth would cost each append some 300 instructions.
            if chunk.ready.load(Acquire) == 1 {
                self.catch_up(state, number, chunk)?;
            }
        }
        Ok(())
    }

    /// Lets a chunk that is ready have the blocks by which the image has grown
    /// since it was loaded. Whoever made it grow does so, and whoever looks for
    /// room, in case that one died in between.
    #[inline]
    pub(super) fn catch_up(&self, state: &LaneState, number: u64, chunk: &Chunk) -> Result<()> {
        if u64::from(chunk.known.load(Relaxed)) < CHUNK_BLOCKS {
            self.catch_up_slowly(state, number, chunk)?;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn catch_up_slowly(&self, state: &LaneState, number: u64, chunk: &Chunk) -> Result<()> {
        // In the last place, which operations nearly never reach: one who adopts a lane lists there too.
        let is_free = (state.reserved_count.load(Relaxed) as usize) < RESERVED_MAX - 1;
        let listed = state.reserved.last().filter(|_| is_free);
        let caught_up = self.catch_up_listed(number, chunk, listed);
        if let Some(entry) = listed {
            entry.run.store(0, Release);
        }
        caught_up
    }

    fn catch_up_listed(&self, number: u64, chunk: &Chunk, listed: Option<&Reserved>) -> Result<()> {
        let end = blocks_below(number, self.root().grown.load(Acquire).min(self.layout.block_count()));
        let mut known = chunk.known.load(Acquire);
        for _ in 0..CATCHES {
            if known >= end {
                return Ok(());
            }
            let block = number * CHUNK_BLOCKS + u64::from(known);
            // Listed while it may be ours, so that death does not lose it: see `settle_reservations`.
            if let Some(entry) = listed {
                entry.bits.store(u64::MAX, Relaxed);
                entry.run.store(block | 1 << 40, Release);
            }
            let word = self.at::<AtomicU64>(Layout::bitmap_word(block), "bitmap word")?.load(Acquire);
            // A block is one's own before it is let go of: once others may take it, nobody may free it again.
            match chunk.known.compare_exchange(known, known + 1, AcqRel, Acquire) {
                Ok(_) => {
                    self.reservation_word(block)?.store(word, Release);
                    chunk.free.fetch_add(word.count_zeros(), Relaxed);
                    known += 1;
                }
                Err(now) => known = now,
            }
        }
        Err(corrupt("chunk of the reservation bitmap", number))
    }

    /// Reserves `bits` of a block's word, whose reservations were last seen as `seen`. False if another was faster.
    #[inline]
    pub(crate) fn try_reserve(&self, state: &LaneState, block: u64, seen: u64, bits: u64) -> Result<bool> {
        let index = state.reserved_count.load(Relaxed) as usize;
        if index >= RESERVED_MAX {
            return Err(Errno::EIO.into());
        }
        let entry = &state.reserved[index];
        // Tentative until the count covers it: see `settle_reservations`.
        entry.bits.store(bits, Relaxed);
        entry.run.store(block | 1 << 40, Release);
        if self.reservation_word(block)?.compare_exchange(seen, seen | bits, AcqRel, Relaxed).is_err() {
            entry.run.store(0, Relaxed);
            return Ok(false);
        }
        state.reserved_count.store(index as u32 + 1, Release);
        if let Some(chunk) = self.chunk(block / CHUNK_BLOCKS) {
            chunk.free.fetch_sub(bits.count_ones(), Relaxed);
        }
        Ok(true)
    }

    /// Extends the reservation made last (a whole block) by the blocks that
    /// follow it, up to `want` in all; returns how many it has now.
    pub(crate) fn extend_reservation(&self, state: &LaneState, want: u64) -> Result<u64> {
        let index = state.reserved_count.load(Relaxed) as usize;
        let entry = &state.reserved[index.wrapping_sub(1) % RESERVED_MAX];
        let (first, mut count) = (entry.run.load(Relaxed) & 0xff_ffff_ffff, 1);
        // Each further block is listed by itself while it is being taken: see `settle_reservations`.
        let Some(tentative) = state.reserved.get(index) else { return Ok(count) };
        tentative.bits.store(u64::MAX, Relaxed);
        entry.bits.store(0, Release);
        let grown = self.root().grown.load(Acquire).min(self.layout.block_count());
        while count < want && first + count < grown {
            let next = first + count;
            let Some(chunk) = self.chunk(next / CHUNK_BLOCKS) else { break };
            if chunk.ready.load(Acquire) != 1 || self.reservation_word(next)?.load(Relaxed) != 0 {
                break;
            }
            tentative.run.store(next | 1 << 40, Release);
            if self.reservation_word(next)?.compare_exchange(0, u64::MAX, AcqRel, Relaxed).is_err() {
                break;
            }
            count += 1;
            entry.run.store(first | count << 40, Release);
            chunk.free.fetch_sub(64, Relaxed);
        }
        tentative.run.store(0, Relaxed);
        Ok(count)
    }

    /// Gives back what an operation reserved and no record used.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_reservations(&self, number: u32, state: &LaneState) {
        let count = (state.reserved_count.load(Acquire) as usize).min(RESERVED_MAX);
        for entry in &state.reserved[..count] {
            let (run, bits) = (entry.run.load(Relaxed), entry.bits.load(Relaxed));
            // A record may have committed before its lane died: then the bits are the image's.
            self.release(number, run, bits);
            entry.run.store(0, Release);
        }
        state.reserved_count.store(0, Release);
    }

    /// Gives back to the reservation bitmap what the first `count` stores of lane `number`'s
    /// record have freed in the bitmap. The record is gone: else it could be made
    /// again, over what is another's by then.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_freed(&self, number: u32, count: usize) {
        for (first, count, bits) in self.freed(self.lane(number), count) {
            (first..first + count).for_each(|block| self.release_lines(number, block, bits, bits.count_ones()));
        }
    }

    /// After a death: gives back to the reservation bitmap what the lane's last record has
    /// freed, some of which may have been given back and taken by others already.
    pub(crate) fn release_freed_again(&self, number: u32) {
        let (lane, mut waits) = (self.lane(number), WAITS);
        for (first, count, bits) in self.freed(lane, State::ops_of(State::stamp(lane.state.load(Acquire)))) {
            (first..first + count).for_each(|block| {
                if self.ready_chunk(number, self.lane_state(number), block / CHUNK_BLOCKS).is_ok() {
                    self.release_own(number, block, bits, &mut waits);
                }
            });
        }
    }

    /// Frees `bits` of a block, of which there are `count`, in the reservation bitmap: lane `number` has freed them in the bitmap.
    #[inline]
    pub(crate) fn release_lines(&self, number: u32, block: u64, bits: u64, count: u32) {
        // What lies behind the image has no chunk, or one that is not ready.
        if let Ok(at) = u32::try_from(block)
            && let Some(chunk) = self.chunks.get(at / CHUNK_BLOCKS as u32)
            && chunk.ready.load(Acquire) == 1
            && let Some(reserved) = self.reservations.get(at)
        {
            reserved.fetch_and(!bits, AcqRel);
            chunk.free.fetch_add(count, Relaxed);
            return;
        }
        self.release_elsewhere(number, block, bits);
    }

    /// The chunk is not ready. Passed by, it might be loaded this very moment by
    /// one who has seen that the record frees these lines: so it is loaded first.
    /// Where there is no room for it, it stays unloaded, and the bitmap alone counts.
    #[cold]
    #[inline(never)]
    fn release_elsewhere(&self, number: u32, block: u64, bits: u64) {
        // Whoever is loading it is at it for microseconds, but for one who is stopped: then these lines are lost
        // until there is a new segment.
        let mut turns = 0;
        while self.is_loading(number, block / CHUNK_BLOCKS) {
            if !pm::file::pause(turns) {
                return;
            }
            turns += 1;
        }
        let chunk = self.ready_chunk(number, self.lane_state(number), block / CHUNK_BLOCKS);
        if let (Ok(chunk), Ok(reserved)) = (chunk, self.reservation_word(block)) {
            let before = reserved.fetch_and(!bits, AcqRel);
            chunk.free.fetch_add((before & bits).count_ones(), Relaxed);
        }
    }

    /// Clears those of the bits reserved in the reservation bitmap that the bitmap does not have, for lane `number`.
    pub(super) fn release(&self, number: u32, run: u64, bits: u64) {
        let (block, count) = (run & 0xff_ffff_ffff, (run >> 40).max(1));
        let bits = if bits == 0 { u64::MAX } else { bits };
        // A chunk that was waited for in vain is not waited for again for each of its blocks.
        let mut given_up = None;
        for block in block..block + count {
            let at = block / CHUNK_BLOCKS;
            let Some(chunk) = self.chunk(at) else { return };
            // Not loaded: the bitmap alone counts. Being loaded: the loader may
            // have read the word before it was cleared, so wait for him.
            let mut wait = Waiter::of(number);
            let ready = loop {
                match chunk.ready.load(Acquire) {
                    0 => break false,
                    1 => break true,
                    holder if given_up != Some(at) && wait.once(self, holder >> 8) && !wait.is_nonsense() => {}
                    _ => {
                        given_up = Some(at);
                        break false;
                    }
                }
            };
            if !ready {
                continue;
            }
            let Some(used) = self.image.word(Layout::bitmap_word(block)) else { return };
            let bits = bits & !used.load(Acquire);
            if let Ok(reserved) = self.reservation_word(block) {
                let before = reserved.fetch_and(!bits, AcqRel);
                chunk.free.fetch_add((before & bits).count_ones(), Relaxed);
            }
        }
    }

    /// After a death: gives back what the lane lists, for certain or perhaps made,
    /// or perhaps given back already. It is the lane's if the reservation bitmap has it, the
    /// bitmap has not, and no other lane lists it (a lane lists before it takes).
    /// Whoever dies here leaves the list to the next adopter.
    pub(crate) fn settle_reservations(&self, number: u32, state: &LaneState) {
        // Of one lane's entries only those for a single block share it. Who lists more than the image means harm.
        let (mut left, mut waits) = (self.layout.block_count() + RESERVED_MAX as u64, WAITS);
        for entry in &state.reserved {
            let (run, bits) = (entry.run.load(Acquire), entry.bits.load(Relaxed));
            let bits = if bits == 0 { u64::MAX } else { bits };
            let blocks = self.listed_blocks(run, left);
            left -= blocks.end - blocks.start;
            for block in blocks {
                // What is in an arena is given back with it.
                self.release_own(number, block, bits & !arena::in_magazines(state, block), &mut waits);
            }
            entry.run.store(0, Release);
        }
        state.reserved_count.store(0, Release);
    }

    /// The blocks of a list's entry that the image has; no more than `max`.
    fn listed_blocks(&self, run: u64, max: u64) -> Range<u64> {
        let (first, count) = (run & 0xff_ffff_ffff, (run >> 40).min(max));
        let end = (first + count).min(self.layout.block_count());
        first.min(end)..end
    }

    /// Clears those of `bits` in the reservation bitmap of a block that can only be of lane `number`.
    ///
    /// What another lane's record frees may be that lane's still, or have been given
    /// back and taken by this one already: one waits a little, `waits` times in all,
    /// until it has given back all. If it has not then, the lines are lost until
    /// there is a new segment.
    pub(crate) fn release_own(&self, number: u32, block: u64, bits: u64, waits: &mut u32) {
        let Some(chunk) = self.chunk(block / CHUNK_BLOCKS).filter(|chunk| chunk.ready.load(Acquire) == 1) else { return };
        let (Ok(reserved), Some(used)) = (self.reservation_word(block), self.image.word(Layout::bitmap_word(block))) else {
            return;
        };
        // Nobody's before the chunk knows of it. Looked at before the lists: who has made it known lists it.
        if block % CHUNK_BLOCKS >= u64::from(chunk.known.load(Acquire)) {
            return;
        }
        for _ in 0..LOOKS {
            // In this order: whoever has one of these bits in `seen` listed it before.
            let seen = reserved.load(Acquire);
            let unlisted = bits & seen & !self.listed_by_others(number, block) & !used.load(Acquire);
            if unlisted == 0 {
                return;
            }
            let freed = self.freed_by_others(number, block);
            // Once more: meanwhile they may have gone from hand to hand, and be as they were.
            if reserved.load(Acquire) != seen {
                continue;
            }
            let mut own = unlisted & !freed & !self.listed_by_others(number, block) & !used.load(Acquire);
            own &= !self.freed_by_others(number, block);
            if own != 0 && reserved.compare_exchange(seen, seen & !own, AcqRel, Relaxed).is_err() {
                continue;
            }
            chunk.free.fetch_add(own.count_ones(), Relaxed);
            if unlisted & freed == 0 || *waits == 0 {
                return;
            }
            *waits -= 1;
            pm::file::nap(NAP);
        }
    }

    /// The lines of `block` that records of lanes other than `number` free, and that those will give back.
    fn freed_by_others(&self, number: u32, block: u64) -> u64 {
        let lanes = self.header().lanes_high.get();
        let mut freed = 0;
        for other in (0..lanes).filter(|other| *other != number) {
            self.each_freed(other, &(block..block + 1), |_, bits| freed |= bits);
        }
        freed
    }

    /// The lines of `block` that lanes other than `number` list, as reserved or in a magazine; all of them if it is kept back.
    fn listed_by_others(&self, number: u32, block: u64) -> u64 {
        let lanes = self.header().lanes_high.get();
        let (mut listed, kept) = (0, self.is_spare(block));
        for other in (0..lanes).filter(|other| *other != number) {
            let other = self.lane_state(other);
            // Reservations first: they become a magazine.
            for entry in &other.reserved {
                let (run, bits) = (entry.run.load(Acquire), entry.bits.load(Acquire));
                let (first, count) = (run & 0xff_ffff_ffff, run >> 40);
                if count != 0 && (first..first + count).contains(&block) {
                    listed |= if bits == 0 { u64::MAX } else { bits };
                }
            }
            listed |= arena::in_magazines(other, block);
        }
        // After the lists: to one of those it may have gone from here. And before them, for those that have just come.
        if kept || self.is_spare(block) { u64::MAX } else { listed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Arena;
    use crate::testing::TestFs;
    use format::lane::Kind;

    /// The image grows by `blocks`, and whoever did that dies before the chunks know of it.
    fn grow_and_die(fs: &Fs, blocks: u64) -> (u64, u64) {
        let before = fs.root().grown.load(Relaxed);
        let after = before + blocks;
        fs.space_for_blocks(before, after).unwrap();
        fs.image.store(&fs.root().grown, after);
        fs.image.set_valid(after * layout::BLOCK);
        (before, after)
    }

    /// Goal: the blocks of a chunk that nobody told of the growth are used all the
    /// same. Method: death between the two; then all space is reserved.
    #[test]
    fn growth_cut_off() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let mut tx = test.begin(&cx, Kind::Create).unwrap();
        tx.new_lines(1, Arena::Other).unwrap();
        let boundary = test.root().grown.load(Relaxed) / CHUNK_BLOCKS;
        let (number, state) = (tx.number, test.lane_state(tx.number));
        let chunk = test.ready_chunk(number, state, boundary).unwrap();
        let (before, after) = grow_and_die(&test, 2 * CHUNK_BLOCKS);
        assert!(!before.is_multiple_of(CHUNK_BLOCKS), "no chunk is cut by the end");
        assert_eq!(chunk.known.load(Relaxed), blocks_below(boundary, before));
        // Until the image would have to grow.
        while test.root().grown.load(Relaxed) == after {
            state.reserved_count.store(0, Relaxed);
            test.reserve_blocks(number, state, 64, 0).unwrap();
        }
        for block in before..(boundary + 1) * CHUNK_BLOCKS {
            assert_eq!(test.reservation_word(block).unwrap().load(Relaxed), u64::MAX, "block {block}");
        }
        assert_eq!(chunk.free.load(Relaxed), 0);
        assert_eq!(u64::from(chunk.known.load(Relaxed)), CHUNK_BLOCKS, "the chunk was never told");
    }

    /// Goal: a list that a peer has written is walked no further than the image goes, all entries together, and
    /// what it rightly names is given back. Method: entries beyond all bounds, beside a true one, settled by an adopter.
    #[test]
    fn list_of_a_liar() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let blocks = test.layout.block_count();
        let (longest, beyond) = (0xff_ffff_u64, 0xff_ffff_ffff_u64);
        assert_eq!(test.listed_blocks(7 | longest << 40, u64::MAX), 7..blocks);
        assert_eq!(test.listed_blocks(7 | 3 << 40, 2), 7..9);
        assert_eq!(test.listed_blocks(7, 100), 7..7);
        assert!(test.listed_blocks(beyond | longest << 40, u64::MAX).is_empty());

        let mut tx = test.begin(&cx, Kind::Create).unwrap();
        tx.new_lines(1, Arena::Other).unwrap();
        let (number, state) = (tx.number, test.lane_state(tx.number));
        let (first, count) = test.reserve_blocks(number, state, 3, 0).unwrap();
        let taken = || (first..first + count).filter(|block| test.reservation_word(*block).unwrap().load(Relaxed) != 0).count();
        assert_eq!(taken(), 3);
        let (true_one, lies) = state.reserved.split_first().unwrap();
        true_one.bits.store(0, Relaxed);
        true_one.run.store(first | count << 40, Relaxed);
        for (at, lie) in lies.iter().enumerate() {
            lie.bits.store(0, Relaxed);
            lie.run.store([beyond, blocks - 1][at % 2] | longest << 40, Relaxed);
        }
        test.settle_reservations(number, state);
        assert_eq!((taken(), state.reserved_count.load(Relaxed)), (0, 0));
        assert!(state.reserved.iter().all(|entry| entry.run.load(Relaxed) == 0));
    }

    /// Goal: what is reserved in a chunk that was loaded after the growth is not
    /// given to another one. Method: the chunks are told late.
    #[test]
    fn told_late() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let mut tx = test.begin(&cx, Kind::Create).unwrap();
        tx.new_lines(1, Arena::Other).unwrap();
        let (number, state) = (tx.number, test.lane_state(tx.number));
        let (before, after) = grow_and_die(&test, 2 * CHUNK_BLOCKS);
        let block = (before / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS;
        let (first, count) = test.reserve_blocks(number, state, 3, block).unwrap();
        assert_eq!((first, count), (block, 3));
        test.chunks_grew(state, before, after).unwrap();
        assert_ne!(test.reserve_blocks(number, state, 3, block).unwrap().0, block, "a block twice");
        assert_eq!(test.reservation_word(block).unwrap().load(Relaxed), u64::MAX);
    }
}
