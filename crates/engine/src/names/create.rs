//! Making nodes: files, directories, devices, symlinks, and files without a name.

use super::inode::{Plan, inherit};
use super::{Parent, proper, symlink, touch_directory};
use crate::fs::Fs;
use crate::index::{Room, Sought};
use crate::lane::lock::LATER;
use crate::lane::record::Set;
use crate::lane::{Begun, Tx};
use crate::segment::{Cachelet, LockWord};
use base::{Cx, Kind, Name, NewNode, Node, Result};
use core::convert::Infallible;
use core::sync::atomic::Ordering::{Release, SeqCst};
use format::{inode, lane};
use pm::Errno;

/// `O_EXCL`, which with `O_TMPFILE` forbids a name later on.
const O_EXCL: u32 = pm::sys::abi::O_EXCL;

impl Fs {
    /// Makes a node called `name` in `dir`. See `vfs::Backend::create`.
    pub fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        self.create_in_line(cx, dir, proper(name)?, new)
    }

    /// As [`Fs::create`], in one function with the caller.
    #[inline(always)]
    pub fn create_in_line(&self, cx: &Cx, dir: Node, name: Name, new: &NewNode) -> Result<Node> {
        self.create_seen(cx, dir, name, new).map(|(node, _)| node)
    }

    /// As [`Fs::create_in_line`], and tells the cachelet too.
    #[inline(always)]
    pub(crate) fn create_seen(&self, cx: &Cx, dir: Node, name: Name, new: &NewNode) -> Result<(Node, &Cachelet)> {
        let made = match self.is_plain() {
            true => self.create_as::<true>(cx, dir, name, new),
            false => self.create_in_any(cx.copied(), dir, name.bytes(), new.copied()),
        };
        match made {
            Err(LATER) => {
                let made = self.create_later(cx.copied(), dir, name.bytes(), new.copied())?;
                Ok(made)
            }
            made => made,
        }
    }

    /// Once an inode is free whose holder kept us waiting.
    #[cold]
    #[inline(never)]
    fn create_later(&self, cx: Cx, dir: Node, name: &[u8], new: NewNode) -> Result<(Node, &Cachelet)> {
        self.until_free(&cx, &|| self.create_in_any(cx, dir, name, new.copied()))
    }

    /// In any image, where that is allowed.
    #[inline(never)]
    fn create_in_any(&self, cx: Cx, dir: Node, name: &[u8], new: NewNode) -> Result<(Node, &Cachelet)> {
        self.create_as::<false>(&cx, dir, proper(name)?, &new)
    }

    /// `PLAIN`: as of [`Fs::is_plain`].
    #[inline(always)]
    fn create_as<const PLAIN: bool>(&self, cx: &Cx, dir: Node, name: Name, new: &NewNode) -> Result<(Node, &Cachelet)> {
        let mut tx = match self.begin_as(cx, lane::Kind::Create, PLAIN) {
            Ok(tx) => tx,
            Err(error) => match self.unless_exists(cx.copied(), dir, name.bytes(), error)? {},
        };
        let parent = self.enter(&mut tx, cx, dir)?;
        if !parent.is_free_to(&cx.cred) {
            match self.unless_exists(cx.copied(), dir, name.bytes(), Errno::EACCES.into())? {}
        }
        let Some(sought) = self.sought_short(parent.offset, name) else {
            let made = self.create_long(tx.pass_on(), cx.copied(), parent.copied(), name.copied(), new.copied())?;
            return Ok(made);
        };
        let lock = tx.lock_bucket(sought.hash)?;
        // Most have room at hand, of which the compiler makes a way without questions.
        if let Some(spot) = self.spot_at_hand(&sought)? {
            if !needs_no_look(new.kind) {
                check_kind(cx, new)?;
            }
            return self.make(&mut tx, cx, &parent, &sought, (lock, Room::At(spot)), new);
        }
        let made = self.make_anyhow(tx.pass_on(), cx.copied(), parent.copied(), sought.copied(), lock, new.copied())?;
        Ok(made)
    }

    /// A name that is not [short](Sought::is_short).
    #[inline(never)]
    fn create_long<'a>(
        &'a self,
        mut tx: Begun<'a>,
        cx: Cx,
        parent: Parent<'a>,
        name: Name,
        new: NewNode,
    ) -> Result<(Node, &'a Cachelet)> {
        let sought = self.sought(parent.offset, name);
        let lock = tx.lock_bucket(sought.hash)?;
        self.make_anyhow(tx, cx, parent, sought, lock, new)
    }

    /// As [`Fs::make`], of whatever it is, wherever there is room.
    #[inline(never)]
    fn make_anyhow<'a>(
        &'a self,
        mut tx: Begun<'a>,
        cx: Cx,
        parent: Parent<'a>,
        sought: Sought,
        lock: &LockWord,
        new: NewNode,
    ) -> Result<(Node, &'a Cachelet)> {
        let room = self.room_for(&sought)?;
        check_kind(&cx, &new)?;
        self.make(&mut tx, &cx, &parent, &sought, (lock, room), &new)
    }

    /// Makes a node in the directory entered, whose name has room in a bucket that is locked.
    #[inline(always)]
    fn make<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        parent: &Parent<'a>,
        sought: &Sought,
        (lock, room): (&LockWord, Room<'a>),
        new: &NewNode,
    ) -> Result<(Node, &'a Cachelet)> {
        // What has a record of its own comes first.
        let (at, slot) = self.reserve_any_slot(tx, parent)?;
        let (mode, gid) = inherit(cx, parent, new.kind, new.mode);
        let permission = self.permission_index(tx, cx.cred.uid, gid, mode)?;

        let directory = new.kind == Kind::Directory;
        let now = self.clock.now();
        let place = self.place_inode(tx)?;
        let (edentry, allocated) = self.new_edentry(tx, sought, new.kind as u8, place.id, at)?;
        let (root, size, text) = match new.kind {
            kind if needs_no_look(kind) => (0, 0, None),
            Kind::Symlink => {
                let (at, text) = self.new_text(tx, new.target)?;
                (at, new.target.len() as u64, Some(text))
            }
            Kind::CharDevice | Kind::BlockDevice => (new.rdev, 0, None),
            _ => (0, 0, None),
        };
        let (spot, entry) = match room {
            Room::At(spot) => (spot, spot.set(sought.hash, edentry)),
            _ => self.insert(tx, room, sought.hash, edentry)?,
        };
        let uid = cx.cred.uid;
        let plan = Plan { kind: new.kind, mode, uid, gid, permission, flags: 0, nlink: 1, size, root, now };
        let own = if directory { edentry } else { 0 };
        let touched = touch_directory(parent.inode, now, 1, i8::from(directory));
        let stores = (allocated, Set { word: slot, value: edentry }, entry, touched, text);
        let (cachelet, number) = self.commit_fresh(tx, &place, &plan, own, Some((&spot, sought)), stores)?;
        tx.slot_filled();
        self.release_fresh(tx.state, cachelet);
        tx.finish_holding([lock]);
        if spot.is_full() {
            self.grow_index(cx.copied());
        }
        Ok((Node { id: place.id, hint: number }, cachelet))
    }

    /// An operation could not begin, for `error`: that a directory may not be searched is the first thing wrong.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_closed_to(&self, cx: Cx, dirs: [Node; 2], error: base::Error) -> Result<Infallible> {
        let searched = dirs.into_iter().try_for_each(|dir| self.searched(&cx, dir).map(drop));
        Err(searched.err().unwrap_or(error))
    }

    /// As [`Fs::unless_closed_to`], and then, that the name exists. Nothing is entered any more: who waits for
    /// that may be waited for here.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_exists(&self, cx: Cx, dir: Node, name: &[u8], error: base::Error) -> Result<Infallible> {
        Err(match self.lookup_outside(&cx, dir, name) {
            Ok(_) => Errno::EEXIST.into(),
            Err(base::Error::Posix(Errno::ENOENT)) => error,
            Err(other) => other,
        })
    }

    /// Names may not be changed in `dir`: that the name cannot be found comes first.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_missing(&self, cx: Cx, dir: Node, name: &[u8]) -> Result<Infallible> {
        Err(self.lookup_outside(&cx, dir, name).err().unwrap_or(Errno::EACCES.into()))
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
        tx.aside_taking(
            #[inline(always)]
            |tx| self.add_orphan(tx, place.id),
        )?;
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

/// Files, directories and sockets, which everybody may make, and which begin empty.
#[inline(always)]
fn needs_no_look(kind: Kind) -> bool {
    kind as u8 & 3 == 0
}

/// What may not be made, or not by everybody.
#[inline(always)]
fn check_kind(cx: &Cx, new: &NewNode) -> Result<()> {
    match new.kind {
        Kind::CharDevice | Kind::BlockDevice if !cx.cred.privileged => Err(Errno::EPERM.into()),
        Kind::Symlink => symlink::check_target(new.target),
        _ => Ok(()),
    }
}
