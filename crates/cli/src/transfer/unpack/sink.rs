//! Where members of an archive go.

use super::{Member, What};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::progress::Tally;
use crate::transfer::{CHUNK, FD};
use base::{Kind, Name, NewNode, Node, SetAttr, SetTime};
use indicatif::ProgressBar;
use pm::{Errno, UserSlice};
use std::collections::HashMap;
use std::io::Read;

/// A tree in an image that is being filled.
pub struct Sink<'a> {
    /// The archive, for messages.
    pub shown: String,
    tree: &'a mut Tree,
    target: &'a Place,
    bar: &'a ProgressBar,
    /// Directories that are there, by their names in the archive.
    directories: HashMap<Vec<u8>, Node>,
    /// Modes and times of directories: last, since what is made in them changes those.
    last: Vec<(Node, u16, Option<i64>)>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl<'a> Sink<'a> {
    /// The target is made with its parents.
    pub fn new(tree: &'a mut Tree, target: &'a Place, shown: String, bar: &'a ProgressBar) -> Result<Sink<'a>> {
        let root = tree.make_directories(target, &target.path)?;
        if tree.attr(target, root)?.kind != Kind::Directory {
            return Err(Failure::errno(target, Errno::ENOTDIR));
        }
        let directories = HashMap::from([(Vec::new(), root)]);
        Ok(Sink { shown, tree, target, bar, directories, last: Vec::new(), tally: Tally::default(), buffer: vec![0; CHUNK] })
    }

    /// Adds a member; `contents` are those of a file.
    pub fn add(&mut self, member: &Member, contents: &mut dyn Read) -> Result<()> {
        let path = self.plain(member.path)?;
        self.tally.names += 1;
        self.bar.set_message(format!("{} names", self.tally.names));
        if let What::Directory = member.what {
            let node = self.directory(&path)?;
            self.owner(node, member)?;
            self.xattrs(node, member)?;
            self.last.push((node, member.mode, member.mtime));
            return Ok(());
        }
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (self.directory(&path[..cut])?, &path[cut + 1..]),
            None => (self.directory(b"")?, &path[..]),
        };
        if name.is_empty() {
            return Err(self.failed(member.path)(Errno::EISDIR.into()));
        }
        if let Some(old) = self.tree.lookup(&self.shown, dir, name)? {
            if self.tree.attr(&self.shown, old)?.kind == Kind::Directory {
                return Err(self.failed(member.path)(Errno::EISDIR.into()));
            }
            self.tree.backend.unlink(&self.tree.cx(), dir, name).map_err(self.failed(member.path))?;
        }
        let (kind, rdev, target) = match member.what {
            What::Link(first) => {
                let node = self.find(first)?;
                return self.tree.backend.link(&self.tree.cx(), node, dir, name).map_err(self.failed(member.path));
            }
            What::Symlink(target) => (Kind::Symlink, 0, target),
            What::Special(kind, rdev) => (kind, rdev, &b""[..]),
            _ => (Kind::Regular, 0, &b""[..]),
        };
        let new = NewNode { kind, mode: member.mode & 0o777, rdev: rdev.into(), target };
        let node = self.tree.backend.create(&self.tree.cx(), dir, name, &new).map_err(self.failed(member.path))?;
        if kind == Kind::Regular {
            // Open while it is written: with the last close goes what was given out ahead.
            let write = rustix::fs::OFlags::WRONLY.bits();
            self.tree.backend.open(&self.tree.cx(), node, write, FD).map_err(self.failed(member.path))?;
            let copied = self.contents(member, node, contents);
            self.tree.backend.close(&self.tree.cx(), FD);
            copied?;
        }
        // In this order, since each undoes part of the later ones.
        let is_given = self.owner(node, member)?;
        self.xattrs(node, member)?;
        if kind != Kind::Symlink && is_given && member.mode & 0o7000 != 0 {
            self.set(member, node, &SetAttr { mode: Some(member.mode), ..SetAttr::default() })?;
        }
        if let Some(mtime) = member.mtime {
            self.set(member, node, &SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Gives directories their modes and times, those below before those above.
    pub fn finish(mut self) -> Result<Tally> {
        while let Some((node, mode, mtime)) = self.last.pop() {
            let mtime = mtime.map(SetTime::At);
            let change = SetAttr { mode: Some(mode), mtime, ..SetAttr::default() };
            self.tree.backend.set_attr(&self.tree.cx(), node, &change).map_err(self.failed(b"a directory"))?;
        }
        Ok(self.tally)
    }

    /// A failure with a member.
    fn failed(&self, path: &[u8]) -> impl Fn(base::Error) -> Failure + use<> {
        let what = format!("{} of {} (into {})", String::from_utf8_lossy(path), self.shown, self.target.image.display());
        move |error| Failure::engine(&what, error)
    }

    /// A name below the target, without superfluous slashes.
    fn plain(&self, path: &[u8]) -> Result<Vec<u8>> {
        let mut plain: Vec<u8> = Vec::new();
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
            if part == b".." {
                let shown = String::from_utf8_lossy(path);
                return Err(Failure::new(format!(
                    "{}: {shown} leads out of the directory it is unpacked into; such archives are refused",
                    self.shown
                )));
            }
            // One that is only too long is the engine's to refuse.
            if Name::new(part).is_none() && part.len() <= Name::MAX {
                return Err(Failure::new(format!("{}: {} is not a name", self.shown, String::from_utf8_lossy(path))));
            }
            if !plain.is_empty() {
                plain.push(b'/');
            }
            plain.extend_from_slice(part);
        }
        Ok(plain)
    }

    /// The directory of this plain name, made with its parents if it is not there. Symlinks are not followed.
    fn directory(&mut self, path: &[u8]) -> Result<Node> {
        if let Some(&node) = self.directories.get(path) {
            return Ok(node);
        }
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let (above, name) = (cut.map_or(&b""[..], |cut| &path[..cut]), cut.map_or(path, |cut| &path[cut + 1..]));
        let dir = self.directory(above)?;
        let node = match self.tree.lookup(&self.shown, dir, name)? {
            Some(node) if self.tree.attr(&self.shown, node)?.kind == Kind::Directory => node,
            Some(_) => return Err(self.failed(path)(Errno::ENOTDIR.into())),
            None => {
                let new = NewNode { kind: Kind::Directory, mode: 0o755, rdev: 0, target: b"" };
                self.tree.backend.create(&self.tree.cx(), dir, name, &new).map_err(self.failed(path))?
            }
        };
        self.directories.insert(path.to_vec(), node);
        Ok(node)
    }

    /// The member of this name, for another name of it.
    fn find(&mut self, path: &[u8]) -> Result<Node> {
        let path = self.plain(path)?;
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let dir = self.directory(cut.map_or(b"", |cut| &path[..cut]))?;
        let found = self.tree.lookup(&self.shown, dir, cut.map_or(&path, |cut| &path[cut + 1..]))?;
        found.ok_or_else(|| self.failed(&path)(Errno::ENOENT.into()))
    }

    /// Chunks of zeros become holes.
    fn contents(&mut self, member: &Member, node: Node, contents: &mut dyn Read) -> Result<()> {
        let (mut at, mut end) = (0u64, 0u64);
        loop {
            let mut len = 0;
            while len < self.buffer.len() {
                match contents.read(&mut self.buffer[len..]) {
                    Ok(0) => break,
                    Ok(read) => len += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Failure::new(format!("{}: broken off, or damaged: {error}", self.shown))),
                }
            }
            if len == 0 {
                break;
            }
            if self.buffer[..len].iter().any(|&byte| byte != 0) {
                self.write(member, node, at, len)?;
                end = at + len as u64;
            }
            at += len as u64;
            self.tally.bytes += len as u64;
        }
        if end == at {
            return Ok(());
        }
        self.set(member, node, &SetAttr { size: Some(at), size_checked: true, ..SetAttr::default() })
    }

    fn write(&self, member: &Member, node: Node, at: u64, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = UserSlice::from_ref(&self.buffer[done..len]);
            let written = self.tree.backend.write(&self.tree.cx(), node, Some(at + done as u64), &[part]);
            match written.map_err(self.failed(member.path))? {
                (0, _) => return Err(self.failed(member.path)(Errno::ENOSPC.into())),
                (written, _) => done += written,
            }
        }
        Ok(())
    }

    fn set(&self, member: &Member, node: Node, change: &SetAttr) -> Result<()> {
        self.tree.backend.set_attr(&self.tree.cx(), node, change).map_err(self.failed(member.path))
    }

    /// Gives the node to its owner, as tar does for root only; whether it may have its set-id bits.
    fn owner(&mut self, node: Node, member: &Member) -> Result<bool> {
        let Some((uid, gid)) = member.owner.filter(|_| self.tree.is_privileged()) else { return Ok(true) };
        let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.set(member, node, &owner).map(|()| true)
    }

    fn xattrs(&mut self, node: Node, member: &Member) -> Result<()> {
        for (name, value) in &member.xattrs {
            match self.tree.backend.set_xattr(&self.tree.cx(), node, name, UserSlice::from_ref(value), 0) {
                Err(error) if matches!(error.errno(), Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP) => {
                    self.tally.dropped += 1
                }
                other => other.map_err(self.failed(member.path))?,
            }
        }
        Ok(())
    }
}
