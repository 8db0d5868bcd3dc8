//! Calls by path on a mount of a directory of the kernel's, where its plain path is enough: one open that follows no
//! symlink, the call on that, and no call that nothing needs. Whatever such an open can't answer (a symlink on the way,
//! `..`, a mount inside) is resolved properly, which asks a component at a time.

use crate::{Process, text};
use base::{Kind, Node};
use pm::file::File;
use pm::sys::abi;
use vfs::Mount;

/// A path below a node of such a mount: names and single slashes only.
struct Below<'a> {
    mount: &'a Mount,
    base: Node,
    path: &'a [u8],
}

impl Process {
    /// Where a plain path begins, if that is in a mount of the kernel's files with nothing mounted inside.
    ///
    /// # Safety
    /// `pointer` is [bad](crate::bad_pointer) or a NUL-terminated text that stays as it is for `'a`.
    unsafe fn below<'a>(&'a self, dirfd: usize, pointer: usize) -> Option<Below<'a>> {
        // SAFETY: the caller's promise.
        let path = unsafe { text::path(pointer) }.ok()?;
        let (mount, base, rest) = if path.bytes.first() == Some(&b'/') {
            let (_, mount, rest) = self.mounts.find(path.bytes)?;
            (mount, mount.root, rest)
        } else {
            let dir = self.directory(dirfd)?;
            if dir.entry.kind() != Kind::Directory {
                return None;
            }
            (dir.mount, dir.node, path.bytes)
        };
        let is_plain = !path.dotted && !rest.starts_with(b".") && !rest.ends_with(b"/") && !rest.is_empty();
        (is_plain && mount.is_kernels && !mount.is_covered()).then_some(Below { mount, base, path: rest })
    }

    /// Opens what a path leads to, for one call (`O_PATH`); `follow` refuses a symlink, which is then resolved properly. `None`: do that.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub(super) unsafe fn lower_handle(&self, dirfd: usize, pointer: usize, follow: bool) -> Option<base::Result<File>> {
        // SAFETY: the caller's promise.
        let Below { mount, base, path } = unsafe { self.below(dirfd, pointer) }?;
        mount.backend.handle_below(base, path, follow)
    }

    /// Opens a file as the kernel's descriptor. `None`: resolve its path properly.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub(super) unsafe fn lower_open(&self, dirfd: usize, pointer: usize, flags: u32, mode: usize) -> Option<base::Result<usize>> {
        const ELSEWHERE: u32 = abi::O_PATH | abi::O_DIRECTORY | abi::O_TMPFILE;
        if flags & ELSEWHERE != 0 || !self.door.has_kernel() {
            return None;
        }
        // SAFETY: the caller's promise.
        let Below { mount, base, path } = unsafe { self.below(dirfd, pointer) }?;
        let mut make = |nr: u32, args: [usize; 6]| {
            // SAFETY: the backend's own arguments, alive during the call.
            unsafe { self.door.kernel(nr as usize, args) }
        };
        let opened = mount.backend.open_below(base, path, flags, mode as u16 & 0o7777, &mut make)?;
        // Directories are held here: what is looked up relative to them stays in the namespace.
        if let Ok(fd) = opened
            && flags & abi::O_ACCMODE == abi::O_RDONLY
            && is_directory(fd)
        {
            // SAFETY: the descriptor just opened, which nobody knows.
            let _ = unsafe { self.door.kernel(abi::__NR_close as usize, [fd, 0, 0, 0, 0, 0]) };
            return None;
        }
        Some(opened)
    }
}

/// Whether a descriptor of the kernel's is a directory.
fn is_directory(fd: usize) -> bool {
    pm::host::kind_of(fd as i32).is_ok_and(|mode| mode & 0o170000 == 0o040000)
}
