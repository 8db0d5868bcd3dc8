//! Where the kernel's mount of a file system has what a descriptor of ours stands for.
//!
//! A program that the library can't be loaded into (static, set-uid) gets kernel
//! descriptors: opened by inode through the mount at the same path, so that
//! renamed and removed files are found as well; directories by their path.

use crate::descriptors::{CWD_FD, FD_MAX};
use crate::handle::cwd::{put_before, put_directory_before};
use crate::path::{CWD, Spot};
use crate::text_out::TextOut;
use crate::{Process, ThreadState};
use base::{Cx, DescriptionId, Kind, Node, PATH_MAX};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;
use vfs::Mount;

/// How to open it: `openat(AT_FDCWD, path, flags)`, then `lseek(offset)`.
pub struct InKernel<'a> {
    /// Absolute, with its NUL.
    pub path: &'a [u8],
    /// `O_*`, without those that only matter when a file is made.
    pub flags: u32,
    /// Its position.
    pub offset: u64,
    /// The open file description, for [`openfiles::SHARE`].
    pub description: DescriptionId,
    /// Its inode number: what lies at the path may be something else, if nothing is mounted there.
    pub ino: u64,
}

/// Flags of an open file that another opening keeps.
const KEPT: u32 = abi::O_ACCMODE | abi::O_APPEND | abi::O_NONBLOCK | abi::O_DIRECT | abi::O_SYNC | abi::O_NOATIME | abi::O_PATH;

impl Process {
    /// For descriptor `fd`, or the working directory ([`CWD_FD`]). The text is in
    /// this thread's state until its next call. `EBADF`: not ours; `ENOENT`: a
    /// directory that is gone.
    pub fn in_kernel<'a>(&self, thread: &'a ThreadState, fd: u32) -> base::Result<InKernel<'a>> {
        let file = self.descriptors.get(fd).and_then(|entry| self.open_file(entry)).ok_or(Errno::EBADF)?;
        let cx = self.cx(thread);
        let ino = file.mount.backend.attr(&cx, file.node)?.ino;
        let description = file.entry.description();
        let (flags, offset) = (file.flags() & KEPT, file.description.offset.load(Relaxed));
        if file.entry.kind() == Kind::Directory {
            let len = self.path_of(&cx, thread, &file)?.len();
            // SAFETY: the second text of this thread, which is not in use by a call.
            let out = unsafe { &mut *thread.room().text[1].get() };
            let start = out.len() - len;
            if start == 0 {
                return Err(Errno::ENAMETOOLONG.into());
            }
            // `path_of` fills up to the end: make room for the NUL.
            out.copy_within(start.., start - 1);
            *out.last_mut().ok_or(Errno::ENAMETOOLONG)? = 0;
            let flags = flags & !abi::O_ACCMODE | abi::O_DIRECTORY;
            return Ok(InKernel { path: &out[start - 1..], flags, offset: 0, description, ino });
        }
        // SAFETY: as above.
        let out = unsafe { &mut *thread.room().text[1].get() };
        let mut text = TextOut::new(out, Errno::ENAMETOOLONG);
        put_by_number(&mut text, file.mount, file.node)?;
        Ok(InKernel { path: text.bytes(), flags, offset, description, ino })
    }

    /// Whether a file is being executed, so that nobody may open it for writing.
    ///
    /// That a program has ended, the server is told some time after its parent: so
    /// the kernel is asked again, if it has the file system mounted at the same path.
    #[cold]
    pub(crate) fn is_executed(&self, cx: &Cx, mount: &Mount, node: Node) -> bool {
        mount.backend.kernel_mount().is_executed(node) && !(self.door.has_kernel() && self.kernel_lets_write(cx, mount, node))
    }

    /// Whether the kernel opens a file for writing.
    fn kernel_lets_write(&self, cx: &Cx, mount: &Mount, node: Node) -> bool {
        let mut bytes = [0u8; PATH_MAX];
        let mut text = TextOut::new(&mut bytes, Errno::ENAMETOOLONG);
        if mount.backend.attr(cx, node).is_err() || put_by_number(&mut text, mount, node).is_err() {
            return false;
        }
        let flags = abi::O_WRONLY | abi::O_CLOEXEC | abi::O_NONBLOCK | abi::O_NOCTTY;
        let args = [CWD, text.bytes().as_ptr() as usize, flags as usize, 0, 0, 0];
        // SAFETY: a NUL-terminated path.
        let fd = unsafe { self.door.kernel(abi::__NR_openat as usize, args) };
        if fd < 0 {
            return false;
        }
        // SAFETY: nobody else knows of this descriptor.
        let _ = unsafe { self.door.kernel(abi::__NR_close as usize, [fd as usize, 0, 0, 0, 0, 0]) };
        true
    }

    /// Whether the kernel, which has the file system mounted at the same path, has
    /// mounted something on a directory in it, or on a file that it is known of. It has not where it knows no names.
    #[cold]
    pub(crate) fn kernel_has_mounted(&self, cx: &Cx, spot: &Spot) -> bool {
        if !self.door.has_kernel() || !spot.mount.backend.kernel_mount().kernel_knows_names(cx, spot.found.parent) {
            return false;
        }
        let backend = spot.mount.backend;
        let Ok(node) = backend.lookup(cx, spot.found.parent, spot.found.name) else { return false };
        let is_directory = || backend.attr(cx, node).is_ok_and(|attr| attr.kind == Kind::Directory);
        if !backend.kernel_mount().is_covered(node) && !is_directory() {
            return false;
        }
        let mut text = [0u8; PATH_MAX];
        let mut at = PATH_MAX - 1;
        let path = put_before(&mut text, &mut at, spot.found.name)
            .and_then(|()| put_directory_before(&mut text, &mut at, cx, spot.mount, spot.found.parent));
        if path.is_err() {
            return false;
        }
        // SAFETY: all fields are integers, for which zero is a value.
        let mut out: abi::statx = unsafe { core::mem::zeroed() };
        let flags = abi::AT_SYMLINK_NOFOLLOW | abi::AT_NO_AUTOMOUNT | abi::AT_STATX_DONT_SYNC;
        let args = [CWD, text[at..].as_ptr() as usize, flags as usize, 0, &raw mut out as usize, 0];
        // SAFETY: a NUL-terminated path and a `struct statx`.
        let result = unsafe { self.door.kernel(abi::__NR_statx as usize, args) };
        result == 0 && out.stx_attributes & u64::from(abi::STATX_ATTR_MOUNT_ROOT) != 0
    }

    /// Whether a new program would get anything of ours: an open file, or the working directory.
    pub fn hands_on(&self) -> bool {
        self.kept_over_exec().next().is_some() || self.descriptors.get(CWD_FD).is_some()
    }
}

/// The path of a file, whatever its names, in the kernel's mount at the same path, with its NUL.
fn put_by_number(text: &mut TextOut, mount: &Mount, node: Node) -> Result<(), Errno> {
    text.put(mount.prefix())?;
    // What `Node::id` says of its place's generation, and what the mount calls files by.
    text.put(b"/.bypath/ino/")?;
    text.number(mount.backend.kernel_mount().number_of(node), 10)?;
    text.put(b".")?;
    text.number(node.id >> 40, 10)?;
    text.put(b"\0")
}

const _: () = assert!(CWD_FD == FD_MAX);
