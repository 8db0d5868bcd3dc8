//! What `<fuse3/fuse.h>` says in C (libfuse 3, 64-bit): `include/bypath_plugin.h`
//! and the example's build hold the sizes to that header.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;

/// `const char *`.
pub type Path = *const c_char;
/// `struct fuse_file_info *`.
pub type Info = *mut FileInfo;
/// What an operation that we never call looks like.
pub type Unused = Option<unsafe extern "C" fn()>;

/// `struct fuse_file_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FileInfo {
    /// `O_*`.
    pub flags: c_int,
    /// Bits: `writepage`, `direct_io`, …
    pub bits: u32,
    padding: [u32; 2],
    /// The file system's own.
    pub handle: u64,
    lock_owner: u64,
    poll_events: u32,
    reserved: u32,
}

impl FileInfo {
    /// For an open with these `O_*`, or what is open under `handle`.
    #[inline]
    pub fn new(flags: u32, handle: u64) -> FileInfo {
        FileInfo { flags: flags as c_int, bits: 0, padding: [0; 2], handle, lock_owner: 0, poll_events: 0, reserved: 0 }
    }
}

/// `struct fuse_context`.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// `struct fuse *`: there is none.
    pub fuse: *mut c_void,
    /// Who asks.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// See `uid`.
    pub pid: c_int,
    /// The file system's own.
    pub private_data: *mut c_void,
    /// Of who asks.
    pub umask: u32,
}

impl Context {
    /// In nobody's name.
    pub const fn nobody() -> Context {
        Context { fuse: null_mut(), uid: 0, gid: 0, pid: 0, private_data: null_mut(), umask: 0 }
    }
}

/// `struct fuse_conn_info`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Connection {
    pub proto: [c_uint; 2],
    pub max_write: c_uint,
    pub max_read: c_uint,
    pub max_readahead: c_uint,
    pub capable: c_uint,
    pub want: c_uint,
    pub rest: [c_uint; 25],
}

/// `struct fuse_config`, with room for what later versions add.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Config {
    pub set_gid: c_int,
    pub gid: c_uint,
    pub set_uid: c_int,
    pub uid: c_uint,
    pub set_mode: c_int,
    pub umask: c_uint,
    timeouts: [f64; 3],
    interrupts: [c_int; 3],
    pub hard_remove: c_int,
    pub use_ino: c_int,
    pub readdir_ino: c_int,
    caches: [c_int; 5],
    ac_attr_timeout: f64,
    pub nullpath_ok: c_int,
    rest: [u64; 32],
}

/// `struct statvfs` of a 64-bit libc.
#[repr(C)]
#[derive(Debug, Default)]
pub struct StatVfs {
    pub bsize: u64,
    pub frsize: u64,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub favail: u64,
    pub fsid: u64,
    pub flag: u64,
    pub namemax: u64,
    spare: [u64; 3],
}

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// `struct stat`.
pub type Stat = pm::sys::abi::stat;
/// `fuse_fill_dir_t`.
pub type Fill = unsafe extern "C" fn(*mut c_void, Path, *const Stat, i64, c_uint) -> c_int;

type OnPath = Option<unsafe extern "C" fn(Path) -> c_int>;
type OnPaths = Option<unsafe extern "C" fn(Path, Path) -> c_int>;
type OnOpen = Option<unsafe extern "C" fn(Path, Info) -> c_int>;
type OnSync = Option<unsafe extern "C" fn(Path, c_int, Info) -> c_int>;

/// `struct fuse_operations`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    pub getattr: Option<unsafe extern "C" fn(Path, *mut Stat, Info) -> c_int>,
    pub readlink: Option<unsafe extern "C" fn(Path, *mut c_char, usize) -> c_int>,
    pub mknod: Option<unsafe extern "C" fn(Path, u32, u64) -> c_int>,
    pub mkdir: Option<unsafe extern "C" fn(Path, u32) -> c_int>,
    pub unlink: OnPath,
    pub rmdir: OnPath,
    pub symlink: OnPaths,
    pub rename: Option<unsafe extern "C" fn(Path, Path, c_uint) -> c_int>,
    pub link: OnPaths,
    pub chmod: Option<unsafe extern "C" fn(Path, u32, Info) -> c_int>,
    pub chown: Option<unsafe extern "C" fn(Path, u32, u32, Info) -> c_int>,
    pub truncate: Option<unsafe extern "C" fn(Path, i64, Info) -> c_int>,
    pub open: OnOpen,
    pub read: Option<unsafe extern "C" fn(Path, *mut c_char, usize, i64, Info) -> c_int>,
    pub write: Option<unsafe extern "C" fn(Path, *const c_char, usize, i64, Info) -> c_int>,
    pub statfs: Option<unsafe extern "C" fn(Path, *mut StatVfs) -> c_int>,
    pub flush: OnOpen,
    pub release: OnOpen,
    pub fsync: OnSync,
    pub setxattr: Option<unsafe extern "C" fn(Path, Path, *const c_char, usize, c_int) -> c_int>,
    pub getxattr: Option<unsafe extern "C" fn(Path, Path, *mut c_char, usize) -> c_int>,
    pub listxattr: Option<unsafe extern "C" fn(Path, *mut c_char, usize) -> c_int>,
    pub removexattr: OnPaths,
    pub opendir: OnOpen,
    pub readdir: Option<unsafe extern "C" fn(Path, *mut c_void, Fill, i64, Info, c_uint) -> c_int>,
    pub releasedir: OnOpen,
    pub fsyncdir: OnSync,
    pub init: Option<unsafe extern "C" fn(*mut Connection, *mut Config) -> *mut c_void>,
    pub destroy: Unused,
    pub access: Option<unsafe extern "C" fn(Path, c_int) -> c_int>,
    pub create: Option<unsafe extern "C" fn(Path, u32, Info) -> c_int>,
    pub lock: Unused,
    pub utimens: Option<unsafe extern "C" fn(Path, *const Time, Info) -> c_int>,
    pub bmap: Unused,
    pub ioctl: Unused,
    pub poll: Unused,
    pub write_buf: Unused,
    pub read_buf: Unused,
    pub flock: Unused,
    pub fallocate: Option<unsafe extern "C" fn(Path, c_int, i64, i64, Info) -> c_int>,
    pub copy_file_range: Unused,
    pub lseek: Unused,
}

/// `bypath_plugin`: what a library exports.
pub type Entry = unsafe extern "C" fn(c_int, *const Path, *mut *mut c_void) -> *const Operations;

const _: () = assert!(size_of::<Operations>() == 42 * 8 && size_of::<FileInfo>() == 40 && size_of::<Context>() == 40);
const _: () = assert!(size_of::<Connection>() == 128 && size_of::<StatVfs>() == 112);
const _: () = assert!(size_of::<Stat>() == if cfg!(target_arch = "x86_64") { 144 } else { 128 });
const _: () = assert!(core::mem::offset_of!(Config, hard_remove) == 60 && core::mem::offset_of!(Config, nullpath_ok) == 104);
