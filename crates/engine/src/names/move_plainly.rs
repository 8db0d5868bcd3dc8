//! The usual rename: something that is no directory moves to a name that is free.
//!
//! It can make no circle, nothing is replaced, and nobody else's name goes. So
//! nothing is looked at without locks first: both buckets are locked, the names
//! are looked up, and what they say counts.

use super::inode::ctime_change;
use super::{Parent, touch_directory};
use crate::fs::{Fs, corrupt};
use crate::index::{EntryKey, Room};
use crate::lane::Tx;
use crate::lane::record::{Empty, Set};
use crate::segment::cache::write_name;
use base::{Cx, Kind, Result};
use core::sync::atomic::Ordering::Relaxed;
use format::inode::node_offset;

impl Fs {
    /// Moves a name of `a` to a free one of `b`; both are entered, and names may
    /// be changed in them. `None`: this is not the usual case; nothing has
    /// happened, and nothing is locked. Else whether the index wants to grow.
    pub(super) fn move_plainly<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        (a, b): (&Parent<'a>, &Parent<'a>),
        (from, to): (&EntryKey, &EntryKey),
    ) -> Result<Option<bool>> {
        tx.lock_buckets(from.hash, to.hash)?;
        let (hit, spot) = match (self.hit(from)?, self.room(to)?) {
            (Some(hit), Room::At(spot)) if hit.kind != Kind::Directory as u8 => (hit, spot),
            _ => {
                tx.unlock_all();
                return Ok(None);
            }
        };
        let cross = a.seen.id != b.seen.id;
        let (old_at, old_slot) = self.slot_of(&hit)?;
        // In its directory a name keeps its place, so that readers see it once.
        let (at, slot) = if cross { self.reserve_any_slot(tx, b)? } else { (old_at, old_slot) };
        let cachelet = self.lock_named(tx, cx, hit.node)?;
        if (cachelet.mode.load(Relaxed) >> 16) as u8 != hit.kind {
            return Err(corrupt("type in an edentry", hit.edentry));
        }
        let inode = self.inode(node_offset(hit.node.id))?;
        let now = self.clock.now();
        let (edentry, allocated) = self.new_edentry(tx, to, hit.kind, hit.node.id, at)?;
        let (spot, entry) = self.insert(tx, Room::At(spot), to.hash, edentry)?;
        self.lead(&spot, self.cachelet_number(cachelet));
        // The new name comes before the old one goes.
        let new = (allocated, entry, Set { word: slot, value: edentry });
        let gone = (self.remove(&hit)?, self.old_edentry(tx, hit.edentry, from.name.len())?);
        let across = cross.then(|| (Empty { word: old_slot, was: hit.edentry }, touch_directory(b.inode, now, 1, 0)));
        let left = touch_directory(a.inode, now, -i8::from(cross), 0);
        tx.commit_with((new, gone, ctime_change(inode, now), left, across))?;
        if cross {
            tx.slot_filled();
            self.slot_freed(a, old_at);
        }
        let change = self.change(cachelet);
        change.ctime.store(now as u64, Relaxed);
        let kept = if to.fits_cachelet() {
            write_name(&change, to);
            to.name.len() as u32
        } else {
            change.parent.store(0, Relaxed);
            0
        };
        change.mode.store(change.mode.load(Relaxed) & 0xff_ffff | kept << 24, Relaxed);
        drop(change);
        Ok(Some(spot.is_full()))
    }
}
