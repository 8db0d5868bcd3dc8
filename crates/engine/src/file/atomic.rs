//! Overwriting whole or not at all (MeLo@V's undo and replay): of bytes that a file has, a call changes all or none,
//! whoever dies in it, at whichever store.
//!
//! | | put aside | the record | then | happened |
//! |---|---|---|---|---|
//! | up to [`SMALL`] bytes | nothing | the new words | made | with the record |
//! | undo | what was there | copies it back | written in place | with the end of the record |
//! | replay | what is to be there | copies it into place | made | with the record |
//!
//! Length and times belong to the call: they are in the same record. Holes get zeroed blocks before, which nobody sees;
//! what lies behind the end means nothing until the length says so. So a call that reaches over the end is whole too.
//!
//! While bytes are being changed the cachelet says so ([`cachelet::OVERWRITTEN`]): a reader looks whether the one who
//! changes them lives. If so it reads, as ever, some of them before and some after the change; if not it adopts the
//! lane first. So nobody reads what a dead one has left half done.

use super::cursor::Source;
use super::job::Job;
use super::{block_of, blocks_for};
use crate::fs::{Fs, corrupt};
use crate::segment::lane_state::RESERVED_MAX;
use crate::segment::{Cachelet, cachelet};
use base::{Atomic, Cx, Kind, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use format::BLOCK;
use format::inode::word;
use format::lane::{self, copied_from};
use pm::{Errno, UserSlice};

/// Most bytes that one call changes whole: more is `EFBIG`.
pub const WHOLE_MAX: u64 = 32 << 20;
/// Up to so many bytes are stores of the record itself.
const SMALL: u64 = 400;
/// Their words, where they begin and end within one.
const SMALL_WORDS: usize = SMALL as usize / 8 + 1;
/// Most pieces that are put aside: each may be a reservation of its own, and the allocator lists two more while it looks.
const PIECES: usize = RESERVED_MAX - 2;
// With length, two times, and the lane's counters they fit into a record.
const _: () = assert!(SMALL_WORDS + 4 <= format::lane::OPS_MAX && PIECES + 4 <= format::lane::OPS_MAX);

/// Bytes of the file, and the block aside on that has them, or is to have them, from the same place of a block on.
#[derive(Clone, Copy, Default)]
struct Piece {
    to: u64,
    block: u64,
    len: u64,
}

impl Piece {
    /// Where they are aside.
    fn aside(&self) -> u64 {
        copied_from(self.block as u32, self.to)
    }
}

/// All of a call's.
struct Pieces {
    of: [Piece; PIECES],
    count: usize,
}

impl Pieces {
    fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.of.iter().take(self.count)
    }
}

impl Fs {
    /// Whether one who has died was overwriting the file, and what it did has been finished, or undone, just now.
    #[cold]
    #[inline(never)]
    pub(super) fn is_left_overwritten(&self, cx: &Cx, cachelet: &Cachelet) -> bool {
        let owner = cachelet.owner.load(Acquire);
        owner != 0 && owner != self.own_lane(cx.thread).get() && self.adopt_if_dead(owner - 1)
    }

    /// The lane that was overwriting a file has been adopted.
    pub(crate) fn overwritten_by_dead(&self, cachelet: &Cachelet) {
        if (cachelet.mode.load(Relaxed) >> 16) as u8 == Kind::Regular as u8 {
            cachelet.flags.fetch_and(!cachelet::OVERWRITTEN, SeqCst);
        }
    }
}

/// Says of a file that it is being overwritten, as long as it lives.
struct Overwriting<'a>(&'a Cachelet);

impl<'a> Overwriting<'a> {
    fn begin(cachelet: &'a Cachelet) -> Self {
        cachelet.flags.fetch_or(cachelet::OVERWRITTEN, SeqCst);
        Overwriting(cachelet)
    }
}

impl Drop for Overwriting<'_> {
    fn drop(&mut self) {
        self.0.flags.fetch_and(!cachelet::OVERWRITTEN, SeqCst);
    }
}

impl Job<'_, '_> {
    /// Writes `start..end` from `source`: all of it, or (an error) nothing. What lies between the end and `start` is zero already.
    /// Where it ended: before `end` if `source` did. `EFBIG`, `ENOSPC`.
    #[cold]
    #[inline(never)]
    pub(super) fn overwrite_whole(&mut self, how: Atomic, start: u64, end: u64, source: &mut Source) -> Result<u64> {
        if end - start > WHOLE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let size = self.size();
        let holes = self.own_all(start, end).and_then(|()| self.fill_holes(start, end, size));
        self.tx.now(lane::Kind::Overwrite);
        let result = holes.and_then(|()| match (how, &source) {
            // How much comes is known when it is there.
            (_, Source::Filler(_)) => self.overwrite_undoable(start, end, source),
            _ if end - start <= SMALL => self.overwrite_small(start, end, source),
            (Atomic::Undo, _) => self.overwrite_undoable(start, end, source),
            (Atomic::Replay, _) => self.overwrite_replayable(start, end, source),
        });
        if result.is_err() {
            self.tx.abandon();
        }
        if result != Ok(end) && end > size {
            // Blocks behind the end, perhaps.
            self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
        }
        result
    }

    /// All in the record: words, with what stays of the first and the last.
    fn overwrite_small(&mut self, start: u64, end: u64, source: &mut Source) -> Result<u64> {
        let mut at = start;
        while at < end {
            let (place, len) = self.lies_at(at, end)?;
            let (first, last) = (place & !7, (place + len).next_multiple_of(8));
            self.fs.present(first, last - first)?;
            let mut bytes = [0u8; SMALL_WORDS * 8];
            let bytes = &mut bytes[..(last - first) as usize];
            self.fs.image.copy_out(first, UserSlice::from_mut(bytes))?;
            let skipped = (place - first) as usize;
            source.get(self.fs, &mut bytes[skipped..skipped + len as usize])?;
            for (number, new) in bytes.as_chunks::<8>().0.iter().enumerate() {
                self.tx.set(first + number as u64 * 8, u64::from_le_bytes(*new))?;
            }
            at += len;
        }
        self.happens(end)
    }

    /// What is to be there is written aside; the record copies it.
    fn overwrite_replayable(&mut self, start: u64, end: u64, source: &mut Source) -> Result<u64> {
        let stop = end.min(self.size());
        let pieces = self.set_aside(start, stop)?;
        for piece in pieces.iter() {
            source.put(self.fs, piece.aside(), piece.len, 0)?;
        }
        self.put_in_place(stop, end, source)?;
        self.tx.order();
        self.list(&pieces)?;
        self.happens(end)
    }

    /// Lists length and times after a write up to `end`, and makes what is listed happen.
    fn happens(&mut self, end: u64) -> Result<u64> {
        let (size, now) = (self.size().max(end), self.now as u64);
        self.stamps(size, [now, now], now)?;
        let overwriting = Overwriting::begin(self.cachelet);
        self.tx.commit()?;
        self.show(size);
        drop(overwriting);
        Ok(end)
    }

    /// What was there is saved; the record puts it back until the call has happened.
    fn overwrite_undoable(&mut self, start: u64, end: u64, source: &mut Source) -> Result<u64> {
        let size = self.size();
        let pieces = self.set_aside(start, end.min(size))?;
        for piece in pieces.iter() {
            self.fs.present(piece.to, piece.len)?;
            self.fs.present(piece.aside(), piece.len)?;
            self.fs.image.copy_within(piece.to, piece.aside(), piece.len)?;
        }
        self.tx.order();
        self.list(&pieces)?;
        let before = [&self.inode.mtime, &self.inode.ctime].map(|time| time.load(Relaxed));
        if end > size {
            self.tx.set(self.at + word::SIZE, size)?;
        }
        self.stamps(size, before, self.now as u64)?;
        let record = self.tx.can_be_undone()?;
        let overwriting = Overwriting::begin(self.cachelet);
        let reached = self.put_in_place(start, end, source).and_then(|()| source.reached(start, end));
        let reached = match reached {
            Ok(reached) => reached,
            Err(error) => {
                self.tx.undo(record)?;
                return Err(error);
            }
        };
        let size = size.max(reached);
        self.stamp_inode(size);
        self.tx.has_happened(record);
        self.show(size);
        drop(overwriting);
        Ok(reached)
    }

    /// Blocks for `start..stop` of the file, to put something aside in.
    fn set_aside(&mut self, start: u64, stop: u64) -> Result<Pieces> {
        let mut pieces = Pieces { of: [Piece::default(); PIECES], count: 0 };
        let (mut at, mut near) = (start, 0);
        while at < stop {
            let (to, len) = self.lies_at(at, stop)?;
            let slot = pieces.of.get_mut(pieces.count).ok_or(Errno::ENOSPC)?;
            let (block, count) = self.tx.blocks_aside(blocks_for(to % BLOCK + len), near)?;
            let len = len.min(count * BLOCK - to % BLOCK);
            *slot = Piece { to, block, len };
            pieces.count += 1;
            (at, near) = (at + len, block + count);
        }
        Ok(pieces)
    }

    /// The record copies these.
    fn list(&mut self, pieces: &Pieces) -> Result<()> {
        pieces.iter().try_for_each(|piece| self.tx.copies(piece.to, piece.block, piece.len))
    }

    /// Where byte `at` lies in the image, and how many lie there, up to `end`.
    fn lies_at(&self, at: u64, end: u64) -> Result<(u64, u64)> {
        let piece = self.fs.piece(self.root(), at, end - at)?;
        // The holes have been filled.
        Ok((piece.image.ok_or(corrupt("map of a file", block_of(at)))?, piece.len))
    }

    fn put_in_place(&mut self, start: u64, end: u64, source: &mut Source) -> Result<()> {
        let (size, mut at) = (self.size(), start);
        while at < end {
            let (place, len) = self.lies_at(at, end)?;
            source.put(self.fs, place, len, size.saturating_sub(at))?;
            at += len;
        }
        Ok(())
    }

    /// Lists a length, if it is another one, and times that the inode has after or before `now`.
    fn stamps(&mut self, size: u64, times: [u64; 2], now: u64) -> Result<()> {
        if size != self.size() {
            self.tx.set(self.at + word::SIZE, size)?;
        }
        let is_same = |time: &core::sync::atomic::AtomicU64| time.load(Relaxed) == now;
        if !is_same(&self.inode.mtime) || !is_same(&self.inode.ctime) {
            self.tx.set(self.at + word::MTIME, times[0])?;
            self.tx.set(self.at + word::CTIME, times[1])?;
        }
        Ok(())
    }

    /// The same, at once.
    fn stamp_inode(&self, size: u64) {
        let (image, now) = (&self.fs.image, self.now as u64);
        if size != self.size() {
            image.store(&self.inode.size, size);
        }
        for time in [&self.inode.mtime, &self.inode.ctime] {
            if time.load(Relaxed) != now {
                image.store(time, now);
            }
        }
        image.flush(self.at, 64);
    }

    /// Tells the cachelet of length and time.
    fn show(&self, size: u64) {
        let change = self.fs.change(self.cachelet);
        change.mtime.store(self.now as u64, Relaxed);
        change.ctime.store(self.now as u64, Relaxed);
        change.size.store(size, Release);
    }
}

#[cfg(test)]
mod tests;
