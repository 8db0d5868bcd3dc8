//! The plain reference model: a file system in ordinary collections behind one lock.
//!
//! Clarity before speed: it is the second opinion in differential tests and the
//! file system of tests that need no image. Private to its process.
//!
//! Invariants: a node is in `nodes` while it has a name or a holder; `nlink` of
//! a directory is 2 + its subdirectories; a directory entry's cookie never
//! changes and is never reused within that directory.

mod data;
mod locks;
mod names;
mod node;
mod xattr;

use crate::backend::{AdvisoryLocks, Handover, Mappings, OpenFileTable, Xattrs};
use crate::*;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use node::{Body, Inode};
use pm::UserSlice;

/// How many descriptions one file system can have.
const DESCRIPTIONS: usize = 32768;
const ROOT: u64 = 1;

/// A file system in memory.
pub struct Mem {
    device: u64,
    state: spin::Mutex<State>,
    descriptions: Box<[OpenFile]>,
}

/// What the lock guards.
struct State {
    nodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Descriptor → description.
    fds: BTreeMap<u32, DescriptionId>,
    free: Vec<DescriptionId>,
    locks: BTreeMap<u64, Vec<Lock>>,
}

const fn posix<T>(errno: Errno) -> Result<T> {
    Err(Error::Posix(errno))
}

impl State {
    fn get(&self, node: Node) -> Result<&Inode> {
        self.nodes.get(&node.id).ok_or(Error::Posix(Errno::ESTALE))
    }

    fn get_mut(&mut self, node: Node) -> Result<&mut Inode> {
        self.nodes.get_mut(&node.id).ok_or(Error::Posix(Errno::ESTALE))
    }

    /// Forgets a node that has neither name nor holder.
    fn release(&mut self, id: u64) {
        if self.nodes.get(&id).is_some_and(|n| n.opens == 0 && n.nlink == 0) {
            self.nodes.remove(&id);
            self.locks.remove(&id);
        }
    }
}

impl Mem {
    /// An empty file system whose root belongs to `uid`, `gid` with permission bits `mode`.
    pub fn new(uid: u32, gid: u32, mode: u16) -> Self {
        let mut nodes = BTreeMap::new();
        let body = Body::directory(ROOT);
        nodes.insert(ROOT, Inode::new(Kind::Directory, mode, uid, gid, 0, body));
        Mem {
            device: 0x6d65,
            state: spin::Mutex::new(State {
                nodes,
                next: ROOT + 1,
                fds: BTreeMap::new(),
                free: (0..DESCRIPTIONS as u32).rev().collect(),
                locks: BTreeMap::new(),
            }),
            descriptions: (0..DESCRIPTIONS).map(|_| OpenFile::new()).collect(),
        }
    }

    /// One that lives for ever, as a mount table wants it; `device` is its `st_dev`.
    pub fn leak(uid: u32, gid: u32, mode: u16, device: u64) -> &'static Mem {
        let mut mem = Mem::new(uid, gid, mode);
        mem.device = device;
        Box::leak(Box::new(mem))
    }

    fn open_locked(&self, state: &mut State, node: u64, flags: u32, fd: u32) -> Result<DescriptionId> {
        let inode = state.get_mut(node::node(node))?;
        let kind = inode.kind;
        let Some(id) = state.free.pop() else { return posix(Errno::ENFILE) };
        state.nodes.entry(node).and_modify(|n| n.opens += 1);
        let description = &self.descriptions[id as usize];
        description.refs.store(1, Relaxed);
        description.flags.store(flags, Relaxed);
        description.offset.store(0, Relaxed);
        description.node.store(node, Relaxed);
        description.kind.store(kind as u32, Relaxed);
        description.generation.fetch_add(1, Relaxed);
        state.fds.insert(fd, id);
        Ok(id)
    }
}

impl Backend for Mem {
    fn root(&self) -> Node {
        node::node(ROOT)
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        let state = self.state.lock();
        state.get(dir)?.may(cx, X)?;
        state.child(dir, name)?.map(node::node).ok_or(Error::Posix(Errno::ENOENT))
    }

    fn parent(&self, _cx: &Cx, dir: Node) -> Result<Node> {
        Ok(node::node(self.state.lock().get(dir)?.dir()?.parent))
    }

    fn name_of(&self, _cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        let state = self.state.lock();
        let inode = state.get(dir)?;
        if dir.id == ROOT || inode.nlink == 0 {
            return posix(Errno::ENOENT);
        }
        let parent = state.get(node::node(inode.dir()?.parent))?.dir()?;
        let entry = parent.entries.iter().find(|(_, e)| e.node == dir.id);
        let (text, _) = entry.ok_or(Error::Posix(Errno::ENOENT))?;
        name[..text.len()].copy_from_slice(text);
        Ok(text.len())
    }

    fn attr(&self, _cx: &Cx, node: Node) -> Result<Attr> {
        Ok(self.state.lock().get(node)?.attr(node.id))
    }

    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        self.state.lock().get(node)?.may(cx, want)
    }

    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.state.lock().get_mut(node)?.set_attr(cx, change)
    }

    fn readlink(&self, _cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let state = self.state.lock();
        let Body::Symlink(target) = &state.get(node)?.body else { return posix(Errno::EINVAL) };
        let len = target.len().min(out.len);
        data::copy_out(&target[..len], out.ptr)?;
        Ok(len)
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        self.state.lock().create(cx, dir, name, new)
    }

    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.state.lock().link(cx, node, dir, name)
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.state.lock().remove(cx, dir, name, false)
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.state.lock().remove(cx, dir, name, true)
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        self.state.lock().rename(cx, (from_dir, from), (to_dir, to), mode)
    }

    fn readdir(&self, _cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let state = self.state.lock();
        let inode = state.get(dir)?;
        let body = inode.dir()?;
        if inode.nlink == 0 {
            return posix(Errno::ENOENT);
        }
        let dots = [(0u64, &b"."[..], dir.id), (1, b"..", body.parent)];
        for (at, name, ino) in dots.into_iter().filter(|d| d.0 >= cookie) {
            if !each(DirEntry { name, ino, kind: Kind::Directory, next: at + 1, id: 0 }) {
                return Ok(());
            }
        }
        for (&at, name) in body.order.range(cookie.max(2)..) {
            let ino = body.entries[name].node;
            let kind = state.get(node::node(ino))?.kind;
            if !each(DirEntry { name, ino, kind, next: at + 1, id: 0 }) {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let used = self.state.lock().nodes.len() as u64;
        Ok(StatFs {
            magic: 0x0102_1994,
            block_bytes: 4096,
            blocks: 1 << 20,
            blocks_free: 1 << 19,
            files: 1 << 20,
            files_free: (1u64 << 20).saturating_sub(used),
            id: self.device,
            name_max: 255,
            read_only: false,
        })
    }

    fn read(&self, _cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        self.state.lock().get(node)?.read(offset, into)
    }

    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.state.lock().get_mut(node)?.write(cx, offset, from)
    }

    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let mut buffer = Vec::new();
        let size = state.get(from)?.file()?.size;
        buffer.resize(len.min(size.saturating_sub(from_offset)) as usize, 0);
        state.get(from)?.read(from_offset, &[UserSlice::from_mut(&mut buffer)])?;
        let (done, _) = state.get_mut(to)?.write(cx, Some(to_offset), &[UserSlice::from_ref(&buffer)])?;
        Ok(done as u64)
    }

    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.state.lock().get_mut(node)?.fallocate(cx, how, offset, len)
    }

    fn seek(&self, _cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        self.state.lock().get(node)?.file()?.seek(offset, data)
    }

    fn sync(&self, _cx: &Cx, _node: Option<Node>, _data_only: bool) -> Result<()> {
        Ok(())
    }

    // A single process: a forked child gets a copy of everything with its memory.
    fn detach(&self, _cx: &Cx) {}

    fn handover(&self) -> &dyn Handover {
        self
    }
}

impl OpenFileTable for Mem {
    fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId> {
        let mut state = self.state.lock();
        let exclusive = flags & pm::sys::abi::O_EXCL != 0;
        let id = state.make_unnamed(cx, dir, mode, !exclusive)?;
        self.open_locked(&mut state, id, flags, fd)
    }

    fn open(&self, _cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.open_locked(&mut self.state.lock(), node.id, flags, fd)
    }

    fn description(&self, id: DescriptionId) -> &OpenFile {
        &self.descriptions[id as usize % DESCRIPTIONS]
    }

    fn dup(&self, id: DescriptionId, fd: u32) -> Result<()> {
        let mut state = self.state.lock();
        self.descriptions[id as usize].refs.fetch_add(1, Relaxed);
        state.fds.insert(fd, id);
        Ok(())
    }

    fn close(&self, _cx: &Cx, fd: u32) {
        let mut state = self.state.lock();
        let Some(id) = state.fds.remove(&fd) else { return };
        let description = &self.descriptions[id as usize];
        if description.refs.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        let node = description.node.load(Relaxed);
        state.drop_locks(node, |owner| matches!(owner, LockOwner::Description(d) | LockOwner::Flock(d) if d == id));
        state.free.push(id);
        state.nodes.entry(node).and_modify(|n| n.opens -= 1);
        state.release(node);
    }

    fn offset_lock(&self, _cx: &Cx, id: DescriptionId) {
        let owner = &self.descriptions[id as usize].offset_owner;
        while owner.compare_exchange(0, 1, core::sync::atomic::Ordering::Acquire, Relaxed).is_err() {
            core::hint::spin_loop();
        }
    }

    fn offset_unlock(&self, _cx: &Cx, id: DescriptionId) {
        self.descriptions[id as usize].offset_owner.store(0, core::sync::atomic::Ordering::Release);
    }
}

impl Mappings for Mem {
    fn map(&self, _: &Cx, _: Node, _: u64, _: u64, _: MapFor, _: &mut dyn FnMut(MapRange)) -> Result<()> {
        // Its pages are heap memory; a private mapping is made by copying.
        posix(Errno::ENODEV)
    }

    fn backing(&self) -> Option<pm::file::File> {
        None
    }
}

impl Xattrs for Mem {
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.state.lock().get(node)?.get_xattr(cx, name, out)
    }

    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.state.lock().get_mut(node)?.set_xattr(cx, name, value, flags)
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.state.lock().get(node)?.list_xattr(cx, out)
    }

    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.state.lock().get_mut(node)?.remove_xattr(cx, name)
    }
}

impl AdvisoryLocks for Mem {
    fn lock(&self, _cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        self.state.lock().lock(node.id, lock)
    }

    fn conflicting_lock(&self, _cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        Ok(self.state.lock().conflict(node.id, lock))
    }

    fn drop_process_locks(&self, _cx: &Cx, node: Node) {
        self.state.lock().drop_locks(node.id, |owner| owner == LockOwner::Process);
    }
}

impl Handover for Mem {
    fn fork_prepare(&self, _cx: &Cx) -> Result<u64> {
        Ok(1)
    }

    fn fork_child(&self, _token: u64) {}

    fn fork_failed(&self, _cx: &Cx, _token: u64) {}

    fn exec_prepare(&self) -> u64 {
        0
    }

    fn exec_failed(&self) {}

    fn exec_claim(&self, _token: u64, _each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        Ok(())
    }
}
