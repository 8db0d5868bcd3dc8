//! The caching layer: file systems that are slow to ask, behind a cache that the
//! programs of a session share.
//!
//! [`Cached`] makes a [`Backend`] of any [`LowerFs`]. Names and attributes are kept
//! in the [`SessionCache`] for as long as the lower file system says, and forgotten at our own
//! changes, whichever program makes them; a look-up that overlapped with a change
//! is not kept. Holding descriptions, offsets and advisory locks is the session's;
//! a lower file system hears of them only when the last one goes. Where a lower file system allows it
//! ([`LowerFs::page_key`]), contents are kept too ([`session::pages`]).

mod below;
mod locks;
mod names;
mod parts;
mod rights;

pub use below::{Below, Leases};

pub use session::{KernelCall, KernelOpen, lacks};

use crate::backend::{Handover, KernelFiles};
use crate::*;
use base::stat::Stat;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use openfiles::{Handover as _, Processes};
use pm::{Text, UserSlice};
use session::{Ends, Fetch, Found, LowerFs, Miss, OpenFiles, Rule, SessionCache};

/// How often a program looks whether others have died.
const REAP_NS: u64 = 1_000_000_000;

/// A lower file system and what its users share.
pub struct Cached<S> {
    lower: S,
    session: SessionCache,
    reaped: AtomicU64,
}

const fn posix<T>(errno: Errno) -> Result<T> {
    Err(Error::Posix(errno))
}

impl<S: LowerFs> Cached<S> {
    /// Joins the two.
    pub fn new(lower: S, session: SessionCache) -> Self {
        Cached { lower, session, reaped: AtomicU64::new(0) }
    }

    /// What the users share.
    pub fn session(&self) -> &SessionCache {
        &self.session
    }

    /// The lower file system.
    pub fn lower(&self) -> &S {
        &self.lower
    }

    fn forget(&self) -> impl FnMut(u64, u64, u32) + '_ {
        |key, count, incarnation| self.lower.forget(&self.session, key, count, incarnation)
    }

    fn files(&self) -> OpenFiles<'_> {
        self.session.open_files(self)
    }

    /// Once in a while: what dead programs held goes back.
    pub fn reap(&self, cx: &Cx) {
        let now = pm::clock::monotonic() as u64;
        let last = self.reaped.load(Relaxed);
        if now.saturating_sub(last) >= REAP_NS && self.reaped.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            self.files().adopt_dead_processes(cx);
            self.session.bury(&mut self.forget());
            self.session.shrink_pages(now);
        }
    }

    /// A name of `dir` was made or went: its attributes are others.
    fn touched(&self, dir: Node) {
        self.session.changed();
        self.session.names_changed(dir);
    }

    fn remove(&self, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        self.must_be_there(cx, dir, name, directory)?;
        let asked = self.session.moment();
        self.lower.remove(&self.session, cx, dir, name, directory)?;
        self.session.names_changed(dir);
        if let Some(node) = self.session.removed(dir, name, asked, &mut self.forget())?
            && self.session.holds(node) == 0
        {
            self.lower.closed(&self.session, cx, node);
        }
        Ok(())
    }
}

impl<S: LowerFs> Ends for Cached<S> {
    fn ended(&self, cx: &Cx, id: DescriptionId) {
        let node = self.node_of(id);
        if self.session.has_lock_handles() {
            self.lower.end_locks(&self.session, cx, (node, id));
        }
        // Told before the slot can be another's.
        if !self.session.let_go_if_shared(id) {
            self.lower.closed(&self.session, cx, node);
        }
    }

    fn unlocks(&self, cx: &Cx, id: DescriptionId, process: u32) {
        self.unlock_of(cx, id, process);
    }
}

impl<S: LowerFs> Backend for Cached<S> {
    fn root(&self) -> Node {
        self.session.root()
    }

    fn device(&self) -> u64 {
        self.lower.device()
    }

    fn watch(&self, _cx: &Cx, node: Node, path: &mut [u8]) -> Result<usize> {
        self.lower.watch(&self.session, node, path)
    }

    fn unsynced(&self) -> Option<&[u8]> {
        self.lower.unsynced()
    }

    fn device_of(&self, node: Node) -> u64 {
        match self.session.get(node).map(|record| record.device()) {
            Ok(device) if device != 0 => device,
            _ => self.lower.device(),
        }
    }

    fn lookup_kind(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        let node = self.lookup(cx, dir, name)?;
        Ok((node, self.session.get(node)?.kind()))
    }

    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        if self.session.get(dir)?.kind() != Kind::Directory {
            return posix(Errno::ENOTDIR);
        }
        if self.lower.checks_search() {
            let attr = self.rights(cx, dir)?;
            if !cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, X) {
                return posix(Errno::EACCES);
            }
        }
        if name.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        match self.session.find(dir, name)? {
            Found::Node(node) => return Ok(node),
            Found::Absent => return posix(Errno::ENOENT),
            Found::Unknown => {}
        }
        let asked = self.session.moment();
        match self.lower.lookup(&self.session, cx, dir, name) {
            Ok(entry) => {
                let entered = self.session.enter(dir, name, &entry, asked, &mut self.forget());
                let node = entered.inspect_err(|_| self.lower.forget(&self.session, entry.key, 1, entry.incarnation))?;
                cx.thread.looked_up.set(Some((self.lower.device(), node.id)));
                Ok(node)
            }
            Err(Miss::Absent(ns)) => {
                self.session.enter_absent(dir, name, ns, asked, &mut self.forget())?;
                posix(Errno::ENOENT)
            }
            Err(Miss::Failed(error)) => Err(error),
        }
    }

    fn stat_fast(&self, who: &Caller, (base, path): (Node, Text), follow: bool, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        if !self.lower.is_remembered() {
            return Fast::Slow;
        }
        let rule = Rule { who: self.lower.checks_search().then_some(who), follow, device: self.lower.device() };
        self.session.stat_fast(base, path, &rule, out)
    }

    fn fstat_fast(&self, node: Node, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        if !self.lower.is_remembered() {
            return Fast::Slow;
        }
        self.session.stat_node_fast(node, self.lower.device(), out)
    }

    fn parent(&self, _cx: &Cx, dir: Node) -> Result<Node> {
        self.session.parent(dir)
    }

    fn name_of(&self, _cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        self.session.name(dir, name)
    }

    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        self.fresh_attr(cx, node)
    }

    fn attr_found(&self, cx: &Cx, node: Node) -> Result<Attr> {
        self.attr_of_walk(cx, node)
    }

    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        match self.removed_attr(node)? {
            Some(attr) => rights::may(cx, &attr, want),
            None => self.lower.access(&self.session, cx, node, want, &|| self.fresh_attr(cx, node)),
        }
    }

    fn permits(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        match self.removed_attr(node)? {
            Some(attr) => rights::may(cx, &attr, want),
            None => self.lower.permits(&self.session, cx, node, want, &|| self.rights(cx, node)),
        }
    }

    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        let result = self.lower.set_attr(&self.session, cx, node, change);
        self.session.forget_attr(node);
        if change.size.is_some() {
            self.session.contents_changed(node);
        }
        result
    }

    fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        if self.session.get(node)?.kind() != Kind::Symlink {
            return posix(Errno::EINVAL);
        }
        self.lower.readlink(&self.session, cx, node, out)
    }

    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        if name.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        self.must_be_free(cx, dir, name)?;
        self.make(cx, dir, name, new)
    }

    fn create_absent(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        if name.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        self.make(cx, dir, name, new)
    }

    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        if name.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        self.must_be_free(cx, dir, name)?;
        if !self.lower.checks_names() && self.session.get(node)?.kind() == Kind::Directory {
            self.access(cx, dir, W | X)?;
            return posix(Errno::EPERM);
        }
        let result = self.lower.link(&self.session, cx, node, dir, name);
        self.session.forget_attr(node);
        self.session.doubt(dir, name);
        self.session.names_changed(dir);
        result
    }

    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.remove(cx, dir, name, false)
    }

    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.remove(cx, dir, name, true)
    }

    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        if to.len() > 255 {
            return posix(Errno::ENAMETOOLONG);
        }
        if !self.may_rename(cx, (from_dir, from), (to_dir, to), mode)? {
            return Ok(());
        }
        let asked = self.session.moment();
        self.lower.rename(&self.session, cx, (from_dir, from), (to_dir, to), mode)?;
        self.session.names_changed(from_dir);
        self.session.names_changed(to_dir);
        let exchange = mode == RenameMode::Exchange;
        self.session.moved((from_dir, from), (to_dir, to), exchange, asked, &mut self.forget())
    }

    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        if self.session.get(dir)?.removed.load(Relaxed) != 0 {
            return posix(Errno::ENOENT);
        }
        self.lower.readdir(&self.session, cx, dir, cookie, each)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.lower.statfs(&self.session)
    }

    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        if let [part] = into
            && part.len != 0
            && !self.lower.is_remembered()
        {
            return self.read_one(cx, node, offset, *part);
        }
        let mut done = 0;
        let file = if self.session.has_pages() { self.lower.page_key(&self.session, node) } else { None };
        let mut fetch = Asks { cached: self, cx, node };
        for &part in into.iter().filter(|part| part.len > 0) {
            let at = offset.saturating_add(done as u64);
            let result = match file {
                Some(file) => self.session.read_pages(node, file, at, part, &mut fetch),
                None => fetch.read(at, part),
            };
            match result {
                Ok(count) => {
                    done += count.min(part.len);
                    if count < part.len {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn is_direct(&self) -> bool {
        true
    }

    #[inline]
    fn read_one(&self, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        if self.lower.is_remembered() {
            return self.read(cx, node, offset, &[into]);
        }
        Ok(self.lower.read(&self.session, cx, node, offset, into)?.min(into.len))
    }

    #[inline]
    fn write_one(&self, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        if self.lower.is_remembered() {
            return self.write(cx, node, Some(offset), &[from]).map(|(done, _)| done);
        }
        Ok(self.lower.write(&self.session, cx, node, offset, from)?.min(from.len))
    }

    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        let write = |offset, part| self.lower.write(&self.session, cx, node, offset, part);
        let append = |offset, part| self.lower.append(&self.session, cx, node, offset, part);
        let Some(offset) = offset else {
            return self.session.alone(node, || {
                let (attr, _) = self.lower.attr(&self.session, cx, node)?;
                self.write_at(cx, node, attr.size, from, &append)
            });
        };
        self.write_at(cx, node, offset, from, &write)
    }

    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64> {
        let result = self.lower.copy_range(&self.session, cx, (from, from_offset), (to, to_offset), len);
        if !matches!(result, Err(Error::Posix(Errno::EXDEV))) {
            self.session.forget_attr(to);
            self.session.contents_changed(to);
        }
        result
    }

    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let result = self.lower.fallocate(&self.session, cx, node, how, offset, len);
        self.session.forget_attr(node);
        self.session.contents_changed(node);
        result
    }

    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        let size = self.fresh_attr(cx, node)?.size;
        if offset >= size {
            return posix(Errno::ENXIO);
        }
        let told = self.lower.seek(&self.session, cx, node, offset, data)?;
        Ok(told.unwrap_or(if data { offset } else { size }))
    }

    fn sync(&self, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        self.lower.sync(&self.session, cx, node, data_only)
    }

    fn detach(&self, cx: &Cx) {
        self.lower.settle_all();
        self.files().leave_table(cx)
    }

    fn kernel_files(&self) -> &dyn KernelFiles {
        self
    }

    fn handover(&self) -> &dyn Handover {
        self
    }
}

impl<S: LowerFs> KernelFiles for Cached<S> {
    fn is_kernels(&self) -> bool {
        self.lower.is_kernels()
    }

    fn open_in_kernel(&self, spot: &KernelOpen, make: &mut KernelCall) -> Option<Result<usize>> {
        let result = self.lower.open_in_kernel(&self.session, spot, make)?;
        if spot.node.is_none() && result.is_ok() {
            self.touched(spot.dir);
        }
        Some(result)
    }

    fn handle_below(&self, base: Node, path: &[u8], follow: bool) -> Option<Result<pm::file::File>> {
        self.lower.handle_below(&self.session, base, path, follow)
    }

    fn directory_below(&self, base: Node, path: &[u8]) -> Option<Result<(pm::file::File, Node, Node)>> {
        let (dir, name) = self.last_known_parent(base, path)?;
        let asked = self.session.moment();
        match self.lower.directory_below(&self.session, base, path)? {
            Ok((handle, entry)) => {
                let node = self.session.enter(dir, name, &entry, asked, &mut self.forget());
                Some(node.map(|node| (handle, dir, node)))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn open_below(&self, base: Node, path: &[u8], flags: u32, mode: u16, make: &mut KernelCall) -> Option<Result<usize>> {
        self.lower.open_below(&self.session, base, path, flags, mode, make)
    }
}

impl<S: LowerFs> Handover for Cached<S> {
    fn fork_prepare(&self, cx: &Cx) -> Result<u64> {
        // Without anything open there is nothing to hand over.
        if self.files().has_slot() { self.files().fork_prepare(cx) } else { Ok(0) }
    }

    fn fork_child(&self, token: u64) {
        self.files().fork_child(token)
    }

    fn inherited(&self, cx: &Cx, fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        self.files().inherited(cx, fd, known)
    }

    fn fork_done(&self, token: u64, pid: u32) {
        self.files().fork_done(token, pid)
    }

    fn fork_failed(&self, cx: &Cx, token: u64) {
        self.files().fork_failed(cx, token)
    }

    fn spawns(&self) -> bool {
        true
    }

    fn spawn_exec(&self, token: u64) {
        self.files().spawn_exec(token)
    }

    fn spawn_undone(&self, token: u64) {
        self.files().spawn_undone(token)
    }

    fn spawn_failed(&self, cx: &Cx, token: u64) {
        self.files().spawn_failed(cx, token)
    }

    fn exec_prepare(&self) -> u64 {
        self.lower.settle_all();
        self.files().exec_prepare()
    }

    fn exec_failed(&self) {
        self.files().exec_failed()
    }

    fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        self.files().exec_claim(token, each)
    }
}

/// A file's lower file system, for the page cache.
struct Asks<'a, S> {
    cached: &'a Cached<S>,
    cx: &'a Cx<'a>,
    node: Node,
}

impl<S: LowerFs> Fetch for Asks<'_, S> {
    fn read(&mut self, offset: u64, into: UserSlice) -> Result<usize> {
        self.cached.lower.read(&self.cached.session, self.cx, self.node, offset, into)
    }

    fn read_ahead(&mut self, offset: u64) {
        self.cached.lower.read_ahead(&self.cached.session, self.cx, self.node, offset);
    }
}

impl<S: LowerFs> Cached<S> {
    /// The directory of a plain path's last name, by the names on the way as they were last seen; who opens the path
    /// sees whether they are still there.
    fn last_known_parent<'a>(&self, base: Node, path: &'a [u8]) -> Option<(Node, &'a [u8])> {
        let mut parts = path.split(|&byte| byte == b'/');
        let name = parts.next_back()?;
        let known = |dir: Node, part: &[u8]| {
            let node = self.session.last_known(dir, part)?;
            (self.session.get(node).ok()?.kind() == Kind::Directory).then_some(node)
        };
        Some((parts.try_fold(base, known)?, name))
    }

    /// Makes a node whose name is free, as far as we know.
    fn make(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        let mut asked = self.session.moment();
        let result = self.lower.create(&self.session, cx, dir, name, new);
        // Another program may have found it already: then its node is this one.
        let own_change = self.session.doubt(dir, name);
        self.session.forget_attr(dir);
        if own_change == asked.names + 1 {
            // Nobody else changed names meanwhile.
            asked.names = own_change;
        }
        let entry = result?;
        match self.session.enter(dir, name, &entry, asked, &mut self.forget()) {
            Ok(node) => {
                if let Some(handle) = entry.handle
                    && !self.session.put_handles(node, 7, handle, entry.incarnation, entry.caching)?
                {
                    // Another program has it open already.
                    self.lower.release(&self.session, cx, entry.key, handle, entry.incarnation);
                }
                Ok(node)
            }
            Err(error) => {
                if let Some(handle) = entry.handle {
                    self.lower.release(&self.session, cx, entry.key, handle, entry.incarnation);
                }
                self.lower.forget(&self.session, entry.key, 1, entry.incarnation);
                Err(error)
            }
        }
    }

    fn flush_of(&self, cx: &Cx, id: DescriptionId) -> Result<()> {
        let description = self.session.description(id);
        if description.kind.load(Relaxed) == Kind::Regular as u32 {
            let node = self.node_of(id);
            return self.lower.flush(&self.session, cx, node);
        }
        Ok(())
    }

    fn write_at(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        from: &[UserSlice],
        put: &dyn Fn(u64, UserSlice) -> Result<usize>,
    ) -> Result<(usize, u64)> {
        if let [part] = from
            && part.len != 0
            && !self.lower.is_remembered()
        {
            return self.write_one(cx, node, offset, *part).map(|done| (done, offset + done as u64));
        }
        let (mut done, mut failure) = (0, None);
        for &part in from.iter().filter(|part| part.len > 0) {
            let write = |part| put(offset.saturating_add(done as u64), part);
            let written = match write(part) {
                // It ends before it says.
                Err(Error::Posix(Errno::EFAULT)) if part.readable() > 0 => write(part.part(0, part.readable())),
                written => written,
            };
            match written {
                Ok(count) => {
                    done += count.min(part.len);
                    if count < part.len {
                        break;
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if self.lower.is_remembered() {
            self.session.forget_attr(node);
            // Also what failed may have been written.
            self.session.written(node, offset, UserSlice::total(from) as u64);
        }
        if let Some(error) = failure.filter(|_| done == 0) {
            return Err(error);
        }
        Ok((done, offset + done as u64))
    }
}
