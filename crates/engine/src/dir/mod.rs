//! Directories: slots in blocks, each a reference to an edentry.
//!
//! The index answers "where is this name?"; the slots answer "what is there?",
//! in an order that stays while others create and delete: the slot's number is
//! the `readdir` cookie. A directory is never locked to change its names; a slot
//! is reserved by compare-and-swap (`lane::slot`), filled or freed by the record.
//!
//! The blocks are mapped through the inode's data root like a file's, only ever
//! appended, and freed with the directory.
//!
//! [`slots`] finds free ones, [`read`] is readdir, [`ahead`] what it fetches for who asks for the names next, [`recount`] takes the counts again.

mod ahead;
pub(crate) mod read;
pub(crate) mod recount;
pub(crate) mod slots;
#[cfg(test)]
mod tests;

use crate::fs::{Fs, corrupt};
use base::{Name, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::directory::SLOTS_PER_BLOCK;
use format::edentry::{self, Head};
use format::extent::Root;
use format::inode::{self, Inode};
use format::{BLOCK, Cold, LINE};

/// Room for a name, read word by word.
pub(crate) struct NameBuffer([u8; 256]);

impl NameBuffer {
    pub(crate) const fn new() -> NameBuffer {
        NameBuffer([0; 256])
    }

    /// The first `len` bytes, whatever they are: to compare, to hash, and for whoever checks images.
    #[inline]
    pub(crate) fn raw(&self, len: u8) -> &[u8] {
        &self.0[..usize::from(len)]
    }

    /// The name of the edentry at `at`, for anybody else. Without a lock it must be known before that it was that edentry.
    #[inline]
    pub(crate) fn name(&self, len: u8, at: u64) -> Result<Name<'_>> {
        Name::in_buffer(&self.0, len).ok_or_else(|| corrupt("name", at))
    }
}

/// What an edentry says, but for its name.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) parent: u64,
    pub(crate) child: u64,
    /// For the checker.
    #[cfg_attr(not(any(test, feature = "check")), allow(dead_code))]
    pub(crate) slot: u64,
}

impl Fs {
    /// Reads an edentry and its name. Without a lock the caller must make sure
    /// afterwards that it still was that edentry.
    #[inline]
    pub(crate) fn read_edentry(&self, offset: u64, name: &mut NameBuffer) -> Result<Entry> {
        let edentry = self.edentry(offset)?;
        let head = Head::unpack(edentry.head.load(Acquire)).ok_or(corrupt("edentry", offset))?;
        let words = usize::from(head.name_len).div_ceil(8);
        let (chunks, _) = name.0.as_chunks_mut::<8>();
        for (word, chunk) in edentry.name.iter().take(words).zip(chunks) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        if words > edentry.name.len() {
            self.read_rest(offset, words, name)?;
        }
        Ok(Entry {
            head,
            parent: edentry.parent.load(Relaxed),
            child: edentry.child.load(Relaxed),
            slot: edentry.slot.load(Relaxed),
        })
    }

    #[cold]
    #[inline(never)]
    fn read_rest(&self, offset: u64, words: usize, name: &mut NameBuffer) -> Result<()> {
        let (chunks, _) = name.0.as_chunks_mut::<8>();
        let rest = self.words(offset + LINE, words - edentry::WORDS, "name")?;
        for (word, chunk) in rest.iter().zip(&mut chunks[edentry::WORDS..]) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        Ok(())
    }

    /// Offset of the word that says which edentry is a directory's own.
    #[inline]
    pub(crate) fn own_word(&self, offset: u64, inode: &Inode) -> Result<u64> {
        if inode.head().flags & inode::COLD == 0 {
            return Ok(offset + inode::word::EXTRA);
        }
        Ok(inode.extra.load(Acquire).wrapping_add(core::mem::offset_of!(Cold, own) as u64))
    }

    /// A directory's own edentry; 0 for the root.
    #[inline]
    pub(crate) fn own_edentry(&self, offset: u64) -> Result<u64> {
        let word = self.own_word(offset, self.inode(offset)?)?;
        Ok(self.at::<AtomicU64>(word, "own edentry")?.load(Acquire))
    }

    /// Number of blocks with slots of a directory.
    #[inline]
    pub(crate) fn slot_blocks(&self, inode: &Inode) -> Result<u64> {
        let root = inode.root.load(Acquire);
        match Root::unpack(root) {
            Some(Root::Empty) => Ok(0),
            Some(Root::One { len, .. }) => Ok(len),
            Some(Root::Tree { .. }) => self.end_of_extents(root),
            None => Err(corrupt("root of a directory", self.image.offset_of(inode))),
        }
    }

    /// Offset in the image of a slot; `None` past the last block.
    #[inline]
    pub(crate) fn slot_offset(&self, inode: &Inode, slot: u64) -> Result<Option<u64>> {
        let block = slot / SLOTS_PER_BLOCK;
        let first = match Root::unpack(inode.root.load(Acquire)) {
            Some(Root::One { block: first, len, .. }) if block < len => first + block,
            Some(Root::One { .. } | Root::Empty) => return Ok(None),
            Some(Root::Tree { .. }) => match self.slot_block(inode, block)? {
                Some(block) => block,
                None => return Ok(None),
            },
            None => return Err(corrupt("root of a directory", self.image.offset_of(inode))),
        };
        Ok(Some(first * BLOCK + slot % SLOTS_PER_BLOCK * 8))
    }

    /// The block with this number of a directory whose slots need a tree. A
    /// growing directory may get a new tree while we read the old one.
    #[inline(never)]
    fn slot_block(&self, inode: &Inode, block: u64) -> Result<Option<u64>> {
        for _ in 0..1000 {
            let root = inode.root.load(Acquire);
            let found = self.find_extent(root, block);
            core::sync::atomic::fence(Acquire);
            if inode.root.load(Relaxed) != root {
                continue;
            }
            return Ok(found?.filter(|e| block >= e.file && block - e.file < e.len).map(|e| e.block + (block - e.file)));
        }
        Err(corrupt("extents of a directory", self.image.offset_of(inode)))
    }
}
