//! What is open. A handle of the kernel's is a descriptor number of this
//! process in the segment, so that what is open here counts there, and goes
//! when this process does.

use super::Call;
use super::abi::{self, CreateIn, FlushIn, IoctlIn, IoctlOut, OpenIn, OpenOut, ReleaseIn};
use super::contents::{Opening, Sent};
use super::message::{Body, Reply, Result, err};
use super::rights::{DAC_OVERRIDE, Rights};
use base::{Attr, Cred, Cx, DescriptionId, Kind, NewNode, Node, SetAttr};
use openfiles::{EACH_READ, EXECUTE, SHARE};
use pm::Errno;
use pm::sys::abi as sys;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Handles there can be: the numbers of one process in the segment.
const HANDLES: u32 = 20_480;

/// How often `CREATE` looks again; then the kernel does.
const TRIES_MAX: u32 = 8;

/// Numbers of what is open.
#[derive(Debug)]
pub(super) struct Handles {
    free: Mutex<Vec<u32>>,
    /// Open file + 1 behind each, and [`MARKS`].
    descriptions: Vec<AtomicU32>,
}

/// The description is one of the direct path too: its offset follows the kernel's.
const SHARED: u32 = 1 << 31;
/// What is read through the handle comes from the kernel's pages.
const CACHED: u32 = 1 << 30;
/// It can be written through the handle.
const WRITES: u32 = 1 << 29;
const MARKS: u32 = SHARED | CACHED | WRITES;

impl Handles {
    pub(super) fn new() -> Handles {
        Handles {
            // The lowest is taken first.
            free: Mutex::new((0..HANDLES).rev().collect()),
            descriptions: (0..HANDLES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes a handle for what `open` opens under the number it is given.
    pub(super) fn open(&self, open: impl FnOnce(u32) -> Result<DescriptionId>) -> Result<u64> {
        let number = self.free().pop().ok_or(Errno::ENFILE)?;
        match open(number) {
            Ok(id) => {
                self.descriptions[number as usize].store(id + 1, Relaxed);
                Ok(u64::from(number))
            }
            Err(error) => {
                self.free().push(number);
                Err(error)
            }
        }
    }

    /// The description behind a handle. `EBADF` if there is none.
    pub(super) fn description(&self, handle: u64) -> Result<DescriptionId> {
        let entry = usize::try_from(handle).ok().and_then(|handle| self.descriptions.get(handle)).ok_or(Errno::EBADF)?;
        Ok((entry.load(Relaxed) & !MARKS).checked_sub(1).ok_or(Errno::EBADF)?)
    }

    /// The description behind a handle, if it is shared.
    fn shared(&self, handle: u64) -> Option<DescriptionId> {
        let entry = self.descriptions.get(usize::try_from(handle).ok()?)?.load(Relaxed);
        if entry & SHARED == 0 { None } else { (entry & !MARKS).checked_sub(1) }
    }

    /// Notes that a handle's description is now this one, which is shared.
    fn share(&self, handle: u64, id: DescriptionId) {
        if let Some(entry) = usize::try_from(handle).ok().and_then(|handle| self.descriptions.get(handle)) {
            entry.store((id + 1) | SHARED | entry.load(Relaxed) & (CACHED | WRITES), Relaxed);
        }
    }

    /// Notes how the file behind a handle is opened.
    fn note(&self, handle: u64, opening: Opening) {
        let marks = if opening.cached { CACHED } else { 0 } | if opening.writes { WRITES } else { 0 };
        if let Some(entry) = usize::try_from(handle).ok().and_then(|handle| self.descriptions.get(handle)) {
            entry.fetch_or(marks, Relaxed);
        }
    }

    /// Ends a handle; `close` closes its number. How the file was opened.
    pub(super) fn close(&self, handle: u64, close: impl FnOnce(u32)) -> Result<Opening> {
        let entry = usize::try_from(handle).ok().and_then(|handle| self.descriptions.get(handle)).ok_or(Errno::EBADF)?;
        let before = entry.swap(0, Relaxed);
        if before == 0 {
            return err(Errno::EBADF);
        }
        close(handle as u32);
        self.free().push(handle as u32);
        Ok(Opening { cached: before & CACHED != 0, writes: before & WRITES != 0 })
    }
}

impl Call<'_> {
    /// Opens a node for the kernel.
    fn handle(&self, node: Node, flags: u32) -> Result<OpenOut> {
        let handle = self.fuse.handles.open(|number| self.backend().open(&self.cx, node, flags, number))?;
        Ok(self.open_out(handle))
    }

    fn open_out(&self, handle: u64) -> OpenOut {
        OpenOut { handle, flags: if self.fuse.direct() { abi::OPEN_DIRECT_IO } else { 0 }, backing: 0 }
    }

    pub(super) fn open(&self, mut body: Body, reply: &mut Reply) -> Result<Sent> {
        let asked: OpenIn = body.take()?;
        let node = self.node();
        let mut out = self.handle(node, asked.flags)?;
        // Whether the file is being executed, the kernel asks before only if it opens for writing
        // as well. Else it knows better: that a program has ended, the server is told late.
        let asks = asked.flags & sys::O_ACCMODE == sys::O_RDONLY;
        if asked.flags & sys::O_TRUNC != 0
            && let Err(error) = self.truncate_open(node, asks, asked.open_flags)
        {
            self.close(node, out.handle)?;
            return Err(error);
        }
        if asked.flags & EXECUTE != 0 {
            self.backend().kernel_mount().count_executed(&self.cx, self.node(), true);
        }
        let sent = self.use_contents(node, asked.flags, &mut out);
        reply.put(&out);
        Ok(sent)
    }

    /// Has the kernel keep what is read through a handle, if it may.
    fn use_contents(&self, node: Node, flags: u32, out: &mut OpenOut) -> Sent {
        let (opening, sent) = self.count_open(node, flags);
        self.fuse.handles.note(out.handle, opening);
        if opening.cached {
            out.flags = abi::OPEN_KEEP_CACHE;
        }
        sent
    }

    /// `O_TRUNC`. Executed files stay as they are if this `asks` for them.
    fn truncate_open(&self, node: Node, asks: bool, open_flags: u32) -> Result<()> {
        if asks && self.backend().kernel_mount().is_executed(node) {
            return err(Errno::ETXTBSY);
        }
        let keeps = open_flags & abi::OPEN_KILL_SET_ID == 0;
        let change = SetAttr { size: Some(0), size_checked: true, checked: true, ..SetAttr::default() };
        self.change_contents(node, Some(keeps), |cx| self.backend().set_attr(cx, node, &change))
    }

    pub(super) fn open_directory(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: OpenIn = body.take()?;
        let handle = self.fuse.handles.open(|number| self.backend().open(&self.cx, self.node(), asked.flags, number))?;
        let flags = match self.fuse.keeps_listed.load(Relaxed) {
            true if self.fuse.listings.is_fresh(self.header.node) => abi::OPEN_CACHE_DIR | abi::OPEN_KEEP_CACHE,
            true => abi::OPEN_CACHE_DIR,
            false => 0,
        };
        reply.put(&OpenOut { handle, flags, backing: 0 });
        Ok(())
    }

    /// The kernel has found no such name, or had none cached. It may be there by now.
    pub(super) fn create(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: CreateIn = body.take()?;
        let name = body.text()?;
        let dir = self.node();
        let entry_s = self.keep_names(dir);
        let new = NewNode { kind: Kind::Regular, mode: asked.mode as u16 & 0o7777, rdev: 0, target: b"" };
        let mut tries = 0;
        let opened = loop {
            // Somebody may make and remove the name in turns; and what is there may not be ours to open.
            tries += 1;
            if tries > TRIES_MAX {
                return err(Errno::ESTALE);
            }
            let (node, out, is_new) = match self.backend().create(&self.cx, dir, name, &new) {
                Ok(node) => (node, self.handle(node, asked.flags), true),
                Err(error) if error.errno() != Errno::EEXIST || asked.flags & sys::O_EXCL != 0 => return Err(error),
                Err(_) => match self.backend().lookup(&self.cx, dir, name) {
                    Ok(node) => (node, self.open_existing(node, &asked), false),
                    // Removed again.
                    Err(error) if error.errno() == Errno::ENOENT => continue,
                    Err(error) => return Err(error),
                },
            };
            let told = out.and_then(|mut out| {
                // The kernel holds the directory, which who sends answers in turn may be waiting for: it looks again,
                // and opens the file by itself.
                match self.use_contents(node, asked.flags | EACH_READ, &mut out) {
                    Sent::Now => Ok(out),
                    _ => self.close(node, out.handle).and(err(Errno::ESTALE)),
                }
            });
            let told = told.and_then(|out| match if is_new { self.made(node, entry_s) } else { self.entry(node, entry_s) } {
                Ok(entry) => Ok((entry, out)),
                Err(error) => {
                    self.close(node, out.handle)?;
                    Err(error)
                }
            });
            match told {
                Err(error) if error.errno() == Errno::ESTALE => continue,
                result => break result?,
            }
        };
        reply.put(&opened.0);
        reply.put(&opened.1);
        Ok(())
    }

    /// Opens what somebody else made between the kernel's look and its request;
    /// so nobody has asked yet whether the caller may.
    fn open_existing(&self, node: Node, asked: &CreateIn) -> Result<OpenOut> {
        let attr: Attr = self.backend().attr(&self.cx, node)?;
        match attr.kind {
            Kind::Regular => {}
            Kind::Directory => return err(Errno::EISDIR),
            // The kernel opens these itself, once it knows of them.
            _ => return err(Errno::ESTALE),
        }
        let want = match asked.flags & sys::O_ACCMODE {
            sys::O_RDONLY => base::R,
            sys::O_WRONLY => base::W,
            _ => base::R | base::W,
        };
        let rights = Rights::of(self.header);
        let cred = Cred { groups: &rights.groups, privileged: rights.has(DAC_OVERRIDE), ..self.cx.cred };
        let truncates = asked.flags & sys::O_TRUNC != 0;
        self.backend().access(&Cx { cred, ..self.cx }, node, if truncates { want | base::W } else { want })?;
        let out = self.handle(node, asked.flags)?;
        if truncates && let Err(error) = self.truncate_open(node, true, asked.open_flags) {
            self.close(node, out.handle)?;
            return Err(error);
        }
        Ok(out)
    }

    pub(super) fn tmpfile(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: CreateIn = body.take()?;
        let mode = asked.mode as u16 & 0o7777;
        let mut id = 0;
        let handle = self.fuse.handles.open(|number| {
            id = self.backend().tmpfile(&self.cx, self.node(), mode, asked.flags, number)?;
            Ok(id)
        })?;
        let description = self.backend().description(id);
        let node = Node { id: description.node.load(Relaxed), hint: description.hint.load(Relaxed) };
        match self.entry(node, 0) {
            Ok(entry) => reply.put(&entry),
            Err(error) => {
                self.close(node, handle)?;
                return Err(error);
            }
        }
        let mut out = self.open_out(handle);
        self.use_contents(node, asked.flags, &mut out);
        reply.put(&out);
        Ok(())
    }

    /// [`SHARE`]: a descriptor of the direct path has become this one of the
    /// kernel's, in a program that was started by one with the library. For those
    /// who could have made the descriptor on the direct path. `EINVAL` if the two
    /// are not of one file.
    pub(super) fn ioctl(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: IoctlIn = body.take()?;
        if asked.command != SHARE {
            return err(Errno::ENOTTY);
        }
        let id: DescriptionId = body.take()?;
        self.fuse.handles.description(asked.handle)?;
        if !self.is_keeper() {
            return err(Errno::EACCES);
        }
        // Held first, so that it stays what it is while it is looked at.
        let held = self.fuse.handles.open(|number| self.backend().dup(id, number).map(|()| id))?;
        let shared = if self.backend().description(id).node.load(Relaxed) == self.node().id {
            self.backend().dup(id, asked.handle as u32)
        } else {
            err(Errno::EINVAL)
        };
        if shared.is_ok() {
            self.fuse.handles.share(asked.handle, id);
        }
        self.close(self.node(), held)?;
        shared?;
        reply.put(&IoctlOut::default());
        Ok(())
    }

    /// The kernel's position in what `handle` stands for is `offset` now.
    pub(super) fn moved(&self, handle: u64, offset: u64) {
        if let Some(id) = self.fuse.handles.shared(handle) {
            self.backend().description(id).offset.store(offset, Relaxed);
        }
    }

    /// A descriptor is closed, perhaps not the last one on the handle: the
    /// caller's record locks on the file go.
    pub(super) fn flush(&self, mut body: Body) -> Result<()> {
        let asked: FlushIn = body.take()?;
        self.drop_owner_of(asked.handle, asked.lock_owner);
        Ok(())
    }

    pub(super) fn release(&self, mut body: Body) -> Result<()> {
        let asked: ReleaseIn = body.take()?;
        self.drop_owners_of(asked.handle);
        self.close(self.node(), asked.handle)?;
        if asked.flags & EXECUTE != 0 {
            self.backend().kernel_mount().count_executed(&self.cx, self.node(), false);
        }
        Ok(())
    }

    fn close(&self, node: Node, handle: u64) -> Result<()> {
        let opening = self.fuse.handles.close(handle, |number| self.backend().close(&self.cx, number))?;
        let number = self.fuse.number(node);
        if self.fuse.contents.close(number, opening) && self.fuse.stores.forget(number) {
            self.backend().kernel_mount().count_stored(false);
        }
        Ok(())
    }
}
