//! `open` in all its forms.

use super::{ATTEMPTS, done, err, fail};
use crate::descriptors::Entry;
use crate::path::{CWD, Place, Spot};
use crate::protected::{FIFOS, REGULAR};
use crate::{Outcome, Process, ThreadState};
use base::{Attr, Cx, DescriptionId, Error, Kind, Last, NewNode, Node, R, SetAttr, W};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;
use vfs::cached::KernelOpen;

pub(super) const TMPFILE: u32 = abi::O_TMPFILE & !abi::O_DIRECTORY;
const ACCESS: u32 = abi::O_ACCMODE;
/// What only matters while opening; the rest is what `F_GETFL` reports.
pub(super) const ONCE: u32 = abi::O_CREAT | abi::O_EXCL | abi::O_NOCTTY | abi::O_TRUNC | abi::O_CLOEXEC;
/// All that `O_PATH` leaves of the others.
const WITH_PATH: u32 = abi::O_DIRECTORY | abi::O_NOFOLLOW | abi::O_PATH | abi::O_CLOEXEC;
/// Everything `open` knows; it ignores the rest.
const KNOWN: u32 = ACCESS
    | ONCE
    | WITH_PATH
    | TMPFILE
    | abi::O_APPEND
    | abi::O_NONBLOCK
    | abi::O_SYNC
    | abi::O_DSYNC
    | abi::FASYNC
    | abi::O_DIRECT
    | abi::O_LARGEFILE
    | abi::O_NOATIME;
pub(super) use base::CREATED;
/// The kernel adds it to every open of a 64-bit program.
#[cfg(target_arch = "x86_64")]
pub(crate) const LARGEFILE: u32 = 0x8000;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const LARGEFILE: u32 = abi::O_LARGEFILE;

/// What came of looking for the node to open.
enum Opened {
    /// Number of the new descriptor.
    Descriptor(usize),
    /// A FIFO or device: the kernel opens the object at this text instead.
    Special(usize),
}

/// The flags in order, or why the kernel would not have them.
#[inline]
fn checked(flags: u32) -> Result<u32, Errno> {
    let flags = flags & KNOWN;
    if flags & abi::O_PATH != 0 {
        return Ok(flags & WITH_PATH);
    }
    if flags & TMPFILE != 0 {
        if flags & (abi::O_TMPFILE | abi::O_CREAT) != abi::O_TMPFILE || flags & ACCESS == abi::O_RDONLY {
            return Err(Errno::EINVAL);
        }
    } else if flags & (abi::O_CREAT | abi::O_DIRECTORY) == abi::O_CREAT | abi::O_DIRECTORY {
        return Err(Errno::EINVAL);
    }
    Ok(flags | LARGEFILE)
}

/// Rights that these flags ask for.
#[inline]
fn wanted(flags: u32) -> u16 {
    let access = match flags & ACCESS {
        abi::O_RDONLY => R,
        abi::O_WRONLY => W,
        _ => R | W,
    };
    if flags & abi::O_TRUNC != 0 { access | W } else { access }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `openat(dirfd, path, flags, mode)`.
    pub unsafe fn openat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { self.open_fast(args[0], args[1], args[2] as u32) } {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        unsafe { self.openat_slow(thread, args) }
    }

    /// `openat`, the slow path.
    pub unsafe fn openat_slow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.open_at(thread, (abi::__NR_openat, args), args[0], 1, args[2] as u32, args[3]) }
    }

    /// `open(path, flags, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn open(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.openat(thread, [CWD, args[0], args[1], args[2], 0, 0]) }
    }

    /// `creat(path, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn creat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const FLAGS: u32 = abi::O_CREAT | abi::O_WRONLY | abi::O_TRUNC;
        // SAFETY: the caller's promise.
        unsafe { self.open_at(thread, (abi::__NR_creat, args), CWD, 0, FLAGS, args[1]) }
    }

    /// `openat2`: callers fall back to `openat` where it is not there; ours
    /// would have to keep promises about resolution.
    pub unsafe fn openat2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.at(thread, (abi::__NR_openat2, args), args[0], 1, Last::NoFollow, |_, _| err(Errno::ENOSYS)) }
    }

    unsafe fn open_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        flags: u32,
        mode: usize,
    ) -> Outcome {
        let flags = match checked(flags) {
            Ok(flags) => flags,
            Err(errno) => return fail(errno),
        };
        let exclusive = flags & (abi::O_CREAT | abi::O_EXCL) == abi::O_CREAT | abi::O_EXCL;
        let last = if flags & abi::O_NOFOLLOW != 0 || exclusive { Last::NoFollow } else { Last::Follow };
        let cx = self.cx(thread);
        if flags & abi::O_CREAT != 0
            // SAFETY: the caller's promise.
            && let Some(result) = unsafe { self.make_file(&cx, dirfd, call.1[index], flags, mode) }
        {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        if flags & abi::O_CREAT != 0 && unsafe { ends_in_slash(call.1[index]) } {
            // Refused before the name is looked at.
            // SAFETY: the caller's promise.
            let parent = unsafe {
                self.at_as(cx, thread, call, dirfd, index, Last::Parent, |_, spot| {
                    err(if spot.is_name() { Errno::EISDIR } else { Errno::EEXIST })
                })
            };
            if parent != fail(Errno::EEXIST) {
                return parent;
            }
        }
        // SAFETY: the caller's promise.
        if let Some(opened) = unsafe { self.lower_open(thread, dirfd, call.1[index], flags, mode) } {
            return done(opened);
        }
        // Another process may make or remove the name between look-up and creation.
        for _ in 0..ATTEMPTS {
            // SAFETY: the caller's promise.
            let spot = match unsafe { self.resolve(&cx, thread, 0, dirfd, call.1[index], last) } {
                Ok(Place::Ours(spot)) => spot,
                Ok(Place::Kernel) => return Outcome::Kernel,
                Ok(Place::Text(text)) => {
                    let mut args = call.1;
                    args[index] = text;
                    return Outcome::KernelWith { nr: call.0 as usize, args };
                }
                Err(Error::Posix(Errno::ESTALE)) => continue,
                Err(error) => return fail(error.errno()),
            };
            match self.open_spot(&cx, thread, &spot, flags, mode) {
                Ok(Opened::Descriptor(fd)) => return Outcome::Done(fd as isize),
                Ok(Opened::Special(text)) => {
                    let kept = flags & !(abi::O_CREAT | abi::O_EXCL | abi::O_NOFOLLOW | abi::O_TRUNC);
                    let args = [CWD, text, kept as usize, 0, 0, 0];
                    return Outcome::KernelWith { nr: abi::__NR_openat as usize, args };
                }
                Err(Error::Posix(Errno::EEXIST)) if flags & abi::O_CREAT != 0 && !exclusive => {}
                Err(Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return fail(error.errno()),
            }
        }
        fail(self.never_there())
    }

    #[inline]
    fn open_spot(&self, cx: &Cx, thread: &ThreadState, spot: &Spot, flags: u32, mode: usize) -> base::Result<Opened> {
        let backend = spot.mount.backend;
        if flags & abi::O_CREAT != 0 && spot.found.slash && spot.is_name() {
            return err(Errno::EISDIR);
        }
        if spot.mount.is_kernels
            && let Some(opened) = self.open_in_kernel(spot, flags, mode)
        {
            return opened.map(Opened::Descriptor);
        }
        if flags & TMPFILE != 0 {
            return self.open_unnamed(cx, spot, flags, mode).map(Opened::Descriptor);
        }
        let Some(node) = spot.found.node else {
            if flags & abi::O_CREAT == 0 {
                return err(Errno::ENOENT);
            }
            let new = NewNode { kind: Kind::Regular, mode: mode as u16 & 0o7777, rdev: 0, target: b"" };
            let node = backend.create_absent(cx, spot.found.parent, spot.found.name, &new)?;
            return self.install(cx, spot, node, Kind::Regular, flags & !abi::O_TRUNC | CREATED).map(Opened::Descriptor);
        };
        if flags & (abi::O_CREAT | abi::O_EXCL) == abi::O_CREAT | abi::O_EXCL {
            return err(Errno::EEXIST);
        }
        let attr = backend.attr_found(cx, node)?;
        if flags & abi::O_CREAT != 0 && attr.uid != cx.cred.uid && attr.kind != Kind::Directory {
            self.may_create_over(cx, spot, &attr)?;
        }
        may_open(cx, spot, node, &attr, flags)?;
        if flags & abi::O_PATH == 0 {
            if !matches!(attr.kind, Kind::Regular | Kind::Directory) {
                return self.open_special(cx, thread, spot, node, &attr).map(Opened::Special);
            }
            if wanted(flags) & W != 0 && self.is_executed(cx, spot.mount, node) {
                return err(Errno::ETXTBSY);
            }
        }
        self.install(cx, spot, node, attr.kind, flags).map(Opened::Descriptor)
    }

    /// Makes and opens a file whose place the fast path finds: its number, or a negated error number. `None`: it may be there
    /// already; take the slow path.
    unsafe fn make_file(&self, cx: &Cx, dirfd: usize, path: usize, flags: u32, mode: usize) -> Option<isize> {
        const PLAIN: u32 =
            ACCESS | ONCE | abi::O_APPEND | abi::O_NOFOLLOW | abi::O_NONBLOCK | abi::O_SYNC | abi::O_LARGEFILE | LARGEFILE;
        if flags & !PLAIN != 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        let spot = unsafe { self.parent_fast(dirfd, path) }?;
        let fd = match self.take_number(flags) {
            Ok(fd) => fd,
            Err(errno) => return Some(-(errno.0 as isize)),
        };
        let new = NewNode { kind: Kind::Regular, mode: mode as u16 & 0o7777, rdev: 0, target: b"" };
        let backend = spot.mount.backend;
        let made = backend.create(cx, spot.found.parent, spot.found.name, &new);
        match made.and_then(|node| backend.open(cx, node, kept(flags) | CREATED, fd)) {
            Ok(id) => {
                self.enter(&spot, fd, id, Kind::Regular, flags & abi::O_CLOEXEC != 0, flags);
                Some(fd as isize)
            }
            Err(error) => {
                self.give_number_back(fd);
                let is_there = error == Error::Posix(Errno::EEXIST) && flags & abi::O_EXCL == 0;
                if is_there || error == Error::Posix(Errno::ESTALE) { None } else { Some(-(error.errno().0 as isize)) }
            }
        }
    }

    /// A file of a mount whose files are the kernel's: the program gets the
    /// kernel's own descriptor. `None` for what is opened here (directories).
    #[cold]
    fn open_in_kernel(&self, spot: &Spot, flags: u32, mode: usize) -> Option<base::Result<usize>> {
        let Some(node) = spot.found.node else {
            if flags & abi::O_CREAT == 0 {
                return Some(err(Errno::ENOENT));
            }
            return self.kernel_file(spot, None, flags, mode);
        };
        if flags & (abi::O_CREAT | abi::O_EXCL) == abi::O_CREAT | abi::O_EXCL {
            return Some(err(Errno::EEXIST));
        }
        if spot.found.slash && flags & abi::O_DIRECTORY == 0 {
            return self.kernel_file(spot, Some(node), flags | abi::O_DIRECTORY, mode);
        }
        self.kernel_file(spot, Some(node), flags, mode)
    }

    fn kernel_file(&self, spot: &Spot, node: Option<Node>, flags: u32, mode: usize) -> Option<base::Result<usize>> {
        let open = KernelOpen { dir: spot.found.parent, name: spot.found.name, node, flags, mode: mode as u16 & 0o7777 };
        let mut make = |nr: u32, args: [usize; 6]| {
            // SAFETY: the backend's own arguments, alive during the call.
            unsafe { self.door.kernel(nr as usize, args) }
        };
        spot.mount.backend.kernel_files().open_in_kernel(&open, &mut make)
    }

    /// `O_CREAT` on what somebody else has put into a sticky directory: the
    /// kernel's `protected_regular` and `protected_fifos`.
    #[cold]
    fn may_create_over(&self, cx: &Cx, spot: &Spot, attr: &Attr) -> base::Result<()> {
        let dir = spot.mount.backend.attr(cx, spot.found.parent)?;
        if dir.mode & 0o1000 == 0 || attr.uid == dir.uid {
            return Ok(());
        }
        let level = match attr.kind {
            Kind::Regular => self.protected.get(&self.protected.regular, REGULAR),
            Kind::Fifo => self.protected.get(&self.protected.fifos, FIFOS),
            // No setting frees the others.
            _ => 1,
        };
        if level >= 1 && dir.mode & 0o002 != 0 || level >= 2 && dir.mode & 0o020 != 0 {
            return err(Errno::EACCES);
        }
        Ok(())
    }

    /// Gives an open node a number.
    #[inline]
    pub(crate) fn install(&self, cx: &Cx, spot: &Spot, node: Node, kind: Kind, flags: u32) -> base::Result<usize> {
        let backend = spot.mount.backend;
        let cloexec = flags & abi::O_CLOEXEC != 0;
        let numbers = self.numbers();
        let fd = numbers.take(0, cloexec)?;
        let opened = backend.open(cx, node, flags & !ONCE, fd).and_then(|id| {
            if flags & abi::O_TRUNC != 0 && kind == Kind::Regular {
                let change = SetAttr { size: Some(0), size_checked: true, ..SetAttr::default() };
                if let Err(error) = backend.set_attr(cx, node, &change) {
                    backend.close(cx, fd);
                    return Err(error);
                }
            }
            Ok(id)
        });
        match opened {
            Ok(id) => {
                self.enter(spot, fd, id, kind, cloexec, flags);
                Ok(fd as usize)
            }
            Err(error) => {
                numbers.give_back(fd);
                Err(error)
            }
        }
    }

    #[inline]
    fn enter(&self, spot: &Spot, fd: u32, id: DescriptionId, kind: Kind, cloexec: bool, flags: u32) {
        // Where `/proc/self/fd/N` looks for its name.
        spot.mount.description(id).parent.store(spot.found.parent.id, Relaxed);
        self.descriptors.put(fd, Entry::new(spot.slot, id, kind, cloexec, flags & abi::O_PATH != 0).with_access(flags));
    }

    #[cold]
    fn open_unnamed(&self, cx: &Cx, spot: &Spot, flags: u32, mode: usize) -> base::Result<usize> {
        let backend = spot.mount.backend;
        let dir = spot.found.node.ok_or(Error::Posix(Errno::ENOENT))?;
        if backend.attr(cx, dir)?.kind != Kind::Directory {
            return err(Errno::ENOTDIR);
        }
        let numbers = self.numbers();
        let cloexec = flags & abi::O_CLOEXEC != 0;
        let fd = numbers.take(0, cloexec)?;
        match backend.tmpfile(cx, dir, mode as u16 & 0o7777, flags, fd) {
            Ok(id) => {
                backend.description(id).flags.store(kept(flags), Relaxed);
                self.enter(spot, fd, id, Kind::Regular, cloexec, flags);
                Ok(fd as usize)
            }
            Err(error) => {
                numbers.give_back(fd);
                Err(error)
            }
        }
    }
}

/// What a description keeps of the flags that it was opened with, but for `O_PATH`.
pub(crate) fn kept(flags: u32) -> u32 {
    (flags & !ONCE) | LARGEFILE
}

/// # Safety
/// `pointer` is [bad](crate::bad_pointer) or a NUL-terminated text.
unsafe fn ends_in_slash(pointer: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { crate::text::path(pointer) }.is_ok_and(|path| path.bytes.ends_with(b"/"))
}

/// The kernel's `may_open`, in its order.
#[inline]
fn may_open(cx: &Cx, spot: &Spot, node: Node, attr: &Attr, flags: u32) -> base::Result<()> {
    let directory = attr.kind == Kind::Directory;
    if flags & abi::O_CREAT != 0 && directory {
        return err(Errno::EISDIR);
    }
    if !directory && (flags & abi::O_DIRECTORY != 0 || spot.found.slash) {
        return err(Errno::ENOTDIR);
    }
    if flags & abi::O_PATH != 0 {
        return Ok(());
    }
    if attr.kind == Kind::Symlink {
        return err(Errno::ELOOP);
    }
    let want = wanted(flags);
    if directory && want & W != 0 {
        return err(Errno::EISDIR);
    }
    spot.mount.backend.permits(cx, node, want)?;
    if flags & abi::O_NOATIME != 0 && cx.cred.uid != attr.uid && !cx.cred.is_privileged_over(attr.uid, attr.gid) {
        return err(Errno::EPERM);
    }
    Ok(())
}
