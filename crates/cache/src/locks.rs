//! Advisory locks: the image's, which keep the session's programs apart, and where the daemon behind it keeps locks itself,
//! the session's as a whole there (a *lease* of a file), which keep it apart from other sessions and machines.
//!
//! A lock is had when both are. What is locked below is always as much as the image's table says, and no more: both are
//! changed by whoever has the leases to himself, and what goes without a word (a close, a death) is found by whoever keeps
//! the cache fresh ([`Cache::keep_leases`]).
//!
//! Close-to-open, by locks: before a lock is asked for, what is newer here is written below; when it is had, what was
//! changed there since is seen here; before it is given up below, what was written under it is there.

use crate::lower::{Original, Path};
use crate::{Cache, Changes, own};
use base::{Cx, DescriptionId, Errno, Error, Kind, Lock, LockKind, LockOwner, Node, Result};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use engine::lower::bits;
use vfs::backend::AdvisoryLocks;
use vfs::cached::{Below, Leases};

/// Files whose leases are looked at in one go.
const FILES: usize = 64;
/// Each so many looks what is locked below of a file that is still locked is made to fit again, which takes messages.
const FIT_EACH: u32 = 32;
static LOOKS: AtomicU32 = AtomicU32::new(0);
/// An owner that nobody is, on behalf of whom one looks what others have.
const NOBODY: [LockOwner; 2] = [LockOwner::Flock(DescriptionId::MAX), LockOwner::Description(DescriptionId::MAX)];

fn whole(owner: LockOwner, kind: LockKind, start: u64, end: u64) -> Lock {
    Lock { kind, owner, through: None, start, end, pid: 0 }
}

/// What lies at a path of a daemon's.
fn walk(cx: &Cx, daemon: &dyn Below, path: &[u8]) -> Result<Node> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names.into_iter().try_fold(daemon.root(), |dir, name| daemon.lookup(cx, dir, name))
}

/// The directory of a path's last name, and that.
fn parent<'p>(cx: &Cx, daemon: &dyn Below, path: &'p Path) -> Result<(Node, &'p [u8])> {
    let text = path.text()?.to_bytes();
    let split = text.iter().rposition(|&byte| byte == b'/').ok_or(Errno::ESTALE)?;
    Ok((walk(cx, daemon, &text[..split])?, &text[split + 1..]))
}

impl Cache {
    /// What is behind it, if that is to be asked for a lock: of files that have a name, as others know no others.
    fn keeper_of(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<&'static dyn Below>> {
        let Some(daemon) = self.daemon() else { return Ok(None) };
        if !daemon.leases().keeps_locks(matches!(lock.owner, LockOwner::Flock(_))) {
            return Ok(None);
        }
        let attr = self.fs().attr(&own(cx), node)?;
        Ok((attr.kind == Kind::Regular && attr.nlink > 0).then_some(daemon))
    }

    fn lock_both(&self, cx: &Cx, daemon: &dyn Below, node: Node, lock: &Lock) -> Result<()> {
        if self.native.conflicting_lock(cx, node, lock)?.is_some() {
            return Err(Errno::EAGAIN.into());
        }
        self.write_below(node)?;
        self.settled(cx, (node, b""), || {
            let before = self.names_lead(cx, (node, b""))?;
            let mut room = Path::room();
            let (path, leases) = (self.path_to(cx, &mut room, node)?, daemon.leases());
            let (dir, name) = parent(cx, daemon, path)?;
            leases.alone(&mut || {
                if self.native.conflicting_lock(cx, node, lock)?.is_some() {
                    return Err(Errno::EAGAIN.into());
                }
                let begun = leases.begin(cx, (dir, name), node.id).and_then(|()| self.names_led(cx, before, (node, b"")));
                let locked = begun.and_then(|()| leases.lock(cx, node.id, lock)).and_then(|()| self.native.lock(cx, node, lock));
                // What was had below goes back; a lease by which nothing is locked too.
                locked.inspect_err(|_| self.fit(cx, leases, node))
            })
        })?;
        self.look_anew(cx, daemon, node).inspect_err(|_| {
            let _ = self.unlock_both(cx, daemon, node, &Lock { kind: LockKind::Unlock, ..*lock });
        })
    }

    /// What was written under it is below first. It is given up also if that can't be written there, which is said.
    fn unlock_both(&self, cx: &Cx, daemon: &dyn Below, node: Node, lock: &Lock) -> Result<()> {
        if !daemon.leases().has(node.id) {
            return self.native.lock(cx, node, lock);
        }
        let written = self.write_below(node);
        daemon.leases().alone(&mut || {
            self.native.lock(cx, node, lock)?;
            self.fit(cx, daemon.leases(), node);
            Ok(())
        })?;
        written
    }

    /// What is newer here is below when this returns.
    fn write_below(&self, node: Node) -> Result<()> {
        if self.changes != Changes::Refused && self.is_newer(node)? { self.fs().want_round() } else { Ok(()) }
    }

    /// What was changed below is seen here: attributes as they are there, and contents are asked for again, as times are too coarse
    /// to tell what is written under locks. A file that somebody has mapped keeps what is here, or is `ESTALE` if it has
    /// changed there.
    fn look_anew(&self, cx: &Cx, daemon: &dyn Below, node: Node) -> Result<()> {
        self.settled(cx, (node, b""), || {
            let before = self.names_lead(cx, (node, b""))?;
            let below = walk(cx, daemon, self.path_to(cx, &mut Path::room(), node)?.text()?.to_bytes())?;
            daemon.doubt(below);
            let (known, original) = (self.known(node)?, Original::of_daemon(&daemon.attr(cx, below)?));
            self.names_led(cx, before, (node, b""))?;
            if known.stamp != original.stamp {
                self.fs().mark(&own(cx), node, 0, bits::NO_XATTRS | bits::XATTRS)?;
                match self.fs().restamp(&own(cx), node, &original.change_from(&known.stamp)) {
                    Err(Error::Posix(Errno::EBUSY)) => return Err(Errno::ESTALE.into()),
                    // Somebody else has looked at it meanwhile.
                    Err(Error::Posix(Errno::ESTALE)) if known.stamp.is_same_file(&original.stamp) => {}
                    result => result?,
                }
            }
            match self.fs().ask_contents_again(&own(cx), node) {
                Err(Error::Posix(Errno::EBUSY)) => Ok(()),
                result => result,
            }
        })
    }

    /// Has as much of a file locked below as is locked in the image, but for what is to be locked more; gives up the lease if that
    /// is nothing. What fails stays locked below until then. The leases are the caller's alone.
    fn fit(&self, cx: &Cx, leases: &dyn Leases, node: Node) {
        let cx = &own(cx);
        let first = |owner, start| {
            let any = whole(owner, LockKind::Exclusive, start, u64::MAX);
            self.native.conflicting_lock(cx, node, &any).ok().flatten()
        };
        if NOBODY.iter().all(|owner| first(*owner, 0).is_none()) {
            return leases.end(cx, node.id);
        }
        for (owner, is_flock) in NOBODY.into_iter().zip([true, false]).filter(|(_, is_flock)| leases.keeps_locks(*is_flock)) {
            let set = |kind, start, end| {
                let _ = leases.lock(cx, node.id, &whole(owner, kind, start, end));
            };
            let mut at = 0;
            while let Some(held) = first(owner, at).filter(|_| at < u64::MAX) {
                if held.start > at {
                    set(LockKind::Unlock, at, held.start);
                }
                if held.kind == LockKind::Shared {
                    set(LockKind::Shared, held.start.max(at), held.end);
                }
                at = held.end;
                if is_flock {
                    at = u64::MAX;
                }
            }
            if at < u64::MAX {
                set(LockKind::Unlock, at, u64::MAX);
            }
        }
    }

    /// Locks that went by a close or a death are given up below, once what was written under them is there. For who keeps the
    /// cache fresh, once in a while.
    pub fn keep_leases(&self, cx: &Cx) {
        let Some(daemon) = self.daemon() else { return };
        let fits = LOOKS.fetch_add(1, Relaxed).is_multiple_of(FIT_EACH);
        let mut seen = 0;
        loop {
            let (mut files, mut count, mut at) = ([0u64; FILES], 0, 0);
            daemon.leases().each(&mut |file| {
                if let Some(place) = files.get_mut(count).filter(|_| at >= seen) {
                    (*place, count) = (file, count + 1);
                }
                at += 1;
            });
            if seen == 0 && count > 0 {
                self.fs().adopt_dead_processes(cx);
            }
            self.keep_these(cx, daemon.leases(), &files[..count], fits);
            seen += count;
            if count < FILES {
                return;
            }
        }
    }

    fn keep_these(&self, cx: &Cx, leases: &dyn Leases, files: &[u64], fits: bool) {
        for node in files.iter().map(|&id| Node { id, hint: 0 }) {
            if self.is_locked(cx, node) {
                if fits {
                    // A part of what is locked below may have gone.
                    let _ = self.write_below(node);
                    let _ = leases.alone(&mut || {
                        self.fit(cx, leases, node);
                        Ok(())
                    });
                }
                continue;
            }
            // Where it can't be written it is newer here all the same, and waits for that.
            let _ = self.write_below(node);
            let _ = leases.alone(&mut || {
                if !self.is_locked(cx, node) {
                    leases.end(cx, node.id);
                }
                Ok(())
            });
        }
    }

    /// Whether what is behind it keeps locks itself.
    pub fn keeps_locks(&self) -> bool {
        self.daemon().is_some_and(|daemon| [true, false].iter().any(|flock| daemon.leases().keeps_locks(*flock)))
    }

    /// A lock of others that conflicts with one, which nobody of the session has: the lease is had for that, and given up again.
    fn conflict_below(&self, cx: &Cx, daemon: &dyn Below, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let before = self.names_lead(cx, (node, b""))?;
        let mut room = Path::room();
        let path = self.path_to(cx, &mut room, node)?;
        let name = match parent(cx, daemon, path) {
            // Made here: nobody else knows it.
            Err(Error::Posix(Errno::ENOENT)) => return Ok(None),
            name => name?,
        };
        let (leases, mut found) = (daemon.leases(), None);
        leases.alone(&mut || {
            match leases.begin(cx, name, node.id) {
                Err(Error::Posix(Errno::ENOENT)) => return Ok(()),
                begun => begun?,
            }
            let asked = self.names_led(cx, before, (node, b"")).and_then(|()| leases.conflicting_lock(cx, node.id, lock));
            if !self.is_locked(cx, node) {
                leases.end(cx, node.id);
            }
            found = asked?;
            Ok(())
        })?;
        Ok(found)
    }

    fn is_locked(&self, cx: &Cx, node: Node) -> bool {
        let any = |owner| whole(owner, LockKind::Exclusive, 0, u64::MAX);
        NOBODY.iter().any(|owner| self.native.conflicting_lock(cx, node, &any(*owner)).is_ok_and(|held| held.is_some()))
    }

    /// `EIO` while a file's locks are lost, with the daemon that kept them: another may have had it since.
    pub(crate) fn locks_must_last(&self, node: Node) -> Result<()> {
        match self.daemon() {
            Some(daemon) if daemon.leases().is_lost(node.id) => Err(Errno::EIO.into()),
            _ => Ok(()),
        }
    }
}

impl AdvisoryLocks for Cache {
    fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        match self.keeper_of(cx, node, lock)? {
            None => self.native.lock(cx, node, lock),
            Some(daemon) if lock.kind == LockKind::Unlock => self.unlock_both(cx, daemon, node, lock),
            Some(daemon) => self.lock_both(cx, daemon, node, lock),
        }
    }

    fn lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        let Some(daemon) = self.keeper_of(cx, node, lock)? else { return self.native.lock_waiting(cx, node, lock, since) };
        match self.native.conflicting_lock(cx, node, lock)? {
            // Circles of waiters are those of the session.
            Some(_) => {
                self.native.lock_waiting(cx, node, lock, since)?;
                self.lock_both(cx, daemon, node, lock).inspect_err(|_| {
                    // Who is told that it has not got it has not got it here either.
                    let _ = self.native.lock(cx, node, &Lock { kind: LockKind::Unlock, ..*lock });
                })
            }
            None => self.lock_both(cx, daemon, node, lock),
        }
    }

    fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let known = self.native.conflicting_lock(cx, node, lock)?;
        let keeper = if lock.kind == LockKind::Unlock || known.is_some() { None } else { self.keeper_of(cx, node, lock)? };
        let Some(daemon) = keeper else { return Ok(known) };
        self.settled(cx, (node, b""), || self.conflict_below(cx, daemon, node, lock))
    }

    fn drop_process_locks(&self, cx: &Cx, node: Node) {
        self.native.drop_process_locks(cx, node);
        if let Some(daemon) = self.daemon().filter(|daemon| daemon.leases().has(node.id)) {
            let _ = self.write_below(node);
            let _ = daemon.leases().alone(&mut || {
                self.fit(cx, daemon.leases(), node);
                Ok(())
            });
        }
    }
}
