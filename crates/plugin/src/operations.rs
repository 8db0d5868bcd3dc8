//! Paths, handles and hidden names: what several operations need.

use crate::Plugin;
use crate::abi::{FileInfo, Info, Operations, Stat};
use crate::handles::{Contents, FOR_READ, FOR_WRITE, READ, SHARED, WRITE};
use crate::lower::{done, posix};
use base::{Attr, Cx, Error, Kind, Node, Result};
use core::ffi::{c_char, c_int};
use core::ptr::null;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use pm::sys::abi;
use pm::{Errno, host};
use session::SessionCache;

/// A path as the library sees it.
pub(crate) struct Path([u8; 4096]);

impl Path {
    pub(crate) fn text(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

fn node_words(node: Node) -> [u64; 2] {
    [node.id, u64::from(node.hint)]
}

fn node_of(words: [u64; 2]) -> Node {
    Node { id: words[0], hint: words[1] as u32 }
}

const HIDDEN_PREFIX: &[u8] = b".fuse_hidden";
/// Hidden names of this program so far.
static HIDDEN: AtomicU32 = AtomicU32::new(0);

/// `.fuse_hidden` and two numbers, as libfuse calls a file that lost its name while it was open.
fn hidden_name(number: u32) -> [u8; 28] {
    let mut name = *b".fuse_hidden0000000000000000";
    let value = u64::from(host::own_pid_cached()) << 32 | u64::from(number);
    for (index, digit) in name[12..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(value >> (60 - index * 4) & 15) as usize];
    }
    name
}

impl Plugin {
    pub(crate) fn path(&self, s: &SessionCache, node: Node, name: &[u8]) -> Result<Path> {
        let mut path = Path([0; 4096]);
        if s.path(b"", node, name, &mut path.0)? == 0 {
            path.0[0] = b'/';
        }
        Ok(path)
    }

    /// Calls `run` for a node that is open, with its handle: the path may be null then, if the library wants none.
    #[inline(always)]
    pub(crate) fn with_handle(
        &self,
        s: &SessionCache,
        cx: &Cx,
        node: Node,
        want: usize,
        run: impl Fn(&Operations, *const c_char, Info) -> c_int + Copy,
    ) -> Result<usize> {
        let loaded = self.loaded()?;
        let handle = self.handle(s, cx, node, want)?;
        let flags = if want == WRITE { abi::O_WRONLY } else { abi::O_RDONLY };
        let mut info = FileInfo::new(flags, handle);
        if loaded.config.nullpath_ok == 0 {
            return self.with_path(s, cx, node, info, run);
        }
        done(self.enter(loaded, cx, |ops| run(ops, null(), &mut info)))
    }

    /// Apart, for its room for a path: a call that wants none touches none of those pages.
    #[inline(never)]
    fn with_path(
        &self,
        s: &SessionCache,
        cx: &Cx,
        node: Node,
        mut info: FileInfo,
        run: impl Fn(&Operations, *const c_char, Info) -> c_int,
    ) -> Result<usize> {
        let path = self.path(s, node, b"")?;
        done(self.with(cx, |ops| run(ops, path.text(), &mut info))?)
    }

    #[inline(always)]
    fn handle(&self, s: &SessionCache, cx: &Cx, node: Node, want: usize) -> Result<u64> {
        let key = s.get(node)?.key.load(Relaxed);
        match self.handles.handle(key, want) {
            Some(handle) => Ok(handle),
            None => self.handle_anew(s, cx, node, key, want),
        }
    }

    #[cold]
    #[inline(never)]
    fn handle_anew(&self, s: &SessionCache, cx: &Cx, node: Node, key: u64, want: usize) -> Result<u64> {
        loop {
            self.open_handle(s, cx, node, if want == WRITE { abi::O_WRONLY } else { abi::O_RDONLY })?;
            if let Some(handle) = self.handles.handle(key, want) {
                return Ok(handle);
            }
        }
    }

    /// What of a node is open in this program.
    pub(crate) fn open_bits(&self, key: u64) -> u32 {
        self.handles.find(key).map_or(0, |place| place.bits.load(Relaxed))
    }

    /// Opens a file with an access mode and keeps the handle, unless somebody was quicker.
    pub(crate) fn open_handle(&self, s: &SessionCache, cx: &Cx, node: Node, access: u32) -> Result<()> {
        let key = s.get(node)?.key.load(Relaxed);
        self.make_place(s, cx, key)?;
        let path = self.path(s, node, b"")?;
        let mut info = FileInfo::new(access, 0);
        done(self.with(cx, |ops| match ops.open {
            // SAFETY: a path and a structure for this call.
            Some(open) => unsafe { open(path.text(), &mut info) },
            None => 0,
        })?)?;
        let bits = match access {
            abi::O_RDONLY => FOR_READ,
            abi::O_WRONLY => FOR_WRITE,
            _ => FOR_READ | FOR_WRITE | SHARED,
        };
        match self.handles.put(key, node_words(node), bits, info.handle) {
            Some(true) => Ok(()),
            kept => {
                self.release_one(cx, path.text(), access, info.handle);
                if kept.is_some() { Ok(()) } else { posix(Errno::ENFILE) }
            }
        }
    }

    /// Keeps the handle that came with a new node, whose session entry is still to be made.
    pub(crate) fn keep_new(&self, s: &SessionCache, cx: &Cx, key: u64, path: &Path, handle: u64) {
        let root = node_words(s.root());
        let kept = self.make_place(s, cx, key).is_ok()
            && self.handles.put(key, root, FOR_READ | FOR_WRITE | SHARED, handle) == Some(true);
        if !kept {
            self.release_one(cx, path.text(), abi::O_RDWR, handle);
        }
    }

    /// A description of the node is being made: it is the one to look at from now on.
    pub(crate) fn belongs(&self, key: u64, node: Node) {
        self.handles.belongs(key, node_words(node));
    }

    /// Sees that a node with this key can have a place.
    fn make_place(&self, s: &SessionCache, cx: &Cx, key: u64) -> Result<()> {
        if self.handles.find(key).is_some() || self.handles.has_room(key) {
            return Ok(());
        }
        match self.handles.idle(key, |node| s.holds(node_of(node)) > 0 && node[0] as u32 != 0) {
            Some(idle) => {
                self.release_all(s, cx, idle, None);
                Ok(())
            }
            None => posix(Errno::ENFILE),
        }
    }

    fn release_one(&self, cx: &Cx, path: *const c_char, access: u32, handle: u64) {
        let mut info = FileInfo::new(access, handle);
        let _ = self.with(cx, |ops| match ops.release {
            // SAFETY: a path or null, a structure for this call, and a handle that `open` gave.
            Some(release) => unsafe { release(path, &mut info) },
            None => 0,
        });
    }

    /// Releases what this program has open under `key`.
    pub(crate) fn release_all(&self, s: &SessionCache, cx: &Cx, key: u64, node: Option<Node>) {
        let path = node.and_then(|node| self.path(s, node, b"").ok());
        let Some(at) = self.handles.take(key) else { return };
        self.release_handles(cx, path.as_ref().map_or(null(), Path::text), &at);
    }

    /// Nobody has the node open any more: if it has but a hidden name, that goes too.
    pub(crate) fn bury(&self, s: &SessionCache, cx: &Cx, node: Node) {
        let Ok(record) = s.get(node) else { return };
        let mut name = [0u8; 255];
        // Unless somebody has given it another name.
        let is_hidden = s.name(node, &mut name).is_ok_and(|len| name[..len].starts_with(HIDDEN_PREFIX));
        if !is_hidden || record.handles[0].load(Relaxed) != record.key.load(Relaxed) {
            return;
        }
        let Ok(path) = self.path(s, node, b"") else { return };
        let _ = self.with(cx, |ops| match ops.unlink {
            // SAFETY: a path for this call.
            Some(unlink) => unsafe { unlink(path.text()) },
            None => 0,
        });
    }

    fn release_handles(&self, cx: &Cx, path: *const c_char, at: &Contents) {
        if at.bits & SHARED != 0 {
            self.release_one(cx, path, abi::O_RDWR, at.handles[READ]);
            return;
        }
        if at.bits & FOR_READ != 0 {
            self.release_one(cx, path, abi::O_RDONLY, at.handles[READ]);
        }
        if at.bits & FOR_WRITE != 0 {
            self.release_one(cx, path, abi::O_WRONLY, at.handles[WRITE]);
        }
    }

    /// If somebody has the file called `name` in `dir` open, moves it out of the way, as
    /// libfuse does; whether that was done. The session marks it by its own key in a word
    /// for handles, which are kept elsewhere here.
    pub(crate) fn hide(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        let loaded = self.loaded()?;
        let Some(node) = s.last_known(dir, name) else { return Ok(false) };
        let record = s.get(node)?;
        if loaded.config.hard_remove != 0 || record.kind() == Kind::Directory || s.holds(node) == 0 {
            return Ok(false);
        }
        let Some(rename) = loaded.operations.rename else { return Ok(false) };
        let hidden = hidden_name(HIDDEN.fetch_add(1, Relaxed) + 1);
        let (from, to) = (self.path(s, dir, name)?, self.path(s, dir, &hidden)?);
        let asked = s.moment();
        // SAFETY: two paths for this call.
        done(self.with(cx, |_| unsafe { rename(from.text(), to.text(), 0) })?)?;
        record.handles[0].store(record.key.load(Relaxed), Relaxed);
        // This lower file system has nothing to forget.
        s.moved((dir, name), (dir, &hidden), false, asked, &mut |_, _, _| {})?;
        Ok(true)
    }

    /// Attributes of `name` in `dir` (of `dir` itself, if it is empty), with the library's inode number or 0.
    pub(crate) fn attr_at(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> Result<Attr> {
        let path = if name.is_empty() { self.path(s, dir, b"")? } else { self.path(s, dir, name)? };
        self.attr_by(cx, &path)
    }

    pub(crate) fn attr_by(&self, cx: &Cx, path: &Path) -> Result<Attr> {
        // SAFETY: all zeroes are a `struct stat`.
        let mut stat: Stat = unsafe { core::mem::zeroed() };
        done(self.with(cx, |ops| match ops.getattr {
            // SAFETY: a path and a structure for this call; no handle.
            Some(getattr) => unsafe { getattr(path.text(), &mut stat, core::ptr::null_mut()) },
            None => -Errno::ENOSYS.0,
        })?)?;
        self.attr_of(&stat)
    }

    /// Whether the library's inode numbers are to be shown (in directories).
    pub(crate) fn uses_ino(&self, in_directory: bool) -> bool {
        self.loaded().is_ok_and(|at| at.config.use_ino != 0 || in_directory && at.config.readdir_ino != 0)
    }

    fn attr_of(&self, stat: &Stat) -> Result<Attr> {
        let config = &self.loaded()?.config;
        let kind = Kind::from_dt((stat.st_mode >> 12 & 15) as u8).ok_or(Error::Posix(Errno::EIO))?;
        let time = |seconds: i64, part: i64| seconds.saturating_mul(1_000_000_000).saturating_add(part);
        let mode = if config.set_mode != 0 { 0o777 & !config.umask } else { stat.st_mode & 0o7777 };
        Ok(Attr {
            ino: if config.use_ino != 0 { stat.st_ino } else { 0 },
            kind,
            mode: mode as u16,
            nlink: stat.st_nlink as u32,
            uid: if config.set_uid != 0 { config.uid } else { stat.st_uid },
            gid: if config.set_gid != 0 { config.gid } else { stat.st_gid },
            rdev: stat.st_rdev,
            size: u64::try_from(stat.st_size).map_err(|_| Error::Posix(Errno::EIO))?,
            blocks: stat.st_blocks as u64,
            atime: time(stat.st_atime as i64, stat.st_atime_nsec as i64),
            mtime: time(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: time(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            btime: None,
        })
    }
}
