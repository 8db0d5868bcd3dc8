//! Names that are not right as they stand: fixed if two things speak for them, else taken out.

use super::Fixer;
use super::names::is_name;
use crate::check::IssueKind;
use base::Kind;
use format::directory::reserved_by;
use format::edentry::{self, Head, NAME};
use format::inode::{node_generation, node_id, node_offset, word};
use format::layout::{BLOCK, LINE};
use heap::format;
use heap::string::String;
use heap::vec::Vec;

impl Fixer<'_> {
    /// A slot whose edentry has something wrong with it.
    pub(super) fn doubtful_name(&mut self, directory: u64, slot: u64) {
        let at = self.get(slot);
        if at == 0 || reserved_by(at).is_some() {
            return;
        }
        if self.line_bit(at).is_none() {
            self.set(slot, 0);
            return self.act(
                IssueKind::Edentry,
                slot,
                true,
                format!("the slot referred to {at:#x}, where no edentry can be: emptied"),
            );
        }
        if !self.is_free(at, 1) {
            self.set(slot, 0);
            return self.act(
                IssueKind::Edentry,
                slot,
                true,
                format!("what the slot referred to at {at:#x} is used by something else: emptied"),
            );
        }
        let Some(name) = self.believed_name(directory, slot, at) else {
            self.set(slot, 0);
            return self.act(
                IssueKind::Edentry,
                slot,
                true,
                format!("there is no edentry of this directory at {at:#x}: the slot is emptied"),
            );
        };
        let Some((child, kind)) = self.believed_child(at) else {
            self.set(slot, 0);
            let detail = format!("{} leads to no inode: the name is taken out", shown(&name));
            return self.act(IssueKind::Edentry, at, true, detail);
        };
        if self.has_name(directory, self.fs.hash(directory, &name)) {
            self.set(slot, 0);
            let detail = format!("{} is there already: the second one is taken out", shown(&name));
            return self.act(IssueKind::Name, at, true, detail);
        }
        self.write_edentry(directory, slot, at, child, kind, &name);
        self.accept(directory, at, name.len() as u8, child);
    }

    /// The name at `at`, if enough speaks for its being this directory's.
    fn believed_name(&self, directory: u64, slot: u64, at: u64) -> Option<Vec<u8>> {
        let room = self.name_room(at);
        let stored = (self.get(at) >> 32) as u32;
        let place = self.get(at + 8) == directory && self.get(at + 24) == slot;
        let fits = |name: &[u8]| stored == (self.fs.hash(directory, name) >> 32) as u32;
        let said = self.read_name(at).map(|(entry, name)| {
            let mut name = name.raw(entry.head.name_len).to_vec();
            name.truncate(room);
            (name, entry.parent)
        });
        if let Some((name, parent)) = &said {
            if fits(name) && is_name(name) {
                return Some(name.clone());
            }
            if *parent != directory && stored == (self.fs.hash(*parent, name) >> 32) as u32 {
                // It belongs elsewhere, and is found there.
                return None;
            }
        }
        let text = self.name_up_to_zero(at, room);
        // Of two lengths the shorter: the longer one may reach into what stands behind.
        let shorter = said.as_ref().is_none_or(|(name, _)| text.len() <= name.len());
        if is_name(&text) && (fits(&text) || place && shorter) {
            return Some(text);
        }
        let (name, _) = said.filter(|_| place)?;
        let clean: Vec<u8> = name.iter().map(|byte| if matches!(byte, 0 | b'/') { b'_' } else { *byte }).collect();
        Some(if is_name(&clean) { clean } else { b"_".to_vec() })
    }

    /// How many bytes of a name have room at `at`: lines that are somebody else's now end it, and its block does.
    fn name_room(&self, at: u64) -> usize {
        let lines = u64::from(edentry::lines(edentry::NAME_MAX)).min((BLOCK - at % BLOCK) / LINE);
        let free = (1..=lines).take_while(|lines| self.is_free(at, *lines)).last();
        free.map_or(0, |lines| (lines * LINE - NAME) as usize)
    }

    /// What stands where a name should, up to the first zero.
    fn name_up_to_zero(&self, at: u64, room: usize) -> Vec<u8> {
        let bytes = (0..room.div_ceil(8) as u64).flat_map(|i| self.get(at + NAME + i * 8).to_le_bytes());
        bytes.take(room.min(edentry::NAME_MAX)).take_while(|byte| *byte != 0).collect()
    }

    /// The inode that an edentry means, if there is one that can be it; and its kind.
    fn believed_child(&mut self, at: u64) -> Option<(u64, u8)> {
        let id = self.get(at + 16);
        let offset = node_offset(id);
        self.line_bit(offset)?;
        let said = (self.get(at) >> 16) as u8;
        let head = self.head(offset);
        let same_use = head.generation & 0xff_ffff == node_generation(id);
        let kind = Kind::from_dt(head.kind).map(|kind| kind as u8);
        if self.is_met(offset) {
            let file = kind.filter(|kind| *kind != Kind::Directory as u8);
            return file.filter(|_| same_use).map(|kind| (offset, kind));
        }
        if !self.is_free(offset, 1) || !same_use && (kind != Some(said) || !self.can_be_inode(offset)) {
            return None;
        }
        let own = self.fs.own_edentry(offset) == Ok(at);
        let kind = match (kind, Kind::from_dt(said)) {
            (Some(kind), None) => kind,
            (Some(kind), Some(_)) if kind == said => kind,
            (Some(kind), Some(_)) if kind == Kind::Directory as u8 => {
                if own {
                    kind
                } else {
                    said
                }
            }
            (Some(_), Some(said)) if said == Kind::Directory && own => said as u8,
            (Some(kind), Some(_)) => kind,
            (None, Some(said)) => said as u8,
            (None, None) => return None,
        };
        if head.kind != kind {
            self.act(IssueKind::Inode, offset, false, format!("the inode's kind is {kind}, it said {}", head.kind));
            self.set(offset + word::HEAD, format::inode::Head { kind, ..head }.pack());
        }
        Some((offset, kind))
    }

    /// Whether a line that is used may well be an inode: its owner is in the table and its time is one.
    fn can_be_inode(&self, offset: u64) -> bool {
        self.is_used_line(offset)
            && self.fs.permission(self.head(offset).permission).is_ok()
            && (1..u64::MAX / 2).contains(&self.get(offset + word::CTIME))
    }

    /// Whether the bitmap calls a line used.
    pub(super) fn is_used_line(&self, offset: u64) -> bool {
        self.line_bit(offset).is_some_and(|(place, bit)| self.was_used(place) & bit != 0)
    }

    /// Makes an edentry what it should be, and says so if it was not.
    pub(super) fn write_edentry(&mut self, directory: u64, slot: u64, at: u64, child: u64, kind: u8, name: &[u8]) {
        let hash = (self.fs.hash(directory, name) >> 32) as u32;
        let head = Head { hash, kind, name_len: name.len() as u8 }.pack();
        let id = node_id(child, self.head(child).generation);
        let before = [0, 8, 16, 24].map(|word| self.get(at + word));
        let after = [head, directory, id, slot];
        for (word, value) in [0, 8, 16, 24].into_iter().zip(after) {
            self.set(at + word, value);
        }
        let lines = u64::from(edentry::lines(name.len()));
        let mut changed = before != after;
        for i in 0..(lines * LINE - NAME) / 8 {
            let mut bytes = [0; 8];
            for (byte, from) in bytes.iter_mut().zip(name.iter().skip(i as usize * 8)) {
                *byte = *from;
            }
            // What lies beyond the name means nothing, but for its first two words.
            if i < 2 || i * 8 < name.len() as u64 {
                changed |= self.get(at + NAME + i * 8) != u64::from_le_bytes(bytes);
                self.set(at + NAME + i * 8, u64::from_le_bytes(bytes));
            }
        }
        if changed {
            self.act(IssueKind::Edentry, at, false, format!("the edentry of {} is fixed", shown(name)));
        }
        self.set(slot, at);
    }
}

/// A name for a person.
pub(super) fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}
