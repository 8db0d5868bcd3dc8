//! Names are made, moved and removed.

use super::Call;
use super::abi::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use super::message::{Body, Reply, Result, err};
use super::notify::forget_node;
use base::{Kind, NewNode, RenameMode};
use pm::Errno;
use pm::sys::abi::{O_DIRECTORY, O_PATH, RENAME_EXCHANGE, RENAME_NOREPLACE};

impl Call<'_> {
    fn make(&self, name: &[u8], new: &NewNode, reply: &mut Reply) -> Result<()> {
        let entry_s = self.keep_names(self.node());
        let node = self.backend().create(&self.cx, self.node(), name, new)?;
        reply.put(&self.entry(node, entry_s)?);
        Ok(())
    }

    pub(super) fn mknod(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: MknodIn = body.take()?;
        let kind = match (asked.mode >> 12) as u8 & 15 {
            0 => Kind::Regular,
            dt => Kind::from_dt(dt).filter(|kind| !matches!(kind, Kind::Directory | Kind::Symlink)).ok_or(Errno::EINVAL)?,
        };
        let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { u64::from(asked.rdev) } else { 0 };
        self.make(body.text()?, &NewNode { kind, mode: asked.mode as u16 & 0o7777, rdev, target: b"" }, reply)
    }

    pub(super) fn mkdir(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: MkdirIn = body.take()?;
        let mode = asked.mode as u16 & 0o7777;
        self.make(body.text()?, &NewNode { kind: Kind::Directory, mode, rdev: 0, target: b"" }, reply)
    }

    pub(super) fn symlink(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let (name, target) = (body.text()?, body.text()?);
        self.make(name, &NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target }, reply)
    }

    pub(super) fn link(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: LinkIn = body.take()?;
        let node = self.fuse.node(asked.node);
        let entry_s = self.keep_names(self.node());
        self.backend().link(&self.cx, node, self.node(), body.text()?)?;
        reply.put(&self.entry(node, entry_s)?);
        Ok(())
    }

    pub(super) fn unlink(&self, mut body: Body) -> Result<()> {
        self.backend().unlink(&self.cx, self.node(), body.text()?)
    }

    /// A removed directory may be somebody's working directory, of which the kernel tells nobody: it is held until the
    /// kernel has forgotten it.
    pub(super) fn rmdir(&self, mut body: Body) -> Result<()> {
        let name = body.text()?;
        let held = self.backend().lookup(&self.cx, self.node(), name).ok().and_then(|node| {
            let open = |number| self.backend().open(&self.cx, node, O_PATH | O_DIRECTORY, number);
            Some((self.fuse.number(node), self.fuse.handles.open(open).ok()?))
        });
        let removed = self.backend().rmdir(&self.cx, self.node(), name);
        let Some((number, handle)) = held else { return removed };
        if removed.is_ok() && self.fuse.nlookup.hold(number, handle) {
            return removed;
        }
        self.let_go(handle);
        removed
    }

    /// Closes a handle of our own.
    pub(super) fn let_go(&self, handle: u64) {
        let _ = self.fuse.handles.close(handle, |number| self.backend().close(&self.cx, number));
    }

    pub(super) fn rename(&self, mut body: Body) -> Result<()> {
        let asked: RenameIn = body.take()?;
        self.move_name(body, asked.to, RenameMode::Replace)
    }

    pub(super) fn rename2(&self, mut body: Body) -> Result<()> {
        let asked: Rename2In = body.take()?;
        let mode = match asked.flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return err(Errno::EINVAL),
        };
        self.move_name(body, asked.to, mode)
    }

    fn move_name(&self, mut body: Body, to: u64, mode: RenameMode) -> Result<()> {
        let (from, name) = (body.text()?, body.text()?);
        let target = self.fuse.node(to);
        self.backend().rename(&self.cx, self.node(), from, target, name, mode)?;
        // A directory's listing names its parent. The kernel lets nobody list it meanwhile.
        for (dir, name) in [(target, name), (self.node(), from)].into_iter().filter(|_| to != self.header.node) {
            let moved = self.backend().lookup(&self.cx, dir, name).map(|node| self.fuse.number(node));
            if let Some(moved) = moved.ok().filter(|moved| self.fuse.listings.has(*moved)) {
                (self.fuse.locks.later)(&forget_node(moved));
            }
        }
        Ok(())
    }
}
