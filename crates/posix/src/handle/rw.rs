//! Reading and writing.

use super::buffers::{before_bad, single, vector};
use super::{err, fail};
use crate::path::OpenFile;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, UserSlice};

const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;
const RWF_APPEND: u32 = 16;
const RWF_NOAPPEND: u32 = 32;
/// `HIPRI` changes nothing here; others are refused as on tmpfs (`NOWAIT`, `ATOMIC`, `DONTCACHE`).
const RWF_KNOWN: u32 = 1 | RWF_DSYNC | RWF_SYNC | RWF_APPEND | RWF_NOAPPEND;
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
    #[inline]
    fn fits(self, description: &openfiles::OpenFile, buffers: &[UserSlice]) -> base::Result<()> {
        let start = match self {
            At::Offset(offset) => offset,
            At::Position => description.offset.load(Relaxed),
        };
        if (start as i64).wrapping_add(UserSlice::total(buffers) as i64) < 0 { err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Writes: whole or not at all, if the file was opened so.
#[inline]
fn put(cx: &Cx, file: &OpenFile, offset: Option<u64>, from: &[UserSlice]) -> base::Result<(usize, u64)> {
    match file.whole() {
        None => file.mount.backend.write(cx, file.node, offset, from),
        Some(whole) => whole.write(cx, file.node, offset, from),
    }
}

#[inline]
fn read_at(process: &Process, cx: &Cx, file: &OpenFile, at: At, into: &[UserSlice]) -> base::Result<usize> {
    at.fits(file.description, into)?;
    if file.entry.kind() == Kind::Directory {
        return err(Errno::EISDIR);
    }
    if let Some(good) = before_bad(into) {
        return read_before_bad(process, cx, file, at, good);
    }
    process.bring_ahead(cx, into);
    let backend = file.mount.backend;
    match at {
        At::Offset(offset) => backend.read(cx, file.node, offset, into),
        At::Position => at_position(cx, file, |offset| backend.read(cx, file.node, offset, into)),
    }
}

/// Reads into the buffers before one that cannot be there: `EFAULT` only if that was to get the first byte.
#[cold]
#[inline(never)]
fn read_before_bad(process: &Process, cx: &Cx, file: &OpenFile, at: At, good: &[UserSlice]) -> base::Result<usize> {
    if UserSlice::total(good) != 0 {
        return read_at(process, cx, file, at, good);
    }
    let offset = match at {
        At::Offset(offset) => offset,
        At::Position => file.description.offset.load(Relaxed),
    };
    match file.mount.backend.read(cx, file.node, offset, &[UserSlice::from_mut(&mut [0])])? {
        0 => Ok(0),
        _ => err(Errno::EFAULT),
    }
}

/// Moves a description's offset by what `run` transfers there.
#[inline]
pub(crate) fn at_position(cx: &Cx, file: &OpenFile, run: impl FnOnce(u64) -> base::Result<usize>) -> base::Result<usize> {
    let (backend, id) = (file.mount.backend, file.entry.description());
    backend.offset_lock(cx, id);
    let offset = file.description.offset.load(Relaxed);
    let result = run(offset);
    if let Ok(done) = result {
        file.description.offset.store(offset + done as u64, Relaxed);
    }
    backend.offset_unlock(cx, id);
    result
}

/// `read` of a backend that answers it alone.
///
/// # Safety
/// As for [`single`], of `buffer`.
unsafe fn read_direct(process: &Process, cx: &Cx, file: &OpenFile, buffer: (usize, usize)) -> base::Result<usize> {
    // SAFETY: the caller's promise.
    let into = unsafe { single(buffer.0, buffer.1) };
    let [into] = checked_first(file.entry.readable(), into)?;
    At::Position.fits(file.description, &[into])?;
    if file.entry.kind() == Kind::Directory {
        return err(Errno::EISDIR);
    }
    if into.len == 0 {
        return Ok(0);
    }
    if before_bad(&[into]).is_some() {
        return read_before_bad(process, cx, file, At::Position, &[]);
    }
    at_position(cx, file, |offset| file.mount.backend.read_one(cx, file.node, offset, into))
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `RLIMIT_FSIZE`, bytes. Where there is one others may change it, too: it is asked for each time.
    #[inline]
    pub(crate) fn file_limit(&self) -> u64 {
        if self.file_limit.load(Relaxed) == u64::MAX { u64::MAX } else { self.ask_file_limit() }
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
    #[inline]
    fn write_at(&self, cx: &Cx, file: &OpenFile, at: At, from: &[UserSlice], append: bool) -> base::Result<usize> {
        self.write_as(cx, file, at, from, append, file.flags())
    }

    /// As `write_at`, as if the file had been opened with these flags.
    #[inline]
    fn write_as(&self, cx: &Cx, file: &OpenFile, at: At, from: &[UserSlice], append: bool, flags: u32) -> base::Result<usize> {
        at.fits(file.description, from)?;
        // What comes before what cannot be there is written.
        let from = match before_bad(from) {
            Some(good) if UserSlice::total(good) == 0 => return err(Errno::EFAULT),
            Some(good) => good,
            None => from,
        };
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
    #[inline]
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

    #[inline]
    pub(super) fn write_limited(
        &self,
        cx: &Cx,
        file: &OpenFile,
        offset: Option<u64>,
        from: &[UserSlice],
    ) -> base::Result<(usize, u64)> {
        let limit = self.file_limit();
        if limit != u64::MAX {
            return self.write_below(cx, file, offset, from, limit);
        }
        put(cx, file, offset, from)
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
            return put(cx, file, offset, from);
        }
        if at >= limit {
            over_limit();
            return err(Errno::EFBIG);
        }
        // Only what fits, a buffer at a time.
        let (mut room, mut done, mut end) = ((limit - at) as usize, 0, at);
        for buffer in from {
            let part = UserSlice { len: buffer.len.min(room), ..*buffer };
            let (written, now) = put(cx, file, offset.map(|o| o + done as u64), &[part])?;
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
                // SAFETY: the caller's promise.
                return unsafe { read_direct(self, cx, &file, (args[1], args[2])) };
            }
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.readable(), buffer).and_then(|b| read_at(self, cx, &file, At::Position, &b))
        })
    }

    /// `write(fd, buffer, len)`.
    #[inline]
    pub unsafe fn write(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.write_fast(|| thread, args[0], args[1], args[2]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.write_slow(thread, args) }
    }

    /// `write`, the slow path.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn write_slow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.writable(), buffer).and_then(|b| self.write_at(cx, &file, At::Position, &b, false))
        })
    }

    /// Where a call with an offset of its own begins, in the kernel's order: whose file it is, then what cannot be.
    fn offset_of(&self, args: [usize; 6]) -> Result<At, Outcome> {
        if !self.descriptors.is_ours(args[0] as u32 as usize) {
            return Err(Outcome::Kernel);
        }
        if (args[3] as i64) < 0 { Err(fail(Errno::EINVAL)) } else { Ok(At::Offset(args[3] as u64)) }
    }

    /// `pread64(fd, buffer, len, offset)`.
    #[inline]
    pub unsafe fn pread64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.pread_fast(|| thread, args[0], args[1], args[2], args[3]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.pread_slow(thread, args) }
    }

    /// `pread64`, the slow path.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn pread_slow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let at = match self.offset_of(args) {
            Ok(at) => at,
            Err(outcome) => return outcome,
        };
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.readable(), buffer).and_then(|b| read_at(self, cx, &file, at, &b))
        })
    }

    /// `pwrite64(fd, buffer, len, offset)`.
    #[inline]
    pub unsafe fn pwrite64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.pwrite_fast(|| thread, args[0], args[1], args[2], args[3]) } {
            return Outcome::Done(done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.pwrite_slow(thread, args) }
    }

    /// `pwrite64`, the slow path.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    pub unsafe fn pwrite_slow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let at = match self.offset_of(args) {
            Ok(at) => at,
            Err(outcome) => return outcome,
        };
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            let buffer = unsafe { single(args[1], args[2]) };
            checked_first(file.entry.writable(), buffer).and_then(|b| self.write_at(cx, &file, at, &b, false))
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
            let opened = match flags & (RWF_APPEND | RWF_NOAPPEND) {
                RWF_NOAPPEND => file.flags() & !abi::O_APPEND,
                0 | RWF_APPEND => file.flags(),
                _ => return err(Errno::EINVAL),
            };
            let done = self.write_as(cx, &file, at, buffers, flags & RWF_APPEND != 0, opened)?;
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
#[inline]
fn checked_first<T>(allowed: bool, buffers: base::Result<T>) -> base::Result<T> {
    if allowed { buffers } else { err(Errno::EBADF) }
}
