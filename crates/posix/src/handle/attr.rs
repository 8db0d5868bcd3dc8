//! Attributes: chmod, chown, utimes, truncate.

use super::{done, err, fail};
use crate::path::CWD;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::ids;
use base::{Cx, Kind, Last, Node, SetAttr, SetTime, W};
use pm::sys::abi;
use pm::{Errno, faults};
use vfs::Backend;

const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;
const NSEC: i64 = 1_000_000_000;

fn set_mode(cx: &Cx, backend: &dyn Backend, node: Node, mode: usize) -> base::Result<usize> {
    // A path that follows leads to one all the same by `/proc/self/fd/N`.
    if backend.attr(cx, node)?.kind == Kind::Symlink {
        return err(Errno::EOPNOTSUPP);
    }
    let change = SetAttr { mode: Some(mode as u16 & 0o7777), ..SetAttr::default() };
    backend.set_attr(cx, node, &change).map(|()| 0)
}

fn set_owner(cx: &Cx, backend: &dyn Backend, node: Node, uid: usize, gid: usize) -> base::Result<usize> {
    let id = |id: usize, of: fn(u32) -> Option<u32>| match id as u32 {
        u32::MAX => Ok(None),
        // One that our user namespace does not have.
        id => of(id).ok_or(base::Error::Posix(Errno::EINVAL)).map(Some),
    };
    // Also where nobody's file becomes nobody else's.
    let change = SetAttr { uid: id(uid, ids::user)?, gid: id(gid, ids::group)?, drops_rights: true, ..SetAttr::default() };
    backend.set_attr(cx, node, &change).map(|()| 0)
}

fn set_times(cx: &Cx, backend: &dyn Backend, node: Node, times: Times) -> base::Result<usize> {
    let change = SetAttr { atime: times[0], mtime: times[1], ..SetAttr::default() };
    backend.set_attr(cx, node, &change).map(|()| 0)
}

/// Access and modification time; `None` leaves one as it is.
type Times = [Option<SetTime>; 2];

/// From pairs of seconds and fractions; `None` if a fraction is out of range.
fn times_from(pairs: [[i64; 2]; 2], unit: i64) -> Option<Times> {
    let mut times = [None; 2];
    for (time, [seconds, fraction]) in times.iter_mut().zip(pairs) {
        *time = match fraction {
            UTIME_NOW if unit == 1 => Some(SetTime::Now),
            UTIME_OMIT if unit == 1 => None,
            _ if !(0..NSEC / unit).contains(&fraction) => return None,
            _ => Some(SetTime::At(seconds.saturating_mul(NSEC).saturating_add(fraction * unit))),
        };
    }
    Some(times)
}

/// Times as a program passes them: null means now.
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer) or leads to two pairs of words.
unsafe fn times_at(pointer: usize, unit: i64) -> base::Result<Times> {
    if pointer == 0 {
        return Ok([Some(SetTime::Now); 2]);
    }
    if bad(pointer) {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    let pairs = unsafe { faults::read(pointer as *const [[i64; 2]; 2]) }?;
    times_from(pairs, unit).ok_or(base::Error::Posix(Errno::EINVAL))
}

fn nofollow(flags: usize) -> Last {
    if flags as u32 & abi::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `chmod(path, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn chmod(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_chmod, args), CWD, 0, Last::Follow, |cx, spot| {
                set_mode(cx, spot.mount.backend, spot.node(cx)?, args[1])
            })
        }
    }

    /// `fchmodat(dirfd, path, mode)`.
    pub unsafe fn fchmodat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_fchmodat, args), args[0], 1, Last::Follow, |cx, spot| {
                set_mode(cx, spot.mount.backend, spot.node(cx)?, args[2])
            })
        }
    }

    /// `fchmodat2(dirfd, path, mode, flags)`.
    pub unsafe fn fchmodat2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if args[3] as u32 & !(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
            return fail(Errno::EINVAL);
        }
        let change = |cx: &Cx, backend: &dyn Backend, node| set_mode(cx, backend, node, args[2]);
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], args[3], false) } {
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            return done(change(&self.cx(thread), file.mount.backend, file.node));
        }
        const NR_FCHMODAT2: u32 = 452;
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (NR_FCHMODAT2, args), args[0], 1, nofollow(args[3]), |cx, spot| {
                change(cx, spot.mount.backend, spot.node(cx)?)
            })
        }
    }

    /// `fchmod(fd, mode)`.
    pub unsafe fn fchmod(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if let Some((mount, node)) = self.behind(args[0]) {
            return done(set_mode(&self.cx(thread), mount.backend, node, args[1]));
        }
        self.on(thread, args[0], |cx, file| set_mode(cx, file.mount.backend, file.node, args[1]))
    }

    /// `chown(path, uid, gid)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn chown(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_chown, args), CWD, 0, Last::Follow, |cx, spot| {
                set_owner(cx, spot.mount.backend, spot.node(cx)?, args[1], args[2])
            })
        }
    }

    /// `lchown(path, uid, gid)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn lchown(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_lchown, args), CWD, 0, Last::NoFollow, |cx, spot| {
                set_owner(cx, spot.mount.backend, spot.node(cx)?, args[1], args[2])
            })
        }
    }

    /// `fchownat(dirfd, path, uid, gid, flags)`.
    pub unsafe fn fchownat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if args[4] as u32 & !(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], args[4], false) } {
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            return done(set_owner(&self.cx(thread), file.mount.backend, file.node, args[2], args[3]));
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_fchownat, args), args[0], 1, nofollow(args[4]), |cx, spot| {
                set_owner(cx, spot.mount.backend, spot.node(cx)?, args[2], args[3])
            })
        }
    }

    /// `fchown(fd, uid, gid)`.
    pub unsafe fn fchown(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if let Some((mount, node)) = self.behind(args[0]) {
            return done(set_owner(&self.cx(thread), mount.backend, node, args[1], args[2]));
        }
        self.on(thread, args[0], |cx, file| set_owner(cx, file.mount.backend, file.node, args[1], args[2]))
    }

    /// `utimensat(dirfd, path, times, flags)`; a null path means the descriptor.
    pub unsafe fn utimensat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        let times = match unsafe { times_at(args[2], 1) } {
            Ok([None, None]) => return Outcome::Done(0),
            Err(error) if error.errno() == Errno::EFAULT => return fail(Errno::EFAULT),
            // Whether they are valid, the kernel looks at when it has the file.
            times => times,
        };
        if args[3] as u32 & !(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        if args[1] == 0 || unsafe { Self::empty_path(args[1], args[3], false) } {
            if args[1] == 0 && args[0] as i32 == abi::AT_FDCWD {
                return fail(Errno::EFAULT);
            }
            if args[1] == 0 && args[3] as u32 != 0 {
                return fail(Errno::EINVAL);
            }
            if args[1] == 0 {
                if let Some((mount, node)) = self.behind(args[0]) {
                    let cx = self.cx(thread);
                    return done(times.and_then(|times| set_times(&cx, mount.backend, node, times)));
                }
                return self.on(thread, args[0], |cx, file| set_times(cx, file.mount.backend, file.node, times?));
            }
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            let cx = self.cx(thread);
            return done(times.and_then(|times| set_times(&cx, file.mount.backend, file.node, times)));
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_utimensat, args), args[0], 1, nofollow(args[3]), |cx, spot| {
                set_times(cx, spot.mount.backend, spot.node(cx)?, times?)
            })
        }
    }

    /// `futimesat(dirfd, path, times)`, microseconds.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn futimesat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        let times = match unsafe { times_at(args[2], 1000) } {
            Ok(times) => times,
            Err(error) => return fail(error.errno()),
        };
        if args[1] == 0 {
            return self.on(thread, args[0], |cx, file| set_times(cx, file.mount.backend, file.node, times));
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_futimesat, args), args[0], 1, Last::Follow, |cx, spot| {
                set_times(cx, spot.mount.backend, spot.node(cx)?, times)
            })
        }
    }

    /// `utimes(path, times)`, microseconds.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn utimes(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        let times = match unsafe { times_at(args[1], 1000) } {
            Ok(times) => times,
            Err(error) => return fail(error.errno()),
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_utimes, args), CWD, 0, Last::Follow, |cx, spot| {
                set_times(cx, spot.mount.backend, spot.node(cx)?, times)
            })
        }
    }

    /// `utime(path, times)`, seconds.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn utime(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let times = match args[1] {
            0 => [Some(SetTime::Now); 2],
            low if bad(low) => return fail(Errno::EFAULT),
            pointer => {
                // SAFETY: the caller's promise.
                let Ok(seconds) = (unsafe { faults::read(pointer as *const [i64; 2]) }) else { return fail(Errno::EFAULT) };
                seconds.map(|s| Some(SetTime::At(s.saturating_mul(NSEC))))
            }
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_utime, args), CWD, 0, Last::Follow, |cx, spot| {
                set_times(cx, spot.mount.backend, spot.node(cx)?, times)
            })
        }
    }

    /// `truncate(path, len)`.
    pub unsafe fn truncate(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let len = args[1] as i64;
        if len < 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_truncate, args), CWD, 0, Last::Follow, |cx, spot| {
                let (backend, node) = (spot.mount.backend, spot.node(cx)?);
                match backend.attr(cx, node)?.kind {
                    Kind::Directory => return err(Errno::EISDIR),
                    Kind::Regular => {}
                    _ => return err(Errno::EINVAL),
                }
                backend.access(cx, node, W)?;
                if self.is_executed(cx, spot.mount, node) {
                    return err(Errno::ETXTBSY);
                }
                self.resize(cx, backend, node, len as u64, false)?;
                self.cut_mappings(spot.slot, node, len as u64);
                Ok(0)
            })
        }
    }

    /// `ftruncate(fd, len)`.
    pub unsafe fn ftruncate(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let len = args[1] as i64;
        if len < 0 {
            return fail(Errno::EINVAL);
        }
        self.on(thread, args[0], |cx, file| {
            if file.entry.kind() != Kind::Regular || !writable(file.flags()) {
                return err(Errno::EINVAL);
            }
            self.resize(cx, file.mount.backend, file.node, len as u64, true)?;
            self.cut_mappings(file.slot, file.node, len as u64);
            Ok(0)
        })
    }

    fn resize(&self, cx: &Cx, backend: &dyn Backend, node: Node, len: u64, size_checked: bool) -> base::Result<usize> {
        let limit = self.file_limit();
        if len > limit && len > backend.attr(cx, node)?.size {
            super::rw::over_limit();
            return err(Errno::EFBIG);
        }
        let change = SetAttr { size: Some(len), size_checked, ..SetAttr::default() };
        backend.set_attr(cx, node, &change).map(|()| 0)
    }
}

/// Whether these `O_*` allow writing.
#[inline]
pub(crate) fn writable(flags: u32) -> bool {
    matches!(flags & abi::O_ACCMODE, abi::O_WRONLY | abi::O_RDWR)
}

/// Whether these `O_*` allow reading.
#[inline]
pub(crate) fn readable(flags: u32) -> bool {
    matches!(flags & abi::O_ACCMODE, abi::O_RDONLY | abi::O_RDWR)
}
