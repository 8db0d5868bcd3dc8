//! `stat` in all its forms, `access`.

use super::{done, err, fail};
use crate::path::CWD;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Attr, Cx, Glance, Last, Node, W};
use pm::Errno;
use pm::sys::abi;
use vfs::Backend;

const NSEC: i64 = 1_000_000_000;

/// Writes the kernel's `struct stat`.
///
/// # Safety
/// `out` is low or writable for a `struct stat`.
#[inline]
unsafe fn write_stat(attr: &Attr, device: u64, out: usize) -> base::Result<usize> {
    if bad(out) {
        return err(Errno::EFAULT);
    }
    let out = out as *mut abi::stat;
    let [mtime, ctime] = [attr.mtime, attr.ctime].map(split);
    let atime = if attr.atime == attr.mtime { mtime } else { split(attr.atime) };
    // Field by field, in the program's memory: a copy of the whole would cost as much again.
    macro_rules! put {
        ($($field:ident: $value:expr),* $(,)?) => {$(
            // SAFETY: the caller's promise.
            unsafe { (&raw mut (*out).$field).write_unaligned($value as _) };
        )*};
    }
    put! {
        st_dev: device,
        st_ino: attr.ino,
        st_nlink: attr.nlink,
        st_mode: attr.kind.type_bits() | attr.mode as u32,
        st_uid: attr.uid,
        st_gid: attr.gid,
        st_rdev: attr.rdev,
        st_size: attr.size,
        st_blksize: 4096,
        st_blocks: attr.blocks,
        st_atime: atime.0,
        st_atime_nsec: atime.1,
        st_mtime: mtime.0,
        st_mtime_nsec: mtime.1,
        st_ctime: ctime.0,
        st_ctime_nsec: ctime.1,
    }
    write_padding(out);
    Ok(0)
}

/// What the kernel leaves zero in a `struct stat`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn write_padding(out: *mut abi::stat) {
    // SAFETY: the caller of `write_stat` promises a whole structure.
    unsafe { (&raw mut (*out).__pad0).write_unaligned(0) };
    // SAFETY: as above.
    unsafe { (&raw mut (*out).__unused).write_unaligned([0; 3]) };
}

/// What the kernel leaves zero in a `struct stat`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn write_padding(_out: *mut abi::stat) {}

/// Seconds and nanoseconds of a time; before 1970 the latter still count forward.
#[inline(always)]
fn split(time: i64) -> (i64, i64) {
    if time >= 0 {
        let seconds = time as u64 / NSEC as u64;
        (seconds as i64, (time as u64 - seconds * NSEC as u64) as i64)
    } else {
        (time.div_euclid(NSEC), time.rem_euclid(NSEC))
    }
}

/// The attributes of `node` for a `stat`, which must be a directory if `slash`.
///
/// # Safety
/// As for [`write_stat`].
#[inline]
unsafe fn stat_node(cx: &Cx, backend: &dyn Backend, node: Option<Node>, slash: bool, out: usize) -> base::Result<usize> {
    let Some(node) = node else { return err(Errno::ENOENT) };
    let attr = backend.attr(cx, node)?;
    if slash && attr.kind != base::Kind::Directory {
        return err(Errno::ENOTDIR);
    }
    // SAFETY: the caller's promise.
    unsafe { write_stat(&attr, backend.device_of(node), out) }
}

fn major(device: u64) -> u32 {
    ((device >> 8 & 0xfff) | (device >> 32 & !0xfff)) as u32
}

fn minor(device: u64) -> u32 {
    ((device & 0xff) | (device >> 12 & !0xff)) as u32
}

/// Writes the kernel's `struct statx`.
///
/// # Safety
/// `out` is low or writable for a `struct statx`.
unsafe fn write_statx(attr: &Attr, device: u64, out: usize) -> base::Result<usize> {
    if bad(out) {
        return err(Errno::EFAULT);
    }
    let time = |ns: i64| abi::statx_timestamp { tv_sec: ns.div_euclid(NSEC), tv_nsec: ns.rem_euclid(NSEC) as u32, __reserved: 0 };
    // SAFETY: all fields are integers, for which zero is a value.
    let mut stat: abi::statx = unsafe { core::mem::zeroed() };
    stat.stx_mask = abi::STATX_BASIC_STATS;
    stat.stx_blksize = 4096;
    stat.stx_nlink = attr.nlink;
    stat.stx_uid = attr.uid;
    stat.stx_gid = attr.gid;
    stat.stx_mode = (attr.kind.type_bits() | attr.mode as u32) as u16;
    stat.stx_ino = attr.ino;
    stat.stx_size = attr.size;
    stat.stx_blocks = attr.blocks;
    stat.stx_atime = time(attr.atime);
    stat.stx_mtime = time(attr.mtime);
    stat.stx_ctime = time(attr.ctime);
    if let Some(btime) = attr.btime {
        stat.stx_btime = time(btime);
        stat.stx_mask |= abi::STATX_BTIME;
    }
    stat.stx_rdev_major = major(attr.rdev);
    stat.stx_rdev_minor = minor(attr.rdev);
    stat.stx_dev_major = major(device);
    stat.stx_dev_minor = minor(device);
    // SAFETY: the caller's promise.
    unsafe { (out as *mut abi::statx).write_unaligned(stat) };
    Ok(0)
}

#[inline(always)]
fn last(flags: usize) -> Last {
    if flags as u32 & abi::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `stat(path, out)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn stat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { self.glance_stat(thread, CWD, args[0], args[1], true) } {
            return outcome;
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_stat, args), CWD, 0, Last::Follow, |cx, spot| {
                stat_node(cx, spot.mount.backend, spot.found.node, spot.found.slash, args[1])
            })
        }
    }

    /// A `stat` that a glance can answer.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(always)]
    unsafe fn glance_stat(&self, thread: &ThreadState, dirfd: usize, path: usize, out: usize, follow: bool) -> Option<Outcome> {
        let mut attr = Attr::EMPTY;
        // SAFETY: the caller's promise.
        match unsafe { self.glance(&self.cx(thread), dirfd, path, follow, &mut attr) }? {
            // SAFETY: the caller's promise.
            (mount, Glance::Seen) => Some(done(unsafe { write_stat(&attr, mount.backend.device(), out) })),
            (_, Glance::Absent) => Some(fail(Errno::ENOENT)),
            (_, Glance::Unsure) => None,
        }
    }

    /// `lstat(path, out)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn lstat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { self.glance_stat(thread, CWD, args[0], args[1], false) } {
            return outcome;
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_lstat, args), CWD, 0, Last::NoFollow, |cx, spot| {
                stat_node(cx, spot.mount.backend, spot.found.node, spot.found.slash, args[1])
            })
        }
    }

    /// `fstat(fd, out)`.
    pub unsafe fn fstat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on_any(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            unsafe { stat_node(cx, file.mount.backend, Some(file.node), false, args[1]) }
        })
    }

    /// `newfstatat(dirfd, path, out, flags)`.
    pub unsafe fn newfstatat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const KNOWN: u32 = abi::AT_SYMLINK_NOFOLLOW | abi::AT_NO_AUTOMOUNT | abi::AT_EMPTY_PATH | abi::AT_STATX_SYNC_TYPE;
        let flags = args[3];
        if flags as u32 & !KNOWN != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], flags, true) } {
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            let cx = self.cx(thread);
            // SAFETY: the caller's promise.
            return done(unsafe { stat_node(&cx, file.mount.backend, Some(file.node), false, args[2]) });
        }
        let follow = flags as u32 & abi::AT_SYMLINK_NOFOLLOW == 0;
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { self.glance_stat(thread, args[0], args[1], args[2], follow) } {
            return outcome;
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_newfstatat, args), args[0], 1, last(flags), |cx, spot| {
                stat_node(cx, spot.mount.backend, spot.found.node, spot.found.slash, args[2])
            })
        }
    }

    /// `statx(dirfd, path, flags, mask, out)`.
    pub unsafe fn statx(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const KNOWN: u32 = abi::AT_SYMLINK_NOFOLLOW | abi::AT_NO_AUTOMOUNT | abi::AT_EMPTY_PATH | abi::AT_STATX_SYNC_TYPE;
        let flags = args[2] as u32;
        if args[3] as u32 & abi::STATX__RESERVED != 0
            || flags & !KNOWN != 0
            || flags & abi::AT_STATX_SYNC_TYPE == abi::AT_STATX_SYNC_TYPE
        {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], args[2], true) } {
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            let attr = file.mount.backend.attr(&self.cx(thread), file.node);
            // SAFETY: the caller's promise.
            return done(attr.and_then(|attr| unsafe { write_statx(&attr, file.mount.backend.device_of(file.node), args[4]) }));
        }
        let mut attr = Attr::EMPTY;
        // SAFETY: the caller's promise.
        match unsafe { self.glance(&self.cx(thread), args[0], args[1], flags & abi::AT_SYMLINK_NOFOLLOW == 0, &mut attr) } {
            // SAFETY: the caller's promise.
            Some((mount, Glance::Seen)) => return done(unsafe { write_statx(&attr, mount.backend.device(), args[4]) }),
            Some((_, Glance::Absent)) => return fail(Errno::ENOENT),
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_statx, args), args[0], 1, last(args[2]), |cx, spot| {
                let node = spot.node(cx)?;
                write_statx(&spot.mount.backend.attr(cx, node)?, spot.mount.backend.device_of(node), args[4])
            })
        }
    }

    /// `access(path, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn access(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.access_at(thread, (abi::__NR_access, args), CWD, 0, args[1], 0) }
    }

    /// `faccessat(dirfd, path, mode)`.
    pub unsafe fn faccessat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.access_at(thread, (abi::__NR_faccessat, args), args[0], 1, args[2], 0) }
    }

    /// `faccessat2(dirfd, path, mode, flags)`.
    pub unsafe fn faccessat2(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const KNOWN: u32 = abi::AT_EACCESS | abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH;
        if args[3] as u32 & !KNOWN != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { self.access_at(thread, (abi::__NR_faccessat2, args), args[0], 1, args[2], args[3]) }
    }

    #[inline(always)]
    unsafe fn access_at(
        &self,
        thread: &ThreadState,
        call: (u32, [usize; 6]),
        dirfd: usize,
        index: usize,
        want: usize,
        flags: usize,
    ) -> Outcome {
        let want = want as u32;
        if want & !7 != 0 {
            return fail(Errno::EINVAL);
        }
        let mut cx = self.cx(thread);
        if flags as u32 & abi::AT_EACCESS == 0 {
            cx.cred = self.credentials.real();
        }
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(call.1[index], flags, false) } {
            let Some(file) = self.directory(dirfd) else { return Outcome::Kernel };
            return done(file.mount.backend.access(&cx, file.node, want as u16).map(|()| 0));
        }
        let mut attr = Attr::EMPTY;
        // SAFETY: the caller's promise.
        match unsafe { self.glance(&cx, dirfd, call.1[index], flags as u32 & abi::AT_SYMLINK_NOFOLLOW == 0, &mut attr) } {
            // Whether anything may be written at all, the backend must say.
            Some((_, Glance::Seen)) if want & u32::from(W) == 0 => {
                let may = want == 0 || cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, want as u16);
                return if may { Outcome::Done(0) } else { fail(Errno::EACCES) };
            }
            Some((_, Glance::Absent)) => return fail(Errno::ENOENT),
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at_as(cx, thread, call, dirfd, index, last(flags), |cx, spot| {
                let node = spot.node(cx)?;
                if want == 0 { Ok(0) } else { spot.mount.backend.access(cx, node, want as u16).map(|()| 0) }
            })
        }
    }
}
