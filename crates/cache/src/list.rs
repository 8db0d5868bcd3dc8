//! Bringing all names of a directory.

use crate::lower::Handle;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use core::ffi::CStr;
use engine::lower::Fetched;

/// How often a directory is listed again because its names changed meanwhile.
const ATTEMPTS: u32 = 10;

impl Cache {
    /// Has all names of a directory here, from now on.
    pub(crate) fn list(&self, cx: &Cx, dir: Node) -> Result<()> {
        let (who, cx) = (cx, own(cx));
        if self.known(dir)?.is_listed() {
            return Ok(());
        }
        let moves = self.names_lead()?;
        let lower = self.lower.open(who, &self.path(dir, b"")?, true)?;
        let mut before = lower.must_be_directory(who)?;
        self.names_led(moves)?;
        if !before.stamp.is_same_file(&self.known(dir)?.stamp) {
            return Err(Errno::ESTALE.into());
        }
        for _ in 0..ATTEMPTS {
            let forgotten = self.fs().forgotten();
            let is_new = !self.fs().has_names(dir)?;
            self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
            lower.each_name(who, &mut |name| self.bring_listed(who, (dir, is_new), &lower, name))?;
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

    fn bring_listed(&self, cx: &Cx, (dir, is_new): (Node, bool), lower: &Handle, name: &CStr) -> Result<()> {
        if dir == self.tree && crate::is_ours(name.to_bytes()) {
            return Ok(());
        }
        match if is_new { Err(Errno::ENOENT.into()) } else { self.fs().lookup(&own(cx), dir, name.to_bytes()) } {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found.map(drop),
        }
        let original = match lower.child(cx, name) {
            // Gone since it was listed.
            Err(Error::Posix(Errno::ENOENT)) => return Ok(()),
            original => original?,
        };
        if original.attr.kind == base::Kind::Symlink {
            return match self.ask(cx, dir, name.to_bytes()) {
                Err(Error::Posix(Errno::ENOENT)) => Ok(()),
                asked => asked.map(drop),
            };
        }
        self.bring(&own(cx), dir, name.to_bytes(), &original, b"").map(drop)
    }
}
