//! From the root directory down: every name, and what it leads to.

use super::{Checker, IssueKind};
use crate::dir::{Entry, NameBuffer};
use base::{Kind, Name};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::edentry;
use format::inode::{self, node_generation, node_offset, unpack_links};
use format::layout::{self, BLOCK};
use heap::format;
use heap::string::String;
use heap::vec::Vec;

impl Checker<'_> {
    /// Everything that the root leads to.
    pub(super) fn tree(&mut self) {
        let root = self.fs.root().root_inode.load(Relaxed);
        let is_directory =
            self.line_bit(root).is_some() && self.fs.inode(root).is_ok_and(|inode| inode.head().kind == Kind::Directory as u8);
        if !is_directory {
            return self.issue(IssueKind::Root, layout::ROOT, format!("the root directory's inode is not at {root:#x}"));
        }
        self.meet(root, 1);
        self.own(root, 0);
        self.wait_for_directories();
    }

    /// Looks at the directories that wait, and at those they lead to.
    pub(super) fn wait_for_directories(&mut self) {
        while let Some(offset) = self.waiting.pop() {
            self.directory(offset);
        }
    }

    fn directory(&mut self, offset: u64) {
        let fs = self.fs;
        let Ok(node) = fs.inode(offset) else { return };
        let mut blocks = Vec::new();
        let mut expected = 0;
        let mut whole = true;
        self.extents(offset, node.root.load(Relaxed), &mut |extent| {
            whole &= extent.file == expected && !extent.shared;
            expected = extent.file + extent.len;
            blocks.push((extent.block, extent.len));
        });
        if !whole {
            self.issue(IssueKind::Extent, offset, "a directory with a hole, or whose blocks are shared".into());
        }
        let (mut entries, mut directories) = (0, 0);
        for block in blocks.into_iter().flat_map(|(first, len)| first..first + len) {
            let Ok(slots) = fs.at::<[AtomicU64; SLOTS_PER_BLOCK as usize]>(block * BLOCK, "directory block") else { continue };
            for (i, slot) in slots.iter().enumerate() {
                let slot = slot.load(Relaxed);
                if slot == 0 || reserved_by(slot).is_some() {
                    continue;
                }
                entries += 1;
                directories += u64::from(self.name(offset, block * BLOCK + i as u64 * 8, slot));
            }
        }
        self.report.names += entries;
        let said = (node.size.load(Relaxed), node.links.load(Relaxed));
        if said != (entries, directories) && node.head().flags & inode::RECOUNT == 0 {
            self.issue(
                IssueKind::EntryCount,
                offset,
                format!("the directory counts {} entries and {} directories, it has {entries} and {directories}", said.0, said.1),
            );
        }
    }

    /// The name in a slot; whether it is a directory's.
    fn name(&mut self, parent: u64, slot: u64, at: u64) -> bool {
        let mut name = NameBuffer::new();
        let entry = match self.line_bit(at).map(|_| self.fs.read_edentry(at, &mut name)) {
            Some(Ok(entry)) => entry,
            _ => {
                self.issue(IssueKind::Edentry, slot, format!("the slot refers to {at:#x}, which is no edentry"));
                return false;
            }
        };
        let text = name.raw(entry.head.name_len);
        if !self.claim_lines(at, u64::from(edentry::lines(text.len())), "an edentry") {
            return false;
        }
        if let Some((place, bit)) = self.line_bit(at) {
            self.edentries[place] |= bit;
        }
        self.entry(parent, slot, at, &entry, text);
        self.indexed(parent, text, at);
        self.child(at, &entry);
        entry.head.kind == Kind::Directory as u8
    }

    /// What an edentry says of itself.
    fn entry(&mut self, parent: u64, slot: u64, at: u64, entry: &Entry, text: &[u8]) {
        if entry.parent != parent || entry.slot != slot {
            let detail = format!(
                "{} stands in slot {slot:#x} of {parent:#x}, but says {:#x} of {:#x}",
                shown(text),
                entry.slot,
                entry.parent
            );
            self.issue(IssueKind::Edentry, at, detail);
        }
        if entry.head.hash != (self.fs.hash(parent, text) >> 32) as u32 {
            self.issue(IssueKind::Edentry, at, format!("the hash of {} is wrong", shown(text)));
        }
        let clean = |edentry: &edentry::Edentry| {
            let behind = edentry::behind(text.len());
            edentry.name.iter().zip(behind).all(|(word, behind)| word.load(Relaxed) & behind == 0)
        };
        if !self.fs.edentry(at).is_ok_and(clean) {
            self.issue(IssueKind::Edentry, at, format!("there are bytes behind {}, which hide it", shown(text)));
        }
        if Name::new(text).is_none() {
            self.issue(IssueKind::Name, at, format!("{} is not a name", shown(text)));
        }
    }

    /// The inode that a name leads to.
    fn child(&mut self, at: u64, entry: &Entry) {
        let offset = node_offset(entry.child);
        let head = match self.line_bit(offset).map(|_| self.fs.inode(offset)) {
            Some(Ok(inode)) => inode.head(),
            _ => return self.issue(IssueKind::Edentry, at, format!("its inode would be at {offset:#x}")),
        };
        if head.generation & 0xff_ffff != node_generation(entry.child) || head.kind != entry.head.kind {
            let detail = format!("the inode at {offset:#x} is another one (kind {}, not {})", head.kind, entry.head.kind);
            return self.issue(IssueKind::Edentry, at, detail);
        }
        let directory = head.kind == Kind::Directory as u8;
        if directory {
            self.own(offset, at);
        }
        if !self.is_met(offset) {
            self.meet(offset, 1);
        } else if directory {
            self.issue(IssueKind::Own, at, format!("a second name of the directory at {offset:#x}"));
        } else {
            let said = self.fs.inode(offset).map_or(0, |inode| u64::from(unpack_links(inode.links.load(Relaxed)).0));
            self.links.entry(offset).or_insert((1, said)).0 += 1;
        }
    }

    /// A directory must know its own edentry.
    fn own(&mut self, offset: u64, at: u64) {
        match self.fs.own_edentry(offset) {
            Ok(own) if own == at => {}
            Ok(own) => self.issue(IssueKind::Own, offset, format!("the directory's own edentry is {at:#x}, it says {own:#x}")),
            Err(error) => self.damaged(IssueKind::Own, error),
        }
    }

    /// Every inode has as many names as it says.
    pub(super) fn link_counts(&mut self) {
        for (offset, (found, said)) in core::mem::take(&mut self.links) {
            if found != said {
                self.issue(IssueKind::LinkCount, offset, format!("the inode counts {said} names, it has {found}"));
            }
        }
    }
}

/// A name for a person.
pub(super) fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}
