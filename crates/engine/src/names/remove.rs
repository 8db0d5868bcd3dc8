//! Removing a name, and what that does to its inode.

use super::inode::links_change;
use super::{proper, touch_directory};
use crate::fs::Fs;
use crate::index::Hit;
use crate::lane::Tx;
use crate::lane::record::{ClearBits, Empty, Set, Stores};
use crate::segment::cache::Change;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::inode::{Inode, node_offset, unpack_links};
use format::lane;
use pm::Errno;

/// What becomes of the inode of a name removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has other names.
    Stays,
    /// Somebody has it open, or it is too large for one record.
    Orphan,
    /// It goes with the name.
    Freed,
}

/// The types behind which the kernel has an object, a bit each.
const WITH_OBJECT: u32 =
    1 << Kind::Fifo as u32 | 1 << Kind::Socket as u32 | 1 << Kind::CharDevice as u32 | 1 << Kind::BlockDevice as u32;

/// Tells the caller that a FIFO, socket or device has lost its last name.
#[inline]
pub(super) fn note_gone(cx: &Cx, hit: &Hit, fate: Fate) {
    if WITH_OBJECT >> (hit.kind & 31) & 1 != 0 && fate != Fate::Stays {
        cx.thread.gone.set(Kind::from_dt(hit.kind).map(|kind| (hit.node.id, kind)));
    }
}

impl Fs {
    /// Removes a name that is not a directory. See `vfs::Backend::unlink`.
    pub fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let name = proper(name)?;
        self.until_free(cx, || self.try_unlink(cx, dir, name))
    }

    fn try_unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let mut tx = match self.begin(cx, lane::Kind::Unlink) {
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
        if hit.kind == Kind::Directory as u8 {
            return Err(Errno::EISDIR.into());
        }
        let now = self.clock.now();
        let (slot, removed) = self.remove_entry(&mut tx, &hit, name.len())?;
        let touched = touch_directory(parent.inode, now, -1, 0);
        let fate = self.commit_removal(&mut tx, victim, &hit, now, (removed, touched))?;
        self.slot_freed(&parent, slot);
        drop(tx);
        note_gone(cx, &hit, fate);
        self.after_removal(cx, victim, hit.node, fate);
        Ok(())
    }

    /// The stores that remove entry, slot and edentry, whose name has `len` bytes; the slot's offset before them.
    pub(super) fn remove_entry<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        hit: &Hit<'a>,
        len: usize,
    ) -> Result<(u64, (Set<'a>, Empty<'a>, ClearBits<'a>))> {
        let (at, slot) = self.slot_of(hit)?;
        Ok((at, (self.remove(hit)?, Empty { word: slot, was: hit.edentry }, self.old_edentry(tx, hit.edentry, len)?)))
    }

    /// Commits a record of `stores` that removes a name of the locked inode
    /// `victim`; adds what that does to the inode, and takes the name from its cachelet.
    ///
    /// The cachelet is changing from before the commit on: whoever reads the text
    /// of a symlink notices that its lines may be another's.
    pub(super) fn commit_removal<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        victim: &Cachelet,
        hit: &Hit,
        now: i64,
        stores: S,
    ) -> Result<Fate> {
        let id = hit.node.id;
        let inode = self.inode(node_offset(id))?;
        let change = self.change(victim);
        if unpack_links(inode.links.load(Acquire)).0 > 1 {
            return self.commit_stays(tx, change, inode, now, stores);
        }
        let gone = match self.give_up_inode(tx, victim, id, inode) {
            Ok(Some(gone)) => gone,
            Ok(None) => return self.commit_stays(tx, change, inode, now, stores),
            Err(error) => return Err(self.not_removed(tx.number, change, error)),
        };
        if let Err(error) = tx.commit_with((stores, gone)) {
            return Err(self.not_removed(tx.number, change, error));
        }
        after_name(&change, 0, now);
        self.settle_victim(tx.number, change.end(), true);
        Ok(Fate::Freed)
    }

    /// As `commit_removal`, for an inode that stays: it has other names, or is an orphan now.
    fn commit_stays<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        victim: Change,
        inode: &'a Inode,
        now: i64,
        stores: S,
    ) -> Result<Fate> {
        let links = inode.links.load(Acquire);
        let left = unpack_links(links).0.saturating_sub(1);
        let kept = tx.commit_with((stores, links_change(inode, links, left, now)));
        if kept.is_ok() {
            after_name(&victim, left, now);
        }
        let cachelet = victim.end();
        if left == 0 {
            self.settle_victim(tx.number, cachelet, false);
        }
        kept.map(|()| if left == 0 { Fate::Orphan } else { Fate::Stays })
    }

    /// The record could not be committed: openers may go on.
    #[cold]
    #[inline(never)]
    fn not_removed(&self, lane: u32, victim: Change, error: base::Error) -> base::Error {
        let cachelet = victim.end();
        self.settle_victim(lane, cachelet, false);
        error
    }

    /// The directory stays for those who have it open: it has no name and no parent any more.
    #[cold]
    #[inline(never)]
    fn commit_orphan(&self, tx: &mut Tx, victim: Change, id: u64, inode: &Inode, listed: Result<()>) -> Result<Fate> {
        let own = listed.and_then(|()| self.own_word(node_offset(id), inode));
        let own = own.and_then(|own| self.at::<AtomicU64>(own, "own edentry"));
        if let Err(error) = own.and_then(|own| tx.set(self.image.offset_of(own), 0)).and_then(|()| tx.commit()) {
            return Err(self.not_removed(tx.number, victim, error));
        }
        let cachelet = after_directory(victim, 0);
        self.settle_victim(tx.number, cachelet, false);
        Ok(Fate::Orphan)
    }

    /// After the operation, with nothing held: an orphan that nobody has open
    /// (too large for the record, or closed meanwhile) is freed at once.
    pub(super) fn after_removal(&self, cx: &Cx, victim: &Cachelet, node: Node, fate: Fate) {
        // Whoever has it open keeps its cachelet.
        if fate == Fate::Orphan && (victim.opens.load(SeqCst) == 0 || victim.node.load(SeqCst) != node.id) {
            self.finish_beside_others(cx);
            self.free_orphan(cx, node);
        }
    }

    /// Commits a record of `stores` that removes the empty, closed, locked directory `victim`.
    pub(super) fn commit_directory_removal<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        victim: &Cachelet,
        id: u64,
        stores: S,
    ) -> Result<Fate> {
        let inode = self.inode(node_offset(id))?;
        let change = self.change(victim);
        let gone = match self.give_up_inode(tx, victim, id, inode) {
            Ok(Some(gone)) => gone,
            Ok(None) => {
                let listed = tx.list(stores);
                return self.commit_orphan(tx, change, id, inode, listed);
            }
            Err(error) => return Err(self.not_removed(tx.number, change, error)),
        };
        if let Err(error) = tx.commit_with((stores, gone)) {
            return Err(self.not_removed(tx.number, change, error));
        }
        // Openers may go on when the operation ends, which opens the directory.
        after_directory(change, cachelet::DEAD);
        Ok(Fate::Freed)
    }
}

/// Lets the cachelet of a directory say that it has lost its name, and what the flag `dead` says.
fn after_directory(change: Change<'_>, dead: u32) -> &Cachelet {
    change.parent.store(0, Relaxed);
    change.flags.fetch_or(cachelet::REMOVED | dead, SeqCst);
    change.end()
}

/// What the cachelet of an inode says once a name of it is gone.
fn after_name(change: &Cachelet, nlink: u32, now: i64) {
    change.nlink.store(nlink, Relaxed);
    change.ctime.store(now as u64, Relaxed);
    // Which of its names it carries is not asked: the next lookup gives it one again.
    change.parent.store(0, Relaxed);
}
