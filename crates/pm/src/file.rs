//! The kernel's files underneath: opening, mapping and growing an image or a segment.
//!
//! Raw system calls; paths are NUL-terminated. Descriptors are opened for the
//! moment and closed again: a program that closes all descriptors must not hurt us.
//!
//! What lies at a name that others can make is opened by [`File::open_checked`] or [`File::open_known`] only:
//! looked at first, never waited for (`O_NONBLOCK`), and looked at again when it is open.

use crate::{Errno, call, huge, sys::abi};

/// An open kernel descriptor, closed when dropped.
#[derive(Debug)]
pub struct File(i32);

/// What [`File::stat`] tells.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Allocated space, bytes.
    pub allocated: u64,
    /// Number of names; 0: the file was removed.
    pub links: u64,
    /// When its contents changed last, seconds since the epoch.
    pub modified: i64,
    /// When that or an attribute changed last: seconds since the epoch, and nanoseconds.
    pub changed: [i64; 2],
}

impl Stat {
    fn new(stat: &abi::stat) -> Stat {
        Stat {
            dev: stat.st_dev,
            ino: stat.st_ino,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            allocated: stat.st_blocks as u64 * 512,
            links: u64::from(stat.st_nlink as u32),
            modified: stat.st_mtime as i64,
            changed: [stat.st_ctime as i64, stat.st_ctime_nsec as i64],
        }
    }

    /// Device and inode number.
    pub fn identity(&self) -> [u64; 2] {
        [self.dev, self.ino]
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & abi::S_IFMT == abi::S_IFREG
    }
}

/// How long [`File::lock`] waits, nanoseconds.
const LOCK_PATIENCE: i64 = 20_000_000_000;
/// The same of [`File::lock_soon`].
const LOCK_SOON: i64 = 20_000_000;
/// What a file's mappings begin and end at.
const MAPPED_PAGE: u64 = 4096;

/// Attributes of what is at `path` (NUL-terminated), in one call.
pub fn stat(path: &[u8]) -> Result<Stat, Errno> {
    stat_at(path, 0)
}

/// The same; of a symlink itself, not of its target.
pub fn lstat(path: &[u8]) -> Result<Stat, Errno> {
    stat_at(path, abi::AT_SYMLINK_NOFOLLOW)
}

/// Effective user of this process.
pub fn own_user() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(abi::__NR_geteuid) }.unwrap_or(0) as u32
}

fn stat_at(path: &[u8], flags: u32) -> Result<Stat, Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: a zeroed `stat` is a valid one; the kernel fills it.
    let mut stat: abi::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the path is NUL-terminated, the buffer a `struct stat`.
    unsafe { call!(abi::__NR_newfstatat, abi::AT_FDCWD, path.as_ptr(), &raw mut stat, flags) }?;
    Ok(Stat::new(&stat))
}

/// Free bytes and all bytes of the file system that `path` (NUL-terminated) is on.
pub fn room(path: &[u8]) -> Result<(u64, u64), Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    // `struct statfs`: type, block size, blocks, free blocks, those that anybody may have, …
    let mut words = [0u64; 15];
    // SAFETY: the path is NUL-terminated; a `struct statfs` has 120 bytes.
    unsafe { call!(abi::__NR_statfs, path.as_ptr(), words.as_mut_ptr()) }?;
    let [_, size, all, _, free, ..] = words;
    Ok((free.saturating_mul(size), all.saturating_mul(size)))
}

/// Attributes of what is open under a number of the kernel's.
pub fn stat_of(number: u32) -> Result<Stat, Errno> {
    // SAFETY: a zeroed `stat` is a valid one; the kernel fills it.
    let mut stat: abi::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer is a `struct stat`.
    unsafe { call!(abi::__NR_fstat, number, &raw mut stat) }?;
    Ok(Stat::new(&stat))
}

impl File {
    /// Opens `path` (NUL-terminated) with `O_*` flags; `O_CLOEXEC` is added.
    pub fn open(path: &[u8], flags: u32, mode: u32) -> Result<File, Errno> {
        if path.last() != Some(&0) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the path is NUL-terminated and outlives the call.
        let fd = unsafe { call!(abi::__NR_openat, abi::AT_FDCWD, path.as_ptr(), flags | abi::O_CLOEXEC, mode) }?;
        Ok(File(fd as i32))
    }

    /// Opens a regular file at a name that others can make too: no symlink is followed, a FIFO or device not opened
    /// at all, a lease not waited for, and `is_right` has seen owner and mode before. `EPERM` if it is another one.
    pub fn open_checked(path: &[u8], flags: u32, is_right: impl Fn(&Stat) -> bool) -> Result<(File, Stat), Errno> {
        let before = lstat(path)?;
        if !before.is_regular() || !is_right(&before) {
            return Err(Errno::EPERM);
        }
        let file = File::open(path, flags | abi::O_NOFOLLOW | abi::O_NONBLOCK, 0)?;
        let stat = file.stat()?;
        let is_same = stat.identity() == before.identity() && is_right(&stat);
        if is_same { Ok((file, stat)) } else { Err(Errno::EPERM) }
    }

    /// Opens a regular file of which device and inode number are known, by a path that may lead elsewhere by now
    /// (`ESTALE`). Symlinks are followed.
    pub fn open_known(path: &[u8], flags: u32, identity: [u64; 2]) -> Result<File, Errno> {
        let is_it = |stat: Stat| stat.is_regular() && stat.identity() == identity;
        if !is_it(stat(path)?) {
            return Err(Errno::ESTALE);
        }
        let file = File::open(path, flags | abi::O_NONBLOCK, 0)?;
        if is_it(file.stat()?) { Ok(file) } else { Err(Errno::ESTALE) }
    }

    /// Takes over an open descriptor, which nobody else closes.
    pub(crate) fn from_number(number: i32) -> File {
        File(number)
    }

    /// Gives the descriptor up to whoever is to close it.
    pub fn into_number(self) -> i32 {
        core::mem::ManuallyDrop::new(self).0
    }

    /// The descriptor's number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Identity, mode, owner and size.
    pub fn stat(&self) -> Result<Stat, Errno> {
        stat_of(self.0 as u32)
    }

    /// Sets the length in bytes.
    pub fn truncate(&self, len: u64) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_ftruncate, self.0, len) }.map(drop)
    }

    /// Gives real space to a range without changing contents; `ENOSPC` if there is none.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fallocate, self.0, 0, offset, len) }.map(drop)
    }

    /// Gives the space of a range back to the file system, which reads as zeroes then.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        // FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fallocate, self.0, 3, offset, len) }.map(drop)
    }

    /// Takes the kernel's exclusive `flock`, waiting for 20 s at most (`EAGAIN`): whoever may read the file can hold
    /// it for ever. It ends with `unlock` or its holder's death; closing is not enough once the file has been mapped
    /// through this descriptor.
    pub fn lock(&self) -> Result<(), Errno> {
        self.lock_within(abi::LOCK_EX, LOCK_PATIENCE)
    }

    /// As [`File::lock`], the lock that any number may have at a time.
    pub fn lock_shared(&self) -> Result<(), Errno> {
        self.lock_within(abi::LOCK_SH, LOCK_PATIENCE)
    }

    /// As [`File::lock_shared`], but it waits for some 20 ms at most.
    pub fn lock_shared_soon(&self) -> Result<(), Errno> {
        self.lock_within(abi::LOCK_SH, LOCK_SOON)
    }

    /// As [`File::lock`], but it waits for some 20 ms at most; whether it has the lock.
    pub fn lock_soon(&self) -> bool {
        self.lock_within(abi::LOCK_EX, LOCK_SOON).is_ok()
    }

    /// As [`File::lock`], but it waits for so many nanoseconds at most; whether it has the lock.
    pub fn lock_for(&self, patience: i64) -> bool {
        self.lock_within(abi::LOCK_EX, patience).is_ok()
    }

    fn lock_within(&self, how: u32, patience: i64) -> Result<(), Errno> {
        let (mut end, mut time) = (None, LOCK_NAP_FIRST);
        loop {
            // SAFETY: no pointers.
            match unsafe { call!(abi::__NR_flock, self.0, how | abi::LOCK_NB) } {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let now = crate::clock::monotonic();
                    if now > *end.get_or_insert(now.saturating_add(patience)) {
                        return Err(Errno::EAGAIN);
                    }
                    nap(time);
                    time = (time * 2).min(LOCK_NAP_LAST);
                }
                other => return other.map(drop),
            }
        }
    }

    /// Whether other machines may have the file too: it lies on a file system of a network or a cluster, or on one
    /// that a daemon serves (virtiofs, sshfs), behind which there may be one. What is not known is local.
    pub fn is_shared(&self) -> bool {
        // `f_type` comes first; the structure has 120 bytes.
        let mut buffer = [0u64; 16];
        // SAFETY: the buffer is larger than a `struct statfs`.
        let told = unsafe { call!(abi::__NR_fstatfs, self.0, buffer.as_mut_ptr()) };
        told.is_ok() && SHARED_KINDS.contains(&(buffer[0] as u32))
    }

    /// Gives the `flock` back.
    pub fn unlock(&self) {
        // SAFETY: no pointers.
        let _ = unsafe { call!(abi::__NR_flock, self.0, abi::LOCK_UN) };
    }

    /// Whether nobody else has the file open or mapped, here or in another container. Asked by way of a write lease,
    /// which the kernel gives to none but the only user (fcntl(2)); it goes with this descriptor, and who opens the
    /// file meanwhile waits for that. The descriptor must be open for writing, the file its owner's.
    pub fn is_alone(&self) -> bool {
        // The signal that tells of a waiter is `SIGIO`, which would end us; this one is ignored.
        // SAFETY: no pointers.
        let told = unsafe { call!(abi::__NR_fcntl, self.0, abi::F_SETSIG, abi::SIGURG) };
        // SAFETY: no pointers.
        told.is_ok() && unsafe { call!(abi::__NR_fcntl, self.0, abi::F_SETLEASE, abi::F_WRLCK) }.is_ok()
    }

    /// As [`is_alone`](File::is_alone), of a descriptor that is used on: the lease is given back.
    pub fn is_alone_now(&self) -> bool {
        let alone = self.is_alone();
        if alone {
            // SAFETY: no pointers.
            let _ = unsafe { call!(abi::__NR_fcntl, self.0, abi::F_SETLEASE, abi::F_UNLCK) };
        }
        alone
    }

    /// Changes the group.
    pub fn set_group(&self, gid: u32) -> Result<(), Errno> {
        // SAFETY: no pointers; -1 leaves the owner.
        unsafe { call!(abi::__NR_fchown, self.0, -1i32, gid) }.map(drop)
    }

    /// Changes the mode, by the descriptor itself: without `/proc`.
    pub fn change_mode(&self, mode: u32) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fchmod, self.0, mode) }.map(drop)
    }

    /// Changes owner and mode.
    pub fn own(&self, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fchown, self.0, uid, gid) }?;
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fchmod, self.0, mode) }.map(drop)
    }

    /// Reads at `offset` into a buffer; returns the bytes read.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        // SAFETY: the buffer is writable for its length.
        unsafe { call!(abi::__NR_pread64, self.0, into.as_mut_ptr(), into.len(), offset) }
    }

    /// Reads on from where the last reading has ended; returns the bytes read.
    pub fn read_on(&self, into: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer is writable for its length.
        unsafe { call!(abi::__NR_read, self.0, into.as_mut_ptr(), into.len()) }
    }

    /// The next entries of an open directory, as `struct linux_dirent64`; bytes filled, 0 at the end.
    pub(crate) fn entries(&self, into: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer is writable for its length.
        unsafe { call!(abi::__NR_getdents64, self.0, into.as_mut_ptr(), into.len()) }
    }

    /// Maps `len` bytes shared from the start; beyond the end of the file is
    /// mapped too and must not be touched. `Ok(address)`: a multiple of
    /// [`huge::HUGE_PAGE`] from that length on.
    pub fn map(&self, len: u64, writable: bool, sync: bool) -> Result<*mut u8, Errno> {
        let protection = abi::PROT_READ | if writable { abi::PROT_WRITE } else { 0 };
        let flags = if sync { abi::MAP_SHARED_VALIDATE | abi::MAP_SYNC } else { abi::MAP_SHARED } | abi::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice, or over one of ours that nobody knows of, hurts nobody.
        let map = |at, len, fixed| unsafe { call!(abi::__NR_mmap, at, len, protection, flags | fixed, self.0, 0) };
        let address = huge::place(len, map)?;
        crate::own::note(address, len as usize);
        // All of it in the dump of each program that crashes would be no use.
        let _ = advise(address as *mut u8, len, abi::MADV_DONTDUMP);
        Ok(address as *mut u8)
    }

    /// Maps `len` bytes as a private copy: what is stored there is nobody else's. `Ok(address)`.
    pub fn map_copy(&self, len: u64) -> Result<*mut u8, Errno> {
        let (protection, flags) = (abi::PROT_READ | abi::PROT_WRITE, abi::MAP_PRIVATE | abi::MAP_NORESERVE);
        // SAFETY: a new mapping at a place of the kernel's choice hurts nobody.
        let address = unsafe { call!(abi::__NR_mmap, 0, len, protection, flags, self.0, 0) }?;
        Ok(address as *mut u8)
    }
}

impl File {
    /// Maps `len` bytes of this file from `offset` on, shared and for reading, over what `region` has at the same offset.
    /// Stores to it by safe code are a fault from then on.
    pub fn map_over(&self, region: &crate::Region, offset: u64, len: u64) -> Result<(), Errno> {
        if !region.holds(offset, len) || !(offset | len).is_multiple_of(MAPPED_PAGE) {
            return Err(Errno::EINVAL);
        }
        let flags = abi::MAP_SHARED | abi::MAP_FIXED | abi::MAP_NORESERVE;
        let at = region.base().wrapping_add(offset as usize);
        // SAFETY: pages inside a mapping of ours, which stays one; what refers to them sees other bytes, as it does when
        // another process stores there.
        unsafe { call!(abi::__NR_mmap, at, len, abi::PROT_READ, flags, self.0, offset) }.map(drop)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and used by nobody else.
        let _ = unsafe { call!(abi::__NR_close, self.0) };
    }
}

/// Maps a shared file (`path` NUL-terminated) of at least `len` bytes, for good. `EINVAL` if it is shorter, `EPERM` if
/// it is neither this user's nor root's: a session that has ended has left its name to everybody. Not so what is named by
/// a descriptor of this process, `/proc/self/fd/N`.
pub fn share(path: &[u8], len: u64) -> Result<crate::Region, Errno> {
    let own = own_user();
    let (file, stat) = if path.starts_with(b"/proc/self/fd/") {
        let file = File::open(path, abi::O_RDWR, 0)?;
        let stat = file.stat()?;
        (file, stat)
    } else {
        File::open_checked(path, abi::O_RDWR, |stat| stat.uid == own || stat.uid == 0)?
    };
    if stat.size < len {
        return Err(Errno::EINVAL);
    }
    let base = file.map(len, true, false)?;
    // SAFETY: just mapped, shared and writable, never unmapped.
    Ok(unsafe { crate::Region::new(base, len, len, crate::Domain::Process) })
}

/// Removes a mapping.
///
/// # Safety
/// Nothing may use `address..address + len` any more.
pub unsafe fn unmap(address: *mut u8, len: u64) {
    crate::own::forget(address as usize);
    // SAFETY: the caller vouches for it.
    let _ = unsafe { call!(abi::__NR_munmap, address, len) };
}

/// Whether this process may make files of so many bytes (`RLIMIT_FSIZE`); `EFBIG` if not.
pub fn may_reach(len: u64) -> Result<(), Errno> {
    const RLIMIT_FSIZE: u32 = 1;
    let mut limit = [0u64; 2];
    // SAFETY: the array is a `struct rlimit64`.
    unsafe { call!(abi::__NR_prlimit64, 0, RLIMIT_FSIZE, 0, limit.as_mut_ptr()) }?;
    if len <= limit[0] { Ok(()) } else { Err(Errno::EFBIG) }
}

/// Maps zeroed private memory; `Ok(address)`.
pub fn map_private(len: u64) -> Result<*mut u8, Errno> {
    let (protection, flags) = (abi::PROT_READ | abi::PROT_WRITE, abi::MAP_PRIVATE | abi::MAP_ANONYMOUS | abi::MAP_NORESERVE);
    // SAFETY: a new mapping at a place of the kernel's choice hurts nobody.
    let address = unsafe { call!(abi::__NR_mmap, 0, len, protection, flags, -1isize, 0) }?;
    Ok(address as *mut u8)
}

/// Gives memory advice (`MADV_*`) on a mapping of ours; failure is harmless.
pub fn advise(address: *mut u8, len: u64, advice: u32) -> Result<(), Errno> {
    use abi::{MADV_COLLAPSE, MADV_DODUMP, MADV_DONTDUMP, MADV_HUGEPAGE};
    use abi::{MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_WILLNEED};
    match advice {
        MADV_COLLAPSE | MADV_DODUMP | MADV_DONTDUMP | MADV_HUGEPAGE => {}
        MADV_POPULATE_READ | MADV_POPULATE_WRITE | MADV_WILLNEED => {}
        _ => return Err(Errno::EINVAL),
    }
    // SAFETY: none of the advices let through changes contents.
    unsafe { call!(abi::__NR_madvise, address, len, advice) }.map(drop)
}

/// Gives the memory behind a range of a shared mapping back (`MADV_REMOVE`): it reads as zeroes.
///
/// # Safety
/// `address..address + len` must lie in a mapping of ours whose contents are not needed.
pub(crate) unsafe fn remove(address: *mut u8, len: u64) -> Result<(), Errno> {
    // SAFETY: the caller vouches for it.
    unsafe { call!(abi::__NR_madvise, address, len, abi::MADV_REMOVE) }.map(drop)
}

/// Writes a mapped range back to its file and waits (`MS_SYNC`).
pub fn sync(address: *mut u8, len: u64) -> Result<(), Errno> {
    // SAFETY: writes back, changes nothing.
    unsafe { call!(abi::__NR_msync, address, len, abi::MS_SYNC) }.map(drop)
}

/// What kind of file system a file lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// tmpfs or ramfs: nothing behind it.
    Memory,
    /// Through a FUSE daemon.
    Fuse,
    /// Any other.
    Disk,
}

/// The file system of a file, by a path that has a NUL in it.
pub fn file_system(path: &[u8]) -> Result<FileSystem, Errno> {
    if !path.contains(&0) {
        return Err(Errno::EINVAL);
    }
    // `f_type` comes first; the structure has 120 bytes.
    let mut buffer = [0u64; 16];
    // SAFETY: the path is NUL-terminated; the buffer is larger than a `struct statfs`.
    unsafe { call!(abi::__NR_statfs, path.as_ptr(), buffer.as_mut_ptr()) }?;
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const FUSE: u64 = 0x6573_5546;
    Ok(match buffer[0] & 0xffff_ffff {
        TMPFS | RAMFS => FileSystem::Memory,
        FUSE => FileSystem::Fuse,
        _ => FileSystem::Disk,
    })
}

/// Removes a file by its NUL-terminated path.
pub fn unlink(path: &[u8]) -> Result<(), Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: NUL-terminated, outlives the call.
    unsafe { call!(abi::__NR_unlinkat, abi::AT_FDCWD, path.as_ptr(), 0) }.map(drop)
}

/// Fills `into` with random bytes of the kernel's.
pub fn random(into: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: the buffer is writable for its length.
    unsafe { call!(abi::__NR_getrandom, into.as_mut_ptr(), into.len(), 0) }.map(drop)
}

/// Sleeps on a shared word while it holds `value`, at most `timeout_ns`.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32, timeout_ns: i64) {
    let timeout = abi::__kernel_timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: timeout_ns % 1_000_000_000 };
    // SAFETY: the word and the timespec are valid for the call. FUTEX_WAIT without the private flag works across processes.
    let _ = unsafe { call!(abi::__NR_futex, core::ptr::from_ref(word), abi::FUTEX_WAIT, value, &raw const timeout) };
}

/// Wakes all who sleep on a shared word.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the word is valid for the call.
    let _ = unsafe { call!(abi::__NR_futex, core::ptr::from_ref(word), abi::FUTEX_WAKE, i32::MAX) };
}

/// Wakes one who sleeps on a shared word.
pub fn wake_one(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the word is valid for the call.
    let _ = unsafe { call!(abi::__NR_futex, core::ptr::from_ref(word), abi::FUTEX_WAKE, 1) };
}

/// Sleeps for about `time_ns`: for waiters whom another thread's turn has not helped.
pub fn nap(time_ns: i64) {
    #[cfg(feature = "sim")]
    if crate::record::gave_way() {
        return;
    }
    let time = abi::__kernel_timespec { tv_sec: 0, tv_nsec: time_ns };
    // SAFETY: the time is valid for the call; what is left of it nobody asks for.
    let _ = unsafe { call!(abi::__NR_nanosleep, &raw const time, 0) };
}

/// The first nap of one who waits for a `flock`, and the longest, nanoseconds.
const LOCK_NAP_FIRST: i64 = 20_000;
const LOCK_NAP_LAST: i64 = 5_000_000;

/// What `statfs` calls the file systems that more than one machine may have (linux/magic.h and their own headers).
const SHARED_KINDS: [u32; 23] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x6573_5546, // FUSE, virtiofs
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x5346_414f, // AFS
    0x6b41_4653, // AFS, the kernel's
    0x7375_7245, // Coda
    0x564c,      // NCP
    0x2003_0528, // OrangeFS
    0x786f_4256, // VirtualBox's folders
    0xbacb_acbc, // VMware's
    0x1983_0326, // BeeGFS
    0xaad7_aaea, // PanFS
    0x6163_6673, // ACFS
    0xbeef_dead, // StorNext
    0xa501_fcf5, // VxFS
];

/// The first nap of [`pause`], nanoseconds; each is twice the one before.
const FIRST_NAP: i64 = 10_000;
/// Naps of [`pause`]: 20 ms in all.
const NAPS: u32 = 11;
const _: () = assert!(FIRST_NAP * ((1 << NAPS) - 1) <= 25_000_000);

/// Waits for another, who is done within a few instructions unless he was interrupted, or means no good:
/// asleep, longer with each turn. False, at once, when `turns` have been all.
#[cold]
pub fn pause(turns: u32) -> bool {
    if turns < NAPS {
        nap(FIRST_NAP << turns);
    }
    turns < NAPS
}

/// Lets another thread run.
pub fn give_way() {
    #[cfg(feature = "sim")]
    if crate::record::gave_way() {
        return;
    }
    // SAFETY: no arguments.
    let _ = unsafe { call!(abi::__NR_sched_yield) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &std::path::Path) -> std::vec::Vec<u8> {
        [path.as_os_str().as_encoded_bytes(), b"\0"].concat()
    }

    /// Goal: at a name that others can make, nothing is opened but the regular file that is wanted, and nobody waits.
    /// Method: a FIFO, a symlink to a good file, one that is not wanted, and a good one; a lock that is held.
    #[test]
    fn what_others_can_make() {
        let place = std::env::temp_dir().join(std::format!("bypath-others-{}", std::process::id()));
        // A killed run's, whose process had this number.
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        let (good, link, fifo) = (place.join("good"), place.join("link"), place.join("fifo"));
        std::fs::write(&good, [0; 4096]).unwrap();
        std::os::unix::fs::symlink(&good, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let own = |stat: &Stat| stat.uid == own_user();
        for flags in [abi::O_RDONLY, abi::O_RDWR] {
            assert_eq!(File::open_checked(&text(&fifo), flags, own).err(), Some(Errno::EPERM));
            assert_eq!(File::open_checked(&text(&link), flags, own).err(), Some(Errno::EPERM));
            assert_eq!(File::open_checked(&text(&good), flags, |stat| !own(stat)).err(), Some(Errno::EPERM));
            assert!(File::open_checked(&text(&good), flags, own).is_ok());
        }
        assert!(share(&text(&good), 4096).is_ok());
        assert_eq!(share(&text(&link), 4096).err(), Some(Errno::EPERM));
        let identity = stat(&text(&link)).unwrap().identity();
        assert!(File::open_known(&text(&link), abi::O_RDONLY, identity).is_ok());
        for other in [&fifo, &place] {
            assert_eq!(File::open_known(&text(other), abi::O_RDONLY, identity).err(), Some(Errno::ESTALE));
        }

        let (first, second) = (File::open(&text(&good), 0, 0).unwrap(), File::open(&text(&good), 0, 0).unwrap());
        first.lock().unwrap();
        assert_eq!(second.lock_within(abi::LOCK_EX, 20_000_000).err(), Some(Errno::EAGAIN));
        first.unlock();
        assert!(second.lock_within(abi::LOCK_EX, 20_000_000).is_ok());
        assert!(!second.is_shared());
        std::fs::remove_dir_all(&place).unwrap();
    }
}
