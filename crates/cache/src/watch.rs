//! What whoever is told of changes by the kernel asks for: the directories that are here, and a look at single names.
//!
//! One server does so for an image at a time ([`Cache::serve`]).
//!
//! A directory's own times are taken over last, as they were when nothing was left to be looked at: what is noted of it
//! is never newer than its names, so that whoever comes after a death lists it again.

use crate::fresh::{DEPTH_MAX, Pass, Round, text};
use crate::lower::{Original, is_of_one};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use core::ffi::CStr;
use engine::lower::bits;

/// What a directory below was like at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen(Original);

impl Cache {
    /// Whether this process (`pid`) is the one that keeps the image fresh, or becomes it: none else does that lives.
    pub fn serve(&self, pid: u32) -> bool {
        self.fs().serve_cache(pid)
    }

    /// Leaves that to others.
    pub fn end_service(&self, pid: u32) {
        self.fs().end_cache_service(pid);
    }

    /// Whether nobody uses the image but this process (`pid`).
    pub fn is_alone(&self, pid: u32) -> bool {
        self.fs().is_alone(pid)
    }

    /// Rises with every directory that comes here.
    pub fn brought(&self) -> u64 {
        self.fs().brought()
    }

    /// Calls `each` with every directory that is here, the upper ones first, and the path of its original.
    pub fn each_directory(&self, cx: &Cx, each: &mut dyn FnMut(Node, &CStr) -> bool) -> Result<()> {
        self.each_below(cx, self.tree, 0, each).map(drop)
    }

    fn each_below(&self, cx: &Cx, dir: Node, depth: u32, each: &mut dyn FnMut(Node, &CStr) -> bool) -> Result<bool> {
        if depth > DEPTH_MAX || !each(dir, self.path(dir, b"")?.text()?) {
            return Ok(false);
        }
        let mut cookie = 0;
        while let Some((name, next)) = self.next_name(cx, dir, cookie, |kind| kind == Kind::Directory)? {
            cookie = next;
            let goes_on = match self.fs().lookup(&own(cx), dir, name.bytes()) {
                Ok(child) => self.each_below(cx, child, depth + 1, each),
                Err(error) => Err(error),
            };
            match goes_on {
                // Gone meanwhile.
                Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) | Ok(true) => {}
                other => return other,
            }
        }
        Ok(true)
    }

    /// Compares a directory with its original, and its names with theirs, but nothing below.
    pub fn refresh_one(&self, cx: &Cx, dir: Node) -> Result<()> {
        let (handle, original) = self.lower.at(cx, &self.path(dir, b"")?)?;
        if !self.known(dir)?.stamp.is_same_file(&original.stamp) {
            // It is not there any more: whoever looks at its name finds out.
            return Ok(());
        }
        let mut pass = Pass { round: Round::default(), goes_on: &mut || true, is_deep: false };
        self.refresh_directory(cx, dir, (&handle, &original), 0, &mut pass)
    }

    /// Looks at one name of a directory, whether it is here, there, or both.
    pub fn refresh_entry(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        if dir == self.tree && crate::is_ours(name) {
            return Ok(());
        }
        let handle = self.lower.handle(cx, &self.path(dir, b"")?)?;
        if !self.known(dir)?.stamp.is_same_file(&handle.original(cx)?.stamp) {
            return Ok(());
        }
        let forgotten = self.fs().forgotten();
        let was_listed = self.known(dir)?.is_listed();
        let mut pass = Pass { round: Round::default(), goes_on: &mut || true, is_deep: false };
        match self.refresh_name(cx, (dir, &handle), name, 0, &mut pass) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            result => result?,
        }
        // Where not all names are here, whoever wants it asks; where they are newer, it may have been removed here.
        if !was_listed || self.fs().lookup(&own(cx), dir, name).is_ok() || self.is_newer(dir)? {
            return Ok(());
        }
        // It has come there, or another has taken its place.
        match handle.child(cx, text(name, &mut [0; 256])?) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            // Of what type it is a listing tells.
            Err(error) if is_of_one(error) => {
                self.fs().forget();
                self.fs().mark(&own(cx), dir, 0, bits::LISTED)?;
                self.tell_name(cx, dir, name);
                return Ok(());
            }
            Err(error) => return Err(error),
            Ok(_) => match self.ask(cx, dir, name, bits::DIRTY) {
                Err(Error::Posix(Errno::ENOENT)) => return Ok(()),
                asked => drop(asked?),
            },
        }
        // Perhaps it keeps that there is none.
        self.tell_name(cx, dir, name);
        // By us alone, or else whoever wants all names lists it.
        if !self.known(dir)?.is_listed() {
            self.fs().mark_listed(&own(cx), dir, forgotten + 1)?;
        }
        Ok(())
    }

    /// What the original of a directory is like now.
    pub fn see(&self, cx: &Cx, dir: Node) -> Result<Seen> {
        Ok(Seen(self.lower.at(cx, &self.path(dir, b"")?)?.1))
    }

    /// All names of a directory have been looked at that had changed when it was seen so.
    pub fn settle(&self, cx: &Cx, dir: Node, seen: &Seen) -> Result<()> {
        if self.known(dir)?.stamp == seen.0.stamp {
            return Ok(());
        }
        self.fs().restamp(&own(cx), dir, &seen.0.change())
    }
}
