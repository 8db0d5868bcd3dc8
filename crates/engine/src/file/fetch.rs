//! Filling holes of a cached file from its original.
//!
//! The bytes are put into blocks that are nobody's yet, with nothing locked: the lower file system may take its time, or
//! never answer. Then the inode is locked, and the blocks become the file's if it is still the same original and still a
//! hole there; else somebody was faster, or it has changed, and they go back. Who dies before the record leaves
//! nothing: blocks reserved go back with the lane.

use super::job::Job;
use super::{Moving, block_of, blocks_for};
use crate::fs::Fs;
use crate::lane::Tx;
use crate::lower::Stamp;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use format::BLOCK;
use format::inode::{node_offset, pack_links, unpack_links, word};
use format::lane::Kind;
use pm::{Errno, UserSlice};

/// Who reads the original: fills the buffer with its bytes from an offset on, and says how many came.
pub type Fetch<'a> = dyn FnMut(u64, UserSlice) -> core::result::Result<usize, Errno> + 'a;

/// A hole of a cached file that is to be filled: whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// First byte.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Whether what comes before it is here, or it is at the beginning: the file seems to be read in order.
    pub is_next: bool,
}

impl Fs {
    /// The first hole of a file between two bytes, as far as its original has something there; nothing is locked.
    pub fn hole(&self, cx: &Cx, node: Node, from: u64, end: u64) -> Result<Option<Hole>> {
        for _ in 0..1000 {
            let cachelet = self.cached(cx, node)?;
            self.is_file(cachelet)?;
            let before = cachelet.map_sequence.load(Acquire);
            let found = self.hole_in(cachelet, node, from, end);
            fence(Acquire);
            if before & 1 == 0 && cachelet.map_sequence.load(Relaxed) == before {
                return found;
            }
        }
        // Somebody keeps changing it: look while nobody can.
        let mut tx = self.begin(cx, Kind::Write)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        self.hole_in(cachelet, node, from, end)
    }

    pub(crate) fn hole_in(&self, cachelet: &Cachelet, node: Node, from: u64, end: u64) -> Result<Option<Hole>> {
        let (size, root) = (cachelet.size.load(Acquire), cachelet.root.load(Acquire));
        let mut at = from;
        while at < end.min(size) {
            match self.find_extent(root, block_of(at))? {
                Some(e) if e.file * BLOCK <= at => at = (e.file + e.len) * BLOCK,
                next => {
                    // Behind the end of the original there are zeros.
                    let last = self.known(node)?.map_or(0, |known| known.end.min(size));
                    let start = at - at % BLOCK;
                    let stop = next.map_or(last.next_multiple_of(BLOCK), |e| e.file * BLOCK);
                    let is_next =
                        start == 0 || self.find_extent(root, block_of(start) - 1)?.is_some_and(|e| e.file < block_of(start));
                    return Ok((at < last).then_some(Hole { start, end: stop, is_next }));
                }
            }
        }
        Ok(None)
    }

    /// Fills a hole of the file, from byte `from` (of a block) on, at most `len` bytes; perhaps fewer, or none where the
    /// hole is another by then. `original`: of which the bytes are, and up to where they hold. `ENOSPC`, and whatever
    /// `fetch` fails with.
    pub fn fetch(&self, cx: &Cx, node: Node, (from, len): (u64, u64), original: (&Stamp, u64), fetch: &mut Fetch) -> Result<()> {
        let mut tx = self.begin(cx, Kind::Write)?;
        let first = block_of(from);
        let near = self.near(self.inode(node_offset(node.id))?.root.load(Acquire), first);
        let (block, count) = tx.blocks(blocks_for(from + len) - first, near)?;
        let (place, end) = (block * BLOCK, count * BLOCK);
        self.present(place, end)?;
        let mut done = 0;
        while done < end && from + done < original.1 {
            match self.image.fill(place + done, end - done, &mut |part| fetch(from + done, part)) {
                Ok(0) => break,
                Ok(came) => done += came,
                Err(errno) => {
                    tx.abandon();
                    return Err(errno.into());
                }
            }
        }
        // Behind the end of the original there is nothing.
        self.image.zero(place + done, end - done)?;
        tx.order();
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let known = self.known(node)?;
        let next = self.find_extent(cachelet.root.load(Acquire), first)?;
        if next.is_some_and(|e| e.file < first + count)
            || !known.is_some_and(|known| {
                known.stamp.is_same_file(original.0)
                    && known.end == original.1
                    && (known.is_dirty() || known.stamp == *original.0)
            })
        {
            tx.abandon();
            return Ok(());
        }
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        job.add_fetched(first, block, count)
    }

    /// Takes away all that is here of a file whose inode is locked; `EBUSY` if it is mapped.
    pub(crate) fn drop_contents<'a>(&'a self, tx: &mut Tx<'a>, cachelet: &'a Cachelet, id: u64) -> Result<()> {
        let mut job = Job::new(tx, cachelet, id)?;
        if job.is_mapped() {
            return Err(Errno::EBUSY.into());
        }
        job.cut(0, super::BLOCKS_MAX)?;
        cachelet.flags.fetch_or(cachelet::UNSURE, SeqCst);
        Ok(())
    }
}

impl Job<'_, '_> {
    /// Adds blocks to the map, and nothing else: as the program sees it, the file has not changed.
    fn add_fetched(&mut self, file: u64, block: u64, len: u64) -> Result<()> {
        let edited =
            self.insert(format::extent::Extent { file, block, len, shared: false }).inspect_err(|_| self.tx.abandon())?;
        let (nlink, blocks) = unpack_links(self.inode.links.load(Acquire));
        let blocks = u64::from(blocks).saturating_add(len).min(u64::from(u32::MAX)) as u32;
        self.tx.set(self.at + word::LINKS, pack_links(nlink, blocks))?;
        if edited.root != self.root() {
            self.tx.set(self.at + word::ROOT, edited.root)?;
        }
        let moving = edited.moved.then(|| Moving::begin(self.cachelet));
        self.tx.commit()?;
        self.fs.change(self.cachelet).root.store(edited.root, Release);
        drop(moving);
        self.fs.hole_filled(self.cachelet);
        Ok(())
    }
}
