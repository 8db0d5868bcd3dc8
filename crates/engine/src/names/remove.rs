//! Removing a name, and what that does to its inode.

use super::check_name;
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::Tx;
use crate::lane::record::Stores;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::inode::{node_offset, unpack_links};
use format::lane::{self, Op};
use pm::Errno;

/// What becomes of the inode of a name removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has other names: so many.
    Stays(u32),
    /// Somebody has it open, or it is too large for one record.
    Orphan,
    /// It goes with the name.
    Freed,
}

impl Fs {
    /// Removes a name that is not a directory. See `vfs::Backend::unlink`.
    pub fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let mut tx = self.begin(cx, lane::Kind::Unlink)?;
        let parent = self.enter(&mut tx, cx, dir)?;
        parent.may_search(&cx.cred)?;
        let hash = self.hash(parent.offset, name);
        tx.lock_bucket(hash)?;
        let hit = self.hit(parent.offset, name, hash)?.ok_or(Errno::ENOENT)?;
        let victim = self.lock_named(&mut tx, cx, hit.node)?;
        parent.may_remove(&cx.cred, victim.uid.load(Relaxed))?;
        if hit.kind == Kind::Directory as u8 {
            return Err(Errno::EISDIR.into());
        }
        let now = pm::clock::now();
        let (slot, removed) = self.remove_entry(&mut tx, &hit)?;
        let touched = self.touch_directory(parent.offset, now, -1, 0);
        let fate = self.commit_removal(&mut tx, victim, &hit, now, (removed, touched))?;
        self.slot_freed(parent.cachelet, parent.id, slot);
        drop(tx);
        self.after_removal(cx, victim, hit.node, fate);
        Ok(())
    }

    /// The stores that remove entry, slot and edentry; the slot's offset before them.
    #[inline(always)]
    pub(super) fn remove_entry(&self, tx: &mut Tx, hit: &Hit) -> Result<(u64, (Op, Op, Op))> {
        let slot = self.slot_of(hit.edentry)?;
        Ok((slot, (self.remove(hit), Op::Set { at: slot, value: 0 }, self.old_edentry(tx, hit.edentry)?)))
    }

    /// Commits a record of `stores` that removes a name of the locked inode
    /// `victim`; adds what that does to the inode, and takes the name from its cachelet.
    ///
    /// The cachelet is changing from before the commit on: whoever reads the text
    /// of a symlink notices that its lines may be another's.
    #[inline(always)]
    pub(super) fn commit_removal<S: Stores>(
        &self,
        tx: &mut Tx,
        victim: &Cachelet,
        hit: &Hit,
        now: i64,
        stores: S,
    ) -> Result<Fate> {
        let offset = node_offset(hit.node.id);
        let links = self.links_word(offset)?;
        let (nlink, _) = unpack_links(links);
        let change = self.change(victim);
        if nlink > 1 {
            tx.commit_with((stores, self.links_change(offset, links, nlink - 1, now)))?;
            after_name(&change, nlink - 1, now);
            return Ok(Fate::Stays(nlink - 1));
        }
        let fate = match self.give_up_inode(tx, victim, hit.node.id, offset) {
            Ok(Some(gone)) => tx.commit_with((stores, gone)).map(|()| Fate::Freed),
            Ok(None) => self.commit_orphan(tx, (stores, self.links_change(offset, links, 0, now))),
            Err(error) => Err(error),
        };
        if fate.is_ok() {
            after_name(&change, 0, now);
        }
        drop(change);
        self.settle_victim(tx, victim, fate == Ok(Fate::Freed));
        fate
    }

    #[cold]
    #[inline(never)]
    fn commit_orphan<S: Stores>(&self, tx: &mut Tx, stores: S) -> Result<Fate> {
        tx.commit_with(stores).map(|()| Fate::Orphan)
    }

    /// After the operation, with nothing held: an orphan that nobody has open
    /// (too large for the record, or closed meanwhile) is freed at once.
    #[inline(always)]
    pub(super) fn after_removal(&self, cx: &Cx, victim: &Cachelet, node: Node, fate: Fate) {
        if fate == Fate::Orphan && victim.opens.load(SeqCst) == 0 {
            // Whatever fails here is tried again after the next attach.
            let _ = self.reclaim_orphan(cx, node);
        }
    }

    /// Commits a record of `stores` that removes the empty, closed, locked directory `victim`.
    #[inline(always)]
    pub(super) fn commit_directory_removal<S: Stores>(&self, tx: &mut Tx, victim: &Cachelet, id: u64, stores: S) -> Result<Fate> {
        let offset = node_offset(id);
        let change = self.change(victim);
        let fate = match self.give_up_inode(tx, victim, id, offset) {
            Ok(Some(gone)) => tx.commit_with((stores, gone)).map(|()| Fate::Freed),
            // It has no name and no parent any more.
            Ok(None) => self
                .inode(offset)
                .and_then(|inode| self.own_word(offset, inode))
                .and_then(|own| self.commit_orphan(tx, (stores, Op::Set { at: own, value: 0 }))),
            Err(error) => Err(error),
        };
        if fate.is_ok() {
            change.parent.store(0, Relaxed);
            victim.flags.fetch_or(cachelet::REMOVED, SeqCst);
        }
        drop(change);
        self.settle_victim(tx, victim, fate == Ok(Fate::Freed));
        fate
    }
}

/// What the cachelet of an inode says once a name of it is gone.
#[inline(always)]
fn after_name(change: &Cachelet, nlink: u32, now: i64) {
    change.nlink.store(nlink, Relaxed);
    change.ctime.store(now as u64, Relaxed);
    // Which of its names it carries is not asked: the next lookup gives it one again.
    change.parent.store(0, Relaxed);
}
