//! Names of directories on which something is mounted, by us or by the kernel: they are busy.
//!
//! The kernel says so after all that it asks of the caller, so that is asked here before, in its order.

use super::super::err;
use crate::Process;
use crate::path::Spot;
use base::{Cx, Error, Kind, Node, RenameMode, W, X};
use pm::Errno;
use vfs::Mount;

impl Process {
    /// Fails for a directory to be removed, at a `spot` of a mount, if it is busy.
    #[inline(always)]
    pub(super) fn may_remove<'a>(&self, cx: &Cx, mount: &Mount, spot: impl FnOnce() -> Spot<'a>) -> base::Result<()> {
        if may_be_covered(mount) { self.may_remove_covered(cx.copied(), spot()) } else { Ok(()) }
    }

    /// Fails if what is renamed, or what it replaces or changes places with, is busy; both `spots` are of one mount.
    #[inline(always)]
    pub(super) fn may_rename<'a>(
        &self,
        cx: &Cx,
        mount: &Mount,
        spots: impl FnOnce() -> (Spot<'a>, Spot<'a>),
        mode: RenameMode,
    ) -> base::Result<()> {
        if may_be_covered(mount) { self.may_rename_covered(cx.copied(), spots(), mode) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn may_remove_covered(&self, cx: Cx, spot: Spot) -> base::Result<()> {
        let (cx, spot) = (&cx, &spot);
        if !self.is_covered(cx, spot) {
            return Ok(());
        }
        let node = spot.mount.backend.lookup(cx, spot.found.parent, spot.found.name)?;
        may_take_out(cx, spot, node)?;
        err(Errno::EBUSY)
    }

    #[cold]
    #[inline(never)]
    fn may_rename_covered(&self, cx: Cx, (from, to): (Spot, Spot), mode: RenameMode) -> base::Result<()> {
        let (cx, from, to) = (&cx, &from, &to);
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

    fn is_covered(&self, cx: &Cx, spot: &Spot) -> bool {
        if spot.mount.is_served() && self.kernel_has_mounted(cx, spot) {
            return true;
        }
        let on = |node: Node| self.mounts.mounted_on(spot.mount, node.id).is_some();
        let (dir, name) = (spot.found.parent, spot.found.name);
        spot.mount.may_be_covered_at(&self.mounts, dir, name) && spot.mount.backend.lookup(cx, dir, name).is_ok_and(on)
    }
}

/// Whether something may be mounted on a directory: by us inside the mount, or by the kernel, below its own.
#[inline(always)]
fn may_be_covered(mount: &Mount) -> bool {
    mount.is_covered() || mount.is_served()
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
