//! Advisory locks: `fcntl` record locks, OFD locks, `flock`.
//!
//! Waiting is asking again: the lock table belongs to no process that could
//! wake us up. The pause grows from 0.1 to 10 ms; a signal ends the wait.

use super::attr::{readable, writable};
use super::err;
use crate::path::OpenFile;
use crate::process::RECORD_LOCKS;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Lock, LockKind, LockOwner};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, faults};

/// The kernel's `struct flock` of 64-bit programs.
#[derive(Clone, Copy)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    padding: u32,
    start: i64,
    len: i64,
    pid: i32,
    padding2: u32,
}

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
const LOCK_UN: u32 = 8;

/// Tries until the lock is there, a signal comes, or another error.
fn wait(
    door: &dyn crate::Door,
    attempt: impl FnOnce() -> base::Result<()>,
    again: impl Fn(u32) -> base::Result<()>,
    blocking: bool,
) -> base::Result<()> {
    let mut result = attempt();
    let (mut pause_ns, since) = (100_000u64, openfiles::moment());
    loop {
        match result {
            Err(Error::Posix(Errno::EAGAIN)) if blocking => {
                if door.interrupted() {
                    return err(Errno::EINTR);
                }
                let time = [0, pause_ns];
                // SAFETY: a time of two words.
                unsafe { pm::call!(abi::__NR_nanosleep, time.as_ptr(), 0) }?;
                pause_ns = (pause_ns * 2).min(10_000_000);
                result = again(since);
            }
            result => return result,
        }
    }
}

/// The byte range that a `struct flock` means.
fn range(cx: &Cx, file: &OpenFile, asked: &Flock) -> base::Result<(u64, u64)> {
    let from = match asked.whence {
        0 => 0,
        1 => file.description.offset.load(Relaxed) as i64,
        2 => file.mount.backend.attr(cx, file.node)?.size as i64,
        _ => return err(Errno::EINVAL),
    };
    let start = from.checked_add(asked.start).ok_or(Error::Posix(Errno::EOVERFLOW))?;
    if start < 0 {
        return err(Errno::EINVAL);
    }
    match asked.len {
        0 => Ok((start as u64, u64::MAX)),
        len if len > 0 => {
            let last = start.checked_add(len - 1).ok_or(Error::Posix(Errno::EOVERFLOW))?;
            // Up to the last possible byte is to infinity.
            Ok((start as u64, if last == i64::MAX { u64::MAX } else { last as u64 + 1 }))
        }
        len => match start.checked_add(len) {
            Some(first) if first >= 0 => Ok((first as u64, start as u64)),
            _ => err(Errno::EINVAL),
        },
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// The six `fcntl` lock commands.
    ///
    /// # Safety
    /// `pointer` is [bad](crate::bad_pointer) or leads to a `struct flock`.
    pub(crate) unsafe fn record_lock(&self, cx: &Cx, file: &OpenFile, command: u32, pointer: usize) -> base::Result<usize> {
        if bad(pointer) {
            return err(Errno::EFAULT);
        }
        let pointer = pointer as *mut Flock;
        // SAFETY: the caller's promise.
        let asked = unsafe { faults::read(pointer) }?;
        let ofd = command >= abi::F_OFD_GETLK;
        let query = matches!(command, abi::F_GETLK | abi::F_OFD_GETLK);
        if ofd && asked.pid != 0 {
            return err(Errno::EINVAL);
        }
        let kind = match asked.kind {
            F_RDLCK => LockKind::Shared,
            F_WRLCK => LockKind::Exclusive,
            // An OFD query for "unlock" asks for the description's own locks.
            F_UNLCK if !query || ofd => LockKind::Unlock,
            _ => return err(Errno::EINVAL),
        };
        let (start, end) = range(cx, file, &asked)?;
        let owner = if ofd { LockOwner::Description(file.entry.description()) } else { LockOwner::Process };
        let lock = Lock { kind, owner, through: Some(file.entry.description()), start, end, pid: 0 };
        let backend = file.mount.backend;
        if query {
            // SAFETY: it is about to be written.
            if unsafe { faults::writable(pointer.cast(), size_of::<Flock>()) } < size_of::<Flock>() {
                return err(Errno::EFAULT);
            }
            let answer = match backend.conflicting_lock(cx, file.node, &lock)? {
                None => {
                    // Only the type changes; the bytes between the fields are the program's.
                    // SAFETY: the caller's promise; the type comes first.
                    unsafe { faults::write(pointer.cast::<i16>(), &F_UNLCK) }?;
                    return Ok(0);
                }
                Some(held) => Flock {
                    kind: if held.kind == LockKind::Shared { F_RDLCK } else { F_WRLCK },
                    whence: 0,
                    start: held.start as i64,
                    len: if held.end == u64::MAX { 0 } else { (held.end - held.start) as i64 },
                    pid: held.pid,
                    ..asked
                },
            };
            // SAFETY: the caller's promise.
            unsafe { faults::write(pointer, &answer) }?;
            return Ok(0);
        }
        let allowed = match kind {
            LockKind::Shared => readable(file.flags()),
            LockKind::Exclusive => writable(file.flags()),
            LockKind::Unlock => true,
        };
        if !allowed {
            return err(Errno::EBADF);
        }
        if !ofd {
            self.closing.fetch_or(RECORD_LOCKS, Relaxed);
        }
        let blocking = matches!(command, abi::F_SETLKW | abi::F_OFD_SETLKW);
        let again = |since| backend.lock_waiting(cx, file.node, &lock, since);
        wait(self.door, || backend.lock(cx, file.node, &lock), again, blocking).map(|()| 0)
    }

    /// `flock(fd, operation)`.
    pub unsafe fn flock(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let operation = args[1] as u32;
        let kind = match operation & !LOCK_NB {
            LOCK_SH => LockKind::Shared,
            LOCK_EX => LockKind::Exclusive,
            LOCK_UN => LockKind::Unlock,
            _ => return super::fail(Errno::EINVAL),
        };
        self.on(thread, args[0], |cx, file| {
            let id = file.entry.description();
            let lock = Lock { kind, owner: LockOwner::Flock(id), through: Some(id), start: 0, end: u64::MAX, pid: 0 };
            let blocking = operation & LOCK_NB == 0;
            let backend = file.mount.backend;
            let again = |since| backend.lock_waiting(cx, file.node, &lock, since);
            wait(self.door, || backend.lock(cx, file.node, &lock), again, blocking).map(|()| 0)
        })
    }
}
