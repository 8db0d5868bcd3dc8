//! One file, directory, … of the model, its attributes and rights.

use super::{data::File, posix};
use crate::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A node.
pub(super) struct Inode {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub nlink: u32,
    /// Descriptions that hold it.
    pub opens: u32,
    /// May get a first name (`O_TMPFILE` without `O_EXCL`).
    pub linkable: bool,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub body: Body,
}

/// What is in it.
pub(super) enum Body {
    Directory(Directory),
    File(File),
    Symlink(Vec<u8>),
    Special,
}

/// Entries by name and by cookie.
pub(super) struct Directory {
    pub entries: BTreeMap<Vec<u8>, Entry>,
    pub order: BTreeMap<u64, Vec<u8>>,
    pub next_cookie: u64,
    pub parent: u64,
}

pub(super) struct Entry {
    pub node: u64,
    pub cookie: u64,
}

impl Body {
    pub fn directory(parent: u64) -> Self {
        Body::Directory(Directory { entries: BTreeMap::new(), order: BTreeMap::new(), next_cookie: 2, parent })
    }
}

impl Directory {
    pub fn insert(&mut self, name: &[u8], node: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.order.insert(cookie, name.to_vec());
        if let Some(old) = self.entries.insert(name.to_vec(), Entry { node, cookie }) {
            self.order.remove(&old.cookie);
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        if let Some(old) = self.entries.remove(name) {
            self.order.remove(&old.cookie);
        }
    }
}

/// The node called `id`.
pub(super) fn node(id: u64) -> Node {
    Node { id, hint: 0 }
}

/// The time, in nanoseconds since the epoch.
pub(super) fn now() -> i64 {
    let mut time = [0i64; 2];
    // SAFETY: the call fills two words (seconds, nanoseconds); 0 is CLOCK_REALTIME.
    let _ = unsafe { pm::call!(pm::sys::abi::__NR_clock_gettime, 0, time.as_mut_ptr()) };
    time[0] * 1_000_000_000 + time[1]
}

impl Inode {
    pub fn new(kind: Kind, mode: u16, uid: u32, gid: u32, rdev: u64, body: Body) -> Self {
        let time = now();
        Inode {
            kind,
            mode,
            uid,
            gid,
            rdev,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            opens: 0,
            linkable: false,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            xattrs: BTreeMap::new(),
            body,
        }
    }

    pub fn dir(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(dir) => Ok(dir),
            _ => posix(Errno::ENOTDIR),
        }
    }

    pub fn dir_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(dir) => Ok(dir),
            _ => posix(Errno::ENOTDIR),
        }
    }

    pub fn may(&self, cx: &Cx, want: u16) -> Result<()> {
        if cx.cred.may(self.kind, self.mode, self.uid, self.gid, want) { Ok(()) } else { posix(Errno::EACCES) }
    }

    pub fn owned_by(&self, cx: &Cx) -> bool {
        cx.cred.privileged || cx.cred.uid == self.uid
    }

    pub fn attr(&self, id: u64) -> Attr {
        let (size, blocks) = match &self.body {
            Body::Directory(dir) => (40 + 20 * dir.entries.len() as u64, 0),
            Body::File(file) => (file.size, file.pages.len() as u64 * 8),
            // Short ones live in the inode, as on tmpfs.
            Body::Symlink(target) => (target.len() as u64, if target.len() < 128 { 0 } else { 8 }),
            Body::Special => (0, 0),
        };
        Attr {
            ino: id,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: Some(self.btime),
        }
    }

    /// Contents changed: stamps times, and takes capabilities away, and set-id bits, as a write by an
    /// unprivileged caller does.
    pub fn modified(&mut self, cx: &Cx) {
        self.mtime = now();
        self.ctime = self.mtime;
        self.drop_capabilities();
        if !cx.cred.privileged {
            self.drop_set_id(cx);
        }
    }

    fn drop_capabilities(&mut self) {
        self.xattrs.remove(&b"security.capability"[..]);
    }

    fn drop_set_id(&mut self, cx: &Cx) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 || !cx.cred.privileged && !cx.cred.in_group(self.gid) {
            self.mode &= !0o2000;
        }
    }

    pub fn set_attr(&mut self, cx: &Cx, change: &SetAttr) -> Result<()> {
        self.check_change(cx, change)?;
        if let Some(size) = change.size {
            // Cutting off the pages at the end changes the times, were there any.
            let file = self.file_mut()?;
            let changes = size != file.size || change.size_checked || !file.pages.is_empty();
            file.resize(size);
            if changes {
                self.modified(cx);
            } else {
                self.drop_capabilities();
                if !cx.cred.privileged {
                    self.drop_set_id(cx);
                }
            }
        }
        let is_for_rights_alone = *change == SetAttr { drops_rights: true, ..SetAttr::default() };
        if change.uid.is_some() || change.gid.is_some() || change.drops_rights {
            if self.kind != Kind::Directory {
                let before = (self.mode, self.xattrs.len());
                let owned = self.owned_by(cx);
                self.drop_set_id(cx);
                if self.mode != before.0 && !owned {
                    self.mode = before.0;
                    return posix(Errno::EPERM);
                }
                self.drop_capabilities();
                if is_for_rights_alone && before == (self.mode, self.xattrs.len()) {
                    return Ok(());
                }
            } else if is_for_rights_alone {
                return Ok(());
            }
            self.uid = change.uid.unwrap_or(self.uid);
            self.gid = change.gid.unwrap_or(self.gid);
        }
        if let Some(mode) = change.mode {
            self.mode = mode & 0o7777;
            if !cx.cred.privileged && !cx.cred.in_group(self.gid) {
                self.mode &= !0o2000;
            }
        }
        let time = now();
        let stamp = |set| match set {
            SetTime::Now => time,
            SetTime::At(at) => at,
        };
        self.atime = change.atime.map_or(self.atime, stamp);
        self.mtime = change.mtime.map_or(self.mtime, stamp);
        if change.size.is_none() {
            self.ctime = time;
        }
        Ok(())
    }

    fn check_change(&self, cx: &Cx, change: &SetAttr) -> Result<()> {
        if change.size.is_some() {
            match self.kind {
                Kind::Directory => return posix(Errno::EISDIR),
                Kind::Regular => {}
                _ => return posix(Errno::EINVAL),
            }
            if !change.size_checked {
                self.may(cx, W)?;
            }
        }
        if let Some(uid) = change.uid
            && !(cx.cred.privileged || cx.cred.uid == self.uid && uid == self.uid)
        {
            return posix(Errno::EPERM);
        }
        if let Some(gid) = change.gid
            && !(cx.cred.privileged || cx.cred.uid == self.uid && (cx.cred.in_group(gid) || gid == self.gid))
        {
            return posix(Errno::EPERM);
        }
        if change.mode.is_some() && !self.owned_by(cx) {
            return posix(Errno::EPERM);
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let touch = change.atime == Some(SetTime::Now) && change.mtime == Some(SetTime::Now);
            if !self.owned_by(cx) {
                if !touch {
                    return posix(Errno::EPERM);
                }
                self.may(cx, W)?;
            }
        }
        Ok(())
    }
}
