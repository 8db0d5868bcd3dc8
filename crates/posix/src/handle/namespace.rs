//! Names: mkdir, mknod, symlink, unlink, rmdir, readlink; calls with two paths are in [`rename`].

mod covered;
mod rename;

use super::{done, err, fail};
#[cfg(target_arch = "x86_64")]
use crate::path::CWD;
use crate::path::{OpenFile, Spot, descriptor_name};
use crate::text::{self, bad};
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind, Last, NewNode, Node};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, UserSlice};

/// What a call that makes something other than a directory must find: a proper
/// name without a trailing slash.
fn plain_name(cx: &Cx, spot: &Spot) -> base::Result<()> {
    if !spot.is_name() {
        return err(Errno::EEXIST);
    }
    if spot.found.slash {
        spot.mount.backend.lookup(cx, spot.found.parent, spot.found.name)?;
        return err(Errno::EEXIST);
    }
    Ok(())
}

fn make(cx: &Cx, spot: &Spot, kind: Kind, mode: usize, rdev: u64, target: &[u8]) -> base::Result<usize> {
    let new = NewNode { kind, mode: mode as u16 & 0o7777, rdev, target };
    spot.mount.backend.create(cx, spot.found.parent, spot.found.name, &new).map(|_| 0)
}

/// Kernel encoding of a device number as `mknod` gets it.
fn mknod_kind(mode: usize) -> base::Result<Kind> {
    match mode >> 12 & 15 {
        0 => Ok(Kind::Regular),
        4 => err(Errno::EPERM),
        dt => Kind::from_dt(dt as u8).filter(|k| *k != Kind::Symlink).ok_or(Error::Posix(Errno::EINVAL)),
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mkdirat(dirfd, path, mode)`.
    pub unsafe fn mkdirat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mkdir_at(thread, (abi::__NR_mkdirat, args), args[0], 1, args[2]) }
    }

    /// `mkdir(path, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn mkdir(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mkdir_at(thread, (abi::__NR_mkdir, args), CWD, 0, args[1]) }
    }

    unsafe fn mkdir_at(&self, thread: &ThreadState, call: (u32, [usize; 6]), dirfd: usize, index: usize, mode: usize) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, call, dirfd, index, Last::Parent, |cx, spot| match spot.is_name() {
                true => make(cx, spot, Kind::Directory, mode & 0o1777, 0, b""),
                false => err(Errno::EEXIST),
            })
        }
    }

    /// `mknodat(dirfd, path, mode, device)`.
    pub unsafe fn mknodat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mknod_at(thread, (abi::__NR_mknodat, args), args[0], 1, args[2], args[3]) }
    }

    /// `mknod(path, mode, device)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn mknod(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mknod_at(thread, (abi::__NR_mknod, args), CWD, 0, args[1], args[2]) }
    }

    unsafe fn mknod_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        mode: usize,
        rdev: usize,
    ) -> Outcome {
        let kind = match mknod_kind(mode) {
            Ok(kind) => kind,
            Err(error) => return fail(error.errno()),
        };
        let mknod = |cx: &Cx, spot: &Spot| {
            plain_name(cx, spot)?;
            let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
            // Anybody may make the 0:0 "whiteout".
            if device && !cx.cred.privileged && !(kind == Kind::CharDevice && rdev == 0) {
                match spot.mount.backend.lookup(cx, spot.found.parent, spot.found.name) {
                    Ok(_) => return err(Errno::EEXIST),
                    Err(Error::Posix(Errno::ENOENT)) => {}
                    Err(error) => return Err(error),
                }
                if spot.mount.backend.attr(cx, spot.found.parent)?.nlink == 0 {
                    return err(Errno::ENOENT);
                }
                spot.mount.backend.access(cx, spot.found.parent, base::W | base::X)?;
                return err(Errno::EPERM);
            }
            make(cx, spot, kind, mode, if device { rdev as u32 as u64 } else { 0 }, b"")
        };
        // SAFETY: the caller's promise.
        unsafe { self.at(thread, call, dirfd, index, Last::Parent, mknod) }
    }

    /// `symlinkat(target, dirfd, path)`.
    pub unsafe fn symlinkat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.symlink_at(thread, (abi::__NR_symlinkat, args), args[1], 2) }
    }

    /// `symlink(target, path)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn symlink(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.symlink_at(thread, (abi::__NR_symlink, args), CWD, 1) }
    }

    unsafe fn symlink_at(&self, thread: &ThreadState, call: (u32, [usize; 6]), dirfd: usize, index: usize) -> Outcome {
        // SAFETY: the caller's promise.
        let target = match unsafe { text::path(call.1[0]) } {
            Ok(target) if target.bytes.is_empty() => return fail(Errno::ENOENT),
            Ok(target) => target.bytes,
            Err(errno) => return fail(errno),
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, call, dirfd, index, Last::Parent, |cx, spot| {
                plain_name(cx, spot)?;
                make(cx, spot, Kind::Symlink, 0o777, 0, target)
            })
        }
    }

    /// `unlinkat(dirfd, path, flags)`.
    pub unsafe fn unlinkat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let flags = args[2] as u32;
        if flags & !abi::AT_REMOVEDIR != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { self.remove_at(thread, (abi::__NR_unlinkat, args), args[0], 1, flags & abi::AT_REMOVEDIR != 0) }
    }

    /// `unlink(path)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn unlink(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.remove_at(thread, (abi::__NR_unlink, args), CWD, 0, false) }
    }

    /// `rmdir(path)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn rmdir(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.remove_at(thread, (abi::__NR_rmdir, args), CWD, 0, true) }
    }

    unsafe fn remove_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        directory: bool,
    ) -> Outcome {
        let path = call.1[index];
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, call, dirfd, index, Last::Parent, |cx, spot| self.remove_spot(cx, thread, spot, path, directory))
        }
    }

    /// Removes what may not be a proper name, or have a slash behind it; `path` is the call's own.
    ///
    /// # Safety
    /// `path` is null, low, or a NUL-terminated text.
    unsafe fn remove_spot(
        &self,
        cx: &Cx,
        thread: &ThreadState,
        spot: &Spot,
        path: usize,
        directory: bool,
    ) -> base::Result<usize> {
        let (backend, dir, name) = (spot.mount.backend, spot.found.parent, spot.found.name);
        if !spot.is_name() {
            // By the text: at the root of everything `..` is the root itself.
            // SAFETY: the caller's promise.
            let text = unsafe { text::path(path) }.map_or(name, |path| path.bytes);
            let end = text.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
            let start = text[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            return err(match (directory, &text[start..end]) {
                (false, _) => Errno::EISDIR,
                (true, b".") => Errno::EINVAL,
                (true, b"..") => Errno::ENOTEMPTY,
                (true, _) => Errno::EBUSY,
            });
        }
        if directory {
            self.may_remove(cx, spot)?;
            return backend.rmdir(cx, dir, name).map(|()| 0);
        }
        if spot.found.slash {
            let node = backend.lookup(cx, dir, name)?;
            let is_dir = backend.attr(cx, node)?.kind == Kind::Directory;
            return err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        if self.kernel_covers(spot.mount) {
            self.may_remove(cx, spot)?;
        }
        if self.has_objects.load(Relaxed) {
            return self.unlink_with_object(cx, thread, spot);
        }
        backend.unlink(cx, dir, name)?;
        self.remove_gone(cx, thread, spot.mount);
        Ok(0)
    }

    /// As `unlink`, in a process that has opened or bound objects of the kernel's behind nodes: with them.
    #[cold]
    fn unlink_with_object(&self, cx: &Cx, thread: &ThreadState, spot: &Spot) -> base::Result<usize> {
        let (backend, dir, name) = (spot.mount.backend, spot.found.parent, spot.found.name);
        let known = backend.lookup(cx, dir, name).and_then(|node| Ok((node, backend.attr(cx, node)?)));
        backend.unlink(cx, dir, name)?;
        if let Ok((node, attr)) = known
            && !matches!(attr.kind, Kind::Regular | Kind::Directory | Kind::Symlink)
            && attr.nlink <= 1
        {
            self.remove_object(thread, spot.mount, node, attr.kind);
        }
        Ok(0)
    }

    /// `readlinkat(dirfd, path, out, len)`.
    pub unsafe fn readlinkat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.readlink_at(thread, (abi::__NR_readlinkat, args), args[0], 1, args[2], args[3]) }
    }

    /// `readlink(path, out, len)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn readlink(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.readlink_at(thread, (abi::__NR_readlink, args), CWD, 0, args[1], args[2]) }
    }

    unsafe fn readlink_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        out: usize,
        len: usize,
    ) -> Outcome {
        if len as i32 <= 0 {
            return fail(Errno::EINVAL);
        }
        let len = len as u32 as usize;
        // SAFETY: the caller's promise, of `out` too.
        let seen = unsafe {
            self.at_found(thread, dirfd, call.1[index], Last::NoFollow, |cx, backend, node| {
                link_text(cx, backend, node, out, len)
            })
        };
        if let Some(outcome) = seen {
            return outcome;
        }
        // SAFETY: the caller's promise.
        if let Some(handle) = unsafe { self.lower_handle(dirfd, call.1[index], false) } {
            // SAFETY: the caller's promise; the kernel looks at it.
            let out = unsafe { UserSlice::new(out as *mut u8, len) };
            return done(handle.and_then(|handle| match handle.target(out) {
                // Of a handle, what is no symlink has no name.
                Err(Errno::ENOENT) => err(Errno::EINVAL),
                other => Ok(other?),
            }));
        }
        // SAFETY: the caller's promise.
        if let Ok(path) = unsafe { text::path(call.1[index]) } {
            if path.bytes.is_empty() && call.0 == abi::__NR_readlinkat {
                // The symlink that an `O_PATH | O_NOFOLLOW` descriptor holds.
                return self.on_any(thread, dirfd, |cx, file| {
                    if file.entry.kind() != Kind::Symlink {
                        return err(Errno::ENOENT);
                    }
                    // SAFETY: the caller's promise.
                    unsafe { link_text(cx, file.mount.backend, file.node, out, len) }
                });
            }
            if let Some(file) = self.descriptor_link(dirfd, path.bytes) {
                return done(self.shown_path_of(&self.cx(thread), thread, &file).and_then(|text| {
                    if bad(out) {
                        return err(Errno::EFAULT);
                    }
                    // SAFETY: the caller's promise.
                    Ok(pm::user::copy(UserSlice::from_ref(text), unsafe { UserSlice::new(out as *mut u8, len) })?)
                }));
            }
            if let Some((fd, b"")) = descriptor_name(path.bytes) {
                // SAFETY: no walk through the kernel's namespace is going on in this thread.
                let [name, ..] = unsafe { &mut *thread.room().outside.get() };
                if let Some(bytes) = self.object_link(thread, fd as usize, name) {
                    if bad(out) {
                        return fail(Errno::EFAULT);
                    }
                    // SAFETY: the caller's promise.
                    let out = unsafe { UserSlice::new(out as *mut u8, len) };
                    return done(pm::user::copy(UserSlice::from_ref(&name[..bytes]), out).map_err(Error::Posix));
                }
            }
            if let Some(program) = self.program(&self.cx(thread), thread, path.bytes) {
                if bad(out) {
                    return fail(Errno::EFAULT);
                }
                // SAFETY: the caller's promise.
                let out = unsafe { UserSlice::new(out as *mut u8, len) };
                return done(pm::user::copy(UserSlice::from_ref(program.told()), out).map_err(Error::Posix));
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, call, dirfd, index, Last::NoFollow, |cx, spot| {
                let node = spot.node(cx)?;
                link_text(cx, spot.mount.backend, node, out, len)
            })
        }
    }
}

impl Process {
    /// What of ours the link at a path stands for: a descriptor, or the working directory.
    fn descriptor_link(&self, dirfd: usize, path: &[u8]) -> Option<OpenFile<'_>> {
        if path.first().is_some_and(u8::is_ascii_digit) && self.directory(dirfd).is_none() {
            return self.listed_descriptor(dirfd, path);
        }
        // `/dev/stdin` is a link to such a link.
        if path.ends_with(b"/") || path.starts_with(b"/dev/std") {
            return None;
        }
        match descriptor_name(path)? {
            (fd, b"") => self.open_file(self.descriptors.get(fd)?),
            _ => None,
        }
    }
}

/// # Safety
/// `out` is [bad](crate::bad_pointer) or writable for `len` bytes.
unsafe fn link_text(cx: &Cx, backend: &dyn vfs::Backend, node: Node, out: usize, len: usize) -> base::Result<usize> {
    if backend.attr(cx, node)?.kind != Kind::Symlink {
        return err(Errno::EINVAL);
    }
    if bad(out) {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    backend.readlink(cx, node, unsafe { UserSlice::new(out as *mut u8, len) })
}
