//! `open` in all its forms.

use super::{ATTEMPTS, done, err, fail};
use crate::descriptors::Entry;
use crate::path::{CWD, Place, Spot};
use crate::protected::{FIFOS, REGULAR};
use crate::{Outcome, Process, ThreadState};
use base::{Attr, Caller, Cx, DescriptionId, Error, Kind, Last, NewNode, Node, Opening, R, SetAttr, W};
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
/// The kernel adds it to every open of a 64-bit program.
#[cfg(target_arch = "x86_64")]
const LARGEFILE: u32 = 0x8000;
#[cfg(not(target_arch = "x86_64"))]
const LARGEFILE: u32 = abi::O_LARGEFILE;

/// What an `open` that is only for reading may say.
const FOR_READING: u32 =
    abi::O_CLOEXEC | abi::O_DIRECTORY | abi::O_NOFOLLOW | abi::O_NONBLOCK | abi::O_NOCTTY | abi::O_LARGEFILE | LARGEFILE;

/// What an `open` of a file may say that is only for reading.
const READ_FILE: u32 = FOR_READING & !abi::O_DIRECTORY;

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
    /// Whether [`Process::quick_open`] may do for these flags.
    #[inline(always)]
    pub const fn may_be_there(flags: u32) -> bool {
        flags & !(READ_FILE | ACCESS | abi::O_CREAT | abi::O_APPEND | abi::O_SYNC) == 0
    }

    /// An `open` of a file that is there, for a plain path: a number or a negated error
    /// number. `None`: do it properly. `thread` is only asked where something rare has to be done. `NUMBERED`: it is known that
    /// the process has numbers of its own.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub unsafe fn quick_open<'t, const NUMBERED: bool>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        dirfd: usize,
        path: usize,
        flags: u32,
    ) -> Option<isize> {
        if !Self::may_be_there(flags) {
            return None;
        }
        if !self.mounts.is_flat() {
            // SAFETY: the caller's promise.
            return unsafe { self.quick_open_between::<NUMBERED>(thread(), dirfd, path, flags) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.open_file_seen::<false, NUMBERED>(thread, dirfd, path, flags) }
    }

    /// As [`Process::quick_open`], where something is mounted inside another mount.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[cold]
    #[inline(never)]
    unsafe fn quick_open_between<const NUMBERED: bool>(
        &self,
        thread: &ThreadState,
        dirfd: usize,
        path: usize,
        flags: u32,
    ) -> Option<isize> {
        // SAFETY: the caller's promise.
        unsafe { self.open_file_seen::<true, NUMBERED>(|| thread, dirfd, path, flags) }
    }

    /// As [`Process::quick_open`], in a [nested](vfs::mount::MountTable::is_flat) namespace or another.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    unsafe fn open_file_seen<'t, const NESTED: bool, const NUMBERED: bool>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        dirfd: usize,
        path: usize,
        flags: u32,
    ) -> Option<isize> {
        let plain = flags & !READ_FILE == 0;
        let decide = |word: u32, uid: u32| {
            const READABLE: u32 = (Kind::Regular as u32) << 16 | 0o444;
            const OWN: u32 = (Kind::Regular as u32) << 16 | 0o600;
            // What everybody may read, everybody may. And what somebody writes is his own as a rule, and his to read and write.
            let usual = plain && word & (0xff_0000 | 0o444) == READABLE
                || word & (0xff_0000 | 0o600) == OWN && self.credentials.caller().uid == uid && flags & ACCESS != ACCESS;
            usual.then_some(Kind::Regular)
        };
        // SAFETY: the caller's promise.
        unsafe { self.open_seen::<NESTED, NUMBERED>(thread, dirfd, path, flags, !plain, decide) }
    }

    /// As [`Process::quick_open`], of what is opened less often: directories, to be read, and files that one may open by
    /// another right than those that it knows, as everybody, their owner or the superuser.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    unsafe fn quick_open_other(&self, thread: &ThreadState, dirfd: usize, path: usize, flags: u32) -> Option<isize> {
        let (file, directory) = (Self::may_be_there(flags), flags & !FOR_READING == 0);
        if !file && !directory {
            return None;
        }
        let decide = |word: u32, uid: u32| {
            let kind = match Kind::from_dt((word >> 16) as u8) {
                Some(Kind::Regular) if file => Kind::Regular,
                Some(Kind::Directory) if directory => Kind::Directory,
                _ => return None,
            };
            may_open_seen(self.credentials.caller(), word, uid, flags).then_some(kind)
        };
        // SAFETY: the caller's promise.
        unsafe { self.open_seen::<true, false>(|| thread, dirfd, path, flags, flags & ACCESS != abi::O_RDONLY, decide) }
    }

    /// Opens what a glance finds, if `decide` says of its mode word and owner, as what kind; where `writable` is asked for,
    /// only in an image that may be changed.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    unsafe fn open_seen<'t, const NESTED: bool, const NUMBERED: bool>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        dirfd: usize,
        path: usize,
        flags: u32,
        writable: bool,
        decide: impl FnOnce(u32, u32) -> Option<Kind>,
    ) -> Option<isize> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, path) }?;
        let opening = mount.glance_open::<NESTED>(
            &self.mounts,
            || self.credentials.caller(),
            (base, path),
            writable,
            #[inline(always)]
            |word, uid| {
                let kind = decide(word, uid)?;
                Some((kind, kept(flags & KNOWN), self.take_number::<NUMBERED>(flags).ok()?))
            },
            || self.cx(thread()),
        );
        match opening {
            Opening::Open(id, kind, fd) => {
                self.descriptors.put_new(fd, Entry::opened(mount.slot, id, kind, flags));
                Some(fd as isize)
            }
            Opening::Absent if flags & abi::O_CREAT == 0 => Some(-(Errno::ENOENT.0 as isize)),
            Opening::Unused(fd) => {
                self.give_number_back(fd);
                None
            }
            _ => None,
        }
    }

    /// An `open` that makes a file at a plain path: a number or a negated error number. `None`: do it properly.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub unsafe fn quick_create<const NUMBERED: bool>(
        &self,
        thread: &ThreadState,
        dirfd: usize,
        path: usize,
        flags: u32,
        mode: usize,
    ) -> Option<isize> {
        const PLAIN: u32 =
            ACCESS | ONCE | abi::O_APPEND | abi::O_NOFOLLOW | abi::O_NONBLOCK | abi::O_SYNC | abi::O_LARGEFILE | LARGEFILE;
        if flags & !PLAIN != 0 || flags & abi::O_CREAT == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        let named = unsafe { self.glance_parent(dirfd, path) }?;
        let cx = self.cx(thread);
        // Of the flags nothing is worked out before it is needed: they are kept as they are.
        let fd = match self.take_number::<NUMBERED>(flags) {
            Ok(fd) => fd,
            Err(errno) => return Some(-(errno.0 as isize)),
        };
        let new = NewNode { kind: Kind::Regular, mode: mode as u16 & 0o7777, rdev: 0, target: b"" };
        let (node, opened) = match named.mount.create_open(named.native, &cx, named.dir, named.name, &new, (|| kept(flags), fd)) {
            Ok(made) => made,
            Err(error) => return self.not_made(fd, flags, error),
        };
        if let Some((id, description)) = opened {
            description.parent.store(named.dir.id, Relaxed);
            self.descriptors.put_new(fd, Entry::opened(named.mount.slot, id, Kind::Regular, flags));
            return Some(fd as isize);
        }
        self.open_made(cx.copied(), named.spot(), node, fd, flags)
    }

    /// Opens a file just made, where not all that it takes is at hand.
    #[cold]
    #[inline(never)]
    fn open_made(&self, cx: Cx, spot: Spot, node: Node, fd: u32, flags: u32) -> Option<isize> {
        let kept = kept(flags);
        match spot.mount.open(&cx, node, kept, fd) {
            Ok(id) => {
                self.enter(&spot, fd, id, Kind::Regular, flags & abi::O_CLOEXEC != 0, kept);
                Some(fd as isize)
            }
            Err(error) => self.not_made(fd, flags, error),
        }
    }

    /// A file could not be made or opened.
    #[cold]
    #[inline(never)]
    fn not_made(&self, fd: u32, flags: u32, error: Error) -> Option<isize> {
        self.give_number_back(fd);
        let exclusive = flags & abi::O_EXCL != 0;
        // What is there is opened properly; what is gone is looked for once more.
        let again = matches!(error, Error::Posix(Errno::ESTALE)) || error == Error::Posix(Errno::EEXIST) && !exclusive;
        if again { None } else { Some(-(error.errno().0 as isize)) }
    }

    /// `openat(dirfd, path, flags, mode)`.
    #[inline(always)]
    pub unsafe fn openat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { self.quick_open::<false>(|| thread, args[0], args[1], args[2] as u32) } {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        unsafe { self.openat_or_make(thread, args) }
    }

    /// `openat`, where a glance has not found what there is.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn openat_or_make(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { self.quick_create::<false>(thread, args[0], args[1], args[2] as u32, args[3]) } {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { self.quick_open_other(thread, args[0], args[1], args[2] as u32) } {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        unsafe { self.openat_slow(thread, args) }
    }

    /// `openat`, where neither [`Process::quick_open`] nor [`Process::quick_create`] does.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[cold]
    #[inline(never)]
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

    #[inline(always)]
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
            return self.install(cx, spot, node, Kind::Regular, flags & !abi::O_TRUNC).map(Opened::Descriptor);
        };
        if flags & (abi::O_CREAT | abi::O_EXCL) == abi::O_CREAT | abi::O_EXCL {
            return err(Errno::EEXIST);
        }
        let attr = backend.attr(cx, node)?;
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
        spot.mount.backend.open_in_kernel(&open, &mut make)
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
    fn install(&self, cx: &Cx, spot: &Spot, node: Node, kind: Kind, flags: u32) -> base::Result<usize> {
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
#[inline(always)]
fn kept(flags: u32) -> u32 {
    (flags & !ONCE) | LARGEFILE
}

/// # Safety
/// `pointer` is [bad](crate::bad_pointer) or a NUL-terminated text.
unsafe fn ends_in_slash(pointer: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { crate::text::path(pointer) }.is_ok_and(|path| path.bytes.ends_with(b"/"))
}

/// Whether who has only seen a node, its mode word and owner, may open it: as everybody, its owner or the
/// superuser. False: find out properly.
#[inline(always)]
fn may_open_seen(who: &Caller, word: u32, uid: u32, flags: u32) -> bool {
    // Reading 1, writing 2, both 3; 0 is neither.
    let access = (flags & ACCESS).wrapping_add(1) & 3;
    let need = 0o111 * ((access & 1) << 2 | access & 2);
    let may = word & need == need || who.privileged || who.uid == uid && word & need & 0o700 == need & 0o700;
    // What somebody else has made may be protected.
    let protected = flags & abi::O_CREAT != 0 && who.uid != uid;
    access != 0 && may && !protected
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
    spot.mount.backend.access(cx, node, want)?;
    if flags & abi::O_NOATIME != 0 && cx.cred.uid != attr.uid && !cx.cred.is_privileged_over(attr.uid, attr.gid) {
        return err(Errno::EPERM);
    }
    Ok(())
}
