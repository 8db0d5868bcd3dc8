//! A directory of the kernel's below: by paths from its root, none of whose components is a symlink.
//!
//! What is changed there is changed with the rights of the directory's owner ([`Owner`]).

use super::owner::Owner;
use super::{ATTRIBUTES_MAX, File, There, errno, join};
use crate::attributes::Attributes;
use crate::{Failure, Result};
use cache::lower::{Devices, Original};
use pm::Errno;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, DirEntry, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Its root, open.
pub struct Below {
    root: OwnedFd,
    devices: Devices,
    owner: Owner,
}

/// A directory of it, open.
#[derive(Clone)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    /// Its path, for people.
    pub path: Vec<u8>,
    devices: Devices,
    owner: Owner,
}

impl Below {
    /// `is_trusted`: nobody but root may have written what is done here.
    pub fn open(place: &[u8], devices: Devices, is_trusted: bool) -> Result<Below> {
        let path = if place.is_empty() { b"/" } else { place };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let failed = |error| Failure::new(path, errno(error));
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let owner = Owner::of(&rustix::fs::fstat(&root).map_err(failed)?, is_trusted);
        Ok(Below { root, devices, owner })
    }

    /// With whose rights it is changed.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// A directory of it.
    pub fn dir(&self, path: &[u8]) -> Result<Dir> {
        self.open_at(path, OFlags::DIRECTORY | OFlags::RDONLY).map(|fd| Dir {
            fd: Arc::new(fd),
            path: path.to_vec(),
            devices: self.devices,
            owner: self.owner,
        })
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let shown = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        rustix::fs::openat2(&self.root, OsStr::from_bytes(shown), flags, Mode::empty(), how)
            .map_err(|error| Failure::new(shown, errno(error)))
    }

    /// Makes a directory at its top.
    pub fn make_directory(&self, name: &[u8]) -> Result<()> {
        let made = self.owner.make(|| rustix::fs::mkdirat(&self.root, OsStr::from_bytes(name), Mode::RWXU));
        made.map_err(|error| Failure::new(name, errno(error)))
    }

    /// Nobody but this user changes names in the park.
    pub fn secure(&self, park: &Dir) -> Result<()> {
        self.owner.secure(&park.fd).map_err(park.failed(b""))
    }

    /// All of the file system that was written is durable.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.root).map_err(|error| Failure::new("sync", errno(error)))
    }
}

impl Dir {
    fn failed(&self, name: &[u8]) -> impl Fn(rustix::io::Errno) -> Failure {
        let path = join(&self.path, name);
        move |error| Failure::new(&path, errno(error))
    }

    pub fn stat(&self, name: &[u8]) -> Result<Option<There>> {
        let failed = |errno| Failure::new(join(&self.path, name), errno);
        let text = CString::new(name).map_err(|_| failed(Errno::EINVAL))?;
        match pm::host::statx_at(self.fd.as_raw_fd(), &text) {
            Ok(stat) => {
                Original::of(&stat, self.devices).map(|there| Some(There::of(&there))).map_err(|error| failed(error.errno()))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    pub fn rename(&self, name: &[u8], to: &Dir, new: &[u8], flags: RenameFlags) -> Result<()> {
        let (old, new) = (OsStr::from_bytes(name), OsStr::from_bytes(new));
        let renamed = self.owner.act(|| match flags.is_empty() {
            true => rustix::fs::renameat(&self.fd, old, &to.fd, new),
            false => rustix::fs::renameat_with(&self.fd, old, &to.fd, new, flags),
        });
        renamed.map_err(self.failed(name))
    }

    pub fn link(&self, name: &[u8], to: &Dir, new: &[u8]) -> Result<()> {
        let (old, new) = (OsStr::from_bytes(name), OsStr::from_bytes(new));
        self.owner.act(|| rustix::fs::linkat(&self.fd, old, &to.fd, new, AtFlags::empty())).map_err(self.failed(name))
    }

    pub fn remove(&self, name: &[u8], is_directory: bool) -> Result<()> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.owner.act(|| rustix::fs::unlinkat(&self.fd, OsStr::from_bytes(name), flags)).map_err(self.failed(name))
    }

    pub fn make_directory(&self, name: &[u8]) -> Result<()> {
        self.owner.make(|| rustix::fs::mkdirat(&self.fd, OsStr::from_bytes(name), Mode::RWXU)).map_err(self.failed(name))
    }

    pub fn make_symlink(&self, target: &[u8], name: &[u8]) -> Result<()> {
        self.owner
            .make(|| rustix::fs::symlinkat(OsStr::from_bytes(target), &self.fd, OsStr::from_bytes(name)))
            .map_err(self.failed(name))
    }

    pub fn make_node(&self, name: &[u8], kind: rustix::fs::FileType, device: u64) -> Result<()> {
        self.owner
            .make(|| rustix::fs::mknodat(&self.fd, OsStr::from_bytes(name), kind, Mode::RUSR | Mode::WUSR, device))
            .map_err(self.failed(name))
    }

    pub fn make_file(&self, name: &[u8]) -> Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = self.owner.make(|| rustix::fs::openat(&self.fd, OsStr::from_bytes(name), flags, mode));
        made.map(File::Fd).map_err(self.failed(name))
    }

    /// A file, to be written; one that may not be is made so for as long as it takes.
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        let name_ = OsStr::from_bytes(name);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || rustix::fs::openat(&self.fd, name_, flags, Mode::empty());
        let opened = self.owner.act(|| match open() {
            // The attributes, which come after the bytes, take that back.
            Err(rustix::io::Errno::ACCESS) => self.change_mode(name, Mode::RUSR | Mode::WUSR).and_then(|()| open()),
            opened => opened,
        });
        let file = opened.map_err(self.failed(name))?;
        // A FIFO or a device that took its place is not written to.
        let kind = rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(self.failed(name))?;
        match kind {
            FileType::RegularFile => Ok(File::Fd(file)),
            _ => Err(self.failed(name)(rustix::io::Errno::STALE)),
        }
    }

    pub fn set_mode(&self, name: &[u8], mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        self.owner.act(|| self.change_mode(name, mode)).map_err(self.failed(name))
    }

    /// Of what stands there, not of what a symlink leads to: the kernel's call by name would follow one.
    fn change_mode(&self, name: &[u8], mode: Mode) -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = rustix::fs::openat(&self.fd, OsStr::from_bytes(name), flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&there)?.st_mode) == FileType::Symlink {
            return Err(rustix::io::Errno::LOOP);
        }
        rustix::fs::chmod(format!("/proc/self/fd/{}", there.as_raw_fd()), mode)
    }

    pub fn set_owner(&self, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(rustix::fs::Uid::from_raw), gid.map(rustix::fs::Gid::from_raw));
        self.owner
            .act(|| rustix::fs::chownat(&self.fd, OsStr::from_bytes(name), uid, gid, AtFlags::SYMLINK_NOFOLLOW))
            .map_err(self.failed(name))
    }

    /// Times of last access and change (`None`: as it is), nanoseconds since the epoch.
    pub fn set_times(&self, name: &[u8], atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
        let at =
            |time: i64| rustix::fs::Timespec { tv_sec: time.div_euclid(1_000_000_000), tv_nsec: time.rem_euclid(1_000_000_000) };
        let omitted = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times =
            rustix::fs::Timestamps { last_access: atime.map_or(omitted, at), last_modification: mtime.map_or(omitted, at) };
        self.owner
            .act(|| rustix::fs::utimensat(&self.fd, OsStr::from_bytes(name), &times, AtFlags::SYMLINK_NOFOLLOW))
            .map_err(self.failed(name))
    }

    /// A way to it for calls that have none by directory and name.
    fn way(&self, name: &[u8]) -> Vec<u8> {
        [format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).as_bytes(), name].concat()
    }

    pub fn attributes(&self, name: &[u8]) -> Result<Attributes> {
        let (way, mut all) = (self.way(name), Attributes::new());
        let way = OsStr::from_bytes(&way);
        let mut names = vec![0u8; ATTRIBUTES_MAX];
        let len = match rustix::fs::llistxattr(way, &mut names[..]) {
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(all),
            len => len.map_err(self.failed(name))?,
        };
        for attribute in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0u8; ATTRIBUTES_MAX];
            let len = rustix::fs::lgetxattr(way, OsStr::from_bytes(attribute), &mut value[..]).map_err(self.failed(name))?;
            value.truncate(len);
            all.insert(attribute.to_vec(), value);
        }
        Ok(all)
    }

    pub fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<()> {
        let (way, flags) = (self.way(name), rustix::fs::XattrFlags::empty());
        self.owner
            .act(|| rustix::fs::lsetxattr(OsStr::from_bytes(&way), OsStr::from_bytes(attribute), value, flags))
            .map_err(self.failed(name))
    }

    pub fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<()> {
        let way = self.way(name);
        self.owner
            .act(|| rustix::fs::lremovexattr(OsStr::from_bytes(&way), OsStr::from_bytes(attribute)))
            .map_err(self.failed(name))
    }

    /// All names.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        self.names_of(|_| true)
    }

    /// Names of directories that have one of these numbers, as the list says.
    pub fn directories(&self, numbers: &HashSet<u64>) -> Result<Vec<Vec<u8>>> {
        let may_be = |kind| matches!(kind, FileType::Directory | FileType::Unknown);
        self.names_of(|entry| may_be(entry.file_type()) && numbers.contains(&entry.ino()))
    }

    fn names_of(&self, is_wanted: impl Fn(&DirEntry) -> bool) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(self.failed(b""))?;
        for entry in entries {
            let entry = entry.map_err(self.failed(b""))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && is_wanted(&entry) {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// A directory in it.
    pub fn dir(&self, name: &[u8]) -> Result<Dir> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let fd = rustix::fs::openat2(&self.fd, OsStr::from_bytes(name), flags, Mode::empty(), how).map_err(self.failed(name))?;
        Ok(Dir { fd: Arc::new(fd), path: join(&self.path, name), devices: self.devices, owner: self.owner })
    }

    /// Whether it has not been removed.
    pub fn is_there(&self) -> Result<bool> {
        rustix::fs::fstat(&self.fd).map(|stat| stat.st_nlink > 0).map_err(self.failed(b""))
    }
}
