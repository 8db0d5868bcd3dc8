//! Names of directories on which something is mounted, by us or by the kernel: they are busy.
//!
//! The kernel says so after all that it asks of the caller, so that is asked here before, in its order.

use super::super::err;
use crate::Process;
use crate::path::Spot;
use base::{Cx, Error, Kind, Node, RenameMode, W, X};
use pm::Errno;

impl Process {
    /// Fails for a directory to be removed if it is busy.
    pub(in crate::handle) fn may_remove(&self, cx: &Cx, spot: &Spot) -> base::Result<()> {
        if !self.is_covered(cx, spot) {
            return Ok(());
        }
        let node = spot.mount.backend.lookup(cx, spot.found.parent, spot.found.name)?;
        may_take_out(cx, spot, node)?;
        err(Errno::EBUSY)
    }

    /// Fails if what is renamed, or what it replaces or changes places with, is busy; both are of one mount.
    pub(super) fn may_rename(&self, cx: &Cx, from: &Spot, to: &Spot, mode: RenameMode) -> base::Result<()> {
        if !self.is_covered(cx, from) && !self.is_covered(cx, to) {
            return Ok(());
        }
        let backend = from.mount.backend;
        let kind = |node| backend.attr(cx, node).map(|attr| attr.kind);
        let source = backend.lookup(cx, from.found.parent, from.found.name)?;
        let source_kind = kind(source)?;
        let target = match backend.lookup(cx, to.found.parent, to.found.name) {
            Ok(target) if target == source => return Ok(()),
            Ok(_) if mode == RenameMode::NoReplace => return err(Errno::EEXIST),
            Ok(target) => Some((target, kind(target)?)),
            Err(Error::Posix(Errno::ENOENT)) if mode != RenameMode::Exchange => None,
            Err(error) => return Err(error),
        };
        may_take_out(cx, from, source)?;
        match target {
            None => backend.access(cx, to.found.parent, W | X)?,
            Some((target, _)) => may_take_out(cx, to, target)?,
        }
        if mode != RenameMode::Exchange {
            match (source_kind, target) {
                (Kind::Directory, Some((_, kind))) if kind != Kind::Directory => return err(Errno::ENOTDIR),
                (kind, Some((_, Kind::Directory))) if kind != Kind::Directory => return err(Errno::EISDIR),
                _ => {}
            }
        }
        if from.found.parent != to.found.parent {
            let moved = [Some((source, source_kind)), target.filter(|_| mode == RenameMode::Exchange)];
            for (node, _) in moved.into_iter().flatten().filter(|(_, kind)| *kind == Kind::Directory) {
                // Its `..` is to change.
                backend.access(cx, node, W)?;
            }
        }
        err(Errno::EBUSY)
    }

    /// Whether something is mounted on a directory: by us inside the mount, or by the kernel, below its own.
    fn is_covered(&self, cx: &Cx, spot: &Spot) -> bool {
        if spot.mount.is_served() && self.kernel_has_mounted(cx, spot) {
            return true;
        }
        if !spot.mount.is_covered() {
            return false;
        }
        let on = |node: Node| self.mounts.mounted_on(spot.mount, node.id).is_some();
        let (dir, name) = (spot.found.parent, spot.found.name);
        spot.mount.may_be_covered_at(&self.mounts, dir, name) && spot.mount.backend.lookup(cx, dir, name).is_ok_and(on)
    }
}

/// Fails if the caller may not take `node` out of its directory: `EACCES`, or `EPERM` in a sticky one.
fn may_take_out(cx: &Cx, spot: &Spot, node: Node) -> base::Result<()> {
    let backend = spot.mount.backend;
    backend.access(cx, spot.found.parent, W | X)?;
    let dir = backend.attr(cx, spot.found.parent)?;
    let is_owner = || -> base::Result<bool> {
        let attr = backend.attr(cx, node)?;
        Ok(cx.cred.uid == attr.uid || cx.cred.is_privileged_over(attr.uid, attr.gid))
    };
    let sticks = dir.mode & 0o1000 != 0 && cx.cred.uid != dir.uid && !is_owner()?;
    if sticks { err(Errno::EPERM) } else { Ok(()) }
}
