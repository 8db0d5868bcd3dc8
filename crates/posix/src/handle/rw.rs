//! Reading and writing.

use super::buffers::{COUNT_MAX, single, vector};
use super::{err, fail};
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Entry, Outcome, Process, ThreadState};
use base::{Cx, Description, DescriptionId, Error, Kind, Node};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, UserSlice};
use vfs::{Backend, Mount};

const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;
const RWF_APPEND: u32 = 16;
/// `HIPRI` and `NOWAIT` change nothing here.
const RWF_KNOWN: u32 = 1 | RWF_DSYNC | RWF_SYNC | 8 | RWF_APPEND;
const SIGXFSZ: usize = 25;
/// The limit on file sizes is not known yet.
pub(crate) const LIMIT_UNKNOWN: u64 = u64::MAX - 1;

/// Where a transfer takes place.
#[derive(Clone, Copy)]
enum At {
    /// The file position, which moves.
    Position,
    /// This offset.
    Offset(u64),
}

/// Sends this thread the signal of a file-size limit.
#[cold]
pub(crate) fn over_limit() {
    // SAFETY: takes no arguments.
    let pid = unsafe { pm::sys::raw(abi::__NR_getpid as usize, [0; 6]) } as usize;
    // SAFETY: takes no arguments.
    let tid = unsafe { pm::sys::raw(abi::__NR_gettid as usize, [0; 6]) } as usize;
    // SAFETY: a signal to ourselves, as the kernel would send it.
    let _ = unsafe { pm::call!(abi::__NR_tgkill, pid, tid, SIGXFSZ) };
}

impl At {
    /// Whether a transfer here ends at an offset there can be.
    #[inline(always)]
    fn fits(self, description: &Description, buffers: &[UserSlice]) -> base::Result<()> {
        let start = match self {
            At::Offset(offset) => offset,
            At::Position => description.offset.load(Relaxed),
        };
        if (start as i64).wrapping_add(UserSlice::total(buffers) as i64) < 0 { err(Errno::EINVAL) } else { Ok(()) }
    }
}

#[inline(always)]
fn read_at(process: &Process, cx: &Cx, file: &OpenFile, at: At, into: &[UserSlice]) -> base::Result<usize> {
    at.fits(file.description, into)?;
    process.bring_ahead(cx, into);
    if file.entry.kind() == Kind::Directory {
        return err(Errno::EISDIR);
    }
    let backend = file.mount.backend;
    match at {
        At::Offset(offset) => backend.read(cx, file.node, offset, into),
        At::Position => {
            let place = (file.entry.description(), file.description);
            at_position(cx, backend, place, |offset| backend.read(cx, file.node, offset, into))
        }
    }
}

/// A transfer's result for the quick way.
#[inline(always)]
fn word(result: base::Result<usize>) -> isize {
    match result {
        Ok(done) => done as isize,
        Err(error) => -(error.errno().0 as isize),
    }
}

/// The same of a write; `None` if its buffer is not all there: the longer way writes what is.
#[inline(always)]
fn written(result: base::Result<usize>) -> Option<isize> {
    match result {
        Err(Error::Posix(Errno::EFAULT)) => None,
        result => Some(word(result)),
    }
}

/// A mount whose backend is called without a detour, and a node of it. The backend is read
/// where it is called: its line is none that a native call looks at.
struct Straight<'m>(&'m Mount, Node);

/// Moves a description's offset by what `run` transfers there.
#[inline(always)]
fn at_position(
    cx: &Cx,
    backend: &dyn Backend,
    (id, description): (DescriptionId, &Description),
    run: impl FnOnce(u64) -> base::Result<usize>,
) -> base::Result<usize> {
    backend.offset_lock(cx, id);
    let offset = description.offset.load(Relaxed);
    let result = run(offset);
    if let Ok(done) = result {
        description.offset.store(offset + done as u64, Relaxed);
    }
    backend.offset_unlock(cx, id);
    result
}

/// `read` where it goes straight to the backend.
///
/// # Safety
/// As for [`single`], of `buffer`.
#[inline(never)]
unsafe fn straight_read(
    cx: &Cx,
    at: Straight,
    entry: Entry,
    description: &Description,
    buffer: (usize, usize),
) -> base::Result<usize> {
    // SAFETY: the caller's promise.
    let into = unsafe { single(buffer.0, buffer.1) };
    let [into] = checked_first(entry.readable(), into)?;
    At::Position.fits(description, &[into])?;
    if entry.kind() == Kind::Directory {
        return err(Errno::EISDIR);
    }
    if into.len == 0 {
        return Ok(0);
    }
    let backend = at.0.backend;
    at_position(cx, backend, (entry.description(), description), |offset| backend.read_one(cx, at.1, offset, into))
}

/// The quick ways where they go straight to the backend; what they need has been checked.
/// Not inlined, and with little to hand over, so that the native ways stay short.
impl Process {
    #[inline(never)]
    fn straight_pread(&self, thread: &ThreadState, at: Straight, offset: u64, into: UserSlice) -> isize {
        word(at.0.backend.read_one(&self.cx(thread), at.1, offset, into))
    }

    /// Finds the file once more, so that who has no need of this keeps nothing for it.
    #[inline(never)]
    fn straight_pwrite(&self, thread: &ThreadState, fd: u32, offset: usize, from: UserSlice) -> Option<isize> {
        let file = self.file_at_hand(fd as usize)?;
        let straight = file.mount.is_direct && offset <= isize::MAX as usize - COUNT_MAX;
        if !straight {
            return None;
        }
        written(file.mount.backend.write_one(&self.cx(thread), file.node, offset as u64, from))
    }

    #[inline(never)]
    fn straight_write(
        &self,
        thread: &ThreadState,
        at: Straight,
        place: (DescriptionId, &Description),
        from: UserSlice,
    ) -> Option<isize> {
        if place.1.offset.load(Relaxed) > isize::MAX as u64 - COUNT_MAX as u64 {
            return None;
        }
        let (cx, backend) = (&self.cx(thread), at.0.backend);
        written(at_position(cx, backend, place, |offset| backend.write_one(cx, at.1, offset, from)))
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `RLIMIT_FSIZE`, bytes.
    #[inline(always)]
    pub(crate) fn file_limit(&self) -> u64 {
        let limit = self.file_limit.load(Relaxed);
        if limit == LIMIT_UNKNOWN { self.ask_file_limit() } else { limit }
    }

    #[cold]
    fn ask_file_limit(&self) -> u64 {
        const RLIMIT_FSIZE: usize = 1;
        let mut limit = [u64::MAX; 2];
        // SAFETY: asks for this process's limit, into two words.
        let _ = unsafe { pm::call!(abi::__NR_prlimit64, 0, RLIMIT_FSIZE, 0, limit.as_mut_ptr()) };
        let soft = if limit[0] == LIMIT_UNKNOWN { u64::MAX } else { limit[0] };
        self.file_limit.store(soft, Relaxed);
        soft
    }

    /// Writes, within the file-size limit; of buffers that are not all there what is.
    #[inline(always)]
    fn write_at(&self, cx: &Cx, file: &OpenFile, at: At, from: &[UserSlice], append: bool) -> base::Result<usize> {
        let flags = file.flags();
        at.fits(file.description, from)?;
        self.bring_ahead(cx, from);
        let append = append || flags & abi::O_APPEND != 0;
        let mut result = self.write_all_at(cx, file, at, from, append);
        if matches!(result, Err(Error::Posix(Errno::EFAULT))) {
            result = self.write_readable(cx, file, at, from, append);
        }
        if flags & abi::O_DSYNC != 0 && result.is_ok() {
            file.mount.backend.sync(cx, Some(file.node), flags & abi::O_SYNC != abi::O_SYNC)?;
        }
        result
    }

    /// As `write_at`, once a buffer was found to end before it says: what comes before that is written, or written once more.
    #[cold]
    #[inline(never)]
    fn write_readable(&self, cx: &Cx, file: &OpenFile, at: At, from: &[UserSlice], append: bool) -> base::Result<usize> {
        let mut done = 0;
        for buffer in from {
            let part = buffer.part(0, buffer.readable());
            let place = match at {
                At::Position => At::Position,
                At::Offset(offset) => At::Offset(offset + done as u64),
            };
            let written = if part.len == 0 { Ok(0) } else { self.write_all_at(cx, file, place, &[part], append) };
            match written {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if written != Ok(buffer.len) {
                break;
            }
        }
        if done == 0 { err(Errno::EFAULT) } else { Ok(done) }
    }

    /// Writes buffers all of which must be there.
    #[inline(always)]
    fn write_all_at(&self, cx: &Cx, file: &OpenFile, at: At, from: &[UserSlice], append: bool) -> base::Result<usize> {
        let backend = file.mount.backend;
        match at {
            At::Offset(offset) => {
                let offset = if append { None } else { Some(offset) };
                self.write_limited(cx, file, offset, from).map(|(done, _)| done)
            }
            At::Position => {
                let id = file.entry.description();
                backend.offset_lock(cx, id);
                let offset = if append { None } else { Some(file.description.offset.load(Relaxed)) };
                let result = self.write_limited(cx, file, offset, from);
                if let Ok((done, end)) = result
                    && done > 0
                {
                    file.description.offset.store(end, Relaxed);
                }
                backend.offset_unlock(cx, id);
                result.map(|(done, _)| done)
            }
        }
    }

    #[inline(always)]
    fn write_limited(&self, cx: &Cx, file: &OpenFile, offset: Option<u64>, from: &[UserSlice]) -> base::Result<(usize, u64)> {
        let limit = self.file_limit();
        if limit != u64::MAX {
            return self.write_below(cx, file, offset, from, limit);
        }
        file.mount.write(cx, file.node, offset, from)
    }

    #[cold]
    fn write_below(
        &self,
        cx: &Cx,
        file: &OpenFile,
        offset: Option<u64>,
        from: &[UserSlice],
        limit: u64,
    ) -> base::Result<(usize, u64)> {
        let backend = file.mount.backend;
        let at = offset.map_or_else(|| backend.attr(cx, file.node).map(|a| a.size), Ok)?;
        let total = UserSlice::total(from);
        if total == 0 || at.saturating_add(total as u64) <= limit {
            return backend.write(cx, file.node, offset, from);
        }
        if at >= limit {
            over_limit();
            return err(Errno::EFBIG);
        }
        // Only what fits, a buffer at a time.
        let (mut room, mut done, mut end) = ((limit - at) as usize, 0, at);
        for buffer in from {
            let part = UserSlice { len: buffer.len.min(room), ..*buffer };
            let (written, now) = backend.write(cx, file.node, offset.map(|o| o + done as u64), &[part])?;
            (room, done, end) = (room - written, done + written, now);
            if room == 0 || written < part.len {
                break;
            }
        }
        Ok((done, end))
    }

    /// `read(fd, buffer, len)`.
    pub unsafe fn read(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            if file.mount.is_direct && !self.maps_partially.load(Relaxed) {
                let at = Straight(file.mount, file.node);
                // SAFETY: the caller's promise.
                return unsafe { straight_read(cx, at, file.entry, file.description, (args[1], args[2])) };
            }
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.readable(), buffer).and_then(|b| read_at(self, cx, &file, At::Position, &b))
        })
    }

    /// A `write` of one buffer that needs nothing but the file: bytes written.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub unsafe fn quick_write<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
    ) -> Option<isize> {
        let file = self.writable_at_hand(fd)?;
        let flags = file.flags();
        if flags & abi::O_DSYNC != 0 || !self.may_write_quickly(buffer, len) {
            return None;
        }
        // SAFETY: the caller's promise.
        let from = unsafe { UserSlice::new(buffer as *mut u8, len) };
        let append = flags & abi::O_APPEND != 0;
        if file.mount.is_direct {
            let place = (file.entry.description(), file.description);
            return if append { None } else { self.straight_write(thread(), Straight(file.mount, file.node), place, from) };
        }
        file.mount.write_on_at_hand(&thread().thread, file.entry.description(), file.node, append, from).map(|_| len as isize)
    }

    /// Whether a buffer is one for the quick way: whatever is not right about the
    /// arguments is found out properly, and so is a limit on file sizes.
    #[inline(always)]
    fn may_write_quickly(&self, buffer: usize, len: usize) -> bool {
        let plain = !bad(buffer) && len.wrapping_sub(1) < COUNT_MAX && !self.maps_partially.load(Relaxed);
        plain && self.file_limit.load(Relaxed) == u64::MAX
    }

    /// `write(fd, buffer, len)`.
    #[inline(always)]
    pub unsafe fn write(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.quick_write(|| thread, args[0], args[1], args[2]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.write_properly(thread, args) }
    }

    /// `write`, as it is where the quick way does not do.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn write_properly(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.writable(), buffer).and_then(|b| self.write_at(cx, &file, At::Position, &b, false))
        })
    }

    /// A `pread` that a glance can answer, or a backend straight away: bytes read.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub unsafe fn quick_pread<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
        offset: usize,
    ) -> Option<isize> {
        let file = self.file_at_hand(fd)?;
        // Whatever is not right about the arguments is found out properly.
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
            return is_usual.then(|| self.straight_pread(thread(), Straight(file.mount, file.node), offset as u64, into));
        }
        file.mount.glance_read(file.node, offset as u64, into).map(|done| done as isize)
    }

    /// `pread64(fd, buffer, len, offset)`.
    #[inline(always)]
    pub unsafe fn pread64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.quick_pread(|| thread, args[0], args[1], args[2], args[3]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.pread64_properly(thread, args) }
    }

    /// `pread64`, as it is where the quick way does not do.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn pread64_properly(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if !self.descriptors.is_ours(args[0] as u32 as usize) {
            return Outcome::Kernel;
        }
        if (args[3] as i64) < 0 {
            return fail(Errno::EINVAL);
        }
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.readable(), buffer).and_then(|b| read_at(self, cx, &file, At::Offset(args[3] as u64), &b))
        })
    }

    /// A `pwrite` of one buffer that needs nothing but the file: bytes written.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    pub unsafe fn quick_pwrite<'t>(
        &'t self,
        thread: impl FnOnce() -> &'t ThreadState,
        fd: usize,
        buffer: usize,
        len: usize,
        offset: usize,
    ) -> Option<isize> {
        let file = self.writable_at_hand(fd)?;
        if file.flags() & (abi::O_APPEND | abi::O_DSYNC) != 0 || !self.may_write_quickly(buffer, len) {
            return None;
        }
        // SAFETY: the caller's promise.
        let from = unsafe { UserSlice::new(buffer as *mut u8, len) };
        let thread = thread();
        // Of a file of the engine's an offset that is none is beyond the end.
        if let Some(_end) = file.mount.write_at_hand(&thread.thread, file.node, Some(offset as u64), from) {
            return Some(len as isize);
        }
        self.straight_pwrite(thread, fd as u32, offset, from)
    }

    /// `pwrite64(fd, buffer, len, offset)`.
    #[inline(always)]
    pub unsafe fn pwrite64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.quick_pwrite(|| thread, args[0], args[1], args[2], args[3]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.pwrite_properly(thread, args) }
    }

    /// `pwrite64`, as it is where the quick way does not do.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn pwrite_properly(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if !self.descriptors.is_ours(args[0] as u32 as usize) {
            return Outcome::Kernel;
        }
        if (args[3] as i64) < 0 {
            return fail(Errno::EINVAL);
        }
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.writable(), buffer)
                .and_then(|b| self.write_at(cx, &file, At::Offset(args[3] as u64), &b, false))
        })
    }

    /// `readv(fd, vector, count)`.
    pub unsafe fn readv(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.readv_at(thread, args, At::Position, 0) }
    }

    /// `writev(fd, vector, count)`.
    pub unsafe fn writev(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.writev_at(thread, args, At::Position, 0) }
    }

    /// `preadv(fd, vector, count, offset, unused)`.
    pub unsafe fn preadv(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if (args[3] as i64) < 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { self.readv_at(thread, args, At::Offset(args[3] as u64), 0) }
    }

    /// `pwritev(fd, vector, count, offset, unused)`.
    pub unsafe fn pwritev(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if (args[3] as i64) < 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { self.writev_at(thread, args, At::Offset(args[3] as u64), 0) }
    }

    /// `preadv2(fd, vector, count, offset, unused, flags)`; offset −1 is the position.
    pub unsafe fn preadv2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        match args[3] as i64 {
            // SAFETY: the caller's promise.
            -1 => unsafe { self.readv_at(thread, args, At::Position, args[5] as u32) },
            ..0 => fail(Errno::EINVAL),
            // SAFETY: the caller's promise.
            offset => unsafe { self.readv_at(thread, args, At::Offset(offset as u64), args[5] as u32) },
        }
    }

    /// `pwritev2(fd, vector, count, offset, unused, flags)`; offset −1 is the position.
    pub unsafe fn pwritev2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        match args[3] as i64 {
            // SAFETY: the caller's promise.
            -1 => unsafe { self.writev_at(thread, args, At::Position, args[5] as u32) },
            ..0 => fail(Errno::EINVAL),
            // SAFETY: the caller's promise.
            offset => unsafe { self.writev_at(thread, args, At::Offset(offset as u64), args[5] as u32) },
        }
    }

    unsafe fn readv_at(&self, thread: &ThreadState, args: [usize; 6], at: At, flags: u32) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffers = unsafe { vector(args[1], args[2]) };
            let buffers = checked_first(file.entry.readable(), buffers)?;
            if flags & !RWF_KNOWN != 0 {
                return err(Errno::EOPNOTSUPP);
            }
            if UserSlice::total(buffers) == 0 {
                return Ok(0);
            }
            read_at(self, cx, &file, at, buffers)
        })
    }

    unsafe fn writev_at(&self, thread: &ThreadState, args: [usize; 6], at: At, flags: u32) -> Outcome {
        let written = self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffers = unsafe { vector(args[1], args[2]) };
            let buffers = checked_first(file.entry.writable(), buffers)?;
            if flags & !RWF_KNOWN != 0 {
                return err(Errno::EOPNOTSUPP);
            }
            let done = self.write_at(cx, &file, at, buffers, flags & RWF_APPEND != 0)?;
            if flags & (RWF_DSYNC | RWF_SYNC) != 0 {
                file.mount.backend.sync(cx, Some(file.node), flags & RWF_SYNC == 0)?;
            }
            Ok(done)
        });
        if written == Outcome::Kernel && flags & (RWF_DSYNC | RWF_SYNC) != 0 {
            return self.write_left_out(args, (RWF_DSYNC | RWF_SYNC) as usize).unwrap_or(written);
        }
        written
    }
}

/// The kernel looks at the open mode before it looks at the buffers.
#[inline(always)]
fn checked_first<T>(allowed: bool, buffers: base::Result<T>) -> base::Result<T> {
    if allowed { buffers } else { err(Errno::EBADF) }
}
