//! Real space for image and segment, before it is touched.
//!
//! Both are sparse files, mapped to their full length. A page that is touched
//! without space behind it kills the process when the file system underneath is
//! full; so space is asked for first (`MADV_POPULATE_WRITE`: no descriptor is
//! needed, it works after set-uid, and it fills this process's page table too),
//! and a refusal is `ENOSPC`. On tmpfs whole huge pages come first, where the
//! kernel has such: images are mapped at a multiple of one, and grow to one.

use crate::alloc::reservation::CHUNK_BLOCKS;
use crate::fs::Fs;
use crate::lane::lock::Waiter;
use crate::segment::{Chunk, LockWord, lane_state::HELD_MAX};
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use format::layout::{BLOCK, Layout};
use pm::file::{self, File};
use pm::sys::abi;
use pm::{Errno, Region, huge, memory_limit};

/// Smallest and largest step by which an image grows, bytes.
const STEP_MIN: u64 = 8 << 20;
const STEP_MAX: u64 = 64 << 20;
/// When there is no space for a step, smaller ones are tried down to this.
const STEP_LAST: u64 = 64 << 10;
/// How long who needs space waits for another who is making some, nanoseconds; and by how much it then grows the image itself.
const PATIENCE: i64 = 2_000_000;
const STEP_ALONE: u64 = huge::HUGE_PAGE;
/// What is left to programs of a group's memory: a part of its limit, within bounds, bytes.
const KEPT_SHARE: u64 = 16;
const KEPT_MIN: u64 = 8 << 20;
const KEPT_MAX: u64 = 256 << 20;

impl Fs {
    /// Gives real space to `offset..offset + len` of the segment. `ENOSPC`.
    pub(crate) fn segment_space(&self, offset: u64, len: u64) -> Result<()> {
        give_space(&self.segment, (&self.segment_path, self.files.segment), offset, len)
    }

    /// Gives real space to a part of the image. `ENOSPC`.
    fn image_space(&self, offset: u64, len: u64) -> Result<()> {
        give_space(&self.image, (&self.path, self.files.image), offset, len)
    }

    /// Grows the image by a step; returns when there is more space than before,
    /// whoever made it. `ENOSPC` at the limit or when the file system underneath is full.
    ///
    /// Called from inside an allocation of lane `number`, whose record is half
    /// built: so no record is used. `root.grown` is one 8-byte store that stands
    /// for itself and only rises; whatever happens before it changes no contents. So
    /// any number of lanes may grow the image at a time: the lock is there to spare work,
    /// and who has it may be stopped, for whatever time. It is taken from there after a while.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&self, number: u32) -> Result<()> {
        let before = self.root().grown.load(Acquire);
        // Listed in the last place, which operations do not reach.
        let listed = &self.lane_state(number).held[HELD_MAX - 1];
        let word: &LockWord = &self.header().grow.0;
        listed.store(self.segment.offset_of(word), Release);
        let result = match self.take_growth(word, number, before) {
            Some(step) => self.grow_from(number, before, step),
            None => Ok(()),
        };
        // Another may have it by now.
        let _ = word.compare_exchange(number + 1, 0, AcqRel, Relaxed);
        listed.store(0, Release);
        self.refresh_valid();
        result
    }

    /// Takes the lock of growth, and tells by how many bytes to grow; `None`: another has done so meanwhile.
    fn take_growth(&self, word: &LockWord, number: u32, before: u64) -> Option<u64> {
        let (mut wait, mut since) = (Waiter::of(number), None);
        loop {
            let holder = match word.compare_exchange(0, number + 1, Acquire, Relaxed) {
                Ok(_) => return self.is_grown(before, (self.layout.limit / 64).clamp(STEP_MIN, STEP_MAX)),
                Err(holder) => holder,
            };
            self.is_grown(before, 0)?;
            let is_there = wait.once(self, holder);
            if wait.is_nonsense() {
                // A peer's mistake, or malice.
                return self.is_grown(before, STEP_ALONE);
            }
            let now = pm::clock::monotonic();
            if is_there && now - *since.get_or_insert(now) < PATIENCE {
                continue;
            }
            // Stopped, or slow: little is needed now, and both may be at it.
            if word.compare_exchange(holder, number + 1, Acquire, Relaxed).is_ok() {
                return self.is_grown(before, STEP_ALONE);
            }
            since = None;
        }
    }

    /// `step`, if the image is as large as before.
    fn is_grown(&self, before: u64, step: u64) -> Option<u64> {
        (self.root().grown.load(Acquire) <= before).then_some(step)
    }

    fn grow_from(&self, number: u32, before: u64, mut step: u64) -> Result<()> {
        let limit = self.layout.block_count();
        if before >= limit {
            return Err(Errno::ENOSPC.into());
        }
        loop {
            let after = (before + step / BLOCK).min(limit);
            // So that the next step begins with a huge page.
            let whole = after & !(CHUNK_BLOCKS - 1);
            let after = if whole > before { whole } else { after };
            let space = match self.may_take((after - before) * BLOCK) {
                true => self.space_for_blocks(before, after),
                false => Err(Errno::ENOSPC.into()),
            };
            match space {
                Ok(()) => return self.publish_growth(number, before, after),
                Err(base::Error::Posix(Errno::ENOSPC)) if step > STEP_LAST => step /= 4,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the control group of this process has so much memory left, and some for programs besides, where the image is
    /// in memory: at the group's limit the kernel kills one of them.
    fn may_take(&self, bytes: u64) -> bool {
        let is_left = |found: memory_limit::MemoryLimit| {
            let besides = (found.limit / KEPT_SHARE).clamp(KEPT_MIN, KEPT_MAX);
            found.room >= bytes + besides
        };
        memory_limit::look().is_none_or(is_left) || file::file_system(&self.path) != Ok(file::FileSystem::Memory)
    }

    /// Space for blocks, for the bitmap that covers them, and for their chunks of the reservation bitmap.
    pub(crate) fn space_for_blocks(&self, before: u64, after: u64) -> Result<()> {
        self.chunks_space(before, after)?;
        self.image_space(Layout::bitmap_word(before), (after - before) * 8)?;
        self.image_space(before * BLOCK, (after - before) * BLOCK)
    }

    /// Space for the table of chunks of the reservation bitmap that covers these blocks.
    pub(crate) fn chunks_space(&self, first: u64, end: u64) -> Result<()> {
        let size = size_of::<Chunk>() as u64;
        let (first, end) = (first / 512, end.div_ceil(512));
        self.segment_space(self.areas.chunks + first * size, (end - first) * size)
    }

    fn publish_growth(&self, number: u32, before: u64, after: u64) -> Result<()> {
        let grown = &self.root().grown;
        // Never down: another may have grown the image further meanwhile.
        self.image.raise(grown, after as i64);
        self.image.flush(self.image.offset_of(grown), 8);
        self.image.fence();
        self.image.set_valid(after * BLOCK);
        self.chunks_grew(self.lane_state(number), before, after)
    }
}

/// Asks for space behind part of a mapping; its file has that path, and that identity.
fn give_space(region: &Region, (path, identity): (&[u8], [u64; 2]), offset: u64, len: u64) -> Result<()> {
    let end = offset.checked_add(len).filter(|end| *end <= region.len()).ok_or(Errno::ENOSPC)?;
    let (start, end) = (offset & !(BLOCK - 1), end.next_multiple_of(BLOCK).min(region.len()));
    // Memory that is no file (rescue, crash explorer) has its space.
    if path.first() == Some(&0) {
        return Ok(());
    }
    // The mapping has `region.len()` bytes, so the address lies inside it.
    let address = region.base().wrapping_add(start as usize);
    // What it does not get is got below, and told there.
    huge::gather(address, end - start);
    match file::advise(address, end - start, abi::MADV_POPULATE_WRITE) {
        Ok(()) => Ok(()),
        // A kernel before 5.14.
        Err(Errno::EINVAL) => {
            let path = path.split_inclusive(|byte| *byte == 0).next().unwrap_or(path);
            let file = File::open_known(path, abi::O_RDWR, identity)?;
            Ok(file.allocate(start, end - start)?)
        }
        Err(Errno::EFAULT | Errno::ENOMEM | Errno::ENOSPC) => Err(Errno::ENOSPC.into()),
        Err(errno) => Err(errno.into()),
    }
}
