//! Nodes and their attributes.
//!
//! `.bypath/ino/<number>.<generation>` in the root leads to any node but a
//! directory, whatever its names, and also if it has none: so a descriptor of
//! the direct path can become one of the kernel's. It shows in no listing, and only
//! those who may write the image itself may search it, because it leads past
//! the permissions of directories.
//!
//! A node's number is its identity in the image (the root's is 1), so there is
//! no table of them; one that is gone is noticed (`ESTALE`).

use super::abi::{self, AttrOut, EntryOut, FuseAttr, GetAttrIn, ROOT, SetAttrIn, StatfsOut, set};
use super::message::{Body, Reply, Result, err};
use super::notify::{KEEP_MADE_NS, KEEP_NAMES_S, KEEP_S};
use super::rights::{DAC_OVERRIDE, Rights};
use super::{Call, Fuse, group, user};
use base::{Attr, Cred, Kind, Node, PATH_MAX, SetAttr, SetTime, ids};
use pm::{Errno, UserSlice};
use std::sync::atomic::Ordering::Relaxed;

/// `.bypath`, and `ino` in it: numbers of lines that hold the superblock, so never of a node.
const SPECIAL: u64 = 2;
const BY_NUMBER: u64 = 3;

/// Who may search `.bypath`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Keepers {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
}

impl Keepers {
    /// Those who may write a file with these attributes.
    pub fn of_file(uid: u32, gid: u32, mode: u32) -> Keepers {
        Keepers { uid: user(uid), gid: group(gid), mode: (mode as u16 & 0o222) >> 1 }
    }

    fn attr(&self, ino: u64) -> FuseAttr {
        let kind = Kind::Directory;
        fuse_attr(&Attr { ino, kind, mode: self.mode, nlink: 2, uid: self.uid, gid: self.gid, ..Attr::EMPTY })
    }
}

/// What a preferred block of I/O is, bytes.
const BLOCK: u32 = 4096;

impl Fuse {
    /// The node with this number.
    pub(super) fn node(&self, number: u64) -> Node {
        match number {
            ROOT => self.backend.root(),
            // The hint is as good as none.
            id => Node { id, hint: u32::MAX },
        }
    }

    /// The number of a node.
    pub(crate) fn number(&self, node: Node) -> u64 {
        if node == self.backend.root() { ROOT } else { node.id }
    }
}

/// Attributes as the protocol has them.
pub(super) fn fuse_attr(attr: &Attr) -> FuseAttr {
    const NS: i64 = 1_000_000_000;
    let split = |time: i64| (time.div_euclid(NS) as u64, time.rem_euclid(NS) as u32);
    let ((atime, atime_ns), (mtime, mtime_ns), (ctime, ctime_ns)) = (split(attr.atime), split(attr.mtime), split(attr.ctime));
    FuseAttr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        mode: attr.kind.type_bits() | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: ids::shown_user(attr.uid),
        gid: ids::shown_group(attr.gid),
        rdev: attr.rdev as u32,
        block_bytes: BLOCK,
        flags: 0,
    }
}

impl Call<'_> {
    /// Whether the caller may search `.bypath`.
    pub(super) fn is_keeper(&self) -> bool {
        let (Keepers { uid, gid, mode }, rights) = (self.fuse.keepers, Rights::of(self.header));
        let cred = Cred { groups: &rights.groups, privileged: rights.has(DAC_OVERRIDE), ..self.cx.cred };
        cred.may(Kind::Directory, mode, uid, gid, base::X)
    }

    /// How long the kernel may keep the names in a directory, seconds. Before they are looked at.
    pub(super) fn keep_names(&self, dir: Node) -> u64 {
        self.backend().kernel_mount().kernel_keeps(&self.cx, dir, true).map_or(0, |_| KEEP_NAMES_S)
    }

    /// The kernel may from now on keep attributes and pages of a node: changes are
    /// to be told to it. For how long, seconds. Before they are looked at.
    pub(super) fn keep_attr(&self, node: Node) -> u64 {
        self.backend()
            .kernel_mount()
            .kernel_keeps(&self.cx, node, false)
            .map_or(0, |_| if self.is_doubtful(node) { 0 } else { KEEP_S })
    }

    /// Whether pages that the kernel reads a file from may be older than what programs have stored into its mappings.
    fn is_doubtful(&self, node: Node) -> bool {
        self.fuse.contents.is_cached(self.fuse.number(node)) && self.backend().kernel_mount().may_be_stored(&self.cx, node)
    }

    /// What is told about a node that has been made, under a name that may be cached for
    /// `entry_s`. Its attributes are not cached: here the kernel does not compare versions.
    pub(super) fn entry(&self, node: Node, entry_s: u64) -> Result<EntryOut> {
        let attr = fuse_attr(&self.backend().attr(&self.cx, node)?);
        let (node, generation) = (self.fuse.number(node), node.id >> 40);
        self.fuse.nlookup.count(node);
        Ok(EntryOut { node, generation, entry_s, attr, ..EntryOut::default() })
    }

    /// What is told about a file that has just been made and is opened: its attributes may be cached
    /// for a moment, because the kernel looks at them next and would ask. Changes are told, but one told in the
    /// instant in which the kernel takes this answer in may be missed for that long.
    pub(super) fn made(&self, node: Node, entry_s: u64) -> Result<EntryOut> {
        let attr_ns = if self.keep_attr(node) == 0 { 0 } else { KEEP_MADE_NS };
        Ok(EntryOut { attr_ns, ..self.entry(node, entry_s)? })
    }

    /// What is told about a node that has been found. Its attributes may be cached: an invalidation that
    /// overtakes this answer is repeated until it arrives (`nlookup`).
    pub(super) fn found(&self, node: Node, entry_s: u64) -> Result<EntryOut> {
        let attr_s = if self.fuse.keeps_found.load(Relaxed) { self.keep_attr(node) } else { 0 };
        Ok(EntryOut { attr_s, ..self.entry(node, entry_s)? })
    }

    pub(super) fn lookup(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let name = body.text()?;
        let dir = self.node();
        let entry_s = self.keep_names(dir);
        let found = match (self.header.node, name) {
            (SPECIAL, b"ino") => return self.special(BY_NUMBER, reply),
            (SPECIAL, _) => return err(Errno::ENOENT),
            (BY_NUMBER, name) => self.by_number(name),
            (_, b".") => Ok(dir),
            (_, b"..") => self.backend().parent(&self.cx, dir),
            (_, name) => self.backend().lookup(&self.cx, dir, name),
        };
        let node = match found {
            Err(error) if self.header.node == ROOT && name == b".bypath" && error.errno() == Errno::ENOENT => {
                return self.special(SPECIAL, reply);
            }
            // That there is none may be cached, too.
            Err(error) if error.errno() == Errno::ENOENT && entry_s != 0 => {
                reply.put(&EntryOut { entry_s, ..EntryOut::default() });
                return Ok(());
            }
            found => found?,
        };
        // Gone between the two: then there is no such name.
        let gone = |error: base::Error| if error.errno() == Errno::ESTALE { Errno::ENOENT.into() } else { error };
        reply.put(&self.found(node, entry_s).map_err(gone)?);
        Ok(())
    }

    /// `<ino>.<generation>`, both decimal.
    fn by_number(&self, name: &[u8]) -> Result<Node> {
        let text = std::str::from_utf8(name).ok().and_then(|name| name.split_once('.'));
        let numbers = text.and_then(|(ino, generation)| Some((ino.parse().ok()?, generation.parse().ok()?)));
        let node = numbers
            .and_then(|(ino, generation)| self.backend().kernel_mount().by_number(ino, generation))
            .ok_or(Errno::ENOENT)?;
        // A second name for a directory would confuse the kernel's tree.
        match self.backend().attr(&self.cx, node)?.kind {
            Kind::Directory => err(Errno::EISDIR),
            _ => Ok(node),
        }
    }

    fn special(&self, number: u64, reply: &mut Reply) -> Result<()> {
        reply.put(&EntryOut { node: number, attr: self.fuse.keepers.attr(number), ..EntryOut::default() });
        Ok(())
    }

    pub(super) fn get_attr(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        if let SPECIAL | BY_NUMBER = self.header.node {
            reply.put(&AttrOut { attr: self.fuse.keepers.attr(self.header.node), ..AttrOut::default() });
            return Ok(());
        }
        let node = self.node();
        let valid_s = self.keep_attr(node);
        let mut attr = fuse_attr(&self.backend().attr(&self.cx, node)?);
        // Who is about to read drops the pages for it, and shows it to nobody.
        let asked: GetAttrIn = body.take()?;
        if asked.flags & abi::GETATTR_HANDLE != 0 && valid_s == 0 && self.is_doubtful(node) {
            attr.mtime_ns = self.fuse.contents.other_time(attr.mtime_ns);
        }
        reply.put(&AttrOut { valid_s, attr, ..AttrOut::default() });
        Ok(())
    }

    pub(super) fn set_attr(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: SetAttrIn = body.take()?;
        let node = self.node();
        let has = |bit: u32| asked.valid & bit != 0;
        let time = |given: u32, now: u32, s: u64, ns: u32| match (has(given), has(now)) {
            (false, _) => None,
            (_, true) => Some(SetTime::Now),
            _ => Some(SetTime::At((s as i64).saturating_mul(1_000_000_000).saturating_add(i64::from(ns)))),
        };
        let mut change = SetAttr {
            mode: has(set::MODE).then_some(asked.mode as u16 & 0o7777),
            uid: has(set::UID).then_some(user(asked.uid)),
            gid: has(set::GID).then_some(group(asked.gid)),
            size: has(set::SIZE).then_some(asked.size),
            // Of an open file: the kernel wants the times changed in any case.
            size_checked: has(set::SIZE) && (has(set::HANDLE) || has(set::MTIME)),
            atime: time(set::ATIME, set::ATIME_NOW, asked.atime, asked.atime_ns),
            mtime: time(set::MTIME, set::MTIME_NOW, asked.mtime, asked.mtime_ns),
            // By the kernel.
            checked: true,
            drops_rights: false,
        };
        if change.size.is_some() {
            if asked.size > i64::MAX as u64 {
                return err(Errno::EFBIG);
            }
            // Truncating stamps it; by name only if the size is another.
            change.mtime = change.mtime.filter(|time| *time != SetTime::Now);
            let (size, size_checked) = (change.size.take(), change.size_checked);
            let size = SetAttr { size, size_checked, checked: true, ..SetAttr::default() };
            self.change_contents(node, Some(!has(set::KILL_SET_ID)), |cx| self.backend().set_attr(cx, node, &size))?;
        }
        // So the kernel asks when rights are to go and nothing else: `chown` to nobody, `fallocate`.
        change.drops_rights = asked.valid & !(set::HANDLE | set::KILL_SET_ID) == 0;
        if change.uid.is_some() || change.gid.is_some() || change.drops_rights {
            self.change_owner(node, |cx| self.backend().set_attr(cx, node, &change))?;
        } else {
            self.backend().set_attr(&self.cx, node, &change)?;
        }
        // Not cached: see `entry`.
        reply.put(&AttrOut { attr: fuse_attr(&self.backend().attr(&self.cx, node)?), ..AttrOut::default() });
        Ok(())
    }

    pub(super) fn read_link(&self, reply: &mut Reply) -> Result<()> {
        reply.fill(PATH_MAX, |room| self.backend().readlink(&self.cx, self.node(), UserSlice::from_mut(room)))
    }

    pub(super) fn statfs(&self, reply: &mut Reply) -> Result<()> {
        let stat = self.backend().statfs()?;
        reply.put(&StatfsOut {
            blocks: stat.blocks,
            free: stat.blocks_free,
            available: stat.blocks_free,
            files: stat.files,
            files_free: stat.files_free,
            block_bytes: stat.block_bytes as u32,
            name_max: stat.name_max as u32,
            fragment: stat.block_bytes as u32,
            ..StatfsOut::default()
        });
        Ok(())
    }
}
