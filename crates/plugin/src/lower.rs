//! What the namespace asks, as operations of the library.

use crate::Plugin;
use crate::abi::{FileInfo, StatVfs, Time};
use crate::handles::{FOR_READ, FOR_WRITE, READ, WRITE};
use base::{Attr, Cred, Cx, DirEntry, Error, Fallocate, Kind, NewNode, Node, PATH_MAX, RenameMode, Thread};
use base::{Result, SetAttr, SetTime, StatFs, W, X};
use core::ffi::c_int;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, UserSlice};
use session::{Caching, Entry, SessionCache};
use session::{LowerFs, Miss};

pub(crate) const fn posix<T>(errno: Errno) -> Result<T> {
    Err(Error::Posix(errno))
}

/// What an operation returned: a count, or an error number below zero.
#[inline]
pub(crate) fn done(result: c_int) -> Result<usize> {
    match result {
        0.. => Ok(result as usize),
        -4095..0 => posix(Errno(-result)),
        _ => posix(Errno::EIO),
    }
}

const MISSING: c_int = -Errno::ENOSYS.0;
/// Longest value or list of extended attributes.
const XATTR_MAX: usize = 65536;

/// `operation!(self, cx, name(arguments))`: calls an operation; `ENOSYS` if there is none.
macro_rules! operation {
    ($self:expr, $cx:expr, $name:ident($($argument:expr),*)) => {
        $self.with($cx, |ops| match ops.$name {
            // SAFETY: paths end with NUL, buffers are as long as it is told, all for this call.
            Some(operation) => unsafe { operation($($argument),*) },
            None => MISSING,
        }).map_err(Error::Posix).and_then(done)
    };
}

/// A name with its NUL.
struct Text([u8; PATH_MAX + 1]);

impl Text {
    fn new(text: &[u8]) -> Result<Text> {
        let mut own = Text([0; PATH_MAX + 1]);
        own.0
            .get_mut(..text.len())
            .filter(|_| text.len() < PATH_MAX)
            .ok_or(Error::Posix(Errno::ENAMETOOLONG))?
            .copy_from_slice(text);
        Ok(own)
    }
}

fn unsupported<T>(result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Posix(Errno::ENOSYS)) => posix(Errno::EOPNOTSUPP),
        other => other,
    }
}

fn needless(result: Result<usize>) -> Result<()> {
    match result {
        Ok(_) | Err(Error::Posix(Errno::ENOSYS)) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Plugin {
    fn writable(&self) -> Result<()> {
        if self.read_only { posix(Errno::EROFS) } else { Ok(()) }
    }

    /// Attributes become an entry that is believed for the call alone: the next
    /// program's copy of the library may see something else there.
    fn entry(&self, key: u64, attr: Attr) -> Entry {
        let attr = Attr { ino: if attr.ino == 0 { key } else { attr.ino }, ..attr };
        Entry { key, device: 0, attr, entry_ns: 0, attr_ns: 0, incarnation: 0, handle: None, caching: Caching::None }
    }

    fn make_file(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], mode: u32) -> Result<Entry> {
        let (path, key) = (self.path(s, dir, name)?, s.key_for(dir, name, Kind::Regular)?);
        if self.loaded()?.operations.create.is_none() {
            operation!(self, cx, mknod(path.text(), mode, 0))?;
            return Ok(self.entry(key, self.attr_by(cx, &path)?));
        }
        let flags = abi::O_RDWR | abi::O_CREAT | abi::O_EXCL;
        let mut info = FileInfo::new(flags, 0);
        operation!(self, cx, create(path.text(), mode, &mut info))?;
        // Open for its maker, whatever its mode says.
        self.keep_new(s, cx, key, &path, info.handle);
        match self.attr_by(cx, &path) {
            Ok(attr) => Ok(self.entry(key, attr)),
            Err(error) => {
                self.release_all(s, cx, key, None);
                Err(error)
            }
        }
    }

    /// Changes owner; a new one does not get the old one's set-id bits.
    fn set_owner(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        let path = self.path(s, node, b"")?;
        let attr = self.attr_by(cx, &path)?;
        let (uid, gid) = (change.uid.unwrap_or(u32::MAX), change.gid.unwrap_or(u32::MAX));
        let drops = if attr.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
        if change.mode.is_none() && attr.kind == Kind::Regular && attr.mode & drops != 0 {
            let mode = attr.kind.type_bits() | u32::from(attr.mode & !drops);
            operation!(self, cx, chmod(path.text(), mode, null_mut()))?;
        }
        if (uid, gid) == (u32::MAX, u32::MAX) {
            return Ok(());
        }
        operation!(self, cx, chown(path.text(), uid, gid, null_mut())).map(drop)
    }
}

impl LowerFs for Plugin {
    fn device(&self) -> u64 {
        self.device
    }

    fn lookup(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> core::result::Result<Entry, Miss> {
        let attr = self.attr_at(s, cx, dir, name)?;
        // The same name stays the same node, also after it was moved there.
        let key = s.key_for(dir, name, attr.kind)?;
        Ok(self.entry(key, attr))
    }

    fn attr(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<(Attr, u64)> {
        let attr = self.attr_at(s, cx, node, b"")?;
        let record = s.get(node)?;
        if attr.kind != record.kind() {
            return posix(Errno::ESTALE);
        }
        Ok((self.entry(record.key.load(Relaxed), attr).attr, 0))
    }

    fn access(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        let kind = s.get(node)?.kind();
        if want & W != 0 && matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            self.writable()?;
        }
        if want & X != 0 && kind == Kind::Regular && attr()?.mode & 0o111 == 0 {
            return posix(Errno::EACCES);
        }
        let path = self.path(s, node, b"")?;
        needless(operation!(self, cx, access(path.text(), c_int::from(want))))
    }

    fn set_attr(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.writable()?;
        let path = self.path(s, node, b"")?;
        if let Some(mode) = change.mode {
            let mode = s.get(node)?.kind().type_bits() | u32::from(mode);
            operation!(self, cx, chmod(path.text(), mode, null_mut()))?;
        }
        if change.uid.is_some() || change.gid.is_some() || change.drops_rights {
            self.set_owner(s, cx, node, change)?;
        }
        if let Some(size) = change.size {
            let size = i64::try_from(size).map_err(|_| Error::Posix(Errno::EFBIG))?;
            if self.open_bits(s.get(node)?.key.load(Relaxed)) & FOR_WRITE != 0 {
                self.with_handle(s, cx, node, WRITE, |ops, path, info| match ops.truncate {
                    // SAFETY: a path and a structure with the handle that `open` gave.
                    Some(truncate) => unsafe { truncate(path, size, info) },
                    None => MISSING,
                })?;
            } else {
                operation!(self, cx, truncate(path.text(), size, null_mut()))?;
            }
        }
        if change.atime.is_some() || change.mtime.is_some() {
            const NOW: i64 = 0x3fff_ffff;
            const OMIT: i64 = 0x3fff_fffe;
            let pair = |time: Option<SetTime>| match time {
                None => Time { seconds: 0, nanoseconds: OMIT },
                Some(SetTime::Now) => Time { seconds: 0, nanoseconds: NOW },
                Some(SetTime::At(ns)) => {
                    Time { seconds: ns.div_euclid(1_000_000_000), nanoseconds: ns.rem_euclid(1_000_000_000) }
                }
            };
            let times = [pair(change.atime), pair(change.mtime)];
            operation!(self, cx, utimens(path.text(), times.as_ptr(), null_mut()))?;
        }
        Ok(())
    }

    fn readlink(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let path = self.path(s, node, b"")?;
        let mut target = [0u8; PATH_MAX];
        operation!(self, cx, readlink(path.text(), target.as_mut_ptr().cast(), PATH_MAX - 1))?;
        let len = target.iter().position(|&b| b == 0).unwrap_or(0);
        if len == 0 {
            return posix(Errno::EIO);
        }
        Ok(pm::user::copy(UserSlice::from_ref(&target[..len]), out)?)
    }

    fn create(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.writable()?;
        let mode = new.kind.type_bits() | u32::from(new.mode & !cx.umask);
        let path = self.path(s, dir, name)?;
        match new.kind {
            Kind::Regular => return self.make_file(s, cx, dir, name, mode),
            Kind::Directory => operation!(self, cx, mkdir(path.text(), mode & 0o7777))?,
            Kind::Symlink => {
                let target = Text::new(new.target)?;
                operation!(self, cx, symlink(target.0.as_ptr().cast(), path.text()))?
            }
            _ => operation!(self, cx, mknod(path.text(), mode, new.rdev))?,
        };
        Ok(self.entry(s.key_for(dir, name, new.kind)?, self.attr_by(cx, &path)?))
    }

    fn link(&self, s: &SessionCache, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        let (from, to) = (self.path(s, node, b"")?, self.path(s, dir, name)?);
        operation!(self, cx, link(from.text(), to.text())).map(drop)
    }

    fn remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        self.writable()?;
        let path = self.path(s, dir, name)?;
        if directory {
            return operation!(self, cx, rmdir(path.text())).map(drop);
        }
        if self.hide(s, cx, dir, name)? {
            return Ok(());
        }
        operation!(self, cx, unlink(path.text())).map(drop)
    }

    fn rename(&self, s: &SessionCache, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        self.writable()?;
        let (source, target) = (self.path(s, from.0, from.1)?, self.path(s, to.0, to.1)?);
        let flags = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
        };
        if mode == RenameMode::Replace {
            self.hide(s, cx, to.0, to.1)?;
        }
        match operation!(self, cx, rename(source.text(), target.text(), flags)) {
            Err(Error::Posix(Errno::ENOSYS)) if flags != 0 => posix(Errno::EINVAL),
            other => other.map(drop),
        }
    }

    fn readdir(&self, s: &SessionCache, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.list(s, cx, dir, cookie, each)
    }

    fn statfs(&self, s: &SessionCache) -> Result<StatFs> {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let path = self.path(s, s.root(), b"")?;
        let mut figures = StatVfs::default();
        match operation!(self, &cx, statfs(path.text(), &mut figures)) {
            Err(Error::Posix(Errno::ENOSYS)) => (figures.bsize, figures.namemax) = (512, 255),
            other => drop(other?),
        }
        Ok(StatFs {
            magic: 0x6573_5546,
            block_bytes: if figures.frsize == 0 { figures.bsize } else { figures.frsize },
            blocks: figures.blocks,
            blocks_free: figures.bfree,
            files: figures.files,
            files_free: figures.ffree,
            id: self.device,
            name_max: figures.namemax,
            read_only: self.read_only,
        })
    }

    fn open(&self, s: &SessionCache, cx: &Cx, node: Node, flags: u32) -> Result<()> {
        let record = s.get(node)?;
        if flags & abi::O_PATH != 0 || record.kind() != Kind::Regular {
            return Ok(());
        }
        let wanted = match flags & abi::O_ACCMODE {
            abi::O_RDONLY => FOR_READ,
            abi::O_WRONLY => FOR_WRITE,
            _ => FOR_READ | FOR_WRITE,
        };
        let key = record.key.load(Relaxed);
        self.belongs(key, node);
        match wanted & !self.open_bits(key) {
            0 => Ok(()),
            FOR_READ => self.open_handle(s, cx, node, abi::O_RDONLY),
            FOR_WRITE => self.open_handle(s, cx, node, abi::O_WRONLY),
            _ => self.open_handle(s, cx, node, abi::O_RDWR),
        }
    }

    fn flush(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<()> {
        let record = s.get(node)?;
        let want = match self.open_bits(record.key.load(Relaxed)) {
            0 => return Ok(()),
            bits if bits & FOR_WRITE != 0 => WRITE,
            _ => READ,
        };
        if self.loaded().is_ok_and(|at| at.operations.flush.is_none()) {
            return Ok(());
        }
        let flushed = self.with_handle(s, cx, node, want, |ops, path, info| match ops.flush {
            // SAFETY: a path and a structure with the handle that `open` gave.
            Some(flush) => unsafe { flush(path, info) },
            None => MISSING,
        });
        flushed.map(drop)
    }

    fn closed(&self, s: &SessionCache, cx: &Cx, node: Node) {
        if let Ok(record) = s.get(node) {
            self.release_all(s, cx, record.key.load(Relaxed), Some(node));
            self.bury(s, cx, node);
        }
    }

    #[inline]
    fn read(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        let len = into.len.min(i32::MAX as usize);
        let count = self.with_handle(s, cx, node, READ, move |ops, path, info| match ops.read {
            // SAFETY: a path, the program's buffer, a structure with the handle that `open` gave.
            Some(read) => unsafe { read(path, into.ptr.cast(), len, offset as i64, info) },
            None => MISSING,
        })?;
        if count > len { posix(Errno::EIO) } else { Ok(count) }
    }

    /// Nothing, in any entry: the next program's copy of the library may see something else.
    fn is_remembered(&self) -> bool {
        false
    }

    #[inline]
    fn write(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        let len = from.len.min(i32::MAX as usize);
        let count = self.with_handle(s, cx, node, WRITE, move |ops, path, info| match ops.write {
            // SAFETY: a path, the program's buffer, a structure with the handle that `open` gave.
            Some(write) => unsafe { write(path, from.ptr.cast_const().cast(), len, offset as i64, info) },
            None => MISSING,
        })?;
        if count > len { posix(Errno::EIO) } else { Ok(count) }
    }

    fn fallocate(&self, s: &SessionCache, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let result = self.with_handle(s, cx, node, WRITE, |ops, path, info| match ops.fallocate {
            // SAFETY: a path and a structure with the handle that `open` gave.
            Some(fallocate) => unsafe { fallocate(path, how.flags() as c_int, offset as i64, len as i64, info) },
            None => MISSING,
        });
        unsupported(result).map(drop)
    }

    fn sync(&self, s: &SessionCache, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        let Some(node) = node else { return Ok(()) };
        let record = s.get(node)?;
        if record.kind() == Kind::Directory {
            let path = self.path(s, node, b"")?;
            let mut info = FileInfo::default();
            let opened = operation!(self, cx, opendir(path.text(), &mut info));
            needless(opened)?;
            let result = needless(operation!(self, cx, fsyncdir(path.text(), c_int::from(data_only), &mut info)));
            let _ = operation!(self, cx, releasedir(path.text(), &mut info));
            return result;
        }
        let want = match self.open_bits(record.key.load(Relaxed)) {
            0 => return Ok(()),
            bits if bits & FOR_WRITE != 0 => WRITE,
            _ => READ,
        };
        needless(self.with_handle(s, cx, node, want, |ops, path, info| match ops.fsync {
            // SAFETY: a path and a structure with the handle that `open` gave.
            Some(fsync) => unsafe { fsync(path, c_int::from(data_only), info) },
            None => MISSING,
        }))
    }

    fn get_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        let (path, name, room) = (self.path(s, node, b"")?, Text::new(name)?, out.len.min(XATTR_MAX));
        let buffer = if room == 0 { null_mut() } else { out.ptr.cast() };
        let len = unsupported(operation!(self, cx, getxattr(path.text(), name.0.as_ptr().cast(), buffer, room)))?;
        if room != 0 && len > room { posix(Errno::ERANGE) } else { Ok(len) }
    }

    fn set_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.writable()?;
        let (path, name) = (self.path(s, node, b"")?, Text::new(name)?);
        let start = if value.len == 0 { null() } else { value.ptr.cast_const().cast() };
        let (text, flags) = (name.0.as_ptr().cast(), flags as c_int);
        unsupported(operation!(self, cx, setxattr(path.text(), text, start, value.len, flags))).map(drop)
    }

    fn list_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let (path, room) = (self.path(s, node, b"")?, out.len.min(XATTR_MAX));
        let buffer = if room == 0 { null_mut() } else { out.ptr.cast() };
        let len = unsupported(operation!(self, cx, listxattr(path.text(), buffer, room)))?;
        if room != 0 && len > room { posix(Errno::ERANGE) } else { Ok(len) }
    }

    fn remove_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        let (path, name) = (self.path(s, node, b"")?, Text::new(name)?);
        unsupported(operation!(self, cx, removexattr(path.text(), name.0.as_ptr().cast()))).map(drop)
    }
}
