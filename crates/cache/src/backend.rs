//! The cache as a backend: the engine's own calls, after what they need has been brought.

use crate::data::Brought;
use crate::{Cache, Changes, own};
use base::stat::Stat;
use base::*;
use core::mem::MaybeUninit;
use engine::Fs;
use openfiles::OpenFile;
use pm::{Table, UserSlice};
use vfs::backend::*;
use vfs::cached::lacks;

/// How often bytes may go again before they are read.
const ATTEMPTS: u32 = 100;

/// Calls that the engine answers as they are.
macro_rules! native {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
            self.native.$name($($argument),*)
        }
    )*};
}

impl Cache {
    /// What a name leads to, which is brought if need be.
    fn find(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        for _ in 0..ATTEMPTS {
            let node = match self.fs().lookup_kind(cx, dir, name) {
                Err(Error::Posix(Errno::ENOENT)) => self.ask_settled(cx, dir, name)?,
                Ok((node, Kind::Symlink)) if self.is_unknown(node)? => {
                    self.settled(cx, (dir, name), || self.ask_anew(cx, dir, name))?
                }
                found => return found,
            };
            match self.fs().attr(cx, node) {
                // Another has its name by now.
                Err(Error::Posix(Errno::ESTALE)) => {}
                attr => return Ok((node, attr?.kind)),
            }
        }
        Err(Errno::EIO.into())
    }
}

impl Backend for Cache {
    fn root(&self) -> Node {
        self.tree
    }

    fn direct(&self) -> Option<&'static Fs> {
        Some(self.fs())
    }

    fn direct_changes(&self) -> Option<&'static Fs> {
        None
    }

    fn walk<'a>(
        &self,
        cx: &Cx,
        base: Node,
        path: &'a [u8],
        last: Last,
        links: &mut u32,
        covered: Option<&dyn Fn(Node) -> bool>,
        scratch: &'a mut Scratch,
    ) -> Result<Walk<'a>> {
        // A component at a time: each may have to be brought.
        vfs::walk::walk(self, cx, base, path, last, links, covered, scratch)
    }

    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        self.lookup_kind(cx, dir, name).map(|(node, _)| node)
    }

    fn lookup_kind(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        self.compared(cx, (dir, name), || self.find(cx, dir, name))
    }

    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        let _ = self.compare(cx, node);
        self.fs().attr_as_original(cx, node)
    }

    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        if want & W != 0 {
            match self.fs().attr(cx, node)?.kind {
                Kind::Directory => self.may_change_names(node)?,
                Kind::Regular | Kind::Symlink => self.writable()?,
                _ => {}
            }
        }
        self.fs().access(cx, node, want)
    }

    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let _ = self.compare(cx, dir);
        self.list_settled(cx, dir)?;
        self.fs().readdir(cx, dir, cookie, &mut |entry| match entry {
            // The image's own directories are not to be seen.
            DirEntry { name: b"..", .. } if dir == self.tree => {
                each(DirEntry { ino: self.fs().ino(dir.id), id: dir.id, ..entry })
            }
            entry => each(self.as_listed(entry)),
        })
    }

    fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        if self.is_unread(node)? { self.ask_text(cx, node, out) } else { self.fs().readlink(cx, node, out) }
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { read_only: self.changes == Changes::Refused, ..self.fs().statfs()? })
    }

    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        let len = UserSlice::total(into) as u64;
        for _ in 0..ATTEMPTS {
            let before = self.fs().moves(cx, node)?;
            if self.bring_settled(cx, node, offset, len)? == Brought::NoRoom {
                break;
            }
            let done = self.fs().read(cx, node, offset, into)?;
            // Taken away between the two, it would have been read as zeros.
            if self.fs().moves(cx, node)? == before {
                return Ok(done);
            }
        }
        match self.is_newer(node)? {
            true => self.settled(cx, (node, b""), || self.read_mixed(cx, node, offset, into)),
            false => self.settled(cx, (node, b""), || self.read_through(cx, node, offset, into)),
        }
    }

    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        if self.fs().attr(cx, node)?.kind == Kind::Regular && self.has_holes(cx, node)? {
            return match self.is_newer(node)? {
                true => self.settled(cx, (node, b""), || self.seek_mixed(cx, node, offset, data)),
                false => self.settled(cx, (node, b""), || self.seek_lower(cx, node, offset, data)),
            };
        }
        self.fs().seek(cx, node, offset, data)
    }

    fn sync(&self, cx: &Cx, node: Option<Node>, _: bool) -> Result<()> {
        self.make_durable(cx, node)
    }

    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        match change.size {
            Some(size) => self.with_rights(cx, node, size, || self.set(cx, node, change)),
            None => self.set(cx, node, change),
        }
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let lacking = match new.kind {
            Kind::Regular | Kind::Directory => 0,
            Kind::Symlink => lacks::SYMLINKS,
            _ => lacks::NODES,
        };
        if self.lower.lacks(lacking) {
            return Err(Errno::EPERM.into());
        }
        self.make(cx, dir, name, new)
    }

    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        // A file that has none yet gets its first.
        if self.lower.lacks(lacks::LINKS) && self.fs().attr(cx, node)?.nlink > 0 {
            return Err(Errno::EPERM.into());
        }
        self.add_name(cx, node, dir, name)
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.remove_name_here(cx, dir, name)
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.remove_directory(cx, dir, name)
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        self.move_name(cx, (from_dir, from), (to_dir, to), mode)
    }

    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.put(cx, node, offset, from, false)
    }

    fn write_stored(&self, cx: &Cx, node: Node, offset: u64, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.put(cx, node, Some(offset), from, true)
    }

    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        self.copy(cx, (from, from_offset), (to, to_offset), len)
    }

    fn clone_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<()> {
        self.share(cx, from, to, len)
    }

    fn dedupe_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<Option<u64>> {
        self.share_same(cx, from, to, len)
    }

    fn twin(&self, cx: &Cx, source: (Node, Kind), dir: Node, name: &[u8], mode: Option<u16>) -> Result<Twin> {
        self.make_twin(cx, source, dir, name, mode)
    }

    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.manage(cx, node, how, offset, len)
    }

    fn parent(&self, cx: &Cx, dir: Node) -> Result<Node> {
        if dir == self.tree { Ok(dir) } else { self.fs().parent_of(cx, dir) }
    }

    fn detach(&self, cx: &Cx) {
        self.native.detach(&own(cx));
    }

    fn watch(&self, cx: &Cx, node: Node, path: &mut [u8]) -> Result<usize> {
        // Those who watch hear of the names that there are.
        if self.fs().attr(cx, node)?.kind == Kind::Directory {
            self.list_settled(cx, node)?;
        }
        self.native.watch(cx, node, path)
    }

    fn device_of(&self, node: Node) -> u64 {
        self.fs().other_device(node).map_or_else(|| self.device(), |known| self.devices().swap(known))
    }

    fn kernel_mount(&self) -> &dyn KernelMount {
        // Nodes, and what the kernel is told of them, are the engine's.
        &self.native
    }

    fn handover(&self) -> &dyn Handover {
        self.native.handover()
    }

    native! {
        fn is_called(&self, directory: Node, dir: Node, name: &[u8]) -> Option<bool>;
        fn device(&self) -> u64;
        fn identity(&self) -> u64;
        fn fstat_fast(&self, node: Node, out: &mut MaybeUninit<Stat>) -> Fast<()>;
        fn break_off(&self, cx: &Cx);
        fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize>;
        fn count_calls(&self, more: &Calls);
    }
}

impl OpenFileTable for Cache {
    fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.make_nameless(cx, dir, mode, flags, fd)
    }

    fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.may_open(cx, node, flags)?;
        self.native.open(cx, node, flags, fd)
    }

    fn description(&self, id: DescriptionId) -> &OpenFile {
        self.native.description(id)
    }

    native! {
        fn descriptions(&self) -> Table<OpenFile>;
        fn dup(&self, id: DescriptionId, fd: u32) -> Result<()>;
        fn close(&self, cx: &Cx, fd: u32);
        fn offset_lock(&self, cx: &Cx, id: DescriptionId);
        fn offset_unlock(&self, cx: &Cx, id: DescriptionId);
    }
}

impl Mappings for Cache {
    fn map(&self, cx: &Cx, node: Node, offset: u64, len: u64, what: MapFor, each: &mut dyn FnMut(MapRange)) -> Result<()> {
        if matches!(what, MapFor::Writing | MapFor::Touching) {
            return self.map_to_store(cx, node, (offset, len), what, each);
        }
        if self.bring_settled(cx, node, offset, len)? == Brought::NoRoom {
            return Err(Error::Posix(Errno::ENOSPC));
        }
        // Holes that are left are behind what the original has: zeros.
        self.native.map(cx, node, offset, len, what, each)
    }

    fn stored(&self, cx: &Cx, node: Node) -> Result<i64> {
        self.stored_by_mapping(cx, node)
    }

    native! {
        fn zeros(&self) -> Option<(pm::file::File, u64)>;
        fn is_mapped(&self, address: usize) -> bool;
        fn backing(&self) -> Option<pm::file::File>;
    }
}

impl Xattrs for Cache {
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.get(cx, node, name, out)
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.list_attributes(cx, node, out)
    }

    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        if self.lower.lacks(lacks::XATTRS) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.set_attribute(cx, node, name, value, flags)
    }

    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.remove_attribute(cx, node, name)
    }
}
