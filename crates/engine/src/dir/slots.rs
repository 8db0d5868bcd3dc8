//! Finding a free slot without locking the directory.
//!
//! The cachelet's `root` word holds a volatile cursor: the slot to be tried next
//! and the one freed last. It is a hint: whoever finds the slot taken goes on.
//! At the end of a block one earlier block is looked at (a clock hand in the
//! cachelet's `blocks`), and gone through if an eighth of it is free; so names
//! that come and go do not make a directory grow for ever, and one that only
//! grows pays for a look at each block in turn. Where the image has no room for
//! another block, any free slot will do.

use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::names::Parent;
use crate::segment::Cachelet;
use base::Result;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::BLOCK;
use format::directory::SLOTS_PER_BLOCK;
use format::inode::{Inode, node_offset};
use format::lane::Kind;
use pm::Errno;

/// Free slots that make an earlier block worth going through.
const WORTH: u64 = SLOTS_PER_BLOCK / 8;
/// Blocks looked through before a directory that others fill as fast is given up on.
const ATTEMPTS: u32 = 1 << 12;

/// The cursor, unpacked: the next slot, and the slot freed last + 1.
#[inline]
fn unpack(cursor: u64) -> (u64, u64) {
    (cursor & 0xffff_ffff, cursor >> 32)
}

impl Fs {
    /// Reserves a free slot of the directory entered; returns its offset in the
    /// image. Makes the directory grow if need be, in a record of its own: so
    /// the operation's record must still be empty.
    pub(crate) fn reserve_any_slot<'a>(&'a self, tx: &mut Tx<'a>, parent: &Parent<'a>) -> Result<(u64, &'a AtomicU64)> {
        let directory = parent.seen.cachelet;
        let cursor = directory.root.load(Relaxed);
        let (next, freed) = unpack(cursor);
        let slot = if freed != 0 { freed - 1 } else { next };
        let seen = directory.size.load(Relaxed);
        // The common case: the cursor is right, in the block looked at last, and
        // not at the end of a block.
        if (slot % SLOTS_PER_BLOCK != 0 || freed != 0) && seen >> 40 == slot / SLOTS_PER_BLOCK + 1 {
            // The block: the lower 40 bits.
            let at = (seen << 24 >> 24) * BLOCK + slot % SLOTS_PER_BLOCK * 8;
            if let Some(word) = tx.reserve_slot(at)? {
                let after = if freed != 0 { next } else { next + 1 };
                let _ = directory.root.compare_exchange(cursor, after, Release, Relaxed);
                return Ok((at, word));
            }
        }
        self.search_slot(tx, directory, parent.seen.id, parent.inode)
    }

    /// Keeps the place of the block of a slot in the cachelet's `size` (a
    /// directory's is read from the inode): block of slots + 1 in the upper 24
    /// bits, block of the image below. Blocks of a directory never move.
    fn note_block(&self, directory: &Cachelet, slot: u64, at: u64) {
        let number = slot / SLOTS_PER_BLOCK + 1;
        if number < 1 << 24 {
            directory.size.store(number << 40 | (at / BLOCK), Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn search_slot<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        directory: &'a Cachelet,
        id: u64,
        inode: &'a Inode,
    ) -> Result<(u64, &'a AtomicU64)> {
        let cursor = directory.root.load(Relaxed);
        let (mut next, freed) = unpack(cursor);
        if freed != 0
            && let Some(at) = self.slot_offset(inode, freed - 1)?
            && let Some(word) = tx.reserve_slot(at)?
        {
            self.note_block(directory, freed - 1, at);
            let _ = directory.root.compare_exchange(cursor, next, Release, Relaxed);
            return Ok((at, word));
        }
        if next == 0 {
            next = self.end_of_slots(inode)?;
        }
        for _ in 0..ATTEMPTS {
            if next % SLOTS_PER_BLOCK == 0 {
                next = self.next_block(tx, directory, id, inode, next)?;
            }
            let Some(at) = self.slot_offset(inode, next)? else {
                next = self.end_of_slots(inode)?;
                continue;
            };
            // The rest of the block lies behind it.
            let start = next;
            while next == start || next % SLOTS_PER_BLOCK != 0 {
                let at = at + (next - start) * 8;
                if let Some(word) = tx.reserve_slot(at)? {
                    self.note_block(directory, next, at);
                    directory.root.store(next + 1, Release);
                    return Ok((at, word));
                }
                next += 1;
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// Where to go on at the end of a block: the block that follows if it is
    /// fresh, an earlier one with room, or a new one. Returns a slot.
    fn next_block<'a>(&'a self, tx: &mut Tx<'a>, directory: &'a Cachelet, id: u64, inode: &Inode, next: u64) -> Result<u64> {
        let blocks = self.slot_blocks(inode)?;
        let block = next / SLOTS_PER_BLOCK;
        if block < blocks && self.worthy_block(inode, block)?.is_some() {
            return Ok(next);
        }
        // Where there are nearly as many entries as slots, no block has room enough.
        if blocks > 0 && inode.size.load(Relaxed).saturating_add(WORTH) <= blocks * SLOTS_PER_BLOCK {
            let hand = u64::from(directory.blocks.fetch_add(1, Relaxed)) % blocks;
            if let Some(first) = self.worthy_block(inode, hand)? {
                return Ok(hand * SLOTS_PER_BLOCK + first);
            }
        }
        match self.grow_directory(tx, directory, id, inode, blocks) {
            Err(base::Error::Posix(Errno::ENOSPC)) => self.last_resort(inode, blocks),
            grown => grown,
        }
    }

    /// Where the image has no room for another block: any free slot, in whichever block. `ENOSPC`.
    #[cold]
    fn last_resort(&self, inode: &Inode, blocks: u64) -> Result<u64> {
        for block in 0..blocks {
            if let Some(first) = self.free_slots(inode, block, 1)? {
                return Ok(block * SLOTS_PER_BLOCK + first);
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// The first free slot of a block, if enough of them are free.
    fn worthy_block(&self, inode: &Inode, block: u64) -> Result<Option<u64>> {
        self.free_slots(inode, block, WORTH)
    }

    /// The first free slot of a block that has as many.
    fn free_slots(&self, inode: &Inode, block: u64, enough: u64) -> Result<Option<u64>> {
        let Some(at) = self.slot_offset(inode, block * SLOTS_PER_BLOCK)? else { return Ok(None) };
        let slots: &[AtomicU64; SLOTS_PER_BLOCK as usize] = self.at(at, "directory block")?;
        let (mut first, mut free) = (SLOTS_PER_BLOCK, 0);
        for (i, slot) in slots.iter().enumerate() {
            let slot = slot.load(Relaxed);
            if slot == 0 || self.is_stale_slot(slot) {
                first = first.min(i as u64);
                free += 1;
                if free == enough {
                    return Ok(Some(first));
                }
            }
        }
        Ok(None)
    }

    /// The slot after the last one in use, looking at the last block only.
    fn end_of_slots(&self, inode: &Inode) -> Result<u64> {
        let blocks = self.slot_blocks(inode)?;
        let Some(last) = blocks.checked_sub(1) else { return Ok(0) };
        let Some(at) = self.slot_offset(inode, last * SLOTS_PER_BLOCK)? else {
            return Err(corrupt("last block of a directory", self.image.offset_of(inode)));
        };
        let slots: &[AtomicU64; SLOTS_PER_BLOCK as usize] = self.at(at, "directory block")?;
        let used = slots.iter().rposition(|slot| slot.load(Relaxed) != 0).map_or(0, |i| i as u64 + 1);
        Ok(last * SLOTS_PER_BLOCK + used)
    }

    /// Appends blocks to a directory under its inode lock (a leaf lock here),
    /// unless somebody else was faster. Returns the first new slot.
    #[cold]
    #[inline(never)]
    fn grow_directory<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        directory: &'a Cachelet,
        id: u64,
        inode: &Inode,
        blocks: u64,
    ) -> Result<u64> {
        // Found and zeroed before the lock is taken: that may need a larger image.
        let fresh = self.blocks_to_append(tx, node_offset(id), (blocks / 8).clamp(1, 16))?;
        let keep = tx.held;
        tx.lock_inode(directory, id)?;
        let now = self.slot_blocks(inode)?;
        if now == blocks {
            let kind = tx.now(Kind::DirectoryGrow);
            let grown = self.append_blocks(tx, node_offset(id), fresh).and_then(|()| tx.commit());
            tx.now(kind);
            if let Err(error) = grown {
                tx.abandon();
                tx.unlock_to(keep);
                return Err(error);
            }
        } else {
            tx.abandon();
        }
        tx.unlock_to(keep);
        Ok(blocks * SLOTS_PER_BLOCK)
    }

    /// Notes a slot that has just been freed, so that the next name takes it.
    pub(crate) fn slot_freed(&self, parent: &Parent, at: u64) {
        let directory = parent.seen.cachelet;
        let (seen, block) = (directory.size.load(Relaxed), at / BLOCK);
        let slot = if seen & 0xff_ffff_ffff == block && seen >> 40 != 0 {
            ((seen >> 40) - 1) * SLOTS_PER_BLOCK + at % BLOCK / 8
        } else {
            match self.slot_number(parent.inode, at) {
                Some(slot) => slot,
                None => return,
            }
        };
        let cursor = directory.root.load(Relaxed);
        if slot < 0xffff_ffff && unpack(cursor).0 != 0 {
            let _ = directory.root.compare_exchange(cursor, unpack(cursor).0 | (slot + 1) << 32, Release, Relaxed);
        }
    }

    /// The number of the slot at an offset, where that is a matter of arithmetic.
    #[cold]
    #[inline(never)]
    fn slot_number(&self, inode: &Inode, at: u64) -> Option<u64> {
        match format::extent::Root::unpack(inode.root.load(Acquire)) {
            Some(format::extent::Root::One { block, len, .. }) => {
                let within = at.checked_sub(block * format::BLOCK)?;
                (within < len * format::BLOCK).then_some(within / 8)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::NewNode;
    use std::collections::BTreeSet;
    use std::format;

    /// Goal: names that come where others went fill the gaps, each in a slot of
    /// its own. Method: every second name of a directory of four blocks goes, as
    /// many come; the blocks stay four, and readers see every name once.
    #[test]
    fn gaps_are_filled() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: base::Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let blocks = || test.fs.slot_blocks(test.fs.inode(node_offset(root.id)).unwrap()).unwrap();
        let mut names: BTreeSet<_> = (0..2000).map(|i| format!("old{i}").into_bytes()).collect();
        for name in &names {
            test.create(&cx, root, name, &new).unwrap();
        }
        let before = blocks();
        assert_eq!(before, 4);
        for i in (0..2000).step_by(2) {
            let name = format!("old{i}").into_bytes();
            test.unlink(&cx, root, &name).unwrap();
            names.remove(&name);
        }
        for i in 0..1000 {
            let name = format!("new{i}").into_bytes();
            test.create(&cx, root, &name, &new).unwrap();
            names.insert(name);
        }
        let mut seen = BTreeSet::new();
        test.readdir(&cx, root, 0, &mut |entry| {
            assert!(seen.insert(entry.name.to_vec()), "{:?} twice", entry.name);
            true
        })
        .unwrap();
        seen.retain(|name| name != b"." && name != b"..");
        assert_eq!((seen, blocks()), (names, before));
    }
}
