//! Removing a directory: closed to entry, so that it stays empty.
//!
//! Names are changed inside it without a lock on it. So what is seen to be empty
//! is closed, and looked at again once nobody is inside. Most directories are left
//! alone: the name is looked up with the locks held, and the directory closed without
//! waiting. Whoever is inside may want one of these locks: then all is given back, and
//! the directory closed before anything is locked.

use super::{Parent, proper, touch_directory};
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::Tx;
use crate::lane::lock::{LATER, Waiter};
use crate::segment::Cachelet;
use crate::segment::cachelet::DELETING;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::inode::{self, Inode, node_offset};
use format::lane;
use pm::Errno;

/// Waits in vain until an attempt is given up: nobody is at it, and what does not
/// fit together is damaged.
const VAIN: u32 = 1000;

/// How an attempt ended that must look again.
pub(super) enum Outcome {
    Done,
    /// Something changed meanwhile, or this lane + 1 is at it.
    Again(u32),
    /// An inode is wanted whose holder keeps us waiting ([`LATER`]).
    Later,
    /// This directory's counts are to be taken again first.
    Recount(Node),
}

impl Fs {
    /// Removes an empty directory. See `vfs::Backend::rmdir`.
    pub fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let name = proper(name)?;
        let first = self.try_rmdir(cx, dir, name).or_else(later)?;
        self.until_done(cx, first, &|fs| fs.rmdir_slow(cx, dir, name))
    }

    /// Repeats an attempt, whose outcome was `last`, until it is decided.
    #[inline]
    pub(super) fn until_done(&self, cx: &Cx, mut last: Outcome, attempt: &dyn Fn(&Fs) -> Result<Outcome>) -> Result<()> {
        if matches!(last, Outcome::Done) {
            return Ok(());
        }
        let (mut wait, mut vain) = (Waiter::by(self, cx), 0);
        for _ in 1..super::ATTEMPTS {
            match last {
                Outcome::Done => return Ok(()),
                Outcome::Later => self.wait_aside(cx)?,
                Outcome::Again(holder) => {
                    vain += u32::from(!wait.once(self, holder));
                    wait.check(self)?;
                    if vain > VAIN {
                        break;
                    }
                }
                Outcome::Recount(node) => match self.recount(cx, node) {
                    // Gone meanwhile: there may be another.
                    Ok(()) | Err(base::Error::Posix(Errno::ESTALE)) => {}
                    Err(error) => return Err(error),
                },
            }
            last = attempt(self).or_else(later)?;
        }
        Err(Errno::EIO.into())
    }

    /// With the locks held, where nobody is inside.
    fn try_rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Outcome> {
        let mut tx = match self.begin(cx, lane::Kind::Rmdir) {
            Ok(tx) => tx,
            Err(error) => return Err(self.unless_closed_to(cx, [dir, dir], error)),
        };
        let parent = self.enter(&mut tx, cx, dir)?;
        if !parent.is_free_to(&cx.cred) {
            return Err(self.unless_missing(cx, dir, name));
        }
        let key = self.entry_key(parent.offset, name);
        tx.lock_bucket(key.hash)?;
        let hit = self.hit(&key)?.ok_or(Errno::ENOENT)?;
        let victim = self.lock_named(&mut tx, cx, hit.node)?;
        parent.may_remove(&cx.cred, victim.uid.load(Relaxed), victim.gid.load(Relaxed))?;
        if hit.kind != Kind::Directory as u8 {
            return Err(Errno::ENOTDIR.into());
        }
        let inode = self.inode(node_offset(hit.node.id))?;
        if !is_surely_empty(inode)? {
            return Ok(Outcome::Recount(hit.node));
        }
        if let Err(lane) = tx.close_if_left(victim, hit.node.id, DELETING) {
            return Ok(Outcome::Again(lane));
        }
        if !is_surely_empty(inode)? {
            return Ok(Outcome::Recount(hit.node));
        }
        self.remove_directory(&mut tx, cx, &parent, &hit, (victim, name.len()))
    }

    /// Whoever may be inside: the directory is closed, and left, before anything is locked.
    fn rmdir_slow(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Outcome> {
        let mut tx = self.begin(cx, lane::Kind::Rmdir)?;
        let parent = self.enter(&mut tx, cx, dir)?;
        parent.may_change(&cx.cred)?;
        let key = self.entry_key(parent.offset, name);
        let Some(seen) = self.find(cx, &key)? else { return Err(Errno::ENOENT.into()) };
        parent.may_remove(&cx.cred, seen.uid, seen.gid)?;
        if !seen.is(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        let (victim, node, inode) = (seen.cachelet, self.node_seen(&seen), self.inode(node_offset(seen.id))?);
        if !is_surely_empty(inode)? {
            return Ok(Outcome::Recount(node));
        }
        match tx.close_directory(victim, node.id, DELETING) {
            Ok(()) => {}
            Err(base::Error::Posix(Errno::EBUSY)) => return Ok(Outcome::Again(self.closer_of(victim))),
            Err(base::Error::Posix(Errno::ESTALE)) => return Ok(Outcome::Again(0)),
            Err(error) => return Err(error),
        }
        tx.lock_bucket(key.hash)?;
        let Some(hit) = self.hit(&key)?.filter(|hit| hit.node.id == node.id) else {
            return Ok(Outcome::Again(0));
        };
        match tx.lock_inode(victim, node.id) {
            Ok(()) => {}
            Err(base::Error::Posix(Errno::ESTALE)) => return Ok(Outcome::Again(0)),
            Err(error) => return Err(error),
        }
        if !is_surely_empty(inode)? {
            return Ok(Outcome::Recount(node));
        }
        self.remove_directory(&mut tx, cx, &parent, &hit, (victim, name.len()))
    }

    /// Removes the empty directory `victim`, which is closed and locked, with its name of `len` bytes, whose bucket's
    /// lock is held. Ends the operation.
    fn remove_directory<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        parent: &Parent<'a>,
        hit: &Hit<'a>,
        (victim, len): (&'a Cachelet, usize),
    ) -> Result<Outcome> {
        let (slot, removed) = self.remove_entry(tx, hit, len)?;
        let touched = touch_directory(parent.inode, self.clock.now(), -1, -1);
        let fate = self.commit_directory_removal(tx, victim, hit.node.id, (removed, touched))?;
        self.slot_freed(parent, slot);
        tx.end();
        self.after_removal(cx, victim, hit.node, fate);
        Ok(Outcome::Done)
    }
}

/// What becomes of an attempt that would have held others up.
pub(super) fn later(error: base::Error) -> Result<Outcome> {
    if error == LATER { Ok(Outcome::Later) } else { Err(error) }
}

/// Whether a directory is empty: false if its counts are in doubt, `ENOTEMPTY` if it has entries.
pub(super) fn is_surely_empty(inode: &Inode) -> Result<bool> {
    if inode.head().flags & inode::RECOUNT != 0 {
        return Ok(false);
    }
    if inode.size.load(Acquire) != 0 { Err(Errno::ENOTEMPTY.into()) } else { Ok(true) }
}
