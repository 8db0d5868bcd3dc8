//! Changing a file's map: one edit a record.
//!
//! What an edit reads is the map as committed, so a record holds one edit at
//! most. A change that a single word makes is a `set` of the record: a longer or
//! shorter extent, an entry added at the end of a node (the count comes last),
//! entries dropped there. Anything else writes a new node aside and sets the
//! reference to it in the node above, or the root. Readers are warned by the
//! map sequence when `moved` is set.

use super::extents::{Path, leaf_entry};
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use base::{Error, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use format::extent::{DEPTH_MAX, ENTRY_SHARED, Entry, Extent, NODE_ENTRIES, Node, ONE_MAX, Root};
use pm::Errno;

/// Operations that an edit may need besides freeing data: a few for each level of the tree.
const RESERVE: usize = 5 * (DEPTH_MAX as usize + 1) + 4;

/// An edit under way.
pub(super) struct Edit<'t, 'a> {
    fs: &'a Fs,
    tx: &'t mut Tx<'a>,
    /// The root word, before and after.
    pub root: u64,
    /// Entries were taken from the map or moved within it.
    pub moved: bool,
    /// Data blocks freed.
    pub freed: u64,
    /// A node was written aside: a fence is due before the record.
    wrote: bool,
    /// Data are taken: what that needs may come from the blocks kept back.
    frees: bool,
}

impl<'t, 'a> Edit<'t, 'a> {
    pub(super) fn new(tx: &'t mut Tx<'a>, root: u64) -> Edit<'t, 'a> {
        Edit { fs: tx.fs, tx, root, moved: false, freed: 0, wrote: false, frees: false }
    }

    /// Orders the nodes written aside; call it when the edit is done.
    pub(super) fn finish(self) -> Edited {
        if self.wrote {
            self.tx.order();
        }
        Edited { root: self.root, moved: self.moved, freed: self.freed }
    }

    // ---- adding ----

    /// Adds an extent where there is a hole.
    pub(super) fn insert(&mut self, e: Extent) -> Result<()> {
        match Root::unpack(self.root) {
            Some(Root::Empty) if e.file == 0 && e.len <= ONE_MAX => self.root = one(e),
            Some(Root::Empty) => self.root = self.leaf(&[e])?,
            Some(Root::One { block, len, shared }) => {
                let before = Extent { file: 0, block, len, shared };
                self.root =
                    if goes_on(before, e) { one(Extent { len: len + e.len, ..before }) } else { self.leaf(&[before, e])? };
            }
            Some(Root::Tree { node, depth }) => self.insert_in_tree(node, depth, e)?,
            None => return Err(corrupt("data root", self.root)),
        }
        Ok(())
    }

    /// A tree of one leaf with these extents, as a root word.
    #[cold]
    #[inline(never)]
    fn leaf(&mut self, extents: &[Extent]) -> Result<u64> {
        let node = self.new_node(0, extents.len(), |i| extents[i].pack())?;
        Ok(Root::Tree { node, depth: 0 }.pack())
    }

    #[inline(never)]
    fn insert_in_tree(&mut self, node: u64, depth: u8, e: Extent) -> Result<()> {
        let path = self.fs.extent_path(node, depth, e.file)?;
        if let Some(i) = path.steps[0].index {
            let (leaf, _) = self.fs.extent_node(path.steps[0].block, 0)?;
            let before = leaf_entry(leaf, i);
            if goes_on(before, e) {
                return self.set_run(path.steps[0].block, i, Extent { len: before.len + e.len, ..before }.pack().1);
            }
        }
        let (key, value) = e.pack();
        self.insert_at(&path, 0, key, value, None)
    }

    /// Adds an entry, of these words, after the one that `path` names at this level; `replace`
    /// is a new second word for that one.
    fn insert_at(&mut self, path: &Path, level: usize, key: u64, value: u64, replace: Option<u64>) -> Result<()> {
        let step = path.steps[level];
        let (node, n) = self.fs.extent_node(step.block, level)?;
        let at = step.index.map_or(0, |i| i + 1);
        let old = |i: usize| {
            let entry = &node.entries[i];
            let value = entry.run.load(Relaxed);
            (entry.file.load(Relaxed), if Some(i) == step.index { replace.unwrap_or(value) } else { value })
        };
        if n < NODE_ENTRIES && at < n {
            let new = self.new_node(level, n + 1, |i| {
                if i < at {
                    old(i)
                } else if i == at {
                    (key, value)
                } else {
                    old(i - 1)
                }
            })?;
            return self.supersede(path, level, new);
        }
        if let (Some(replace), Some(i)) = (replace, step.index) {
            self.moved = true;
            self.set_run(step.block, i, replace)?;
        }
        if n < NODE_ENTRIES {
            self.tx.set(entry_at(step.block, n), key)?;
            self.tx.set(entry_at(step.block, n) + 8, value)?;
            return self.set_count(step.block, n + 1);
        }
        if at == 0 {
            // Before all others of a full node: a node of its own takes its place, it goes behind.
            let left = self.new_node(level, 1, |_| (key, value))?;
            self.moved = true;
            return self.insert_above(path, level, Some(left << 32), old(0).0 & !ENTRY_SHARED, step.block << 32);
        }
        // The full node keeps what comes before; a new one gets the rest.
        let right = self.new_node(level, n - at + 1, |i| if i == 0 { (key, value) } else { old(at + i - 1) })?;
        if at < n {
            self.moved = true;
            self.set_count(step.block, at)?;
        }
        self.insert_above(path, level, None, key & !ENTRY_SHARED, right << 32)
    }

    /// Adds a reference to a node of `level` to the level above, which may have to be made.
    fn insert_above(&mut self, path: &Path, level: usize, replace: Option<u64>, key: u64, value: u64) -> Result<()> {
        if level < path.depth {
            return self.insert_at(path, level + 1, key, value, replace);
        }
        if level >= usize::from(DEPTH_MAX) {
            return Err(Errno::EFBIG.into());
        }
        let first = (0, replace.unwrap_or(path.steps[level].block << 32));
        let node = self.new_node(level + 1, 2, |i| if i == 0 { first } else { (key, value) })?;
        self.root = Root::Tree { node, depth: level as u8 + 1 }.pack();
        Ok(())
    }

    // ---- taking ----

    /// Takes blocks `from..to` of the file, from the end backwards, as many as a
    /// record can hold, and frees them. Returns `t`: what lies in `t..to` is gone.
    pub(super) fn cut(&mut self, from: u64, to: u64) -> Result<u64> {
        if from >= to {
            return Ok(from);
        }
        self.frees = true;
        match Root::unpack(self.root) {
            Some(Root::Empty) => Ok(from),
            Some(Root::One { block, len, shared }) => self.cut_one(Extent { file: 0, block, len, shared }, from, to),
            Some(Root::Tree { node, depth }) => self.cut_tree(node, depth, from, to),
            None => Err(corrupt("data root", self.root)),
        }
    }

    fn cut_one(&mut self, e: Extent, from: u64, to: u64) -> Result<u64> {
        let end = to.min(e.len);
        if from >= end {
            return Ok(from);
        }
        let from = self.start_of_cut(e, from, end)?;
        self.free(e.part(from, end))?;
        let (left, right) = (e.part(0, from), e.part(end, e.len));
        self.root = match (from, end == e.len) {
            (0, true) => 0,
            (_, true) => one(left),
            (0, false) => self.leaf(&[right])?,
            (_, false) => self.leaf(&[left, right])?,
        };
        Ok(from)
    }

    /// From where on one record can take what lies in `from..end` of an extent. The counts are locked if others may have it.
    fn start_of_cut(&mut self, e: Extent, from: u64, end: u64) -> Result<u64> {
        let start = e.file.max(from);
        if !e.shared || start >= end {
            return Ok(from);
        }
        self.tx.lock_shares()?;
        let part = e.part(start, end);
        let first = self.fs.release_start(part.block, part.len)?;
        Ok(if first == part.block { from } else { start + (first - part.block) })
    }

    fn cut_tree(&mut self, node: u64, depth: u8, from: u64, to: u64) -> Result<u64> {
        let path = self.fs.extent_path(node, depth, to - 1)?;
        let Some(last) = path.steps[0].index else {
            return self.leaf_before(&path, from, to);
        };
        let (leaf, _) = self.fs.extent_node(path.steps[0].block, 0)?;
        let e = self.fs.proven_extent(leaf_entry(leaf, last))?;
        let end = e.file + e.len;
        if end <= from {
            return Ok(from);
        }
        let from = self.start_of_cut(e, from, end.min(to))?;
        if end <= to {
            return self.cut_entries(&path, leaf, last, from);
        }
        // It goes on after `to`.
        self.moved = true;
        let start = e.file.max(from);
        self.free(e.part(start, to))?;
        let rest = e.part(to, end).pack();
        if e.file < from {
            self.insert_at(&path, 0, rest.0, rest.1, Some(e.part(e.file, from).pack().1))?;
        } else {
            self.set_entry(path.steps[0].block, last, rest)?;
        }
        Ok(start)
    }

    /// Nothing in this leaf lies before `to`: where to look next.
    fn leaf_before(&self, path: &Path, from: u64, to: u64) -> Result<u64> {
        for level in 1..=path.depth {
            if let Some(i @ 1..) = path.steps[level].index {
                let (node, _) = self.fs.extent_node(path.steps[level].block, level)?;
                let key = node.entries[i].key();
                return if key < to {
                    Ok(key.max(from))
                } else {
                    Err(corrupt("order of extents", path.steps[level].block * BLOCK))
                };
            }
        }
        Ok(from)
    }

    /// Takes what lies after `from` of entry `last` of a leaf and of those before it.
    fn cut_entries(&mut self, path: &Path, leaf: &Node, last: usize, from: u64) -> Result<u64> {
        let (block, n) = (path.steps[0].block, path.steps[0].count);
        let most = self.tx.room().saturating_sub(RESERVE).max(1);
        let mut first = last;
        // Of what is shared one extent a record: its counts are worked out from those that are.
        let is_own = |i: usize| !leaf_entry(leaf, i).shared;
        while first > 0
            && last - first + 1 < most
            && leaf_entry(leaf, first - 1).end() > from
            && is_own(last)
            && is_own(first - 1)
        {
            first -= 1;
        }
        self.moved = true;
        for i in first..=last {
            let e = self.fs.proven_extent(leaf_entry(leaf, i))?;
            self.free(e.part(e.file.max(from), e.end()))?;
        }
        let head = leaf_entry(leaf, first);
        let shorter = (head.file < from).then(|| head.part(head.file, from).pack().1);
        let gone = first + usize::from(shorter.is_some());
        if last + 1 < n && gone <= last {
            // In the middle: a new leaf without them.
            let old = |i: usize| {
                let entry = &leaf.entries[i];
                let value = entry.run.load(Relaxed);
                (entry.file.load(Relaxed), if i == first { shorter.unwrap_or(value) } else { value })
            };
            let dropped = last + 1 - gone;
            let new = self.new_node(0, n - dropped, |i| if i < gone { old(i) } else { old(i + dropped) })?;
            self.supersede(path, 0, new)?;
            return Ok(head.file.max(from));
        }
        if let Some(shorter) = shorter {
            self.set_run(block, first, shorter)?;
        }
        match gone {
            0 => self.remove_node(path, 0)?,
            gone if gone <= last => self.set_count(block, gone)?,
            _ => {}
        }
        Ok(head.file.max(from))
    }

    /// Frees a node that has no entries left, and the reference to it.
    fn remove_node(&mut self, path: &Path, level: usize) -> Result<()> {
        self.tx.free_blocks(path.steps[level].block, 1)?;
        if level == path.depth {
            self.root = 0;
            return Ok(());
        }
        let above = path.steps[level + 1];
        let index = above.index.unwrap_or(0);
        if above.count == 1 {
            return self.remove_node(path, level + 1);
        }
        if index + 1 == above.count {
            return self.set_count(above.block, index);
        }
        let (node, n) = self.fs.extent_node(above.block, level + 1)?;
        let old = |i: usize| (node.entries[i].file.load(Relaxed), node.entries[i].run.load(Relaxed));
        let new = self.new_node(level + 1, n - 1, |i| if i < index { old(i) } else { old(i + 1) })?;
        self.supersede(path, level + 1, new)
    }

    // ---- in place of others ----

    /// The extent that covers a block of the file becomes two, of which one begins there.
    pub(super) fn split(&mut self, at: u64) -> Result<()> {
        match Root::unpack(self.root) {
            Some(Root::One { block, len, shared }) if at < len => {
                let e = Extent { file: 0, block, len, shared };
                self.root = self.leaf(&[e.part(0, at), e.part(at, len)])?;
                self.moved = true;
                Ok(())
            }
            Some(Root::Tree { node, depth }) => {
                let (path, _, e) = self.entry_of(node, depth, at)?;
                let (key, value) = e.part(at, e.end()).pack();
                self.moved = true;
                self.insert_at(&path, 0, key, value, Some(e.part(e.file, at).pack().1))
            }
            _ => Err(corrupt("data root", self.root)),
        }
    }

    /// The extent that begins where this one does, and is as long, becomes this one. Its blocks are freed if they are others.
    pub(super) fn replace(&mut self, new: Extent) -> Result<()> {
        self.moved = true;
        let before = match Root::unpack(self.root) {
            Some(Root::One { block, len, shared }) => {
                self.root = one(new);
                Extent { file: 0, block, len, shared }
            }
            Some(Root::Tree { node, depth }) => {
                let (path, i, e) = self.entry_of(node, depth, new.file)?;
                self.set_entry(path.steps[0].block, i, new.pack())?;
                e
            }
            _ => return Err(corrupt("data root", self.root)),
        };
        if (before.file, before.len) != (new.file, new.len) {
            return Err(corrupt("extent in a map", new.file));
        }
        if before.block != new.block { self.free(before) } else { Ok(()) }
    }

    /// The entry of a tree that covers a block of the file, and the way to it.
    fn entry_of(&self, node: u64, depth: u8, block: u64) -> Result<(Path, usize, Extent)> {
        let path = self.fs.extent_path(node, depth, block)?;
        let index = path.steps[0].index.ok_or(corrupt("order of extents", block))?;
        let (leaf, _) = self.fs.extent_node(path.steps[0].block, 0)?;
        let e = self.fs.proven_extent(leaf_entry(leaf, index))?;
        if block < e.end() { Ok((path, index, e)) } else { Err(corrupt("order of extents", block)) }
    }

    // ---- nodes ----

    /// Writes a new node aside.
    fn new_node(&mut self, level: usize, count: usize, entry: impl Fn(usize) -> (u64, u64)) -> Result<u64> {
        let block = match self.tx.blocks(1, 0) {
            Ok((block, _)) => block,
            Err(Error::Posix(Errno::ENOSPC)) if self.frees => self.tx.spare_run(1)?,
            Err(error) => return Err(error),
        };
        let node: &Node = self.fs.at(block * BLOCK, "extent node")?;
        let image = &self.fs.image;
        for (i, slot) in node.entries.iter().take(count).enumerate() {
            let (key, value) = entry(i);
            image.store(&slot.file, key);
            image.store(&slot.run, value);
        }
        image.store(&node.depth, level as u64);
        image.store(&node.count, count as u64);
        image.flush(block * BLOCK, 16 + count as u64 * 16);
        self.wrote = true;
        Ok(block)
    }

    /// Puts a new node in the place of the one that `path` names at this level.
    fn supersede(&mut self, path: &Path, level: usize, new: u64) -> Result<()> {
        self.moved = true;
        self.tx.free_blocks(path.steps[level].block, 1)?;
        if level == path.depth {
            self.root = Root::Tree { node: new, depth: level as u8 }.pack();
            return Ok(());
        }
        let above = path.steps[level + 1];
        self.set_run(above.block, above.index.unwrap_or(0), new << 32)
    }

    fn set_run(&mut self, node: u64, index: usize, value: u64) -> Result<()> {
        self.tx.set(entry_at(node, index) + offset_of!(Entry, run) as u64, value)
    }

    fn set_entry(&mut self, node: u64, index: usize, (key, value): (u64, u64)) -> Result<()> {
        self.tx.set(entry_at(node, index), key)?;
        self.set_run(node, index, value)
    }

    fn set_count(&mut self, node: u64, count: usize) -> Result<()> {
        self.tx.set(node * BLOCK + offset_of!(Node, count) as u64, count as u64)
    }

    /// Gives up data blocks; those that others have too are theirs.
    fn free(&mut self, e: Extent) -> Result<()> {
        self.moved = true;
        self.freed += e.len;
        if e.shared { self.tx.release_shares(e.block, e.len) } else { self.tx.free_blocks(e.block, e.len) }
    }
}

/// The root word of an extent from the start of the file on.
const fn one(e: Extent) -> u64 {
    Root::One { block: e.block, len: e.len, shared: e.shared }.pack()
}

/// Whether an extent goes on where another one ends, so that they are one.
const fn goes_on(before: Extent, e: Extent) -> bool {
    let is_next = before.file + before.len == e.file && before.block + before.len == e.block;
    is_next && before.len + e.len <= ONE_MAX && before.shared == e.shared
}

/// What an edit came to.
#[derive(Clone, Copy)]
pub(super) struct Edited {
    /// The new root word.
    pub root: u64,
    /// Readers must be warned.
    pub moved: bool,
    /// Data blocks freed.
    pub freed: u64,
}

/// Offset of an entry in the image.
const fn entry_at(node: u64, index: usize) -> u64 {
    node * BLOCK + offset_of!(Node, entries) as u64 + (index * size_of::<Entry>()) as u64
}
