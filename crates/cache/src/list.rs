//! Bringing all names of a directory.

use crate::lower::{Handle, Listed, Path, TEXTLESS, Target, is_of_one};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use engine::lower::{Fetched, bits};

/// How often a directory is listed again because its names changed meanwhile.
const ATTEMPTS: u32 = 10;

impl Cache {
    /// Has all names of a directory here, from now on.
    pub(crate) fn list(&self, cx: &Cx, dir: Node) -> Result<()> {
        let (who, cx) = (cx, own(cx));
        if self.known(dir)?.is_listed() {
            return Ok(());
        }
        let moves = self.names_lead(&cx, (dir, b""))?;
        let lower = self.lower.open(who, self.path(&mut Path::room(), dir, b"")?, true)?;
        let mut before = lower.must_be_directory(who)?;
        self.names_led(&cx, moves, (dir, b""))?;
        if !before.stamp.is_same_file(&self.known(dir)?.stamp) {
            return Err(Errno::ESTALE.into());
        }
        for _ in 0..ATTEMPTS {
            if self.known(dir)?.is_listed() {
                return Ok(());
            }
            let forgotten = self.fs().forgotten();
            let is_new = !self.fs().has_names(dir)?;
            self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
            lower.each_name(who, &mut |listed| self.bring_listed(who, (dir, is_new), &lower, listed))?;
            let after = lower.original(who)?;
            if after.stamp == before.stamp {
                self.fs().restamp(&cx, dir, &after.change())?;
                if self.fs().mark_listed(&cx, dir, forgotten)? {
                    return Ok(());
                }
            }
            // Names came or went: once more, from the start.
            before = after;
        }
        // It changes all the time: what is here is what was there a moment ago; each look asks again.
        self.fs().restamp(&cx, dir, &before.change())
    }

    fn bring_listed(&self, cx: &Cx, (dir, is_new): (Node, bool), lower: &Handle, listed: Listed) -> Result<()> {
        let Listed { name, kind, told } = listed;
        if dir == self.tree && crate::is_ours(name.to_bytes()) {
            return Ok(());
        }
        match if is_new { Err(Errno::ENOENT.into()) } else { self.fs().lookup(&own(cx), dir, name.to_bytes()) } {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found.map(drop),
        }
        let original = match told.map_or_else(|| lower.child(cx, name), Ok) {
            // Gone since it was listed.
            Err(Error::Posix(Errno::ENOENT)) => return Ok(()),
            Err(error) if is_of_one(error) => return self.bring_unread(&own(cx), dir, name.to_bytes(), kind),
            original => original?,
        };
        if original.attr.kind == Kind::Symlink {
            let read = lower.inner(cx, name).and_then(|handle| {
                // Another may have its name by now.
                let original = told.map_or_else(|| handle.original(cx), Ok)?;
                Ok((original, Target::of(cx, &handle, &original)?))
            });
            return match read {
                Err(Error::Posix(Errno::ENOENT)) => Ok(()),
                Err(error) if is_of_one(error) => self.bring_unread(&own(cx), dir, name.to_bytes(), kind),
                Err(error) => Err(error),
                Ok((original, target)) => {
                    or_not(self.bring(&own(cx), (dir, bits::LISTED), name.to_bytes(), &original, target.text()))
                }
            };
        }
        or_not(self.bring(&own(cx), (dir, bits::LISTED), name.to_bytes(), &original, TEXTLESS))
    }
}

/// A name that is not here although it is below has been removed here, by whoever had all names sooner than we.
fn or_not(brought: Result<Node>) -> Result<()> {
    match brought {
        Err(Error::Posix(Errno::ENOENT)) => Ok(()),
        brought => brought.map(drop),
    }
}
