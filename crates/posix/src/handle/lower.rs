//! Calls on a mount of a directory of the kernel's, where its plain path is enough: no more system calls than the
//! program's own call, an open that follows no symlink, and a close.
//!
//! - A path of names and single slashes takes one open; the call is made on that.
//! - A name in a directory that the program itself has open takes the call alone, by the program's number, under which
//!   lies a handle of that directory ([`Numbers::keep`](crate::Numbers::keep)). It is the right one whoever has moved it.
//!
//! Whatever can't be answered so (a symlink on the way, `..`, a mount inside) is resolved properly, a component at a time.

use super::open::{ONCE, TMPFILE};
use crate::descriptors::Entry;
use crate::{Process, ThreadState, text};
use base::{Attr, Kind, Node};
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use pm::file::File;
use pm::sys::abi;
use vfs::Mount;

/// A path below a node of such a mount: names and single slashes only.
struct Below<'a> {
    slot: usize,
    mount: &'a Mount,
    base: Node,
    path: &'a [u8],
    /// The number of `base`, where it is the kernel's and the path one name.
    number: Option<i32>,
}

/// A name with its NUL.
struct Name([u8; 256]);

impl Name {
    fn new(name: &[u8]) -> Option<Name> {
        let mut text = [0; 256];
        text[..255].get_mut(..name.len())?.copy_from_slice(name);
        Some(Name(text))
    }

    fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// What is left of a path without `./` at its beginning, if that is names and single slashes only. `dotted`: a slash of it may be
/// followed by a slash or a dot.
fn plain(path: &[u8], dotted: bool) -> Option<&[u8]> {
    let mut rest = path;
    while let Some(inner) = rest.strip_prefix(b"./") {
        rest = inner;
    }
    if rest.is_empty() || rest.ends_with(b"/") {
        return None;
    }
    let are_names = || rest.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
    (!dotted && !rest.starts_with(b".") || are_names()).then_some(rest)
}

impl Process {
    /// Where a plain path begins, if that is in a mount of the kernel's files with nothing mounted inside.
    ///
    /// # Safety
    /// `pointer` is [bad](crate::bad_pointer) or a NUL-terminated text that stays as it is for `'a`.
    unsafe fn below<'a>(&'a self, dirfd: usize, pointer: usize) -> Option<Below<'a>> {
        if base::ids::is_unmapped() {
            // The maps are to be asked for first.
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { text::path(pointer) }.ok()?;
        let (slot, mount, base, rest) = if path.bytes.first() == Some(&b'/') {
            let (slot, mount, rest) = self.mounts.find(path.bytes)?;
            (slot, mount, mount.root, rest)
        } else {
            let dir = self.directory(dirfd)?;
            if dir.entry.kind() != Kind::Directory {
                return None;
            }
            (dir.slot, dir.mount, dir.node, path.bytes)
        };
        if !mount.is_kernels || mount.is_covered() {
            return None;
        }
        let rest = plain(rest, path.dotted)?;
        let is_name_in_fd = path.bytes.first() != Some(&b'/') && dirfd as i32 != abi::AT_FDCWD && !rest.contains(&b'/');
        let number = (is_name_in_fd && self.numbers().is_directory(dirfd as u32)).then_some(dirfd as i32);
        Some(Below { slot, mount, base, path: rest, number })
    }

    /// Opens what a path leads to, for one call (`O_PATH`); `follow` refuses a symlink, which is then resolved properly.
    /// `None`: do that.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub(super) unsafe fn lower_handle(&self, dirfd: usize, pointer: usize, follow: bool) -> Option<base::Result<File>> {
        // SAFETY: the caller's promise.
        let Below { mount, base, path, .. } = unsafe { self.below(dirfd, pointer) }?;
        mount.backend.kernel_files().handle_below(base, path, follow)
    }

    /// Attributes and `st_dev` of what a path leads to. `None`: resolve it properly.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub(super) unsafe fn lower_attr(&self, dirfd: usize, pointer: usize, follow: bool) -> Option<base::Result<(Attr, u64)>> {
        // SAFETY: the caller's promise.
        let Below { mount, base, path, number, .. } = unsafe { self.below(dirfd, pointer) }?;
        let stat = match number {
            Some(number) => pm::host::statx_at(number, Name::new(path)?.text()).map_err(base::Error::Posix),
            None => mount.backend.kernel_files().handle_below(base, path, follow)?.and_then(|file| Ok(file.statx()?)),
        };
        let told = stat.and_then(|stat| vfs::host::attr_and_device(&stat));
        let is_link = told.is_ok_and(|(attr, _)| attr.kind == Kind::Symlink);
        if follow && is_link { None } else { Some(told) }
    }

    /// Attributes and `st_dev` of the directory that number `fd` stands for, if it is the kernel's number of that.
    pub(super) fn lower_attr_of(&self, fd: usize) -> Option<base::Result<(Attr, u64)>> {
        if !self.numbers().is_directory(fd as u32) || base::ids::is_unmapped() {
            return None;
        }
        Some(pm::host::statx_at(fd as i32, c"").map_err(base::Error::Posix).and_then(|stat| vfs::host::attr_and_device(&stat)))
    }

    /// Opens a file as the kernel's descriptor, or a directory as a number of ours with a handle of it. `None`: resolve
    /// its path properly.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub(super) unsafe fn lower_open(
        &self,
        thread: &ThreadState,
        dirfd: usize,
        pointer: usize,
        flags: u32,
        mode: usize,
    ) -> Option<base::Result<usize>> {
        if flags & (abi::O_PATH | TMPFILE) != 0 || !self.door.has_kernel() {
            return None;
        }
        // SAFETY: the caller's promise.
        let at = unsafe { self.below(dirfd, pointer) }?;
        if flags & abi::O_DIRECTORY != 0 {
            return if flags & (abi::O_ACCMODE | abi::O_CREAT | abi::O_NOATIME) == 0 {
                self.open_directory(thread, &at, flags)
            } else {
                None
            };
        }
        let mut make = |nr: u32, args: [usize; 6]| {
            // SAFETY: the backend's own arguments, alive during the call.
            unsafe { self.door.kernel(nr as usize, args) }
        };
        let opened = at.mount.backend.kernel_files().open_below(at.base, at.path, flags, mode as u16 & 0o7777, &mut make)?;
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

    fn open_directory(&self, thread: &ThreadState, at: &Below, flags: u32) -> Option<base::Result<usize>> {
        let cx = self.cx(thread);
        let numbers = self.numbers();
        numbers.before_handle();
        let (handle, parent, node) = match at.mount.backend.kernel_files().directory_below(at.base, at.path)? {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        Some(numbers.keep(handle)?.map_err(base::Error::Posix).and_then(|fd| {
            let opened = at.mount.backend.open(&cx, node, flags & !ONCE, fd);
            let id = opened.inspect_err(|_| numbers.give_back(fd))?;
            at.mount.description(id).parent.store(parent.id, Relaxed);
            let entry = Entry::new(at.slot, id, Kind::Directory, flags & abi::O_CLOEXEC != 0, false);
            self.descriptors.put(fd, entry.with_access(flags));
            Ok(fd as usize)
        }))
    }
}

/// Whether a descriptor of the kernel's is a directory.
fn is_directory(fd: usize) -> bool {
    pm::host::kind_of(fd as i32).is_ok_and(|mode| mode & 0o170000 == 0o040000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the plain paths are those of names and single slashes, hidden names among them, after any `./`.
    #[test]
    fn plain_paths() {
        for (path, rest) in [
            ("a", "a"),
            ("a/b", "a/b"),
            ("./a/b", "a/b"),
            ("././a", "a"),
            (".git/config", ".git/config"),
            ("./.git/..b/c.", ".git/..b/c."),
            ("a/...", "a/..."),
        ] {
            assert_eq!(plain(path.as_bytes(), true), Some(rest.as_bytes()), "{path}");
        }
        for path in ["", ".", "..", "./", "./.", "./..", "../a", "a/", "a/.", "a/..", "a/./b", "a/../b", "a//b", ".//a", "/a"] {
            assert_eq!(plain(path.as_bytes(), true), None, "{path}");
        }
        assert_eq!(plain(b"a/b", false), Some(&b"a/b"[..]));
    }
}
