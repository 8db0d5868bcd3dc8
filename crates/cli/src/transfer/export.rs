//! From an image to the kernel's files.

use super::{CHUNK, FD, Shortcut, names, shortcut, split_time};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::progress::Tally;
use base::{Attr, Kind, Node, ids};
use indicatif::ProgressBar;
use pm::{Errno, UserSlice};
use rustix::fs as host;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Counts names and bytes below `node`, for the progress bar; errors come later.
pub fn measure(tree: &Tree, node: Node) -> Tally {
    let mut tally = Tally::default();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        let Ok(attr) = tree.attr(&"", node) else { continue };
        tally.names += 1;
        match attr.kind {
            Kind::Regular => tally.bytes += attr.size,
            Kind::Directory => {
                let names = tree.list(&"", node).unwrap_or_default();
                left.extend(names.iter().filter_map(|name| tree.lookup(&"", node, name).ok().flatten()));
            }
            _ => {}
        }
    }
    tally
}

/// Copies `source` to `target`.
pub fn export(tree: &mut Tree, source: &Place, target: &Path, bar: &ProgressBar) -> Result<Tally> {
    let node = tree.find(source, false)?;
    let attr = tree.attr(source, node)?;
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|error| Failure::io(parent.display(), &error))?;
    }
    let target = if attr.kind != Kind::Directory && target.is_dir() {
        let cut = source.path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        target.join(OsStr::from_bytes(&source.path[cut..]))
    } else {
        target.to_path_buf()
    };
    let image = source.image.display().to_string();
    let mut export =
        Export { tree, image, bar, linked: HashMap::new(), shortcut: None, tally: Tally::default(), buffer: vec![0; CHUNK] };
    export.entry(node, &target)?;
    export.tally.show(bar);
    Ok(export.tally)
}

struct Export<'a> {
    tree: &'a Tree,
    /// Name of the image, for messages.
    image: String,
    bar: &'a ProgressBar,
    /// Files with several names: inode number here, first path there, and what that needs.
    linked: HashMap<u64, (PathBuf, Option<Rc<Shortcut>>)>,
    /// What the paths of this moment begin with, if that is not the target.
    shortcut: Option<Rc<Shortcut>>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl Export<'_> {
    /// A failure of the image while it is copied to `target`.
    fn failed(&self, target: &Path) -> impl Fn(base::Error) -> Failure + use<> {
        let what = format!("{} (from {})", target.display(), self.image);
        move |error| Failure::engine(&what, error)
    }

    fn entry(&mut self, node: Node, target: &Path) -> Result<()> {
        let attr = self.tree.backend.attr(&self.tree.cx(), node).map_err(self.failed(target))?;
        self.tally.names += 1;
        self.tally.show(self.bar);
        if attr.kind == Kind::Directory {
            self.directory(node, target)?;
        } else {
            self.clear(target)?;
            if attr.nlink > 1 {
                if let Some((first, _)) = self.linked.get(&attr.ino) {
                    return std::fs::hard_link(first, target).map_err(|error| Failure::io(target.display(), &error));
                }
                self.linked.insert(attr.ino, (target.to_path_buf(), self.shortcut.clone()));
            }
            self.leaf(node, &attr, target)?;
        }
        self.attributes(node, &attr, target)
    }

    /// Makes room at `target`; a directory there stays, and is an error.
    fn clear(&self, target: &Path) -> Result<()> {
        match std::fs::remove_file(target) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io(target.display(), &error)),
            _ => Ok(()),
        }
    }

    fn is_there(&self, target: &Path) -> bool {
        if self.tally.names == 1 { target.is_dir() } else { target.symlink_metadata().is_ok_and(|meta| meta.is_dir()) }
    }

    fn directory(&mut self, node: Node, target: &Path) -> Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(target) {
            // The user's own target may be a link to one; below it there is none that is followed.
            Err(_) if self.is_there(target) => {}
            other => other.map_err(|error| Failure::io(target.display(), &error))?,
        }
        let Some(shortcut) = shortcut(target).map_err(|error| Failure::io(target.display(), &error))? else {
            return self.entries(node, target);
        };
        let shortcut = Rc::new(shortcut);
        let before = self.shortcut.replace(Rc::clone(&shortcut));
        let done = self.entries(node, &shortcut.path);
        self.shortcut = before;
        done
    }

    fn entries(&mut self, node: Node, target: &Path) -> Result<()> {
        for name in self.tree.list(&target.display(), node)? {
            // It may have gone since; then there is nothing to copy.
            if let Some(child) = self.tree.lookup(&target.display(), node, &name)? {
                self.entry(child, &target.join(OsStr::from_bytes(&name)))?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, node: Node, attr: &Attr, target: &Path) -> Result<()> {
        let io = |error| Failure::io(target.display(), &error);
        match attr.kind {
            Kind::Symlink => {
                let text = self.tree.target(&target.display(), node)?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&text), target).map_err(io)
            }
            Kind::Regular => {
                // Open while it is read: it stays whole if somebody removes it meanwhile.
                let (cx, backend) = (self.tree.cx(), self.tree.backend);
                backend.access(&cx, node, base::R).map_err(self.failed(target))?;
                backend.open(&cx, node, 0, FD).map_err(self.failed(target))?;
                let copied = self.contents(node, attr, target);
                self.tree.backend.close(&self.tree.cx(), FD);
                copied
            }
            kind => {
                let file_type = host::FileType::from_raw_mode(kind.type_bits());
                host::mknodat(host::CWD, target, file_type, host::Mode::from_raw_mode(0o600), attr.rdev)
                    .map_err(|error| io(std::io::Error::from(error)))
            }
        }
    }

    fn contents(&mut self, node: Node, attr: &Attr, target: &Path) -> Result<()> {
        let io = |error| Failure::io(target.display(), &error);
        let (cx, backend) = (self.tree.cx(), self.tree.backend);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(io)?;
        let is_sparse = attr.blocks * 512 < attr.size;
        let (mut at, mut end) = (0, attr.size);
        while at < attr.size {
            if is_sparse {
                match backend.seek(&cx, node, at, true) {
                    Ok(data) => at = data,
                    Err(error) if error.errno() == Errno::ENXIO => break,
                    Err(error) => return Err(self.failed(target)(error)),
                }
                end = backend.seek(&cx, node, at, false).unwrap_or(attr.size);
            }
            while at < end {
                let room = self.buffer.len().min((end - at).min(CHUNK as u64) as usize);
                let into = UserSlice::from_mut(&mut self.buffer[..room]);
                let read = backend.read(&cx, node, at, &[into]).map_err(self.failed(target))?;
                if read == 0 {
                    break;
                }
                file.write_all_at(&self.buffer[..read], at).map_err(io)?;
                at += read as u64;
                self.tally.bytes += read as u64;
                self.tally.show(self.bar);
            }
            if !is_sparse {
                break;
            }
        }
        if is_sparse { file.set_len(attr.size).map_err(io) } else { Ok(()) }
    }

    /// Owner, extended attributes, mode, times: in this order, since each undoes part of the later ones. (A new owner
    /// takes capabilities away.)
    fn attributes(&mut self, node: Node, attr: &Attr, target: &Path) -> Result<()> {
        let io = |error: std::io::Error| Failure::io(target.display(), &error);
        let owned = std::os::unix::fs::lchown(target, Some(ids::shown_user(attr.uid)), Some(ids::shown_group(attr.gid)));
        let is_owner_kept = match owned {
            Err(error) if error.raw_os_error() == Some(Errno::EPERM.0) => {
                self.tally.dropped += 1;
                false
            }
            other => other.map(|()| true).map_err(io)?,
        };
        self.xattrs(node, target)?;
        if attr.kind != Kind::Symlink {
            let mode = if is_owner_kept { attr.mode } else { attr.mode & 0o1777 };
            std::fs::set_permissions(target, std::fs::Permissions::from_mode(mode.into())).map_err(io)?;
        }
        let (seconds, nanoseconds) = split_time(attr.mtime);
        let mtime = host::Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
        let atime = host::Timespec { tv_sec: 0, tv_nsec: host::UTIME_OMIT as _ };
        let times = host::Timestamps { last_access: atime, last_modification: mtime };
        host::utimensat(host::CWD, target, &times, host::AtFlags::SYMLINK_NOFOLLOW).map_err(|error| io(error.into()))
    }

    fn xattrs(&mut self, node: Node, target: &Path) -> Result<()> {
        let (cx, backend) = (self.tree.cx(), self.tree.backend);
        let mut list = vec![0u8; 65_536];
        let len = match backend.list_xattr(&cx, node, UserSlice::from_mut(&mut list)) {
            Ok(len) => len,
            Err(error) if error.errno() == Errno::EOPNOTSUPP => 0,
            Err(error) => return Err(self.failed(target)(error)),
        };
        for name in names(&list[..len.min(list.len())]) {
            let mut value = vec![0u8; 65_536];
            let len = backend.get_xattr(&cx, node, name, UserSlice::from_mut(&mut value));
            let (Ok(len), Ok(c_name)) = (len, CString::new(name)) else {
                self.tally.dropped += 1;
                continue;
            };
            let set = host::lsetxattr(target, c_name.as_c_str(), &value[..len.min(value.len())], host::XattrFlags::empty());
            self.tally.dropped += u64::from(set.is_err());
        }
        Ok(())
    }
}
