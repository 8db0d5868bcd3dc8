//! Removing a name, and what that does to its inode.

use super::inode::links_change;
use super::{check_name, touch_directory};
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::Tx;
use crate::lane::record::{ClearBits, Set, Stores};
use crate::segment::cache::Change;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::inode::{Inode, node_offset, unpack_links};
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
        let free = parent.is_free_to(&cx.cred);
        if !free {
            parent.may_search(&cx.cred)?;
        }
        let sought = self.sought(parent.offset, name);
        tx.lock_bucket(sought.hash)?;
        let hit = self.hit(&sought)?.ok_or(Errno::ENOENT)?;
        let victim = self.lock_named(&mut tx, cx, hit.node)?;
        parent.may_remove(&cx.cred, free, victim.uid.load(Relaxed))?;
        if hit.kind == Kind::Directory as u8 {
            return Err(Errno::EISDIR.into());
        }
        let now = pm::clock::now();
        let (slot, removed) = self.remove_entry(&mut tx, &hit, name.len())?;
        let touched = touch_directory(parent.inode, now, -1, 0);
        let fate = self.commit_removal(&mut tx, victim, &hit, now, (removed, touched))?;
        self.slot_freed(&parent, slot);
        tx.end();
        self.after_removal(cx, victim, hit.node, fate);
        Ok(())
    }

    /// The stores that remove entry, slot and edentry, whose name has `len` bytes; the slot's offset before them.
    #[inline(always)]
    pub(super) fn remove_entry<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        hit: &Hit,
        len: usize,
    ) -> Result<(u64, (Set<'a>, Set<'a>, ClearBits<'a>))> {
        let edentry = self.edentry(hit.edentry)?;
        let (at, slot) = self.slot_of(edentry)?;
        Ok((at, (self.remove(hit)?, Set { word: slot, value: 0 }, self.old_edentry(tx, hit.edentry, len)?)))
    }

    /// Commits a record of `stores` that removes a name of the locked inode
    /// `victim`; adds what that does to the inode, and takes the name from its cachelet.
    ///
    /// The cachelet is changing from before the commit on: whoever reads the text
    /// of a symlink notices that its lines may be another's.
    #[inline(always)]
    pub(super) fn commit_removal<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        victim: &Cachelet,
        hit: &Hit,
        now: i64,
        stores: S,
    ) -> Result<Fate> {
        let offset = node_offset(hit.node.id);
        let inode = self.inode(offset)?;
        let links = inode.links.load(Acquire);
        let (nlink, _) = unpack_links(links);
        let change = self.change(victim);
        if nlink > 1 {
            tx.commit_with((stores, links_change(inode, links, nlink - 1, now)))?;
            after_name(&change, nlink - 1, now);
            return Ok(Fate::Stays(nlink - 1));
        }
        let gone = match self.give_up_inode(tx, victim, hit.node.id, inode) {
            Ok(Some(gone)) => gone,
            other => {
                let kept = other.and_then(|_| tx.commit_with((stores, links_change(inode, links, 0, now))));
                return self.not_freed(tx, change, kept.map(|()| now));
            }
        };
        if let Err(error) = tx.commit_with((stores, gone)) {
            return self.not_freed(tx, change, Err(error));
        }
        after_name(&change, 0, now);
        drop(change);
        self.settle_victim(tx, victim, true);
        Ok(Fate::Freed)
    }

    /// The inode that has lost its last name stays for now (its ctime is given),
    /// or the record could not be committed.
    #[cold]
    #[inline(never)]
    fn not_freed(&self, tx: &Tx, victim: Change, kept: Result<i64>) -> Result<Fate> {
        if let Ok(now) = kept {
            after_name(&victim, 0, now);
        }
        let cachelet = victim.end();
        self.settle_victim(tx, cachelet, false);
        kept.map(|_| Fate::Orphan)
    }

    /// The directory stays for those who have it open: it has no name and no parent any more.
    #[cold]
    #[inline(never)]
    fn commit_orphan<S: Stores>(&self, tx: &mut Tx, id: u64, inode: &Inode, stores: S) -> Result<Fate> {
        let word = self.at(self.own_word(node_offset(id), inode)?, "own edentry")?;
        tx.commit_with((stores, Set { word, value: 0 })).map(|()| Fate::Orphan)
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
    pub(super) fn commit_directory_removal<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        victim: &Cachelet,
        id: u64,
        stores: S,
    ) -> Result<Fate> {
        let inode = self.inode(node_offset(id))?;
        let change = self.change(victim);
        let fate = match self.give_up_inode(tx, victim, id, inode) {
            Ok(Some(gone)) => match tx.commit_with((stores, gone)) {
                Ok(()) => Ok(Fate::Freed),
                Err(error) => Err(error),
            },
            Ok(None) => self.commit_orphan(tx, id, inode, stores),
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
