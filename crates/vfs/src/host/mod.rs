//! A directory of the kernel's, under any name of our namespace.
//!
//! Nodes are paths: each call puts the names of a node's chain together behind
//! the directory's own canonical path and hands it to `openat2`, which follows no
//! symlink at all. Our walk resolves symlinks and `..` before that, so that they
//! mean what they mean in the namespace; a name that others replace by a symlink
//! meanwhile gives `ELOOP`, never a file elsewhere. No descriptor outlives a call:
//! a program may close all it does not know.
//!
//! Open files (and special ones) are the kernel's own descriptors: reading,
//! mapping, locking, `dup`, `fork` and `exec` are the kernel's business and cost
//! nothing here. Only directories are ours, so that what is looked up relative to
//! them stays in the namespace.

use crate::{Attr, Cx, DirEntry, Errno, Error, Kind, NewNode, Node, RenameMode, Result, SetAttr, SetTime, StatFs};
use base::ids;
use core::ffi::CStr;
use pm::file::File;
use pm::listing::Listed;
use pm::sys::abi;
use pm::{UserSlice, host};
use session::{Caching, Entry, SessionCache};
use session::{KernelCall, KernelOpen, LowerFs, Miss};

/// Longest path of the directory itself.
pub const ROOT_MAX: usize = 1024;
const NSEC: i64 = 1_000_000_000;

/// A directory of the kernel's.
#[derive(Debug)]
pub struct Host {
    root: [u8; ROOT_MAX],
    root_len: usize,
    device: u64,
    read_only: bool,
    /// Nothing waits for the medium.
    unsynced: bool,
}

/// A path of the kernel's.
struct Path([u8; 4096]);

impl Path {
    fn text(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Error::Posix(Errno::ENAMETOOLONG))
    }
}

/// A name with its NUL.
struct Name([u8; 256]);

impl Name {
    fn new(name: &[u8]) -> Result<Name> {
        let mut text = [0u8; 256];
        text.get_mut(..name.len()).filter(|_| name.len() < 256).ok_or(Error::Posix(Errno::ENAMETOOLONG))?.copy_from_slice(name);
        Ok(Name(text))
    }

    fn text(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Error::Posix(Errno::ENAMETOOLONG))
    }
}

fn time(stamp: &abi::statx_timestamp) -> i64 {
    stamp.tv_sec.saturating_mul(NSEC).saturating_add(i64::from(stamp.tv_nsec))
}

/// A device's number, as `st_dev` has it.
pub fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12
}

/// Changes attributes by a handle, of whatever kind.
pub fn set_attr_of(handle: &File, change: &SetAttr) -> Result<()> {
    if let Some(size) = change.size {
        handle.truncate_named(size)?;
    }
    if change.uid.is_some() || change.gid.is_some() || change.drops_rights {
        handle.set_owner(change.uid.map(ids::shown_user), change.gid.map(ids::shown_group))?;
    }
    if let Some(mode) = change.mode {
        handle.set_mode(mode)?;
    }
    if change.atime.is_some() || change.mtime.is_some() {
        const NOW: i64 = 0x3fff_ffff;
        const OMIT: i64 = 0x3fff_fffe;
        let pair = |time: Option<SetTime>| match time {
            None => [0, OMIT],
            Some(SetTime::Now) => [0, NOW],
            Some(SetTime::At(ns)) => [ns.div_euclid(NSEC), ns.rem_euclid(NSEC)],
        };
        handle.set_times(&[pair(change.atime), pair(change.mtime)])?;
    }
    Ok(())
}

fn attr_of(stat: &host::Statx) -> Result<Attr> {
    let kind = Kind::from_dt((stat.stx_mode >> 12) as u8).ok_or(Error::Posix(Errno::EIO))?;
    Ok(Attr {
        ino: stat.stx_ino,
        kind,
        mode: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        // Shown to us as our user namespace numbers them.
        uid: ids::user(stat.stx_uid).unwrap_or(stat.stx_uid),
        gid: ids::group(stat.stx_gid).unwrap_or(stat.stx_gid),
        rdev: device(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
        btime: (stat.stx_mask & abi::STATX_BTIME != 0).then(|| time(&stat.stx_btime)),
    })
}

/// Attributes and `st_dev`, of whatever kind.
pub fn attr_and_device(stat: &host::Statx) -> Result<(Attr, u64)> {
    Ok((attr_of(stat)?, device(stat.stx_dev_major, stat.stx_dev_minor)))
}

/// Attributes by a handle, of whatever kind.
pub fn attr_by(handle: &File) -> Result<Attr> {
    attr_of(&handle.statx()?)
}

fn entry_of(stat: &host::Statx) -> Result<Entry> {
    let attr = attr_of(stat)?;
    // Others change these files too: nothing is believed beyond the call.
    Ok(Entry {
        key: attr.ino,
        device: device(stat.stx_dev_major, stat.stx_dev_minor),
        attr,
        entry_ns: 0,
        attr_ns: 0,
        incarnation: 0,
        handle: None,
        caching: Caching::None,
    })
}

impl Host {
    /// The directory at `path` (absolute, canonical, without NUL). `ENAMETOOLONG`,
    /// or why it can't be used.
    pub fn new(path: &[u8], read_only: bool) -> core::result::Result<Host, Errno> {
        let path = if path == b"/" { b"" } else { path };
        let mut root = [0u8; ROOT_MAX];
        root.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
        let mut host = Host { root, root_len: path.len(), device: 0, read_only, unsynced: false };
        let mut name = [0u8; ROOT_MAX + 2];
        name[..path.len()].copy_from_slice(path);
        if path.is_empty() {
            name[0] = b'/';
        }
        let handle = File::directory(CStr::from_bytes_until_nul(&name).map_err(|_| Errno::ENAMETOOLONG)?)?;
        let stat = handle.statx()?;
        host.device = device(stat.stx_dev_major, stat.stx_dev_minor);
        Ok(host)
    }

    fn path(&self, s: &SessionCache, node: Node, name: &[u8]) -> Result<Path> {
        let mut path = Path([0; 4096]);
        if s.path(&self.root[..self.root_len], node, name, &mut path.0)? == 0 {
            path.0[..2].copy_from_slice(b"/\0");
        }
        Ok(path)
    }

    /// The same with `sync=none`, if so.
    pub fn unsynced_if(self, unsynced: bool) -> Host {
        Host { unsynced, ..self }
    }

    /// Flags of an open without those that ask for syncs which are left out.
    fn flags(&self, flags: u32) -> u32 {
        if self.unsynced { flags & !(abi::O_SYNC | abi::O_DSYNC) } else { flags }
    }

    /// Opens a file as `flags` say.
    pub fn open(&self, s: &SessionCache, node: Node, flags: u32) -> Result<File> {
        Ok(File::plain(self.path(s, node, b"")?.text()?, flags)?)
    }

    /// Makes a file of this name and opens it; `EEXIST`, `EROFS`.
    pub fn make(&self, s: &SessionCache, dir: Node, name: &[u8], mode: u16) -> Result<(File, Entry)> {
        self.writable()?;
        let file = File::made(self.path(s, dir, name)?.text()?, mode)?;
        let entry = entry_of(&file.statx()?)?;
        Ok((file, entry))
    }

    /// Changes the permission bits of what has this name.
    pub fn set_mode_at(&self, s: &SessionCache, dir: Node, name: &[u8], mode: u16) -> Result<()> {
        self.writable()?;
        Ok(File::handle(self.path(s, dir, name)?.text()?)?.set_mode(mode)?)
    }

    /// What a node is called by now, to look or change it by.
    pub fn handle(&self, s: &SessionCache, node: Node) -> Result<File> {
        Ok(File::handle(self.path(s, node, b"")?.text()?)?)
    }

    fn directory(&self, s: &SessionCache, node: Node) -> Result<File> {
        Ok(File::directory(self.path(s, node, b"")?.text()?)?)
    }

    fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::Posix(Errno::EROFS)) } else { Ok(()) }
    }
}

impl LowerFs for Host {
    fn device(&self) -> u64 {
        self.device
    }

    fn unsynced(&self) -> Option<&[u8]> {
        self.unsynced.then(|| &self.root[..self.root_len])
    }

    fn lookup(&self, s: &SessionCache, _cx: &Cx, dir: Node, name: &[u8]) -> core::result::Result<Entry, Miss> {
        let path = self.path(s, dir, name)?;
        Ok(entry_of(&File::handle(path.text()?)?.statx()?)?)
    }

    fn attr(&self, s: &SessionCache, _cx: &Cx, node: Node) -> Result<(Attr, u64)> {
        let attr = attr_of(&self.handle(s, node)?.statx()?)?;
        if attr.kind != s.get(node)?.kind() {
            return Err(Error::Posix(Errno::ESTALE));
        }
        Ok((attr, 0))
    }

    fn access(&self, s: &SessionCache, _cx: &Cx, node: Node, want: u16, _: &dyn Fn() -> Result<Attr>) -> Result<()> {
        if want & crate::W != 0 && s.get(node)?.kind() != Kind::CharDevice {
            self.writable()?;
        }
        Ok(self.handle(s, node)?.may(want, true)?)
    }

    fn set_attr(&self, s: &SessionCache, _cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.writable()?;
        set_attr_of(&self.handle(s, node)?, change)
    }

    fn readlink(&self, s: &SessionCache, _cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        Ok(self.handle(s, node)?.target(out)?)
    }

    fn create(&self, s: &SessionCache, _cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry> {
        let (parent, text) = (self.directory(s, dir)?, Name::new(name)?);
        let text = text.text()?;
        if self.read_only {
            let exists = File::handle(self.path(s, dir, name)?.text()?).is_ok();
            return Err(Error::Posix(if exists { Errno::EEXIST } else { Errno::EROFS }));
        }
        match new.kind {
            Kind::Directory => parent.make_directory(text, new.mode)?,
            Kind::Symlink => {
                let mut target = Path([0; 4096]);
                target.0.get_mut(..new.target.len()).ok_or(Error::Posix(Errno::ENAMETOOLONG))?.copy_from_slice(new.target);
                parent.make_symlink(target.text()?, text)?;
            }
            kind => parent.make_node(text, kind.type_bits() | u32::from(new.mode), new.rdev)?,
        }
        entry_of(&File::handle(self.path(s, dir, name)?.text()?)?.statx()?)
    }

    fn link(&self, s: &SessionCache, _cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        Ok(self.handle(s, node)?.link(&self.directory(s, dir)?, Name::new(name)?.text()?)?)
    }

    fn remove(&self, s: &SessionCache, _cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        let parent = self.directory(s, dir)?;
        if self.read_only {
            File::handle(self.path(s, dir, name)?.text()?)?;
            return Err(Error::Posix(Errno::EROFS));
        }
        Ok(parent.remove(Name::new(name)?.text()?, directory)?)
    }

    fn rename(&self, s: &SessionCache, _cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        self.writable()?;
        let (source, target) = (self.directory(s, from.0)?, self.directory(s, to.0)?);
        let flags = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
        };
        Ok(source.rename(Name::new(from.1)?.text()?, &target, Name::new(to.1)?.text()?, flags)?)
    }

    fn readdir(&self, s: &SessionCache, _cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let handle = File::plain(self.path(s, dir, b"")?.text()?, abi::O_RDONLY | abi::O_DIRECTORY)?;
        if cookie != 0 {
            handle.seek(cookie)?;
        }
        let mut buffer = [0u8; 8192];
        while let Some(listed) = handle.listed(&mut buffer)? {
            for entry in listed {
                let Listed { name, ino, next, kind } = entry?;
                let name = name.to_bytes();
                let kind = match Kind::from_dt(kind) {
                    Some(kind) => kind,
                    // Not every file system of the kernel's says it.
                    None => File::handle(self.path(s, dir, name)?.text()?)
                        .and_then(|handle| handle.statx())
                        .map_err(Error::Posix)
                        .and_then(|stat| attr_of(&stat))
                        .map_or(Kind::Regular, |attr| attr.kind),
                };
                if !each(DirEntry { name, ino, kind, next, id: 0 }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn statfs(&self, s: &SessionCache) -> Result<StatFs> {
        let words = self.directory(s, s.root())?.statfs()?;
        Ok(StatFs {
            magic: words[0],
            block_bytes: words[1],
            blocks: words[2],
            blocks_free: words[3],
            files: words[5],
            files_free: words[6],
            id: words[7],
            name_max: words[8],
            read_only: self.read_only,
        })
    }

    fn sync(&self, s: &SessionCache, _cx: &Cx, node: Option<Node>, _data_only: bool) -> Result<()> {
        if self.unsynced {
            return Ok(());
        }
        let all = node.is_none();
        let path = self.path(s, node.unwrap_or(s.root()), b"")?;
        Ok(File::plain(path.text()?, abi::O_RDONLY | abi::O_DIRECTORY)?.durable(all)?)
    }

    fn get_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        Ok(self.handle(s, node)?.get_xattr(Name::new(name)?.text()?, out)?)
    }

    fn set_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.writable()?;
        Ok(self.handle(s, node)?.set_xattr(Name::new(name)?.text()?, value, flags)?)
    }

    fn list_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        Ok(self.handle(s, node)?.list_xattr(out)?)
    }

    fn remove_xattr(&self, s: &SessionCache, _cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        Ok(self.handle(s, node)?.remove_xattr(Name::new(name)?.text()?)?)
    }

    fn checks_names(&self) -> bool {
        true
    }

    /// What there is to keep the kernel keeps.
    fn is_remembered(&self) -> bool {
        false
    }

    fn is_kernels(&self) -> bool {
        true
    }

    fn open_in_kernel(&self, s: &SessionCache, spot: &KernelOpen, make: &mut KernelCall) -> Option<Result<usize>> {
        let opens_directory = match spot.node {
            // A file without a name is made in a directory.
            Some(node) => s.get(node).is_ok_and(|record| record.kind() == Kind::Directory) && spot.flags & TMPFILE == 0,
            None => false,
        };
        if opens_directory {
            return None;
        }
        Some(self.open_file(s, spot, make))
    }

    fn watch(&self, s: &SessionCache, node: Node, path: &mut [u8]) -> Result<usize> {
        let own = self.path(s, node, b"")?;
        let text = own.text()?.to_bytes_with_nul();
        path.get_mut(..text.len()).ok_or(Error::Posix(Errno::ENAMETOOLONG))?.copy_from_slice(text);
        Ok(text.len())
    }

    fn handle_below(&self, s: &SessionCache, base: Node, path: &[u8], follow: bool) -> Option<Result<File>> {
        let path = self.path(s, base, path).ok()?;
        let text = path.text().ok()?;
        decided(if follow { File::handle_followed(text) } else { File::handle(text) })
    }

    fn directory_below(&self, s: &SessionCache, base: Node, path: &[u8]) -> Option<Result<(File, Entry)>> {
        let path = self.path(s, base, path).ok()?;
        let opened = decided(File::directory(path.text().ok()?))?;
        Some(opened.and_then(|handle| {
            handle.may(crate::R, true)?;
            let entry = entry_of(&handle.statx()?)?;
            Ok((handle, entry))
        }))
    }

    fn open_below(
        &self,
        s: &SessionCache,
        base: Node,
        path: &[u8],
        flags: u32,
        mode: u16,
        make: &mut KernelCall,
    ) -> Option<Result<usize>> {
        if self.read_only && changes(flags) {
            return None;
        }
        let path = self.path(s, base, path).ok()?;
        decided(open_by(path.text().ok()?, self.flags(flags), mode, make))
    }
}

/// What an open of a plain path says; `None` where it met a symlink, or the path is no node's any more.
fn decided<T>(result: core::result::Result<T, Errno>) -> Option<Result<T>> {
    match result {
        Err(Errno::ELOOP | Errno::ESTALE) => None,
        other => Some(other.map_err(Error::Posix)),
    }
}

/// Whether opening with these flags may change the file.
fn changes(flags: u32) -> bool {
    flags & abi::O_ACCMODE != abi::O_RDONLY || flags & (abi::O_CREAT | abi::O_TRUNC) != 0
}

/// Opens a path none of whose components may be a symlink, by a system call on the program's behalf. (No `O_NOFOLLOW`
/// for that, which `F_GETFL` would show.)
fn open_by(path: &CStr, flags: u32, mode: u16, make: &mut KernelCall) -> core::result::Result<usize, Errno> {
    let mode = if flags & (abi::O_CREAT | TMPFILE) != 0 { mode & 0o7777 } else { 0 };
    let resolve = abi::RESOLVE_NO_SYMLINKS | abi::RESOLVE_NO_MAGICLINKS;
    let how: [u64; 3] = [u64::from(flags), u64::from(mode), u64::from(resolve)];
    loop {
        let args = [abi::AT_FDCWD as usize, path.as_ptr() as usize, how.as_ptr() as usize, size_of_val(&how), 0, 0];
        match pm::sys::check(make(abi::__NR_openat2, args)) {
            Err(Errno::EAGAIN) if flags & abi::O_NONBLOCK == 0 => {}
            other => return other,
        }
    }
}

const TMPFILE: u32 = abi::O_TMPFILE & !abi::O_DIRECTORY;

impl Host {
    fn open_file(&self, s: &SessionCache, spot: &KernelOpen, make: &mut KernelCall) -> Result<usize> {
        if self.read_only && spot.flags & abi::O_PATH == 0 && changes(spot.flags) {
            let may_be_device = spot.node.and_then(|node| s.get(node).ok()).is_some_and(|r| r.kind() != Kind::Regular);
            if !may_be_device {
                return Err(Error::Posix(Errno::EROFS));
            }
        }
        let path = match spot.node {
            Some(node) => self.path(s, node, b"")?,
            None => self.path(s, spot.dir, spot.name)?,
        };
        Ok(open_by(path.text()?, self.flags(spot.flags), spot.mode, make)?)
    }
}
