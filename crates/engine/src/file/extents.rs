//! Finding blocks in a file's map (`format::extent`): root word, then nodes.
//!
//! Readers go through the map while it may change; they check the map sequence
//! afterwards. So everything read is untrusted: counts, depths and places are
//! checked, and every loop is bounded.

use super::BLOCKS_MAX;
use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::BLOCK;
use format::extent::{DEPTH_MAX, Extent, NODE_ENTRIES, Node, Root};

/// One node on the way from the top of the tree to a leaf.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// Block of the node; 0 above the top.
    pub block: u64,
    /// Entries in it.
    pub count: usize,
    /// The last entry not above the key; in inner nodes the first if there is none.
    pub index: Option<usize>,
}

/// The way to the leaf where a key belongs, by depth.
pub(super) struct Path {
    pub steps: [Step; DEPTH_MAX as usize + 1],
    pub depth: usize,
}

/// Entry `i` of a leaf.
#[inline]
pub(super) fn leaf_entry(node: &Node, i: usize) -> Extent {
    node.entries[i.min(NODE_ENTRIES - 1)].extent()
}

/// The last of the first `count` entries whose key is not above `key`.
#[inline]
fn last_not_above(node: &Node, count: usize, key: u64) -> Option<usize> {
    // The answer lies in low..high, shifted by one.
    let (mut low, mut high) = (0, count.min(NODE_ENTRIES));
    while low < high {
        let middle = (low + high) / 2;
        if node.entries[middle].key() <= key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

impl Fs {
    /// The extent that covers a block of a file, or else the first one after it.
    #[inline]
    pub(crate) fn find_extent(&self, root: u64, block: u64) -> Result<Option<Extent>> {
        match Root::unpack(root) {
            Some(Root::Empty) => Ok(None),
            Some(Root::One { block: first, len, shared }) if block < len => {
                self.proven_extent(Extent { file: 0, block: first, len, shared }).map(Some)
            }
            Some(Root::One { .. }) => Ok(None),
            Some(Root::Tree { node, depth }) => self.find_in_tree(node, depth, block),
            None => Err(corrupt("data root", root)),
        }
    }

    /// Checks an extent's bounds.
    #[inline]
    pub(super) fn proven_extent(&self, e: Extent) -> Result<Extent> {
        if e.len == 0 || e.file.checked_add(e.len).is_none_or(|end| end > BLOCKS_MAX) || !self.is_allocatable(e.block, e.len) {
            return Err(corrupt("extent", e.block.wrapping_mul(BLOCK)));
        }
        Ok(e)
    }

    /// A node of the tree and its number of entries, 1 at least.
    pub(super) fn extent_node(&self, block: u64, depth: usize) -> Result<(&Node, usize)> {
        let at = block.wrapping_mul(BLOCK);
        if !self.is_allocatable(block, 1) {
            return Err(corrupt("place of an extent node", at));
        }
        let node: &Node = self.at(at, "extent node")?;
        let count = node.count.load(Acquire);
        if count == 0 || count > NODE_ENTRIES as u64 || node.depth.load(Relaxed) != depth as u64 {
            return Err(corrupt("extent node", at));
        }
        Ok((node, count as usize))
    }

    #[inline(never)]
    fn find_in_tree(&self, top: u64, depth: u8, block: u64) -> Result<Option<Extent>> {
        let mut key = block;
        // Once down; if the leaf ends before the key, once more for the next leaf.
        for _ in 0..3 {
            let (mut at, mut level, mut next) = (top, usize::from(depth), None);
            while level > 0 {
                let (node, count) = self.extent_node(at, level)?;
                let i = last_not_above(node, count, key).unwrap_or(0);
                if i + 1 < count {
                    next = Some(node.entries[i + 1].key());
                }
                at = node.entries[i].run.load(Acquire) >> 32;
                level -= 1;
            }
            let (leaf, count) = self.extent_node(at, 0)?;
            let found = last_not_above(leaf, count, key);
            if let Some(i) = found {
                let e = leaf_entry(leaf, i);
                // Without a lock the entry may be another's by now: then it is not above the key any more.
                if key.checked_sub(e.file).is_some_and(|within| within < e.len) {
                    return self.proven_extent(e).map(Some);
                }
            }
            let after = found.map_or(0, |i| i + 1);
            if after < count {
                return self.proven_extent(leaf_entry(leaf, after)).map(Some);
            }
            match next {
                None => return Ok(None),
                Some(next) if next > key => key = next,
                Some(_) => break,
            }
        }
        Err(corrupt("order of extents", top * BLOCK))
    }

    /// The way to the leaf where `key` belongs.
    pub(super) fn extent_path(&self, top: u64, depth: u8, key: u64) -> Result<Path> {
        let depth = usize::from(depth);
        let mut path = Path { steps: [Step { block: 0, count: 0, index: None }; DEPTH_MAX as usize + 1], depth };
        let mut block = top;
        for level in (0..=depth).rev() {
            let (node, count) = self.extent_node(block, level)?;
            let mut index = last_not_above(node, count, key);
            if level > 0 {
                index = Some(index.unwrap_or(0));
            }
            path.steps[level] = Step { block, count, index };
            block = node.entries[index.unwrap_or(0)].run.load(Relaxed) >> 32;
        }
        Ok(path)
    }

    /// The image block just after the extent that ends last before `block` of
    /// the file: where the file would like to go on. 0 if there is none.
    #[inline]
    pub(super) fn near(&self, root: u64, block: u64) -> u64 {
        match Root::unpack(root) {
            Some(Root::One { block: first, len, .. }) => first + len,
            Some(Root::Tree { node, depth }) => self.near_in_tree(node, depth, block).unwrap_or(0),
            _ => 0,
        }
    }

    #[inline(never)]
    fn near_in_tree(&self, node: u64, depth: u8, block: u64) -> Result<u64> {
        let path = self.extent_path(node, depth, block)?;
        let (leaf, _) = self.extent_node(path.steps[0].block, 0)?;
        Ok(path.steps[0].index.map_or(0, |i| {
            let e = leaf_entry(leaf, i);
            e.block + e.len
        }))
    }
}
