//! Records, superblocks, root, permission table, root directory, orphans.

use super::derive::lane_at;
use super::{Fixer, Plan};
use crate::check::{Issue, IssueKind, Report};
use crate::fs::Fs;
use crate::lane::apply;
use base::Kind;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use format::inode::{Head, node_generation, node_offset, word};
use format::lane::{Op, State, copied_from};
use format::layout::{self, BLOCK, LANES, LINE, ORPHAN_TABLE, PERMISSION_TABLE, ROOT, SUPERBLOCK_COPY, VOLATILE};
use format::permission::{VALID, start};
use format::{Root, bucket};
use heap::format;
use heap::vec::Vec;

const FLAGS: u64 = ROOT + offset_of!(Root, flags) as u64;
const GROWN: u64 = ROOT + offset_of!(Root, grown) as u64;
const ROOT_INODE: u64 = ROOT + offset_of!(Root, root_inode) as u64;
const UNUSED: u64 = ROOT + offset_of!(Root, cache) as u64;
const GENERATION: u64 = ROOT + offset_of!(Root, generation) as u64;

impl Plan {
    /// Applies the records in the lanes, as attaching would; how many there were.
    pub(super) fn records(&mut self, fs: &Fs) -> u32 {
        let mut pending = 0;
        for number in 0..LANES {
            let lane = fs.lane(number);
            let word = lane.state.load(Relaxed);
            if !State::counts(word) {
                continue;
            }
            pending += 1;
            if let Some(record) = apply::valid_record(fs, lane) {
                for op in &lane.ops[..usize::from(record.ops)] {
                    self.touched(Op::unpack(op.place.load(Relaxed), op.value.load(Relaxed)));
                }
                if apply::apply::<true>(fs, lane, usize::from(record.ops)).is_err() {
                    self.act(IssueKind::Record, lane_at(number), true, "a record that cannot be applied is forgotten".into());
                }
            }
            self.set(fs, lane_at(number), State::ended(word));
        }
        pending
    }

    /// Notes the lines that an operation of a record changes.
    fn touched(&mut self, op: Option<Op>) {
        let (at, bytes) = match op {
            Some(
                Op::Set { at, .. }
                | Op::Max { at, .. }
                | Op::SetBits { at, .. }
                | Op::ClearBits { at, .. }
                | Op::Empty { at, .. },
            ) => (at, 8),
            Some(Op::Touch { at, .. }) => (at, LINE),
            Some(Op::SetRun { at, count } | Op::ClearRun { at, count }) => (at, count.min(1 << 24) * 8),
            Some(Op::Counts { at, count, .. }) => (at, u64::from(count.clamp(1, 512)) * 8),
            Some(Op::Copy { to, block, len }) => {
                let last = (copied_from(block, to) + u64::from(len)) / BLOCK;
                self.changes.aside.extend(u64::from(block)..=last);
                (to, u64::from(len).max(1))
            }
            // On the first line of its lane, which is written anyhow.
            Some(Op::Counters { .. }) | None => return,
        };
        for line in at / LINE..=(at.saturating_add(bytes) - 1) / LINE {
            self.changes.lines.insert(line * LINE);
        }
    }

    /// What opening has said about how far the image has grown.
    pub(super) fn grown(&mut self, fs: &Fs, before: &mut Report, found: u64) {
        let now = fs.root().grown.load(Relaxed);
        if found != now {
            let detail = format!("the root says {found} blocks, there are {now}");
            before.issues.push(Issue { kind: IssueKind::Root, at: GROWN, detail: detail.clone() });
            self.act(IssueKind::Root, GROWN, false, detail);
            self.changes.lines.insert(ROOT);
        }
    }

    /// Whatever a segment or a mutex of before knows is void.
    pub(super) fn new_epoch(&mut self, fs: &Fs) {
        let next = (fs.root().generation.load(Relaxed) as u32).wrapping_add(1).max(1);
        self.set(fs, GENERATION, u64::from(next));
        for word in 0..2 {
            self.set(fs, VOLATILE + word * 8, 0);
        }
    }
}

impl Fixer<'_> {
    /// Both copies of the superblock are the one that was chosen.
    pub(super) fn superblocks(&mut self) {
        let copy = |fixer: &Self, at: u64| -> Vec<u64> { (0..BLOCK / 8).map(|i| fixer.get(at + i * 8)).collect() };
        let words = size_of::<format::Superblock>() / 8;
        let (first, second) = (copy(self, 0), copy(self, SUPERBLOCK_COPY));
        if first[..words] == second[..words] {
            return;
        }
        let first_is_good = crate::check::superblock_at(self.fs, 0).is_some_and(|copy| copy.validate().is_ok());
        let (good, from, to) = if first_is_good { (first, 0, SUPERBLOCK_COPY) } else { (second, SUPERBLOCK_COPY, 0) };
        self.act(IssueKind::Superblock, to, false, format!("this copy is made again from the one at {from:#x}"));
        for (i, value) in good[..words].iter().enumerate() {
            self.set(to + i as u64 * 8, *value);
        }
    }

    /// Words of the root that stand for themselves.
    pub(super) fn root_words(&mut self) {
        let flags = self.get(FLAGS);
        if flags != 0 {
            self.act(IssueKind::Root, FLAGS, false, format!("flags {flags:#x} are cleared: the image can be written again"));
            self.set(FLAGS, 0);
        }
        for at in (UNUSED..ROOT + LINE).step_by(8) {
            let value = self.get(at);
            if value != 0 {
                self.act(IssueKind::Root, at, false, format!("{value:#x}, which the superblock knows nothing of, becomes 0"));
                self.set(at, 0);
            }
        }
    }

    /// The root directory; made anew where `mkfs` puts it if it is lost.
    pub(super) fn root_directory(&mut self) -> u64 {
        let usual = (self.fs.layout.first_block() + bucket::BUCKETS_MIN * LINE / BLOCK) * BLOCK;
        let said = self.get(ROOT_INODE);
        let is_root =
            |at: u64| self.is_free(at, 1) && self.head(at).kind == Kind::Directory as u8 && self.fs.own_edentry(at) == Ok(0);
        if is_root(said) {
            return said;
        }
        if said != usual {
            self.act(IssueKind::Root, ROOT_INODE, false, format!("the root directory is at {usual:#x}"));
            self.set(ROOT_INODE, usual);
        }
        let head = self.head(usual);
        if head.kind != Kind::Directory as u8 || head.flags & format::inode::COLD != 0 && self.fs.own_edentry(usual) != Ok(0) {
            self.act(IssueKind::Inode, usual, head.kind == 0, "the root directory's inode is made again".into());
            let generation = head.generation.max(1);
            let permission =
                if self.fs.permission(head.permission).is_ok() { head.permission } else { self.permission_for(0, 0, 0o755) };
            self.set(usual + word::HEAD, Head { generation, flags: 0, kind: Kind::Directory as u8, permission }.pack());
            self.set(usual + word::EXTRA, 0);
        }
        usual
    }

    /// Inodes without a name. Directories that still have blocks are left to whoever attaches.
    pub(super) fn orphans(&mut self) {
        for number in 0..layout::ORPHANS {
            let at = ORPHAN_TABLE + number * 8;
            let id = self.get(at);
            if id == 0 {
                continue;
            }
            let offset = node_offset(id);
            let head = self.head(offset);
            // What still has names, or names in it, has lost its own by other damage.
            let names = match head.kind == Kind::Directory as u8 {
                true if head.flags & format::inode::RECOUNT != 0 => 0,
                true => self.get(offset + word::SIZE),
                false => u64::from(format::inode::unpack_links(self.get(offset + word::LINKS)).0),
            };
            let right = self.line_bit(offset).is_some()
                && names == 0
                && head.generation & 0xff_ffff == node_generation(id)
                && Kind::from_dt(head.kind).is_some()
                && self.is_free(offset, 1);
            if right && head.kind != Kind::Directory as u8 {
                // Nobody uses the image, so nobody has it open: what it holds is claimed by nothing.
                self.act(IssueKind::Orphan, at, false, format!("the removed file at {offset:#x} is freed"));
                self.set(offset + word::HEAD, Head { generation: head.generation, flags: 0, kind: 0, permission: 0 }.pack());
                self.set(at, 0);
            } else if right {
                self.meet(offset, 0);
                self.walk(offset);
            } else {
                self.act(IssueKind::Orphan, at, false, format!("the entry for {offset:#x}, which is no orphan, is emptied"));
                self.set(at, 0);
            }
        }
    }

    // ---- permissions ----

    fn permission_words(&self, index: u16) -> (u64, u64) {
        let at = PERMISSION_TABLE + u64::from(index) * 16;
        (self.get(at), self.get(at + 8))
    }

    fn set_permission(&mut self, index: u16, owner: u64, mode: u64) {
        let at = PERMISSION_TABLE + u64::from(index) * 16;
        self.set(at, owner);
        self.set(at + 8, mode);
    }

    /// Whether the search for a triple comes by `index`.
    fn passes(&self, owner: u64, mode: u64, index: u16) -> bool {
        let mut at = start(owner as u32, (owner >> 32) as u32, mode as u16 & 0o7777);
        while at != index {
            if self.permission_words(at).1 & VALID == 0 {
                return false;
            }
            at = at.wrapping_add(1);
        }
        true
    }

    /// Entries are where their search ends. One that is not has a bit too many or
    /// too few, which its place gives away; else it moves to where it belongs.
    pub(super) fn permission_table(&mut self) {
        let mut moved = Vec::new();
        for _ in 0..64 {
            let mut any = false;
            for index in 0..=u16::MAX {
                let (owner, mode) = self.permission_words(index);
                let whole = mode & !(VALID | 0o7777) == 0;
                if mode == 0 || mode & VALID != 0 && whole && self.passes(owner, mode, index) {
                    continue;
                }
                any = true;
                let at = PERMISSION_TABLE + u64::from(index) * 16;
                if let Some((owner, mode)) = self.corrected(owner, mode, index) {
                    self.act(IssueKind::Permission, at, false, format!("entry {index} is corrected by its place"));
                    self.set_permission(index, owner, mode);
                } else {
                    if mode & VALID != 0 {
                        self.act(IssueKind::Permission, at, false, format!("entry {index} moves to where it is looked for"));
                        moved.push((index, owner, mode & 0o7777));
                    }
                    self.set_permission(index, 0, 0);
                }
            }
            if !any {
                break;
            }
        }
        for (index, owner, mode) in moved {
            let new = self.permission_for(owner as u32, (owner >> 32) as u32, mode as u16);
            self.permissions.insert(index, new);
        }
    }

    /// The only entry with one bit changed that belongs at `index`.
    fn corrected(&self, owner: u64, mode: u64, index: u16) -> Option<(u64, u64)> {
        let owners = (0..64).map(|bit| (owner ^ 1 << bit, mode));
        let modes = (0..64).map(|bit| (owner, mode ^ 1 << bit));
        let mut fitting = owners
            .chain(modes)
            .filter(|(owner, mode)| mode & VALID != 0 && mode & !(VALID | 0o7777) == 0 && self.passes(*owner, *mode, index));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    /// The index of a triple, entered if it is not there.
    pub(super) fn permission_for(&mut self, uid: u32, gid: u32, mode: u16) -> u16 {
        let owner = u64::from(gid) << 32 | u64::from(uid);
        let first = start(uid, gid, mode);
        for step in 0..layout::PERMISSIONS {
            let index = first.wrapping_add(step as u16);
            let (there, word) = self.permission_words(index);
            if word & VALID == 0 {
                self.set_permission(index, owner, VALID | u64::from(mode));
                return index;
            }
            if there == owner && word == VALID | u64::from(mode) {
                return index;
            }
        }
        first
    }
}
