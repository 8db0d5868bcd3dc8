//! Something of the lower file system that is being looked at.

use super::{Devices, Original};
use base::{Cx, Errno, Error, Kind, Node, Result};
use core::ffi::CStr;
use pm::UserSlice;
use pm::file::File;
use pm::sys::abi;
use vfs::cached::Below;

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// It.
    pub name: &'a CStr,
    /// Its type, as far as that is told.
    pub kind: Kind,
    /// What it is like, where that is told with it.
    pub told: Option<Original>,
}

/// It.
pub enum Handle {
    /// The kernel's.
    File(File, Devices),
    /// A daemon's.
    Node(&'static dyn Below, Node),
}

impl Handle {
    /// What lies at a path of a daemon's.
    pub(super) fn walk(cx: &Cx, daemon: &'static dyn Below, path: &CStr) -> Result<Handle> {
        let names = path.to_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let node = names.into_iter().try_fold(daemon.root(), |dir, name| daemon.lookup(cx, dir, name))?;
        Ok(Handle::Node(daemon, node))
    }

    /// Number of the file descriptor, if it is the kernel's.
    pub fn number(&self) -> Option<i32> {
        match self {
            Handle::File(file, _) => Some(file.number()),
            Handle::Node(..) => None,
        }
    }

    /// What it is like.
    pub fn original(&self, cx: &Cx) -> Result<Original> {
        match self {
            Handle::File(file, devices) => Original::of(&file.statx()?, *devices),
            Handle::Node(daemon, node) => Ok(Original::of_daemon(&daemon.attr(cx, *node)?)),
        }
    }

    /// What has this name in the directory that it is.
    pub fn child(&self, cx: &Cx, name: &CStr) -> Result<Original> {
        match self {
            Handle::File(dir, devices) => Original::of(&pm::host::statx_at(dir.number(), name)?, *devices),
            Handle::Node(daemon, dir) => {
                // What was looked up before need not hold.
                cx.thread.looked_up.set(None);
                let child = daemon.lookup(cx, *dir, name.to_bytes())?;
                Ok(Original::of_daemon(&daemon.attr_found(cx, child)?))
            }
        }
    }

    /// What has this name in the directory that it is, a symlink itself.
    pub fn inner(&self, cx: &Cx, name: &CStr) -> Result<Handle> {
        match self {
            Handle::File(dir, devices) => {
                Ok(Handle::File(File::plain_in(Some(dir), name, abi::O_PATH | abi::O_NOFOLLOW)?, *devices))
            }
            Handle::Node(daemon, dir) => Ok(Handle::Node(*daemon, daemon.lookup(cx, *dir, name.to_bytes())?)),
        }
    }

    /// Calls `each` for all names of the directory that it is; again, if it was done before.
    pub fn each_name(&self, cx: &Cx, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        match self {
            Handle::File(dir, _) => {
                dir.seek(0)?;
                let mut buffer = [0u8; 8192];
                while let Some(listed) = dir.listed(&mut buffer)? {
                    let kind = |dt| Kind::from_dt(dt).unwrap_or(Kind::Regular);
                    listed.by_number(|entry| match is_dots(entry.name.to_bytes()) {
                        true => Ok(()),
                        false => each(Listed { name: entry.name, kind: kind(entry.kind), told: None }),
                    })?;
                }
                Ok(())
            }
            Handle::Node(daemon, dir) => daemon.list_whole(cx, *dir, &mut |entry, attr| {
                let mut text = [0; 256];
                text[..255].get_mut(..entry.name.len()).ok_or(Errno::EIO)?.copy_from_slice(entry.name);
                let name = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::EIO)?;
                let told = attr.map(Original::of_daemon);
                if is_dots(entry.name) { Ok(()) } else { each(Listed { name, kind: entry.kind, told }) }
            }),
        }
    }

    /// The text of the symlink that it is.
    pub fn target(&self, cx: &Cx, into: UserSlice) -> Result<usize> {
        match self {
            Handle::File(link, _) => Ok(link.target(into)?),
            Handle::Node(daemon, link) => daemon.readlink(cx, *link, into),
        }
    }

    /// Reads at `offset`.
    pub fn read(&self, cx: &Cx, offset: u64, into: UserSlice) -> core::result::Result<usize, Errno> {
        match self {
            Handle::File(file, _) => file.read_into(offset, into),
            Handle::Node(daemon, file) => daemon.read_below(cx, *file, offset, into).map_err(|error| error.errno()),
        }
    }

    /// `SEEK_DATA`, `SEEK_HOLE`.
    pub fn find(&self, cx: &Cx, offset: u64, data: bool) -> Result<u64> {
        match self {
            Handle::File(file, _) => Ok(file.find(offset, data)?),
            Handle::Node(daemon, file) => daemon.seek_below(cx, *file, offset, data),
        }
    }

    /// See `Backend::list_xattr`.
    pub fn list_xattr(&self, cx: &Cx, out: UserSlice) -> core::result::Result<usize, Errno> {
        match self {
            Handle::File(file, _) => file.list_xattr(out),
            Handle::Node(daemon, node) => daemon.list_xattr(cx, *node, out).map_err(|error| error.errno()),
        }
    }

    /// See `Backend::get_xattr`.
    pub fn get_xattr(&self, cx: &Cx, name: &CStr, out: UserSlice) -> Result<usize> {
        match self {
            Handle::File(file, _) => Ok(file.get_xattr(name, out)?),
            Handle::Node(daemon, node) => daemon.get_xattr(cx, *node, name.to_bytes(), out),
        }
    }

    /// What the file system of the directory that it is is known by; 0: nothing.
    pub fn file_system(&self) -> u64 {
        match self {
            Handle::File(dir, _) => dir.file_system(),
            Handle::Node(..) => 0,
        }
    }

    /// `ENOTDIR` if it is no directory.
    pub fn must_be_directory(&self, cx: &Cx) -> Result<Original> {
        let original = self.original(cx)?;
        if original.attr.kind == Kind::Directory { Ok(original) } else { Err(Error::Posix(Errno::ENOTDIR)) }
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
