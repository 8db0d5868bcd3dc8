//! What a tree takes: of each file the bytes that no other one has, and those that others have too.

use super::{Failed, Names, Tally, Trees};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use base::{Error, Kind, Node, Result};
use pm::Errno;

/// Bytes of the blocks of a file, or of all files of a tree.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Names, that of the tree among them.
    pub names: u64,
    /// That no other file has.
    pub own: u64,
    /// That others have too, of the same tree or not.
    pub shared: u64,
}

impl Trees<'_> {
    /// What a file takes, or all files of a tree; one with several names counts once. A directory that may not be read is
    /// refused. `EOPNOTSUPP` where files have no places.
    pub fn usage(&mut self, top: Node) -> core::result::Result<Usage, Failed> {
        let kind = self.backend.attr(self.cx, top)?.kind;
        let mut usage = Usage { names: 1, ..Usage::default() };
        let mut linked = BTreeSet::new();
        if kind != Kind::Directory {
            self.add(&mut usage, &mut linked, (top, kind))?;
            return Ok(usage);
        }
        let mut path = Vec::new();
        let result = self.add_tree(&mut usage, &mut linked, top, &mut path);
        result.map(|()| usage).map_err(|error| Failed { error, path })
    }

    fn add_tree(&mut self, usage: &mut Usage, linked: &mut BTreeSet<u64>, top: Node, path: &mut Vec<u8>) -> Result<()> {
        let mut levels: Vec<(Node, Names, usize)> = Vec::new();
        levels.push((top, self.names(top)?, 0));
        while let Some((dir, names, above)) = levels.last_mut() {
            let Some(name) = names.next() else {
                path.truncate(*above);
                levels.pop();
                continue;
            };
            let before = path.len();
            if before > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let dir = *dir;
            // What has gone meanwhile takes nothing.
            if let Some((node, kind)) = self.look(dir, name)? {
                usage.names += 1;
                self.told(&Tally { names: usage.names, ..Tally::default() })?;
                if kind == Kind::Directory {
                    levels.push((node, self.names(node)?, before));
                    continue;
                }
                self.add(usage, linked, (node, kind))?;
            }
            path.truncate(before);
        }
        Ok(())
    }

    /// Adds what a file takes that is not there yet.
    fn add(&self, usage: &mut Usage, linked: &mut BTreeSet<u64>, (node, kind): (Node, Kind)) -> Result<()> {
        if kind != Kind::Regular {
            return Ok(());
        }
        match self.of_file(linked, node) {
            Ok((own, shared)) => (usage.own, usage.shared) = (usage.own + own, usage.shared + shared),
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn of_file(&self, linked: &mut BTreeSet<u64>, file: Node) -> Result<(u64, u64)> {
        let is_new = self.backend.attr(self.cx, file)?.nlink <= 1 || linked.insert(file.id);
        if is_new { self.own_and_shared(file) } else { Ok((0, 0)) }
    }

    /// Bytes of a file's blocks that no other file has, and that others have too.
    pub fn own_and_shared(&self, file: Node) -> Result<(u64, u64)> {
        let (mut own, mut shared, mut at) = (0, 0, 0);
        while let Some(run) = self.backend.run_at(self.cx, file, at)? {
            *(if run.is_shared { &mut shared } else { &mut own }) += run.len;
            at = run.start + run.len;
            if run.is_last {
                break;
            }
        }
        Ok((own, shared))
    }
}
