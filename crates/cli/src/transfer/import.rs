//! From the kernel's files into an image.

use super::{CHUNK, FD, names, shortcut};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::progress::Tally;
use base::{Kind, NewNode, Node, SetAttr, SetTime, ids};
use indicatif::ProgressBar;
use pm::{Errno, UserSlice};
use rustix::fs as host;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Counts names and bytes below `path`, for the progress bar; errors come later.
pub fn measure(path: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut left = vec![path.to_path_buf()];
    while let Some(path) = left.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        tally.names += 1;
        if meta.is_file() {
            tally.bytes += meta.len();
        } else if meta.is_dir() {
            left.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    tally
}

/// Copies `source` to `target`. A name below `source` that cannot be read is reported, counted (`Tally::unread`) and left
/// out, as by `cp -r`; a failure of the image ends the copy.
pub fn import(tree: &mut Tree, source: &Path, target: &Place, bar: &ProgressBar) -> Result<Tally> {
    let meta = std::fs::symlink_metadata(source).map_err(|error| Failure::io(source.display(), &error))?;
    let mut import = Import { tree, target, bar, linked: HashMap::new(), tally: Tally::default(), buffer: vec![0; CHUNK] };
    if meta.is_dir() {
        let dir = import.tree.make_directories(target, &target.path)?;
        let attr = import.tree.attr(target, dir)?;
        if attr.kind != Kind::Directory {
            return Err(Failure::errno(target, Errno::ENOTDIR));
        }
        import.tally.names += 1;
        import.directory(source, &meta, dir)?;
    } else {
        // Into a directory that is there, under its own name, as `cp` and `export` do.
        let mut path = target.path.clone();
        if import.tree.is_directory(target)?
            && let Some(name) = source.file_name()
        {
            path.extend_from_slice(b"/");
            path.extend_from_slice(name.as_bytes());
        }
        let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let name = path[cut..].to_vec();
        if name.is_empty() {
            return Err(Failure::new(format!("{target}: name the file itself, as {} is not a directory", source.display())));
        }
        let dir = import.tree.make_directories(target, &path[..cut])?;
        import.entry(source, &meta, dir, &name)?;
    }
    import.tally.show(bar);
    Ok(import.tally)
}

struct Import<'a> {
    tree: &'a mut Tree,
    target: &'a Place,
    bar: &'a ProgressBar,
    /// Files with several names: device and inode number there, node here.
    linked: HashMap<(u64, u64), Node>,
    tally: Tally,
    buffer: Vec<u8>,
}

/// What must be read of a source before a name for it is made.
enum Opened {
    File(File),
    Symlink(PathBuf),
    Nothing,
}

impl Opened {
    fn new(source: &Path, kind: Kind) -> std::io::Result<Opened> {
        Ok(match kind {
            Kind::Regular => Opened::File(File::open(source)?),
            Kind::Symlink => Opened::Symlink(std::fs::read_link(source)?),
            _ => Opened::Nothing,
        })
    }
}

/// Why contents were not copied to their end.
enum Stopped {
    Reading(std::io::Error),
    Writing(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Writing(failure)
    }
}

impl Import<'_> {
    /// A failure while `source` is copied into the image.
    fn failed(&self, source: &Path) -> impl Fn(base::Error) -> Failure + use<> {
        let what = format!("{} (into {})", source.display(), self.target.image.display());
        move |error| Failure::engine(&what, error)
    }

    /// Reports a source that cannot be read.
    fn unread(&mut self, source: &Path, error: &std::io::Error) {
        self.tally.unread += 1;
        let failure = Failure::io(source.display(), error);
        self.bar.suspend(|| eprintln!("bypath: {failure}"));
    }

    fn directory(&mut self, source: &Path, meta: &Metadata, node: Node) -> Result<()> {
        match shortcut(source) {
            Ok(shortcut) => self.names(source, shortcut.as_ref().map_or(source, |shortcut| &shortcut.path), node)?,
            Err(error) => self.unread(source, &error),
        }
        self.attributes(source, meta, node, Kind::Directory)
    }

    /// Copies what the directory `source`, which is also reached as `short`, has in it.
    fn names(&mut self, source: &Path, short: &Path, node: Node) -> Result<()> {
        let mut entries: Vec<PathBuf> = Vec::new();
        let list = std::fs::read_dir(short).and_then(|all| {
            for entry in all {
                entries.push(entry?.path());
            }
            Ok(())
        });
        if let Err(error) = list {
            self.unread(source, &error);
        }
        entries.sort_unstable();
        for path in entries {
            let name = path.file_name().unwrap_or_default().as_bytes();
            match std::fs::symlink_metadata(&path) {
                Ok(meta) => self.entry(&path, &meta, node, name)?,
                Err(error) => self.unread(&path, &error),
            }
        }
        Ok(())
    }

    /// Copies what is at `source` to `name` in `dir`.
    fn entry(&mut self, source: &Path, meta: &Metadata, dir: Node, name: &[u8]) -> Result<()> {
        let kind = kind_of(meta);
        let several = kind != Kind::Directory && meta.nlink() > 1;
        let first = self.linked.get(&(meta.dev(), meta.ino())).copied().filter(|_| several);
        // Opened before an older file of this name goes, which stays if the new one cannot be read.
        let opened = match if first.is_some() { Ok(Opened::Nothing) } else { Opened::new(source, kind) } {
            Ok(opened) => opened,
            Err(error) => {
                self.unread(source, &error);
                return Ok(());
            }
        };
        let old = self.tree.lookup(&source.display(), dir, name)?;
        self.tally.names += 1;
        self.tally.show(self.bar);
        if let Some(old) = old {
            let is_directory = self.tree.attr(&source.display(), old)?.kind == Kind::Directory;
            if kind == Kind::Directory && is_directory {
                return self.directory(source, meta, old);
            }
            if kind == Kind::Directory || is_directory {
                let errno = if is_directory { Errno::EISDIR } else { Errno::ENOTDIR };
                return Err(self.failed(source)(errno.into()));
            }
            self.tree.backend.unlink(&self.tree.cx(), dir, name).map_err(self.failed(source))?;
        }
        if let Some(first) = first {
            return self.tree.backend.link(&self.tree.cx(), first, dir, name).map_err(self.failed(source));
        }
        let node = self.create(source, meta, kind, &opened, dir, name)?;
        if let Opened::File(file) = &opened {
            // Open while it is written: with the last close goes what was given out ahead.
            let write = rustix::fs::OFlags::WRONLY.bits();
            self.tree.backend.open(&self.tree.cx(), node, write, FD).map_err(self.failed(source))?;
            let copied = self.contents(source, file, meta, node);
            self.tree.backend.close(&self.tree.cx(), FD);
            if let Err(stopped) = copied {
                return self.stopped(source, stopped, dir, name);
            }
        }
        if several {
            self.linked.insert((meta.dev(), meta.ino()), node);
        }
        match kind {
            Kind::Directory => self.directory(source, meta, node),
            _ => self.attributes(source, meta, node, kind),
        }
    }

    /// A file whose contents could not be copied to their end. A part of one must not be taken for the whole.
    fn stopped(&mut self, source: &Path, stopped: Stopped, dir: Node, name: &[u8]) -> Result<()> {
        match stopped {
            Stopped::Writing(failure) => Err(failure),
            Stopped::Reading(error) => {
                self.unread(source, &error);
                self.tree.backend.unlink(&self.tree.cx(), dir, name).map_err(self.failed(source))
            }
        }
    }

    fn create(&self, source: &Path, meta: &Metadata, kind: Kind, opened: &Opened, dir: Node, name: &[u8]) -> Result<Node> {
        let target: &[u8] = if let Opened::Symlink(target) = opened { target.as_os_str().as_bytes() } else { b"" };
        // While it is filled it is nobody else's.
        let mode = if kind == Kind::Directory { 0o700 } else { meta.mode() as u16 & 0o777 };
        let new = NewNode { kind, mode, rdev: meta.rdev(), target };
        self.tree.backend.create(&self.tree.cx(), dir, name, &new).map_err(self.failed(source))
    }

    fn contents(&mut self, source: &Path, file: &File, meta: &Metadata, node: Node) -> std::result::Result<(), Stopped> {
        let is_sparse = meta.blocks() * 512 < meta.len();
        let mut at = 0;
        loop {
            let mut end = u64::MAX;
            if is_sparse {
                let Ok(data) = host::seek(file, host::SeekFrom::Data(at)) else { break };
                at = data;
                end = host::seek(file, host::SeekFrom::Hole(at)).unwrap_or(u64::MAX);
            }
            while at < end {
                let room = self.buffer.len().min((end - at).min(CHUNK as u64) as usize);
                let read = file.read_at(&mut self.buffer[..room], at).map_err(Stopped::Reading)?;
                if read == 0 {
                    return Ok(self.finish_contents(source, meta, node, at)?);
                }
                self.write(source, node, at, read)?;
                at += read as u64;
                if !is_sparse && read < room && at >= meta.len() {
                    return Ok(());
                }
            }
        }
        Ok(self.finish_contents(source, meta, node, at)?)
    }

    /// A hole at the end is not written: sets the size.
    fn finish_contents(&self, source: &Path, meta: &Metadata, node: Node, at: u64) -> Result<()> {
        if at >= meta.len() {
            return Ok(());
        }
        let size = SetAttr { size: Some(meta.len()), size_checked: true, ..SetAttr::default() };
        self.tree.backend.set_attr(&self.tree.cx(), node, &size).map_err(self.failed(source))
    }

    fn write(&mut self, source: &Path, node: Node, mut at: u64, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = UserSlice::from_ref(&self.buffer[done..len]);
            let (written, _) = self.tree.backend.write(&self.tree.cx(), node, Some(at), &[part]).map_err(self.failed(source))?;
            if written == 0 {
                return Err(self.failed(source)(Errno::ENOSPC.into()));
            }
            done += written;
            at += written as u64;
        }
        self.tally.bytes += len as u64;
        self.tally.show(self.bar);
        Ok(())
    }

    /// Owner, extended attributes, mode, times: in this order, since each undoes part of the later ones. (A new owner
    /// takes capabilities away.)
    fn attributes(&mut self, source: &Path, meta: &Metadata, node: Node, kind: Kind) -> Result<()> {
        let have = self.tree.attr(&source.display(), node)?;
        let mut dropped = 0;
        let (uid, gid) = (ids::user(meta.uid()).unwrap_or(meta.uid()), ids::group(meta.gid()).unwrap_or(meta.gid()));
        if (have.uid, have.gid) != (uid, gid) {
            let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            match self.set(node, &owner) {
                Err(error) if error.errno() == Errno::EPERM => dropped += 1,
                other => other.map_err(self.failed(source))?,
            }
        }
        self.xattrs(source, node)?;
        let mode = meta.mode() as u16 & 0o7777;
        if kind != Kind::Symlink && (dropped == 0 || mode & 0o6000 == 0) {
            self.set(node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map_err(self.failed(source))?;
        }
        let mtime = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
        self.set(node, &SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() }).map_err(self.failed(source))?;
        self.tally.dropped += dropped;
        Ok(())
    }

    fn set(&self, node: Node, change: &SetAttr) -> base::Result<()> {
        self.tree.backend.set_attr(&self.tree.cx(), node, change)
    }

    fn xattrs(&mut self, source: &Path, node: Node) -> Result<()> {
        let mut list = vec![0u8; 65_536];
        let len = match host::llistxattr(source, &mut list[..]) {
            Ok(len) => len,
            Err(_) => return Ok(()),
        };
        for name in names(&list[..len]) {
            let Ok(c_name) = CString::new(name) else { continue };
            let mut value = vec![0u8; 65_536];
            let Ok(len) = host::lgetxattr(source, c_name.as_c_str(), &mut value[..]) else {
                self.tally.dropped += 1;
                continue;
            };
            let value = UserSlice::from_ref(&value[..len]);
            match self.tree.backend.set_xattr(&self.tree.cx(), node, name, value, 0) {
                Ok(()) => {}
                Err(error) if matches!(error.errno(), Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP) => {
                    self.tally.dropped += 1
                }
                Err(error) => return Err(self.failed(source)(error)),
            }
        }
        Ok(())
    }
}

fn kind_of(meta: &Metadata) -> Kind {
    Kind::from_dt((meta.mode() >> 12 & 15) as u8).unwrap_or(Kind::Regular)
}

/// Whether `path` names something that lies inside the image file itself.
pub fn is_image(path: &Path, image: &Path) -> bool {
    let same = |a: &Path, b: &Path| {
        let (a, b) = (std::fs::metadata(a), std::fs::metadata(b));
        matches!((a, b), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    same(path, image) || path == OsStr::new("")
}
