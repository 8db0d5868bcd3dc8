//! Making nodes: files, directories, devices, symlinks, and files without a name.

use super::inode::{Plan, inherit};
use super::{proper, symlink, touch_directory};
use crate::fs::Fs;
use crate::lane::record::Set;
use base::{Cx, Kind, NewNode, Node, Result};
use core::sync::atomic::Ordering::{Release, SeqCst};
use format::{inode, lane};
use pm::Errno;

/// `O_EXCL`, which with `O_TMPFILE` forbids a name later on.
const O_EXCL: u32 = pm::sys::abi::O_EXCL;

impl Fs {
    /// Makes a node called `name` in `dir`. See `vfs::Backend::create`.
    pub fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let name = proper(name)?;
        self.until_free(cx, || self.try_create(cx, dir, name, new))
    }

    fn try_create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let mut tx = match self.begin(cx, lane::Kind::Create) {
            Ok(tx) => tx,
            Err(error) => return Err(self.unless_exists(cx, dir, name, error)),
        };
        let parent = self.enter(&mut tx, cx, dir)?;
        if !parent.is_free_to(&cx.cred) {
            return Err(self.unless_exists(cx, dir, name, Errno::EACCES.into()));
        }
        let key = self.entry_key(parent.offset, name);
        let room = self.new_name(&mut tx, &key)?;
        check_kind(cx, new)?;
        // What has a record of its own comes first.
        let (at, slot) = self.reserve_any_slot(&mut tx, &parent)?;
        let (mode, gid) = inherit(cx, &parent, new.kind, new.mode);
        let permission = self.permission_index(&mut tx, cx.cred.uid, gid, mode)?;

        let directory = new.kind == Kind::Directory;
        let now = self.clock.now();
        let place = self.place_inode(&mut tx)?;
        let (edentry, allocated) = self.new_edentry(&mut tx, &key, new.kind as u8, place.id, at)?;
        let (root, size, text) = match new.kind {
            Kind::Symlink => {
                let (at, text) = self.new_text(&mut tx, new.target)?;
                (at, new.target.len() as u64, Some(text))
            }
            Kind::CharDevice | Kind::BlockDevice => (new.rdev, 0, None),
            _ => (0, 0, None),
        };
        let (spot, entry) = self.insert(&mut tx, room, key.hash, edentry)?;
        let uid = cx.cred.uid;
        let plan = Plan { kind: new.kind, mode, uid, gid, permission, flags: 0, nlink: 1, size, root, now };
        let own = if directory { edentry } else { 0 };
        let touched = touch_directory(parent.inode, now, 1, i8::from(directory));
        let stores = (allocated, Set { word: slot, value: edentry }, entry, touched, text);
        let (cachelet, number) = self.commit_fresh(&mut tx, &place, &plan, own, Some((&spot, &key)), stores)?;
        tx.slot_filled();
        self.release_fresh(tx.state, cachelet);
        drop(tx);
        if spot.is_full() {
            self.grow_index(cx);
        }
        Ok(Node { id: place.id, hint: number })
    }

    /// An operation could not begin, for `error`: that a directory may not be searched is the first thing wrong.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_closed_to(&self, cx: &Cx, dirs: [Node; 2], error: base::Error) -> base::Error {
        let searched = dirs.into_iter().try_for_each(|dir| self.searched(cx, dir).map(drop));
        searched.err().unwrap_or(error)
    }

    /// As [`Fs::unless_closed_to`], and then, that the name exists. Nothing is entered any more: who waits for
    /// that may be waited for here.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_exists(&self, cx: &Cx, dir: Node, name: &[u8], error: base::Error) -> base::Error {
        match self.lookup_outside(cx, dir, name) {
            Ok(_) => Errno::EEXIST.into(),
            Err(base::Error::Posix(Errno::ENOENT)) => error,
            Err(other) => other,
        }
    }

    /// Names may not be changed in `dir`: that the name cannot be found comes first.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_missing(&self, cx: &Cx, dir: Node, name: &[u8]) -> base::Error {
        self.lookup_outside(cx, dir, name).err().unwrap_or(Errno::EACCES.into())
    }

    /// A lookup by an operation that goes no further: it leaves the directories that it has entered.
    fn lookup_outside(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        if let Some(lane) = self.own_lane(cx.thread).get().checked_sub(1) {
            self.lane_state(lane).entered.iter().for_each(|entered| entered.store(0, Release));
        }
        self.lookup(cx, dir, name)
    }

    /// Makes a regular file without a name in the directory `dir` (`O_TMPFILE`).
    /// It is an orphan until it is linked or closed.
    pub fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32) -> Result<Node> {
        let mut tx = self.begin(cx, lane::Kind::Tmpfile)?;
        let parent = self.enter(&mut tx, cx, dir)?;
        parent.may_change(&cx.cred)?;
        let (mode, gid) = inherit(cx, &parent, Kind::Regular, mode);
        let permission = self.permission_index(&mut tx, cx.cred.uid, gid, mode)?;
        let place = self.place_inode(&mut tx)?;
        // Before the table names it: who frees what nobody has open looks here first. It stays until there is
        // another one: whether this one has been opened the lane need not be told.
        tx.state.unopened.store(place.id, SeqCst);
        self.add_orphan(&mut tx, place.id)?;
        let plan = Plan {
            kind: Kind::Regular,
            mode,
            uid: cx.cred.uid,
            gid,
            permission,
            flags: if flags & O_EXCL == 0 { inode::LINKABLE } else { 0 },
            nlink: 0,
            size: 0,
            root: 0,
            now: self.clock.now(),
        };
        let (cachelet, number) = self.commit_fresh(&mut tx, &place, &plan, 0, None, ())?;
        self.release_fresh(tx.state, cachelet);
        Ok(Node { id: place.id, hint: number })
    }

    /// What [`Fs::tmpfile`] has made could not be opened: it goes again.
    #[cold]
    pub fn forget_tmpfile(&self, cx: &Cx, node: Node) {
        self.free_orphan(cx, node);
    }
}

/// What may not be made, or not by everybody.
fn check_kind(cx: &Cx, new: &NewNode) -> Result<()> {
    match new.kind {
        Kind::CharDevice | Kind::BlockDevice if !cx.cred.privileged => Err(Errno::EPERM.into()),
        Kind::Symlink => symlink::check_target(new.target),
        _ => Ok(()),
    }
}
