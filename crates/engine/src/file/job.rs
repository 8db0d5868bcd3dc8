//! A file whose inode is locked, being changed: the steps that writing,
//! allocating and truncating are made of.

use super::cursor::Source;
use super::edit::{Edit, Edited};
use super::{Moving, block_of};
use crate::fs::Fs;
use crate::lane::Tx;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Error, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::extent::Extent;
use format::inode::{Head, node_offset, pack_links, unpack_links, word};
use format::{BLOCK, Inode};
use pm::Errno;

/// Blocks that one change of a map may need for its nodes.
const MAP_BLOCKS: u64 = 2 * (format::extent::DEPTH_MAX as u64 + 1);

/// Most holes that are made again where not all could be filled.
pub(super) const UNDONE_MAX: usize = 32;

/// The work on one file.
pub(super) struct Job<'t, 'a> {
    pub fs: &'a Fs,
    pub tx: &'t mut Tx<'a>,
    pub cachelet: &'a Cachelet,
    pub inode: &'a Inode,
    /// Offset of the inode.
    pub at: u64,
    /// The time that the file is stamped with.
    pub now: i64,
}

/// Publishes the size and time of the file whose locked inode is at `at`: see [`Job::publish`].
#[inline]
pub(crate) fn stamp(fs: &Fs, cachelet: &Cachelet, inode: &Inode, at: u64, size: u64, now: u64) {
    let image = &fs.image;
    let grows = size != cachelet.size.load(Relaxed);
    let stamps = cachelet.mtime.load(Relaxed) != now || cachelet.ctime.load(Relaxed) != now;
    if grows {
        image.fence();
        image.store(&inode.size, size);
    }
    if stamps {
        image.store(&inode.mtime, now);
        image.store(&inode.ctime, now);
    }
    if grows || stamps {
        image.flush(at, 64);
        let change = fs.change(cachelet);
        change.mtime.store(now, Relaxed);
        change.ctime.store(now, Relaxed);
        change.size.store(size, Release);
    }
    image.fence();
}

impl<'t, 'a> Job<'t, 'a> {
    /// Starts work on a file whose inode is locked.
    pub(super) fn new(tx: &'t mut Tx<'a>, cachelet: &'a Cachelet, id: u64) -> Result<Job<'t, 'a>> {
        let (fs, at) = (tx.fs, node_offset(id));
        Ok(Job { fs, tx, cachelet, inode: fs.inode(at)?, at, now: fs.clock.now() })
    }

    /// Size in bytes.
    #[inline]
    pub(super) fn size(&self) -> u64 {
        self.cachelet.size.load(Relaxed)
    }

    /// The data root.
    #[inline]
    pub(super) fn root(&self) -> u64 {
        self.inode.root.load(Relaxed)
    }

    /// Whether the file has set-id bits, or may have capabilities.
    #[inline]
    pub(super) fn may_give_rights(&self) -> bool {
        self.cachelet.mode.load(Relaxed) & 0o6000 != 0 || self.cachelet.flags.load(Relaxed) & cachelet::CAPABLE != 0
    }

    /// Takes away what a change of the contents takes away: capabilities, and set-id bits if it is made by somebody
    /// without privilege. Records of their own, before anything else is changed.
    #[inline]
    pub(super) fn drop_rights(&mut self, cx: &Cx) -> Result<()> {
        let set_id = self.cachelet.mode.load(Relaxed) & 0o6000 != 0 && !cx.cred.privileged;
        if set_id || self.cachelet.flags.load(Relaxed) & cachelet::CAPABLE != 0 {
            return self.drop_rights_slow(cx);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn drop_rights_slow(&mut self, cx: &Cx) -> Result<()> {
        self.fs.drop_capabilities(self.tx, self.cachelet, self.at)?;
        if cx.cred.privileged {
            return Ok(());
        }
        let mode = self.cachelet.mode.load(Relaxed) as u16;
        let (uid, gid) = (self.cachelet.uid.load(Relaxed), self.cachelet.gid.load(Relaxed));
        let in_group = || cx.cred.in_group(gid) || cx.cred.is_privileged_over(uid, gid);
        let group = mode & 0o2000 != 0 && (mode & 0o010 != 0 || !in_group());
        let left = mode & !(0o4000 | if group { 0o2000 } else { 0 });
        if left == mode {
            return Ok(());
        }
        let permission = self.fs.permission_index(self.tx, uid, gid, left & 0o7777)?;
        let head = Head { permission, ..self.inode.head() };
        self.tx.set(self.at + word::HEAD, head.pack())?;
        self.tx.commit()?;
        let change = self.fs.change(self.cachelet);
        change.mode.store(change.mode.load(Relaxed) & !0xffff | u32::from(left), Relaxed);
        Ok(())
    }

    /// Zeroes the allocated bytes among `from..to` of the file.
    pub(super) fn zero_allocated(&mut self, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        while at < to {
            let piece = self.fs.piece(self.root(), at, to - at)?;
            if piece.shared {
                self.own(at, at + piece.len)?;
                continue;
            }
            if let Some(place) = piece.image {
                Source::Zero.put(self.fs, place, piece.len, 0)?;
            }
            at += piece.len;
        }
        Ok(())
    }

    /// Publishes a size and the time by single 8-byte stores; what was written
    /// is ordered before. Durable when it returns.
    #[inline]
    pub(super) fn publish(&mut self, size: u64) {
        stamp(self.fs, self.cachelet, self.inode, self.at, size, self.now as u64);
    }

    /// Allocates up to `want` blocks for the hole at block `block` of the file;
    /// they are in the map once `commit` has been called with the edit.
    pub(super) fn allocate(&mut self, block: u64, want: u64) -> Result<Extent> {
        let near = self.fs.near(self.root(), block);
        let (first, len) = self.tx.blocks(want, near)?;
        Ok(Extent { file: block, block: first, len, shared: false })
    }

    /// Allocates up to `want` blocks for the hole at block `block` and adds them
    /// to the map. The map may need blocks of its own: where the image is nearly
    /// full, the run is made shorter for their sake.
    pub(super) fn allocate_mapped(&mut self, block: u64, want: u64) -> Result<(Extent, Edited)> {
        let mut want = want;
        loop {
            let e = self.allocate(block, want)?;
            match self.insert(e) {
                Ok(edited) => return Ok((e, edited)),
                Err(error) => {
                    // The blocks are listed in the record, which may be committed for something else.
                    self.tx.abandon();
                    if error != Error::Posix(Errno::ENOSPC) || e.len <= 1 {
                        return Err(error);
                    }
                    want = e.len.saturating_sub(MAP_BLOCKS).max(1);
                }
            }
        }
    }

    /// Adds an extent to the map.
    pub(super) fn insert(&mut self, e: Extent) -> Result<Edited> {
        let mut edit = Edit::new(self.tx, self.inode.root.load(Relaxed));
        edit.insert(e)?;
        Ok(edit.finish())
    }

    /// Commits an edit of the map that added `added` blocks, with a new size and
    /// the time, and tells the cachelet.
    pub(super) fn commit(&mut self, edited: Edited, added: u64, size: u64, stamp: bool) -> Result<()> {
        let (nlink, blocks) = unpack_links(self.inode.links.load(Acquire));
        let blocks = u64::from(blocks).saturating_add(added).saturating_sub(edited.freed).min(u64::from(u32::MAX)) as u32;
        self.tx.set(self.at + word::LINKS, pack_links(nlink, blocks))?;
        if edited.root != self.root() {
            self.tx.set(self.at + word::ROOT, edited.root)?;
        }
        if size != self.size() {
            self.tx.set(self.at + word::SIZE, size)?;
        }
        if stamp {
            self.tx.set(self.at + word::MTIME, self.now as u64)?;
            self.tx.set(self.at + word::CTIME, self.now as u64)?;
        }
        let moving = edited.moved.then(|| Moving::begin(self.cachelet));
        self.tx.commit()?;
        let change = self.fs.change(self.cachelet);
        change.root.store(edited.root, Release);
        change.blocks.store(blocks, Relaxed);
        if stamp {
            change.mtime.store(self.now as u64, Relaxed);
            change.ctime.store(self.now as u64, Relaxed);
        }
        change.size.store(size, Release);
        drop(change);
        drop(moving);
        if added > 0 {
            self.fs.hole_filled(self.cachelet);
        }
        Ok(())
    }

    /// Takes blocks `from..to` from the file, in as many records as it needs.
    pub(super) fn cut(&mut self, from: u64, to: u64) -> Result<()> {
        let mut to = to;
        while from < to {
            to = self.cut_once(from, to)?;
        }
        Ok(())
    }

    /// As `cut`, in one record; returns the end of what is left to take.
    #[inline]
    pub(super) fn cut_once(&mut self, from: u64, to: u64) -> Result<u64> {
        let mut edit = Edit::new(self.tx, self.inode.root.load(Relaxed));
        let to = edit.cut(from, to)?;
        let edited = edit.finish();
        if edited.moved {
            let size = self.size();
            self.commit(edited, 0, size, false)?;
        }
        self.tx.unlock_shares();
        Ok(to)
    }

    /// Fills the holes among `from..to` (bytes) with blocks; what of them lies
    /// below `zero_to` is zeroed. Where that fails the holes are made again, but
    /// for a mapped file, and for those beyond the first [`UNDONE_MAX`]: there are
    /// zeros in them then, or blocks behind the end, which go with the last close.
    pub(super) fn fill_holes(&mut self, from: u64, to: u64, zero_to: u64) -> Result<()> {
        let mut filled = [(0, 0); UNDONE_MAX];
        let result = self.fill_each_hole((from, to), zero_to, &mut filled);
        if result.is_err() {
            // What was listed for a record that was not to be.
            self.tx.abandon();
            let undone = !self.is_mapped() && filled.iter().rev().all(|(first, end)| self.cut(*first, *end).is_ok());
            if !undone || filled.last().is_some_and(|(_, end)| *end != 0) {
                self.tx.abandon();
                self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
            }
        }
        result
    }

    fn fill_each_hole(&mut self, (from, to): (u64, u64), zero_to: u64, filled: &mut [(u64, u64)]) -> Result<()> {
        let mut filled = filled.iter_mut();
        let (mut block, end) = (block_of(from), super::blocks_for(to));
        while block < end {
            let next = self.fs.find_extent(self.root(), block)?;
            if let Some(e) = next.filter(|e| e.file <= block) {
                block = e.file + e.len;
                continue;
            }
            let want = next.map_or(end, |e| e.file.min(end)) - block;
            let (e, edited) = self.allocate_mapped(block, want)?;
            let zero = (zero_to.min((e.file + e.len) * BLOCK)).saturating_sub(e.file * BLOCK);
            if zero > 0 {
                Source::Zero.put(self.fs, e.block * BLOCK, zero, 0)?;
            }
            self.tx.order();
            let size = self.size();
            self.commit(edited, e.len, size, false)?;
            if let Some(filled) = filled.next() {
                *filled = (e.file, e.file + e.len);
            }
            block += e.len;
        }
        Ok(())
    }

    /// How many blocks the holes among `from..to` (bytes) have.
    pub(super) fn holes(&self, from: u64, to: u64) -> Result<u64> {
        let (mut block, end, mut holes) = (block_of(from), super::blocks_for(to), 0);
        while block < end {
            let Some(next) = self.fs.find_extent(self.root(), block)? else { return Ok(holes + end - block) };
            holes += next.file.clamp(block, end) - block;
            block = next.file + next.len;
        }
        Ok(holes)
    }

    /// Whether some process has mapped the file: its blocks must not be freed.
    pub(super) fn is_mapped(&self) -> bool {
        self.cachelet.flags.load(Acquire) & cachelet::MAPPED != 0
    }
}
