//! Keeping what is here equal to what is below.
//!
//! Who reads warm asks nothing and is told nothing: so what has changed below must change here without being asked for.
//! A server goes through the directories that are here, looks at each original, and takes note:
//!
//! - an original that is another file, or none: its name goes here, with all below it. Who has it open keeps what was read;
//! - one whose contents have changed: what is here of them goes, and is read again when somebody wants it;
//! - one whose attributes have changed: they change here too;
//! - a directory whose times have changed is listed anew.
//!
//! Where the kernel tells of changes ([`watch`](crate::watch)), single names are looked at as soon as it does; and all of
//! them (a round) once in a while, and where it tells nothing: then a change is seen within the time of one round and the
//! pause between two (`actimeo`), NFS's promise. A file that is opened afterwards has the new contents.

use crate::compare::is_sure;
use crate::lower::{Handle, Original, Path, is_of_one};
use crate::watch::Look;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use core::ffi::CStr;
use engine::lower::{Change, Known, Stamp, bits};
use engine::watch::events::Event;

/// Most levels of directories that a round goes down.
const DEPTH_MAX: u32 = 512;

/// The directory below in which rounds keep what is on its way.
const PARK: &CStr = c".bypath-park";

/// How long nobody changes anything at most while a name is removed, given or moved, nanoseconds.
pub(crate) const CLOSED: u64 = 100_000_000;

/// Longest time from a look below until it is noted when that was, nanoseconds.
const LOOK_MAX: i64 = 1_000_000_000;

/// After so many names it is asked whether the look goes on.
const NAMES: u64 = 256;

/// Longest tick of the clock that the lower file system takes times from, nanoseconds, and as much again.
pub(crate) const TICK: i64 = 20_000_000;

/// What a round has found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Round {
    /// Names that were looked at.
    pub looked: u64,
    /// Names that went.
    pub gone: u64,
    /// Names whose originals had changed.
    pub changed: u64,
}

/// Whether an original at another name is the one that was known. Another file may have got its number: then its time of change is
/// another, and it was made after the other one was seen.
fn is_what_was(known: &Known, original: &Original) -> bool {
    let was_there = original.attr.btime.is_some_and(|born| known.seen.saturating_sub(born) > LOOK_MAX);
    known.stamp.has_same_contents(&original.stamp) || was_there && known.stamp.is_same_file(&original.stamp)
}

/// How far a look goes, and what it has found.
pub(crate) struct Pass<'a> {
    pub round: Round,
    /// Asked once in a while.
    pub goes_on: &'a mut dyn FnMut() -> bool,
    /// Into directories below too.
    pub is_deep: bool,
    /// A move below can only be followed when a round is over.
    pub is_left: bool,
}

/// A name of a directory, kept while the directory is changed.
pub(crate) struct Name([u8; 255], usize);

impl Name {
    fn new(name: &[u8]) -> Name {
        let mut copy = Name([0; 255], name.len());
        copy.0[..name.len()].copy_from_slice(name);
        copy
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// A name with its NUL.
pub(crate) fn text<'a>(name: &[u8], into: &'a mut [u8; 256]) -> Result<&'a CStr> {
    into.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    CStr::from_bytes_until_nul(into).map_err(|_| Errno::ENAMETOOLONG.into())
}

impl Cache {
    /// One round over all that is here. `goes_on` is asked once in a while.
    pub fn refresh(&self, cx: &Cx, goes_on: &mut dyn FnMut() -> bool) -> Result<Round> {
        let mut pass = Pass { round: Round::default(), goes_on, is_deep: true, is_left: false };
        // Where the directory itself is gone, or its file system: what is here stays as it is, and says so when it is asked.
        let (handle, mut original) = self.lower.at(cx, self.path(&mut Path::room(), self.tree, b"")?)?;
        if handle.child(cx, PARK).is_ok() {
            // Of a round that is under way, and nothing that anybody sees here.
            original.stamp.nlink = original.stamp.nlink.saturating_sub(1);
        }
        self.refresh_directory(cx, self.tree, (&handle, &original), 0, &mut pass)?;
        Ok(pass.round)
    }

    /// Of a directory that is what it was: its attributes, its names, and all below.
    pub(crate) fn refresh_directory(
        &self,
        cx: &Cx,
        dir: Node,
        (handle, original): (&Handle, &Original),
        depth: u32,
        pass: &mut Pass,
    ) -> Result<()> {
        if depth > DEPTH_MAX || !(pass.goes_on)() {
            return Ok(());
        }
        let known = self.known(dir)?;
        let is_changed = known.stamp != original.stamp || !is_sure(&known);
        pass.round.changed += u64::from(known.stamp != original.stamp);
        if is_changed {
            // From here on a name that is missing is asked for.
            self.fs().mark(&own(cx), dir, 0, bits::LISTED | bits::NO_XATTRS | bits::XATTRS)?;
            match self.fs().restamp(&own(cx), dir, &original.change_from(&known.stamp)) {
                // Somebody else looks at it too. Its names are compared in any case.
                Err(Error::Posix(Errno::ESTALE)) => {}
                restamped => restamped?,
            }
        }
        self.refresh_names(cx, dir, handle, depth, pass)?;
        match (is_changed, known.is_listed()) {
            (true, true) => {
                self.list(cx, dir)?;
                if self.fs().is_watched() { self.fs().follow_names(cx, dir) } else { Ok(()) }
            }
            // Names that went have changed its times.
            (true, false) => self.fs().restamp(&own(cx), dir, &original.change()),
            _ => Ok(()),
        }
    }

    fn refresh_names(&self, cx: &Cx, dir: Node, handle: &Handle, depth: u32, pass: &mut Pass) -> Result<()> {
        let mut cookie = 0;
        while let Some((name, next)) = self.next_name(cx, dir, cookie, |_| true)? {
            cookie = next;
            if pass.round.looked.is_multiple_of(NAMES) && !(pass.goes_on)() {
                return Ok(());
            }
            match self.refresh_name(cx, (dir, handle), name.bytes(), depth, pass) {
                // Gone meanwhile, by whoever.
                Err(Error::Posix(Errno::ENOENT)) => {}
                Err(error) if is_of_one(error) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The first name of a directory from `cookie` on whose type `is_wanted`, and the cookie behind it.
    pub(crate) fn next_name(
        &self,
        cx: &Cx,
        dir: Node,
        cookie: u64,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> Result<Option<(Name, u64)>> {
        let mut found = None;
        self.fs().readdir(&own(cx), dir, cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") || !is_wanted(entry.kind) {
                return true;
            }
            found = Some((Name::new(entry.name), entry.next));
            false
        })?;
        Ok(found)
    }

    /// Looks at the original of a name that is here.
    pub(crate) fn refresh_name(
        &self,
        cx: &Cx,
        (dir, handle): (Node, &Handle),
        name: &[u8],
        depth: u32,
        pass: &mut Pass,
    ) -> Result<()> {
        pass.round.looked += 1;
        let before = self.names_lead(cx, (dir, name))?;
        let node = self.fs().lookup(&own(cx), dir, name)?;
        let known = self.known(node)?;
        // Then a round may just be making or moving it below.
        let is_newer = self.is_name_newer(cx, dir, name)?;
        let original = match handle.child(cx, text(name, &mut [0; 256])?) {
            Err(Error::Posix(Errno::ENOENT | Errno::ENOTDIR)) => None,
            // What can't be looked at stays what it was.
            Err(error) if is_of_one(error) => return Ok(()),
            original => Some(original?),
        };
        self.names_led(cx, before, (dir, name))?;
        let Some(original) = original else {
            if is_newer {
                return Err(Errno::ESTALE.into());
            }
            let followed = self.follow_within(cx, (dir, handle), name, (node, &known));
            pass.is_left |= followed.is_err();
            if let Some(new) = followed? {
                return self.refresh_name(cx, (dir, handle), new.bytes(), depth, pass);
            }
            pass.round.gone += 1;
            return self.remove_name(&own(cx), dir, name, (node, Some(&known.stamp)), depth);
        };
        if !known.stamp.is_same_file(&original.stamp) {
            if is_newer {
                return Err(Errno::ESTALE.into());
            }
            pass.round.gone += 1;
            // A file that is not open becomes its successor in place, so that the name is never missing.
            if self.adopt(cx, node, &known, &original).is_ok() {
                return Ok(());
            }
            return self.leave(cx, (dir, handle), name, (node, &known.stamp), depth);
        }
        if original.attr.kind == Kind::Directory {
            if !pass.is_deep {
                let is_left = is_newer && known.stamp != original.stamp;
                return if is_left { Err(Errno::ESTALE.into()) } else { self.refresh_rights(cx, node, &original, &known.stamp) };
            }
            let (handle, original) = self.lower.at(cx, self.path(&mut Path::room(), dir, name)?)?;
            self.names_led(cx, before, (dir, name))?;
            return self.refresh_directory(cx, node, (&handle, &original), depth + 1, pass);
        }
        if known.stamp == original.stamp {
            return self.fs().set_compared(cx, node);
        }
        // The round that is making its name below goes by what is known of it, and by when it was seen.
        if is_newer {
            return Err(Errno::ESTALE.into());
        }
        pass.round.changed += 1;
        self.fs().mark(&own(cx), node, 0, bits::NO_XATTRS | bits::XATTRS)?;
        let is_new = original.attr.kind != Kind::Regular && !known.stamp.has_same_contents(&original.stamp);
        match if is_new { Err(Errno::EBUSY.into()) } else { self.follow(cx, node, &known.stamp, &original) } {
            // Mapped, or of a kind whose contents never change in place: who has it keeps what it was.
            Err(Error::Posix(Errno::EBUSY)) => self.leave(cx, (dir, handle), name, (node, &known.stamp), depth),
            result => result,
        }
    }

    /// A directory, or a file that is open, that has got another name in its directory below, of which nobody was notified, gets it
    /// here too: which. `ESTALE`: it will when the round is over that is under way.
    fn follow_within(
        &self,
        cx: &Cx,
        (dir, handle): (Node, &Handle),
        name: &[u8],
        (node, known): (Node, &Known),
    ) -> Result<Option<Name>> {
        let is_directory = self.fs().attr(&own(cx), node)?.kind == Kind::Directory;
        if self.goes_by_names() || !is_directory && self.fs().is_open(&own(cx), node) != Ok(true) {
            return Ok(None);
        }
        // A handle that is only a path lists nothing.
        let Ok(list) = self.open_below(cx, dir) else { return Ok(None) };
        let mut found = None;
        list.each_name(cx, &mut |listed| {
            let new = listed.name.to_bytes();
            if found.is_some() || new == name {
                return Ok(());
            }
            let twin = self.fs().lookup(&own(cx), dir, new).ok();
            let may_be = match twin {
                // Of a file with several names another one.
                Some(twin) if twin.id == node.id => false,
                Some(twin) => self.known_if(twin)?.is_some_and(|twin| twin.stamp.is_same_file(&known.stamp)),
                None => true,
            };
            let is_it = |original: Original| !original.has_names() && is_what_was(known, &original);
            if may_be && handle.child(cx, listed.name).is_ok_and(is_it) {
                found = Some((Name::new(new), twin));
            }
            Ok(())
        })?;
        let Some((new, twin)) = found else { return Ok(None) };
        if let Some(twin) = twin {
            // Brought by its new name before it was known to be this one. That stays which programs have open.
            if !self.is_in_use(cx, node, 0)? {
                return Ok(None);
            }
            if self.is_in_use(cx, twin, 0)? {
                return Err(Errno::ESTALE.into());
            }
            self.remove_name(&own(cx), dir, new.bytes(), (twin, None), 0)?;
        }
        match self.follow_move(cx, (dir, name), (dir, new.bytes()))? {
            Look::Done => Ok(Some(new)),
            // Else who has it open, or something in it, would write where nobody sees it.
            Look::Later | Look::Again => Err(Errno::ESTALE.into()),
        }
    }

    /// Whether a program has something open at a node here, or below it.
    fn is_in_use(&self, cx: &Cx, node: Node, depth: u32) -> Result<bool> {
        if self.fs().is_open(&own(cx), node) == Ok(true) {
            return Ok(true);
        }
        if self.fs().attr(&own(cx), node)?.kind != Kind::Directory || depth > DEPTH_MAX {
            return Ok(false);
        }
        let mut cookie = 0;
        while let Some((name, next)) = self.next_name(cx, node, cookie, |_| true)? {
            cookie = next;
            match self.fs().lookup(&own(cx), node, name.bytes()) {
                Ok(inner) if self.is_in_use(cx, inner, depth + 1)? => return Ok(true),
                Ok(_) | Err(Error::Posix(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Mode and owner of a directory; its names are not looked at, so its times stay.
    pub(crate) fn refresh_rights(&self, cx: &Cx, dir: Node, original: &Original, known: &Stamp) -> Result<()> {
        let attr = self.fs().attr(&own(cx), dir)?;
        let new = original.attr;
        if (attr.mode, attr.uid, attr.gid) == (new.mode, new.uid, new.gid) {
            return Ok(());
        }
        self.fs().mark(&own(cx), dir, 0, bits::NO_XATTRS | bits::XATTRS)?;
        let (stamp, before) = (*known, Some(*known));
        self.fs().restamp(&own(cx), dir, &Change { mode: new.mode, uid: new.uid, gid: new.gid, stamp, before })?;
        self.tell_followers(cx, dir, false);
        Ok(())
    }

    /// Has a name lead to what has it below instead of the node that it led to; with more than one step it goes first.
    pub(crate) fn leave(
        &self,
        cx: &Cx,
        (dir, handle): (Node, &Handle),
        name: &[u8],
        (node, looked): (Node, &Stamp),
        depth: u32,
    ) -> Result<()> {
        match self.succeed(cx, (dir, handle), name, (node, looked)) {
            Err(Error::Posix(Errno::EOPNOTSUPP | Errno::ENOENT | Errno::ENOSPC)) => {
                self.drop_name(cx, dir, name, (node, looked), depth)
            }
            done => done,
        }
    }

    /// Removes a name here, with all below it, in whose place there is another file: the directory is not listed any
    /// more, so whoever wants that asks.
    pub(crate) fn drop_name(&self, cx: &Cx, dir: Node, name: &[u8], (node, looked): (Node, &Stamp), depth: u32) -> Result<()> {
        let cx = &own(cx);
        if self.is_name_newer(cx, dir, name)? || self.is_newer(node)? {
            return Err(Errno::ESTALE.into());
        }
        self.fs().forget();
        // A directory that is newer here stays listed: the caller looks for the successor of the name.
        self.fs().mark(cx, dir, 0, bits::LISTED)?;
        self.remove_name(cx, dir, name, (node, Some(looked)), depth)
    }

    /// Removes a name here, with all below it.
    fn remove_name(&self, cx: &Cx, dir: Node, name: &[u8], (node, looked): (Node, Option<&Stamp>), depth: u32) -> Result<()> {
        if self.fs().attr(cx, node)?.kind != Kind::Directory {
            self.remove_entry(cx, dir, name, (node, looked), false)?;
            self.tell_watchers(cx, (dir, name), Some(node));
            return Ok(());
        }
        // Not a part of it where the rest has to stay.
        if self.is_name_newer(cx, dir, name)? || self.is_newer(node)? {
            return Err(Errno::ESTALE.into());
        }
        for _ in 0..1000 {
            // Nobody brings names while we remove them, or not for ever.
            while let Some((inner, _)) = self.next_name(cx, node, 0, |_| true)? {
                let below = self.fs().lookup(cx, node, inner.bytes())?;
                if depth > DEPTH_MAX {
                    return Err(Errno::ELOOP.into());
                }
                self.remove_name(cx, node, inner.bytes(), (below, None), depth + 1)?;
            }
            match self.remove_entry(cx, dir, name, (node, looked), true) {
                Err(Error::Posix(Errno::ENOTEMPTY)) => {}
                result => {
                    result?;
                    self.tell_watchers(cx, (dir, name), Some(node));
                    return Ok(());
                }
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Removes one name, while nobody changes anything, if it still leads to what was looked at, and nothing there is newer
    /// here than below: that is written there, whatever is there by now.
    pub(crate) fn remove_entry(
        &self,
        cx: &Cx,
        dir: Node,
        name: &[u8],
        (node, looked): (Node, Option<&Stamp>),
        is_directory: bool,
    ) -> Result<()> {
        let fs = self.fs();
        let Some(closed) = fs.close_changes(CLOSED)? else { return Err(Errno::ESTALE.into()) };
        let remove = || -> Result<()> {
            let known = self.known(node)?;
            let is_as_looked = looked.is_none_or(|looked| known.stamp == *looked);
            if !is_as_looked || self.is_name_newer(cx, dir, name)? || known.is_dirty() || fs.lookup(cx, dir, name)? != node {
                return Err(Errno::ESTALE.into());
            }
            if is_directory {
                fs.rmdir(cx, dir, name)?;
            } else {
                let stays = fs.names_here(node)? > 1;
                fs.unlink(cx, dir, name)?;
                if stays {
                    self.restore_times(cx, node)?;
                }
                self.doubt_noted(cx, &known.stamp);
            }
            self.forget_link(cx, node);
            self.restore_times(cx, dir)
        };
        let result = remove();
        closed.open();
        if result.is_ok() {
            self.tell_name(cx, dir, name);
        }
        result
    }

    /// A file becomes what its original is, and programs that watch it are notified. `EBUSY` if its contents have changed and are
    /// mapped.
    pub(crate) fn follow(&self, cx: &Cx, node: Node, known: &Stamp, original: &Original) -> Result<()> {
        if original.has_names() {
            self.join(cx, node, original)?;
        }
        self.fs().restamp(&own(cx), node, &original.change_from(known))?;
        // A round decides about a file that is newer here. Space may change without a call.
        if known.ctime != original.stamp.ctime && !self.is_newer(node)? {
            self.tell_followers(cx, node, !known.has_same_contents(&original.stamp));
        }
        Ok(())
    }

    /// Notifies programs that watch a file: another program has changed its contents, or only its attributes. A comparison shows
    /// no more than that.
    pub(crate) fn tell_followers(&self, cx: &Cx, node: Node, is_written: bool) {
        let events: &[Event] = if is_written { &[Event::Modify, Event::ClosedWritten] } else { &[Event::Attributes] };
        if self.fs().is_watched() {
            events.iter().for_each(|event| self.fs().tell(cx, node, *event));
        }
    }

    /// Notifies programs that watch a directory: a name has come, or gone with the node that it led to.
    pub(crate) fn tell_watchers(&self, cx: &Cx, called: (Node, &[u8]), before: Option<Node>) {
        if self.fs().is_watched() {
            self.fs().follow_name(cx, called, before);
        }
    }

    /// Whether a name may be another here than below because programs have changed it, and no round that is over has made that
    /// below. Of the other names of such a directory the lower file system decides.
    pub(crate) fn is_name_newer(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        Ok(match self.known_if(dir)? {
            // A round that was cut off at its end has left notes of directories that it called clean.
            Some(known) => (known.is_dirty() || self.has_round(cx)?) && self.is_name_touched(cx, dir, name)?,
            None => true,
        })
    }

    /// A kernel mount beside is to forget what it keeps of a name, and of its directory. Nothing is held.
    pub(crate) fn tell_name(&self, cx: &Cx, dir: Node, name: &[u8]) {
        if self.fs().is_served() {
            self.fs().tell_name_changed(cx, dir, name);
        }
    }
}
