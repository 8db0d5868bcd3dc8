//! Making an inode and giving one up, as parts of an operation's record.

use super::{Parent, SET_GID};
use crate::alloc::Arena;
use crate::file::reclaim::Gone;
use crate::fs::Fs;
use crate::index::{EntryKey, Spot};
use crate::lane::Tx;
use crate::lane::record::{Set, SetBits, Stores};
use crate::segment::LaneState;
use crate::segment::cache::write_name;
use crate::segment::cachelet::{self, Cachelet, pack_mode};
use crate::segment::device::UNTOLD;
use base::{Cx, Kind, Result};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use format::LINE;
use format::inode::{Head, Inode, pack_links};
use pm::Errno;

/// What a new inode is to be.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// 12 bits, after umask and the directory's say.
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Index of the three.
    pub(crate) permission: u16,
    /// Flags of the inode.
    pub(crate) flags: u8,
    /// 1, or 0 for a file without a name. Not used for directories.
    pub(crate) nlink: u32,
    /// Length of a symlink's text.
    pub(crate) size: u64,
    /// Device number, or offset of a symlink's text.
    pub(crate) root: u64,
    pub(crate) now: i64,
}

/// Where a new inode goes.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) offset: u64,
    /// Node id: the place and its next generation.
    pub(crate) id: u64,
    pub(super) inode: &'a Inode,
    /// The store that allocates its line.
    pub(super) allocated: SetBits<'a>,
}

/// Kind of new node, mode, owner and group as the kernel makes them: the mode
/// asked for, umask, and a set-group-id directory (`inode_init_owner`, `mode_strip_sgid`).
#[inline(always)]
pub(crate) fn inherit(cx: &Cx, parent: &Parent, kind: Kind, asked: u16) -> (u16, u32) {
    let cred = &cx.cred;
    let mut mode = match kind {
        Kind::Symlink => 0o777,
        Kind::Directory => asked & 0o1777 & !cx.umask,
        _ => asked & 0o7777 & !cx.umask,
    };
    if parent.seen.mode() & SET_GID == 0 {
        return (mode, cred.gid);
    }
    let gid = parent.seen.gid;
    if kind == Kind::Directory {
        mode |= SET_GID;
    } else if asked & (SET_GID | 0o10) == SET_GID | 0o10 && !cred.in_group(gid) && !cred.is_privileged_over(parent.seen.uid, gid)
    {
        mode &= !SET_GID;
    }
    (mode, gid)
}

impl Fs {
    /// Allocates the line of a new inode.
    #[inline(always)]
    pub(crate) fn place_inode<'a>(&'a self, tx: &mut Tx<'a>) -> Result<Place<'a>> {
        let (offset, inode, allocated) = tx.new_place::<Inode>(1, Arena::Inodes)?;
        // Whatever stood here: the next generation, of which `node_id` keeps 24 bits.
        let generation = (inode.head.load(Relaxed) >> 32) + 1;
        Ok(Place { offset, id: (generation << 40) | (offset / LINE), inode, allocated })
    }

    /// Writes a new inode and its cachelet, and commits the record with `stores`.
    /// `own` is the edentry of a directory; `name` is where the cachelet says it
    /// stands, and where an entry leads to it. Returns the cachelet and its
    /// number; `owner` is held and listed until [`Fs::release_fresh`].
    #[inline(always)]
    pub(crate) fn commit_fresh<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        place: &Place,
        plan: &Plan,
        own: u64,
        name: Option<(&Spot, &EntryKey)>,
        stores: S,
    ) -> Result<(&'a Cachelet, u32)> {
        tx.object(place.offset, 1)?;
        let cachelet = self.new_cachelet(tx.number, tx.state)?;
        let number = self.cachelet_number(cachelet);
        self.fill_fresh(cachelet, place.id, plan, name.map(|(_, key)| key));
        self.write_inode(place, plan, own, number);
        if !tx.plain {
            self.image.flush(place.offset, LINE);
        }
        if let Some((spot, _)) = name {
            self.lead(spot, number);
        }
        tx.files(1);
        match tx.commit_with((place.allocated, stores)) {
            Ok(()) => Ok((cachelet, number)),
            Err(error) => {
                self.forget_fresh(tx.state, cachelet);
                Err(error)
            }
        }
    }

    #[inline(always)]
    pub(super) fn write_inode(&self, place: &Place, plan: &Plan, own: u64, cachelet: u32) {
        let (image, inode) = (&self.image, place.inode);
        let generation = (place.id >> 40) as u32;
        let head = Head { generation, flags: plan.flags, kind: plan.kind as u8, permission: plan.permission };
        image.store(&inode.head, head.pack());
        image.store(&inode.links, if plan.kind == Kind::Directory { 0 } else { pack_links(plan.nlink, 0) });
        image.store(&inode.size, plan.size);
        image.store(&inode.mtime, plan.now as u64);
        image.store(&inode.ctime, plan.now as u64);
        image.store(&inode.root, plan.root);
        // 0: it has none.
        image.store_volatile(&inode.cachelet, u64::from(self.generation) << 32 | u64::from(cachelet.wrapping_add(1)));
        image.store(&inode.extra, own);
    }

    /// Fills the cachelet of a new inode, without asking the inode.
    #[inline(always)]
    pub(super) fn fill_fresh(&self, cachelet: &Cachelet, id: u64, plan: &Plan, name: Option<&EntryKey>) {
        let change = self.change(cachelet);
        change.node.store(id, SeqCst);
        change.flags.store(cachelet::REFERENCED, Relaxed);
        let mut name_len = 0;
        match name {
            Some(key) if key.fits_cachelet() => {
                name_len = key.name.len() as u8;
                write_name(&change, key);
            }
            _ => change.parent.store(0, Relaxed),
        }
        change.mode.store(pack_mode(name_len, plan.kind as u8, plan.mode), Relaxed);
        change.uid.store(plan.uid, Relaxed);
        change.gid.store(plan.gid, Relaxed);
        change.nlink.store(plan.nlink, Relaxed);
        change.blocks.store(0, Relaxed);
        change.size.store(plan.size, Relaxed);
        change.mtime.store(if plan.kind == Kind::Directory { UNTOLD } else { plan.now as u64 }, Relaxed);
        change.ctime.store(plan.now as u64, Relaxed);
        change.root.store(if plan.kind == Kind::Directory { 0 } else { plan.root }, Relaxed);
    }

    /// After the commit: lets go of a new inode's cachelet.
    pub(crate) fn release_fresh(&self, state: &LaneState, cachelet: &Cachelet) {
        cachelet.owner.store(0, Release);
        state.loading_cachelet.store(0, Release);
    }

    /// The commit failed: the cachelet is nobody's again.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_fresh(&self, state: &LaneState, cachelet: &Cachelet) {
        cachelet.node.store(0, SeqCst);
        cachelet.parent.store(0, SeqCst);
        self.release_fresh(state, cachelet);
    }

    /// Lets a cachelet whose `owner` is held carry a name, or none if it is too long.
    pub(crate) fn name_cachelet(&self, cachelet: &Cachelet, key: &EntryKey) {
        if key.fits_cachelet() {
            self.set_name(cachelet, key);
        } else if cachelet.parent.load(Relaxed) != 0 {
            self.forget_name(cachelet);
        }
    }

    /// Records that a locked inode loses its last name. Returns the stores that
    /// make it go with the name, for the record; `None` if it stays as an orphan:
    /// somebody has it open, or it is too large for this record.
    ///
    /// Openers count first and then look at `EVICTING` (`process::descriptions`);
    /// we do it the other way round. The flag stays until [`Fs::settle_victim`].
    pub(crate) fn give_up_inode<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cachelet: &Cachelet,
        id: u64,
        inode: &'a Inode,
    ) -> Result<Option<Gone<'a>>> {
        if keep_openers_out(tx, cachelet)
            && let Some(gone) = self.free_small(tx, inode)?
        {
            return Ok(Some(gone));
        }
        self.add_orphan(tx, id)?;
        Ok(None)
    }

    /// After the commit of this lane, or after it failed: openers may go on; `dead` tells them what they find.
    pub(crate) fn settle_victim(&self, lane: u32, cachelet: &Cachelet, dead: bool) {
        if dead {
            cachelet.flags.fetch_or(cachelet::DEAD, SeqCst);
        }
        let flags = cachelet.flags.load(SeqCst);
        if flags & cachelet::DELETING != 0 {
            // A directory closed by this operation, which opens it at its end.
            cachelet.flags.fetch_and(!cachelet::EVICTING, SeqCst);
        } else if cachelet::closer(flags) == lane + 1 {
            cachelet.flags.fetch_and(!(cachelet::EVICTING | cachelet::CLOSER), SeqCst);
        }
    }

    /// `EMLINK` if an inode cannot have another name.
    pub(crate) fn check_links(&self, nlink: u32) -> Result<()> {
        if nlink >= super::LINKS_MAX { Err(Errno::EMLINK.into()) } else { Ok(()) }
    }
}

/// Whether nobody has an inode open, and nobody opens it, until [`Fs::settle_victim`].
fn keep_openers_out(tx: &Tx, cachelet: &Cachelet) -> bool {
    let closed = cachelet::EVICTING | cachelet::closed_by(tx.number);
    cachelet.flags.fetch_or(closed, SeqCst);
    cachelet.opens.load(SeqCst) == 0
}

/// The stores for one name less (or more) of a locked inode that is no
/// directory, whose links word is `links`.
pub(crate) fn links_change(inode: &Inode, links: u64, nlink: u32, now: i64) -> (Set<'_>, Set<'_>) {
    let blocks = links & 0xffff_ffff_0000_0000;
    (Set { word: &inode.links, value: blocks | u64::from(nlink) }, ctime_change(inode, now))
}

/// The store for a change of a locked inode that is no directory.
pub(super) fn ctime_change(inode: &Inode, now: i64) -> Set<'_> {
    Set { word: &inode.ctime, value: now as u64 }
}
