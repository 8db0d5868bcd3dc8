//! What nothing leads to any more: names back to their directories, inodes into `lost+found`.

use super::doubtful::shown;
use super::names::{is_name, slots};
use super::{Directory, Fixer};
use crate::check::IssueKind;
use base::Kind;
use format::edentry::{self, NAME};
use format::extent::Root;
use format::inode::{self, COLD, LINKABLE, RECOUNT, node_id, node_offset, pack_links, word};
use format::layout::{BLOCK, LINE};
use heap::format;
use heap::string::String;
use heap::vec::Vec;

const DIRECTORY: u8 = Kind::Directory as u8;
const LOST: &[u8] = b"lost+found";
/// A time later than this (1990) can be one of an inode.
const TIME_MIN: u64 = 631_152_000_000_000_000;

impl Fixer<'_> {
    /// Finds a place for all that can still be recognised.
    pub(super) fn salvage(&mut self, root: u64) {
        self.old_names();
        let lost = self.lost_inodes();
        if lost.is_empty() {
            return;
        }
        // The topmost of lost directories first, then circles, then files whose name is lost too.
        let (directories, files): (Vec<u64>, Vec<u64>) = lost.into_iter().partition(|at| self.head(*at).kind == DIRECTORY);
        let below = |fixer: &Self, at: &u64| {
            let parent = fixer.fs.own_edentry(*at).map_or(0, |own| fixer.get(own + 8));
            directories.contains(&parent) && parent != *at
        };
        let (inner, top): (Vec<u64>, Vec<u64>) = directories.iter().copied().partition(|at| below(self, at));
        for offset in top.into_iter().chain(inner) {
            self.adopt(root, offset);
        }
        self.old_names();
        for offset in files {
            self.adopt(root, offset);
        }
    }

    /// Lines that the bitmap calls used and nothing has claimed.
    fn unclaimed(&self) -> Vec<u64> {
        let mut lines = Vec::new();
        for place in 0..self.used.len() {
            let mut bits = self.was_used(place) & !self.used[place];
            while bits != 0 {
                let line = u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                lines.push((self.fs.layout.first_block() + place as u64) * BLOCK + line * LINE);
            }
        }
        lines
    }

    /// Edentries that no slot refers to go back into their directory.
    fn old_names(&mut self) {
        loop {
            let mut any = false;
            for at in self.unclaimed() {
                any |= self.is_free(at, 1) && self.old_name(at);
            }
            if !any {
                return;
            }
        }
    }

    fn old_name(&mut self, at: u64) -> bool {
        let Some((entry, name)) = self.read_name(at) else { return false };
        let text = name.raw(entry.head.name_len).to_vec();
        let child = node_offset(entry.child);
        let hash = self.fs.hash(entry.parent, &text);
        let links = self.links.get(&child).copied().unwrap_or(1);
        let wanted = if self.is_met(child) {
            entry.head.kind != DIRECTORY && u64::from(inode::unpack_links(self.get(child + word::LINKS)).0) > links
        } else {
            self.is_free(child, 1)
        };
        let right = entry.head.hash == (hash >> 32) as u32
            && is_name(&text)
            && self.directories.contains_key(&entry.parent)
            && wanted
            && self.leads_to(&entry)
            && self.is_free(at, u64::from(edentry::lines(text.len())))
            // A line that has come here from elsewhere may stand before an inode.
            && !(1..u64::from(edentry::lines(text.len()))).any(|line| self.is_inode(at + line * LINE))
            && !self.has_name(entry.parent, hash);
        if !right {
            return false;
        }
        // Claimed first, so that a new slot block is not put here.
        self.accept(entry.parent, at, entry.head.name_len, child);
        let Some(slot) = self.free_slot(entry.parent, entry.slot) else { return false };
        self.set(at + 24, slot);
        self.set(slot, at);
        self.act(IssueKind::Edentry, at, false, format!("{} is put back into its directory", shown(&text)));
        self.newly_met(child);
        true
    }

    /// An inode that has just been met, and all it leads to.
    fn newly_met(&mut self, offset: u64) {
        let before = self.inodes.clone();
        if let Some((place, bit)) = self.line_bit(offset).filter(|_| self.head(offset).kind == DIRECTORY) {
            debug_assert!(before[place] & bit != 0);
            self.walk(offset);
            for (place, before) in before.iter().enumerate() {
                let mut new = self.inodes[place] & !before;
                while new != 0 {
                    let line = u64::from(new.trailing_zeros());
                    new &= new - 1;
                    self.fix_inode((self.fs.layout.first_block() + place as u64) * BLOCK + line * LINE);
                }
            }
        }
        if self.links.get(&offset).is_none_or(|found| *found <= 1) {
            self.fix_inode(offset);
        }
        self.fix_symlinks();
    }

    /// Inodes with contents that nothing leads to.
    fn lost_inodes(&self) -> Vec<u64> {
        self.unclaimed().into_iter().filter(|at| self.is_inode(*at)).collect()
    }

    /// Whether a line must be an inode that was in use.
    fn is_inode(&self, at: u64) -> bool {
        let head = self.head(at);
        let ctime = self.get(at + word::CTIME);
        let flags = COLD | RECOUNT | LINKABLE | self.fs.frozen_flag();
        if head.generation == 0 || head.flags & !flags != 0 || !(TIME_MIN..u64::MAX / 2).contains(&ctime) {
            return false;
        }
        let root = self.get(at + word::ROOT);
        let (links, blocks) = inode::unpack_links(self.get(at + word::LINKS));
        match Kind::from_dt(head.kind) {
            Some(Kind::Directory) => self.is_lost_directory(at, head, root),
            Some(Kind::Regular) => {
                let run = match Root::unpack(root) {
                    Some(Root::One { block, len, .. }) if len == u64::from(blocks) => (block, len),
                    Some(Root::Tree { node, depth }) if self.get(node.wrapping_mul(BLOCK) + 8) == u64::from(depth) => (node, 1),
                    _ => return false,
                };
                links <= 1 << 16 && run.1 > 0 && (0..run.1).all(|i| self.is_lost_block(run.0 + i))
            }
            Some(Kind::Symlink) => {
                let size = self.get(at + word::SIZE);
                links <= 1 << 16 && size > 0 && size < 4096 && self.is_used_line(root) && self.has_text(root, size)
            }
            _ => false,
        }
    }

    /// Whether a block can be one of a lost file.
    fn is_lost_block(&self, block: u64) -> bool {
        // A damaged map may have claimed it: then there will be two copies.
        self.place(block).is_some_and(|place| self.meta[place] == 0 && self.was_used(place) == u64::MAX)
    }

    fn is_lost_directory(&self, at: u64, head: inode::Head, root: u64) -> bool {
        let own = self.fs.own_edentry(at).ok().and_then(|own| self.read_name(own));
        if own.is_some_and(|(entry, _)| entry.child == node_id(at, head.generation)) {
            return true;
        }
        let Some(Root::One { block, len, .. }) = Root::unpack(root) else { return false };
        len < 1 << 16
            && (0..len).all(|i| self.is_lost_block(block + i))
            && (0..BLOCK / 8)
                .any(|i| self.read_name(self.get(block * BLOCK + i * 8)).is_some_and(|(entry, _)| entry.parent == at))
    }

    /// Gives an inode a name in `lost+found`.
    fn adopt(&mut self, root: u64, offset: u64) {
        if !self.is_free(offset, 1) {
            return;
        }
        let Some(lost) = self.lost_and_found(root) else { return };
        let head = self.head(offset);
        // Nobody is to gain rights by damage.
        if let Ok((uid, gid, mode)) = self.fs.permission(head.permission)
            && mode & 0o6000 != 0
        {
            let permission = self.permission_for(uid, gid, mode & 0o1777);
            self.set(offset + word::HEAD, inode::Head { permission, ..head }.pack());
        }
        // Not to be given out for the name.
        self.claim(offset, 1);
        let number = self.fs.own_number(node_id(offset, head.generation));
        let mut name = format!("#{number}");
        let mut again = 1;
        while self.has_name(lost, self.fs.hash(lost, name.as_bytes())) {
            name = format!("#{number}.{again}");
            again += 1;
        }
        let made = self.new_name(lost, offset, head.kind, name.as_bytes());
        if made {
            self.act(IssueKind::Leaked, offset, false, format!("an inode without a name becomes {}/{name}", text(LOST)));
            self.newly_met(offset);
        }
    }

    /// A new name for an inode; false if there is no space.
    fn new_name(&mut self, directory: u64, child: u64, kind: u8, name: &[u8]) -> bool {
        let lines = u64::from(edentry::lines(name.len()));
        let (Some(at), Some(slot)) = (self.take_lines(lines), self.free_slot(directory, 0)) else { return false };
        let hash = (self.fs.hash(directory, name) >> 32) as u32;
        let head = edentry::Head { hash, kind, name_len: name.len() as u8 };
        let id = node_id(child, self.head(child).generation);
        for (word, value) in [(0, head.pack()), (8, directory), (16, id), (24, slot)] {
            self.set_fresh(at + word, value);
        }
        for (i, chunk) in name.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.set_fresh(at + NAME + i as u64 * 8, u64::from_le_bytes(bytes));
        }
        self.release(at, lines);
        if !self.is_met(child) {
            self.release(child, 1);
        }
        self.accept(directory, at, name.len() as u8, child);
        self.set(slot, at);
        true
    }

    /// The directory for what is found, made if it is not there.
    fn lost_and_found(&mut self, root: u64) -> Option<u64> {
        let mut name = text(LOST);
        for again in 2.. {
            let mut taken = false;
            for slot in slots(self.blocks_of(root)) {
                let at = self.get(slot);
                let found =
                    self.accepted(root, slot, at).filter(|(entry, text)| text.raw(entry.head.name_len) == name.as_bytes());
                if let Some((entry, _)) = found {
                    let child = node_offset(entry.child);
                    if self.directories.contains_key(&child) {
                        return Some(child);
                    }
                    taken = true;
                }
            }
            if !taken {
                break;
            }
            name = format!("{}.{again}", text(LOST));
        }
        // The root directory's owner is who looks after the image, and need not be root.
        let (uid, gid) = self.fs.permission(self.head(root).permission).map_or((0, 0), |(uid, gid, _)| (uid, gid));
        let permission = self.permission_for(uid, gid, 0o700);
        let at = self.take_lines(1)?;
        let now = pm::clock::now() as u64;
        let head = inode::Head { generation: 1, flags: 0, kind: DIRECTORY, permission };
        for (word, value) in [(word::HEAD, head.pack()), (word::MTIME, now), (word::CTIME, now), (word::LINKS, pack_links(0, 0))]
        {
            self.set_fresh(at + word, value);
        }
        self.act(IssueKind::Leaked, at, false, format!("the directory {name} is made for what has no name"));
        self.release(at, 1);
        self.meet(at, 0);
        self.waiting.retain(|waiting| *waiting != at);
        self.directories.insert(at, Directory { blocks: Vec::new(), entries: 0, directories: 0 });
        let own = self.new_name(root, at, DIRECTORY, name.as_bytes());
        // `accept` has taken it for a second name.
        self.links.remove(&at);
        own.then(|| {
            let edentry = slots(self.blocks_of(root)).map(|slot| self.get(slot)).find(|edentry| {
                *edentry != 0
                    && self.read_name(*edentry).is_some_and(|(entry, _)| entry.parent == root && node_offset(entry.child) == at)
            });
            self.set_fresh(at + word::EXTRA, edentry.unwrap_or(0));
            at
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
