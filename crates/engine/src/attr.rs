//! Attributes: read from the cachelet, changed by one record.

use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::names::{SET_GID, SET_UID};
use crate::segment::Snapshot;
use crate::segment::cachelet::{self, Cachelet};
use base::{Attr, Cx, Kind, Node, Result, SetAttr, SetTime, StatFs, W};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::inode::{self, node_offset, word};
use format::layout::{LANES, LINES_PER_BLOCK};
use format::{BLOCK, Cold, lane};
use pm::Errno;

/// `f_type`: "BYPA".
const MAGIC: u64 = 0x4259_5041;
/// Bits of `Cold::flags`.
const HAS_ATIME: u64 = 1;
const HAS_BTIME: u64 = 2;

impl Fs {
    /// Attributes of a node.
    #[inline]
    pub fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        self.with_cached(cx, node, |cachelet| self.attr_of(cx, node, cachelet))
    }

    #[inline(always)]
    pub(crate) fn attr_of(&self, cx: &Cx, node: Node, cachelet: &Cachelet) -> Result<Attr> {
        let snapshot = self.snapshot(cx, cachelet, node.id)?;
        let mut attr = Attr {
            ino: self.ino(node.id),
            kind: snapshot.kind,
            mode: snapshot.mode,
            nlink: snapshot.nlink,
            uid: snapshot.uid,
            gid: snapshot.gid,
            rdev: 0,
            size: snapshot.size,
            blocks: 0,
            atime: snapshot.mtime,
            mtime: snapshot.mtime,
            ctime: snapshot.ctime,
            btime: None,
        };
        if snapshot.kind == Kind::Regular {
            attr.blocks = u64::from(snapshot.blocks) * (BLOCK / 512);
        }
        let special = matches!(snapshot.kind, Kind::CharDevice | Kind::BlockDevice);
        if special || snapshot.flags & (cachelet::COLD | cachelet::RECOUNT) != 0 {
            let asked = self.attr_cold(cx, node, &snapshot, cachelet, &mut attr);
            // It was this node's cold line, sound or not, only if the node is still there.
            if cachelet.node.load(Acquire) != node.id || cachelet.flags.load(Acquire) & cachelet::DEAD != 0 {
                return Err(Errno::ESTALE.into());
            }
            asked?;
        }
        Ok(attr)
    }

    /// What few nodes have.
    #[cold]
    #[inline(never)]
    fn attr_cold(&self, cx: &Cx, node: Node, snapshot: &Snapshot, cachelet: &Cachelet, attr: &mut Attr) -> Result<()> {
        let inode = self.inode(node_offset(node.id))?;
        if matches!(snapshot.kind, Kind::CharDevice | Kind::BlockDevice) {
            attr.rdev = inode.root.load(Acquire);
        }
        if snapshot.flags & cachelet::RECOUNT != 0 && self.writable().is_ok() {
            self.recount(cx, node)?;
            let again = self.snapshot(cx, cachelet, node.id)?;
            (attr.size, attr.nlink) = (again.size, again.nlink);
        }
        if inode.head().flags & inode::COLD != 0 {
            let cold: &Cold = self.at(inode.extra.load(Acquire), "cold line")?;
            let flags = cold.flags.load(Acquire);
            let (atime, btime) = (cold.atime.load(Relaxed) as i64, cold.btime.load(Relaxed) as i64);
            if flags & HAS_ATIME != 0 {
                attr.atime = atime;
            }
            attr.btime = (flags & HAS_BTIME != 0).then_some(btime);
            if self.is_cache() && snapshot.kind != Kind::Directory && cold.lower.load(Acquire) != 0 {
                let shown = cold.shown.load(Acquire);
                (attr.nlink, attr.blocks) = (shown as u32, shown >> 32);
            }
        }
        Ok(())
    }

    /// Whether the caller may do `want`: `EACCES` if not, `EROFS` for a write that nobody may do.
    #[inline]
    pub fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        let seen = self.see(cx, node)?;
        let kind = Kind::from_dt((seen.word >> 16) as u8).ok_or(Errno::ESTALE)?;
        if want & W != 0 && matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            self.writable()?;
            self.may_change(node)?;
        }
        if cx.cred.may(kind, seen.mode(), seen.uid, seen.gid, want) { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    /// Changes attributes. See `base::SetAttr`.
    pub fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.may_change(node)?;
        if let Some(size) = change.size {
            self.set_size(cx, node, size, change)?;
        }
        if change.mode.is_none()
            && change.uid.is_none()
            && change.gid.is_none()
            && change.atime.is_none()
            && change.mtime.is_none()
            && !change.drops_rights
        {
            return Ok(());
        }
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let now = self.snapshot(cx, cachelet, node.id)?;
        let mut new = decide(cx, &now, change)?;
        if loses_rights(&now, change) && self.drop_capabilities(&mut tx, cachelet, node_offset(node.id))? {
            new.ctime = pm::clock::now();
        } else if is_for_rights_alone(change) && new.mode == now.mode {
            return Ok(());
        }
        self.record_attr(&mut tx, cachelet, node.id, &now, &new)
    }

    /// Truncates or extends a regular file.
    fn set_size(&self, cx: &Cx, node: Node, size: u64, change: &SetAttr) -> Result<()> {
        let seen = self.see(cx, node)?;
        if seen.is(Kind::Directory) {
            return Err(Errno::EISDIR.into());
        }
        if !seen.is(Kind::Regular) {
            return Err(Errno::EINVAL.into());
        }
        if !change.size_checked && !change.checked {
            self.access(cx, node, W)?;
        }
        self.truncate(cx, node, size, change.size_checked)
    }

    /// Records and applies what [`decide`] has decided.
    fn record_attr<'a>(&'a self, tx: &mut Tx<'a>, cachelet: &Cachelet, id: u64, now: &Snapshot, new: &Decided) -> Result<()> {
        let offset = node_offset(id);
        let inode = self.inode(offset)?;
        let owner_changes = (new.uid, new.gid, new.mode) != (now.uid, now.gid, now.mode);
        if owner_changes {
            let index = self.permission_index(tx, new.uid, new.gid, new.mode)?;
            let before = u64::from(inode.head().permission);
            let after = u64::from(index);
            // Bit by bit: another may flag the directory for a recount at any time.
            tx.clear_bits(offset + word::HEAD, before & !after)?;
            tx.set_bits(offset + word::HEAD, after & !before)?;
        }
        let mut cold = false;
        if let Some(atime) = new.atime {
            cold = self.record_atime(tx, offset, atime, new.mtime.unwrap_or(now.mtime))?;
        }
        if let Some(mtime) = new.mtime {
            tx.set(offset + word::MTIME, mtime as u64)?;
        }
        tx.set(offset + word::CTIME, new.ctime as u64)?;
        tx.commit()?;

        if cold {
            cachelet.flags.fetch_or(cachelet::COLD, SeqCst);
        }
        let change = self.change(cachelet);
        if owner_changes {
            change.uid.store(new.uid, Relaxed);
            change.gid.store(new.gid, Relaxed);
            change.mode.store(change.mode.load(Relaxed) & 0xffff_0000 | u32::from(new.mode), Relaxed);
        }
        if now.kind != Kind::Directory {
            if let Some(mtime) = new.mtime {
                change.mtime.store(mtime as u64, Relaxed);
            }
            change.ctime.store(new.ctime as u64, Relaxed);
        }
        Ok(())
    }

    /// Records an access time; true if the inode has a cold line then. While it
    /// has none its atime is its mtime, and an equal one needs none.
    fn record_atime(&self, tx: &mut Tx, offset: u64, atime: i64, mtime: i64) -> Result<bool> {
        let inode = self.inode(offset)?;
        if inode.head().flags & inode::COLD == 0 && atime == mtime {
            return Ok(false);
        }
        let line = self.cold_line(tx, offset)?;
        let cold: &Cold = self.at(line, "cold line")?;
        if inode.head().flags & inode::COLD == 0 {
            // Written aside; the record makes it the inode's.
            self.image.store(&cold.atime, atime as u64);
            self.image.store(&cold.flags, HAS_ATIME);
            tx.object(line, 1)?;
        } else {
            tx.set(line + offset_of!(Cold, atime) as u64, atime as u64)?;
            tx.set_bits(line + offset_of!(Cold, flags) as u64, HAS_ATIME)?;
        }
        Ok(true)
    }

    /// File-system figures. Files can be made as long as there is space: an
    /// inode and an edentry take some four lines.
    pub fn statfs(&self) -> Result<StatFs> {
        let (mut lines, mut files) = (0u64, 0u64);
        for number in 0..LANES {
            let lane = self.lane(number);
            lines = lines.wrapping_add(lane.lines.load(Relaxed));
            files = files.wrapping_add(lane.files.load(Relaxed));
        }
        if lines as i64 <= -(1 << 40) {
            return Err(corrupt("counters of the lanes", lines));
        }
        // What is kept back is nobody's to fill.
        let blocks = (self.layout.block_count() - self.layout.first_block()).saturating_sub(self.spare_max());
        // The first index segment and the root inode are mkfs's.
        let used = (lines as i64).max(0) as u64 / LINES_PER_BLOCK + 17;
        let blocks_free = blocks.saturating_sub(used);
        let files_free = blocks_free * LINES_PER_BLOCK / 4;
        Ok(StatFs {
            magic: MAGIC,
            block_bytes: BLOCK,
            blocks,
            blocks_free,
            files: (files as i64).max(0) as u64 + 1 + files_free,
            files_free,
            id: self.device,
            name_max: format::edentry::NAME_MAX as u64,
            read_only: self.writable().is_err(),
        })
    }
}

/// New attributes, after all rules.
struct Decided {
    mode: u16,
    uid: u32,
    gid: u32,
    atime: Option<i64>,
    mtime: Option<i64>,
    ctime: i64,
}

/// The kernel's `setattr_prepare`, `chown_common`, `chmod_common` and `vfs_utimes`.
fn decide(cx: &Cx, now: &Snapshot, change: &SetAttr) -> Result<Decided> {
    let cred = &cx.cred;
    let may_all = change.checked || cred.is_privileged_over(now.uid, now.gid);
    let owner = may_all || cred.uid == now.uid;
    let (uid, gid) = (change.uid.unwrap_or(now.uid), change.gid.unwrap_or(now.gid));
    if change.uid.is_some() && !may_all && !(owner && uid == now.uid) {
        return Err(Errno::EPERM.into());
    }
    if change.gid.is_some() && !may_all && !(owner && (cred.in_group(gid) || gid == now.gid)) {
        return Err(Errno::EPERM.into());
    }
    if change.mode.is_some() && !owner {
        return Err(Errno::EPERM.into());
    }
    let times = change.atime.is_some() || change.mtime.is_some();
    let touch = change.atime == Some(SetTime::Now) && change.mtime == Some(SetTime::Now);
    if times && !owner {
        if !touch {
            return Err(Errno::EPERM.into());
        }
        if !cred.may(now.kind, now.mode, now.uid, now.gid, W) {
            return Err(Errno::EACCES.into());
        }
    }
    let mut mode = change.mode.unwrap_or(now.mode) & 0o7777;
    if loses_rights(now, change) && change.mode.is_none() {
        mode = without_set_id(cx, mode, now);
        if mode != now.mode && !owner {
            return Err(Errno::EPERM.into());
        }
    }
    let in_group = || cred.in_group(gid) || cred.is_privileged_over(now.uid, now.gid);
    if change.mode.is_some() && mode & SET_GID != 0 && !in_group() {
        mode &= !SET_GID;
    }
    let ctime = pm::clock::now();
    let time = |set: SetTime| match set {
        SetTime::Now => ctime,
        SetTime::At(time) => time,
    };
    Ok(Decided { mode, uid, gid, atime: change.atime.map(time), mtime: change.mtime.map(time), ctime })
}

/// Whether a change takes set-id bits and capabilities away.
fn loses_rights(now: &Snapshot, change: &SetAttr) -> bool {
    (change.uid.is_some() || change.gid.is_some() || change.drops_rights) && now.kind != Kind::Directory
}

/// Whether that is all that is asked for.
fn is_for_rights_alone(change: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, atime, mtime, .. } = change;
    mode.is_none() && uid.is_none() && gid.is_none() && atime.is_none() && mtime.is_none()
}

/// A mode without what a change of owner takes away: set-user-id, and
/// set-group-id where it means what it says or the caller is not in the group.
fn without_set_id(cx: &Cx, mode: u16, now: &Snapshot) -> u16 {
    let in_group = || cx.cred.in_group(now.gid) || cx.cred.is_privileged_over(now.uid, now.gid);
    let mut mode = mode & !SET_UID;
    if mode & SET_GID != 0 && (mode & 0o10 != 0 || !in_group()) {
        mode &= !SET_GID;
    }
    mode
}
