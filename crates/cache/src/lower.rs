//! The lower file system: a directory of the kernel's, by paths none of whose components is a symlink.

use base::{Attr, Errno, Error, Kind, Result};
use core::ffi::CStr;
use engine::lower::{Change, Stamp, Whole};
use pm::UserSlice;
use pm::file::File;
use pm::host::Statx;
use pm::sys::abi;

/// Longest path of the directory itself.
const ROOT_MAX: usize = 1024;
/// Longest path.
const PATH_MAX: usize = 4096;

/// The directory.
#[derive(Debug)]
pub struct Lower {
    root: [u8; ROOT_MAX],
    len: usize,
}

/// A path with its NUL.
pub struct Path([u8; PATH_MAX]);

impl Path {
    /// As text.
    pub fn text(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Error::Posix(Errno::ENAMETOOLONG))
    }
}

impl Lower {
    /// The directory at `place`, absolute and canonical.
    pub fn new(place: &[u8]) -> Result<Lower> {
        let place = if place == b"/" { b"" } else { place };
        let mut root = [0; ROOT_MAX];
        root.get_mut(..place.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(place);
        Ok(Lower { root, len: place.len() })
    }

    /// Where it is; empty for `/`.
    pub fn root(&self) -> &[u8] {
        &self.root[..self.len]
    }

    /// A path below it: `tail` writes what follows the root to the end of its room and says where that begins; then `name`.
    pub fn path(&self, tail: impl FnOnce(&mut [u8]) -> Result<usize>, name: &[u8]) -> Result<Path> {
        let mut path = [0; PATH_MAX];
        let room = PATH_MAX - 1 - if name.is_empty() { 0 } else { name.len() + 1 };
        let from = tail(&mut path[..room])?;
        let mut len = self.len + (room - from);
        if self.len > from {
            return Err(Errno::ENAMETOOLONG.into());
        }
        path.copy_within(from..room, self.len);
        path[..self.len].copy_from_slice(&self.root[..self.len]);
        if !name.is_empty() {
            path[len] = b'/';
            path[len + 1..len + 1 + name.len()].copy_from_slice(name);
            len += 1 + name.len();
        }
        if len == 0 {
            path[0] = b'/';
            len = 1;
        }
        path[len..].fill(0);
        Ok(Path(path))
    }
}

/// What a file of the lower file system is like.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// Its attributes.
    pub attr: Attr,
    /// As the cache keeps it.
    pub stamp: Stamp,
}

impl Original {
    /// From what the kernel tells.
    pub fn of(stat: &Statx) -> Result<Original> {
        let (attr, device) = vfs::host::attr_and_device(stat)?;
        let stamp = Stamp {
            number: attr.ino,
            device,
            size: attr.size,
            mtime: attr.mtime,
            ctime: attr.ctime,
            nlink: attr.nlink,
            blocks: u32::try_from(attr.blocks).unwrap_or(u32::MAX),
        };
        Ok(Original { attr, stamp })
    }

    /// A handle on what lies at a path (a symlink itself), and what it is like.
    pub fn at(path: &Path) -> Result<(File, Original)> {
        let handle = File::handle(path.text()?)?;
        let original = Original::of(&handle.statx()?)?;
        Ok((handle, original))
    }

    /// Whether several names may lead to it.
    pub fn has_names(&self) -> bool {
        self.attr.kind != Kind::Directory && self.stamp.nlink > 1
    }

    /// The node that it becomes.
    pub fn whole<'a>(&self, target: &'a [u8]) -> Whole<'a> {
        let Attr { kind, mode, uid, gid, rdev, .. } = self.attr;
        Whole { kind, mode, uid, gid, rdev, target, stamp: self.stamp, state: 0 }
    }

    /// What a node becomes that has been it before.
    pub fn change(&self) -> Change {
        let Attr { mode, uid, gid, .. } = self.attr;
        Change { mode, uid, gid, stamp: self.stamp, before: None }
    }

    /// The same if what was known when it was looked at is known still.
    pub fn change_from(&self, before: &Stamp) -> Change {
        Change { before: Some(*before), ..self.change() }
    }
}

/// The text of a symlink.
pub struct Target([u8; PATH_MAX], usize);

impl Target {
    /// Of what a handle is on; empty for anything but a symlink.
    pub fn of(handle: &File, original: &Original) -> Result<Target> {
        let mut target = Target([0; PATH_MAX], 0);
        if original.attr.kind == Kind::Symlink {
            target.1 = handle.target(UserSlice::from_mut(&mut target.0))?;
        }
        Ok(target)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// Opens what lies at a path, to be read.
pub fn open(path: &Path, directory: bool) -> Result<File> {
    let kind = if directory { abi::O_DIRECTORY } else { 0 };
    Ok(File::plain(path.text()?, abi::O_RDONLY | abi::O_NONBLOCK | abi::O_NOCTTY | kind)?)
}
