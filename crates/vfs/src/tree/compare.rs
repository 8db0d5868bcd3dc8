//! What changes from one tree to another: names, and how.
//!
//! Of two files of one file system that have their bytes in the same places nothing is read: they are the same. Times say
//! nothing either way: a file may be touched and the same, or changed and its time set back.

use super::clone::{IGNORED, SNAPS};
use super::{Failed, Names, Tally};
use crate::backend::Backend;
use alloc::vec;
use alloc::vec::Vec;
use base::{Attr, Cx, Error, Kind, Node, Result};
use core::cmp::Ordering;
use pm::{Errno, UserSlice};

/// Bytes that are read of each of two files at a time.
const CHUNK: usize = 256 << 10;
/// Most bytes of a list of attributes, and of one.
const XATTRS_MAX: usize = 65_536;

/// One of two trees.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Its file system.
    pub backend: &'a dyn Backend,
    /// In whose name it is read.
    pub cx: &'a Cx<'a>,
    /// What is compared.
    pub node: Node,
}

/// How a name changes. A directory that is only in one of the trees is one change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Only in the second tree.
    Added,
    /// Only in the first.
    Removed,
    /// Another type.
    Type,
    /// Other bytes, another target of a symlink, another device.
    Contents,
    /// Mode, owner, group or extended attributes alone.
    Attributes,
}

/// A change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Where: below the trees; empty for themselves.
    pub path: &'a [u8],
    /// How.
    pub how: How,
    /// Type in the first tree, and in the second.
    pub kinds: (Option<Kind>, Option<Kind>),
}

/// Compares two trees. `each` is told of every change, in the order of paths, and of progress with each name (`None`); where it
/// says `false` that is the end, with `EINTR`.
pub fn compare(a: Side, b: Side, each: &mut dyn FnMut(Option<Change>, &Tally) -> bool) -> core::result::Result<Tally, Failed> {
    let mut compare = Compare { sides: [a, b], path: Vec::new(), tally: Tally::default(), each, buffers: Default::default() };
    let (first, second) = (a.backend.attr(a.cx, a.node)?.kind, b.backend.attr(b.cx, b.node)?.kind);
    let done = compare.both((a.node, first), (b.node, second));
    done.map(|()| compare.tally).map_err(|error| Failed { error, path: compare.path })
}

struct Compare<'a, 'e> {
    sides: [Side<'a>; 2],
    path: Vec<u8>,
    tally: Tally,
    each: &'e mut dyn FnMut(Option<Change>, &Tally) -> bool,
    buffers: [Vec<u8>; 2],
}

/// A pair of directories on the way down.
struct Level {
    nodes: [Node; 2],
    names: [Vec<Vec<u8>>; 2],
    name_len: usize,
}

type Found = (Node, Kind);

impl Compare<'_, '_> {
    /// Two nodes, and all below them.
    fn both(&mut self, a: Found, b: Found) -> Result<()> {
        let mut levels = Vec::new();
        if self.pair(a, b)? {
            levels.push(self.level([a.0, b.0], 0)?);
        }
        while let Some(level) = levels.last_mut() {
            let [first, second] = &mut level.names;
            let order = match (first.last(), second.last()) {
                (None, None) => {
                    let end = self.path.len() - level.name_len;
                    self.path.truncate(end.saturating_sub(1));
                    levels.pop();
                    continue;
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.cmp(b),
            };
            let a = if order == Ordering::Greater { None } else { first.pop() };
            let b = if order == Ordering::Less { None } else { second.pop() };
            let Some(name) = a.as_ref().or(b.as_ref()) else { continue };
            let (nodes, before) = (level.nodes, self.path.len());
            if before > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            let found = [self.look(0, nodes[0], a.as_deref())?, self.look(1, nodes[1], b.as_deref())?];
            if let [Some(a), Some(b)] = found
                && self.pair(a, b)?
            {
                levels.push(self.level([a.0, b.0], name.len())?);
                continue;
            }
            self.alone(found)?;
            self.path.truncate(before);
        }
        Ok(())
    }

    fn look(&self, side: usize, dir: Node, name: Option<&[u8]>) -> Result<Option<Found>> {
        let Some(name) = name else { return Ok(None) };
        match self.sides[side].backend.lookup_kind(self.sides[side].cx, dir, name) {
            Ok(found) => Ok(Some(found)),
            // It has gone meanwhile.
            Err(Error::Posix(Errno::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of two directories, the last ones first.
    fn level(&self, nodes: [Node; 2], name_len: usize) -> Result<Level> {
        let names = |side: usize| {
            let Side { backend, cx, .. } = self.sides[side];
            let mut names = Names::of(backend, cx, nodes[side])?;
            let mut list = Vec::new();
            while let Some(name) = names.next() {
                list.push(name.to_vec());
            }
            if self.path.rsplit(|byte| *byte == b'/').next() == Some(SNAPS) {
                // States of the directory above, and what comes with them: no part of it.
                let is_snapshot = |name: &Vec<u8>| backend.is_frozen(backend.lookup(cx, nodes[side], name)?);
                list.retain(|name| name != IGNORED.0 && is_snapshot(name) != Ok(true));
            }
            list.sort_unstable_by(|a, b| b.cmp(a));
            Ok::<_, Error>(list)
        };
        Ok(Level { nodes, names: [names(0)?, names(1)?], name_len })
    }

    /// What is in one of them only.
    fn alone(&mut self, found: [Option<Found>; 2]) -> Result<()> {
        let kinds = (found[0].map(|found| found.1), found[1].map(|found| found.1));
        match kinds {
            (Some(_), None) => self.tell(How::Removed, kinds),
            (None, Some(_)) => self.tell(How::Added, kinds),
            _ => Ok(()),
        }
    }

    /// Compares two nodes themselves; whether both are directories, whose names are to be compared.
    fn pair(&mut self, a: Found, b: Found) -> Result<bool> {
        self.tally.names += 1;
        let kinds = (Some(a.1), Some(b.1));
        if a.1 != b.1 {
            self.tell(How::Type, kinds)?;
            return Ok(false);
        }
        let is_one = self.is_one_file_system() && a.0.id == b.0.id;
        if is_one {
            return Ok(false);
        }
        let attrs = [self.attr(0, a.0)?, self.attr(1, b.0)?];
        if !self.same_contents(a, b, &attrs)? {
            self.tell(How::Contents, kinds)?;
        } else if !self.same_attributes(a.0, b.0, &attrs)? {
            self.tell(How::Attributes, kinds)?;
        }
        if !(self.each)(None, &self.tally) {
            return Err(Errno::EINTR.into());
        }
        Ok(a.1 == Kind::Directory)
    }

    fn is_one_file_system(&self) -> bool {
        core::ptr::addr_eq(self.sides[0].backend, self.sides[1].backend)
    }

    fn attr(&self, side: usize, node: Node) -> Result<Attr> {
        self.sides[side].backend.attr(self.sides[side].cx, node)
    }

    fn same_contents(&mut self, a: Found, b: Found, [first, second]: &[Attr; 2]) -> Result<bool> {
        match a.1 {
            Kind::Regular if first.size != second.size => Ok(false),
            Kind::Regular => self.same_bytes(a.0, b.0, first.size),
            Kind::Symlink => Ok(self.text(0, a.0)? == self.text(1, b.0)?),
            Kind::CharDevice | Kind::BlockDevice => Ok(first.rdev == second.rdev),
            _ => Ok(true),
        }
    }

    fn text(&self, side: usize, node: Node) -> Result<Vec<u8>> {
        let mut text = vec![0; base::PATH_MAX];
        let len = self.sides[side].backend.readlink(self.sides[side].cx, node, UserSlice::from_mut(&mut text))?;
        text.truncate(len);
        Ok(text)
    }

    fn same_bytes(&mut self, a: Node, b: Node, size: u64) -> Result<bool> {
        let (mut at, mut read) = (0, 0);
        // Who may not read one of them is not told what is in it.
        for (side, node) in [(0, a), (1, b)] {
            self.sides[side].backend.access(self.sides[side].cx, node, base::R)?;
        }
        while at < size {
            let (from, len) = if self.is_one_file_system() {
                match self.sides[0].backend.differs(self.sides[0].cx, a, b, at)? {
                    Some(apart) => apart,
                    None => break,
                }
            } else {
                (at, size - at)
            };
            if !self.same_range(a, b, from, len.min(size.saturating_sub(from)))? {
                return Ok(false);
            }
            read += len.min(size);
            at = from.saturating_add(len);
        }
        self.tally.copied += read.min(size);
        self.tally.shared += size - read.min(size);
        Ok(true)
    }

    fn same_range(&mut self, a: Node, b: Node, from: u64, len: u64) -> Result<bool> {
        let mut done = 0;
        while done < len {
            let want = CHUNK.min((len - done) as usize);
            let mut got = [0; 2];
            for (side, node) in [(0, a), (1, b)] {
                let Side { backend, cx, .. } = self.sides[side];
                self.buffers[side].resize(CHUNK, 0);
                let into = UserSlice::from_mut(&mut self.buffers[side][..want]);
                got[side] = backend.read(cx, node, from + done, &[into])?;
            }
            if got[0] != got[1] || self.buffers[0][..got[0]] != self.buffers[1][..got[0]] {
                return Ok(false);
            }
            if got[0] == 0 {
                break;
            }
            done += got[0] as u64;
        }
        Ok(true)
    }

    fn same_attributes(&self, a: Node, b: Node, [first, second]: &[Attr; 2]) -> Result<bool> {
        let owned = |attr: &Attr| (attr.mode, attr.uid, attr.gid);
        Ok(owned(first) == owned(second) && self.xattrs(0, a)? == self.xattrs(1, b)?)
    }

    /// Names and values, sorted.
    fn xattrs(&self, side: usize, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Side { backend, cx, .. } = self.sides[side];
        if backend.list_xattr(cx, node, UserSlice::from_mut(&mut []))? == 0 {
            return Ok(Vec::new());
        }
        let mut list = vec![0; XATTRS_MAX];
        let len = backend.list_xattr(cx, node, UserSlice::from_mut(&mut list))?;
        let mut all = Vec::new();
        for name in list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; XATTRS_MAX];
            let len = backend.get_xattr(cx, node, name, UserSlice::from_mut(&mut value))?;
            value.truncate(len);
            all.push((name.to_vec(), value));
        }
        all.sort_unstable();
        Ok(all)
    }

    fn tell(&mut self, how: How, kinds: (Option<Kind>, Option<Kind>)) -> Result<()> {
        if (self.each)(Some(Change { path: &self.path, how, kinds }), &self.tally) { Ok(()) } else { Err(Errno::EINTR.into()) }
    }
}
