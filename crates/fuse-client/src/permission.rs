//! Permission, where a daemon leaves it to us (`default_permissions`).

use super::call::Message;
use super::handles::{FOR_APPEND, FOR_READ, FOR_WRITE};
use super::lower::needless;
use super::protocol::*;
use super::{FuseClient, Key, posix};
use base::{Attr, Cx, Errno, Kind, Node, R, Result, SetAttr, SetTime, W, X};
use core::sync::atomic::Ordering::Relaxed;
use session::SessionCache;
use session::{LowerFs, Miss};

impl FuseClient {
    /// `W` and `X` on a directory that is to change. In one that was removed nobody finds or makes a name.
    pub(super) fn may_change_names(&self, s: &SessionCache, cx: &Cx, dir: Node) -> Result<()> {
        if s.get(dir)?.removed.load(Relaxed) != 0 {
            return posix(Errno::ENOENT);
        }
        if self.checks_permission() {
            let attr = self.rights(s, cx, dir)?;
            if !cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, W | X) {
                return posix(Errno::EACCES);
            }
        }
        self.writable()
    }

    /// Attributes of a directory, of which type, mode and owner are fresh.
    fn rights(&self, s: &SessionCache, cx: &Cx, dir: Node) -> Result<Attr> {
        if let Some(attr) = s.rights(dir)? {
            return Ok(attr);
        }
        let asked = s.moment();
        let (attr, ns) = self.attr(s, cx, dir)?;
        s.set_attr(dir, &attr, ns, asked)?;
        Ok(attr)
    }

    /// As the kernel has it: a search, and an open of a file, is the daemon's to refuse when it is asked for that.
    pub(super) fn may_go_on(
        &self,
        s: &SessionCache,
        cx: &Cx,
        node: Node,
        want: u16,
        attr: &dyn Fn() -> Result<Attr>,
    ) -> Result<()> {
        let is_refused_later = match s.get(node)?.kind() {
            Kind::Regular => want & X == 0,
            Kind::Directory => want == X,
            _ => false,
        };
        if !is_refused_later || self.checks_permission() {
            return self.access(s, cx, node, want, attr);
        }
        if want & W != 0 { self.writable() } else { Ok(()) }
    }

    /// Who opens a file by what others have open (`bits`), so that the daemon does not hear of it, is asked about all the same.
    pub(super) fn may_share(&self, cx: &Cx, key: Key, wanted: u32, bits: u32) -> Result<()> {
        let to_write = FOR_WRITE | FOR_APPEND;
        let reads = wanted & bits & FOR_READ != 0;
        let writes = wanted & to_write != 0 && bits & to_write != 0;
        if self.checks_permission() || !reads && !writes {
            return Ok(());
        }
        let want = if reads { R } else { 0 } | if writes { W } else { 0 };
        self.ask_access(cx, key, want)
    }

    /// Asks the daemon; one that knows no such question refuses nothing.
    pub(super) fn ask_access(&self, cx: &Cx, key: Key, want: u16) -> Result<()> {
        let mut message = Message::new();
        message.word32(u32::from(want)).word32(0);
        needless(self.ask_nothing(cx, ACCESS, key, [message.bytes(), b"", b""]))
    }

    /// Whether a name of a sticky directory may be taken away.
    pub(super) fn sticky_allows(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        if !self.checks_permission() || cx.cred.privileged {
            return Ok(());
        }
        let parent = self.rights(s, cx, dir)?;
        if parent.mode & 0o1000 == 0 || parent.uid == cx.cred.uid {
            return Ok(());
        }
        match self.lookup(s, cx, dir, name) {
            Ok(entry) => {
                self.forget(s, entry.key, 1, entry.incarnation);
                let Attr { uid, gid, .. } = entry.attr;
                if uid == cx.cred.uid || cx.cred.is_privileged_over(uid, gid) { Ok(()) } else { posix(Errno::EPERM) }
            }
            Err(Miss::Absent(_)) => posix(Errno::ENOENT),
            Err(Miss::Failed(error)) => Err(error),
        }
    }
}

impl FuseClient {
    /// What the kernel sees to before it asks a file system for an extended
    /// attribute: who may have those of which name, on what.
    pub(super) fn may_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], writes: bool) -> Result<()> {
        if writes {
            self.writable()?;
        }
        if !self.checks_permission() || name.starts_with(b"security.") || name.starts_with(b"system.") {
            return Ok(());
        }
        let refused = posix(if writes { Errno::EPERM } else { Errno::ENODATA });
        if name.starts_with(b"trusted.") {
            return if cx.cred.privileged { Ok(()) } else { refused };
        }
        let (attr, _) = self.attr(s, cx, node)?;
        if name.starts_with(b"user.") {
            let is_others = cx.cred.uid != attr.uid && !cx.cred.is_privileged_over(attr.uid, attr.gid);
            match attr.kind {
                Kind::Regular => {}
                Kind::Directory if writes && attr.mode & 0o1000 != 0 && is_others => return posix(Errno::EPERM),
                Kind::Directory => {}
                _ => return refused,
            }
        }
        let want = if writes { W } else { R };
        if cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, want) { Ok(()) } else { posix(Errno::EACCES) }
    }
}

impl FuseClient {
    /// A directory that gets another parent changes itself: its `..` does.
    pub(super) fn may_move(&self, s: &SessionCache, cx: &Cx, (dir, name): (Node, &[u8])) -> Result<()> {
        if !self.checks_permission() || cx.cred.privileged {
            return Ok(());
        }
        let Some(node) = s.last_known(dir, name) else { return Ok(()) };
        let (attr, _) = self.attr(s, cx, node)?;
        let may = attr.kind != Kind::Directory || cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, W);
        if may { Ok(()) } else { posix(Errno::EACCES) }
    }

    /// A file that is about to be written by an ordinary user loses its set-id
    /// bits: the kernel sees to it, and daemons that may write anything rely on that.
    pub(super) fn drop_set_id(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<()> {
        if cx.cred.privileged || s.last_attr(node)?.mode & 0o6000 == 0 {
            return Ok(());
        }
        let (attr, _) = self.attr(s, cx, node)?;
        match mode_without_set_id(cx, &attr) {
            // As the system, not as the caller, who need not own the file.
            Some(mode) => self.send_attr(s, cx, node, &SetAttr { mode: Some(mode), ..Default::default() }),
            None => Ok(()),
        }
    }
}

/// The mode that a file has once somebody else has written it, if that is another.
pub(super) fn mode_without_set_id(cx: &Cx, attr: &Attr) -> Option<u16> {
    let is_stranger = !cx.cred.is_privileged_over(attr.uid, attr.gid) && !cx.cred.in_group(attr.gid);
    let drops = if attr.mode & 0o010 != 0 || is_stranger { 0o6000 } else { 0o4000 };
    (attr.kind == Kind::Regular && attr.mode & drops != 0).then_some(attr.mode & !drops)
}

/// Whether the caller may make this change.
pub(super) fn may_change(cx: &Cx, attr: &Attr, change: &SetAttr) -> Result<()> {
    let cred = &cx.cred;
    if cred.is_privileged_over(attr.uid, attr.gid) {
        return Ok(());
    }
    let owner = cred.uid == attr.uid;
    let uid = change.uid.is_some_and(|uid| !owner || uid != attr.uid);
    let gid = change.gid.is_some_and(|gid| !owner || gid != attr.gid && !cred.in_group(gid));
    if uid || gid || change.mode.is_some() && !owner {
        return posix(Errno::EPERM);
    }
    let writes = cred.may(attr.kind, attr.mode, attr.uid, attr.gid, W);
    match (change.atime, change.mtime) {
        (None, None) => {}
        // Who may write may say that both are now.
        (Some(SetTime::Now), Some(SetTime::Now)) if !owner && !writes => return posix(Errno::EACCES),
        (Some(SetTime::Now), Some(SetTime::Now)) => {}
        _ if !owner => return posix(Errno::EPERM),
        _ => {}
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
