//! The lower file system: a directory of the kernel's, or a daemon. Both are asked by paths from their root none of whose
//! components is a symlink; nothing is kept open.

mod handle;
mod original;

pub use handle::{Handle, Listed};
pub use original::{Devices, Original, TEXTLESS, Target, is_of_one};

use base::{Cx, Errno, Error, Result};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use pm::file::File;
use pm::sys::abi;
use vfs::cached::Below;

/// Longest path of the directory itself.
const ROOT_MAX: usize = 1024;
/// Longest path.
const PATH_MAX: usize = 4096;
/// How a root begins that leads through what a process has open, and how it ends.
const THROUGH: (&[u8], &[u8]) = (b"/proc/", b"/.");

/// What is behind the cache.
pub struct Lower {
    daemon: Option<&'static dyn Below>,
    root: [u8; ROOT_MAX],
    len: usize,
    /// By what number the device of the directory's file system is known, and by what the file system itself.
    known: (u64, u64),
    /// The number that the device has; 0: not looked yet.
    device: AtomicU64,
}

impl core::fmt::Debug for Lower {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lower").field("is_daemon", &self.daemon.is_some()).finish_non_exhaustive()
    }
}

/// A path, up to a NUL. It stays where it was made: it is long to copy.
pub struct Path([u8; PATH_MAX]);

impl Path {
    /// Room for one.
    pub const fn room() -> Path {
        Path([0; PATH_MAX])
    }

    /// As text.
    pub fn text(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Error::Posix(Errno::ENAMETOOLONG))
    }
}

impl Lower {
    /// The directory at `place`, absolute and canonical.
    pub fn directory(place: &[u8]) -> Result<Lower> {
        let place = if place == b"/" { b"" } else { place };
        let mut root = [0; ROOT_MAX];
        root.get_mut(..place.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(place);
        Ok(Lower { daemon: None, root, len: place.len(), known: (0, 0), device: AtomicU64::new(0) })
    }

    /// A daemon.
    pub fn daemon(daemon: &'static dyn Below) -> Lower {
        Lower { daemon: Some(daemon), root: [0; ROOT_MAX], len: 0, known: (0, 0), device: AtomicU64::new(0) }
    }

    /// The same, of which files are known by this number of their device, and the file system by this.
    pub fn known_by(self, known: (u64, u64)) -> Lower {
        Lower { known, ..self }
    }

    /// By what numbers of devices files are known. Looked at once: what is mounted there later is another file system.
    pub fn devices(&self) -> Devices {
        let (known, own) = self.known;
        if known == 0 || self.daemon.is_some() {
            return Devices::SAME;
        }
        let now = match self.device.load(Relaxed) {
            // Where that fails nothing else is found either.
            0 => match self.look_at_device(known, own) {
                Ok(device) => device,
                Err(_) => return Devices::SAME,
            },
            device => device,
        };
        self.device.store(now, Relaxed);
        Devices { known, now }
    }

    /// The number that the device has: the known one where this is another file system, of which nothing is known.
    fn look_at_device(&self, known: u64, own: u64) -> Result<u64> {
        let mut room = Path::room();
        let (dir, path) = self.begin(self.path(&mut room, |into| Ok(into.len()), b"")?)?;
        let root = File::plain_in(dir.as_ref(), path, abi::O_PATH | abi::O_DIRECTORY)?;
        let now = vfs::host::attr_and_device(&root.statx()?)?.1;
        let is_same = || -> Result<bool> {
            let root = File::plain_in(dir.as_ref(), path, abi::O_RDONLY | abi::O_DIRECTORY)?;
            Ok(own != 0 && root.file_system() == own)
        };
        Ok(if now == known || is_same()? { now } else { known })
    }

    /// Where the directory is; empty for `/`, and for a daemon.
    pub fn root(&self) -> &[u8] {
        &self.root[..self.len]
    }

    /// The daemon, if it is one.
    pub fn as_daemon(&self) -> Option<&'static dyn Below> {
        self.daemon
    }

    /// Rises when it has told of a change by others; a directory tells nothing.
    pub fn told(&self) -> u64 {
        self.daemon.map_or(0, |daemon| daemon.told())
    }

    /// Whether it can hold something (`vfs::cached::lacks`): what it can't is refused here, not by a round.
    pub fn lacks(&self, what: u32) -> bool {
        self.daemon.is_some_and(|daemon| daemon.lacks() & what != 0)
    }

    /// A path below it, in `room`: `tail` writes what follows the root to the end of the room that it gets and says where that
    /// begins; then `name`.
    pub fn path<'r>(&self, room: &'r mut Path, tail: impl FnOnce(&mut [u8]) -> Result<usize>, name: &[u8]) -> Result<&'r Path> {
        let path = &mut room.0;
        let end = PATH_MAX - 1 - if name.is_empty() { 0 } else { name.len() + 1 };
        let from = tail(&mut path[..end])?;
        let mut len = self.len + (end - from);
        if self.len > from {
            return Err(Errno::ENAMETOOLONG.into());
        }
        path.copy_within(from..end, self.len);
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
        path[len] = 0;
        Ok(room)
    }

    /// The directory in which a path is to be looked for, and what is left of the path: where the root leads through what a
    /// process has open. Where that has gone it is no path that is missing, but all of them: `EIO`.
    fn begin<'p>(&self, path: &'p Path) -> Result<(Option<File>, &'p CStr)> {
        let (text, root) = (path.text()?, self.root());
        if !(root.starts_with(THROUGH.0) && root.ends_with(THROUGH.1)) {
            return Ok((None, text));
        }
        let mut begin = [0; ROOT_MAX + 1];
        begin[..root.len()].copy_from_slice(root);
        let begin = CStr::from_bytes_until_nul(&begin).map_err(|_| Errno::ENAMETOOLONG)?;
        let root_file = File::directory_through(begin).map_err(|_| Errno::EIO)?;
        let rest = text.to_bytes_with_nul().get(root.len()..).and_then(|rest| rest.strip_prefix(b"/"));
        let rest = rest.map_or(Ok(c"."), |rest| CStr::from_bytes_with_nul(rest).map_err(|_| Errno::EIO))?;
        Ok((Some(root_file), rest))
    }

    /// A handle on what lies at a path (a symlink itself).
    pub fn handle(&self, cx: &Cx, path: &Path) -> Result<Handle> {
        match self.daemon {
            None => {
                let (dir, path) = self.begin(path)?;
                let flags = abi::O_PATH | abi::O_NOFOLLOW;
                Ok(Handle::File(File::plain_in(dir.as_ref(), path, flags)?, self.devices()))
            }
            Some(daemon) => Handle::walk(cx, daemon, path.text()?),
        }
    }

    /// The same, and what it is like.
    pub fn at(&self, cx: &Cx, path: &Path) -> Result<(Handle, Original)> {
        // What was looked up before need not hold; what the walk looks up does.
        cx.thread.looked_up.set(None);
        let handle = self.handle(cx, path)?;
        let original = match handle {
            Handle::Node(daemon, node) => Original::of_daemon(&daemon.attr_found(cx, node)?),
            Handle::File(..) => handle.original(cx)?,
        };
        Ok((handle, original))
    }

    /// What lies at a path (a symlink itself) is like, if none of its components is a symlink; else it may be another's.
    pub fn look(&self, cx: &Cx, path: &Path) -> Result<Original> {
        if self.daemon.is_some() {
            return Ok(self.at(cx, path)?.1);
        }
        let (dir, path) = self.begin(path)?;
        Original::of(&pm::host::statx_at(dir.as_ref().map_or(abi::AT_FDCWD, File::number), path)?, self.devices())
    }

    /// Opens what lies at a path, to be read.
    pub fn open(&self, cx: &Cx, path: &Path, directory: bool) -> Result<Handle> {
        let kind = if directory { abi::O_DIRECTORY } else { 0 };
        let flags = abi::O_RDONLY | abi::O_NONBLOCK | abi::O_NOCTTY | kind;
        match self.daemon {
            None => {
                let (dir, path) = self.begin(path)?;
                Ok(Handle::File(File::plain_in(dir.as_ref(), path, flags)?, self.devices()))
            }
            Some(daemon) => Handle::walk(cx, daemon, path.text()?),
        }
    }
}
