//! Trees of one file system as a whole: [cloned](clone), [removed](remove), [compared](compare), and what they [take](usage).
//!
//! Each walks by nodes and names, with a stack of its own, so a tree may be as deep as it likes; what is being made or
//! taken apart lies [aside] meanwhile.

pub mod aside;
pub mod clone;
pub mod compare;
pub mod crew;
pub mod remove;
pub mod usage;

use crate::backend::Backend;
use alloc::vec::Vec;
use base::{Cx, Error, Kind, Node, Result};
use pm::Errno;

/// What has been done so far.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Names made, removed or compared.
    pub names: u64,
    /// Bytes of files that share their contents with their originals, or that need not be read to know that they are the same.
    pub shared: u64,
    /// Bytes of files that were copied, or read.
    pub copied: u64,
    /// Owners and extended attributes that could not be kept.
    pub dropped: u64,
}

/// Why it could not be done, and where: a path below what was asked for, empty for that itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What went wrong.
    pub error: Error,
    /// With what.
    pub path: Vec<u8>,
}

impl Failed {
    fn at(path: &[u8], error: Error) -> Failed {
        Failed { error, path: path.to_vec() }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::at(b"", error)
    }
}

/// A file system, in whose name it is used, and who is told of progress: he says whether to go on.
pub struct Trees<'a> {
    /// The file system.
    pub backend: &'a dyn Backend,
    /// In whose name.
    pub cx: &'a Cx<'a>,
    /// Told after every name. `false` ends it, with `EINTR` and as if it had not been begun.
    pub each: &'a mut dyn FnMut(&Tally) -> bool,
}

impl Trees<'_> {
    fn told(&mut self, tally: &Tally) -> Result<()> {
        if (self.each)(tally) { Ok(()) } else { Err(Errno::EINTR.into()) }
    }

    fn names(&self, dir: Node) -> Result<Names> {
        Names::of(self.backend, self.cx, dir)
    }

    /// The node of a name and its type; `None` if it is not there (any more).
    fn look(&self, dir: Node, name: &[u8]) -> Result<Option<(Node, Kind)>> {
        match self.backend.lookup_kind(self.cx, dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::Posix(Errno::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a listing says of a name.
#[derive(Clone, Copy)]
struct Listed {
    /// The node's number; 0: not known.
    id: u64,
    kind: Kind,
}

impl Listed {
    /// The node, if it is known.
    fn node(&self) -> Option<Node> {
        (self.id != 0).then_some(Node { id: self.id, hint: u32::MAX })
    }
}

/// Names of a directory, in one buffer.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    /// Where each ends in it, and what is known of it.
    listed: Vec<(usize, Listed)>,
    /// Which comes next.
    at: usize,
}

impl Names {
    /// The names in a directory, as it is now. Asks for read permission.
    fn of(backend: &dyn Backend, cx: &Cx, dir: Node) -> Result<Names> {
        let mut names = Names::default();
        names.read(backend, cx, dir)?;
        Ok(names)
    }

    /// The same, in the place of those that were here.
    fn read(&mut self, backend: &dyn Backend, cx: &Cx, dir: Node) -> Result<()> {
        backend.access(cx, dir, base::R)?;
        self.bytes.clear();
        self.listed.clear();
        self.at = 0;
        backend.readdir(cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                self.push(entry.name, Listed { id: entry.id, kind: entry.kind });
            }
            true
        })
    }

    fn push(&mut self, name: &[u8], listed: Listed) {
        self.bytes.extend_from_slice(name);
        self.listed.push((self.bytes.len(), listed));
    }

    fn get(&self, number: usize) -> Option<(&[u8], Listed)> {
        let (end, listed) = *self.listed.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.listed[before].0);
        Some((&self.bytes[start..end], listed))
    }

    /// Takes the next one.
    fn next(&mut self) -> Option<&[u8]> {
        self.next_listed().map(|(name, _)| name)
    }

    /// The same, with what is known of it.
    fn next_listed(&mut self) -> Option<(&[u8], Listed)> {
        self.at += 1;
        self.get(self.at - 1)
    }

    /// The one that comes after so many others.
    fn ahead(&self, others: usize) -> Option<(&[u8], Listed)> {
        self.get(self.at + others)
    }
}
