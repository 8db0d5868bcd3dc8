//! Calls with two paths: link and rename.
//!
//! Both are resolved; where one is ours and the other the
//! kernel's, the call fails as it does between two file systems, in the kernel's order.

use super::plain_name;
use crate::handle::{done, err, fail};
#[cfg(target_arch = "x86_64")]
use crate::path::CWD;
use crate::path::{OpenFile, Place, Spot};
use crate::protected::HARDLINKS;
use crate::text;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind, Last, Node, RenameMode};
use pm::Errno;
use pm::sys::abi;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
/// The kernel knows it, we do not.
const WHITEOUT: u32 = 4;

/// Why a file of the kernel's, or of another mount, can't have this name.
fn link_here(cx: &Cx, spot: &Spot) -> base::Result<()> {
    plain_name(cx, spot)?;
    match spot.mount.backend.lookup(cx, spot.found.parent, spot.found.name) {
        Ok(_) => err(Errno::EEXIST),
        Err(Error::Posix(Errno::ENOENT)) => err(Errno::EXDEV),
        Err(error) => Err(error),
    }
}

/// What was found and is gone by the time that it is needed was not there.
fn gone(error: Error) -> Error {
    if error == Error::Posix(Errno::ESTALE) { Error::Posix(Errno::ENOENT) } else { error }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// As [`gone`], of a path, which may lead into a file system that answers everything so.
    fn gone_or_refused(&self, error: Error) -> Error {
        if error == Error::Posix(Errno::ESTALE) { self.never_there().into() } else { error }
    }

    /// `linkat(dirfd, path, dirfd, path, flags)`.
    pub unsafe fn linkat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let flags = args[4] as u32;
        if flags & !(abi::AT_SYMLINK_FOLLOW | abi::AT_EMPTY_PATH) != 0 {
            return fail(Errno::EINVAL);
        }
        let follow = flags & abi::AT_SYMLINK_FOLLOW != 0;
        // SAFETY: the caller's promise.
        let empty = unsafe { Self::empty_path(args[1], args[4], false) };
        let source = if empty { self.directory(args[0]) } else { None };
        if empty && source.is_none() && !self.door.has_kernel() {
            return Outcome::Kernel;
        }
        let last = if follow { Last::Follow } else { Last::NoFollow };
        // SAFETY: the caller's promise.
        unsafe { self.link_at(thread, (abi::__NR_linkat, args), (args[0], 1), (args[2], 3), last, source) }
    }

    /// `link(path, path)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn link(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.link_at(thread, (abi::__NR_link, args), (CWD, 0), (CWD, 1), Last::NoFollow, None) }
    }

    unsafe fn link_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        from: (usize, usize),
        to: (usize, usize),
        last: Last,
        source: Option<OpenFile>,
    ) -> Outcome {
        let cx = self.cx(thread);
        if let Some(file) = source {
            if !cx.cred.privileged && !file.entry.path_only() {
                return fail(Errno::ENOENT);
            }
            // SAFETY: the caller's promise.
            return match unsafe { self.resolve(&cx, thread, 1, to.0, call.1[to.1], Last::Parent) } {
                Ok(Place::Ours(spot)) => done(self.link_ours(&cx, file.slot, file.node, &spot)),
                Ok(_) => fail(Errno::EXDEV),
                Err(error) => fail(error.errno()),
            };
        }
        let cx = &cx;
        // SAFETY: the caller's promise.
        let from_place = match unsafe { self.resolve(cx, thread, 0, from.0, call.1[from.1], last) } {
            Ok(place) => place,
            Err(error) => return fail(error.errno()),
        };
        if let Place::Ours(spot) = &from_place
            && let Err(error) = spot.node(cx)
        {
            return fail(error.errno());
        }
        // SAFETY: the caller's promise.
        let to_place = match unsafe { self.resolve(cx, thread, 1, to.0, call.1[to.1], Last::Parent) } {
            Ok(place) => place,
            Err(error) if matches!(from_place, Place::Ours(_)) => return fail(error.errno()),
            Err(error) => {
                let source = self.kernel_has(from.0, call.1[from.1], &from_place, last);
                return fail(source.err().unwrap_or(error.errno()));
            }
        };
        // SAFETY: the caller's promise.
        match unsafe { self.both(cx, thread, call.1, (from, from_place, last), (to, to_place)) } {
            (Place::Ours(source), Place::Ours(spot)) => {
                done(source.node(cx).and_then(|node| self.link_ours(cx, source.slot, node, &spot)))
            }
            (from_place, Place::Ours(spot)) if spot.mount.is_kernels => {
                let flags = if call.0 == abi::__NR_linkat { call.1[4] } else { 0 };
                let path = if let Place::Text(text) = from_place { text } else { call.1[from.1] };
                done(self.link_from_kernel(cx, [from.0, path, flags], &spot))
            }
            (from_place, Place::Ours(spot)) => match self.kernel_has(from.0, call.1[from.1], &from_place, last) {
                Err(errno) => fail(errno),
                Ok(()) => done(link_here(cx, &spot).map(|()| 0)),
            },
            (Place::Ours(_), to_place) => fail(self.link_away(thread, to.0, call.1[to.1], &to_place)),
            (from_place, to_place) => rewritten(call, (from.1, from_place), (to.1, to_place)),
        }
    }

    fn link_ours(&self, cx: &Cx, slot: usize, node: Node, spot: &Spot) -> base::Result<usize> {
        plain_name(cx, spot)?;
        if slot != spot.slot {
            return link_here(cx, spot).map(|()| 0);
        }
        if !cx.cred.privileged {
            self.may_link(cx, node, spot).map_err(gone)?;
        }
        let linked = spot.mount.backend.link(cx, node, spot.found.parent, spot.found.name);
        linked.map(|()| 0).map_err(|error| self.gone_or_refused(error))
    }

    /// A file of the kernel's, such as one that has been opened in a mount of its files, gets a name there.
    #[cold]
    fn link_from_kernel(&self, cx: &Cx, [dirfd, path, flags]: [usize; 3], spot: &Spot) -> base::Result<usize> {
        // The handle must not be found where the program has closed a number.
        if dirfd as i32 != abi::AT_FDCWD && !self.kernel_open(dirfd) {
            return err(Errno::EBADF);
        }
        plain_name(cx, spot)?;
        let (backend, dir) = (spot.mount.backend, spot.found.parent);
        let handle = backend.kernel_files().handle_below(dir, b"", false).ok_or(Errno::EXDEV)??;
        let mut name = [0u8; 256];
        name[..255].get_mut(..spot.found.name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(spot.found.name);
        let args = [dirfd, path, handle.number() as usize, name.as_ptr() as usize, flags, 0];
        // SAFETY: the program's own path, or a text of ours, and a NUL-terminated name.
        pm::sys::check(unsafe { self.door.kernel(abi::__NR_linkat as usize, args) })?;
        // That there was no such name is forgotten.
        backend.lookup(cx, dir, spot.found.name).map(|_| 0)
    }

    /// The kernel's `protected_hardlinks`: on a file of somebody else only if
    /// the caller could do as much without the link.
    fn may_link(&self, cx: &Cx, node: Node, spot: &Spot) -> base::Result<()> {
        let backend = spot.mount.backend;
        let attr = backend.attr(cx, node)?;
        let is_owner = attr.uid == cx.cred.uid || cx.cred.is_privileged_over(attr.uid, attr.gid);
        if is_owner || self.protected.get(&self.protected.hardlinks, HARDLINKS) == 0 {
            return Ok(());
        }
        match backend.lookup(cx, spot.found.parent, spot.found.name) {
            Ok(_) => return err(Errno::EEXIST),
            Err(Error::Posix(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        let set_id = attr.mode & 0o4000 != 0 || attr.mode & 0o2010 == 0o2010;
        if attr.kind != Kind::Regular || set_id || backend.access(cx, node, base::R | base::W).is_err() {
            return err(Errno::EPERM);
        }
        Ok(())
    }

    /// Whether a path that is the kernel's exists there.
    fn kernel_has(&self, dirfd: usize, path: usize, place: &Place, last: Last) -> Result<(), Errno> {
        let path = if let Place::Text(text) = place { *text } else { path };
        let flags = if last == Last::Follow { 0 } else { abi::AT_SYMLINK_NOFOLLOW };
        // SAFETY: the program's own arguments, or a text of ours.
        let result = unsafe { self.door.kernel(abi::__NR_faccessat2 as usize, [dirfd, path, 0, flags as usize, 0, 0]) };
        pm::sys::check(result).map(|_| ())
    }

    /// Why a file of ours can't have a name of the kernel's.
    fn link_away(&self, thread: &ThreadState, dirfd: usize, path: usize, place: &Place) -> Errno {
        if self.kernel_has(dirfd, path, place, Last::NoFollow).is_ok() {
            return Errno::EEXIST;
        }
        let text = if let Place::Text(text) = place { *text } else { path };
        // SAFETY: the program's own argument, or a text of ours.
        if unsafe { text::path(text) }.is_ok_and(|path| path.bytes.ends_with(b"/")) {
            return Errno::ENOENT;
        }
        self.kernel_parent(thread, dirfd, path, place).err().unwrap_or(Errno::EXDEV)
    }

    /// Whether the directory in which a path of the kernel's ends exists there.
    fn kernel_parent(&self, thread: &ThreadState, dirfd: usize, path: usize, place: &Place) -> Result<(), Errno> {
        let path = if let Place::Text(text) = place { *text } else { path };
        // SAFETY: the program's own argument, or a text of ours.
        let mut path = unsafe { text::path(path) }?.bytes;
        while let [head @ .., b'/'] = path {
            path = head;
        }
        let end = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let room = unsafe { &mut *thread.room().outside.get() }.as_flattened_mut();
        room[..end].copy_from_slice(&path[..end]);
        room[end..end + 2].copy_from_slice(b".\0");
        // SAFETY: a NUL-terminated text.
        let result = unsafe { self.door.kernel(abi::__NR_faccessat as usize, [dirfd, room.as_ptr() as usize, 0, 0, 0, 0]) };
        pm::sys::check(result).map(|_| ())
    }

    /// `renameat2(dirfd, path, dirfd, path, flags)`.
    pub unsafe fn renameat2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.rename_at(thread, (abi::__NR_renameat2, args), (args[0], 1), (args[2], 3), args[4] as u32) }
    }

    /// `renameat(dirfd, path, dirfd, path)`.
    pub unsafe fn renameat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.rename_at(thread, (abi::__NR_renameat, args), (args[0], 1), (args[2], 3), 0) }
    }

    /// `rename(path, path)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn rename(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.rename_at(thread, (abi::__NR_rename, args), (CWD, 0), (CWD, 1), 0) }
    }

    unsafe fn rename_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        from: (usize, usize),
        to: (usize, usize),
        flags: u32,
    ) -> Outcome {
        if flags & !7 != 0 || flags & RENAME_EXCHANGE != 0 && flags != RENAME_EXCHANGE {
            return fail(Errno::EINVAL);
        }
        let mode = match flags & !WHITEOUT {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            _ => RenameMode::Exchange,
        };
        let cx = &self.cx(thread);
        // SAFETY: the caller's promise.
        let from_place = match unsafe { self.resolve(cx, thread, 0, from.0, call.1[from.1], Last::Parent) } {
            Ok(place) => place,
            Err(error) => return fail(error.errno()),
        };
        // SAFETY: the caller's promise.
        let to_place = match unsafe { self.resolve(cx, thread, 1, to.0, call.1[to.1], Last::Parent) } {
            Ok(place) => place,
            Err(error) => return fail(error.errno()),
        };
        // SAFETY: the caller's promise.
        let (from_place, to_place) = unsafe { self.both(cx, thread, call.1, (from, from_place, Last::Parent), (to, to_place)) };
        match (from_place, to_place) {
            // The kernel knows whiteouts, we do not.
            (Place::Ours(_), _) | (_, Place::Ours(_)) if flags & WHITEOUT != 0 => fail(Errno::EINVAL),
            (Place::Ours(from), Place::Ours(to)) => done(self.rename_ours(cx, thread, &from, &to, mode)),
            (Place::Ours(_), place) => fail(self.kernel_parent(thread, to.0, call.1[to.1], &place).err().unwrap_or(Errno::EXDEV)),
            (place, Place::Ours(_)) => {
                fail(self.kernel_parent(thread, from.0, call.1[from.1], &place).err().unwrap_or(Errno::EXDEV))
            }
            (from_place, to_place) => rewritten(call, (from.1, from_place), (to.1, to_place)),
        }
    }

    /// Where one path of two is ours and the other seems not to be: the other is
    /// looked at more closely, as the kernel will not fail for us to see.
    unsafe fn both<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        args: [usize; 6],
        (from, from_place, last): ((usize, usize), Place<'a>, Last),
        (to, to_place): ((usize, usize), Place<'a>),
    ) -> (Place<'a>, Place<'a>) {
        match (from_place, to_place) {
            (Place::Kernel, ours @ Place::Ours(_)) => {
                // SAFETY: the caller's promise.
                let from_place = unsafe { self.closely(cx, thread, 0, from.0, args[from.1], last) };
                (from_place, ours)
            }
            (ours @ Place::Ours(_), Place::Kernel) => {
                // SAFETY: the caller's promise.
                let to_place = unsafe { self.closely(cx, thread, 1, to.0, args[to.1], Last::Parent) };
                (ours, to_place)
            }
            places => places,
        }
    }

    #[cold]
    unsafe fn closely<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        dirfd: usize,
        path: usize,
        last: Last,
    ) -> Place<'a> {
        let before = thread.retry.replace(true);
        // SAFETY: the caller's promise.
        let place = unsafe { self.resolve(cx, thread, which, dirfd, path, last) };
        thread.retry.set(before);
        place.unwrap_or(Place::Kernel)
    }

    fn rename_ours(&self, cx: &Cx, thread: &ThreadState, from: &Spot, to: &Spot, mode: RenameMode) -> base::Result<usize> {
        if from.slot != to.slot {
            return err(Errno::EXDEV);
        }
        if !from.is_name() {
            return err(Errno::EBUSY);
        }
        if !to.is_name() {
            return err(if mode == RenameMode::NoReplace { Errno::EEXIST } else { Errno::EBUSY });
        }
        if from.found.slash || to.found.slash {
            self.rename_slashes(cx, from, to, mode)?;
        }
        self.may_rename(cx, from, to, mode)?;
        let (from_name, to_name) = (from.found.name, to.found.name);
        let renamed = from.mount.backend.rename(cx, from.found.parent, from_name, to.found.parent, to_name, mode);
        self.remove_gone(cx, thread, from.mount);
        renamed.map(|()| 0).map_err(|error| self.gone_or_refused(error))
    }

    /// A trailing slash asks for directories.
    #[cold]
    fn rename_slashes(&self, cx: &Cx, from: &Spot, to: &Spot, mode: RenameMode) -> base::Result<()> {
        let backend = from.mount.backend;
        let source = backend.lookup(cx, from.found.parent, from.found.name)?;
        let source_dir = backend.attr(cx, source)?.kind == Kind::Directory;
        let target = match backend.lookup(cx, to.found.parent, to.found.name) {
            Ok(node) => Some(backend.attr(cx, node)?.kind == Kind::Directory),
            Err(Error::Posix(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        let exchange = mode == RenameMode::Exchange;
        match target {
            Some(_) if mode == RenameMode::NoReplace => return err(Errno::EEXIST),
            None if exchange => return err(Errno::ENOENT),
            None if backend.attr(cx, to.found.parent)?.nlink == 0 => return err(Errno::ENOENT),
            Some(false) if exchange && to.found.slash => return err(Errno::ENOTDIR),
            _ => {}
        }
        if !source_dir && (from.found.slash || to.found.slash && !exchange) {
            return err(Errno::ENOTDIR);
        }
        Ok(())
    }
}

/// A call with two paths of the kernel's, one or both of them rewritten.
fn rewritten(call: (u32, [usize; 6]), from: (usize, Place), to: (usize, Place)) -> Outcome {
    let (nr, mut args) = call;
    let mut changed = false;
    for (index, place) in [from, to] {
        if let Place::Text(text) = place {
            args[index] = text;
            changed = true;
        }
    }
    if changed { Outcome::KernelWith { nr: nr as usize, args } } else { Outcome::Kernel }
}
