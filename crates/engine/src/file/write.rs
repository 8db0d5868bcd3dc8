//! Writing: in place where there are blocks, else into fresh ones whose record
//! comes after the data.
//!
//! Persists: an overwrite one; an append into blocks that are there two (data,
//! then the size word); fresh blocks: data, then the three of a record. A file
//! that grows piece by piece gets blocks ahead of need; the last close takes
//! back what is left.

use super::cursor::{Cursor, Filler, Piece, Source};
use super::job::Job;
use super::{block_of, blocks_for};
use crate::fs::Fs;
use crate::segment::cachelet;
use base::{Cx, Error, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use format::extent::{FILE_MAX, Root};
use format::lane::Kind;
use pm::{Errno, UserSlice};

/// Most blocks given out ahead of need.
const AHEAD_MAX: u64 = 256;
/// Most bytes of one `write_with`.
const FILLED_MAX: u64 = 8 << 20;

impl Fs {
    /// Writes at `offset` (`None`: atomically at the end); bytes written and the offset after them.
    #[inline]
    pub fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        let mut tx = self.begin(cx, Kind::Write)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let start = offset.unwrap_or(job.size());
        let total = UserSlice::total(from) as u64;
        if total == 0 {
            return Ok((0, start));
        }
        if start >= FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        job.drop_set_id(cx)?;
        let end = start + total.min(FILE_MAX - start);
        let done = match from {
            [buffer] if job.overwrite(start, *buffer)? => end,
            _ => job.fill(start, end, &mut Source::Program(Cursor::new(from)))?,
        };
        Ok(((done - start) as usize, done))
    }

    /// Writes at most `len` bytes at `offset` that `fill` puts straight into the
    /// image's memory; returns how many came. The inode is held meanwhile, so
    /// this does at most 8 MiB.
    pub fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize> {
        if len == 0 {
            return Ok(0);
        }
        if offset >= FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut tx = self.begin(cx, Kind::Write)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        job.drop_set_id(cx)?;
        let size = job.size();
        let end = offset + len.min(FILLED_MAX).min(FILE_MAX - offset);
        let mut source = Source::Filler(Filler { fill, done: 0, ended: false, error: None });
        let reached = job.fill(offset, end, &mut source)?;
        let Source::Filler(Filler { done, error, .. }) = source else { return Ok(0) };
        if offset + done < reached && reached > size {
            // Less came than was said: the zeros behind it do not count.
            job.shrink(if done == 0 { size } else { size.max(offset + done) })?;
        }
        match error {
            Some(errno) if done == 0 => Err(errno.into()),
            _ => Ok(done as usize),
        }
    }
}

impl Job<'_, '_> {
    /// The common cases: one buffer into one extent, in place or at the end.
    /// False if it does not fit there.
    #[inline]
    fn overwrite(&mut self, start: u64, buffer: UserSlice) -> Result<bool> {
        let (size, len) = (self.size(), buffer.len as u64);
        if start > size {
            return Ok(false);
        }
        let to = match Root::unpack(self.root()) {
            Some(Root::One { block, len: blocks }) if start + len <= blocks * BLOCK && self.fs.is_allocatable(block, blocks) => {
                block * BLOCK + start
            }
            Some(Root::Tree { .. }) => match self.fs.piece(self.root(), start, len)? {
                Piece { image: Some(place), len: there } if there == len => place,
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        self.fs.present(to, len)?;
        self.fs.image.copy_in(to, buffer)?;
        self.publish(size.max(start + len));
        Ok(true)
    }

    /// Writes `start..end` from `source`; returns where it ended: short when
    /// there is no space. `ENOSPC` if nothing could be written.
    #[inline(never)]
    pub(super) fn fill(&mut self, start: u64, end: u64, source: &mut Source) -> Result<u64> {
        let size = self.size();
        if start > size {
            self.zero_allocated(size, start)?;
        }
        let ahead = self.ahead(start, size);
        let mut at = start;
        while at < end {
            let piece = self.fs.piece(self.root(), at, end - at)?;
            match piece.image {
                Some(place) => {
                    source.put(self.fs, place, piece.len, size.saturating_sub(at))?;
                    at += piece.len;
                }
                None => match self.fill_hole(at, at + piece.len, end, ahead, source) {
                    Ok(reached) => at = reached,
                    Err(Error::Posix(Errno::ENOSPC)) if at > start => break,
                    Err(error) => return Err(error),
                },
            }
        }
        self.publish(self.size().max(at));
        Ok(at)
    }

    /// Blocks to be given out ahead of need: for files that have grown before,
    /// as many as they have, within bounds.
    fn ahead(&self, start: u64, size: u64) -> u64 {
        if start != size || size == 0 {
            return 0;
        }
        u64::from(self.cachelet.blocks.load(Relaxed)).next_power_of_two().min(AHEAD_MAX)
    }

    /// Writes `start..end`, which is a hole, or the first part of it: one run of blocks, one record.
    /// The size grows with the record that reaches `whole`, the end of the write:
    /// who dies before leaves a file without the write, not with a part of it.
    fn fill_hole(&mut self, start: u64, end: u64, whole: u64, ahead: u64, source: &mut Source) -> Result<u64> {
        let (first, size) = (block_of(start), self.size());
        let mut want = blocks_for(end) - first;
        // Ahead only where the file ends, and only as far as no other extent is met.
        if ahead > 0 && self.fs.find_extent(self.root(), first)?.is_none() {
            want = (want + ahead).min(super::BLOCKS_MAX - first);
        }
        let (e, edited) = self.allocate_mapped(first, want)?;
        let (from, to) = (e.file * BLOCK, (e.file + e.len) * BLOCK);
        let reached = end.min(to);
        let place = e.block * BLOCK;
        if start > from {
            Source::Zero.put(self.fs, place, start - from, 0)?;
        }
        source.put(self.fs, place + (start - from), reached - start, 0)?;
        // Beyond the end nothing need be zero.
        let zero_to = to.min(size);
        if reached < zero_to {
            Source::Zero.put(self.fs, place + (reached - from), zero_to - reached, 0)?;
        }
        self.tx.order();
        let shown = if reached < whole { size } else { size.max(reached) };
        self.commit(edited, e.len, shown, true)?;
        if e.len > blocks_for(reached) - first || shown < reached {
            self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
        }
        Ok(reached)
    }
}
