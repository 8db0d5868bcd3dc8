//! From the kernel's object that stands behind a FIFO, socket or device back to what it stands for.
//!
//! Beside each lies a symlink, with [`NAMED`] at its end, that leads to the name under which it was opened or bound: what
//! `/proc/self/fd/N` and `getsockname` show.

use super::Text;
use crate::handle::cwd::{put_before, put_directory_before};
use crate::path::{CWD, Spot};
use crate::text;
use crate::{Process, ThreadState};
use base::{Attr, Cx, Kind, Node, PATH_MAX};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use vfs::Mount;

/// End of the name of the symlink beside an object.
const NAMED: &[u8] = b".at";
/// How the names of the directories begin in which the objects lie.
const DIRECTORY: &[u8] = b"/bypath-";

impl Process {
    /// Whether the kernel serves what lies in a mount itself, through its own mount at the same path.
    pub(in crate::handle) fn is_kernels_too(&self, slot: usize) -> bool {
        self.shown.load(Relaxed) >> slot & 1 != 0
    }

    /// The path at which the kernel has a FIFO, socket or device of a mount, in this thread's first text; `None` if it has not.
    pub(super) fn kernel_text<'a>(&self, cx: &Cx, thread: &'a ThreadState, spot: &Spot, attr: &Attr) -> Option<&'a [u8]> {
        if !self.is_kernels_too(spot.slot) || !spot.is_name() {
            return None;
        }
        // SAFETY: the paths of this call are resolved: nobody uses the text.
        let out = unsafe { &mut *thread.room().text[0].get() };
        let mut at = PATH_MAX - 1;
        out[at] = 0;
        put_before(out, &mut at, spot.found.name).ok()?;
        put_directory_before(out, &mut at, cx, spot.mount, spot.found.parent).ok()?;
        // SAFETY: all fields are integers, for which zero is a value.
        let mut stat: abi::stat = unsafe { core::mem::zeroed() };
        let args = [CWD, out[at..].as_ptr() as usize, &raw mut stat as usize, abi::AT_SYMLINK_NOFOLLOW as usize, 0, 0];
        // SAFETY: a NUL-terminated path and a `struct stat`.
        let known = unsafe { self.door.kernel(abi::__NR_newfstatat as usize, args) } == 0;
        (known && stat.st_ino == attr.ino && stat.st_dev == spot.mount.backend.device()).then(|| &out[at..])
    }

    /// Notes under which name the object at `path` (with its NUL) was opened or bound.
    pub(in crate::handle) fn name_object(&self, thread: &ThreadState, path: &[u8], name: &[u8]) {
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let [link, target, _] = unsafe { &mut *thread.room().outside.get() };
        let mut text = Text { out: link, len: 0 };
        let put = text.put(path.strip_suffix(b"\0").unwrap_or(path)).and_then(|()| text.put(NAMED));
        if put.is_err() || name.len() >= target.len() {
            return;
        }
        target[..name.len()].copy_from_slice(name);
        target[name.len()] = 0;
        // Whoever finds none, or another's, does without.
        // SAFETY: NUL-terminated texts.
        unsafe {
            self.door.kernel(abi::__NR_unlinkat as usize, [CWD, link.as_ptr() as usize, 0, 0, 0, 0]);
            self.door.kernel(abi::__NR_symlinkat as usize, [target.as_ptr() as usize, CWD, link.as_ptr() as usize, 0, 0, 0]);
        }
        self.has_objects.store(true, Relaxed);
    }

    /// As [`Process::name_object`], of what a path led to.
    pub(super) fn name_opened(&self, cx: &Cx, thread: &ThreadState, spot: &Spot, path: &[u8]) {
        // SAFETY: the second text of this thread is not in use by a call with one path.
        let name = unsafe { &mut *thread.room().text[1].get() };
        let mut at = PATH_MAX;
        let put = put_before(name, &mut at, spot.found.name)
            .and_then(|()| put_directory_before(name, &mut at, cx, spot.mount, spot.found.parent));
        if put.is_ok() {
            self.name_object(thread, path, &name[at..]);
        }
    }

    /// The name of the object at `path` (without its NUL), as [`Process::name_object`] has noted it; its length in `out`.
    fn name_of_object(&self, thread: &ThreadState, path: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: the second text of this thread is not in use by a call with one path.
        let link = unsafe { &mut *thread.room().text[1].get() };
        let mut text = Text { out: link, len: 0 };
        text.put(path).and_then(|()| text.put(NAMED)).ok()?;
        let args = [CWD, link.as_ptr() as usize, out.as_mut_ptr() as usize, out.len(), 0, 0];
        // SAFETY: a NUL-terminated path, and a buffer as long as we say.
        usize::try_from(unsafe { self.door.kernel(abi::__NR_readlinkat as usize, args) }).ok()
    }

    /// Takes the object away behind a node whose last name this thread has just removed.
    #[inline]
    pub(in crate::handle) fn remove_gone(&self, cx: &Cx, thread: &ThreadState, mount: &Mount) {
        if cx.thread.gone.get().is_some() {
            self.remove_gone_slow(cx, thread, mount);
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_gone_slow(&self, cx: &Cx, thread: &ThreadState, mount: &Mount) {
        if let Some((id, kind)) = cx.thread.gone.take() {
            self.remove_object(thread, mount, Node { id, hint: 0 }, kind);
        }
    }

    /// Takes the object behind a node away, with its name, when the node has lost its last one.
    pub(in crate::handle) fn remove_object(&self, thread: &ThreadState, mount: &Mount, node: Node, kind: Kind) {
        let Ok(path) = self.object_text(thread, mount.backend.identity(), node, kind, false) else { return };
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let [link, ..] = unsafe { &mut *thread.room().outside.get() };
        let mut text = Text { out: link, len: 0 };
        let named = text.put(path.strip_suffix(b"\0").unwrap_or(path)).and_then(|()| text.put(NAMED));
        for one in [Some(path.as_ptr()), named.is_ok().then_some(link.as_ptr())].into_iter().flatten() {
            // SAFETY: a NUL-terminated path.
            unsafe { self.door.kernel(abi::__NR_unlinkat as usize, [CWD, one as usize, 0, 0, 0, 0]) };
        }
    }

    /// Where the kernel's descriptor `fd` leads, if that is one of these objects: its length in `out`.
    fn object_path(&self, fd: u32, out: &mut [u8; 256]) -> Option<usize> {
        let mut link = [0u8; 32];
        text::proc_fd(fd, &mut link);
        let args = [CWD, link.as_ptr() as usize, out.as_mut_ptr() as usize, out.len(), 0, 0];
        // SAFETY: a NUL-terminated path, and a buffer as long as we say.
        let len = usize::try_from(unsafe { self.door.kernel(abi::__NR_readlinkat as usize, args) }).ok()?;
        (out.starts_with(b"/") && out[..len].windows(DIRECTORY.len()).any(|part| part == DIRECTORY)).then_some(len)
    }

    /// The node behind which an object lies.
    fn node_behind(&self, path: &[u8]) -> Option<(&Mount, Node)> {
        let name = path.rsplit(|&b| b == b'/').next()?;
        let mut parts = name.split(|&b| b == b'-').map(hex);
        let (device, id) = (parts.next()??, parts.next()??);
        let (_, mount) = self.mounts.iter().find(|(_, mount)| mount.backend.identity() == device)?;
        Some((mount, Node { id, hint: 0 }))
    }

    /// What the kernel's descriptor `fd` stands for, if it is an object behind a node. Asked only in a process that has
    /// opened any.
    pub(in crate::handle) fn behind(&self, fd: usize) -> Option<(&Mount, Node)> {
        if !self.has_objects.load(Relaxed) {
            return None;
        }
        self.behind_any(fd)
    }

    /// As [`Process::behind`], also of what was inherited.
    #[cold]
    pub(crate) fn behind_any(&self, fd: usize) -> Option<(&Mount, Node)> {
        if self.mounts.is_empty() || !self.door.has_kernel() {
            return None;
        }
        let mut path = [0u8; 256];
        let len = self.object_path(fd as u32, &mut path)?;
        self.node_behind(&path[..len])
    }

    /// The name of the object that the kernel's descriptor `fd` is; its length in `out`.
    pub(in crate::handle) fn object_link(&self, thread: &ThreadState, fd: usize, out: &mut [u8]) -> Option<usize> {
        if !self.has_objects.load(Relaxed) {
            return None;
        }
        let mut path = [0u8; 256];
        let len = self.object_path(fd as u32, &mut path)?;
        self.name_of_object(thread, &path[..len], out)
    }

    /// The name that was bound where the kernel has told an object's path; its length in `out`.
    pub(in crate::handle) fn bound_name(&self, thread: &ThreadState, path: &[u8], out: &mut [u8]) -> Option<usize> {
        let is_object =
            path.starts_with(self.door.private_directory()) && path.windows(DIRECTORY.len()).any(|part| part == DIRECTORY);
        if is_object { self.name_of_object(thread, path, out) } else { None }
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}
