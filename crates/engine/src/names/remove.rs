//! Removing a name, and what that does to its inode.

use super::check_name;
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::Tx;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::inode::{node_offset, unpack_links};
use format::lane;
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
        let slot = self.remove_entry(&mut tx, &hit)?;
        self.touch_directory(&mut tx, parent.offset, now, -1, 0)?;
        let fate = self.commit_removal(&mut tx, victim, &hit, now)?;
        self.slot_freed(parent.cachelet, parent.id, slot);
        drop(tx);
        self.after_removal(cx, victim, hit.node, fate);
        Ok(())
    }

    /// Records the removal of entry, slot and edentry; returns the slot's offset.
    #[inline]
    pub(super) fn remove_entry(&self, tx: &mut Tx, hit: &Hit) -> Result<u64> {
        let slot = self.slot_of(hit.edentry)?;
        self.remove(tx, hit)?;
        tx.set(slot, 0)?;
        self.free_edentry(tx, hit.edentry)?;
        Ok(slot)
    }

    /// Commits a record that removes a name of the locked inode `victim`; adds
    /// what that does to the inode, and takes the name from its cachelet.
    ///
    /// The cachelet is changing from before the commit on: whoever reads the text
    /// of a symlink notices that its lines may be another's.
    #[inline]
    pub(super) fn commit_removal(&self, tx: &mut Tx, victim: &Cachelet, hit: &Hit, now: i64) -> Result<Fate> {
        let change = self.change(victim);
        let fate = self.record_fate(tx, victim, hit.node.id, now).and_then(|fate| tx.commit().map(|()| fate));
        if let Ok(fate) = fate {
            let nlink = if let Fate::Stays(nlink) = fate { nlink } else { 0 };
            change.nlink.store(nlink, Relaxed);
            change.ctime.store(now as u64, Relaxed);
            // Which of its names it carries is not asked: the next lookup gives it one again.
            change.parent.store(0, Relaxed);
        }
        drop(change);
        if !matches!(fate, Ok(Fate::Stays(_))) {
            self.settle_victim(tx, victim, fate == Ok(Fate::Freed));
        }
        fate
    }

    fn record_fate(&self, tx: &mut Tx, victim: &Cachelet, id: u64, now: i64) -> Result<Fate> {
        let offset = node_offset(id);
        let links = self.links_word(offset)?;
        let (nlink, _) = unpack_links(links);
        if nlink > 1 {
            self.set_links(tx, offset, links, nlink - 1, now)?;
            return Ok(Fate::Stays(nlink - 1));
        }
        if self.give_up_inode(tx, victim, id, offset)? {
            return Ok(Fate::Freed);
        }
        self.set_links(tx, offset, links, 0, now)?;
        Ok(Fate::Orphan)
    }

    /// After the operation, with nothing held: an orphan that nobody has open
    /// (too large for the record, or closed meanwhile) is freed at once.
    #[inline]
    pub(super) fn after_removal(&self, cx: &Cx, victim: &Cachelet, node: Node, fate: Fate) {
        if fate == Fate::Orphan && victim.opens.load(SeqCst) == 0 {
            // Whatever fails here is tried again after the next attach.
            let _ = self.reclaim_orphan(cx, node);
        }
    }

    /// Commits a record that removes the empty, closed, locked directory `victim`.
    pub(super) fn commit_directory_removal(&self, tx: &mut Tx, victim: &Cachelet, id: u64) -> Result<Fate> {
        let offset = node_offset(id);
        let change = self.change(victim);
        let fate = self.give_up_inode(tx, victim, id, offset).and_then(|freed| {
            if !freed {
                // It has no name and no parent any more.
                tx.set(self.own_word(offset, self.inode(offset)?)?, 0)?;
            }
            tx.commit()?;
            Ok(if freed { Fate::Freed } else { Fate::Orphan })
        });
        if fate.is_ok() {
            change.parent.store(0, Relaxed);
            victim.flags.fetch_or(cachelet::REMOVED, SeqCst);
        }
        drop(change);
        self.settle_victim(tx, victim, fate == Ok(Fate::Freed));
        fate
    }
}
