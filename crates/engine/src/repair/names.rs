//! From the root directory down: names that are right as they stand, then those that are not.

use super::map::{Claims, Map, Piece};
use super::{Directory, Fixer};
use crate::check::IssueKind;
use crate::dir::{Entry, NameBuffer};
use base::{Kind, Name};
use core::sync::atomic::Ordering::Relaxed;
use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::edentry;
use format::inode::{self, node_generation, node_offset, word};
use format::layout::{BLOCK, LINE};
use heap::collections::BTreeSet;
use heap::format;
use heap::vec::Vec;

const DIRECTORY: u8 = Kind::Directory as u8;

/// Whether these bytes can be a name.
pub(super) fn is_name(text: &[u8]) -> bool {
    Name::new(text).is_some()
}

/// What a block holds that a directory's map leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Slots of the directory: one of them is where its edentry says.
    Own,
    /// Nothing, and it is used.
    Empty,
    /// What is not this directory's.
    Foreign,
}

impl Fixer<'_> {
    /// The head of an inode.
    pub(super) fn head(&self, offset: u64) -> inode::Head {
        inode::Head::unpack(self.get(offset + word::HEAD))
    }

    /// Everything that `directory` leads to.
    pub(super) fn walk(&mut self, directory: u64) {
        if !self.is_met(directory) {
            self.meet(directory, 0);
        }
        loop {
            while let Some(directory) = self.waiting.pop() {
                self.directory(directory);
            }
            // The doubtful ones last, when all that is certain has been claimed.
            let doubtful = core::mem::take(&mut self.doubtful);
            if doubtful.is_empty() {
                return;
            }
            for (directory, slot) in doubtful {
                self.doubtful_name(directory, slot);
            }
        }
    }

    /// Meets an inode for the first time. `edentry` is its name, 0 for none.
    pub(super) fn meet(&mut self, offset: u64, edentry: u64) {
        self.claim(offset, 1);
        if let Some((place, bit)) = self.line_bit(offset) {
            self.inodes[place] |= bit;
        }
        if self.head(offset).kind == DIRECTORY {
            self.waiting.push(offset);
            self.set_own(offset, edentry);
        } else {
            let found = u64::from(edentry != 0);
            let said = u64::from(inode::unpack_links(self.get(offset + word::LINKS)).0);
            if said != found || found != 1 {
                self.links.insert(offset, found);
            }
        }
    }

    /// Another name of an inode that has been met.
    pub(super) fn meet_again(&mut self, offset: u64) {
        *self.links.entry(offset).or_insert(1) += 1;
    }

    fn directory(&mut self, offset: u64) {
        let root = self.get(offset + word::ROOT);
        let map = self.read_map(root, Claims { meta: true, contents: u64::MAX });
        let mut blocks = Vec::new();
        let mut damaged = map.damaged;
        let mut pieces = Vec::new();
        let all = map.pieces.iter().flat_map(|Piece { extent, .. }| (0..extent.len).map(|i| (extent.file + i, extent.block + i)));
        let all: Vec<_> = all.map(|(file, block)| (file, block, self.held_by(offset, block))).collect();
        // A damaged map may have led to empty blocks of files.
        let sound = !map.damaged && all.iter().all(|(.., held)| *held != Held::Foreign);
        for (file, block, held) in all {
            if held == Held::Foreign || held == Held::Empty && !sound {
                self.release(block * BLOCK, 64);
                damaged = true;
                continue;
            }
            damaged |= file != blocks.len() as u64;
            let extent = format::extent::Extent { file: blocks.len() as u64, block, len: 1, shared: false };
            pieces.push(Piece { extent, copied: false });
            blocks.push(block);
        }
        if damaged {
            self.act(IssueKind::Extent, offset, false, format!("the directory gets a new map of {} blocks", blocks.len()));
            let map = Map { pieces, ..map };
            self.rewrite_map(offset, map);
        }
        let list = blocks.clone();
        self.directories.insert(offset, Directory { blocks, entries: 0, directories: 0 });
        for slot in slots(&list) {
            let value = self.get(slot);
            if value != 0 && reserved_by(value).is_none() && !self.right_name(offset, slot, value) {
                self.doubtful.push((offset, slot));
            }
        }
    }

    /// What a block of this directory's map holds.
    fn held_by(&self, directory: u64, block: u64) -> Held {
        let mut empty = true;
        for slot in slots(&[block]) {
            let at = self.get(slot);
            if at == 0 || self.is_reservation(at) {
                continue;
            }
            empty = false;
            if self.line_bit(at).is_some() && self.get(at + 8) == directory && self.get(at + 24) == slot {
                return Held::Own;
            }
        }
        let is_used = || self.place(block).is_some_and(|place| self.was_used(place) == u64::MAX);
        if empty && is_used() { Held::Empty } else { Held::Foreign }
    }

    /// Whether a slot holds what a lane may have left in it.
    fn is_reservation(&self, slot: u64) -> bool {
        let generation = self.fs.root().generation.load(Relaxed);
        reserved_by(slot).is_some_and(|(lane, of)| lane < format::layout::LANES && u64::from(of) <= generation)
    }

    /// Accepts a name if nothing about it is wrong.
    fn right_name(&mut self, directory: u64, slot: u64, at: u64) -> bool {
        let Some((entry, name)) = self.read_name(at) else { return false };
        let text = name.raw(entry.head.name_len);
        let child = node_offset(entry.child);
        let right = entry.parent == directory
            && entry.slot == slot
            && entry.head.hash == (self.fs.hash(directory, text) >> 32) as u32
            && is_name(text)
            && edentry::behind(text.len())
                .into_iter()
                .zip(0..)
                .all(|(behind, i)| self.get(at + edentry::NAME + i * 8) & behind == 0)
            && self.leads_to(&entry)
            && self.is_free(at, u64::from(edentry::lines(text.len())))
            && (self.is_met(child) || self.is_free(child, 1))
            && (entry.head.kind != DIRECTORY || !self.is_met(child) && self.fs.own_edentry(child) == Ok(at));
        if right {
            self.accept(directory, at, entry.head.name_len, child);
        }
        right
    }

    /// An edentry that can be read.
    pub(super) fn read_name(&self, at: u64) -> Option<(Entry, NameBuffer)> {
        self.line_bit(at)?;
        let mut name = NameBuffer::new();
        let entry = self.fs.read_edentry(at, &mut name).ok()?;
        (at % BLOCK + u64::from(edentry::lines(usize::from(entry.head.name_len))) * LINE <= BLOCK).then_some((entry, name))
    }

    /// Whether the child of an edentry is there and is what the edentry says.
    pub(super) fn leads_to(&self, entry: &Entry) -> bool {
        let child = node_offset(entry.child);
        let head = self.head(child);
        self.line_bit(child).is_some()
            && head.generation & 0xff_ffff == node_generation(entry.child)
            && head.kind == entry.head.kind
            && Kind::from_dt(head.kind).is_some()
    }

    /// Claims a name and what it leads to.
    pub(super) fn accept(&mut self, directory: u64, at: u64, name_len: u8, child: u64) {
        self.claim(at, u64::from(edentry::lines(usize::from(name_len))));
        let is_directory = self.head(child).kind == DIRECTORY;
        if self.is_met(child) {
            self.meet_again(child);
        } else {
            self.meet(child, at);
        }
        if let Some(found) = self.directories.get_mut(&directory) {
            found.entries += 1;
            found.directories += u64::from(is_directory);
        }
        let hash = self.read_name(at).map(|(entry, name)| self.fs.hash(directory, name.raw(entry.head.name_len)));
        if let (Some((_, names)), Some(hash)) = (self.names.as_mut().filter(|(of, _)| *of == directory), hash) {
            names.insert(hash);
        }
    }

    /// Whether a directory has an accepted name with this hash.
    pub(super) fn has_name(&mut self, directory: u64, hash: u64) -> bool {
        if self.names.as_ref().is_none_or(|(of, _)| *of != directory) {
            let mut names = BTreeSet::new();
            for slot in slots(self.blocks_of(directory)) {
                let at = self.get(slot);
                if let Some((entry, name)) = self.accepted(directory, slot, at) {
                    names.insert(self.fs.hash(directory, name.raw(entry.head.name_len)));
                }
            }
            self.names = Some((directory, names));
        }
        self.names.as_ref().is_some_and(|(_, names)| names.contains(&hash))
    }

    /// The name in a slot, if it has been accepted (claimed by this very slot).
    pub(super) fn accepted(&self, directory: u64, slot: u64, at: u64) -> Option<(Entry, NameBuffer)> {
        if at == 0 || reserved_by(at).is_some() || self.is_free(at, 1) {
            return None;
        }
        self.read_name(at).filter(|(entry, _)| entry.parent == directory && entry.slot == slot)
    }

    pub(super) fn blocks_of(&self, directory: u64) -> &[u64] {
        self.directories.get(&directory).map_or(&[], |found| &found.blocks)
    }

    /// A free slot of a directory; `near` if that is one. `None` if there is no space.
    pub(super) fn free_slot(&mut self, directory: u64, near: u64) -> Option<u64> {
        let own = self.blocks_of(directory).contains(&(near / BLOCK)) && near.is_multiple_of(8);
        if own && self.get(near) == 0 {
            return Some(near);
        }
        if let Some(slot) = slots(self.blocks_of(directory)).find(|slot| self.get(*slot) == 0) {
            return Some(slot);
        }
        let block = self.take_lines(64)? / BLOCK;
        self.directories.get_mut(&directory)?.blocks.push(block);
        let pieces = self.blocks_of(directory).iter().enumerate().map(|(file, block)| Piece {
            extent: format::extent::Extent { file: file as u64, block: *block, len: 1, shared: false },
            copied: false,
        });
        let pieces = pieces.collect();
        let old = if self.maps.contains_key(&directory) { Vec::new() } else { self.nodes_of(directory) };
        for node in old {
            self.release(node, 64);
        }
        self.maps.insert(directory, pieces);
        Some(block * BLOCK)
    }

    /// Blocks of the nodes of a sound map.
    fn nodes_of(&self, inode: u64) -> Vec<u64> {
        let mut nodes = Vec::new();
        let mut level = match format::extent::Root::unpack(self.get(inode + word::ROOT)) {
            Some(format::extent::Root::Tree { node, depth }) => heap::vec![(node, depth)],
            _ => Vec::new(),
        };
        while let Some((node, depth)) = level.pop() {
            nodes.push(node * BLOCK);
            let count = self.get(node * BLOCK).min(format::extent::NODE_ENTRIES as u64);
            if depth > 0 {
                level.extend((0..count).map(|i| (self.get(node * BLOCK + 24 + i * 16) >> 32, depth - 1)));
            }
        }
        nodes
    }

    /// Sets what a directory says its own edentry is.
    pub(super) fn set_own(&mut self, offset: u64, at: u64) {
        let head = self.head(offset);
        if head.flags & inode::COLD != 0 {
            let cold = self.get(offset + word::EXTRA);
            if self.is_cold_line(cold) {
                let own = cold + core::mem::offset_of!(format::Cold, own) as u64;
                if self.get(own) != at {
                    self.act(IssueKind::Own, offset, false, format!("the directory's own edentry is {at:#x}"));
                    self.set(own, at);
                }
                return;
            }
            self.act(IssueKind::Inode, offset, true, "the cold line is lost: atime, birth time, extended attributes".into());
            self.set(offset + word::HEAD, inode::Head { flags: head.flags & !inode::COLD, ..head }.pack());
        }
        if self.get(offset + word::EXTRA) != at {
            self.act(IssueKind::Own, offset, false, format!("the directory's own edentry is {at:#x}"));
            self.set(offset + word::EXTRA, at);
        }
    }

    /// Whether a line that nobody has claimed can be a cold line.
    pub(super) fn is_cold_line(&self, at: u64) -> bool {
        let Ok(cold) = self.fs.at::<format::Cold>(at, "cold line") else { return false };
        self.line_bit(at).is_some()
            && self.is_free(at, 1)
            && cold.flags.load(Relaxed) <= 3
            && cold.unused().all(|word| word.load(Relaxed) == 0)
    }
}

/// Offsets of the slots in these blocks.
pub(super) fn slots(blocks: &[u64]) -> impl Iterator<Item = u64> + use<> {
    let blocks: Vec<u64> = blocks.to_vec();
    blocks.into_iter().flat_map(|block| (0..SLOTS_PER_BLOCK).map(move |i| block * BLOCK + i * 8))
}
