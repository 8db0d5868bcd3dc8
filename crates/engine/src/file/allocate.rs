//! `fallocate`, `SEEK_DATA` and `SEEK_HOLE`, copying from file to file, and the
//! growth of directories.

use super::cursor::Source;
use super::edit::Edit;
use super::job::Job;
use super::{block_of, blocks_for};
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::segment::{Cachelet, cachelet};
use base::{Atomic, Cx, Error, Fallocate, MapFor, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::BLOCK;
use format::extent::{Extent, FILE_MAX, Root};
use format::inode::word;
use format::lane::Kind;
use pm::Errno;

impl Fs {
    /// Gives, takes or zeroes space. `EINVAL`, `EFBIG`, `ENOSPC`.
    pub fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        if end > FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut tx = self.begin(cx, Kind::Fallocate)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        job.drop_rights(cx)?;
        let size = job.size();
        match how {
            Fallocate::Allocate => job.give(offset, end, size.max(end)),
            Fallocate::KeepSize => job.give(offset, end, size),
            Fallocate::PunchHole => job.punch(offset, end.min(size)),
            Fallocate::Zero => job.zero_range(offset, end, size.max(end)),
            Fallocate::ZeroKeepSize => job.zero_range(offset, end, size),
        }
    }

    /// The next data (or hole) at or after `offset`; the end of the file is a hole. `ENXIO` past it.
    pub fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        let mut tries = 0;
        loop {
            let cachelet = self.cached(cx, node)?;
            self.is_file(cachelet)?;
            let before = cachelet.map_sequence.load(Acquire);
            let found = self.seek_in(cachelet, offset, data);
            core::sync::atomic::fence(Acquire);
            if before & 1 == 0 && cachelet.map_sequence.load(Relaxed) == before {
                return found;
            }
            tries += 1;
            if tries > 1000 {
                // Somebody keeps changing it: look while nobody can.
                let mut tx = self.begin(cx, Kind::Fallocate)?;
                let cachelet = self.lock_file(&mut tx, cx, node)?;
                return self.seek_in(cachelet, offset, data);
            }
        }
    }

    fn seek_in(&self, cachelet: &Cachelet, offset: u64, data: bool) -> Result<u64> {
        let (size, root) = (cachelet.size.load(Acquire), cachelet.root.load(Acquire));
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let mut at = offset;
        while at < size {
            let e = self.find_extent(root, block_of(at))?;
            match e.filter(|e| e.file * BLOCK <= at) {
                Some(_) if data => return Ok(at),
                None if !data => return Ok(at),
                Some(e) => at = (e.file + e.len) * BLOCK,
                None => at = e.map_or(size, |e| e.file * BLOCK),
            }
        }
        if data { Err(Errno::ENXIO.into()) } else { Ok(size) }
    }

    /// Copies `len` bytes between two files, or within one where the ranges do
    /// not overlap (`EINVAL`); returns how many, less at the source's end.
    pub fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        self.copy_range_as(cx, (from, from_offset), (to, to_offset), len, self.atomic())
    }

    /// The same, whole or not at all whatever the mount's options say.
    pub fn copy_range_whole(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64> {
        self.copy_range_as(cx, from, to, len, Some(self.whole()))
    }

    /// As [`Fs::copy_range`]. How, if what the target has is to be overwritten whole or not at all: of a longer range as much
    /// as one call can.
    pub fn copy_range_as(
        &self,
        cx: &Cx,
        (from, from_offset): (Node, u64),
        (to, to_offset): (Node, u64),
        len: u64,
        how: Option<Atomic>,
    ) -> Result<u64> {
        let mut tx = self.begin(cx, Kind::Write)?;
        let (source, target) = self.lock_two(&mut tx, cx, from, to)?;
        let size = source.size.load(Relaxed);
        let len = len.min(size.saturating_sub(from_offset)).min(FILE_MAX.saturating_sub(to_offset));
        if from == to && from_offset < to_offset.saturating_add(len) && to_offset < from_offset.saturating_add(len) {
            return Err(Errno::EINVAL.into());
        }
        if to_offset >= FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        if len == 0 {
            return Ok(0);
        }
        let shared = if how.is_none() {
            self.share_copied(cx, &mut tx, (source, from, from_offset), (target, to, to_offset), len)?
        } else {
            0
        };
        if shared == len {
            return Ok(len);
        }
        let (from_offset, to_offset, len) = (from_offset + shared, to_offset + shared, len - shared);
        let mut job = Job::new(&mut tx, target, to.id)?;
        job.drop_rights(cx)?;
        let mut bytes = Source::File { cachelet: source, at: from_offset };
        let end = match how {
            Some(how) if to_offset < job.size() => {
                job.overwrite_whole(how, to_offset, to_offset + len.min(super::atomic::WHOLE_MAX), &mut bytes)?
            }
            _ => match job.fill(to_offset, to_offset + len, &mut bytes) {
                Err(Error::Posix(Errno::ENOSPC)) if shared > 0 => to_offset,
                end => end?,
            },
        };
        Ok(shared + end - to_offset)
    }

    /// Locks two files (or one) in the order of their cachelets.
    pub(super) fn lock_two<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, a: Node, b: Node) -> Result<(&'a Cachelet, &'a Cachelet)> {
        if a == b {
            let both = self.lock_file(tx, cx, a)?;
            return Ok((both, both));
        }
        for _ in 0..1000 {
            let (first, second) = (self.cached(cx, a)?, self.cached(cx, b)?);
            let swapped = self.cachelet_number(first) > self.cachelet_number(second);
            let order = if swapped { [(second, b), (first, a)] } else { [(first, a), (second, b)] };
            let keep = tx.held;
            match order.iter().try_for_each(|(cachelet, node)| tx.lock_inode(cachelet, node.id)) {
                Ok(()) => {
                    self.is_file(first)?;
                    self.is_file(second)?;
                    return Ok((first, second));
                }
                Err(Error::Posix(Errno::ESTALE)) => tx.unlock_to(keep),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Up to `want` blocks for a directory whose inode is at `offset`, behind those that it has: nobody's yet. Its slots may
    /// be found as soon as the record is applied that makes them its own, so they are zero.
    pub(crate) fn blocks_to_append(&self, tx: &mut Tx, offset: u64, want: u64) -> Result<(u64, u64)> {
        let root = self.inode(offset)?.root.load(Acquire);
        let (block, len) = tx.slot_blocks(want, self.near(root, self.end_of_extents(root)?))?;
        // Perhaps another process has made the image grow just now.
        self.present(block * BLOCK, len * BLOCK)?;
        self.image.zero(block * BLOCK, len * BLOCK)?;
        tx.order();
        Ok((block, len))
    }

    /// Appends `len` fresh blocks from `block` on to a directory whose inode is locked; the caller commits.
    pub(crate) fn append_blocks(&self, tx: &mut Tx, offset: u64, (block, len): (u64, u64)) -> Result<()> {
        let root = self.inode(offset)?.root.load(Acquire);
        let e = Extent { file: self.end_of_extents(root)?, block, len, shared: false };
        let mut edit = Edit::new(tx, root);
        edit.insert(e)?;
        let edited = edit.finish();
        if edited.root != root {
            tx.set(offset + word::ROOT, edited.root)?;
        }
        Ok(())
    }

    /// Number of blocks up to the last one that a map has.
    pub(crate) fn end_of_extents(&self, root: u64) -> Result<u64> {
        match Root::unpack(root) {
            Some(Root::Empty) => Ok(0),
            Some(Root::One { len, .. }) => Ok(len),
            Some(Root::Tree { node, depth }) => {
                let path = self.extent_path(node, depth, super::BLOCKS_MAX)?;
                let (leaf, count) = self.extent_node(path.steps[0].block, 0)?;
                let e = self.proven_extent(super::extents::leaf_entry(leaf, count - 1))?;
                Ok(e.file + e.len)
            }
            None => Err(corrupt("data root", root)),
        }
    }
}

impl Job<'_, '_> {
    /// Fills the holes of a range and sets the size; what becomes part of the file reads as zeros.
    fn give(&mut self, from: u64, to: u64, size: u64) -> Result<()> {
        let before = self.size();
        if size > before {
            self.zero_allocated(before, size)?;
        }
        self.own_all(from, to)?;
        self.fill_holes(from, to, size.max(before))?;
        self.publish(size);
        Ok(())
    }

    /// Frees whole blocks and zeroes what is left of the range.
    fn punch(&mut self, from: u64, to: u64) -> Result<()> {
        if from < to {
            let (first, last) = (blocks_for(from), if to == self.size() { blocks_for(to) } else { block_of(to) });
            let cut = if first < last && !self.is_mapped() { self.cut(first, last) } else { Ok(()) };
            match cut {
                Ok(()) => {}
                // No block for the map, not even of those kept back: what is still there is zeroed.
                Err(Error::Posix(Errno::ENOSPC)) => self.tx.abandon(),
                Err(error) => return Err(error),
            }
            self.zero_allocated(from, to)?;
        }
        let size = self.size();
        self.publish(size);
        Ok(())
    }

    fn zero_range(&mut self, from: u64, to: u64, size: u64) -> Result<()> {
        let before = self.size();
        // Space first: without it nothing is zeroed.
        self.give(from, to, size)?;
        self.zero_allocated(from, to.min(before.max(from)))?;
        // The zeros are there when it returns.
        self.fs.image.fence();
        Ok(())
    }

    /// Notes that a process maps the file.
    pub(super) fn mark_mapped(&mut self, what: MapFor) {
        let flags = match what {
            MapFor::Private | MapFor::Reading => cachelet::MAPPED,
            MapFor::Writing | MapFor::Touching => cachelet::MAPPED | cachelet::STORED,
        };
        self.cachelet.flags.fetch_or(flags, core::sync::atomic::Ordering::SeqCst);
    }
}
