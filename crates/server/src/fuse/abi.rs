//! The structures of the FUSE protocol (`linux/fuse.h`), version 7.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version that we speak.
pub const MAJOR: u32 = 7;
/// Newest minor whose structures these are.
pub const MINOR: u32 = 40;
/// Oldest minor that we can serve: Linux 5.4.
pub const MINOR_MIN: u32 = 31;
/// First minor of kernels that drop the attributes in the answer to a look-up if the node was
/// forgotten while it was under way: Linux 6.14.
pub const MINOR_EVICTIONS: u32 = 42;
/// First minor of kernels that drop the pages of a file after a direct write as well as before: Linux 6.18.
pub const MINOR_DROPS_AFTER: u32 = 45;
/// Node number of the root.
pub const ROOT: u64 = 1;

/// Declares plain structures of the protocol.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? } $size:literal)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

structures! {
    /// What every request starts with.
    InHeader { len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32, extensions: u16, padding: u16 } 40
    /// What every answer starts with.
    OutHeader { len: u32, error: i32, unique: u64 } 16
    InitIn { major: u32, minor: u32, readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] } 64
    InitOut {
        major: u32, minor: u32, readahead: u32, flags: u32, background: u16, congestion: u16, write_max: u32,
        time_granularity: u32, pages_max: u16, map_alignment: u16, flags2: u32, stack_depth: u32, timeout: u16, unused: [u16; 11],
    } 64
    /// Attributes of a node.
    FuseAttr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_ns: u32, mtime_ns: u32, ctime_ns: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, block_bytes: u32, flags: u32,
    } 88
    EntryOut { node: u64, generation: u64, entry_s: u64, attr_s: u64, entry_ns: u32, attr_ns: u32, attr: FuseAttr } 128
    GetAttrIn { flags: u32, padding: u32, handle: u64 } 16
    AttrOut { valid_s: u64, valid_ns: u32, padding: u32, attr: FuseAttr } 104
    SetAttrIn {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atime_ns: u32, mtime_ns: u32, ctime_ns: u32, mode: u32, unused: u32, uid: u32, gid: u32, unused2: u32,
    } 88
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 } 16
    MkdirIn { mode: u32, umask: u32 } 8
    RenameIn { to: u64 } 8
    Rename2In { to: u64, flags: u32, padding: u32 } 16
    LinkIn { node: u64 } 8
    OpenIn { flags: u32, open_flags: u32 } 8
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 } 16
    OpenOut { handle: u64, flags: u32, backing: i32 } 16
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 } 24
    FlushIn { handle: u64, unused: u32, padding: u32, lock_owner: u64 } 24
    ReadIn { handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 } 40
    WriteIn { handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 } 40
    WriteOut { size: u32, padding: u32 } 8
    SyncIn { handle: u64, flags: u32, padding: u32 } 16
    StatfsOut {
        blocks: u64, free: u64, available: u64, files: u64, files_free: u64, block_bytes: u32, name_max: u32, fragment: u32,
        padding: u32, spare: [u32; 6],
    } 80
    SetXattrIn { size: u32, flags: u32 } 8
    GetXattrIn { size: u32, padding: u32 } 8
    LockIn { handle: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, flags: u32, padding: u32 } 48
    LockOut { start: u64, end: u64, kind: u32, pid: u32 } 24
    InterruptIn { unique: u64 } 8
    SeekIn { handle: u64, offset: u64, whence: u32, padding: u32 } 24
    IoctlIn { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32 } 32
    IoctlOut { result: i32, flags: u32, in_parts: u32, out_parts: u32 } 16
    SeekOut { offset: u64 } 8
    FallocateIn { handle: u64, offset: u64, len: u64, mode: u32, padding: u32 } 32
    CopyIn { handle: u64, offset: u64, to_node: u64, to_handle: u64, to_offset: u64, len: u64, flags: u64 } 56
    ForgetIn { times: u64 } 8
    ForgetManyIn { count: u32, padding: u32 } 8
    ForgetOne { node: u64, times: u64 } 16
    ForgetInode { node: u64, offset: i64, len: i64 } 24
    StoreData { node: u64, offset: u64, size: u32, padding: u32 } 24
    ForgetEntry { node: u64, name_len: u32, flags: u32 } 16
    DirentHead { ino: u64, next: u64, name_len: u32, kind: u32 } 24
}

/// Requests, by number.
#[allow(missing_docs)]
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
}

/// What is agreed on in `INIT`.
#[allow(missing_docs)]
pub mod init {
    pub const ASYNC_READ: u64 = 1;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const EXTENDED: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Which fields of [`SetAttrIn`] count.
#[allow(missing_docs)]
pub mod set {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const HANDLE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SET_ID: u32 = 1 << 11;
}

/// [`GetAttrIn::flags`]: asked through a handle, so by who reads and not by `stat`.
pub const GETATTR_HANDLE: u32 = 1;
/// [`OpenOut::flags`]: reads and writes come to us, whole.
pub const OPEN_DIRECT_IO: u32 = 1;
/// [`OpenOut::flags`]: what the kernel has of it stays.
pub const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// [`OpenOut::flags`]: the kernel may list the directory by itself.
pub const OPEN_CACHE_DIR: u32 = 1 << 3;
/// [`OpenIn::open_flags`]: truncating takes set-id bits away.
pub const OPEN_KILL_SET_ID: u32 = 1;
/// [`WriteIn::write_flags`]: writing takes set-id bits away.
pub const WRITE_KILL_SET_ID: u32 = 1 << 2;
/// [`WriteIn::write_flags`]: from the kernel's pages, where the data are already.
pub const WRITE_FROM_PAGES: u32 = 1;
/// [`ReadIn::read_flags`]: for a call of a program's, which `lock_owner` says, and not for a page.
pub const READ_BY_OWNER: u32 = 1 << 1;
/// [`LockIn::flags`]: a `flock`.
pub const LOCK_FLOCK: u32 = 1;
/// [`ReadIn::read_flags`], [`SyncIn::flags`]: data only.
pub const SYNC_DATA: u32 = 1;
