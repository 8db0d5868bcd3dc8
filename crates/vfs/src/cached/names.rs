//! What the kernel sees to before it asks a file system to change names.
//!
//! File systems behind the protocol of FUSE rely on it: libfuse waits for itself
//! for ever when a directory is to come to lie in itself.

use super::{Cached, LowerFs, posix};
use crate::{Attr, Backend, Cx, Errno, Error, Kind, Node, RenameMode, Result};
use core::sync::atomic::Ordering::Relaxed;

impl<S: LowerFs> Cached<S> {
    /// The attributes of a directory that one of us has removed, as they were then: the lower file system may have no name
    /// left to ask it by, and who stands in it goes on.
    pub(super) fn removed_attr(&self, node: Node) -> Result<Option<Attr>> {
        let record = self.session.get(node)?;
        if record.removed.load(Relaxed) == 0 || record.kind() != Kind::Directory {
            return Ok(None);
        }
        Ok(Some(Attr { nlink: 0, ..self.session.last_attr(node)? }))
    }

    /// The node called `name`, if there is one.
    fn child(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Option<Node>> {
        match self.lookup(cx, dir, name) {
            Ok(node) => Ok(Some(node)),
            Err(Error::Posix(Errno::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_directory(&self, node: Node) -> Result<bool> {
        Ok(self.session.get(node)?.kind() == Kind::Directory)
    }

    /// `EEXIST` if the name is taken.
    pub(super) fn must_be_free(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        if !self.lower.checks_names() && self.child(cx, dir, name)?.is_some() {
            return posix(Errno::EEXIST);
        }
        Ok(())
    }

    /// `ENOENT`, `EISDIR`, `ENOTDIR` for a name that can't be removed so.
    pub(super) fn must_be_there(&self, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        if self.lower.checks_names() {
            return Ok(());
        }
        let node = self.child(cx, dir, name)?.ok_or(Error::Posix(Errno::ENOENT))?;
        let errno = match (directory, self.is_directory(node)?) {
            (true, false) => Errno::ENOTDIR,
            (false, true) => Errno::EISDIR,
            _ => return Ok(()),
        };
        self.lower.may_remove(&self.session, cx, dir, name)?;
        posix(errno)
    }

    /// Whether `node` is `of` or lies above it.
    fn is_above(&self, node: Node, of: Node) -> Result<bool> {
        let mut at = of;
        // No deeper than there are nodes.
        for _ in 0..session::NODES {
            if at == node {
                return Ok(true);
            }
            if at.id as u32 == 0 {
                return Ok(false);
            }
            at = self.session.parent(at)?;
        }
        super::posix(Errno::ELOOP)
    }

    /// The checks of a rename. False: there is nothing to do.
    pub(super) fn may_rename(&self, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<bool> {
        if self.lower.checks_names() {
            return Ok(true);
        }
        let source = self.child(cx, from.0, from.1)?.ok_or(Error::Posix(Errno::ENOENT))?;
        let target = self.child(cx, to.0, to.1)?;
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return posix(Errno::EEXIST),
            (None, RenameMode::Exchange) => return posix(Errno::ENOENT),
            _ => {}
        }
        let moves_directory = self.is_directory(source)?;
        if moves_directory && self.is_above(source, to.0)? {
            return posix(Errno::EINVAL);
        }
        let Some(target) = target else { return Ok(true) };
        let replaces_directory = self.is_directory(target)?;
        if replaces_directory && self.is_above(target, from.0)? {
            return posix(if mode == RenameMode::Exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        use core::sync::atomic::Ordering::Relaxed;
        if source == target
            || !moves_directory && self.session.get(source)?.key.load(Relaxed) == self.session.get(target)?.key.load(Relaxed)
        {
            return Ok(false);
        }
        let errno = match (moves_directory, replaces_directory) {
            (true, false) if mode == RenameMode::Replace => Errno::ENOTDIR,
            (false, true) if mode == RenameMode::Replace => Errno::EISDIR,
            _ => return Ok(true),
        };
        self.lower.may_remove(&self.session, cx, from.0, from.1)?;
        self.lower.may_remove(&self.session, cx, to.0, to.1)?;
        posix(errno)
    }
}
