//! readdir: slots in order, names and types from the edentries; no inode is touched, but behind a cache for its number.

use super::NameBuffer;
use super::ahead::Ahead;
use crate::fs::{Fs, corrupt};
use crate::segment::{Cachelet, cachelet};
use base::{Cx, DirEntry, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::edentry::{Edentry, Head};
use format::inode::{Inode, node_id, node_offset};
use pm::Errno;
use pm::fetch::fetch;

/// Slots in a line of the block: so many are looked at, and fetched ahead, at once.
const AHEAD: usize = 8;
/// Behind so many slots a directory is one whose names are probably not in the processor's caches ([`Ahead`]).
const LARGE: u64 = SLOTS_PER_BLOCK;
/// Cookies 0 and 1 are `.` and `..`; slot `s` has cookie `s + 2`.
const DOTS: u64 = 2;

impl Fs {
    /// Reports entries from `cookie` on until `each` returns `false`. See `vfs::Backend::readdir`.
    pub fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let of = |c: &Cachelet| ((c.mode.load(Relaxed) >> 16) as u8, c.flags.load(Relaxed));
        let (kind, flags) = self.with_cached(cx, dir, |cachelet| self.consistent(cx, cachelet, dir.id, of))?;
        if kind != Kind::Directory as u8 {
            return Err(Errno::ENOTDIR.into());
        }
        if flags & cachelet::REMOVED != 0 {
            return Err(Errno::ENOENT.into());
        }
        let offset = node_offset(dir.id);
        if cookie == 0 && !each(DirEntry { name: b".", ino: self.ino(dir.id), kind: Kind::Directory, next: 1, id: dir.id }) {
            return Ok(());
        }
        if cookie <= 1 {
            let parent = self.parent_offset(offset)?;
            let parent = node_id(parent, self.inode(parent)?.head().generation);
            if !each(DirEntry { name: b"..", ino: self.ino(parent), kind: Kind::Directory, next: DOTS, id: parent }) {
                return Ok(());
            }
        }
        self.read_slots(offset, cookie.max(DOTS) - DOTS, each)
    }

    fn read_slots(&self, offset: u64, first: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let inode = self.inode(offset)?;
        let mut name = NameBuffer::new();
        let mut ahead = Ahead::new();
        let mut slot = first;
        while let Some(block) = self.block_of_slots(inode, slot)? {
            let start = (slot % SLOTS_PER_BLOCK) as usize;
            let (lines, _) = block.as_chunks::<AHEAD>();
            let mut i = start;
            let mut fetched = false;
            while i < block.len() {
                if i.is_multiple_of(AHEAD) || !fetched {
                    // Most slots of a small directory's block were never used.
                    let Some(empty) = lines.iter().skip(i / AHEAD).position(|line| !is_empty(line)) else { break };
                    if empty != 0 {
                        i = i - i % AHEAD + empty * AHEAD;
                        fetched = false;
                    }
                    let line = i - i % AHEAD;
                    let from = if fetched { line + AHEAD } else { line };
                    block.iter().take(line + 2 * AHEAD).skip(from).for_each(|word| self.fetch_edentry(word.load(Relaxed)));
                    fetched = true;
                }
                let next = slot + (i - start) as u64 + 1 + DOTS;
                let mut report = |entry: DirEntry| {
                    if next > LARGE {
                        ahead.listed(self, offset, entry.name);
                    }
                    each(entry)
                };
                if !self.report_slot(&block[i], offset, next, &mut name, &mut report)? {
                    ahead.end(self);
                    return Ok(());
                }
                i += 1;
            }
            slot += (block.len() - start) as u64;
        }
        ahead.end(self);
        Ok(())
    }

    /// The block that holds a slot.
    fn block_of_slots(&self, inode: &Inode, slot: u64) -> Result<Option<&[AtomicU64; SLOTS_PER_BLOCK as usize]>> {
        match self.slot_offset(inode, slot - slot % SLOTS_PER_BLOCK)? {
            Some(at) => self.at(at, "directory block").map(Some),
            None => Ok(None),
        }
    }

    /// Fetches the edentry at an offset, if there is one.
    #[inline]
    pub(crate) fn fetch_edentry(&self, slot: u64) {
        if slot != 0
            && slot & 1 == 0
            && let Some(edentry) = self.image.at::<Edentry>(slot)
        {
            fetch(edentry);
        }
    }

    /// Reports the entry of one slot; `false` if the reader wants no more.
    #[inline]
    fn report_slot(
        &self,
        word: &AtomicU64,
        parent: u64,
        next: u64,
        name: &mut NameBuffer,
        each: &mut impl FnMut(DirEntry) -> bool,
    ) -> Result<bool> {
        for _ in 0..1000 {
            let slot = word.load(Acquire);
            if slot == 0 || reserved_by(slot).is_some() {
                return Ok(true);
            }
            let entry = self.read_edentry(slot, name);
            // It was this slot's edentry that we read only if it still is, and
            // has not become another in the same place.
            fence(Acquire);
            if word.load(Relaxed) != slot {
                continue;
            }
            let entry = entry?;
            if Head::unpack(self.edentry(slot)?.head.load(Relaxed)) != Some(entry.head) {
                continue;
            }
            let Some(kind) = Kind::from_dt(entry.head.kind).filter(|_| entry.parent == parent) else {
                return Err(corrupt("edentry in a directory slot", slot));
            };
            let (ino, id) = (self.ino(entry.child), entry.child);
            let name = name.name(entry.head.name_len, slot)?.bytes();
            return Ok(each(DirEntry { name, ino, kind, next, id }));
        }
        Ok(true)
    }
}

/// Whether no slot of a line is in use: eight instructions, for the many lines of which that is true.
#[inline(always)]
fn is_empty(line: &[AtomicU64; AHEAD]) -> bool {
    let [a, b, c, d, e, f, g, h] = line;
    let word = |slot: &AtomicU64| slot.load(Relaxed);
    word(a) | word(b) | word(c) | word(d) | word(e) | word(f) | word(g) | word(h) == 0
}
