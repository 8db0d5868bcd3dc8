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
use crate::lane::Tx;
use crate::segment::cachelet;
use base::{Atomic, Cx, Error, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use format::extent::{Extent, FILE_MAX, Root};
use format::inode::node_offset;
use format::lane::Kind;
use pm::{Errno, UserSlice};

/// Most blocks given out ahead of need.
const AHEAD_MAX: u64 = 256;
/// From so many bytes on a write is worth an attempt at [`Fs::write_aside`].
const LONG: u64 = 128 << 10;
/// Most bytes of one `write_with`.
const FILLED_MAX: u64 = 8 << 20;

/// Somebody who fills memory of the image; how many bytes.
pub type Fill<'f> = dyn FnMut(UserSlice) -> core::result::Result<usize, Errno> + 'f;

impl Fs {
    /// How a call overwrites that is to do so whole or not at all.
    pub(super) fn whole(&self) -> Atomic {
        self.files.atomic.unwrap_or(Atomic::Undo)
    }

    /// Writes at `offset` (`None`: atomically at the end); bytes written and the offset after them.
    #[inline]
    pub fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.write_and::<true>(cx, node, offset, from, self.atomic())
    }

    /// As [`Fs::write`], whole or not at all whatever the mount's options say.
    pub fn write_whole(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.write_as(cx, node, offset, from, self.whole())
    }

    /// The same, so.
    pub fn write_as(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice], how: Atomic) -> Result<(usize, u64)> {
        self.write_and::<true>(cx, node, offset, from, Some(how))
    }

    /// As [`Fs::write`], of what programs have stored into a mapping: that takes nobody's rights away.
    pub fn write_stored(&self, cx: &Cx, node: Node, offset: u64, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.write_and::<false>(cx, node, Some(offset), from, None)
    }

    #[inline]
    fn write_and<const DROP: bool>(
        &self,
        cx: &Cx,
        node: Node,
        offset: Option<u64>,
        from: &[UserSlice],
        how: Option<Atomic>,
    ) -> Result<(usize, u64)> {
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
        if DROP {
            job.drop_rights(cx)?;
        }
        if let Some(how) = how
            && start < job.size()
        {
            return job.overwrite(how, start, from);
        }
        if total >= LONG
            && total <= FILE_MAX - start
            && job.ends_at_border(start)?
            && let Some(end) = self.write_aside(&mut tx, cx, node, start, from)?
        {
            return Ok((total as usize, end));
        }
        // As above, where that has given the inode back.
        let cachelet = if tx.held == 0 { self.lock_file(&mut tx, cx, node)? } else { cachelet };
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let start = offset.unwrap_or(job.size());
        if start >= FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        if DROP {
            // Nothing to do, but where the file has got rights meanwhile.
            job.drop_rights(cx)?;
        }
        if let Some(how) = how
            && start < job.size()
        {
            return job.overwrite(how, start, from);
        }
        let end = start + total.min(FILE_MAX - start);
        let done = match from {
            [buffer] if job.write_in_one(start, *buffer)? => end,
            _ => job.fill(start, end, &mut Source::Program(Cursor::new(from)))?,
        };
        Ok(((done - start) as usize, done))
    }

    /// A long piece behind the end of a file, which ends at the border of a block: written into blocks that
    /// are nobody's yet, with nothing locked, so that who is stopped meanwhile, or while he makes the image grow, keeps
    /// nobody from the file. The inode is held for the records alone, of which the last raises the size. `None`, and nothing
    /// is held: there is no room, or the file has changed meanwhile. Else where the piece ends.
    #[inline(never)]
    fn write_aside<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node, start: u64, from: &[UserSlice]) -> Result<Option<u64>> {
        let mut near = self.near(self.inode(node_offset(node.id))?.root.load(Relaxed), block_of(start));
        tx.unlock_all();
        let mut source = Source::Program(Cursor::new(from));
        let (mut at, end) = (start, start.saturating_add(UserSlice::total(from) as u64));
        while at < end.min(FILE_MAX) {
            let Ok((block, len)) = tx.blocks(blocks_for(end) - block_of(at), near) else { break };
            let reached = end.min(at + len * BLOCK);
            if source.put(self, block * BLOCK, reached - at, 0).is_err() {
                break;
            }
            tx.order();
            if !self.add_written(tx, cx, node, (at, block, len), (start, end))? {
                break;
            }
            tx.unlock_all();
            if reached == end {
                return Ok(Some(end));
            }
            (at, near) = (reached, block + len);
        }
        tx.abandon();
        tx.unlock_all();
        Ok(None)
    }

    /// Makes `len` blocks from `block` on a file's, from its byte `at` on, if the file still ends at `start`, has what came
    /// before this, and nothing behind that place: who cuts a file at its end takes away what lies beyond. They are part of what is to end at `end`: the size rises with the last of them.
    fn add_written<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        node: Node,
        (at, block, len): (u64, u64, u64),
        (start, end): (u64, u64),
    ) -> Result<bool> {
        let cachelet = self.lock_file(tx, cx, node)?;
        let mut job = Job::new(tx, cachelet, node.id)?;
        let first = block_of(at);
        if job.size() != start || job.may_give_rights() || self.find_extent(job.root(), first)?.is_some() {
            return Ok(false);
        }
        if job.holes(start, at)? != 0 {
            return Ok(false);
        }
        let Ok(edited) = job.insert(Extent { file: first, block, len, shared: false }) else { return Ok(false) };
        let is_last = at + len * BLOCK >= end;
        job.commit(edited, len, if is_last { end } else { start }, true)?;
        if !is_last {
            cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
        }
        Ok(true)
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
        self.write_with_as(cx, node, (offset, len), fill, self.atomic())
    }

    /// The same, whole or not at all whatever the mount's options say.
    pub fn write_with_whole(&self, cx: &Cx, node: Node, (offset, len): (u64, u64), fill: &mut Fill) -> Result<usize> {
        self.write_with_as(cx, node, (offset, len), fill, Some(self.whole()))
    }

    fn write_with_as(
        &self,
        cx: &Cx,
        node: Node,
        (offset, len): (u64, u64),
        fill: &mut Fill,
        how: Option<Atomic>,
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
        job.drop_rights(cx)?;
        let size = job.size();
        let end = offset + len.min(FILLED_MAX).min(FILE_MAX - offset);
        let mut source = Source::Filler(Filler { fill, done: 0, ended: false, error: None });
        if let Some(how) = how {
            // Behind the end too: how long the file becomes is not known before.
            if offset > size {
                job.zero_allocated(size, offset)?;
            }
            return job.overwrite_whole(how, offset, end, &mut source).map(|reached| (reached - offset) as usize);
        }
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
    /// Whether the file ends at byte `start`, at the border of a block, and has no blocks from there on.
    fn ends_at_border(&self, start: u64) -> Result<bool> {
        let ends = start == self.size() && start.is_multiple_of(BLOCK);
        Ok(ends && self.fs.find_extent(self.root(), block_of(start))?.is_none())
    }

    /// Writes at `start`, where the file has bytes, whole or not at all.
    fn overwrite(&mut self, how: Atomic, start: u64, from: &[UserSlice]) -> Result<(usize, u64)> {
        let end = start.saturating_add(UserSlice::total(from) as u64);
        if end > FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        self.overwrite_whole(how, start, end, &mut Source::Program(Cursor::new(from)))?;
        Ok(((end - start) as usize, end))
    }

    /// The common cases: one buffer into one extent, in place or at the end.
    /// False if it does not fit there.
    #[inline]
    fn write_in_one(&mut self, start: u64, buffer: UserSlice) -> Result<bool> {
        let (size, len) = (self.size(), buffer.len as u64);
        if start > size {
            return Ok(false);
        }
        let to = match Root::unpack(self.root()) {
            Some(Root::One { block, len: blocks, shared: false })
                if start + len <= blocks * BLOCK && self.fs.is_allocatable(block, blocks) =>
            {
                block * BLOCK + start
            }
            Some(Root::Tree { .. }) => match self.fs.piece(self.root(), start, len)? {
                Piece { image: Some(place), len: there, shared: false } if there == len => place,
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
                Some(_) if piece.shared => match self.own(at, at + piece.len) {
                    Ok(()) => {}
                    Err(Error::Posix(Errno::ENOSPC)) if at > start => break,
                    Err(error) => return Err(error),
                },
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

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use base::{Kind, NewNode, SetAttr};
    use format::BLOCK;
    use format::lane::Kind as Work;

    /// Goal: what has been written behind the end goes on only where all of it is still there. Method: two pieces of a
    /// write, with and without somebody who cuts the file where it ends in between.
    #[test]
    fn a_cut_between_two_pieces_is_seen() {
        for is_cut in [false, true] {
            let (test, thread) = (TestFs::new(64 << 20), base::Thread::new());
            let cx = test.cx();
            let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
            let node = test.create(&cx, test.root_node(), b"file", &new).unwrap();
            test.open(&cx, node, 2, 3).unwrap();
            let other = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread };
            let mut tx = test.begin(&cx, Work::Write).unwrap();
            for (at, goes_on) in [(0, true), (BLOCK, !is_cut)] {
                let (block, len) = tx.blocks(1, 0).unwrap();
                let done = test.add_written(&mut tx, &cx, node, (at, block, len), (0, 2 * BLOCK)).unwrap();
                assert_eq!((len, done), (1, goes_on), "cut: {is_cut}, at {at}");
                tx.unlock_all();
                if is_cut && at == 0 {
                    let same = SetAttr { size: Some(0), size_checked: true, ..SetAttr::default() };
                    test.set_attr(&other, node, &same).unwrap();
                }
            }
            tx.abandon();
            drop(tx);
            assert_eq!(test.attr(&cx, node).unwrap().size, if is_cut { 0 } else { 2 * BLOCK });
        }
    }
}
