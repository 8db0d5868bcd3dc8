//! Removing a tree: it loses its name first, at once and as a whole, then all that is in it goes.

use super::aside::Aside;
use super::{Failed, Names, Tally, Trees};
use alloc::vec::Vec;
use base::{Error, Kind, Node, RenameMode, Result, SetAttr};
use pm::Errno;

/// How often a directory is looked at again into which others go on putting names.
const ROUNDS: u32 = 1000;

/// A directory on the way down.
struct Level {
    node: Node,
    /// Its name, which ends the path so far.
    name_len: usize,
    names: Names,
    rounds: u32,
}

impl Trees<'_> {
    /// Removes what is called `name` in `dir`, with all that is in it. From the beginning nobody finds it any more. A directory
    /// of the caller's that may not be changed is made so first. Where a part can't be removed, what is left has its name again.
    pub fn remove(&mut self, dir: Node, name: &[u8]) -> core::result::Result<Tally, Failed> {
        self.sweep(dir);
        let (node, kind) = self.backend.lookup_kind(self.cx, dir, name)?;
        let mut tally = Tally::default();
        if kind != Kind::Directory {
            self.backend.unlink(self.cx, dir, name)?;
            tally.names = 1;
            return Ok(tally);
        }
        let aside = self.move_aside(dir, name, node)?;
        let result = self.remove_all(dir, &aside.name, (node, kind), &mut tally);
        if result.is_err() {
            // Under its name again, if nobody has taken that.
            let _ = self.backend.rename(self.cx, dir, &aside.name, dir, name, RenameMode::NoReplace);
        }
        self.unlock_aside(node);
        result.map(|()| tally)
    }

    /// What was made aside is not wanted.
    pub(super) fn forget(&mut self, aside: &Aside) {
        if let Ok(Some(found)) = self.look(aside.dir, &aside.name) {
            // Nobody may stop that.
            let mut each = |_: &Tally| true;
            let mut trees = Trees { backend: self.backend, cx: self.cx, each: &mut each };
            let _ = trees.remove_all(aside.dir, &aside.name, found, &mut Tally::default());
        }
        self.unlock_aside(aside.node);
    }

    /// Removes a name and all that is below it.
    pub(super) fn remove_all(
        &mut self,
        dir: Node,
        name: &[u8],
        (node, kind): (Node, Kind),
        tally: &mut Tally,
    ) -> core::result::Result<(), Failed> {
        if kind != Kind::Directory {
            return Ok(self.backend.unlink(self.cx, dir, name)?);
        }
        let mut path = Vec::new();
        let mut levels = Vec::new();
        levels.push(self.level(node, 0)?);
        while let Some(level) = levels.last_mut() {
            let in_dir = level.node;
            let Some(name) = level.names.next() else {
                let Some(Level { node, name_len, rounds, .. }) = levels.pop() else { break };
                let above = levels.last().map_or(dir, |level| level.node);
                let own = &path[path.len() - name_len..];
                match self.backend.rmdir(self.cx, above, if levels.is_empty() { name } else { own }) {
                    Err(Error::Posix(Errno::ENOTEMPTY)) if rounds < ROUNDS => {
                        let mut again = self.level(node, name_len).map_err(|failed| Failed { path: path.clone(), ..failed })?;
                        again.rounds = rounds + 1;
                        levels.push(again);
                        continue;
                    }
                    Ok(()) | Err(Error::Posix(Errno::ENOENT)) => {}
                    Err(error) => return Err(Failed::at(&path, error)),
                }
                path.truncate((path.len() - name_len).saturating_sub(1));
                self.removed(tally).map_err(|error| Failed::at(&path, error))?;
                continue;
            };
            let before = path.len();
            let found = self.backend.lookup_kind(self.cx, in_dir, name);
            if before > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let done = match found {
                Ok((node, Kind::Directory)) => {
                    let level = self.level(node, name.len()).map_err(|failed| Failed { path: path.clone(), ..failed })?;
                    levels.push(level);
                    continue;
                }
                Ok(_) => self.backend.unlink(self.cx, in_dir, name),
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => self.removed(tally).map_err(|error| Failed::at(&path, error))?,
                Err(Error::Posix(Errno::ENOENT)) => {}
                Err(error) => return Err(Failed::at(&path, error)),
            }
            path.truncate(before);
        }
        Ok(())
    }

    fn removed(&mut self, tally: &mut Tally) -> Result<()> {
        tally.names += 1;
        self.told(tally)
    }

    /// A directory, whose names may be read and changed from here on if it is the caller's.
    fn level(&self, node: Node, name_len: usize) -> core::result::Result<Level, Failed> {
        if self.backend.access(self.cx, node, base::R | base::W | base::X).is_err() {
            if self.backend.is_frozen(node)? {
                self.backend.freeze(self.cx, node, false)?;
            }
            let mode = self.backend.attr(self.cx, node)?.mode | 0o700;
            let _ = self.backend.set_attr(self.cx, node, &SetAttr { mode: Some(mode), ..SetAttr::default() });
        }
        Ok(Level { node, name_len, names: self.names(node)?, rounds: 0 })
    }
}
