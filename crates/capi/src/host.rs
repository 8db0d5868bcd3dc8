//! A directory of the kernel's in a namespace without the kernel's descriptors.
//!
//! [`Host`] hands a preloaded program the kernel's own descriptors. Here they
//! are the namespace's numbers, so the kernel's files are kept behind them: one
//! for reading and one for writing by node, opened with the first description that needs
//! it, closed with the last. When that one goes in another program of the
//! session, ours stay until the next file is opened.

use pm::UserSlice;
use pm::file::File;
use pm::sys::abi;
use session::{Entry, SessionCache};
use session::{LowerFs, Miss};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfs::host::{Host, attr_by, set_attr_of};
use vfs::{Attr, Cx, DirEntry, Errno, Error, Fallocate, Kind, NewNode, Node, RenameMode, Result, SetAttr, StatFs};

/// So many new files may wait for their first description.
const FRESH_MAX: usize = 16;
const READ: usize = 0;
const WRITE: usize = 1;
/// Neither waits for a FIFO nor takes a terminal, if something else lies there now.
const CAUTIOUS: u32 = abi::O_NONBLOCK | abi::O_NOCTTY | abi::O_NOFOLLOW;

/// A directory whose open files are kept here.
pub struct Directory {
    host: Host,
    read_only: bool,
    /// Nothing waits for the medium.
    unsynced: bool,
    open: Mutex<Open>,
}

/// For reading, for writing.
type Ways = [Option<Arc<File>>; 2];

#[derive(Default)]
struct Open {
    /// By node's number.
    files: HashMap<u64, (Node, Ways)>,
    /// Just made, by device and inode: open for the maker, whatever their mode says.
    fresh: Vec<((u64, u64), File)>,
}

const fn posix<T>(errno: Errno) -> Result<T> {
    Err(Error::Posix(errno))
}

fn text(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::Posix(Errno::EINVAL))
}

impl Directory {
    /// The directory at `path` (absolute, canonical, without NUL).
    pub fn new(path: &[u8], read_only: bool, unsynced: bool) -> std::result::Result<Directory, Errno> {
        let host = Host::new(path, read_only)?.unsynced_if(unsynced);
        Ok(Directory { host, read_only, unsynced, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self) -> Result<()> {
        if self.read_only { posix(Errno::EROFS) } else { Ok(()) }
    }

    /// The kernel's file behind an open node.
    fn way(&self, node: Node, way: usize) -> Option<Arc<File>> {
        self.open().files.get(&node.id)?.1[way].clone()
    }

    fn opened(&self, node: Node, way: usize) -> Result<Arc<File>> {
        self.way(node, way).ok_or(Error::Posix(Errno::EBADF))
    }

    /// Either of them; where the node is not open, what lies at its path.
    fn any(&self, s: &SessionCache, node: Node) -> Result<Arc<File>> {
        match self.way(node, WRITE).or_else(|| self.way(node, READ)) {
            Some(file) => Ok(file),
            None => self.host.handle(s, node).map(Arc::new),
        }
    }
}

impl LowerFs for Directory {
    fn device(&self) -> u64 {
        self.host.device()
    }

    fn lookup(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> std::result::Result<Entry, Miss> {
        self.host.lookup(s, cx, dir, name)
    }

    fn attr(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<(Attr, u64)> {
        match self.way(node, WRITE).or_else(|| self.way(node, READ)) {
            Some(file) => Ok((attr_by(&file)?, 0)),
            None => self.host.attr(s, cx, node),
        }
    }

    fn access(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        self.host.access(s, cx, node, want, attr)
    }

    fn set_attr(&self, s: &SessionCache, _cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.writable()?;
        let mut rest = *change;
        if let (Some(size), Some(file)) = (change.size, self.way(node, WRITE)) {
            // Open for writing: its mode may have become another since.
            file.truncate(size)?;
            rest.size = None;
        }
        set_attr_of(&*self.any(s, node)?, &rest)
    }

    fn readlink(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.host.readlink(s, cx, node, out)
    }

    fn create(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry> {
        let mode = new.mode & !cx.umask;
        if new.kind != Kind::Regular {
            let entry = self.host.create(s, cx, dir, name, &NewNode { mode, ..*new })?;
            // The kernel's own umask is the process's, not the namespace's.
            if new.kind != Kind::Symlink && entry.attr.mode & mode != mode {
                let mode = entry.attr.mode | mode;
                self.host.set_mode_at(s, dir, name, mode)?;
                return Ok(Entry { attr: Attr { mode, ..entry.attr }, ..entry });
            }
            return Ok(entry);
        }
        let (file, mut entry) = self.host.make(s, dir, name, mode)?;
        if entry.attr.mode & mode != mode {
            entry.attr.mode |= mode;
            file.set_mode(entry.attr.mode)?;
        }
        let mut open = self.open();
        if open.fresh.len() >= FRESH_MAX {
            open.fresh.remove(0);
        }
        open.fresh.push(((entry.device, entry.key), file));
        Ok(entry)
    }

    fn link(&self, s: &SessionCache, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.host.link(s, cx, node, dir, name)
    }

    fn remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        self.host.remove(s, cx, dir, name, directory)
    }

    fn rename(&self, s: &SessionCache, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        self.host.rename(s, cx, from, to, mode)
    }

    fn readdir(&self, s: &SessionCache, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.host.readdir(s, cx, dir, cookie, each)
    }

    fn statfs(&self, s: &SessionCache) -> Result<StatFs> {
        self.host.statfs(s)
    }

    fn open(&self, s: &SessionCache, _cx: &Cx, node: Node, flags: u32) -> Result<()> {
        let record = s.get(node)?;
        if flags & abi::O_PATH != 0 || record.kind() != Kind::Regular {
            return Ok(());
        }
        let access = flags & abi::O_ACCMODE;
        let wanted = [access != abi::O_WRONLY, access != abi::O_RDONLY];
        let mut open = self.open();
        // What was closed by other programs.
        open.files.retain(|_, (node, _)| s.holds(*node) > 0);
        let place = (record.device(), record.key.load(std::sync::atomic::Ordering::Relaxed));
        let fresh = open.fresh.iter().position(|(at, _)| *at == place).map(|at| open.fresh.swap_remove(at).1);
        let (_, ways) = open.files.entry(node.id).or_insert((node, [None, None]));
        let file = match fresh {
            Some(file) => file,
            None if wanted[READ] && ways[READ].is_none() || wanted[WRITE] && ways[WRITE].is_none() => {
                let file = self.host.open(s, node, access | CAUTIOUS)?;
                if attr_by(&file)?.ino != place.1 {
                    // Others have put another file there: it is looked up again.
                    return posix(Errno::ESTALE);
                }
                file
            }
            None => return Ok(()),
        };
        let file = Arc::new(file);
        for way in [READ, WRITE].into_iter().filter(|&way| wanted[way]) {
            ways[way].get_or_insert_with(|| Arc::clone(&file));
        }
        Ok(())
    }

    fn closed(&self, _l: &SessionCache, _cx: &Cx, node: Node) {
        let files = self.open().files.remove(&node.id);
        drop(files);
    }

    fn read(&self, _l: &SessionCache, _cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        Ok(self.opened(node, READ)?.read_into(offset, into)?)
    }

    fn write(&self, _l: &SessionCache, _cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        Ok(self.opened(node, WRITE)?.write_from(offset, from)?)
    }

    fn fallocate(&self, _l: &SessionCache, _cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        Ok(self.opened(node, WRITE)?.manage(how.flags(), offset, len)?)
    }

    fn seek(&self, _l: &SessionCache, _cx: &Cx, node: Node, offset: u64, data: bool) -> Result<Option<u64>> {
        let file = self.way(node, READ).or_else(|| self.way(node, WRITE)).ok_or(Error::Posix(Errno::EBADF))?;
        Ok(Some(file.find(offset, data)?))
    }

    fn sync(&self, s: &SessionCache, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        let file = node.and_then(|node| self.way(node, WRITE).or_else(|| self.way(node, READ)));
        match file {
            _ if self.unsynced => Ok(()),
            Some(file) if data_only => Ok(file.durable_data()?),
            Some(file) => Ok(file.durable(false)?),
            None => self.host.sync(s, cx, node, data_only),
        }
    }

    fn get_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        Ok(self.any(s, node)?.get_xattr(&text(name)?, out)?)
    }

    fn set_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.writable()?;
        Ok(self.any(s, node)?.set_xattr(&text(name)?, value, flags)?)
    }

    fn list_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        Ok(self.any(s, node)?.list_xattr(out)?)
    }

    fn remove_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        Ok(self.any(s, node)?.remove_xattr(&text(name)?)?)
    }

    fn checks_names(&self) -> bool {
        true
    }
}
