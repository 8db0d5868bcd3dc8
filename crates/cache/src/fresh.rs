//! Keeping what is here equal to what is below.
//!
//! Who reads warm asks nothing and is told nothing: so what has changed below must change here without being asked for.
//! A server goes through the directories that are here, again and again, looks at each original, and takes note:
//!
//! - an original that is another file, or none: its name goes here, with all below it. Who has it open keeps what was read;
//! - one whose contents have changed: what is here of them goes, and is read again when somebody wants it;
//! - one whose attributes have changed: they change here too;
//! - a directory whose times have changed is listed anew.
//!
//! So a change is seen within the time of one round and the pause between two (`actimeo`), NFS's promise; a file that is
//! opened afterwards has the new contents.

use crate::lower::Original;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use core::ffi::CStr;
use engine::lower::{Stamp, bits};
use pm::file::File;

/// Most levels of directories that a round goes down.
const DEPTH_MAX: u32 = 512;

/// How long nobody changes anything at most while a name is removed, nanoseconds.
const CLOSED: u64 = 100_000_000;

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

/// A name of a directory, kept while the directory is changed.
struct Name([u8; 255], usize);

impl Name {
    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// A name with its NUL.
fn text<'a>(name: &[u8], into: &'a mut [u8; 256]) -> Result<&'a CStr> {
    into.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    CStr::from_bytes_until_nul(into).map_err(|_| Errno::ENAMETOOLONG.into())
}

impl Cache {
    /// One round over all that is here. `goes_on` is asked once in a while.
    pub fn refresh(&self, cx: &Cx, goes_on: &mut dyn FnMut() -> bool) -> Result<Round> {
        let cx = own(cx);
        let mut round = Round::default();
        match Original::at(&self.path(self.tree, b"")?) {
            Ok((handle, original)) => self.refresh_directory(&cx, self.tree, (&handle, &original), 0, &mut round, goes_on)?,
            // The directory itself is gone, or its file system: what is here stays as it is, and says so when it is asked.
            Err(error) => return Err(error),
        }
        Ok(round)
    }

    /// Of a directory that is what it was: its attributes, its names, and all below.
    fn refresh_directory(
        &self,
        cx: &Cx,
        dir: Node,
        (handle, original): (&File, &Original),
        depth: u32,
        round: &mut Round,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        if depth > DEPTH_MAX || !goes_on() {
            return Ok(());
        }
        let known = self.known(dir)?;
        let is_changed = known.stamp != original.stamp;
        if is_changed {
            round.changed += 1;
            // From here on a name that is missing is asked for.
            self.fs().mark(cx, dir, 0, bits::LISTED | bits::NO_XATTRS | bits::XATTRS)?;
            self.fs().restamp(cx, dir, &original.change_from(&known.stamp))?;
        }
        self.refresh_names(cx, dir, handle, depth, round, goes_on)?;
        match (is_changed, known.is_listed()) {
            (true, true) => self.list(cx, dir),
            // Names that went have changed its times.
            (true, false) => self.fs().restamp(cx, dir, &original.change()),
            _ => Ok(()),
        }
    }

    fn refresh_names(
        &self,
        cx: &Cx,
        dir: Node,
        handle: &File,
        depth: u32,
        round: &mut Round,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut cookie = 0;
        while let Some((name, next)) = self.next_name(cx, dir, cookie)? {
            cookie = next;
            match self.refresh_name(cx, (dir, handle), name.bytes(), depth, round, goes_on) {
                // Gone meanwhile, by whoever.
                Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The first name of a directory from `cookie` on, and the cookie behind it.
    fn next_name(&self, cx: &Cx, dir: Node, cookie: u64) -> Result<Option<(Name, u64)>> {
        let mut found = None;
        self.fs().readdir(cx, dir, cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            let mut name = Name([0; 255], entry.name.len());
            name.0[..entry.name.len()].copy_from_slice(entry.name);
            found = Some((name, entry.next));
            false
        })?;
        Ok(found)
    }

    fn refresh_name(
        &self,
        cx: &Cx,
        (dir, handle): (Node, &File),
        name: &[u8],
        depth: u32,
        round: &mut Round,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        round.looked += 1;
        let node = self.fs().lookup(cx, dir, name)?;
        let known = self.known(node)?;
        let original = match pm::host::statx_at(handle.number(), text(name, &mut [0; 256])?) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            stat => Some(Original::of(&stat?)?),
        };
        let Some(original) = original.filter(|original| known.stamp.is_same_file(&original.stamp)) else {
            round.gone += 1;
            return self.drop_name(cx, dir, name, (node, Some(&known.stamp)), depth);
        };
        if original.attr.kind == Kind::Directory {
            let (handle, original) = Original::at(&self.path(dir, name)?)?;
            return self.refresh_directory(cx, node, (&handle, &original), depth + 1, round, goes_on);
        }
        if known.stamp == original.stamp {
            return Ok(());
        }
        round.changed += 1;
        self.fs().mark(cx, node, 0, bits::NO_XATTRS | bits::XATTRS)?;
        let is_new = original.attr.kind != Kind::Regular && !known.stamp.has_same_contents(&original.stamp);
        match if is_new { Err(Errno::EBUSY.into()) } else { self.fs().restamp(cx, node, &original.change_from(&known.stamp)) } {
            // Mapped, or of a kind whose contents never change in place: who has it keeps what it was.
            Err(Error::Posix(Errno::EBUSY)) => self.drop_name(cx, dir, name, (node, Some(&known.stamp)), depth),
            result => result,
        }
    }

    /// Removes a name here, with all below it. The directory is not listed any more: what takes its place is asked for.
    fn drop_name(&self, cx: &Cx, dir: Node, name: &[u8], (node, looked): (Node, Option<&Stamp>), depth: u32) -> Result<()> {
        if self.fs().attr(cx, node)?.kind != Kind::Directory {
            return self.drop_entry(cx, dir, name, (node, looked), false);
        }
        for _ in 0..1000 {
            // Nobody brings names while we remove them, or not for ever.
            while let Some((inner, _)) = self.next_name(cx, node, 0)? {
                let below = self.fs().lookup(cx, node, inner.bytes())?;
                if depth > DEPTH_MAX {
                    return Err(Errno::ELOOP.into());
                }
                self.drop_name(cx, node, inner.bytes(), (below, None), depth + 1)?;
            }
            match self.drop_entry(cx, dir, name, (node, looked), true) {
                Err(Error::Posix(Errno::ENOTEMPTY)) => {}
                result => return result,
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Removes one name, while nobody changes anything, if it still leads to what was looked at, and nothing there is newer
    /// here than below: that is written there, whatever is there by now.
    fn drop_entry(
        &self,
        cx: &Cx,
        dir: Node,
        name: &[u8],
        (node, looked): (Node, Option<&Stamp>),
        is_directory: bool,
    ) -> Result<()> {
        let fs = self.fs();
        let Some(closed) = fs.close_changes(CLOSED)? else { return Err(Errno::ESTALE.into()) };
        let is_clean = |node| self.known_if(node).is_ok_and(|known| known.is_some_and(|known| !known.is_dirty()));
        let is_as_looked = match (looked, self.known_if(node)?) {
            (Some(looked), Some(known)) => known.stamp == *looked,
            _ => true,
        };
        let result = if !is_as_looked || !is_clean(dir) || !is_clean(node) || fs.lookup(cx, dir, name)? != node {
            Err(Errno::ESTALE.into())
        } else {
            // The directory is not listed any more: what takes the name's place is asked for.
            fs.mark(cx, dir, 0, bits::LISTED)
                .and_then(|()| if is_directory { fs.rmdir(cx, dir, name) } else { fs.unlink(cx, dir, name) })
                .and_then(|()| self.restore_times(cx, dir))
        };
        closed.open();
        result
    }
}
