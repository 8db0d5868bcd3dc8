//! `stat` in all its forms, `access`.

use super::{done, err, fail};
use crate::fast::in_place;
#[cfg(target_arch = "x86_64")]
use crate::path::CWD;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::ids;
use base::stat::{Figures, Stat};
use base::{Attr, Cx, Fast, Last, Node, W};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, faults};
use vfs::Backend;

const NSEC: i64 = 1_000_000_000;

/// What a `stat` of these attributes shows.
fn figures(attr: &Attr, device: u64) -> Figures {
    Figures {
        device,
        ino: attr.ino,
        mode: attr.kind.type_bits() | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: ids::shown_user(attr.uid),
        gid: ids::shown_group(attr.gid),
        rdev: attr.rdev,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
    }
}

/// Writes the kernel's `struct stat`.
///
/// # Safety
/// `out` is [bad](crate::bad_pointer) or writable for a `struct stat`.
unsafe fn write_stat(attr: &Attr, device: u64, out: usize) -> base::Result<usize> {
    if bad(out) {
        return err(Errno::EFAULT);
    }
    let mut stat = MaybeUninit::uninit();
    figures(attr, device).write(&mut stat);
    // SAFETY: the caller's promise.
    unsafe { faults::write(out as *mut MaybeUninit<Stat>, &stat) }?;
    Ok(0)
}

/// The attributes of `node` for a `stat`, which must be a directory if `slash`.
///
/// # Safety
/// As for [`write_stat`].
#[inline]
unsafe fn stat_node(cx: &Cx, backend: &dyn Backend, node: Option<Node>, slash: bool, out: usize) -> base::Result<usize> {
    let Some(node) = node else { return err(Errno::ENOENT) };
    let attr = backend.attr_found(cx, node)?;
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

/// What `statx` says besides `stat`.
#[derive(Clone, Copy)]
struct More {
    /// The mount's number, and whether it is its root.
    mount: (u64, bool),
    /// When it was made, where that is known.
    btime: Option<i64>,
}

/// The attributes that `statx` tells of; others are never set.
const TOLD: u32 = abi::STATX_ATTR_MOUNT_ROOT | abi::STATX_ATTR_AUTOMOUNT | abi::STATX_ATTR_DAX;
/// Numbers of mounts that the kernel has not begin here; its own are small.
const MOUNT_IDS: u64 = 1 << 30;

/// Writes the kernel's `struct statx`.
///
/// # Safety
/// `out` is [bad](crate::bad_pointer) or writable for a `struct statx`.
unsafe fn write_statx(from: &Stat, more: More, out: usize) -> base::Result<usize> {
    if bad(out) {
        return err(Errno::EFAULT);
    }
    let time = |tv_sec: i64, tv_nsec: i64| abi::statx_timestamp { tv_sec, tv_nsec: tv_nsec as u32, __reserved: 0 };
    // SAFETY: all fields are integers, for which zero is a value.
    let mut stat: abi::statx = unsafe { core::mem::zeroed() };
    stat.stx_mask = abi::STATX_BASIC_STATS | abi::STATX_MNT_ID;
    stat.stx_attributes_mask = u64::from(TOLD);
    stat.stx_mnt_id = more.mount.0;
    if more.mount.1 {
        stat.stx_attributes = u64::from(abi::STATX_ATTR_MOUNT_ROOT);
    }
    stat.stx_blksize = 4096;
    stat.stx_nlink = from.st_nlink as u32;
    stat.stx_uid = from.st_uid;
    stat.stx_gid = from.st_gid;
    stat.stx_mode = from.st_mode as u16;
    stat.stx_ino = from.st_ino;
    stat.stx_size = from.st_size as u64;
    stat.stx_blocks = from.st_blocks as u64;
    stat.stx_atime = time(from.st_atime as i64, from.st_atime_nsec as i64);
    stat.stx_mtime = time(from.st_mtime as i64, from.st_mtime_nsec as i64);
    stat.stx_ctime = time(from.st_ctime as i64, from.st_ctime_nsec as i64);
    if let Some(btime) = more.btime {
        stat.stx_btime = time(btime.div_euclid(NSEC), btime.rem_euclid(NSEC));
        stat.stx_mask |= abi::STATX_BTIME;
    }
    stat.stx_rdev_major = major(from.st_rdev);
    stat.stx_rdev_minor = minor(from.st_rdev);
    stat.stx_dev_major = major(from.st_dev);
    stat.stx_dev_minor = minor(from.st_dev);
    // SAFETY: the caller's promise.
    unsafe { faults::write(out as *mut abi::statx, &stat) }?;
    Ok(0)
}

#[inline]
fn last(flags: usize) -> Last {
    if flags as u32 & abi::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `stat(path, out)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn stat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.newfstatat(thread, [CWD, args[0], args[1], 0, 0, 0]) }
    }

    /// `lstat(path, out)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn lstat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.newfstatat(thread, [CWD, args[0], args[1], abi::AT_SYMLINK_NOFOLLOW as usize, 0, 0]) }
    }

    /// `fstat(fd, out)`.
    pub unsafe fn fstat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let Some(file) = self.file(args[0]) else { return Outcome::Kernel };
        // SAFETY: the caller's promise.
        if let Some(out) = unsafe { in_place(args[1]) }
            && ids::is_initial()
            && file.mount.backend.fstat_fast(file.node, out) == Fast::Done(())
        {
            return Outcome::Done(0);
        }
        if let Some(told) = self.lower_attr_of(args[0]) {
            // SAFETY: the caller's promise.
            return done(told.and_then(|(attr, device)| unsafe { write_stat(&attr, device, args[1]) }));
        }
        self.on_any(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            unsafe { stat_node(cx, file.mount.backend, Some(file.node), false, args[1]) }
        })
    }

    /// The kernel has answered an `fstat` of a FIFO of its own: if that stands behind one of ours, what that is like.
    ///
    /// # Safety
    /// `out` is a `struct stat` that the kernel has written.
    #[cold]
    pub unsafe fn fstat_behind(&self, thread: &ThreadState, fd: usize, out: usize) {
        if let Some((mount, node)) = self.behind_any(fd)
            && let Ok(attr) = mount.backend.attr(&self.cx(thread), node)
        {
            // SAFETY: the caller's promise.
            let _ = unsafe { write_stat(&attr, mount.backend.device_of(node), out) };
        }
    }

    /// `newfstatat(dirfd, path, out, flags)`.
    #[inline]
    pub unsafe fn newfstatat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let follow = args[3] as u32 & abi::AT_SYMLINK_NOFOLLOW == 0;
        if args[3] as u32 & !(abi::AT_SYMLINK_NOFOLLOW | abi::AT_NO_AUTOMOUNT) == 0
            // SAFETY: the caller's promise.
            && let Some(result) = unsafe { self.stat_fast(args[0], args[1], args[2], follow) }
        {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        unsafe { self.newfstatat_slow(thread, args) }
    }

    #[inline(never)]
    unsafe fn newfstatat_slow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const KNOWN: u32 = abi::AT_SYMLINK_NOFOLLOW | abi::AT_NO_AUTOMOUNT | abi::AT_EMPTY_PATH | abi::AT_STATX_SYNC_TYPE;
        let flags = args[3];
        if flags as u32 & !KNOWN != 0 {
            return fail(Errno::EINVAL);
        }
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], flags, true) } {
            let Some(file) = self.directory(args[0]) else { return Outcome::Kernel };
            if let Some(told) = self.lower_attr_of(args[0]) {
                // SAFETY: the caller's promise.
                return done(told.and_then(|(attr, device)| unsafe { write_stat(&attr, device, args[2]) }));
            }
            let cx = self.cx(thread);
            // SAFETY: the caller's promise.
            return done(unsafe { stat_node(&cx, file.mount.backend, Some(file.node), false, args[2]) });
        }
        let follow = last(flags) == Last::Follow;
        // SAFETY: the caller's promise.
        if let Some(told) = unsafe { self.lower_attr(args[0], args[1], follow) } {
            // SAFETY: the caller's promise.
            return done(told.and_then(|(attr, device)| unsafe { write_stat(&attr, device, args[2]) }));
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
            if let Some(told) = self.lower_attr_of(args[0]) {
                // SAFETY: the caller's promise.
                return done(
                    told.and_then(|(attr, device)| unsafe { self.write_statx_of(&self.cx(thread), &attr, device, args[4]) }),
                );
            }
            // SAFETY: the caller's promise.
            return done(unsafe { self.statx_node(&self.cx(thread), file.mount.backend, file.node, args[4]) });
        }
        let mut stat = MaybeUninit::uninit();
        // SAFETY: the caller's promise, and room for a `struct stat`.
        match unsafe { self.stat_fast(args[0], args[1], stat.as_mut_ptr() as usize, flags & abi::AT_SYMLINK_NOFOLLOW == 0) } {
            Some(0) => {
                // SAFETY: filled in on success.
                let stat = unsafe { stat.assume_init_ref() };
                let more = More { mount: self.mount_of(&self.cx(thread), stat), btime: None };
                // SAFETY: the caller's promise.
                return done(unsafe { write_statx(stat, more, args[4]) });
            }
            Some(error) => return Outcome::Done(error),
            None => {}
        }
        // SAFETY: the caller's promise.
        if let Some(told) = unsafe { self.lower_attr(args[0], args[1], flags & abi::AT_SYMLINK_NOFOLLOW == 0) } {
            // SAFETY: the caller's promise.
            return done(
                told.and_then(|(attr, device)| unsafe { self.write_statx_of(&self.cx(thread), &attr, device, args[4]) }),
            );
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_statx, args), args[0], 1, last(args[2]), |cx, spot| {
                self.statx_node(cx, spot.mount.backend, spot.node(cx)?, args[4])
            })
        }
    }

    /// The number of the mount that something is in, and whether it is the mount's root.
    fn mount_of(&self, cx: &Cx, stat: &Stat) -> (u64, bool) {
        let device = stat.st_dev;
        let own = self.mounts.iter().find(|(_, mount)| mount.backend.device_of(mount.root) == device);
        // What lies deeper in a directory of the kernel's may have another device.
        let Some((slot, mount)) = own.or_else(|| self.mounts.iter().find(|(_, mount)| mount.is_kernels)) else {
            return (MOUNT_IDS, false);
        };
        let known = u64::from(self.mount_ids[slot].load(Relaxed));
        let is_root = own.is_some()
            && stat.st_mode & abi::S_IFMT == abi::S_IFDIR
            && mount.backend.attr(cx, mount.root).is_ok_and(|root| root.ino == stat.st_ino);
        (if known != 0 { known } else { MOUNT_IDS + slot as u64 }, is_root)
    }

    /// As `write_statx`, of a node's attributes.
    ///
    /// # Safety
    /// As for [`write_statx`].
    unsafe fn statx_node(&self, cx: &Cx, backend: &dyn Backend, node: Node, out: usize) -> base::Result<usize> {
        let attr = backend.attr_found(cx, node)?;
        // SAFETY: the caller's promise.
        unsafe { self.write_statx_of(cx, &attr, backend.device_of(node), out) }
    }

    /// As `write_statx`, of attributes.
    ///
    /// # Safety
    /// As for [`write_statx`].
    unsafe fn write_statx_of(&self, cx: &Cx, attr: &Attr, device: u64, out: usize) -> base::Result<usize> {
        let mut stat = MaybeUninit::uninit();
        figures(attr, device).write(&mut stat);
        // SAFETY: just written.
        let stat = unsafe { stat.assume_init_ref() };
        let more = More { mount: self.mount_of(cx, stat), btime: attr.btime };
        // SAFETY: the caller's promise.
        unsafe { write_statx(stat, more, out) }
    }

    /// `access(path, mode)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn access(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.faccessat(thread, [CWD, args[0], args[1], 0, 0, 0]) }
    }

    /// `faccessat(dirfd, path, mode)`.
    #[inline]
    pub unsafe fn faccessat(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { self.access_fast(args[0], args[1], args[2], 0) } {
            return Outcome::Done(result);
        }
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
        if let Some(result) = unsafe { self.access_fast(args[0], args[1], args[2], args[3] as u32) } {
            return Outcome::Done(result);
        }
        // SAFETY: the caller's promise.
        unsafe { self.access_at(thread, (abi::__NR_faccessat2, args), args[0], 1, args[2], args[3]) }
    }

    #[inline(never)]
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
        // Whether anything may be written at all, the backend must say.
        if want & u32::from(W) == 0
            // SAFETY: the caller's promise.
            && let Some(handle) = unsafe { self.lower_handle(dirfd, call.1[index], last(flags) == Last::Follow) }
        {
            let effective = flags as u32 & abi::AT_EACCESS != 0;
            let may = |file: &pm::file::File| if want == 0 { Ok(()) } else { file.may(want as u16, effective) };
            return done(handle.and_then(|handle| Ok(may(&handle).map(|()| 0)?)));
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
