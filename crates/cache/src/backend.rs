//! The cache as a backend: the engine's own calls, after what they need has been brought.

use crate::data::Brought;
use crate::{Cache, own};
use base::*;
use engine::Fs;
use openfiles::OpenFile;
use pm::{Table, UserSlice};
use vfs::backend::{Backend, Handover, KernelMount, Last, MapRange, Scratch, Walk};

/// Of whatever would change something.
fn read_only<T>() -> Result<T> {
    Err(Error::Posix(Errno::EROFS))
}

/// Calls that the engine answers as they are.
macro_rules! native {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
            self.native.$name($($argument),*)
        }
    )*};
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
        match self.fs().lookup(cx, dir, name) {
            Err(Error::Posix(Errno::ENOENT)) if !self.known(dir)?.is_listed() => self.ask(cx, dir, name),
            found => found,
        }
    }

    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        let mut attr = self.fs().attr(cx, node)?;
        let stamp = self.known(node)?.stamp;
        (attr.nlink, attr.blocks) = (stamp.nlink, u64::from(stamp.blocks));
        if attr.kind == Kind::Directory {
            attr.size = stamp.size;
        }
        Ok(attr)
    }

    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        let kind = self.fs().attr(cx, node)?.kind;
        if want & W != 0 && matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            return read_only();
        }
        self.fs().access(cx, node, want)
    }

    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.list(cx, dir)?;
        self.fs().readdir(cx, dir, cookie, each)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { read_only: true, ..self.fs().statfs()? })
    }

    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        if self.fs().attr(cx, node)?.kind == Kind::Regular {
            let len = UserSlice::total(into) as u64;
            if self.bring_bytes(cx, node, offset, len)? == Brought::NoRoom {
                return self.read_through(cx, node, offset, into);
            }
        }
        self.fs().read(cx, node, offset, into)
    }

    fn map(&self, cx: &Cx, node: Node, offset: u64, len: u64, what: MapFor, each: &mut dyn FnMut(MapRange)) -> Result<()> {
        if matches!(what, MapFor::Writing | MapFor::Touching) {
            return read_only();
        }
        if self.bring_bytes(cx, node, offset, len)? == Brought::NoRoom {
            return Err(Error::Posix(Errno::ENOSPC));
        }
        // The image itself may be written: holes that are left are of the original.
        self.native.map(cx, node, offset, len, what, each)
    }

    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        if self.fs().attr(cx, node)?.kind == Kind::Regular && self.has_holes(cx, node)? {
            return self.seek_lower(cx, node, offset, data);
        }
        self.fs().seek(cx, node, offset, data)
    }

    fn sync(&self, _: &Cx, _: Option<Node>, _: bool) -> Result<()> {
        Ok(())
    }

    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.get(cx, node, name, out)
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.list_attributes(cx, node, out)
    }

    fn set_attr(&self, _: &Cx, _: Node, _: &SetAttr) -> Result<()> {
        read_only()
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], _: &NewNode) -> Result<Node> {
        // That there is such a name comes first.
        match self.lookup(cx, dir, name) {
            Err(Error::Posix(Errno::ENOENT)) => read_only(),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Posix(Errno::EEXIST)),
        }
    }

    fn tmpfile(&self, _: &Cx, _: Node, _: u16, _: u32, _: u32) -> Result<DescriptionId> {
        read_only()
    }

    fn link(&self, _: &Cx, _: Node, _: Node, _: &[u8]) -> Result<()> {
        read_only()
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.lookup(cx, dir, name)?;
        read_only()
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.lookup(cx, dir, name)?;
        read_only()
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], _: Node, _: &[u8], _: RenameMode) -> Result<()> {
        self.lookup(cx, from_dir, from)?;
        read_only()
    }

    fn write(&self, _: &Cx, _: Node, _: Option<u64>, _: &[UserSlice]) -> Result<(usize, u64)> {
        read_only()
    }

    fn copy_range(&self, _: &Cx, _: Node, _: u64, _: Node, _: u64, _: u64) -> Result<u64> {
        read_only()
    }

    fn fallocate(&self, _: &Cx, _: Node, _: Fallocate, _: u64, _: u64) -> Result<()> {
        read_only()
    }

    fn set_xattr(&self, _: &Cx, _: Node, _: &[u8], _: UserSlice, _: u32) -> Result<()> {
        read_only()
    }

    fn remove_xattr(&self, _: &Cx, _: Node, _: &[u8]) -> Result<()> {
        read_only()
    }

    fn zeros(&self) -> Option<(pm::file::File, u64)> {
        // A hole is not zeros here.
        None
    }

    fn description(&self, id: DescriptionId) -> &OpenFile {
        self.native.description(id)
    }

    fn parent(&self, cx: &Cx, dir: Node) -> Result<Node> {
        if dir == self.tree { Ok(dir) } else { self.fs().parent_of(cx, dir) }
    }

    fn detach(&self, cx: &Cx) {
        self.native.detach(&own(cx));
    }

    fn kernel_mount(&self) -> &dyn KernelMount {
        self
    }

    fn handover(&self) -> &dyn Handover {
        self.native.handover()
    }

    native! {
        fn is_called(&self, directory: Node, dir: Node, name: &[u8]) -> Option<bool>;
        fn device(&self) -> u64;
        fn identity(&self) -> u64;
        fn is_mapped(&self, address: usize) -> bool;
        fn break_off(&self, cx: &Cx);
        fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize>;
        fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize>;
        fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId>;
        fn descriptions(&self) -> Table<OpenFile>;
        fn dup(&self, id: DescriptionId, fd: u32) -> Result<()>;
        fn close(&self, cx: &Cx, fd: u32);
        fn offset_lock(&self, cx: &Cx, id: DescriptionId);
        fn offset_unlock(&self, cx: &Cx, id: DescriptionId);
        fn backing(&self) -> Option<pm::file::File>;
        fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()>;
        fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>>;
        fn drop_process_locks(&self, cx: &Cx, node: Node);
        fn count_calls(&self, more: &Calls);
    }
}

// Waiting is the engine's; what the kernel may keep is not told: nothing changes here but by being brought.
impl KernelMount for Cache {
    native! {
        fn waits_as(&self, cx: &Cx) -> u32;
        fn call_off(&self, number: u32, over: bool);
        fn kept_waiting_by(&self, number: u32) -> Option<Holder>;
        fn is_user(&self, pid: u32) -> bool;
    }
}
