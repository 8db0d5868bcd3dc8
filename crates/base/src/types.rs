//! What every layer above the medium speaks of: nodes, attributes, credentials,
//! errors, and the context of one call.

use core::cell::Cell;
pub use pm::Errno;

/// Result of a file-system operation.
pub type Result<T> = core::result::Result<T, Error>;

/// What the kernel must no longer keep of what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale<'a> {
    /// Attributes and pages of a node.
    Node(Node),
    /// A name in a directory.
    Name(Node, &'a [u8]),
    /// Attributes and pages of all nodes: of which they have to go is not known.
    Everything,
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// An ordinary POSIX failure.
    Posix(Errno),
    /// A structure on the medium is damaged (`EUCLEAN`).
    Corrupt {
        /// Which structure, for the log line.
        what: &'static str,
        /// Byte offset in the image.
        at: u64,
    },
}

impl Error {
    /// The error number a program sees.
    #[inline]
    pub fn errno(self) -> Errno {
        match self {
            Error::Posix(errno) => errno,
            Error::Corrupt { .. } => Errno::EUCLEAN,
        }
    }
}

impl From<Errno> for Error {
    #[inline]
    fn from(errno: Errno) -> Self {
        Error::Posix(errno)
    }
}

/// How an overwrite of bytes that a file has happens whole or not at all, whoever dies in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// What was there is saved first, and put back after a death.
    Undo,
    /// What is to be there is written aside first, and copied once more after a death.
    Replay,
}

impl Atomic {
    /// What the mount option `atomic=` calls so.
    pub fn from_name(name: &[u8]) -> Option<Atomic> {
        match name {
            b"undo" => Some(Atomic::Undo),
            b"replay" => Some(Atomic::Replay),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Atomic::Undo => "undo",
            Atomic::Replay => "replay",
        }
    }
}

/// Type of a node; the values are `DT_*` of `readdir`, and `kind << 12` is the
/// type part of `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

impl Kind {
    /// The kind with this `DT_*` number.
    #[inline]
    pub const fn from_dt(dt: u8) -> Option<Kind> {
        Some(match dt {
            1 => Kind::Fifo,
            2 => Kind::CharDevice,
            4 => Kind::Directory,
            6 => Kind::BlockDevice,
            8 => Kind::Regular,
            10 => Kind::Symlink,
            12 => Kind::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    #[inline]
    pub const fn type_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// A file, directory, … of one backend.
///
/// `id` names it (for the native engine: line number in the image and a reuse
/// generation, so a stale node is noticed: `ESTALE`). `hint` lets the backend
/// find its cached state quickly; it is never trusted and never compared.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node {
    /// Identity within the backend.
    pub id: u64,
    /// Where the backend may find its cached state.
    pub hint: u32,
}

impl PartialEq for Node {
    #[inline]
    fn eq(&self, other: &Node) -> bool {
        self.id == other.id
    }
}
impl Eq for Node {}

/// What `stat` reports. Times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Attr {
    pub ino: u64,
    pub kind: Kind,
    /// Permission bits, set-id and sticky (12 bits).
    pub mode: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// `st_rdev`, kernel encoding (`makedev`).
    pub rdev: u64,
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    /// Birth time, where it is known.
    pub btime: Option<i64>,
}

impl Attr {
    /// Attributes of nothing, to be filled in.
    pub const EMPTY: Attr = Attr {
        ino: 0,
        kind: Kind::Regular,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        btime: None,
    };
}

/// A time to be set (`utimensat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The current time.
    Now,
    /// Nanoseconds since the epoch.
    At(i64),
}

/// Attributes to change; `None` leaves one as it is.
///
/// The backend checks permission (owner, `CAP_FOWNER`, write access for
/// `Now`/truncate by path), clears set-id bits as POSIX and Linux say, and
/// stamps ctime.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SetAttr {
    /// 12 bits.
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Truncate or extend. `ftruncate` on a descriptor open for writing sets
    /// `size_checked`, so that no permission is asked a second time; then (as
    /// with `O_TRUNC`) the times change even if the size does not.
    pub size: Option<u64>,
    pub size_checked: bool,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Set-id bits and capabilities go, as with a change of owner, whatever else changes: `chown` to nobody.
    pub drops_rights: bool,
    /// Somebody has looked whether the caller may make this change.
    pub checked: bool,
}

/// What `create` makes.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    /// Its type.
    pub kind: Kind,
    /// Permission bits as the program asked (the umask is applied by the backend).
    pub mode: u16,
    /// For devices.
    pub rdev: u64,
    /// For symlinks.
    pub target: &'a [u8],
}

/// A node made as another one is, and what of that is left to do.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// The new node.
    pub node: Node,
    /// The mode it should have; a directory may have another one while it is filled.
    pub mode: u16,
    /// Size and times of the original.
    pub size: u64,
    /// See `size`.
    pub mtime: i64,
    /// See `size`.
    pub atime: i64,
    /// Names of the original.
    pub nlink: u32,
    /// It has the contents; else it has none yet.
    pub is_filled: bool,
    /// The original may have extended attributes, or an access time of its own.
    pub has_more: bool,
    /// Owner or group are the caller's, not the original's.
    pub is_taken: bool,
}

/// A run of a file's blocks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRun {
    /// Where in the file.
    pub start: u64,
    /// Where in the image.
    pub image: u64,
    /// How much.
    pub len: u64,
    /// Others have these blocks too.
    pub is_shared: bool,
    /// Nothing comes behind it.
    pub is_last: bool,
}

/// One entry that `readdir` reports.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name; may be `.` or `..`.
    pub name: &'a [u8],
    /// `d_ino`.
    pub ino: u64,
    /// Its type.
    pub kind: Kind,
    /// Cookie at which reading goes on *after* this entry (`d_off`).
    pub next: u64,
    /// Number of the node; 0 where that is not known.
    pub id: u64,
}

/// What `statfs` reports.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct StatFs {
    pub magic: u64,
    pub block_bytes: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub id: u64,
    pub name_max: u64,
    pub read_only: bool,
}

/// What the fast path asks of its caller.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// File-system user.
    pub uid: u32,
    /// As in [`Cred`].
    pub privileged: bool,
}

impl Caller {
    /// Whether he may search a directory with this owner and mode as its owner, or as the superuser.
    #[inline(always)]
    pub fn may_search_own(&self, uid: u32, mode: u32) -> bool {
        self.privileged || self.uid == uid && mode & 0o100 != 0
    }

    /// Whether he may open a node with this owner and mode with these `O_*`: as everybody, its owner or the superuser.
    /// False: find out on the slow path.
    #[inline(always)]
    pub fn may_open(&self, uid: u32, mode: u16, flags: u32) -> bool {
        // Reading 1, writing 2, both 3; 0 is neither.
        let access = (flags & pm::sys::abi::O_ACCMODE).wrapping_add(1) as u16 & 3;
        let need = 0o111 * ((access & 1) << 2 | access & 2);
        let may = mode & need == need || self.privileged || self.uid == uid && mode & need & 0o700 == need & 0o700;
        // What somebody else has made may be protected.
        let is_protected = flags & pm::sys::abi::O_CREAT != 0 && self.uid != uid;
        access != 0 && may && !is_protected
    }
}

/// In whose name a call is made. Never kept past the call.
#[derive(Clone, Copy, Debug)]
pub struct Cred<'a> {
    /// File-system user.
    pub uid: u32,
    /// File-system group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
    /// Overrides permission checks (`CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_CHOWN`, `CAP_FSETID`).
    pub privileged: bool,
    /// Overrides them as the superuser of another user namespace does: over what belongs to users and groups that it maps.
    pub privileged_within: bool,
}

impl Cred<'_> {
    /// The superuser.
    pub const ROOT: Cred<'static> = Cred { uid: 0, gid: 0, groups: &[], privileged: true, privileged_within: false };

    /// Whether permission checks are overridden on what belongs to these (the kernel's `capable_wrt_inode_uidgid`).
    #[inline]
    pub fn is_privileged_over(&self, uid: u32, gid: u32) -> bool {
        self.privileged || self.privileged_within && crate::ids::are_mapped(uid, gid)
    }

    /// Whether the caller belongs to `gid`.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether `want` (a sum of [`R`], [`W`], [`X`]) is granted on a node with
    /// this mode and owner.
    #[inline]
    pub fn may(&self, kind: Kind, mode: u16, uid: u32, gid: u32, want: u16) -> bool {
        let class = if self.uid == uid {
            mode >> 6
        } else if self.in_group(gid) {
            mode >> 3
        } else {
            mode
        };
        if class & want == want {
            return true;
        }
        // Root needs one execute bit somewhere to run a file, none to search a directory.
        (want & X == 0 || kind == Kind::Directory || mode & 0o111 != 0) && self.is_privileged_over(uid, gid)
    }
}

/// Read permission.
pub const R: u16 = 4;
/// Write permission.
pub const W: u16 = 2;
/// Execute or search permission.
pub const X: u16 = 1;

/// How many images one process can have open at a time.
pub const MOUNTS_MAX: usize = 16;

/// Descriptors below this are opened and closed on the fast path.
pub const NUMBERS_FAST: u32 = 1024;

/// What a thread carries from call to call: the lane it holds in each image it
/// has written to. A door keeps one per thread and hands it down; a forked
/// child and a new thread start with a fresh one.
#[derive(Debug)]
pub struct Thread {
    /// Lane number + 1 by image slot; 0 where none is held.
    pub lanes: [Cell<u32>; MOUNTS_MAX],
    /// `st_dev` and id of the node that a slow file system was last asked for by name, in this call: what it has said of it
    /// is as good as an answer of now.
    pub looked_up: Cell<Option<(u64, u64)>>,
    /// Notices to the kernel that the thread waits for when the change of a cached directory is over that it is in, a bit each.
    pub owed: Cell<u64>,
    /// The FIFO, socket or device whose last name the thread has removed, and its type: an object of the kernel may stand
    /// behind it.
    pub gone: Cell<Option<(u64, Kind)>>,
}

impl Thread {
    /// A thread that holds no lane.
    pub const fn new() -> Self {
        Thread {
            lanes: [const { Cell::new(0) }; MOUNTS_MAX],
            looked_up: Cell::new(None),
            owed: Cell::new(0),
            gone: Cell::new(None),
        }
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

/// A process that keeps another waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its PID, as its own namespace has it.
    pub pid: u32,
    /// It is stopped, as far as its PID tells.
    pub is_stopped: bool,
}

/// The context of one call.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// Whose rights.
    pub cred: Cred<'a>,
    /// File-creation mask.
    pub umask: u16,
    /// The calling thread.
    pub thread: &'a Thread,
}

/// In an open file's flags: it was made when it was opened. The kernel has no flag of this value.
pub const CREATED: u32 = 1 << 31;

/// Bytes of zeroes that a mapping shows of a file's holes, again and again.
pub const ZEROS: u64 = 2 << 20;

/// What a file's pages are mapped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapFor {
    /// A private mapping: holes are left out.
    Private,
    /// A shared one that is only read: holes are left out, and those who fill one later take away what stands for it.
    Reading,
    /// A shared one that may be stored into: holes are filled if there is plenty of space, and else left out.
    Writing,
    /// Pages of such a one that are touched: their holes are filled, or it fails with `ENOSPC`.
    Touching,
}

/// What `rename` does when the target exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// What `fallocate` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Allocate, and extend the size.
    Allocate,
    /// Allocate, leave the size.
    KeepSize,
    /// Free the range.
    PunchHole,
    /// Zero the range, and extend the size.
    Zero,
    /// Zero the range, leave the size.
    ZeroKeepSize,
}

impl Fallocate {
    /// The kernel's `FALLOC_FL_*`.
    pub const fn flags(self) -> u32 {
        match self {
            Fallocate::Allocate => 0,
            Fallocate::KeepSize => 1,
            Fallocate::PunchHole => 3,
            Fallocate::Zero => 16,
            Fallocate::ZeroKeepSize => 17,
        }
    }

    /// What these `FALLOC_FL_*` ask for; none for those that no file system of ours has.
    pub const fn of_flags(flags: u32) -> Option<Fallocate> {
        Some(match flags {
            0 => Fallocate::Allocate,
            1 => Fallocate::KeepSize,
            3 => Fallocate::PunchHole,
            16 => Fallocate::Zero,
            17 => Fallocate::ZeroKeepSize,
            _ => return None,
        })
    }
}

/// Index of an open file in its backend's table.
pub type DescriptionId = u32;

/// Kind of an advisory lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum LockKind {
    Shared,
    Exclusive,
    Unlock,
}

/// Who owns an advisory lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOwner {
    /// The process (`fcntl` record locks).
    Process,
    /// The open file description (OFD locks).
    Description(u32),
    /// The open file description, whole file (`flock`).
    Flock(u32),
    /// Somebody whom this process serves, by a number (24 bits) of its own: record
    /// locks. They go with this process. [`Lock::pid`] names him.
    Served(u32),
}

/// An advisory lock: bytes `start..end` (`end == u64::MAX` is to infinity).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Lock {
    pub kind: LockKind,
    pub owner: LockOwner,
    /// The open file by which it is asked for, where that is known: a lower file system that keeps locks itself hears of it.
    pub through: Option<u32>,
    pub start: u64,
    pub end: u64,
    /// Who holds it, when reported by a query: PID of the holder, or −1 for OFD locks.
    pub pid: i32,
}
