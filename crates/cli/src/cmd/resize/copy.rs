//! All that is in an image, into an empty one: names and attributes, contents with their holes, what files share, what is
//! frozen. Inode numbers, and the times of birth and change, are new.

use base::{Attr, Cx, Error, FileRun, Kind, NewNode, Node, Result, SetAttr, SetTime};
use pm::{Errno, UserSlice};
use rustix::fs::OFlags;
use std::collections::{BTreeMap, HashMap};
use vfs::tree::{Failed, Tally};
use vfs::{ASIDE, Backend};

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 20;
/// Most bytes of a list of attributes, and of one.
const XATTRS_MAX: usize = 65_536;
/// The descriptor under which the file being filled is open.
const FD: u32 = 0;

/// A directory on the way down.
struct Level {
    source: Node,
    target: Node,
    /// What comes next in it, from behind.
    names: Vec<Vec<u8>>,
    /// Where its name begins in the path.
    path_len: usize,
}

/// Where blocks that files share are in the new image.
struct Place {
    len: u64,
    node: Node,
    at: u64,
}

/// A copy in progress.
pub struct Copy<'a> {
    source: &'a dyn Backend,
    target: &'a dyn Backend,
    cx: &'a Cx<'a>,
    /// Told of progress; `false` ends it, with `EINTR`.
    each: &'a mut dyn FnMut(&Tally) -> bool,
    tally: Tally,
    /// Files with several names, by their inode numbers there.
    linked: HashMap<u64, Node>,
    /// Those of them that nobody may change: when they have all their names.
    frozen: Vec<Node>,
    /// By their places in the old image.
    places: BTreeMap<u64, Place>,
    levels: Vec<Level>,
    path: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> Copy<'a> {
    /// From all of `source` to `target`, in which nothing is; `cx` is of both.
    pub fn new(
        source: &'a dyn Backend,
        target: &'a dyn Backend,
        cx: &'a Cx<'a>,
        each: &'a mut dyn FnMut(&Tally) -> bool,
    ) -> Copy<'a> {
        let (linked, frozen, places) = (HashMap::new(), Vec::new(), BTreeMap::new());
        let (levels, path, buffer) = (Vec::new(), Vec::new(), vec![0; CHUNK as usize]);
        Copy { source, target, cx, each, tally: Tally::default(), linked, frozen, places, levels, path, buffer }
    }

    /// Copies.
    pub fn all(mut self) -> std::result::Result<Tally, Failed> {
        match self.walk() {
            Ok(()) => Ok(self.tally),
            Err(error) => Err(Failed { error, path: self.path }),
        }
    }

    fn walk(&mut self) -> Result<()> {
        self.enter(self.source.root(), self.target.root(), 0)?;
        while let Some(level) = self.levels.last_mut() {
            let (from, to) = (level.source, level.target);
            let Some(name) = level.names.pop() else {
                let (path_len, is_top) = (level.path_len, self.levels.len() == 1);
                let attr = self.source.attr(self.cx, from)?;
                self.attributes((from, to), &attr)?;
                // The root is no part of a snapshot.
                if !is_top && self.source.is_frozen(from)? {
                    self.target.freeze(self.cx, to, true)?;
                }
                self.levels.pop();
                self.path.truncate(path_len);
                continue;
            };
            let path_len = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            if !self.entry(from, to, &name, path_len)? {
                self.path.truncate(path_len);
            }
        }
        self.frozen.iter().try_for_each(|node| self.target.freeze(self.cx, *node, true))
    }

    fn enter(&mut self, source: Node, target: Node, path_len: usize) -> Result<()> {
        let mut names = Vec::new();
        self.source.readdir(self.cx, source, 0, &mut |entry| {
            // What a dead program was making is no part of it.
            if entry.name != b"." && entry.name != b".." && !entry.name.starts_with(ASIDE) {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.levels.push(Level { source, target, names, path_len });
        self.told(1)
    }

    fn told(&mut self, names: u64) -> Result<()> {
        self.tally.names += names;
        if (self.each)(&self.tally) { Ok(()) } else { Err(Errno::EINTR.into()) }
    }

    /// Copies the name; whether it is a directory, which is entered.
    fn entry(&mut self, from: Node, to: Node, name: &[u8], path_len: usize) -> Result<bool> {
        let source = self.source.lookup(self.cx, from, name)?;
        let attr = self.source.attr(self.cx, source)?;
        let is_linked = attr.kind != Kind::Directory && attr.nlink > 1;
        if let Some(first) = self.linked.get(&attr.ino).filter(|_| is_linked) {
            self.target.link(self.cx, *first, to, name)?;
            self.told(1)?;
            return Ok(false);
        }
        let target = self.create(source, &attr, to, name)?;
        if attr.kind == Kind::Directory {
            self.enter(source, target, path_len)?;
            return Ok(true);
        }
        if attr.kind == Kind::Regular {
            // Open while it is filled: with the last close goes what was given out ahead.
            self.target.open(self.cx, target, OFlags::WRONLY.bits(), FD)?;
            let filled = self.contents(source, target, attr.size);
            self.target.close(self.cx, FD);
            filled?;
        }
        self.attributes((source, target), &attr)?;
        let is_frozen = self.source.is_frozen(source)?;
        if is_linked {
            self.linked.insert(attr.ino, target);
            self.frozen.extend(is_frozen.then_some(target));
        } else if is_frozen {
            self.target.freeze(self.cx, target, true)?;
        }
        self.told(1)?;
        Ok(false)
    }

    fn create(&self, source: Node, attr: &Attr, dir: Node, name: &[u8]) -> Result<Node> {
        let mut text = Vec::new();
        if attr.kind == Kind::Symlink {
            text.resize(base::PATH_MAX, 0);
            let len = self.source.readlink(self.cx, source, UserSlice::from_mut(&mut text))?;
            text.truncate(len);
        }
        let mode = if attr.kind == Kind::Directory { 0o700 } else { attr.mode & 0o777 };
        self.target.create(self.cx, dir, name, &NewNode { kind: attr.kind, mode, rdev: attr.rdev, target: &text })
    }

    /// The runs of a file's blocks, one after the other; what lies between them is a hole there too.
    fn contents(&mut self, from: Node, to: Node, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size
            && let Some(run) = self.source.run_at(self.cx, from, at)?
            && run.start < size
        {
            at = run.start + run.len;
            if run.is_shared {
                self.shared(&run, from, to, size)?;
            } else {
                self.bytes(from, to, run.start, run.len.min(size - run.start))?;
            }
            if run.is_last {
                break;
            }
        }
        self.set(to, SetAttr { size: Some(size), size_checked: true, ..SetAttr::default() })
    }

    /// A run that others have too: shared with the first of them, which was copied.
    fn shared(&mut self, run: &FileRun, from: Node, to: Node, size: u64) -> Result<()> {
        let (mut image, mut at, end) = (run.image, run.start, (run.start + run.len).min(size));
        while at < end {
            let before = self.places.range(..=image).next_back();
            let Some((&start, place)) = before.filter(|(start, place)| image < *start + place.len) else {
                let next = self.places.range(image..).next().map_or(u64::MAX, |(start, _)| *start);
                let len = (next - image).min(end - at);
                self.bytes(from, to, at, len)?;
                self.places.insert(image, Place { len, node: to, at });
                (image, at) = (image + len, at + len);
                continue;
            };
            let len = (start + place.len - image).min(end - at);
            let there = (place.node, place.at + (image - start));
            match self.target.clone_range(self.cx, there, (to, at), len) {
                Ok(()) => self.tally.shared += len,
                // As of a block in which files end at different bytes.
                Err(Error::Posix(Errno::EINVAL | Errno::EMLINK | Errno::EOPNOTSUPP)) => self.bytes(from, to, at, len)?,
                Err(error) => return Err(error),
            }
            (image, at) = (image + len, at + len);
        }
        Ok(())
    }

    fn bytes(&mut self, from: Node, to: Node, mut at: u64, len: u64) -> Result<()> {
        let end = at + len;
        while at < end {
            let room = CHUNK.min(end - at) as usize;
            let read = self.source.read(self.cx, from, at, &[UserSlice::from_mut(&mut self.buffer[..room])])?;
            if read == 0 {
                break;
            }
            let mut done = 0;
            while done < read {
                let part = UserSlice::from_ref(&self.buffer[done..read]);
                let (written, _) = self.target.write(self.cx, to, Some(at + done as u64), &[part])?;
                if written == 0 {
                    return Err(Errno::ENOSPC.into());
                }
                done += written;
            }
            at += read as u64;
            self.tally.copied += read as u64;
            self.told(0)?;
        }
        Ok(())
    }

    /// Owner, extended attributes, mode, times: in this order, since each undoes part of the later ones.
    fn attributes(&self, (source, target): (Node, Node), attr: &Attr) -> Result<()> {
        self.set(target, SetAttr { uid: Some(attr.uid), gid: Some(attr.gid), ..SetAttr::default() })?;
        self.xattrs(source, target)?;
        if attr.kind != Kind::Symlink {
            self.set(target, SetAttr { mode: Some(attr.mode), ..SetAttr::default() })?;
        }
        // One that nobody has set is that of the contents.
        let atime = (attr.atime != attr.mtime).then_some(SetTime::At(attr.atime));
        self.set(target, SetAttr { atime, mtime: Some(SetTime::At(attr.mtime)), ..SetAttr::default() })
    }

    fn xattrs(&self, source: Node, target: Node) -> Result<()> {
        let mut list = vec![0; XATTRS_MAX];
        let len = match self.source.list_xattr(self.cx, source, UserSlice::from_mut(&mut list)) {
            Err(Error::Posix(Errno::EOPNOTSUPP)) => 0,
            len => len?,
        };
        let mut value = vec![0; if len == 0 { 0 } else { XATTRS_MAX }];
        for name in list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let len = self.source.get_xattr(self.cx, source, name, UserSlice::from_mut(&mut value))?;
            self.target.set_xattr(self.cx, target, name, UserSlice::from_ref(&value[..len]), 0)?;
        }
        Ok(())
    }

    fn set(&self, node: Node, change: SetAttr) -> Result<()> {
        self.target.set_attr(self.cx, node, &change)
    }
}
