//! Inodes that have been met: what they say of themselves, and what hangs on them.

use super::Fixer;
use super::map::Claims;
use crate::check::IssueKind;
use base::{Kind, PATH_MAX};
use format::extent::FILE_MAX;
use format::inode::{self, COLD, Head, LINKABLE, RECOUNT, pack_links, unpack_links, word};
use format::layout::{BLOCK, LINE};
use format::xattr;
use heap::format;
use heap::vec::Vec;

impl Fixer<'_> {
    /// All inodes met so far.
    pub(super) fn all_inodes(&mut self) {
        let first = self.fs.layout.first_block();
        for place in 0..self.inodes.len() {
            let mut bits = self.inodes[place];
            while bits != 0 {
                let line = u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                self.fix_inode((first + place as u64) * BLOCK + line * LINE);
            }
        }
        self.fix_symlinks();
    }

    /// The symlinks left over: when those that are right have their texts.
    pub(super) fn fix_symlinks(&mut self) {
        for offset in core::mem::take(&mut self.symlinks) {
            self.fix_symlink(offset);
        }
    }

    /// One inode, met already; claims its contents.
    pub(super) fn fix_inode(&mut self, offset: u64) {
        let head = self.head(offset);
        let mut new = head;
        new.flags &= COLD | RECOUNT | LINKABLE | self.fs.frozen_flag();
        if head.kind != Kind::Directory as u8 {
            new.flags &= !RECOUNT;
        } else {
            new.flags &= !LINKABLE;
        }
        if new.flags != head.flags {
            self.act(IssueKind::Inode, offset, false, format!("flags {:#x} become {:#x}", head.flags, new.flags));
        }
        self.fix_permission(offset, &mut new);
        if new.flags & COLD != 0 && !self.fix_cold(offset) {
            new.flags &= !COLD;
            self.act(IssueKind::Inode, offset, true, "the cold line is lost: atime, birth time, extended attributes".into());
            self.set(offset + word::EXTRA, 0);
        }
        self.set(offset + word::HEAD, new.pack());
        match Kind::from_dt(new.kind) {
            Some(Kind::Regular) => self.fix_file(offset),
            Some(Kind::Symlink) if !self.claim_text(offset) => self.symlinks.push(offset),
            _ => {}
        }
    }

    fn fix_permission(&mut self, offset: u64, head: &mut Head) {
        if let Some(moved) = self.permissions.get(&head.permission) {
            head.permission = *moved;
        } else if self.fs.permission(head.permission).is_err() {
            let mode = if head.kind == Kind::Directory as u8 { 0o700 } else { 0o600 };
            let detail = format!("owner and mode are lost: they become root's and {mode:o}");
            self.act(IssueKind::Permission, offset, true, detail);
            head.permission = self.permission_for(0, 0, mode);
        }
    }

    /// The cold line of an inode that says it has one; false if it has none.
    fn fix_cold(&mut self, offset: u64) -> bool {
        let at = self.get(offset + word::EXTRA);
        if !self.is_cold_line(at) {
            return false;
        }
        self.claim(at, 1);
        self.claim(self.get(at + core::mem::offset_of!(format::Cold, lower) as u64), 1);
        let field = at + core::mem::offset_of!(format::Cold, xattr) as u64;
        let value = self.get(field);
        let (block, len) = (value >> 32, value & 0xffff_ffff);
        if value == 0 {
            return true;
        }
        let blocks = len.div_ceil(BLOCK).max(1);
        let free = len <= xattr::ALL_MAX
            && (block..block + blocks).all(|block| self.place(block).is_some_and(|place| self.used[place] == 0));
        let whole = if free { self.whole_attributes(block * BLOCK, len) } else { 0 };
        if whole > 0 {
            for block in block..block + whole.div_ceil(BLOCK) {
                self.claim(block * BLOCK, 64);
            }
        }
        if whole != len || len == 0 {
            self.act(IssueKind::Inode, offset, true, format!("extended attributes: {whole} bytes of {len} can be kept"));
            self.set(field, if whole == 0 { 0 } else { block << 32 | whole });
        }
        true
    }

    /// Bytes of the attributes at `start` up to the first that is damaged.
    fn whole_attributes(&self, start: u64, len: u64) -> u64 {
        let mut at = 0;
        while at < len {
            match self.fs.attribute_bytes(start + at) {
                Some(bytes) if at + bytes <= len => at += bytes,
                _ => break,
            }
        }
        at
    }

    fn fix_file(&mut self, offset: u64) {
        let size = self.get(offset + word::SIZE);
        let root = self.get(offset + word::ROOT);
        let contents = size.div_ceil(BLOCK);
        let map = self.read_map(root, Claims { meta: false, contents });
        let blocks = map.blocks();
        if size > FILE_MAX {
            let end = map.pieces.last().map_or(0, |last| (last.extent.file + last.extent.len) * BLOCK);
            self.act(IssueKind::Inode, offset, true, format!("the size {size} cannot be: it becomes {end}"));
            self.set(offset + word::SIZE, end);
        }
        if map.damaged {
            let what = if map.lost { ": some of its contents are lost" } else { "" };
            self.act(IssueKind::Extent, offset, map.lost, format!("the file gets a new map of {blocks} blocks{what}"));
            self.rewrite_map(offset, map);
        }
        let (links, said) = unpack_links(self.get(offset + word::LINKS));
        if u64::from(said) != blocks {
            self.act(IssueKind::BlockCount, offset, false, format!("the inode counts {said} blocks: it has {blocks}"));
            self.set(offset + word::LINKS, pack_links(links, blocks as u32));
        }
    }

    /// The bytes of a text, `len` of them.
    fn text(&self, at: u64, len: u64) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|i| self.get(at + i * 8).to_le_bytes()).take(len as usize).collect()
    }

    /// Claims the text of a symlink if it is as long as the inode says.
    fn claim_text(&mut self, offset: u64) -> bool {
        let (at, size) = (self.get(offset + word::ROOT), self.get(offset + word::SIZE));
        let claimed = size > 0 && size < PATH_MAX as u64 && self.has_text(at, size) && self.claim(at, size.div_ceil(LINE));
        if claimed {
            self.texts.insert(at, size);
        }
        claimed
    }

    /// Whether a text of just that many bytes is there, and is nobody else's.
    pub(super) fn has_text(&self, at: u64, size: u64) -> bool {
        let lines = size.div_ceil(LINE);
        self.is_free(at, lines) && length(&self.text(at, lines * LINE)) == size
    }

    fn fix_symlink(&mut self, offset: u64) {
        let (at, size) = (self.get(offset + word::ROOT), self.get(offset + word::SIZE));
        // Nothing says whose it is: both keep it, so that the one it belongs to does.
        if self.texts.get(&at) == Some(&size) && self.copies > 0 {
            self.copies -= 1;
            self.text_copies.push(offset);
            return;
        }
        // The text ends with zeros, so its length can be taken again.
        let room = if self.line_bit(at).is_some() { (BLOCK - at % BLOCK).min(PATH_MAX as u64 - 1) } else { 0 };
        let found = length(&self.text(at, room));
        // A block without a zero holds no text: the longest one has a zero behind it.
        if found > 0 && self.has_text(at, found) {
            self.claim(at, found.div_ceil(LINE));
            self.texts.insert(at, found);
            self.act(IssueKind::Inode, offset, false, format!("the symlink's length {size} becomes {found}"));
            self.set(offset + word::SIZE, found);
            return;
        }
        self.act(IssueKind::Inode, offset, true, "the symlink's text is lost: it becomes an empty file".into());
        let head = self.head(offset);
        self.set(offset + word::HEAD, Head { kind: Kind::Regular as u8, ..head }.pack());
        self.set(offset + word::ROOT, 0);
        self.set(offset + word::SIZE, 0);
        let (links, _) = unpack_links(self.get(offset + word::LINKS));
        self.set(offset + word::LINKS, pack_links(links, 0));
        self.fix_kind_in_names(offset);
    }

    /// Gives symlinks whose text another one has claimed a text of their own.
    pub(super) fn copy_texts(&mut self) {
        for offset in core::mem::take(&mut self.text_copies) {
            let (at, size) = (self.get(offset + word::ROOT), self.get(offset + word::SIZE));
            let text = self.text(at, size);
            let Some(copy) = self.take_lines(size.div_ceil(LINE)) else { return };
            for (i, chunk) in text.chunks(8).enumerate() {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                self.set_fresh(copy + i as u64 * 8, u64::from_le_bytes(bytes));
            }
            self.act(IssueKind::DoubleUse, offset, false, "the symlink's text is another's too: it gets a copy".into());
            self.set(offset + word::ROOT, copy);
        }
    }

    /// Lets every name of an inode say the kind it has now.
    fn fix_kind_in_names(&mut self, offset: u64) {
        let kind = self.head(offset).kind;
        let directories: Vec<u64> = self.directories.keys().copied().collect();
        for directory in directories {
            for slot in super::names::slots(self.blocks_of(directory)) {
                let at = self.get(slot);
                let of_it = self.accepted(directory, slot, at).filter(|(entry, _)| inode::node_offset(entry.child) == offset);
                if let Some((entry, _)) = of_it {
                    self.set(at, format::edentry::Head { kind, ..entry.head }.pack());
                }
            }
        }
    }
}

/// Bytes before the first zero.
fn length(text: &[u8]) -> u64 {
    text.iter().take_while(|byte| **byte != 0).count() as u64
}
