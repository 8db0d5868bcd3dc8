//! Removing a directory: closed to entry first, so that it stays empty.

use super::check_name;
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::lock::Waiter;
use crate::segment::Cachelet;
use crate::segment::cachelet::DELETING;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::Acquire;
use format::inode::{self, node_offset};
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
    /// This directory's counts are to be taken again first.
    Recount(Node),
}

impl Fs {
    /// Removes an empty directory. See `vfs::Backend::rmdir`.
    pub fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.until_done(cx, |fs| fs.try_rmdir(cx, dir, name))
    }

    /// Repeats an attempt until it is decided.
    pub(super) fn until_done(&self, cx: &Cx, attempt: impl Fn(&Fs) -> Result<Outcome>) -> Result<()> {
        let (mut wait, mut vain) = (Waiter::new(), 0);
        for _ in 0..super::ATTEMPTS {
            match attempt(self)? {
                Outcome::Done => return Ok(()),
                Outcome::Again(holder) => {
                    vain += u32::from(!wait.once(self, holder));
                    if vain > VAIN {
                        break;
                    }
                }
                Outcome::Recount(node) => self.recount(cx, node)?,
            }
        }
        Err(Errno::EIO.into())
    }

    fn try_rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Outcome> {
        let mut tx = self.begin(cx, lane::Kind::Rmdir)?;
        let parent = self.enter(&mut tx, cx, dir)?;
        parent.may_search(&cx.cred)?;
        let hash = self.hash(parent.offset, name);
        let hit = self.peek(&parent, name, hash)?.ok_or(Errno::ENOENT)?;
        let Some((victim, seen)) = self.unless_stale(cx, hit.node)? else { return Ok(Outcome::Again(0)) };
        parent.may_remove(&cx.cred, seen.uid)?;
        if !seen.is(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        if self.must_recount(hit.node)? {
            return Ok(Outcome::Recount(hit.node));
        }
        self.check_empty(hit.node)?;
        match tx.close_directory(victim, hit.node.id, DELETING) {
            Ok(()) => {}
            Err(base::Error::Posix(Errno::EBUSY)) => return Ok(Outcome::Again(self.closer_of(victim))),
            Err(base::Error::Posix(Errno::ESTALE)) => return Ok(Outcome::Again(0)),
            Err(error) => return Err(error),
        }
        tx.lock_bucket(hash)?;
        if !same_hit(self.hit(parent.offset, name, hash)?, Some(hit)) {
            return Ok(Outcome::Again(0));
        }
        match tx.lock_inode(victim, hit.node.id) {
            Ok(()) => {}
            Err(base::Error::Posix(Errno::ESTALE)) => return Ok(Outcome::Again(0)),
            Err(error) => return Err(error),
        }
        if self.must_recount(hit.node)? {
            return Ok(Outcome::Recount(hit.node));
        }
        self.check_empty(hit.node)?;
        let (slot, removed) = self.remove_entry(&mut tx, &hit)?;
        let touched = self.touch_directory(parent.offset, pm::clock::now(), -1, -1);
        let fate = self.commit_directory_removal(&mut tx, victim, hit.node.id, (removed, touched))?;
        self.slot_freed(parent.cachelet, parent.id, slot);
        drop(tx);
        self.after_removal(cx, victim, hit.node, fate);
        Ok(Outcome::Done)
    }

    /// The cachelet of a node seen without a lock, and what it says; `None` if the node is gone.
    pub(super) fn unless_stale(&self, cx: &Cx, node: Node) -> Result<Option<(&Cachelet, crate::index::Seen<'_>)>> {
        let found = self.cached(cx, node).and_then(|cachelet| Ok((cachelet, self.seen(cx, cachelet, node.id)?)));
        match found {
            Ok(found) => Ok(Some(found)),
            Err(base::Error::Posix(Errno::ESTALE)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a directory's counts are in doubt.
    pub(super) fn must_recount(&self, node: Node) -> Result<bool> {
        Ok(self.inode(node_offset(node.id))?.head().flags & inode::RECOUNT != 0)
    }

    /// `ENOTEMPTY` if a directory has entries.
    pub(super) fn check_empty(&self, node: Node) -> Result<()> {
        if self.inode(node_offset(node.id))?.size.load(Acquire) != 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        Ok(())
    }
}

/// Whether two looks at a name saw the same, in the same place: a split may have
/// moved the entry to another bucket in between, and what is then removed must
/// not be what stood there before.
pub(super) fn same_hit(now: Option<Hit>, before: Option<Hit>) -> bool {
    match (now, before) {
        (None, None) => true,
        (Some(now), Some(before)) => {
            now.edentry == before.edentry && now.node == before.node && now.bucket == before.bucket && now.index == before.index
        }
        _ => false,
    }
}
