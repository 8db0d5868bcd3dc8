//! The working directory: the kernel's, or one of ours held by a pseudo descriptor.

use super::{ATTEMPTS, done, err, fail};
use crate::descriptors::{CWD_FD, Entry, SPARE_FD};
use crate::path::{CWD, OpenFile, Place, Spot};
use crate::text::bad;
use crate::text_out::TextOut;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind, Last, Node, PATH_MAX, X};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, UserSlice};
use vfs::Mount;

/// Whether this is a directory that the caller may search.
fn may_enter(cx: &Cx, mount: &Mount, node: Node) -> base::Result<()> {
    if mount.backend.attr(cx, node)?.kind != Kind::Directory {
        return err(Errno::ENOTDIR);
    }
    mount.backend.access(cx, node, X)
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `chdir(path)`.
    pub unsafe fn chdir(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let cx = self.cx(thread);
        let nr = abi::__NR_chdir as usize;
        for _ in 0..ATTEMPTS {
            // SAFETY: the caller's promise.
            let changed = match unsafe { self.resolve(&cx, thread, 0, CWD, args[0], Last::Follow) } {
                Ok(Place::Ours(spot)) => spot.node(&cx).and_then(|node| self.change_to(&cx, thread, spot.slot, spot.mount, node)),
                // SAFETY: the caller's promise.
                Ok(Place::Kernel) => return unsafe { self.change_outside(thread, nr, args) },
                // SAFETY: as above, with a text of ours.
                Ok(Place::Text(text)) => return unsafe { self.change_outside(thread, nr, [text, 0, 0, 0, 0, 0]) },
                Err(error) => Err(error),
            };
            if changed != err(Errno::ESTALE) {
                return done(changed);
            }
        }
        fail(self.never_there())
    }

    /// `fchdir(fd)`.
    pub unsafe fn fchdir(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        match self.file(args[0]) {
            Some(file) => done(self.change_to(&self.cx(thread), thread, file.slot, file.mount, file.node)),
            // SAFETY: the caller's promise.
            None => unsafe { self.change_outside(thread, abi::__NR_fchdir as usize, args) },
        }
    }

    /// The kernel's `chdir`; where it succeeds, we are outside.
    unsafe fn change_outside(&self, thread: &ThreadState, nr: usize, args: [usize; 6]) -> Outcome {
        if !self.door.has_kernel() {
            return Outcome::Kernel;
        }
        let result = self.moving.with(|| {
            // SAFETY: the caller's promise.
            let result = unsafe { self.door.kernel(nr, args) };
            if result == 0 {
                self.leave(thread);
            }
            result
        });
        if result == 0 {
            self.kernel_cwd_changed();
        } else if nr == abi::__NR_chdir as usize && !thread.retry.get() {
            // SAFETY: the caller's promise.
            let second = unsafe { self.handle_after_failure(thread, nr, args, -result as i32) };
            if second != Outcome::Kernel {
                return second;
            }
        }
        Outcome::Done(result)
    }

    /// The working directory is no longer one of ours. For who is moving it.
    pub(super) fn leave(&self, thread: &ThreadState) {
        if let Some(entry) = self.descriptors.take(CWD_FD)
            && let Some(mount) = self.mounts.get(entry.slot())
        {
            mount.backend.close(&self.cx(thread), CWD_FD);
        }
    }

    fn change_to(&self, cx: &Cx, thread: &ThreadState, slot: usize, mount: &Mount, node: Node) -> base::Result<usize> {
        may_enter(cx, mount, node)?;
        if self.is_parted() {
            return self.change_in_kernel(cx, thread, mount, node);
        }
        self.moving.with(|| self.move_to(cx, thread, slot, mount, node))
    }

    /// For who is moving the working directory.
    fn move_to(&self, cx: &Cx, thread: &ThreadState, slot: usize, mount: &Mount, node: Node) -> base::Result<usize> {
        let backend = mount.backend;
        let was_ours = self.descriptors.get(CWD_FD);
        // Held by the spare number while the old one gives the place free.
        let id = backend.open(cx, node, abi::O_PATH | abi::O_DIRECTORY, SPARE_FD)?;
        if let Err(errno) = self.move_kernel_cwd(cx, thread, mount, node, was_ours.is_some()) {
            backend.close(cx, SPARE_FD);
            return Err(errno.into());
        }
        if let Some(old) = was_ours
            && let Some(mount) = self.mounts.get(old.slot())
        {
            mount.backend.close(cx, CWD_FD);
        }
        let held = backend.dup(id, CWD_FD);
        backend.close(cx, SPARE_FD);
        held?;
        // Where `..` leads once it is removed.
        let parent = backend.parent(cx, node).unwrap_or(node);
        mount.description(id).parent.store(parent.id, Relaxed);
        self.descriptors.put(CWD_FD, Entry::new(slot, id, Kind::Directory, false, true));
        self.note_here();
        self.cwd_above_mount.store(false, Relaxed);
        Ok(0)
    }

    /// The kernel's working directory follows: to the same directory where the kernel has
    /// it (`/proc/self/cwd`, relative paths that pass us by), else to one without anything.
    fn move_kernel_cwd(&self, cx: &Cx, thread: &ThreadState, mount: &Mount, node: Node, was_ours: bool) -> Result<(), Errno> {
        let in_kernel = mount.is_served() && self.enter_in_kernel(cx, thread, mount, node);
        if !(in_kernel || was_ours && self.cwd_is_virtual.load(Relaxed)) {
            self.door.enter_virtual_cwd()?;
        }
        self.cwd_is_virtual.store(!in_kernel, Relaxed);
        Ok(())
    }

    #[cold]
    fn enter_in_kernel(&self, cx: &Cx, thread: &ThreadState, mount: &Mount, node: Node) -> bool {
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let [text, ..] = unsafe { &mut *thread.room().outside.get() };
        let mut at = PATH_MAX - 1;
        text[at] = 0;
        put_directory_before(text, &mut at, cx, mount, node).is_ok()
            && mount.backend.attr(cx, node).is_ok_and(|attr| self.door.enter_in_kernel(&text[at..], attr.ino))
    }

    /// `getcwd(out, len)`: returns the length with the NUL. Into more room than `PATH_MAX` goes a longer path too, which the
    /// kernel leaves to libc, step by step through `..`: beyond the mount point there may be no such steps.
    pub unsafe fn getcwd(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let Some(entry) = self.descriptors.get(CWD_FD) else { return Outcome::Kernel };
        let Some(file) = self.open_file(entry) else { return Outcome::Kernel };
        let cx = self.cx(thread);
        let path = self.path_of(&cx, thread, &file);
        if args[1] > PATH_MAX && matches!(path, Err(Error::Posix(Errno::ENAMETOOLONG))) {
            if bad(args[0]) {
                return done(err(Errno::EFAULT));
            }
            return done(directory_len(&cx, file.mount, file.node).and_then(|len| {
                if len >= args[1] {
                    return err(Errno::ERANGE);
                }
                // SAFETY: the caller's promise; it is about to be written.
                if unsafe { pm::faults::writable(args[0] as *mut u8, len + 1) } <= len {
                    return err(Errno::EFAULT);
                }
                // SAFETY: the caller's promise; no more of it than the path takes.
                let out = unsafe { core::slice::from_raw_parts_mut(args[0] as *mut u8, len + 1) };
                long_path(out, &cx, &file)
            }));
        }
        done(path.and_then(|path| {
            if path.len() + 1 > args[1] {
                return err(Errno::ERANGE);
            }
            if bad(args[0]) {
                return err(Errno::EFAULT);
            }
            // SAFETY: the caller's promise; there is room for path and NUL.
            let out = unsafe { UserSlice::new(args[0] as *mut u8, path.len() + 1) };
            pm::user::copy(UserSlice::from_ref(path), out)?;
            pm::user::copy(UserSlice::from_ref(&[0]), out.part(path.len(), 1))?;
            Ok(path.len() + 1)
        }))
    }

    /// `chroot(path)`: the kernel's, where it has the same directory mounted at the same path; else there is no such place
    /// for it.
    pub unsafe fn chroot(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let serve = |cx: &Cx, spot: &Spot| {
            let node = spot.node(cx)?;
            may_enter(cx, spot.mount, node)?;
            if self.shown.load(Relaxed) >> spot.slot & 1 == 0 {
                return err(Errno::EPERM);
            }
            let mut text = [0u8; PATH_MAX];
            let mut at = PATH_MAX - 1;
            put_directory_before(&mut text, &mut at, cx, spot.mount, node)?;
            // SAFETY: a NUL-terminated path. Whether the caller may do it, the kernel says.
            let result = unsafe { self.door.kernel(abi::__NR_chroot as usize, [text[at..].as_ptr() as usize, 0, 0, 0, 0, 0]) };
            usize::try_from(result).map_err(|_| Errno(-result as i32).into())
        };
        // SAFETY: the caller's promise.
        unsafe { self.at(thread, (abi::__NR_chroot, args), CWD, 0, Last::Follow, serve) }
    }

    /// The absolute path of an open file, in this thread's second text. For
    /// anything but a directory it is the name under which it was opened, or
    /// one of the same directory that leads to it. `ENOENT` if it is gone.
    pub(crate) fn path_of<'a>(&self, cx: &Cx, thread: &'a ThreadState, file: &OpenFile) -> base::Result<&'a [u8]> {
        // SAFETY: the second text of this thread is not in use by a call with one path.
        let out = unsafe { &mut *thread.room().text[1].get() };
        let backend = file.mount.backend;
        let mut at = PATH_MAX;
        let mut node = file.node;
        if file.entry.kind() != Kind::Directory {
            let parent = Node { id: file.description.parent.load(Relaxed), hint: 0 };
            let ino = backend.attr(cx, node)?.ino;
            let mut found = false;
            backend.readdir(cx, parent, 0, &mut |entry| {
                if entry.ino == ino {
                    found = put_before(out, &mut at, entry.name).is_ok();
                }
                !found
            })?;
            if !found {
                return err(Errno::ENOENT);
            }
            node = parent;
        }
        put_directory_before(out, &mut at, cx, file.mount, node)?;
        if at == PATH_MAX {
            at -= 1;
            out[at] = b'/';
        }
        Ok(&out[at..])
    }
}

impl Process {
    /// As [`Process::path_of`], and of what has no name any more as the kernel shows it: in the directory where it was opened,
    /// with its number for a name.
    pub(crate) fn shown_path_of<'a>(&self, cx: &Cx, thread: &'a ThreadState, file: &OpenFile) -> base::Result<&'a [u8]> {
        match self.path_of(cx, thread, file) {
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => self.removed_path_of(cx, thread, file),
            path => path,
        }
    }

    #[cold]
    fn removed_path_of<'a>(&self, cx: &Cx, thread: &'a ThreadState, file: &OpenFile) -> base::Result<&'a [u8]> {
        let ino = file.mount.backend.attr(cx, file.node)?.ino;
        let mut name = [0u8; 40];
        let mut text = TextOut::new(&mut name, Errno::ENAMETOOLONG);
        text.put(b"#")?;
        text.number(ino, 10)?;
        text.put(b" (deleted)")?;
        let name = text.bytes();
        // SAFETY: the second text of this thread is not in use by a call with one path.
        let out = unsafe { &mut *thread.room().text[1].get() };
        let mut at = PATH_MAX;
        put_before(out, &mut at, name)?;
        let parent = Node { id: file.description.parent.load(Relaxed), hint: 0 };
        let with_name = at;
        if put_directory_before(out, &mut at, cx, file.mount, parent).is_err() {
            at = with_name;
            let prefix = file.mount.prefix();
            let start = at.checked_sub(prefix.len()).ok_or(Error::Posix(Errno::ENAMETOOLONG))?;
            out[start..at].copy_from_slice(prefix);
            at = start;
        }
        Ok(&out[at..])
    }
}

/// A path that somebody waits for.
const LONGEST: usize = 1 << 26;

/// The path of an open directory and a NUL at the beginning of `out`; the length of both.
#[cold]
fn long_path(out: &mut [u8], cx: &Cx, file: &OpenFile) -> base::Result<usize> {
    let len = out.len();
    let mut at = len - 1;
    out[at] = 0;
    put_directory_before(out, &mut at, cx, file.mount, file.node).map_err(|error| match error {
        // A directory of it has got a longer name since it was measured.
        Error::Posix(Errno::ENAMETOOLONG) => Error::Posix(Errno::ERANGE),
        other => other,
    })?;
    out.copy_within(at.., 0);
    Ok(len - at)
}

/// How long the absolute path of a directory is.
#[cold]
fn directory_len(cx: &Cx, mount: &Mount, mut node: Node) -> base::Result<usize> {
    let mut name = [0u8; 255];
    let mut len = mount.prefix().len();
    while node != mount.root {
        len += 1 + mount.backend.name_of(cx, node, &mut name)?;
        node = mount.backend.parent(cx, node)?;
        if len > LONGEST {
            return err(Errno::ENAMETOOLONG);
        }
    }
    Ok(len)
}

/// Puts `/name` before what is there.
pub(crate) fn put_before(out: &mut [u8], at: &mut usize, name: &[u8]) -> base::Result<()> {
    let start = at.checked_sub(name.len() + 1).ok_or(Error::Posix(Errno::ENAMETOOLONG))?;
    out[start] = b'/';
    out[start + 1..*at].copy_from_slice(name);
    *at = start;
    Ok(())
}

/// Puts the absolute path of a directory before what is there; that of the root of everything is empty.
pub(crate) fn put_directory_before(out: &mut [u8], at: &mut usize, cx: &Cx, mount: &Mount, mut node: Node) -> base::Result<()> {
    let mut name = [0u8; 255];
    while node != mount.root {
        let len = mount.backend.name_of(cx, node, &mut name)?;
        put_before(out, at, &name[..len])?;
        node = mount.backend.parent(cx, node)?;
    }
    let prefix = mount.prefix();
    let start = at.checked_sub(prefix.len()).ok_or(Error::Posix(Errno::ENAMETOOLONG))?;
    out[start..*at].copy_from_slice(prefix);
    *at = start;
    Ok(())
}
