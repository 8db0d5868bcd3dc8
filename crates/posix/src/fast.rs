//! The fast path of calls that read: from a path or number to the backend's own fast path, and nothing beside it.
//! What does not fit is left to the slow path, which is each call's own.

use crate::descriptors::Entry;
use crate::handle::buffers::COUNT_MAX;
use crate::handle::open::{LARGEFILE, kept};
use crate::handle::rw::at_position;
use crate::path::{OpenFile, Spot};
use crate::process::OWN_NUMBERS;
use crate::text::bad;
use crate::{Bitmap, Process, ThreadState};
use base::stat::Stat;
use base::{Caller, Error, Fast, Found, Kind, Node, R, Sight, X, ids};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, Text, UserSlice};
use vfs::Mount;

/// What an `open` on the fast path may say.
const OPEN: u32 = abi::O_ACCMODE
    | abi::O_CLOEXEC
    | abi::O_DIRECTORY
    | abi::O_NOFOLLOW
    | abi::O_NONBLOCK
    | abi::O_NOCTTY
    | abi::O_CREAT
    | abi::O_APPEND
    | abi::O_SYNC
    | abi::O_LARGEFILE
    | LARGEFILE;

const ENOENT: isize = -(Errno::ENOENT.0 as isize);

/// The program's `struct stat`, if it lies where it can be written in place.
///
/// # Safety
/// `out` is [bad](crate::bad_pointer), or writable for a `struct stat` for `'a`.
#[inline]
pub(crate) unsafe fn in_place<'a>(out: usize) -> Option<&'a mut MaybeUninit<Stat>> {
    if bad(out) || !out.is_multiple_of(align_of::<Stat>()) {
        return None;
    }
    // SAFETY: aligned; whether it is there, whoever writes it finds out.
    Some(unsafe { &mut *(out as *mut MaybeUninit<Stat>) })
}

/// A transfer's result as a word.
fn word(result: base::Result<usize>) -> isize {
    match result {
        Ok(done) => done as isize,
        Err(error) => -(error.errno().0 as isize),
    }
}

/// The same of a write; `None` if its buffer is not all there: the slow path writes what is.
fn written(result: base::Result<usize>) -> Option<isize> {
    match result {
        Err(Error::Posix(Errno::EFAULT)) => None,
        result => Some(word(result)),
    }
}

/// Where a path argument starts: a mount, a directory of it, and what follows that.
type Start<'m, 'p> = (&'m Mount, Node, Text<'p>);

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// Where a path argument starts. `None`: take the slow path.
    ///
    /// # Safety
    /// `pointer` is null, low, or of a text of the program's that stays as it is for `'p`, or is not there.
    #[inline(always)]
    unsafe fn start<'p>(&self, dirfd: usize, pointer: usize) -> Option<Start<'_, 'p>> {
        if bad(pointer) {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { Text::new(pointer as *const u8) };
        if path.is_absolute()? {
            let (mount, rest) = self.mounts.find_text(path)?;
            return (!path.is_far_to(rest)).then_some((mount, mount.root, rest));
        }
        if dirfd as i32 == abi::AT_FDCWD
            && let Some((place, id, hint)) = self.descriptors.here()
        {
            // SAFETY: told of the working directory's mount, and taken back before that may be unmounted.
            return Some((unsafe { self.mounts.at(place) }, Node { id, hint }, path));
        }
        let dir = self.directory(dirfd)?;
        Some((dir.mount, dir.node, path))
    }

    /// What is at the end of a path argument, and in which mount.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub(crate) unsafe fn find_fast(
        &self,
        who: &Caller,
        dirfd: usize,
        pointer: usize,
        follow: bool,
    ) -> Option<(&Mount, Fast<Sight>)> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, pointer) }?;
        Some((mount, mount.find_fast(&self.mounts, who, (base, path), follow)))
    }

    /// The place of a name at the end of a path argument. `None`: take the slow path.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub(crate) unsafe fn parent_fast<'a>(&'a self, dirfd: usize, pointer: usize) -> Option<Spot<'a>> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, pointer) }?;
        match mount.parent_fast(&self.mounts, self.credentials.caller(), (base, path)) {
            Fast::Done((parent, name)) => {
                let found = Found { parent, name, node: None, slash: false };
                Some(Spot { slot: mount.slot.into(), mount, found })
            }
            Fast::Absent | Fast::Slow => None,
        }
    }

    /// `stat`: 0 or −`ENOENT`.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn stat_fast(&self, dirfd: usize, path: usize, out: usize, follow: bool) -> Option<isize> {
        // SAFETY: the caller's promise.
        let out = unsafe { in_place(out) }?;
        if !self.mounts.is_flat() && !ids::is_initial() {
            // Owners are to be translated.
            return None;
        }
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, path) }?;
        let who = self.credentials.caller();
        match mount.stat_fast(&self.mounts, who, (base, path), follow, out) {
            Fast::Done(()) => Some(0),
            Fast::Absent => Some(ENOENT),
            Fast::Slow => None,
        }
    }

    /// `access`: 0 or a negated error number.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn access_fast(&self, dirfd: usize, path: usize, want: usize, flags: u32) -> Option<isize> {
        // Whether anything may be written at all, the backend must say.
        if want & !usize::from(R | X) != 0 || flags & !(abi::AT_EACCESS | abi::AT_SYMLINK_NOFOLLOW) != 0 {
            return None;
        }
        let is_effective = flags & abi::AT_EACCESS != 0;
        let who = if is_effective { self.credentials.caller() } else { self.credentials.real_caller() };
        // SAFETY: the caller's promise.
        match unsafe { self.find_fast(who, dirfd, path, flags & abi::AT_SYMLINK_NOFOLLOW == 0) }?.1 {
            Fast::Done(_) if want == 0 => Some(0),
            Fast::Done(sight) => {
                let cred = if is_effective { self.credentials.effective() } else { self.credentials.real() };
                let may = cred.may(sight.kind()?, sight.mode(), sight.uid, sight.gid, want as u16);
                Some(if may { 0 } else { -(Errno::EACCES.0 as isize) })
            }
            Fast::Absent => Some(ENOENT),
            Fast::Slow => None,
        }
    }

    /// `open` of a file or directory that is there: its number, or −`ENOENT`.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn open_fast(&self, dirfd: usize, path: usize, flags: u32) -> Option<isize> {
        if flags & !OPEN != 0 {
            return None;
        }
        let who = self.credentials.caller();
        // SAFETY: the caller's promise.
        let (mount, sight) = match unsafe { self.find_fast(who, dirfd, path, flags & abi::O_NOFOLLOW == 0) }? {
            (mount, Fast::Done(sight)) => (mount, sight),
            (_, Fast::Absent) if flags & abi::O_CREAT == 0 => return Some(ENOENT),
            _ => return None,
        };
        let kind = match sight.kind()? {
            Kind::Regular if flags & abi::O_DIRECTORY == 0 => Kind::Regular,
            Kind::Directory if flags & (abi::O_ACCMODE | abi::O_CREAT) == 0 => Kind::Directory,
            _ => return None,
        };
        if !who.may_open(sight.uid, sight.mode(), flags) {
            return None;
        }
        // Not before: it may take a call to the kernel.
        let fd = self.take_number(flags).ok()?;
        match mount.open_fast(&sight, kept(flags), fd) {
            Fast::Done(id) => {
                self.descriptors.put_new(fd, Entry::opened(mount.slot, id, kind, flags));
                Some(fd as isize)
            }
            Fast::Absent | Fast::Slow => {
                self.give_number_back(fd);
                None
            }
        }
    }

    /// `close` of one of the first numbers, where they are the process's own; `None`: take the slow path. `thread` is only asked
    /// where something rare has to be done.
    #[inline]
    pub fn close_fast<'t>(&'t self, thread: impl FnOnce() -> &'t ThreadState, fd: usize) -> Option<isize> {
        let fd = fd as u32;
        if fd >= Bitmap::FIRST || self.closing.load(Relaxed) != OWN_NUMBERS {
            return None;
        }
        // Whatever else it is, nobody else's: there is no kernel whose it could be.
        let entry = self.descriptors.take_own(fd)?;
        if let Some(mount) = self.mounts.held(entry.slot())
            && let Some(rest) = mount.close_fast(fd)
        {
            return Some(self.close_rest(thread(), entry, fd, rest));
        }
        self.give_own_number_back(fd);
        Some(0)
    }

    /// A `write` of one buffer that needs nothing but the file: bytes written.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn write_fast<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
    ) -> Option<isize> {
        let file = self.writable_fast(fd)?;
        let flags = file.flags();
        if flags & (abi::O_DSYNC | crate::ATOMIC) != 0 || !self.may_write_fast(buffer, len) {
            return None;
        }
        // SAFETY: the caller's promise.
        let from = unsafe { UserSlice::new(buffer as *mut u8, len) };
        let append = flags & abi::O_APPEND != 0;
        if file.mount.is_direct {
            return if append { None } else { self.write_on_direct(thread(), &file, from) };
        }
        match file.mount.write_on_fast(&thread().thread, file.entry.description(), file.node, append, from) {
            Fast::Done(_) => Some(len as isize),
            Fast::Absent | Fast::Slow => None,
        }
    }

    /// Whether a buffer is one for the fast path: whatever is not right about the
    /// arguments the slow path finds out, and so is a limit on file sizes.
    #[inline]
    fn may_write_fast(&self, buffer: usize, len: usize) -> bool {
        let plain = !bad(buffer) && len.wrapping_sub(1) < COUNT_MAX && !self.maps_partially.load(Relaxed);
        plain && self.file_limit.load(Relaxed) == u64::MAX
    }

    /// A `pread` of one buffer that needs nothing but the file: bytes read.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn pread_fast<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
        offset: usize,
    ) -> Option<isize> {
        let file = self.file_fast(fd)?;
        // Whatever is not right about the arguments the slow path finds out.
        if !file.entry.readable() || bad(buffer) || len > COUNT_MAX || offset > isize::MAX as usize - COUNT_MAX {
            return None;
        }
        if self.maps_partially.load(Relaxed) {
            return None;
        }
        // SAFETY: the caller's promise.
        let into = unsafe { UserSlice::new(buffer as *mut u8, len) };
        if file.mount.is_direct {
            let is_usual = len != 0 && file.entry.kind() != Kind::Directory;
            return is_usual.then(|| self.read_direct(thread(), &file, offset as u64, into));
        }
        match file.mount.read_fast(file.node, offset as u64, into) {
            Fast::Done(done) => Some(done as isize),
            Fast::Absent | Fast::Slow => None,
        }
    }

    /// A `pwrite` of one buffer that needs nothing but the file: bytes written.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline]
    pub unsafe fn pwrite_fast<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
        offset: usize,
    ) -> Option<isize> {
        let file = self.writable_fast(fd)?;
        if file.flags() & (abi::O_APPEND | abi::O_DSYNC | crate::ATOMIC) != 0 || !self.may_write_fast(buffer, len) {
            return None;
        }
        // SAFETY: the caller's promise.
        let from = unsafe { UserSlice::new(buffer as *mut u8, len) };
        let thread = thread();
        if file.mount.is_direct {
            return self.write_direct(thread, &file, offset, from);
        }
        // Of a file of the engine's an offset that is none is beyond the end.
        match file.mount.write_fast(&thread.thread, file.node, Some(offset as u64), from) {
            Fast::Done(_) => Some(len as isize),
            Fast::Absent | Fast::Slow => None,
        }
    }
}

/// Backends that answer calls of one buffer alone ([`Backend::is_direct`](vfs::Backend::is_direct)): what such a call
/// needs has been checked.
impl Process {
    #[inline(never)]
    fn read_direct(&self, thread: &ThreadState, file: &OpenFile, offset: u64, into: UserSlice) -> isize {
        word(file.mount.backend.read_one(&self.cx_of_data(thread), file.node, offset, into))
    }

    #[inline(never)]
    fn write_direct(&self, thread: &ThreadState, file: &OpenFile, offset: usize, from: UserSlice) -> Option<isize> {
        if offset > isize::MAX as usize - COUNT_MAX {
            return None;
        }
        written(file.mount.backend.write_one(&self.cx_of_data(thread), file.node, offset as u64, from))
    }

    #[inline(never)]
    fn write_on_direct(&self, thread: &ThreadState, file: &OpenFile, from: UserSlice) -> Option<isize> {
        if file.description.offset.load(Relaxed) > isize::MAX as u64 - COUNT_MAX as u64 {
            return None;
        }
        let (cx, backend) = (&self.cx(thread), file.mount.backend);
        written(at_position(cx, file, |offset| backend.write_one(cx, file.node, offset, from)))
    }
}
