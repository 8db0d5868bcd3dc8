//! Names: create, link, remove, rename. Checks stand in the kernel's order.

use super::data::File;
use super::node::{Body, Inode, node};
use super::{State, posix};
use crate::*;

impl State {
    /// What `name` in `dir` is; `None` where there is no such name.
    pub fn child(&self, dir: Node, name: &[u8]) -> Result<Option<u64>> {
        if self.get(dir)?.nlink == 0 {
            return posix(Errno::ENOENT);
        }
        if name.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        Ok(self.get(dir)?.dir()?.entries.get(name).map(|e| e.node))
    }

    /// `child`, in a directory that must still exist.
    fn child_for_change(&self, dir: Node, name: &[u8]) -> Result<Option<u64>> {
        self.child(dir, name)
    }

    fn touch(&mut self, dir: Node) -> Result<()> {
        let inode = self.get_mut(dir)?;
        inode.mtime = super::node::now();
        inode.ctime = inode.mtime;
        Ok(())
    }

    fn stamp(&mut self, id: u64) {
        self.nodes.entry(id).and_modify(|n| n.ctime = super::node::now());
    }

    /// A node as `dir` would own it, not yet named.
    fn make(&mut self, cx: &Cx, dir: Node, new: &NewNode) -> Result<u64> {
        let parent = self.get(dir)?;
        let set_gid = parent.mode & 0o2000 != 0;
        let gid = if set_gid { parent.gid } else { cx.cred.gid };
        let mut mode = new.mode & 0o7777;
        mode = if new.kind == Kind::Symlink { 0o777 } else { mode & !cx.umask };
        if set_gid && new.kind == Kind::Directory {
            mode |= 0o2000;
        } else if set_gid && new.mode & 0o2010 == 0o2010 && !cx.cred.privileged && !cx.cred.in_group(gid) {
            mode &= !0o2000;
        }
        let body = match new.kind {
            Kind::Directory => Body::directory(dir.id),
            Kind::Regular => Body::File(File::new()),
            Kind::Symlink => Body::Symlink(new.target.to_vec()),
            _ => Body::Special,
        };
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Inode::new(new.kind, mode, cx.cred.uid, gid, new.rdev, body));
        Ok(id)
    }

    pub fn create(&mut self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        if self.child_for_change(dir, name)?.is_some() {
            return posix(Errno::EEXIST);
        }
        self.get(dir)?.may(cx, W | X)?;
        let id = self.make(cx, dir, new)?;
        let parent = self.get_mut(dir)?;
        parent.dir_mut()?.insert(name, id);
        if new.kind == Kind::Directory {
            parent.nlink += 1;
        }
        self.touch(dir)?;
        Ok(node(id))
    }

    /// A regular file without a name.
    pub fn make_unnamed(&mut self, cx: &Cx, dir: Node, mode: u16, linkable: bool) -> Result<u64> {
        self.get(dir)?.dir()?;
        self.get(dir)?.may(cx, W | X)?;
        let id = self.make(cx, dir, &NewNode { kind: Kind::Regular, mode, rdev: 0, target: b"" })?;
        self.nodes.entry(id).and_modify(|n| {
            n.nlink = 0;
            n.linkable = linkable;
        });
        Ok(id)
    }

    pub fn link(&mut self, cx: &Cx, source: Node, dir: Node, name: &[u8]) -> Result<()> {
        if self.child_for_change(dir, name)?.is_some() {
            return posix(Errno::EEXIST);
        }
        self.get(dir)?.may(cx, W | X)?;
        let inode = self.get(source)?;
        if inode.kind == Kind::Directory {
            return posix(Errno::EPERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return posix(Errno::ENOENT);
        }
        if inode.nlink == u32::MAX {
            return posix(Errno::EMLINK);
        }
        let inode = self.get_mut(source)?;
        inode.nlink += 1;
        inode.linkable = false;
        self.stamp(source.id);
        self.get_mut(dir)?.dir_mut()?.insert(name, source.id);
        self.touch(dir)
    }

    /// Whether `victim` may be taken out of `dir`, seen as a directory or not.
    fn may_delete(&self, cx: &Cx, dir: Node, victim: u64, as_dir: bool) -> Result<()> {
        let parent = self.get(dir)?;
        parent.may(cx, W | X)?;
        let inode = self.get(node(victim))?;
        if parent.mode & 0o1000 != 0 && !inode.owned_by(cx) && cx.cred.uid != parent.uid {
            return posix(Errno::EPERM);
        }
        match (inode.kind == Kind::Directory, as_dir) {
            (false, true) => posix(Errno::ENOTDIR),
            (true, false) => posix(Errno::EISDIR),
            _ => Ok(()),
        }
    }

    fn is_empty(&self, id: u64) -> Result<bool> {
        Ok(self.get(node(id))?.dir()?.entries.is_empty())
    }

    /// One name less for `id`, formerly in `dir`.
    fn drop_name(&mut self, dir: Node, id: u64) -> Result<()> {
        let inode = self.get_mut(node(id))?;
        if inode.kind == Kind::Directory {
            inode.nlink = 0;
            self.get_mut(dir)?.nlink -= 1;
        } else {
            inode.nlink -= 1;
        }
        self.stamp(id);
        self.release(id);
        Ok(())
    }

    pub fn remove(&mut self, cx: &Cx, dir: Node, name: &[u8], as_dir: bool) -> Result<()> {
        let Some(victim) = self.child_for_change(dir, name)? else { return posix(Errno::ENOENT) };
        self.may_delete(cx, dir, victim, as_dir)?;
        if as_dir && !self.is_empty(victim)? {
            return posix(Errno::ENOTEMPTY);
        }
        self.get_mut(dir)?.dir_mut()?.remove(name);
        self.touch(dir)?;
        self.drop_name(dir, victim)
    }

    /// Whether directory `above` is `below` or one of its ancestors.
    fn is_ancestor(&self, above: u64, below: Node) -> Result<bool> {
        let mut at = below.id;
        loop {
            if at == above {
                return Ok(true);
            }
            let parent = self.get(node(at))?.dir()?.parent;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }

    pub fn rename(&mut self, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        let Some(source) = self.child_for_change(from.0, from.1)? else { return posix(Errno::ENOENT) };
        let target = self.child_for_change(to.0, to.1)?;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return posix(Errno::EEXIST),
            (RenameMode::Exchange, None) => return posix(Errno::ENOENT),
            _ => {}
        }
        let exchange = mode == RenameMode::Exchange;
        let source_dir = self.get(node(source))?.kind == Kind::Directory;
        let target_dir = target.map_or(Ok(false), |t| self.get(node(t)).map(|n| n.kind == Kind::Directory))?;
        if source_dir && self.is_ancestor(source, to.0)? {
            return posix(Errno::EINVAL);
        }
        if let Some(target) = target
            && target_dir
            && self.is_ancestor(target, from.0)?
        {
            return posix(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if target == Some(source) {
            return Ok(());
        }
        self.may_delete(cx, from.0, source, source_dir)?;
        match target {
            None => self.get(to.0)?.may(cx, W | X)?,
            Some(target) => self.may_delete(cx, to.0, target, if exchange { target_dir } else { source_dir })?,
        }
        if from.0 != to.0 {
            if source_dir {
                self.get(node(source))?.may(cx, W)?;
            }
            if exchange && target_dir {
                self.get(node(target.unwrap_or(source)))?.may(cx, W)?;
            }
        }
        if let Some(target) = target
            && !exchange
            && target_dir
            && !self.is_empty(target)?
        {
            return posix(Errno::ENOTEMPTY);
        }
        self.get_mut(from.0)?.dir_mut()?.remove(from.1);
        if let (Some(target), false) = (target, exchange) {
            self.get_mut(to.0)?.dir_mut()?.remove(to.1);
            self.drop_name(to.0, target)?;
        }
        self.place(source, from.0, to)?;
        if let (Some(target), true) = (target, exchange) {
            self.place(target, to.0, from)?;
            self.stamp(target);
        }
        self.stamp(source);
        self.touch(from.0)?;
        self.touch(to.0)
    }

    /// Names `id`, formerly in `from`, as `to`.
    fn place(&mut self, id: u64, from: Node, to: (Node, &[u8])) -> Result<()> {
        self.get_mut(to.0)?.dir_mut()?.insert(to.1, id);
        let inode = self.get_mut(node(id))?;
        if inode.kind == Kind::Directory && from != to.0 {
            inode.dir_mut()?.parent = to.0.id;
            self.get_mut(from)?.nlink -= 1;
            self.get_mut(to.0)?.nlink += 1;
        }
        Ok(())
    }
}
