//! An image behind caches: what the papers compare it with.
//!
//! The path is walked here, a component at a time, and names and attributes are
//! cached above the engine ([`Cache`]), as the kernel does it (`conventional`); or
//! attributes only (`byvfs`: no dentry cache; a name goes to the engine, whose
//! answer, a node with its generation, finds the cached inode with one comparison).
//! Everything that is about an open file (data, offsets, locks, mappings, files
//! without names, `fork` and `exec`) is the engine's: nodes are the same ones.

use super::cache::Cache;
use base::*;
use openfiles::OpenFile;
use pm::{Table, UserSlice};
use std::sync::Arc;
use vfs::backend::{AdvisoryLocks, Backend, Handover, KernelMount, MapRange, Mappings, OpenFileTable, Xattrs};
use vfs::native::Native;

/// What is cached above the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Names and attributes.
    Conventional,
    /// Attributes.
    Byvfs,
}

/// An attached image behind caches.
#[derive(Debug)]
pub struct CachedImage {
    native: Native,
    cache: Arc<Cache>,
    caching: Caching,
}

impl CachedImage {
    /// Puts a cache above an image.
    pub fn new(native: Native, cache: impl Into<Arc<Cache>>, caching: Caching) -> Self {
        CachedImage { native, cache: cache.into(), caching }
    }

    fn change<T>(&self, node: Node, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut under_way = self.cache.change();
        under_way.node(node);
        let result = change();
        under_way.end();
        result
    }

    /// Changes what stands under these names: the nodes there change too.
    fn change_names<T>(&self, cx: &Cx, names: &[(Node, &[u8])], change: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut under_way = self.cache.change();
        names.iter().for_each(|(dir, name)| under_way.name(*dir, name));
        // Not before: another program could put another node there, unseen.
        for (dir, name) in names {
            if let Ok(node) = self.native.lookup(&Cx { cred: Cred::ROOT, ..*cx }, *dir, name) {
                under_way.node(node);
            }
        }
        let result = change();
        under_way.end();
        result
    }
}

impl Backend for CachedImage {
    fn break_off(&self, cx: &Cx) {
        self.native.break_off(cx)
    }

    fn root(&self) -> Node {
        self.native.root()
    }

    fn device(&self) -> u64 {
        self.native.device()
    }

    fn identity(&self) -> u64 {
        self.native.identity()
    }

    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        let asked = match self.caching {
            Caching::Conventional => self.cache.name_of(dir, name),
            Caching::Byvfs => None,
        };
        let (Some(asked), Ok(attr)) = (asked, self.attr(cx, dir)) else { return self.native.lookup(cx, dir, name) };
        if attr.kind != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        if !cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, X) {
            return Err(Errno::EACCES.into());
        }
        if let Some(known) = self.cache.name(&asked) {
            return known.ok_or(Error::Posix(Errno::ENOENT));
        }
        let answer = self.native.lookup(cx, dir, name);
        match answer {
            Ok(node) => self.cache.put_name(&asked, Some(node)),
            Err(Error::Posix(Errno::ENOENT)) => self.cache.put_name(&asked, None),
            Err(_) => {}
        }
        answer
    }

    fn parent(&self, cx: &Cx, dir: Node) -> Result<Node> {
        self.native.parent(cx, dir)
    }

    fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        self.native.name_of(cx, dir, name)
    }

    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        let asked = self.cache.attr_of(node);
        if let Some(attr) = self.cache.attr(&asked) {
            return Ok(attr);
        }
        let attr = self.native.attr(cx, node)?;
        self.cache.put_attr(&asked, &attr);
        Ok(attr)
    }

    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        // Whether anything may be written at all is the engine's to say.
        if want & W != 0 {
            return self.native.access(cx, node, want);
        }
        let attr = self.attr(cx, node)?;
        if cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, want) { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.change(node, || self.native.set_attr(cx, node, change))
    }

    fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.native.readlink(cx, node, out)
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let mut under_way = self.cache.change();
        under_way.name(dir, name);
        let result = self.native.create(cx, dir, name, new);
        under_way.end();
        result
    }

    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let mut under_way = self.cache.change();
        under_way.name(dir, name);
        under_way.node(node);
        let result = self.native.link(cx, node, dir, name);
        under_way.end();
        result
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.change_names(cx, &[(dir, name)], || self.native.unlink(cx, dir, name))
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.change_names(cx, &[(dir, name)], || self.native.rmdir(cx, dir, name))
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        let change = || self.native.rename(cx, from_dir, from, to_dir, to, mode);
        self.change_names(cx, &[(from_dir, from), (to_dir, to)], change)
    }

    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.native.readdir(cx, dir, cookie, each)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.native.statfs()
    }

    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        self.native.read(cx, node, offset, into)
    }

    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.change(node, || self.native.write(cx, node, offset, from))
    }

    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        self.change(to, || self.native.copy_range(cx, from, from_offset, to, to_offset, len))
    }

    fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize> {
        self.change(node, || self.native.write_with(cx, node, offset, len, fill))
    }

    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.change(node, || self.native.fallocate(cx, node, how, offset, len))
    }

    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        self.native.seek(cx, node, offset, data)
    }

    fn sync(&self, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        self.native.sync(cx, node, data_only)
    }

    fn detach(&self, cx: &Cx) {
        self.native.detach(cx)
    }

    fn count_calls(&self, more: &Calls) {
        self.native.count_calls(more)
    }

    fn kernel_mount(&self) -> &dyn KernelMount {
        self.native.kernel_mount()
    }

    fn handover(&self) -> &dyn Handover {
        self.native.handover()
    }
}

impl OpenFileTable for CachedImage {
    fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.native.tmpfile(cx, dir, mode, flags, fd)
    }

    fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.native.open(cx, node, flags, fd)
    }

    fn descriptions(&self) -> Table<OpenFile> {
        self.native.descriptions()
    }

    fn description(&self, id: DescriptionId) -> &OpenFile {
        self.native.description(id)
    }

    fn dup(&self, id: DescriptionId, fd: u32) -> Result<()> {
        self.native.dup(id, fd)
    }

    fn close(&self, cx: &Cx, fd: u32) {
        self.native.close(cx, fd)
    }

    fn offset_lock(&self, cx: &Cx, id: DescriptionId) {
        self.native.offset_lock(cx, id)
    }

    fn offset_unlock(&self, cx: &Cx, id: DescriptionId) {
        self.native.offset_unlock(cx, id)
    }
}

impl Mappings for CachedImage {
    fn is_mapped(&self, address: usize) -> bool {
        self.native.is_mapped(address)
    }

    fn map(&self, cx: &Cx, node: Node, offset: u64, len: u64, what: MapFor, each: &mut dyn FnMut(MapRange)) -> Result<()> {
        // Holes may be filled.
        self.change(node, || self.native.map(cx, node, offset, len, what, each))
    }

    fn backing(&self) -> Option<pm::file::File> {
        self.native.backing()
    }

    fn zeros(&self) -> Option<(pm::file::File, u64)> {
        self.native.zeros()
    }
}

impl Xattrs for CachedImage {
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.native.get_xattr(cx, node, name, out)
    }

    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.change(node, || self.native.set_xattr(cx, node, name, value, flags))
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.native.list_xattr(cx, node, out)
    }

    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.change(node, || self.native.remove_xattr(cx, node, name))
    }
}

impl AdvisoryLocks for CachedImage {
    fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        self.native.lock(cx, node, lock)
    }

    fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        self.native.conflicting_lock(cx, node, lock)
    }

    fn drop_process_locks(&self, cx: &Cx, node: Node) {
        self.native.drop_process_locks(cx, node)
    }
}
