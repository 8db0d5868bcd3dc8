//! Inodes and what hangs on them: extents, texts, cold lines.

use super::{Checker, IssueKind};
use crate::Fs;
use crate::process::in_place::Run;
use base::{Kind, PATH_MAX};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::extent::{DEPTH_MAX, Extent, FILE_MAX, NODE_ENTRIES, Node, Root};
use format::inode::{self, Cold, unpack_links};
use format::layout::BLOCK;
use format::xattr;
use heap::format;

/// What names of attributes begin with.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Checker<'_> {
    /// Whether an inode has been met.
    pub(super) fn is_met(&self, offset: u64) -> bool {
        self.line_bit(offset).is_some_and(|(place, bit)| self.inodes[place] & bit != 0)
    }

    /// Meets an inode for the first time, coming from `names` names (0: an orphan).
    pub(super) fn meet(&mut self, offset: u64, names: u64) {
        let Some((place, bit)) = self.line_bit(offset) else {
            return self.issue(IssueKind::Inode, offset, "no inode can be here".into());
        };
        self.inodes[place] |= bit;
        self.report.files += 1;
        self.claim_lines(offset, 1, "an inode");
        let fs = self.fs;
        let Ok(node) = fs.inode(offset) else { return };
        let head = node.head();
        if fs.permission(head.permission).is_err() {
            self.issue(IssueKind::Permission, offset, format!("the inode's permission {} is not in the table", head.permission));
        }
        let unknown = match head.kind == Kind::Directory as u8 {
            true => !(inode::COLD | inode::RECOUNT),
            false => !(inode::COLD | inode::LINKABLE),
        };
        if head.flags & unknown != 0 {
            self.issue(IssueKind::Inode, offset, format!("flags {:#x}", head.flags));
        }
        let links = node.links.load(Relaxed);
        let root = node.root.load(Relaxed);
        match Kind::from_dt(head.kind) {
            Some(Kind::Directory) => {
                self.report.directories += 1;
                self.waiting.push(offset);
            }
            Some(kind) => {
                let said = u64::from(unpack_links(links).0);
                if said != names || names != 1 {
                    self.links.insert(offset, (names, said));
                }
                match kind {
                    Kind::Regular => self.file(offset, root, unpack_links(links).1, node.size.load(Relaxed)),
                    Kind::Symlink => self.text(offset, root, node.size.load(Relaxed)),
                    _ => {}
                }
            }
            None => self.issue(IssueKind::Inode, offset, format!("kind {}", head.kind)),
        }
        if head.flags & inode::COLD != 0 {
            self.cold(node.extra.load(Relaxed));
        }
    }

    fn file(&mut self, offset: u64, root: u64, blocks: u32, size: u64) {
        if size > FILE_MAX {
            self.issue(IssueKind::Inode, offset, format!("size {size}"));
        }
        let mut data = 0;
        let mut contents = self.contents.take();
        self.extents(offset, root, &mut |extent| {
            data += extent.len;
            if let Some(contents) = &mut contents {
                contents.push(Run { block: extent.block, len: extent.len });
            }
        });
        self.contents = contents;
        if data != u64::from(blocks) {
            self.issue(IssueKind::BlockCount, offset, format!("the inode counts {blocks} blocks, its map has {data}"));
        }
    }

    fn text(&mut self, offset: u64, root: u64, size: u64) {
        if size == 0 || size >= PATH_MAX as u64 {
            self.issue(IssueKind::Inode, offset, format!("a symlink of {size} bytes"));
        } else {
            self.claim_lines(root, size.div_ceil(64), "the text of a symlink");
            let mut bytes = (0..size.div_ceil(64) * 8)
                .flat_map(|i| self.fs.at::<AtomicU64>(root + i * 8, "text").map_or(0, |word| word.load(Relaxed)).to_le_bytes());
            let len = bytes.position(|byte| byte == 0).map_or(size.next_multiple_of(64), |len| len as u64);
            if len != size {
                self.issue(IssueKind::Inode, offset, format!("a symlink of {size} bytes with a text of {len}"));
            }
        }
    }

    fn cold(&mut self, at: u64) {
        if !self.claim_lines(at, 1, "a cold line") {
            return;
        }
        let Ok(cold) = self.fs.at::<Cold>(at, "cold line") else { return };
        let unused = if self.fs.is_cache() { 0 } else { usize::MAX };
        if cold.flags.load(Relaxed) > 3 || cold.unused().take(unused).any(|word| word.load(Relaxed) != 0) {
            self.issue(IssueKind::Inode, at, "a cold line with something in it that means nothing".into());
        }
        let lower = cold.lower.load(Relaxed);
        if lower != 0 && self.fs.is_cache() {
            self.claim_lines(lower, 1, "a lower line");
        }
        let xattr = cold.xattr.load(Relaxed);
        let (block, len) = (xattr >> 32, xattr & 0xffff_ffff);
        if xattr != 0 && self.claim_blocks(block, len.div_ceil(BLOCK).max(1), "extended attributes") {
            self.attributes(at, block * BLOCK, len);
        }
    }

    /// Entries must fill their run exactly.
    fn attributes(&mut self, cold: u64, start: u64, len: u64) {
        let mut at = 0;
        while at < len && len <= xattr::ALL_MAX {
            match self.fs.attribute_bytes(start + at) {
                Some(bytes) => at += bytes,
                None => break,
            }
        }
        if at != len {
            self.issue(IssueKind::Inode, cold, format!("extended attributes of {len} bytes are damaged at byte {at}"));
        }
    }

    /// Goes through a map in order, claims it, and reports each extent that is in order.
    pub(super) fn extents(&mut self, inode: u64, root: u64, each: &mut dyn FnMut(Extent)) {
        match Root::unpack(root) {
            Some(Root::Empty) => {}
            Some(Root::One { block, len, shared }) => {
                let extent = Extent { file: 0, block, len, shared };
                if self.extent(inode, extent, &mut 0) {
                    each(extent);
                }
            }
            Some(Root::Tree { node, depth }) => {
                let mut next = 0;
                self.node(inode, node, depth, &mut next, each);
            }
            None => self.issue(IssueKind::Extent, inode, format!("data root {root:#x}")),
        }
    }

    fn extent(&mut self, inode: u64, extent: Extent, next: &mut u64) -> bool {
        let end = extent.file.saturating_add(extent.len);
        if extent.len == 0 || extent.file < *next || end > FILE_MAX / BLOCK {
            let Extent { file, block, len, .. } = extent;
            self.issue(
                IssueKind::Extent,
                inode,
                format!("extent of {len} blocks at {block} for file block {file} is out of order"),
            );
            return false;
        }
        *next = end;
        self.claim_extent(inode, extent)
    }

    fn node(&mut self, inode: u64, block: u64, depth: u8, next: &mut u64, each: &mut dyn FnMut(Extent)) {
        let at = block.wrapping_mul(BLOCK);
        // A node claimed twice is not followed twice: so a circle ends.
        if depth > DEPTH_MAX || !self.claim_blocks(block, 1, "an extent node") {
            return;
        }
        let Ok(node) = self.fs.at::<Node>(at, "extent node") else { return };
        let count = node.count.load(Relaxed);
        if count == 0 || count > NODE_ENTRIES as u64 || node.depth.load(Relaxed) != u64::from(depth) {
            return self.issue(IssueKind::Extent, at, format!("an extent node with {count} entries for the inode at {inode:#x}"));
        }
        for entry in &node.entries[..count as usize] {
            let (file, run) = (entry.file.load(Relaxed), entry.run.load(Relaxed));
            if depth > 0 {
                if file > 0 && file < *next {
                    self.issue(IssueKind::Extent, at, "entries of a node out of order".into());
                }
                self.node(inode, run >> 32, depth - 1, next, each);
            } else {
                let extent = entry.extent();
                if self.extent(inode, extent, next) {
                    each(extent);
                }
            }
        }
    }
}

impl Fs {
    /// Bytes of the entry at `at`, if it can be one: lengths, and a name that can be asked for.
    pub(crate) fn attribute_bytes(&self, at: u64) -> Option<u64> {
        let word = |i: u64| self.at::<AtomicU64>(at + i * 8, "extended attribute").map_or(0, |word| word.load(Relaxed));
        let (name, value) = xattr::unpack_head(word(0))?;
        let mut text = [0; xattr::NAME_MAX + 1];
        text.chunks_mut(8).zip(1..).for_each(|(bytes, i)| bytes.copy_from_slice(&word(i).to_le_bytes()));
        let text = &text[..name as usize];
        let known = NAMESPACES.iter().any(|namespace| text.starts_with(namespace));
        (known && !text.contains(&0)).then(|| xattr::entry_bytes(name, value))
    }
}
