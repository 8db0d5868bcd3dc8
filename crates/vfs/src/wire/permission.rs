//! Permission, where a daemon leaves it to us (`default_permissions`).

use super::protocol::*;
use super::{Wire, posix};
use crate::cached::{Miss, Source};
use crate::ledger::Ledger;
use crate::{Attr, Cx, Errno, Node, Result, SetAttr, SetTime, W, X};

impl Wire {
    /// `W` and `X` on a directory that is to change.
    pub(super) fn may_change_names(&self, l: &Ledger, cx: &Cx, dir: Node) -> Result<()> {
        if self.checks_permission() {
            let (attr, _) = self.attr(l, cx, dir)?;
            if !cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, W | X) {
                return posix(Errno::EACCES);
            }
        }
        self.writable()
    }

    /// Whether a name of a sticky directory may be taken away.
    pub(super) fn sticky_allows(&self, l: &Ledger, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        if !self.checks_permission() || cx.cred.privileged {
            return Ok(());
        }
        let (parent, _) = self.attr(l, cx, dir)?;
        if parent.mode & 0o1000 == 0 || parent.uid == cx.cred.uid {
            return Ok(());
        }
        match self.lookup(l, cx, dir, name) {
            Ok(entry) => {
                self.forget(l, entry.key, 1, entry.epoch);
                if entry.attr.uid == cx.cred.uid { Ok(()) } else { posix(Errno::EPERM) }
            }
            Err(Miss::Absent(_)) => posix(Errno::ENOENT),
            Err(Miss::Failed(error)) => Err(error),
        }
    }
}

/// Whether the caller may make this change.
pub(super) fn may_change(cx: &Cx, attr: &Attr, change: &SetAttr) -> Result<()> {
    let cred = &cx.cred;
    if cred.privileged {
        return Ok(());
    }
    let owner = cred.uid == attr.uid;
    let uid = change.uid.is_some_and(|uid| !owner || uid != attr.uid);
    let gid = change.gid.is_some_and(|gid| !owner || gid != attr.gid && !cred.in_group(gid));
    if uid || gid || change.mode.is_some() && !owner {
        return posix(Errno::EPERM);
    }
    let writes = cred.may(attr.kind, attr.mode, attr.uid, attr.gid, W);
    for time in [change.atime, change.mtime].into_iter().flatten() {
        match time {
            SetTime::Now if !owner && !writes => return posix(Errno::EACCES),
            SetTime::At(_) if !owner => return posix(Errno::EPERM),
            _ => {}
        }
    }
    if change.size.is_some() && !change.size_checked && !writes {
        return posix(Errno::EACCES);
    }
    Ok(())
}

/// The times of a change as `SETATTR` has them: seconds, nanoseconds; their bits go to `valid`.
pub(super) fn times_of(change: &SetAttr, valid: &mut u32) -> ([i64; 2], [u32; 2]) {
    let (mut seconds, mut parts) = ([0i64; 2], [0u32; 2]);
    for (index, time) in [change.atime, change.mtime].into_iter().enumerate() {
        let Some(time) = time else { continue };
        *valid |= [FATTR_ATIME, FATTR_MTIME][index];
        let ns = match time {
            // Not every daemon looks at the bit that says now.
            SetTime::Now => {
                *valid |= [FATTR_ATIME_NOW, FATTR_MTIME_NOW][index];
                pm::clock::now()
            }
            SetTime::At(ns) => ns,
        };
        seconds[index] = ns.div_euclid(NSEC);
        parts[index] = ns.rem_euclid(NSEC) as u32;
    }
    (seconds, parts)
}
