//! Descriptor numbers: real ones of the kernel, lowest first.
//!
//! A number of ours is held in the kernel by a placeholder: an `O_PATH`
//! descriptor of the symlink `/proc/self`. Whatever a missed call does with it
//! fails loudly (`read` → `EBADF`, `openat` → `ENOTDIR`, `/dev/fd/N` → `ELOOP`).
//!
//! Invariants
//! - `HELD` has a bit for each number that carries a placeholder.
//! - `DIRECTORIES` ⊆ `HELD`: numbers under which the placeholder is a handle (`O_PATH`) of the kernel's directory that the
//!   number stands for. No other number gets a copy of it, and the pool never.
//! - `POOL` ⊆ `HELD`: placeholders that nobody uses, kept for the next open. To
//!   the program they are closed: `before_kernel` answers `EBADF` for them and
//!   gives them up before any kernel call that makes a descriptor.
//! - No number below `HOLE` is free in the kernel (as far as our symbols have
//!   seen). A pooled number below it is therefore the lowest free one.
//! - Before there is the first placeholder, [`BEFORE_FIRST`] is called: streams know descriptors of ours by then.

use crate::runtime::hook::Hook;
use crate::runtime::{kernel, tls};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::Errno;
use pm::file::File;
use pm::sys::{self, abi::*};
use posix::{FD_MAX, Numbers};

/// Pooled at most; more would only hide descriptors from the program.
const POOL_MAX: u32 = 4;
/// Numbers that are asked for one by one where `/proc` does not list them.
const PROBED: u32 = 1024;

static HELD: [AtomicU64; FD_MAX as usize / 64 + 1] = [const { AtomicU64::new(0) }; FD_MAX as usize / 64 + 1];
static DIRECTORIES: [AtomicU64; FD_MAX as usize / 64 + 1] = [const { AtomicU64::new(0) }; FD_MAX as usize / 64 + 1];
/// Bits in `HELD`.
static COUNT: AtomicU32 = AtomicU32::new(0);
static POOL: AtomicU64 = AtomicU64::new(0);
static HOLE: AtomicU32 = AtomicU32::new(0);
/// A number that probably carries a placeholder.
static SOURCE: AtomicU32 = AtomicU32::new(0);

/// Called before there is a first placeholder, and at times later.
pub static BEFORE_FIRST: Hook = Hook::none();

/// Numbers for `posix`.
pub struct Placeholders;

fn is_held(fd: u32) -> bool {
    fd < FD_MAX && HELD[fd as usize / 64].load(Relaxed) & (1 << (fd % 64)) != 0
}

fn hold(fd: u32) {
    if HELD[fd as usize / 64].fetch_or(1 << (fd % 64), Relaxed) & (1 << (fd % 64)) == 0 {
        COUNT.fetch_add(1, Relaxed);
    }
    SOURCE.store(fd, Relaxed);
}

fn is_directory(fd: u32) -> bool {
    fd < FD_MAX && DIRECTORIES[fd as usize / 64].load(Relaxed) & (1 << (fd % 64)) != 0
}

/// As [`hold`], of a number with a handle of the kernel's directory under it.
fn hold_directory(fd: u32) {
    BEFORE_FIRST.call();
    DIRECTORIES[fd as usize / 64].fetch_or(1 << (fd % 64), Relaxed);
    hold(fd);
}

fn forget(fd: u32) {
    DIRECTORIES[fd as usize / 64].fetch_and(!(1 << (fd % 64)), Relaxed);
    if HELD[fd as usize / 64].fetch_and(!(1 << (fd % 64)), Relaxed) & (1 << (fd % 64)) != 0 {
        COUNT.fetch_sub(1, Relaxed);
    }
}

/// How many numbers the program holds of ours.
pub fn in_use() -> u32 {
    COUNT.load(Relaxed).saturating_sub(POOL.load(Relaxed).count_ones())
}

fn raw_close(fd: u32) {
    kernel::close(fd);
    HOLE.fetch_min(fd, Relaxed);
}

/// A placeholder to duplicate, if there is one.
fn source() -> Option<u32> {
    let guess = SOURCE.load(Relaxed);
    if is_held(guess) && !is_directory(guess) {
        return Some(guess);
    }
    let words = HELD.iter().zip(&DIRECTORIES).map(|(held, other)| held.load(Relaxed) & !other.load(Relaxed));
    let (index, word) = words.enumerate().find(|w| w.1 != 0)?;
    Some(index as u32 * 64 + word.trailing_zeros())
}

/// A first placeholder, on the lowest number.
fn open() -> Result<u32, Errno> {
    BEFORE_FIRST.call();
    let flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    let fd = match unsafe { pm::call!(__NR_openat, AT_FDCWD, c"/proc/self".as_ptr(), flags) } {
        Err(Errno::EMFILE) => return Err(Errno::EMFILE),
        // Without /proc: a device that gives nothing and takes everything.
        // SAFETY: as above.
        Err(_) => unsafe { pm::call!(__NR_openat, AT_FDCWD, c"/dev/null".as_ptr(), flags) }?,
        Ok(fd) => fd,
    };
    Ok(fd as u32)
}

/// The kernel's lowest free number from `lowest` on, with a placeholder on it.
fn fresh(lowest: u32) -> Result<u32, Errno> {
    if let Some(source) = source() {
        match kernel::fcntl(source, F_DUPFD_CLOEXEC, lowest) {
            Ok(fd) => return Ok(fd as u32),
            // Somebody closed the source behind our back.
            Err(Errno::EBADF) => forget(source),
            Err(errno) => return Err(errno),
        }
    }
    let first = open()?;
    if first >= lowest {
        return Ok(first);
    }
    let fd = kernel::fcntl(first, F_DUPFD_CLOEXEC, lowest);
    raw_close(first);
    fd.map(|fd| fd as u32)
}

impl Numbers for Placeholders {
    fn take(&self, lowest: u32, _cloexec: bool) -> Result<u32, Errno> {
        // Below the hole all numbers are taken but for those in the pool.
        let pool = POOL.load(Relaxed) & u64::MAX.checked_shl(lowest).unwrap_or(0);
        let fd = pool.trailing_zeros();
        if pool != 0 && fd < HOLE.load(Relaxed) && POOL.fetch_and(!(1 << fd), AcqRel) & (1 << fd) != 0 {
            return Ok(fd);
        }
        flush();
        let fd = fresh(lowest)?;
        if fd >= FD_MAX {
            raw_close(fd);
            return Err(Errno::EMFILE);
        }
        hold(fd);
        // The kernel passed over all from `lowest` on, and below the hole there was none.
        if lowest <= HOLE.load(Relaxed) {
            HOLE.store(fd + 1, Relaxed);
        }
        Ok(fd)
    }

    fn take_exact(&self, fd: u32, _cloexec: bool) -> Result<(), Errno> {
        if fd >= FD_MAX {
            return Err(Errno::EBADF);
        }
        unpool(fd);
        if is_held(fd) && !is_directory(fd) {
            return Ok(());
        }
        let (from, own) = match source() {
            Some(source) => (source, false),
            None => (open()?, true),
        };
        if from != fd {
            let done = kernel::dup3(from, fd, O_CLOEXEC);
            if own {
                raw_close(from);
            }
            done?;
        }
        forget(fd);
        hold(fd);
        Ok(())
    }

    fn before_handle(&self) {
        flush();
    }

    fn keep(&self, handle: File) -> Option<Result<u32, Errno>> {
        let fd = handle.number() as u32;
        if fd >= FD_MAX {
            return Some(Err(Errno::EMFILE));
        }
        hold_directory(handle.into_number() as u32);
        // The lowest free one.
        HOLE.fetch_max(fd + 1, Relaxed);
        Some(Ok(fd))
    }

    fn take_like(&self, fd: u32, lowest: u32, cloexec: bool) -> Result<u32, Errno> {
        if !is_directory(fd) {
            return self.take(lowest, cloexec);
        }
        flush();
        let new = kernel::fcntl(fd, F_DUPFD_CLOEXEC, lowest)? as u32;
        if new >= FD_MAX {
            raw_close(new);
            return Err(Errno::EMFILE);
        }
        hold_directory(new);
        if lowest <= HOLE.load(Relaxed) {
            HOLE.store(new + 1, Relaxed);
        }
        Ok(new)
    }

    fn is_directory(&self, fd: u32) -> bool {
        is_directory(fd)
    }

    fn give_back(&self, fd: u32) {
        if !is_held(fd) {
            return;
        }
        if fd < 64 && POOL.load(Relaxed).count_ones() < POOL_MAX && !is_directory(fd) {
            POOL.fetch_or(1 << fd, AcqRel);
            return;
        }
        forget(fd);
        raw_close(fd);
    }

    fn lost(&self, fd: u32) {
        if is_held(fd) {
            unpool(fd);
            forget(fd);
        }
    }
}

fn unpool(fd: u32) {
    if fd < 64 {
        POOL.fetch_and(!(1 << fd), AcqRel);
    }
}

/// Gives up the pool, so that the kernel may hand those numbers out.
#[inline]
pub fn flush() {
    if POOL.load(Relaxed) != 0 {
        flush_now();
    }
}

#[cold]
fn flush_now() {
    if tls::get().is_vfork_child() {
        // The pool is the parent's; before its child was made it was empty.
        return;
    }
    let mut pool = POOL.swap(0, AcqRel);
    while pool != 0 {
        let fd = pool.trailing_zeros();
        pool &= pool - 1;
        forget(fd);
        raw_close(fd);
    }
}

/// Before kernel call `nr` is made: gives up the pool if the call makes
/// descriptors, answers for a number that only the pool holds.
///
/// The arguments by value: an array that somebody has the address of lies in memory, and every
/// caller would copy it from there in pieces wider than they were just stored.
#[inline]
pub fn before_kernel(nr: usize, args: [usize; 6]) -> Option<isize> {
    if POOL.load(Relaxed) == 0 { None } else { before_kernel_pooled(nr, args) }
}

#[cold]
fn before_kernel_pooled(nr: usize, args: [usize; 6]) -> Option<isize> {
    if tls::get().is_vfork_child() {
        return None;
    }
    let pooled = |fd: usize| {
        let fd = fd as u32;
        fd < 64 && POOL.load(Relaxed) & (1 << fd) != 0
    };
    if takes_descriptor(nr) && pooled(args[0]) {
        return Some(-(Errno::EBADF.0 as isize));
    }
    let among_others = other_descriptor(nr, &args).is_some_and(|other| other.is_none_or(pooled));
    // SAFETY: the program's own arguments.
    if among_others || makes_descriptor(nr, &args) || unsafe { names_descriptors(nr, &args) } {
        flush_now();
    }
    None
}

/// Whether the call's path is one under which the kernel shows this process's
/// descriptors: the pool must not be seen there.
///
/// # Safety
/// The arguments are those of the call.
unsafe fn names_descriptors(nr: usize, args: &[usize; 6]) -> bool {
    let path = match nr as u32 {
        __NR_openat | __NR_newfstatat | __NR_statx | __NR_faccessat | __NR_faccessat2 | __NR_readlinkat => args[1],
        #[cfg(target_arch = "x86_64")]
        __NR_open | __NR_stat | __NR_lstat | __NR_access | __NR_readlink => args[0],
        _ => return false,
    };
    if posix::bad_pointer(path) {
        return false;
    }
    let text = path as *const u8;
    let begins =
        |prefix: &[u8]| prefix.iter().enumerate().all(|(index, &byte)| pm::faults::is_byte(text.wrapping_add(index), byte));
    begins(b"/proc/") || begins(b"/dev/fd")
}

/// After the kernel closed `fd` for the program.
#[inline]
pub fn kernel_closed(fd: usize) {
    HOLE.fetch_min(fd as u32, Relaxed);
}

/// Number `fd` arrived over `exec`: whether it still carries a placeholder,
/// which is then ours again and close-on-exec.
pub fn adopt(fd: u32) -> bool {
    if fd >= FD_MAX || !is_path_only(fd) {
        return false;
    }
    set_cloexec(fd, true);
    hold_found(fd);
    true
}

/// As [`hold`], of a number whose placeholder may be a handle of a directory.
fn hold_found(fd: u32) {
    BEFORE_FIRST.call();
    match pm::host::kind_of(fd as i32) {
        Ok(mode) if mode & 0o170000 == 0o040000 => hold_directory(fd),
        _ => hold(fd),
    }
}

/// In a child by `vfork` that has memory of its own now: these numbers carry placeholders, and no others.
pub fn settle(numbers: impl Iterator<Item = u32>) {
    nothing_held();
    numbers.for_each(hold_found);
}

fn nothing_held() {
    HELD.iter().chain(&DIRECTORIES).for_each(|word| word.store(0, Relaxed));
    COUNT.store(0, Relaxed);
    POOL.store(0, Relaxed);
    HOLE.store(0, Relaxed);
}

/// In a child of a fork beside other threads: the kernel's table and ours were copied at different times. `is_ours`
/// tells which numbers are ours, and shall have placeholders, `lost` ends one of them that the kernel has given away.
pub fn settle_forked(is_ours: impl Fn(u32) -> bool, mut lost: impl FnMut(u32)) {
    nothing_held();
    let link = File::open(b"/proc/self\0", O_PATH | O_NOFOLLOW, 0).and_then(|link| link.stat());
    let is_one_more = |fd| link.is_ok_and(|link| pm::file::stat_of(fd).is_ok_and(|it| (it.dev, it.ino) == (link.dev, link.ino)));
    each_in_kernel(|fd| match is_ours(fd) {
        true if is_path_only(fd) => hold_found(fd),
        true => lost(fd),
        // A thread was about to use this number, or to give it up.
        false if is_one_more(fd) => raw_close(fd),
        false => {}
    });
    // All others are known by now: none of them is the lowest that a new placeholder may fall on.
    for fd in (0..FD_MAX).filter(|fd| is_ours(*fd)) {
        if !is_held(fd) && Placeholders.take_exact(fd, true).is_err() {
            lost(fd);
        }
    }
}

/// Calls `each` for every number that the kernel has something on, below ours at least.
fn each_in_kernel(mut each: impl FnMut(u32)) {
    let probe = |fd: &u32| kernel::fcntl(*fd, F_GETFD, 0).is_ok();
    let Ok(list) = File::open(b"/proc/self/fd\0", O_RDONLY | O_DIRECTORY, 0) else {
        return (0..PROBED).filter(probe).for_each(each);
    };
    let mut entries = [0u8; 2048];
    while let Ok(Some(listed)) = list.listed(&mut entries) {
        listed.flatten().filter_map(|entry| number_in(entry.name.to_bytes())).for_each(&mut each);
    }
}

/// The number that a name is; `None` for `.` and `..`.
fn number_in(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok().filter(|fd| *fd < FD_MAX)
}

/// Whether what the kernel has on `fd` is open as a path only, as a placeholder is.
fn is_path_only(fd: u32) -> bool {
    let flags = kernel::fcntl(fd, F_GETFL, 0);
    flags.is_ok_and(|flags| flags as u32 & O_PATH != 0)
}

/// Puts a placeholder back on a number of ours that the kernel was given for an `exec` that failed.
pub fn renew(fd: u32) {
    forget(fd);
    if Placeholders.take_exact(fd, true).is_err() {
        crate::complain!("descriptor {fd} can't be kept any longer");
    }
}

/// Sets the kernel's close-on-exec flag of a placeholder.
pub fn set_cloexec(fd: u32, on: bool) {
    let _ = kernel::fcntl(fd, F_SETFD, on as usize);
}

/// Makes a raw system call that may create descriptors.
///
/// # Safety
/// As for the system call.
pub unsafe fn creating(nr: u32, args: [usize; 6]) -> isize {
    flush();
    // SAFETY: by contract.
    unsafe { sys::raw(nr as usize, args) }
}

/// Calls that make descriptors, or change them by number.
fn makes_descriptor(nr: usize, args: &[usize; 6]) -> bool {
    match nr as u32 {
        __NR_openat
        | __NR_openat2
        | __NR_open_by_handle_at
        | __NR_dup
        | __NR_dup3
        | __NR_close_range
        | __NR_socket
        | __NR_socketpair
        | __NR_accept
        | __NR_accept4
        | __NR_recvmsg
        | __NR_recvmmsg
        | __NR_pipe2
        | __NR_eventfd2
        | __NR_epoll_create1
        | __NR_memfd_create
        | __NR_timerfd_create
        | __NR_signalfd4
        | __NR_inotify_init1
        | __NR_fanotify_init
        | __NR_pidfd_open
        | __NR_pidfd_getfd
        | __NR_userfaultfd
        | __NR_perf_event_open
        | __NR_io_uring_setup
        | __NR_io_setup
        | __NR_bpf
        | __NR_fsopen
        | __NR_fspick
        | __NR_fsmount
        | __NR_open_tree
        | __NR_memfd_secret
        | __NR_landlock_create_ruleset
        | __NR_seccomp
        | __NR_ioctl
        | __NR_mq_open
        | __NR_clone
        | __NR_clone3 => true,
        __NR_fcntl => matches!(args[1] as u32, F_DUPFD | F_DUPFD_CLOEXEC),
        #[cfg(target_arch = "x86_64")]
        __NR_open | __NR_creat | __NR_dup2 | __NR_pipe | __NR_eventfd | __NR_epoll_create | __NR_signalfd | __NR_inotify_init
        | __NR_fork | __NR_vfork => true,
        _ => false,
    }
}

/// Of calls that take descriptors elsewhere than in their first argument: which; `Some(None)`: several, or in memory.
fn other_descriptor(nr: usize, args: &[usize; 6]) -> Option<Option<usize>> {
    match nr as u32 {
        __NR_symlinkat | __NR_sendfile | __NR_tee => Some(Some(args[1])),
        __NR_renameat | __NR_renameat2 | __NR_linkat | __NR_copy_file_range | __NR_splice | __NR_epoll_ctl
        | __NR_fanotify_mark => Some(Some(args[2])),
        __NR_mmap => Some(Some(args[4])),
        __NR_kcmp | __NR_pselect6 | __NR_ppoll | __NR_sendmsg | __NR_sendmmsg | __NR_io_submit | __NR_io_uring_register => {
            Some(None)
        }
        #[cfg(target_arch = "x86_64")]
        __NR_select | __NR_poll => Some(None),
        _ => None,
    }
}

/// Calls whose first argument is a descriptor.
fn takes_descriptor(nr: usize) -> bool {
    match nr as u32 {
        __NR_close
        | __NR_read
        | __NR_write
        | __NR_pread64
        | __NR_pwrite64
        | __NR_readv
        | __NR_writev
        | __NR_preadv
        | __NR_pwritev
        | __NR_preadv2
        | __NR_pwritev2
        | __NR_fstat
        | __NR_newfstatat
        | __NR_statx
        | __NR_fstatfs
        | __NR_lseek
        | __NR_dup
        | __NR_dup3
        | __NR_fcntl
        | __NR_ioctl
        | __NR_flock
        | __NR_fsync
        | __NR_fdatasync
        | __NR_syncfs
        | __NR_ftruncate
        | __NR_fallocate
        | __NR_fchmod
        | __NR_fchown
        | __NR_fchdir
        | __NR_getdents64
        | __NR_openat
        | __NR_openat2
        | __NR_mkdirat
        | __NR_mknodat
        | __NR_unlinkat
        | __NR_renameat
        | __NR_renameat2
        | __NR_linkat
        | __NR_readlinkat
        | __NR_fchmodat
        | __NR_fchmodat2
        | __NR_fchownat
        | __NR_utimensat
        | __NR_faccessat
        | __NR_faccessat2
        | __NR_fgetxattr
        | __NR_fsetxattr
        | __NR_flistxattr
        | __NR_fremovexattr
        | __NR_execveat
        | __NR_inotify_add_watch
        | __NR_name_to_handle_at
        | __NR_fanotify_mark
        | __NR_bind
        | __NR_connect
        | __NR_listen
        | __NR_getsockname
        | __NR_getpeername
        | __NR_getsockopt
        | __NR_setsockopt
        | __NR_shutdown
        | __NR_sendto
        | __NR_recvfrom
        | __NR_vmsplice
        | __NR_sync_file_range
        | __NR_epoll_ctl
        | __NR_epoll_pwait
        | __NR_fadvise64
        | __NR_readahead
        | __NR_copy_file_range
        | __NR_sendfile
        | __NR_splice
        | __NR_tee => true,
        #[cfg(target_arch = "x86_64")]
        __NR_dup2 | __NR_futimesat | __NR_getdents => true,
        _ => false,
    }
}
