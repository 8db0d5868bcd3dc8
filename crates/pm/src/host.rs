//! The kernel's names, for a file system that stands on a directory of the kernel's.
//!
//! Every path goes through `openat2` without following a symlink anywhere: with a
//! text that holds no `..` it can't lead out of the directory that it begins
//! with, whatever others rename meanwhile. Descriptors live for one call.

use crate::file::File;
use crate::life;
use crate::{Errno, UserSlice, call, sys::abi};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub use abi::statx as Statx;

const HERE: i32 = abi::AT_FDCWD;
const EMPTY: u32 = abi::AT_EMPTY_PATH;

/// `NFS_SUPER_MAGIC`.
const NFS: u64 = 0x6969;
/// `FS_IOC_GETFSUUID`, and the longest answer.
const GET_UUID: u32 = 0x8011_1500;
const UUID_MAX: usize = 16;
/// `MAX_HANDLE_SZ`.
const HANDLE_MAX: usize = 128;

fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| mix(sum, u64::from(*byte)))
}

/// `struct open_how`.
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Opens an absolute path none of whose components may be a symlink (`ELOOP`;
/// the last one may with `O_PATH | O_NOFOLLOW`); the raw descriptor.
/// `O_CLOEXEC` is the caller's to ask for.
pub fn open_plain(at: Option<&File>, path: &CStr, flags: u32, mode: u16) -> Result<i32, Errno> {
    let how = How {
        flags: u64::from(flags),
        mode: u64::from(mode),
        resolve: u64::from(abi::RESOLVE_NO_SYMLINKS | abi::RESOLVE_NO_MAGICLINKS),
    };
    let dir = at.map_or(HERE, File::number);
    loop {
        // SAFETY: a NUL-terminated path and an `open_how` that outlive the call.
        match unsafe { call!(abi::__NR_openat2, dir, path.as_ptr(), &raw const how, size_of::<How>()) } {
            // Somebody renamed while it looked.
            Err(Errno::EAGAIN) => {}
            other => return other.map(|fd| fd as i32),
        }
    }
}

/// All attributes of what has this name in the directory that a descriptor of the kernel's is open on; a symlink's own.
/// An empty name: of that directory.
pub fn statx_at(dir: i32, name: &CStr) -> Result<Statx, Errno> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut out: Statx = unsafe { core::mem::zeroed() };
    let flags = EMPTY | abi::AT_SYMLINK_NOFOLLOW;
    let mask = abi::STATX_BASIC_STATS | abi::STATX_BTIME;
    // SAFETY: a NUL-terminated name and a `struct statx`.
    unsafe { call!(abi::__NR_statx, dir, name.as_ptr(), flags, mask, &raw mut out) }?;
    Ok(out)
}

/// Where what a descriptor of the kernel's is open on lies, as the kernel sees it; the length of that path, cut short
/// where there is no room for it.
pub fn place_of(fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    let name = DescriptorName::new(fd);
    // SAFETY: a NUL-terminated path, and a buffer of that length.
    unsafe { call!(abi::__NR_readlinkat, HERE, name.as_ptr(), into.as_mut_ptr(), into.len()) }
}

/// Type and permission bits of what a descriptor of the kernel's is open on.
pub fn kind_of(fd: i32) -> Result<u16, Errno> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut out: Statx = unsafe { core::mem::zeroed() };
    // SAFETY: an empty path and a `struct statx`.
    unsafe { call!(abi::__NR_statx, fd, c"".as_ptr(), EMPTY, abi::STATX_TYPE, &raw mut out) }?;
    Ok(out.stx_mode)
}

impl File {
    /// A handle on what lies at an absolute path none of whose components is a symlink (`ELOOP`).
    pub fn handle_followed(path: &CStr) -> Result<File, Errno> {
        open_plain(None, path, abi::O_PATH | abi::O_CLOEXEC, 0).map(File::from_number)
    }

    /// A handle (`O_PATH`) on what lies at an absolute path; a symlink itself, not its target.
    pub fn handle(path: &CStr) -> Result<File, Errno> {
        open_plain(None, path, abi::O_PATH | abi::O_NOFOLLOW | abi::O_CLOEXEC, 0).map(File::from_number)
    }

    /// As [`File::handle`], for a directory (`ENOTDIR`).
    pub fn directory(path: &CStr) -> Result<File, Errno> {
        open_plain(None, path, abi::O_PATH | abi::O_DIRECTORY | abi::O_CLOEXEC, 0).map(File::from_number)
    }

    /// Opened for reading, no symlink followed.
    pub fn plain(path: &CStr, flags: u32) -> Result<File, Errno> {
        open_plain(None, path, flags | abi::O_CLOEXEC, 0).map(File::from_number)
    }

    /// As [`File::plain`], of a path that begins in `dir`, if there is one, and leads out of it by no symlink.
    pub fn plain_in(dir: Option<&File>, path: &CStr, flags: u32) -> Result<File, Errno> {
        open_plain(dir, path, flags | abi::O_CLOEXEC, 0).map(File::from_number)
    }

    /// A handle (`O_PATH`) on a directory at a path that may lead by a link to what a process has open, whatever is mounted
    /// over that by now.
    pub fn directory_through(path: &CStr) -> Result<File, Errno> {
        File::open(path.to_bytes_with_nul(), abi::O_PATH | abi::O_DIRECTORY, 0)
    }

    /// Makes a file and opens it for reading and writing, whatever its mode says; `EEXIST`.
    pub fn made(path: &CStr, mode: u16) -> Result<File, Errno> {
        let flags = abi::O_RDWR | abi::O_CREAT | abi::O_EXCL | abi::O_CLOEXEC;
        open_plain(None, path, flags, mode).map(File::from_number)
    }

    /// Reads at `offset`, as `pread(2)`.
    pub fn read_into(&self, offset: u64, into: UserSlice) -> Result<usize, Errno> {
        // SAFETY: whoever made the slice vouched for it.
        unsafe { call!(abi::__NR_pread64, self.number(), into.ptr, into.len, offset) }
    }

    /// Writes at `offset`, as `pwrite(2)`.
    pub fn write_from(&self, offset: u64, from: UserSlice) -> Result<usize, Errno> {
        // SAFETY: as above.
        unsafe { call!(abi::__NR_pwrite64, self.number(), from.ptr, from.len, offset) }
    }

    /// As `fallocate(2)`.
    pub fn manage(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fallocate, self.number(), mode, offset, len) }.map(drop)
    }

    /// Where data (or a hole) begins, from `offset` on: `SEEK_DATA`, `SEEK_HOLE`.
    pub fn find(&self, offset: u64, data: bool) -> Result<u64, Errno> {
        let whence = if data { abi::SEEK_DATA } else { abi::SEEK_HOLE };
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_lseek, self.number(), offset, whence) }.map(|at| at as u64)
    }

    /// All attributes, by handle.
    pub fn statx(&self) -> Result<Statx, Errno> {
        statx_at(self.number(), c"")
    }

    /// Whether the caller's effective identity may do `want` (`R_OK`, …).
    pub fn may(&self, want: u16, effective: bool) -> Result<(), Errno> {
        let flags = EMPTY | if effective { abi::AT_EACCESS } else { 0 };
        // SAFETY: a NUL-terminated path.
        unsafe { call!(abi::__NR_faccessat2, self.number(), c"".as_ptr(), want, flags) }.map(drop)
    }

    /// The target of a symlink, by handle.
    pub fn target(&self, into: UserSlice) -> Result<usize, Errno> {
        // SAFETY: a NUL-terminated path; whoever made the slice vouched for it.
        unsafe { call!(abi::__NR_readlinkat, self.number(), c"".as_ptr(), into.ptr, into.len) }
    }

    /// Changes the permission bits, by handle.
    pub fn set_mode(&self, mode: u16) -> Result<(), Errno> {
        let name = DescriptorName::new(self.number());
        // SAFETY: a NUL-terminated path.
        unsafe { call!(abi::__NR_fchmodat, HERE, name.as_ptr(), mode) }.map(drop)
    }

    /// Changes the owners (`None` leaves one), by handle.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        // SAFETY: a NUL-terminated path.
        unsafe { call!(abi::__NR_fchownat, self.number(), c"".as_ptr(), uid, gid, EMPTY) }.map(drop)
    }

    /// Sets access and modification time, pairs of seconds and nanoseconds as `utimensat` takes them.
    pub fn set_times(&self, times: &[[i64; 2]; 2]) -> Result<(), Errno> {
        // SAFETY: a NUL-terminated path and two times.
        unsafe { call!(abi::__NR_utimensat, self.number(), c"".as_ptr(), times.as_ptr(), EMPTY) }.map(drop)
    }

    /// Makes a directory in this one.
    pub fn make_directory(&self, name: &CStr, mode: u16) -> Result<(), Errno> {
        // SAFETY: a NUL-terminated name.
        unsafe { call!(abi::__NR_mkdirat, self.number(), name.as_ptr(), mode) }.map(drop)
    }

    /// Makes a file of any other type in this directory.
    pub fn make_node(&self, name: &CStr, mode: u32, device: u64) -> Result<(), Errno> {
        // SAFETY: a NUL-terminated name.
        unsafe { call!(abi::__NR_mknodat, self.number(), name.as_ptr(), mode, device) }.map(drop)
    }

    /// Makes a symlink in this directory.
    pub fn make_symlink(&self, target: &CStr, name: &CStr) -> Result<(), Errno> {
        // SAFETY: NUL-terminated texts.
        unsafe { call!(abi::__NR_symlinkat, target.as_ptr(), self.number(), name.as_ptr()) }.map(drop)
    }

    /// Removes a name of this directory.
    pub fn remove(&self, name: &CStr, directory: bool) -> Result<(), Errno> {
        let flags = if directory { abi::AT_REMOVEDIR } else { 0 };
        // SAFETY: a NUL-terminated name.
        unsafe { call!(abi::__NR_unlinkat, self.number(), name.as_ptr(), flags) }.map(drop)
    }

    /// Renames, with `RENAME_*` flags.
    pub fn rename(&self, name: &CStr, to: &File, new: &CStr, flags: u32) -> Result<(), Errno> {
        // SAFETY: NUL-terminated names.
        unsafe { call!(abi::__NR_renameat2, self.number(), name.as_ptr(), to.number(), new.as_ptr(), flags) }.map(drop)
    }

    /// Gives what this handle stands for another name.
    pub fn link(&self, dir: &File, name: &CStr) -> Result<(), Errno> {
        let own = DescriptorName::new(self.number());
        // SAFETY: NUL-terminated texts.
        unsafe { call!(abi::__NR_linkat, HERE, own.as_ptr(), dir.number(), name.as_ptr(), abi::AT_SYMLINK_FOLLOW) }.map(drop)
    }

    /// Moves the position of an open directory to an entry's cookie.
    pub fn seek(&self, to: u64) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_lseek, self.number(), to, abi::SEEK_SET) }.map(drop)
    }

    /// Waits until the contents of this file are durable, its times perhaps not.
    pub fn durable_data(&self) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { call!(abi::__NR_fdatasync, self.number()) }.map(drop)
    }

    /// Waits until what was written is durable; the whole file system if `all`.
    pub fn durable(&self, all: bool) -> Result<(), Errno> {
        let nr = if all { abi::__NR_syncfs } else { abi::__NR_fsync };
        // SAFETY: no pointers.
        unsafe { call!(nr, self.number()) }.map(drop)
    }

    /// Figures of the file system, the words of `struct statfs`.
    pub fn statfs(&self) -> Result<[u64; 15], Errno> {
        let mut out = [0u64; 15];
        // SAFETY: a `struct statfs` has 120 bytes.
        unsafe { call!(abi::__NR_fstatfs, self.number(), out.as_mut_ptr()) }.map(|_| out)
    }

    /// What tells the file system of an open directory from any other, whatever number its device has; 0: nothing that is
    /// known.
    pub fn file_system(&self) -> u64 {
        let (Ok(figures), Ok(stat)) = (self.statfs(), self.statx()) else { return 0 };
        let (kind, id) = (figures[0], figures[7]);
        // Some say no more by it than the number of the device.
        let (major, minor) = (u64::from(stat.stx_dev_major), u64::from(stat.stx_dev_minor));
        let device = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        match id {
            0 if kind == NFS => self.handle_sum(),
            id if id == 0 || id == device => self.uuid_sum(),
            id => id,
        }
    }

    /// Its file system's UUID, in a word; 0: it has none, or the kernel (before 6.9) does not tell.
    fn uuid_sum(&self) -> u64 {
        let mut out = [0u8; UUID_MAX + 1];
        // SAFETY: `FS_IOC_GETFSUUID` writes a `struct fsuuid2`, which has 17 bytes.
        match unsafe { call!(abi::__NR_ioctl, self.number(), GET_UUID, out.as_mut_ptr()) } {
            Ok(_) => sum(&out[1..=usize::from(out[0]).min(UUID_MAX)]),
            Err(_) => 0,
        }
    }

    /// What a server knows it by, in a word; 0: nothing.
    fn handle_sum(&self) -> u64 {
        let (mut out, mut mount) = ([0u32; 2 + HANDLE_MAX / 4], 0i32);
        out[0] = HANDLE_MAX as u32;
        // SAFETY: an empty path, a `struct file_handle` with as much room as it says, and an int.
        match unsafe { call!(abi::__NR_name_to_handle_at, self.number(), c"".as_ptr(), out.as_mut_ptr(), &raw mut mount, EMPTY) }
        {
            Ok(_) => out[2..2 + (out[0] as usize).min(HANDLE_MAX).div_ceil(4)].iter().fold(0, |h, word| mix(h, u64::from(*word))),
            Err(_) => 0,
        }
    }

    /// The value of an extended attribute (an empty buffer asks for its length).
    pub fn get_xattr(&self, name: &CStr, out: UserSlice) -> Result<usize, Errno> {
        let own = DescriptorName::new(self.number());
        // SAFETY: NUL-terminated texts; whoever made the slice vouched for it.
        unsafe { call!(abi::__NR_getxattr, own.as_ptr(), name.as_ptr(), out.ptr, out.len) }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: &CStr, value: UserSlice, flags: u32) -> Result<(), Errno> {
        let own = DescriptorName::new(self.number());
        // SAFETY: as above.
        unsafe { call!(abi::__NR_setxattr, own.as_ptr(), name.as_ptr(), value.ptr, value.len, flags) }.map(drop)
    }

    /// Lists extended attributes.
    pub fn list_xattr(&self, out: UserSlice) -> Result<usize, Errno> {
        let own = DescriptorName::new(self.number());
        // SAFETY: as above.
        unsafe { call!(abi::__NR_listxattr, own.as_ptr(), out.ptr, out.len) }
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: &CStr) -> Result<(), Errno> {
        let own = DescriptorName::new(self.number());
        // SAFETY: as above.
        unsafe { call!(abi::__NR_removexattr, own.as_ptr(), name.as_ptr()) }.map(drop)
    }

    /// Changes the length of the file that this handle stands for, as `truncate(2)`:
    /// to the length it has, the time of its last change stays.
    pub fn truncate_named(&self, size: u64) -> Result<(), Errno> {
        let name = DescriptorName::new(self.number());
        // SAFETY: a NUL-terminated path.
        unsafe { call!(abi::__NR_truncate, name.as_ptr(), size) }.map(drop)
    }
}

/// `/proc/self/fd/N`, NUL-terminated.
struct DescriptorName([u8; 32]);

impl DescriptorName {
    fn new(number: i32) -> Self {
        const HEAD: &[u8] = b"/proc/self/fd/";
        let mut text = [0u8; 32];
        text[..HEAD.len()].copy_from_slice(HEAD);
        let mut digits = [0u8; 10];
        let (mut left, mut count) = (number.max(0) as u32, 0);
        loop {
            digits[count] = b'0' + (left % 10) as u8;
            (left, count) = (left / 10, count + 1);
            if left == 0 {
                break;
            }
        }
        for index in 0..count {
            text[HEAD.len() + index] = digits[count - 1 - index];
        }
        DescriptorName(text)
    }

    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// Gives the calling thread a mount namespace of its own. `EPERM` where it may not.
pub fn own_mounts() -> Result<(), Errno> {
    const CLONE_NEWNS: usize = 0x2_0000;
    // SAFETY: no pointers.
    unsafe { call!(abi::__NR_unshare, CLONE_NEWNS) }.map(|_| ())
}

/// Whether the kernel can hand system calls to the program that makes them (`PR_SET_SYSCALL_USER_DISPATCH`).
pub fn has_dispatch() -> bool {
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    const PR_SYS_DISPATCH_OFF: usize = 0;
    // SAFETY: turns off what is off.
    let answer = unsafe { call!(abi::__NR_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0) };
    cfg!(target_arch = "x86_64") && answer.is_ok()
}

/// This process.
pub fn own_pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { crate::sys::raw(abi::__NR_getpid as usize, [0; 6]) as u32 }
}

/// The PID of this process's parent; 0 if it is of another namespace.
pub fn parent_pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { crate::sys::raw(abi::__NR_getppid as usize, [0; 6]) as u32 }
}

/// The same without a system call; right in a forked child too, once it has
/// called [`forget_pid`].
#[inline]
pub fn own_pid_cached() -> u32 {
    let known = OWN_PID.load(Relaxed);
    if known != 0 { known } else { ask_own_pid() }
}

#[cold]
fn ask_own_pid() -> u32 {
    let pid = own_pid();
    OWN_PID.store(pid, Relaxed);
    pid
}

/// In a forked child: the number is another.
pub fn forget_pid() {
    life::forget();
    OWN_PID.store(0, Relaxed);
    OWN_MARK.store(0, Relaxed);
}

static OWN_PID: AtomicU32 = AtomicU32::new(0);
static OWN_MARK: AtomicU32 = AtomicU32::new(0);

/// PIDs are below `1 << PID_BITS`, whatever `kernel.pid_max` says.
const PID_BITS: u32 = 22;
/// Bits of a mark; the highest one of the word stays free.
const MARK_BITS: u32 = 31;

/// What a lock word in shared memory names its holder by: the PID, and the last bits of its PID namespace's number
/// above it, for a PID says nothing in another namespace. Without a system call; right in a forked child once it has
/// called [`forget_pid`].
#[inline]
pub fn own_mark() -> u32 {
    let known = OWN_MARK.load(Relaxed);
    if known != 0 { known } else { ask_own_mark() }
}

#[cold]
fn ask_own_mark() -> u32 {
    let mark = mark_of(own_pid_cached(), life::own().namespace);
    OWN_MARK.store(mark, Relaxed);
    mark
}

fn mark_of(pid: u32, namespace: u64) -> u32 {
    ((namespace as u32) << PID_BITS | pid & ((1 << PID_BITS) - 1)) & ((1 << MARK_BITS) - 1)
}

/// The PID in a mark.
pub fn pid_of(mark: u32) -> u32 {
    mark & ((1 << PID_BITS) - 1)
}

/// Whether whoever left a mark lives; `None`: it belongs to another PID namespace, and nobody here can tell.
pub fn is_alive_by_mark(mark: u32) -> Option<bool> {
    is_alive_by_bits(mark, MARK_BITS)
}

/// As [`is_alive_by_mark`], of a mark of which only the last `bits` were kept.
pub fn is_alive_by_bits(mark: u32, bits: u32) -> Option<bool> {
    let theirs = (own_mark() ^ mark) & ((1 << bits) - 1) & !((1 << PID_BITS) - 1);
    (theirs == 0).then(|| is_alive(pid_of(mark)))
}

/// Whether process `pid` of our namespace runs: neither gone nor dead and waiting for its parent.
pub fn is_alive(pid: u32) -> bool {
    life::Who { pid, ..life::Who::default() }.lives_by_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the living are told from the dead, also from those whose parent has not asked yet.
    #[test]
    fn life() {
        assert!(is_alive(own_pid()) && is_alive(1));
        assert!(!is_alive(0) && !is_alive(i32::MAX as u32));
        assert_eq!(is_alive_by_mark(own_mark()), Some(true));
        assert_eq!(is_alive_by_bits(own_mark() & 0xff_ffff, 24), Some(true));
        // The PID that nobody has, here and in the namespace whose number is the next one.
        let nobody = mark_of((1 << PID_BITS) - 1, life::own().namespace);
        assert_eq!(is_alive_by_mark(nobody), Some(false));
        assert_eq!(is_alive_by_mark(nobody ^ 1 << PID_BITS), None);
        assert_eq!(is_alive_by_bits((nobody ^ 1 << PID_BITS) & 0xff_ffff, 24), None);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while is_alive(pid) {
            crate::file::give_way();
        }
        assert!(child.wait().unwrap().success());
    }

    /// Goal: no symlink is followed, neither in the middle nor at the end.
    #[test]
    fn plain_paths() {
        assert!(File::handle(c"/proc/self/exe").is_err());
        assert_eq!(File::handle(c"/proc/self").unwrap().statx().unwrap().stx_mode & 0o170000, 0o120000);
        assert_eq!(File::directory(c"/etc/passwd").err(), Some(Errno::ENOTDIR));
    }
}
