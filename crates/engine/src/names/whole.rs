//! Making a node that is a copy: with owner, mode, times and what is known of its original, in one record.

use super::inode::Plan;
use super::{proper, touch_directory};
use crate::alloc::Arena;
use crate::fs::Fs;
use crate::lane::record::Set;
use crate::lower::Stamp;
use base::{Cx, Kind, Node, Result};
use format::{LINE, inode, lane};

/// A node to be made as its original is.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Type.
    pub kind: Kind,
    /// 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For devices.
    pub rdev: u64,
    /// For symlinks.
    pub target: &'a [u8],
    /// Size, times, and which file it is.
    pub stamp: Stamp,
    /// Bits of the state (`format::cache::state`).
    pub state: u64,
    /// Such bits of the directory's state with any of which it is not to be made.
    pub unless: u64,
}

impl Fs {
    /// Makes a node called `name` in `dir`. Times of the directory stay. `EEXIST`; `EAGAIN` ([`Whole::unless`]).
    pub fn create_whole(&self, cx: &Cx, dir: Node, name: &[u8], new: &Whole) -> Result<Node> {
        self.until_free(cx, || self.create_whole_once(cx, dir, name, new))
    }

    fn create_whole_once(&self, cx: &Cx, dir: Node, name: &[u8], new: &Whole) -> Result<Node> {
        let mut tx = self.begin(cx, lane::Kind::Create)?;
        let parent = self.enter(&mut tx, cx, dir)?;
        let key = self.entry_key(parent.offset, proper(name)?);
        let room = self.new_name(&mut tx, &key)?;
        // What has a record of its own comes first.
        let (at, slot) = self.reserve_any_slot(&mut tx, &parent)?;
        self.keep_marks(&mut tx, &parent, new.unless)?;
        let permission = self.permission_index(&mut tx, new.uid, new.gid, new.mode)?;
        let place = self.place_inode(&mut tx)?;
        let (edentry, allocated) = self.new_edentry(&mut tx, &key, new.kind as u8, place.id, at)?;
        let cold = tx.lines(2, Arena::Other)?;
        self.write_lower(cold, edentry, &new.stamp, new.state)?;
        tx.object(cold, 2)?;
        let (root, text) = match new.kind {
            Kind::Symlink => {
                let (at, text) = self.new_text(&mut tx, new.target)?;
                (at, Some(text))
            }
            Kind::CharDevice | Kind::BlockDevice => (new.rdev, None),
            _ => (0, None),
        };
        let (spot, entry) = self.insert(&mut tx, room, key.hash, edentry)?;
        let plan = Plan {
            kind: new.kind,
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            permission,
            flags: inode::COLD,
            nlink: 1,
            size: match new.kind {
                Kind::Regular => new.stamp.size,
                Kind::Symlink => new.target.len() as u64,
                _ => 0,
            },
            root,
            now: new.stamp.mtime,
        };
        // It is not the directory that has changed, but what is known of it.
        let touched = touch_directory(parent.inode, i64::MIN, 1, i8::from(new.kind == Kind::Directory));
        tx.object(place.offset, 1)?;
        let cachelet = self.new_cachelet(tx.number, tx.state)?;
        let number = self.cachelet_number(cachelet);
        self.fill_fresh(cachelet, place.id, &plan, Some(&key));
        self.write_inode(&place, &plan, cold, number);
        self.image.store(&place.inode.ctime, new.stamp.ctime as u64);
        self.image.flush(place.offset, LINE);
        {
            // Nobody can have found it yet.
            let change = self.change(cachelet);
            change.ctime.store(new.stamp.ctime as u64, core::sync::atomic::Ordering::Relaxed);
            let flags = self.show_lower(&change, place.inode)?.unwrap_or(0);
            change.flags.fetch_or(flags, core::sync::atomic::Ordering::Relaxed);
        }
        self.lead(&spot, number);
        tx.files(1);
        let stores = (place.allocated, allocated, Set { word: slot, value: edentry }, entry, touched, text);
        if let Err(error) = tx.commit_with(stores) {
            self.forget_fresh(tx.state, cachelet);
            return Err(error);
        }
        tx.slot_filled();
        self.release_fresh(tx.state, cachelet);
        drop(tx);
        if spot.is_full() {
            self.grow_index(cx);
        }
        Ok(Node { id: place.id, hint: number })
    }
}
