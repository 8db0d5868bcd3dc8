//! The native engine as a backend: the direct way.
//!
//! From its root on the engine resolves the path itself, and nothing is cached
//! above it (ByVFS's `S_NVMFS_ROOT`, DirectFS's `S_DIRECTFS`); so there is
//! nothing here but the hand-over; and, while the image is also mounted through
//! the kernel or somebody watches it, word of every change ([`told`]).

mod told;
mod uncounted;

use crate::backend::{AdvisoryLocks, Backend, Handover, KernelMount, MapRange, Mappings, OpenFileTable, Whole, Xattrs};
use base::stat::Stat;
use base::*;
use core::mem::MaybeUninit;
use engine::Fs;
use engine::watch::events::Event;
use engine::watch::renaming::Renaming;
use openfiles::{Handover as _, OpenFile};
use pm::{Table, UserSlice};

/// An attached image, as a file system of the namespace.
#[derive(Clone, Copy, Debug)]
pub struct Native(pub &'static Fs);

impl Whole for Native {
    fn is_asked(&self) -> bool {
        self.0.atomic().is_some()
    }

    fn allow(&self, cx: &Cx) -> Result<()> {
        self.0.allow_atomic(cx)
    }

    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.change_data(cx, node, |(done, _)| *done != 0, || self.0.write_whole(cx, node, offset, from))
    }

    fn copy_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64> {
        self.change_data(cx, to.0, |done| *done != 0, || self.0.copy_range_whole(cx, from, to, len))
    }

    fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        place: (u64, u64),
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize> {
        self.change_data(cx, node, |done| *done != 0, || self.0.write_with_whole(cx, node, place, fill))
    }
}

impl Backend for Native {
    #[inline]
    fn root(&self) -> Node {
        self.0.root_node()
    }

    fn device(&self) -> u64 {
        self.0.device()
    }

    fn identity(&self) -> u64 {
        self.0.identity()
    }

    fn break_off(&self, cx: &Cx) {
        self.0.break_off(cx.thread)
    }

    fn fstat_fast(&self, node: Node, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        self.0.fstat_fast(node, out)
    }

    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        self.0.lookup(cx, dir, name)
    }

    fn lookup_kind(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        self.0.lookup_kind(cx, dir, name)
    }

    fn parent(&self, cx: &Cx, dir: Node) -> Result<Node> {
        self.0.parent_of(cx, dir)
    }

    fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        self.0.name_of(cx, dir, name)
    }

    fn step_up(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<(usize, Node)> {
        self.0.step_up(cx, dir, name)
    }

    #[inline]
    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        self.0.attr(cx, node)
    }

    #[inline]
    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        self.0.access(cx, node, want)
    }

    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.change_attr(cx, node, change)
    }

    fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.0.readlink(cx, node, out)
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let what = Renaming::Made(new.kind == Kind::Directory);
        self.change_name(cx, dir, name, what, || self.0.create(cx, dir, name, new))
    }

    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.change_served(cx, node, || {
            self.change_name(cx, dir, name, Renaming::Linked(node), || self.0.link(cx, node, dir, name))
        })
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.change_name(cx, dir, name, Renaming::Removed, || self.0.unlink(cx, dir, name))
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let remove = || self.0.rmdir(cx, dir, name);
        self.change_name(cx, dir, name, Renaming::Removed, || self.counted(cx, (dir, name), remove))
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        let what = if mode == RenameMode::Exchange { Renaming::Exchanged } else { Renaming::Moved };
        let rename = || self.0.rename(cx, from_dir, from, to_dir, to, mode);
        self.change_both(cx, (from_dir, from), (to_dir, to), what, || self.counted(cx, (to_dir, to), rename))
    }

    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.0.readdir(cx, dir, cookie, each)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }

    fn direct(&self) -> Option<&'static Fs> {
        Some(self.0)
    }

    fn is_called(&self, directory: Node, dir: Node, name: &[u8]) -> Option<bool> {
        self.0.is_called(directory, dir, name)
    }

    #[inline]
    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        self.0.read(cx, node, offset, into)
    }

    #[inline]
    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.change_data(cx, node, |(done, _)| *done != 0, || self.0.write(cx, node, offset, from))
    }

    fn write_stored(&self, cx: &Cx, node: Node, offset: u64, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.change_served(cx, node, || self.0.write_stored(cx, node, offset, from))
    }

    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        self.change_data(cx, to, |done| *done != 0, || self.0.copy_range(cx, from, from_offset, to, to_offset, len))
    }

    fn clone_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<()> {
        self.change_data(cx, to.0, |()| true, || self.0.clone_range(cx, from, to, len))
    }

    fn dedupe_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<Option<u64>> {
        self.0.dedupe_range(cx, from, to, len)
    }

    fn freeze(&self, cx: &Cx, node: Node, frozen: bool) -> Result<()> {
        self.change_served(cx, node, || self.0.freeze(cx, node, frozen))
    }

    fn is_frozen(&self, node: Node) -> Result<bool> {
        self.0.is_frozen(node)
    }

    fn run_at(&self, cx: &Cx, node: Node, at: u64) -> Result<Option<FileRun>> {
        self.0.run_at(cx, node, at)
    }

    fn has_several_names(&self, id: u64) -> bool {
        self.0.has_several_names(id)
    }

    fn expect_twin(&self, id: u64, far: Option<(Node, &[u8])>) {
        self.0.expect_twin(id, far);
    }

    fn twin(&self, cx: &Cx, source: (Node, Kind), dir: Node, name: &[u8], mode: Option<u16>) -> Result<Twin> {
        let what = Renaming::Made(source.1 == Kind::Directory);
        self.change_name(cx, dir, name, what, || self.0.twin(cx, source, dir, name, mode))
    }

    fn differs(&self, cx: &Cx, a: Node, b: Node, at: u64) -> Result<Option<(u64, u64)>> {
        self.0.differs(cx, a, b, at)
    }

    fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize> {
        self.change_data(cx, node, |done| *done != 0, || self.0.write_with(cx, node, offset, len, fill))
    }

    fn whole(&self) -> Option<&dyn Whole> {
        Some(self)
    }

    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.change_data(cx, node, |()| true, || self.0.fallocate(cx, node, how, offset, len))
    }

    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        self.0.seek(cx, node, offset, data)
    }

    fn sync(&self, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        self.0.sync(cx, node, data_only)
    }

    fn detach(&self, cx: &Cx) {
        self.0.detach(cx)
    }

    fn watch(&self, cx: &Cx, node: Node, path: &mut [u8]) -> Result<usize> {
        self.0.access(cx, node, R)?;
        self.0.watch(cx, node, path)
    }

    fn count_calls(&self, more: &Calls) {
        self.0.count_calls(more)
    }

    fn kernel_mount(&self) -> &dyn KernelMount {
        self
    }

    fn handover(&self) -> &dyn Handover {
        self
    }
}

impl OpenFileTable for Native {
    fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId> {
        let node = self.0.tmpfile(cx, dir, mode, flags)?;
        self.0.open(cx, node, flags, fd).inspect_err(|_| self.0.forget_tmpfile(cx, node))
    }

    fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.0.open(cx, node, flags, fd)
    }

    fn descriptions(&self) -> Table<OpenFile> {
        self.0.descriptions()
    }

    #[inline]
    fn description(&self, id: DescriptionId) -> &OpenFile {
        self.0.description(id)
    }

    fn dup(&self, id: DescriptionId, fd: u32) -> Result<()> {
        self.0.dup(id, fd)
    }

    fn close(&self, cx: &Cx, fd: u32) {
        self.0.close(cx, fd)
    }

    fn offset_lock(&self, cx: &Cx, id: DescriptionId) {
        self.0.offset_lock(cx, id)
    }

    fn offset_unlock(&self, cx: &Cx, id: DescriptionId) {
        self.0.offset_unlock(cx, id)
    }
}

impl Mappings for Native {
    fn is_mapped(&self, address: usize) -> bool {
        self.0.is_mapped(address)
    }

    fn map(&self, cx: &Cx, node: Node, offset: u64, len: u64, what: MapFor, each: &mut dyn FnMut(MapRange)) -> Result<()> {
        let base = self.0.base_address();
        let mut map = || {
            self.0.map(cx, node, offset, len, what, &mut |file, image, len| {
                each(MapRange { file, image, address: base + image as usize, len });
            })
        };
        match what {
            MapFor::Private | MapFor::Reading => map(),
            // Stores are told by nobody: from now on the kernel asks before it uses what it has of the file.
            MapFor::Writing | MapFor::Touching => self.change_served(cx, node, map),
        }
    }

    fn stored(&self, cx: &Cx, node: Node) -> Result<i64> {
        self.change_served(cx, node, || self.0.stored(cx, node))
    }

    fn backing(&self) -> Option<pm::file::File> {
        self.0.open_image()
    }

    fn zeros(&self) -> Option<(pm::file::File, u64)> {
        self.0.zeros()
    }
}

impl Xattrs for Native {
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.0.get_xattr(cx, node, name, out)
    }

    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.change(cx, node, |_| Some(Event::Attributes), || self.0.set_xattr(cx, node, name, value, flags))
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.0.list_xattr(cx, node, out)
    }

    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.change(cx, node, |_| Some(Event::Attributes), || self.0.remove_xattr(cx, node, name))
    }
}

impl AdvisoryLocks for Native {
    fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        self.0.advisory_lock(cx, node, lock)
    }

    fn lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        self.0.advisory_lock_waiting(cx, node, lock, since)
    }

    fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        self.0.conflicting_lock(cx, node, lock)
    }

    fn drop_process_locks(&self, cx: &Cx, node: Node) {
        self.0.drop_process_locks(cx, node)
    }
}

impl KernelMount for Native {
    fn by_number(&self, number: u64, generation: u32) -> Option<Node> {
        self.0.node_by_number(number, generation)
    }

    fn number_of(&self, node: Node) -> u64 {
        self.0.own_number(node.id)
    }

    fn kernel_keeps(&self, cx: &Cx, node: Node, names: bool) -> Option<bool> {
        self.0.kernel_keeps(cx, node, names).ok()
    }

    fn is_served(&self) -> bool {
        self.0.is_served()
    }

    fn kernel_knows_names(&self, cx: &Cx, dir: Node) -> bool {
        self.0.knows_names(cx, dir)
    }

    fn has_covered(&self) -> bool {
        self.0.has_covered()
    }

    fn is_covered(&self, node: Node) -> bool {
        self.0.is_covered(node.id)
    }

    fn cover(&self, cx: &Cx, node: Node) -> Result<()> {
        self.0.cover(cx, node)
    }

    fn mount_id(&self) -> u32 {
        self.0.mount_id()
    }

    fn count_stored(&self, begins: bool) {
        self.0.count_stored(begins)
    }

    fn count_executed(&self, cx: &Cx, node: Node, begins: bool) {
        self.0.count_executed(cx, node, begins)
    }

    fn is_executed(&self, node: Node) -> bool {
        self.0.any_executed() && self.0.is_executed(node)
    }

    fn may_be_stored(&self, cx: &Cx, node: Node) -> bool {
        self.0.may_be_stored(cx, node)
    }

    fn waits_as(&self, cx: &Cx) -> u32 {
        self.0.waits_as(cx)
    }

    fn call_off(&self, number: u32, over: bool) {
        if let Some(lane) = number.checked_sub(1) {
            self.0.call_off(lane, over);
        }
    }

    fn kept_waiting_by(&self, number: u32) -> Option<Holder> {
        self.0.kept_waiting_by(number.checked_sub(1)?)
    }

    fn is_user(&self, pid: u32) -> bool {
        self.0.users().any(|user| user == pid)
    }
}

impl Handover for Native {
    fn fork_prepare(&self, cx: &Cx) -> Result<u64> {
        self.0.fork_prepare(cx)
    }

    fn fork_child(&self, token: u64) {
        self.0.fork_child(token)
    }

    fn inherited(&self, cx: &Cx, fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        self.0.inherited(cx, fd, known)
    }

    fn fork_done(&self, token: u64, pid: u32) {
        self.0.fork_done(token, pid)
    }

    fn fork_failed(&self, cx: &Cx, token: u64) {
        self.0.fork_failed(cx, token)
    }

    fn spawns(&self) -> bool {
        true
    }

    fn spawn_exec(&self, token: u64) {
        self.0.spawn_exec(token)
    }

    fn spawn_undone(&self, token: u64) {
        self.0.spawn_undone(token)
    }

    fn spawn_failed(&self, cx: &Cx, token: u64) {
        self.0.spawn_failed(cx, token)
    }

    fn exec_prepare(&self) -> u64 {
        self.0.exec_prepare()
    }

    fn exec_failed(&self) {
        self.0.exec_failed()
    }

    fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        self.0.exec_claim(token, each)
    }
}
