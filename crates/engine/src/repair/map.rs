//! Maps of files and directories: read with doubt, written anew where needed.

use super::Fixer;
use crate::check::IssueKind;
use core::sync::atomic::Ordering::Relaxed;
use format::extent::{DEPTH_MAX, ENTRY_SHARED, Extent, FILE_MAX, NODE_ENTRIES, Node, ONE_MAX, Root};
use format::layout::BLOCK;
use heap::format;
use heap::vec::Vec;

/// Nodes that belong to others, and are looked at all the same.
const FOREIGN_NODES_MAX: usize = 256;

/// A run of blocks of a file, and how it came by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    /// Somebody else has them too, who does not share them: they are to be copied.
    pub(super) copied: bool,
}

/// What a map says.
pub(super) struct Map {
    pub(super) pieces: Vec<Piece>,
    /// Blocks of its nodes, claimed.
    pub(super) nodes: Vec<u64>,
    /// It cannot stay as it is.
    pub(super) damaged: bool,
    /// Contents had to be left out.
    pub(super) lost: bool,
    pub(super) foreign: usize,
    pub(super) next: u64,
}

impl Map {
    /// Blocks of data.
    pub(super) fn blocks(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.extent.len).sum()
    }
}

/// What a map may hold.
#[derive(Clone, Copy)]
pub(super) struct Claims {
    /// Blocks are metadata: slots of a directory, which are shared with nobody.
    pub(super) meta: bool,
    /// File blocks up to here hold contents; what lies beyond may go.
    pub(super) contents: u64,
}

impl Fixer<'_> {
    /// Reads the map behind the data root `root`, and claims what is free.
    pub(super) fn read_map(&mut self, root: u64, claims: Claims) -> Map {
        let mut map = Map { pieces: Vec::new(), nodes: Vec::new(), damaged: false, lost: false, foreign: 0, next: 0 };
        let cleaned = Root::cleaned(root);
        map.damaged = cleaned != root;
        match Root::unpack(cleaned) {
            Some(Root::Empty) => {}
            Some(Root::One { block, len, shared }) => {
                self.read_extent(&mut map, Extent { file: 0, block, len, shared }, claims);
            }
            Some(Root::Tree { node, depth }) => self.read_node(&mut map, node, depth, claims),
            None => (map.damaged, map.lost) = (true, true),
        }
        map
    }

    fn read_node(&mut self, map: &mut Map, block: u64, depth: u8, claims: Claims) {
        let at = block.wrapping_mul(BLOCK);
        let owned = self.place(block).is_some() && self.claim(at, 64);
        if !owned {
            map.damaged = true;
            map.foreign += 1;
        }
        let node = self.fs.at::<Node>(at, "extent node");
        let (true, true, Ok(node)) = (depth <= DEPTH_MAX, map.foreign <= FOREIGN_NODES_MAX, node) else {
            (map.damaged, map.lost) = (true, true);
            return;
        };
        let (count, says) = (node.count.load(Relaxed), node.depth.load(Relaxed));
        if says != u64::from(depth) && (!owned || count == 0 || count > NODE_ENTRIES as u64) {
            (map.damaged, map.lost) = (true, true);
            if owned {
                self.release(at, 64);
            }
            return;
        }
        map.damaged |= says != u64::from(depth) || count == 0 || count > NODE_ENTRIES as u64;
        if owned {
            map.nodes.push(at);
        }
        for entry in node.entries.iter().take(count.min(NODE_ENTRIES as u64) as usize) {
            if depth > 0 {
                self.read_node(map, entry.run.load(Relaxed) >> 32, depth - 1, claims);
            } else {
                let extent = entry.extent();
                map.damaged |= extent.file >> 32 != 0;
                self.read_extent(map, Extent { file: extent.file & 0xffff_ffff, ..extent }, claims);
            }
        }
    }

    /// Takes of an extent what can belong to the file.
    fn read_extent(&mut self, map: &mut Map, extent: Extent, claims: Claims) {
        let shared = extent.shared && !self.shared.is_empty() && !claims.meta;
        map.damaged |= shared != extent.shared;
        let first = self.fs.layout.first_block();
        let end = extent.block.saturating_add(extent.len).min(first + self.used.len() as u64);
        let room = (FILE_MAX / BLOCK).saturating_sub(extent.file);
        let len = if extent.block < first { 0 } else { end.saturating_sub(extent.block).min(room) };
        if extent.file < map.next || len != extent.len || len == 0 {
            (map.damaged, map.lost) = (true, true);
        }
        if extent.file < map.next {
            return;
        }
        for i in 0..len {
            let (file, block) = (extent.file + i, extent.block + i);
            let Some(place) = self.place(block) else { break };
            let beyond = file >= claims.contents;
            let is_shared = shared && self.shared[place] != 0;
            let copied = if is_shared {
                false
            } else if self.used[place] == 0 && !(beyond && len != extent.len && self.was_used(place) != u64::MAX) {
                self.used[place] = u64::MAX;
                if claims.meta {
                    self.meta[place] = u64::MAX;
                }
                false
            } else {
                map.damaged = true;
                if claims.meta || self.meta[place] != 0 || beyond || self.copies == 0 {
                    map.lost |= !beyond;
                    continue;
                }
                self.copies -= 1;
                true
            };
            let shared = shared && !copied;
            if shared {
                self.shared[place] += 1;
            }
            match map.pieces.last_mut() {
                Some(last)
                    if last.copied == copied
                        && last.extent.shared == shared
                        && last.extent.file + last.extent.len == file
                        && last.extent.block + last.extent.len == block =>
                {
                    last.extent.len += 1;
                }
                _ => map.pieces.push(Piece { extent: Extent { file, block, len: 1, shared }, copied }),
            }
        }
        map.next = extent.file + len;
    }

    /// The map of an inode will be written anew: its nodes are free.
    pub(super) fn rewrite_map(&mut self, inode: u64, map: Map) {
        for node in map.nodes {
            self.release(node, 64);
        }
        self.maps.insert(inode, map.pieces);
    }

    /// Writes the maps that could not stay; blocks that others have too are copied.
    pub(super) fn write_maps(&mut self) {
        for (inode, pieces) in core::mem::take(&mut self.maps) {
            let mut extents: Vec<Extent> = Vec::new();
            let mut copied = 0;
            for piece in pieces {
                let Extent { file, block, len, shared } = piece.extent;
                for i in 0..len {
                    let Some(block) = (if piece.copied { self.copy_block(block + i) } else { Some(block + i) }) else { return };
                    copied += u64::from(piece.copied);
                    match extents.last_mut() {
                        Some(last) if last.end() == file + i && last.block + last.len == block && last.shared == shared => {
                            last.len += 1;
                        }
                        _ => extents.push(Extent { file: file + i, block, len: 1, shared }),
                    }
                }
            }
            if copied > 0 {
                let detail = format!("{copied} blocks of the inode are another's too: it gets copies");
                self.act(IssueKind::DoubleUse, inode, false, detail);
            }
            let Some(root) = self.write_map(&extents) else { return };
            self.set(inode + format::inode::word::ROOT, root);
        }
    }

    fn copy_block(&mut self, block: u64) -> Option<u64> {
        let copy = self.take_blocks(1)?;
        for word in 0..BLOCK / 8 {
            let value = self.get(block * BLOCK + word * 8);
            self.set_fresh(copy * BLOCK + word * 8, value);
        }
        Some(copy)
    }

    /// A data root for these extents; `None` if there is no space for nodes.
    pub(super) fn write_map(&mut self, extents: &[Extent]) -> Option<u64> {
        match extents {
            [] => return Some(Root::Empty.pack()),
            [Extent { file: 0, block, len, shared }] if *len <= ONE_MAX => {
                return Some(Root::One { block: *block, len: *len, shared: *shared }.pack());
            }
            _ => {}
        }
        let mut level: Vec<(u64, u64)> = extents.iter().map(|e| e.pack()).collect();
        for depth in 0..=DEPTH_MAX {
            let mut above = Vec::new();
            for part in level.chunks(NODE_ENTRIES) {
                let block = self.take_blocks(1)?;
                let at = block * BLOCK;
                self.set_fresh(at, part.len() as u64);
                self.set_fresh(at + 8, u64::from(depth));
                for (i, (file, run)) in part.iter().enumerate() {
                    let entry = at + 16 + i as u64 * 16;
                    self.set_fresh(entry, *file);
                    self.set_fresh(entry + 8, *run);
                }
                above.push((part[0].0 & !ENTRY_SHARED, block << 32));
            }
            if let [(_, node)] = above[..] {
                return Some(Root::Tree { node: node >> 32, depth }.pack());
            }
            level = above;
        }
        None
    }
}
