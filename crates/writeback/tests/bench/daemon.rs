//! A directory of the kernel's as a daemon has it: read and written by calls, and its numbers are not believed.

use base::{Attr, Cx, DirEntry, Errno, Fallocate, NewNode, Node, RenameMode, Result, SetAttr, StatFs};
use pm::UserSlice;
use rustix::fd::BorrowedFd;
use session::{Entry, LowerFs, Miss, SessionCache};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use vfs::cached::Cached;
use vfs::host::Host;

pub struct ByCalls {
    host: Host,
    /// The how-manieth change from now on is answered by an error; 0: none is.
    fails: AtomicUsize,
    /// That one is made all the same, as by a daemon that dies before it answers.
    is_made: AtomicBool,
    /// A name that it says nothing of but that it is there, a text that it does not tell, and what it says instead.
    refused: Mutex<Option<(&'static str, &'static str, Errno)>>,
}

/// That of the directory `low`.
pub fn daemon(low: &Path) -> &'static Cached<ByCalls> {
    let path = [low.parent().unwrap().join("session").as_os_str().as_bytes(), b"\0"].concat();
    let file = std::fs::File::create(OsStr::from_bytes(&path[..path.len() - 1])).unwrap();
    file.set_len(SessionCache::bytes()).unwrap();
    let host = Host::new(low.as_os_str().as_bytes(), false).unwrap();
    Box::leak(Box::new(Cached::new(
        ByCalls { host, fails: AtomicUsize::new(0), is_made: AtomicBool::new(false), refused: Mutex::new(None) },
        SessionCache::open(&path).unwrap(),
    )))
}

impl ByCalls {
    /// The change number `at` from now on fails, whether or not it is made.
    pub fn fail(&self, at: usize, is_made: bool) {
        self.is_made.store(is_made, SeqCst);
        self.fails.store(at, SeqCst);
    }

    /// What it says nothing of from now on.
    pub fn refuse(&self, what: Option<(&'static str, &'static str, Errno)>) {
        *self.refused.lock().unwrap() = what;
    }

    fn is_refused(&self, is_it: impl Fn(&str, &str) -> bool) -> Result<()> {
        match *self.refused.lock().unwrap() {
            Some((name, text, errno)) if is_it(name, text) => Err(errno.into()),
            _ => Ok(()),
        }
    }

    /// Whether the one that was to fail has come.
    pub fn has_failed(&self) -> bool {
        self.fails.swap(0, SeqCst) == 0
    }

    /// A change.
    fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let left = self.fails.load(SeqCst);
        if left != 0 {
            self.fails.store(left - 1, SeqCst);
        }
        match (left, self.is_made.load(SeqCst)) {
            (1, true) => change().and(Err(Errno::ENOTCONN.into())),
            (1, false) => Err(Errno::ENOTCONN.into()),
            _ => change(),
        }
    }

    fn on<T>(
        &self,
        s: &SessionCache,
        node: Node,
        flags: i32,
        call: impl FnOnce(BorrowedFd) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let file = self.host.open(s, node, flags as u32)?;
        // SAFETY: `file` is open until the call has returned.
        let fd = unsafe { BorrowedFd::borrow_raw(file.number()) };
        call(fd).map_err(|error| Errno(error.raw_os_error()).into())
    }
}

impl LowerFs for ByCalls {
    fn device(&self) -> u64 {
        self.host.device()
    }
    fn lookup(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> std::result::Result<Entry, Miss> {
        self.is_refused(|refused, _| refused.as_bytes() == name)?;
        self.host.lookup(s, cx, dir, name)
    }
    fn attr(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<(Attr, u64)> {
        self.host.attr(s, cx, node)
    }
    fn access(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        self.host.access(s, cx, node, want, attr)
    }
    fn set_attr(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.change(|| self.host.set_attr(s, cx, node, change))
    }
    fn readlink(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let mut text = [0; 256];
        let len = self.host.readlink(s, cx, node, UserSlice::from_mut(&mut text))?;
        self.is_refused(|_, refused| refused.as_bytes() == &text[..len])?;
        self.host.readlink(s, cx, node, out)
    }
    fn create(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.change(|| self.host.create(s, cx, dir, name, new))
    }
    fn link(&self, s: &SessionCache, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.change(|| self.host.link(s, cx, node, dir, name))
    }
    fn remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        self.change(|| self.host.remove(s, cx, dir, name, directory))
    }
    fn rename(&self, s: &SessionCache, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        self.change(|| self.host.rename(s, cx, from, to, mode))
    }
    fn readdir(&self, s: &SessionCache, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.host.readdir(s, cx, dir, cookie, each)
    }
    fn statfs(&self, s: &SessionCache) -> Result<StatFs> {
        self.host.statfs(s)
    }
    fn read(&self, s: &SessionCache, _: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        let mut bytes = vec![0; into.len];
        let came = self.on(s, node, 0, |fd| rustix::io::pread(fd, &mut bytes[..], offset))?;
        Ok(pm::user::copy(UserSlice::from_ref(&bytes[..came]), into)?)
    }
    fn write(&self, s: &SessionCache, _: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        let mut bytes = vec![0; from.len];
        pm::user::copy(from, UserSlice::from_mut(&mut bytes))?;
        self.change(|| self.on(s, node, 1, |fd| rustix::io::pwrite(fd, &bytes, offset)))
    }
    fn fallocate(&self, s: &SessionCache, _: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let flags = rustix::fs::FallocateFlags::from_bits_retain(how.flags());
        self.change(|| self.on(s, node, 1, |fd| rustix::fs::fallocate(fd, flags, offset, len)))
    }
    fn sync(&self, _: &SessionCache, _: &Cx, _: Option<Node>, _: bool) -> Result<()> {
        Ok(())
    }
    fn get_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.host.get_xattr(s, cx, node, name, out)
    }
    fn set_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.change(|| self.host.set_xattr(s, cx, node, name, value, flags))
    }
    fn list_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.host.list_xattr(s, cx, node, out)
    }
    fn remove_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.change(|| self.host.remove_xattr(s, cx, node, name))
    }
    fn checks_names(&self) -> bool {
        true
    }
    fn is_remembered(&self) -> bool {
        false
    }
}
