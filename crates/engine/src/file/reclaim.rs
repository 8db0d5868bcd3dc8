//! Freeing an inode that has no links and no opens, with all that it holds.
//!
//! A small one goes in the record of whoever removes it; a large one gives up
//! its data in records of their own first, each of which leaves a smaller whole
//! file, so whoever finds it in the orphan table goes on. None of that needs space.

use super::BLOCKS_MAX;
use super::edit::Edit;
use super::extents::leaf_entry;
use super::shares::RELEASE_OPS;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::lane::record::{ClearBits, Set, TOGETHER};
use base::{Kind, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::extent::{Root, symlink_lines};
use format::inode::{COLD, Head, node_id, pack_links, unpack_links, word};
use format::{BLOCK, Cold, Inode};

/// Operations that freeing everything but data takes: node of the map, cold and lower line, xattrs, text, orphan entry, two to
/// spare.
const OTHERS: usize = 8;
/// Operations left to the caller, as many as he may commit together with those listed.
const SPARE: usize = TOGETHER - 1;

/// The stores that free an inode's line.
pub(crate) type Gone<'a> = (Set<'a>, ClearBits<'a>);

/// Whether an inode holds no more than its line.
fn has_nothing(inode: &Inode, head: Head) -> bool {
    head.kind != Kind::Symlink as u8 && head.flags & COLD == 0 && inode.root.load(Acquire) == 0
}

impl Fs {
    /// Adds to `tx` what frees all that an inode holds, if that fits beside what
    /// the record has already, and returns the stores that free its line, for the
    /// record too. `None` if it does not fit: then nothing was added.
    pub(crate) fn free_small<'a>(&'a self, tx: &mut Tx<'a>, inode: &'a Inode) -> Result<Option<Gone<'a>>> {
        let head = inode.head();
        let freed = has_nothing(inode, head) || self.free_contents(tx, inode, self.image.offset_of(inode), head)?;
        if freed { Ok(Some(self.free_line(tx, inode, head)?)) } else { Ok(None) }
    }

    /// The stores that free the line of an inode.
    fn free_line<'a>(&'a self, tx: &mut Tx<'a>, inode: &'a Inode, head: Head) -> Result<Gone<'a>> {
        let line = tx.old_lines(self.image.offset_of(inode), 1)?;
        // The generation stays: the next inode here gets another.
        let value = Head { generation: head.generation, flags: 0, kind: 0, permission: 0 }.pack();
        tx.files(-1);
        Ok((Set { word: &inode.head, value }, line))
    }

    /// Frees all that an inode holds; false if that does not fit into the record.
    #[cold]
    #[inline(never)]
    fn free_contents(&self, tx: &mut Tx, inode: &Inode, offset: u64, head: Head) -> Result<bool> {
        let room = tx.room().saturating_sub(OTHERS + SPARE);
        let mapped = head.kind == Kind::Regular as u8 || head.kind == Kind::Directory as u8;
        if mapped {
            match Root::unpack(inode.root.load(Acquire)) {
                Some(Root::Empty) => {}
                Some(Root::One { block, len, shared: false }) if room >= 1 => tx.free_blocks(block, len)?,
                Some(Root::One { block, len, shared: true }) if room > RELEASE_OPS => {
                    tx.lock_shares()?;
                    if self.release_start(block, len)? != block {
                        tx.unlock_shares();
                        return Ok(false);
                    }
                    tx.release_shares(block, len)?;
                }
                Some(Root::Tree { node, depth: 0 }) => {
                    let (leaf, count) = self.extent_node(node, 0)?;
                    if count >= room || (0..count).any(|i| leaf_entry(leaf, i).shared) {
                        return Ok(false);
                    }
                    for i in 0..count {
                        let e = self.proven_extent(leaf_entry(leaf, i))?;
                        tx.free_blocks(e.block, e.len)?;
                    }
                    tx.free_blocks(node, 1)?;
                }
                Some(_) => return Ok(false),
                None => return Err(corrupt("data root", offset)),
            }
        } else if tx.room() < OTHERS + SPARE {
            return Ok(false);
        }
        self.free_rest(tx, inode, offset, head)?;
        Ok(true)
    }

    /// Text, cold line, attributes.
    fn free_rest(&self, tx: &mut Tx, inode: &Inode, offset: u64, head: Head) -> Result<()> {
        if head.kind == Kind::Symlink as u8 {
            let len = inode.size.load(Relaxed);
            if len == 0 || len >= BLOCK {
                return Err(corrupt("length of a symlink", offset));
            }
            tx.free_lines(inode.root.load(Relaxed), symlink_lines(len))?;
        }
        if head.flags & COLD != 0 {
            let at = inode.extra.load(Relaxed);
            let cold: &Cold = self.at(at, "cold line")?;
            let xattr = cold.xattr.load(Relaxed);
            if xattr != 0 {
                tx.free_blocks(xattr >> 32, (xattr & 0xffff_ffff).div_ceil(BLOCK))?;
            }
            let lower = cold.lower.load(Relaxed);
            if lower != 0 {
                tx.free_lines(lower, 1)?;
            }
            tx.free_lines(at, 1)?;
        }
        Ok(())
    }

    /// Frees an orphan and everything it holds, whatever its size, in records of
    /// its own (so `tx` must have none begun); the last one removes it from the
    /// orphan table.
    pub(crate) fn reclaim<'a>(&'a self, tx: &mut Tx<'a>, offset: u64) -> Result<()> {
        // Some 25 extents a record; the largest map has 2^32.
        for _ in 0..BLOCKS_MAX {
            let inode = self.inode(offset)?;
            if let Some(gone) = self.free_small(tx, inode)? {
                let generation = inode.head().generation;
                self.remove_orphan(tx, node_id(offset, generation))?;
                return tx.commit_with(gone);
            }
            self.reclaim_step(tx, offset)?;
        }
        Err(corrupt("extents without end", offset))
    }

    /// Takes some extents off the end of the map, in a record of its own.
    fn reclaim_step(&self, tx: &mut Tx, offset: u64) -> Result<()> {
        let inode = self.inode(offset)?;
        let mut to = BLOCKS_MAX;
        let edited = loop {
            let mut edit = Edit::new(tx, inode.root.load(Relaxed));
            to = edit.cut(0, to)?;
            let edited = edit.finish();
            if edited.moved {
                break edited;
            }
            if to == 0 {
                return Err(corrupt("extents beyond the largest file", offset));
            }
        };
        if inode.head().kind == Kind::Regular as u8 {
            let (nlink, blocks) = unpack_links(inode.links.load(Relaxed));
            let left = u64::from(blocks).saturating_sub(edited.freed) as u32;
            tx.set(offset + word::LINKS, pack_links(nlink, left))?;
        }
        tx.set(offset + word::ROOT, edited.root)?;
        tx.commit()?;
        tx.unlock_shares();
        Ok(())
    }
}
