//! The permission table (DenseFS §3.1): an inode's owner and mode in 16 bits.
//!
//! Entries are only ever added, under one lock, and never change: readers and
//! searches need no lock. An entry is durable before anybody refers to it: where
//! stores do not last by themselves, who finds one while another adds waits for the lock.

use crate::alloc::fault;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::layout;
use format::permission::{Permission, VALID, start};
use pm::{Domain, Errno};

/// Where a triple is, or where it would go.
enum Place {
    At(u16),
    Free(u16),
}

/// Numbers of users and groups below this have room in a word, beside a mode and an index. Others are looked up each time.
const FOUND_ID_END: u32 = 0x3_ffff;
/// No triple and its index, in a word.
pub(crate) const NOT_FOUND: u64 = u64::MAX;

/// A triple of small numbers, and its index, in a word.
#[inline]
const fn found_at(uid: u32, gid: u32, mode: u16, index: u16) -> u64 {
    triple(uid, gid, mode) << 16 | index as u64
}

/// The triple in the upper 48 bits of that word.
#[inline]
const fn triple(uid: u32, gid: u32, mode: u16) -> u64 {
    ((uid as u64) << 18 | gid as u64) << 12 | mode as u64
}

/// Whether an entry is that of this triple.
#[inline]
fn is_for(entry: &Permission, uid: u32, gid: u32, mode: u16) -> bool {
    let owner = u64::from(gid) << 32 | u64::from(uid);
    entry.mode.load(Acquire) == VALID | u64::from(mode) && entry.owner.load(Acquire) == owner
}

impl Fs {
    #[inline]
    fn permission_entry(&self, index: u16) -> &Permission {
        self.permissions.get(u32::from(index))
    }

    /// The owner and mode behind an index: (uid, gid, 12 bits of mode).
    #[inline]
    pub(crate) fn permission(&self, index: u16) -> Result<(u32, u32, u16)> {
        let entry = self.permission_entry(index);
        let mode = entry.mode.load(Acquire);
        if mode & VALID == 0 {
            return Err(corrupt("permission index", u64::from(index)));
        }
        let owner = entry.owner.load(Acquire);
        Ok((owner as u32, (owner >> 32) as u32, (mode & 0o7777) as u16))
    }

    /// The index of a triple, which is entered if it is new. `ENOSPC` if the
    /// table is full. Takes a leaf lock for a while.
    #[inline]
    pub(crate) fn permission_index<'a>(&'a self, tx: &mut Tx<'a>, uid: u32, gid: u32, mode: u16) -> Result<u16> {
        // A directory and a file have different modes as a rule, two of either the same.
        let found = &self.permissions_found[usize::from(mode & 1)];
        let seen = found.load(Relaxed);
        let is_small = uid | gid < FOUND_ID_END;
        if seen >> 16 == triple(uid, gid, mode) && is_small && (tx.plain || self.is_settled()) {
            return Ok(seen as u16);
        }
        let index = self.find_or_add_permission(tx, uid, gid, mode)?;
        if is_small {
            found.store(found_at(uid, gid, mode, index), Relaxed);
        }
        Ok(index)
    }

    #[cold]
    #[inline(never)]
    fn find_or_add_permission<'a>(&'a self, tx: &mut Tx<'a>, uid: u32, gid: u32, mode: u16) -> Result<u16> {
        match self.find_permission(uid, gid, mode)? {
            Place::At(index) if self.is_settled() => Ok(index),
            _ => self.add_permission(tx, uid, gid, mode),
        }
    }

    /// Whether an entry found before is durable: nobody is adding one. (Whoever
    /// stored it held the lock from before until it was.)
    #[inline]
    fn is_settled(&self) -> bool {
        self.image.domain() == Domain::Process || self.header().permission.0.load(Acquire) == 0
    }

    fn find_permission(&self, uid: u32, gid: u32, mode: u16) -> Result<Place> {
        let first = start(uid, gid, mode);
        for step in 0..layout::PERMISSIONS {
            let index = first.wrapping_add(step as u16);
            let entry = self.permission_entry(index);
            if is_for(entry, uid, gid, mode) {
                return Ok(Place::At(index));
            }
            if entry.mode.load(Acquire) & VALID == 0 {
                return Ok(Place::Free(index));
            }
        }
        Err(Errno::ENOSPC.into())
    }

    #[cold]
    #[inline(never)]
    fn add_permission<'a>(&'a self, tx: &mut Tx<'a>, uid: u32, gid: u32, mode: u16) -> Result<u16> {
        let keep = tx.held;
        tx.lock(&self.header().permission.0)?;
        let result = self.add_permission_locked(uid, gid, mode);
        tx.unlock_to(keep);
        result
    }

    fn add_permission_locked(&self, uid: u32, gid: u32, mode: u16) -> Result<u16> {
        let index = match self.find_permission(uid, gid, mode)? {
            Place::At(index) => {
                // Who added it may have died before it was durable.
                self.settle(self.permission_entry(index));
                return Ok(index);
            }
            Place::Free(index) => index,
        };
        if fault::strikes(fault::Kind::Permission) {
            return Err(Errno::ENOSPC.into());
        }
        let entry = self.permission_entry(index);
        let image = &self.image;
        // Both words are in one line, which reaches the medium in the order of its stores.
        image.store(&entry.owner, u64::from(gid) << 32 | u64::from(uid));
        image.store(&entry.mode, VALID | u64::from(mode));
        self.settle(entry);
        Ok(index)
    }

    /// Makes an entry durable.
    fn settle(&self, entry: &Permission) {
        self.image.flush(self.image.offset_of(entry), 16);
        self.image.fence();
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use base::{Kind, NewNode, SetAttr};
    use format::inode::node_offset;
    use std::format;

    /// Goal: an inode gets its own owner and mode, wherever the entry of the one
    /// before was found. Method: users, groups and modes, each after each other one.
    #[test]
    fn each_gets_its_own() {
        let test = TestFs::new(64 << 20);
        test.set_attr(&test.cx(), test.root_node(), &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
        let make = |name: &str, which: u32| {
            // Two of each: numbers that have room in a word, and ones that would look like these there.
            let uid = [1000, 1000 | 1 << 18, 1001][which as usize % 3];
            let gid = [50, 50 | 1 << 18][which as usize / 3 % 2];
            let mode = [0o640, 0o711, 0o755][which as usize / 6];
            let cx = test.cx_as(uid, gid);
            let new = NewNode { kind: Kind::Regular, mode, rdev: 0, target: b"" };
            let node = test.create(&cx, test.root_node(), name.as_bytes(), &new).unwrap();
            let index = test.inode(node_offset(node.id)).unwrap().head().permission;
            assert_eq!(test.permission(index), Ok((uid, gid, mode & !cx.umask)), "{name}");
        };
        for (first, second) in (0..18).flat_map(|first| (0..18).map(move |second| (first, second))) {
            make(&format!("{first} before {second}"), first);
            make(&format!("{second} after {first}"), second);
        }
    }
}
