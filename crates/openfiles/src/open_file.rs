//! Open files (POSIX's open file descriptions): what `open` makes and `dup` and `fork` share.
//!
//! They live in a shared cache or a session cache (or, for a private backend, in private
//! memory), so that processes share offsets as POSIX says. Everything in one is
//! atomic; another process may change it at any time.

use base::DescriptionId;
use core::sync::atomic::{AtomicU32, AtomicU64};
use zerocopy::{FromBytes, KnownLayout};

/// In [`OpenFile::flags`]: open to be executed (the kernel's `__FMODE_EXEC`).
/// Programs can't set it.
pub const EXECUTE: u32 = 0x20;

/// `ioctl` on a file of a kernel mount, with a description's number: it is that
/// open file from then on, and what is read and written moves its offset.
/// `_IOW(0xb9, 1, u32)`.
pub const SHARE: u32 = 1 << 30 | 4 << 16 | 0xb9 << 8 | 1;

/// Of a file opened for reading through a kernel mount: every read is to come to the server, so that [`SHARE`] can
/// follow its offset. The value of `O_NONBLOCK`, which means nothing for files, and which programs can take away again.
pub const EACH_READ: u32 = 0o4000;

/// An open file, one cache line.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct OpenFile {
    /// Holders: descriptors of all processes, mappings, working directories ([`crate::refcount`]). 0 = free.
    pub refs: AtomicU64,
    /// File position; for directories the `readdir` cookie.
    pub offset: AtomicU64,
    /// [`Node::id`](base::Node::id).
    pub node: AtomicU64,
    /// [`Node::hint`](base::Node::hint): valid for as long as the description pins the node.
    pub hint: AtomicU32,
    /// Serialises calls that move the offset: owner's lane or process + 1, 0 when free.
    pub offset_owner: AtomicU32,
    /// `O_*` status and access flags, as `F_GETFL` reports them.
    pub flags: AtomicU32,
    /// Type of the node (`DT_*`).
    pub kind: AtomicU32,
    /// Number of reuses of this slot.
    pub generation: AtomicU32,
    /// How certain it is that this description is counted among those that have its node open: a mark of the native engine's.
    pub pin: AtomicU32,
    /// [`Node::id`](base::Node::id) of the directory in which it was opened.
    pub parent: AtomicU64,
    /// Not 0: its end is not done on the fast path. It may hold locks (`flock`, `F_OFD_SETLK`), or its end
    /// [is told](TOLD). The native engine's.
    pub locks: AtomicU32,
}

/// In [`OpenFile::locks`]: those who watch the file are told of its end.
pub const TOLD: u32 = 2;

const _: () = assert!(core::mem::size_of::<OpenFile>() == 64);

impl OpenFile {
    /// A free description.
    pub const fn new() -> Self {
        OpenFile {
            refs: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            offset: AtomicU64::new(0),
            node: AtomicU64::new(0),
            hint: AtomicU32::new(0),
            offset_owner: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            pin: AtomicU32::new(0),
            parent: AtomicU64::new(0),
            locks: AtomicU32::new(0),
        }
    }
}

impl Default for OpenFile {
    fn default() -> Self {
        Self::new()
    }
}

/// What the fast path of a close has not done, since it takes a context or is rare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unclosed {
    /// Anything: nobody has begun.
    All,
    /// All of this description, which is marked as being ended, but still in its place in the table.
    Placed(DescriptionId),
    /// All of this description, which is marked as being ended.
    Marked(DescriptionId),
    /// What is to be done of the node of this description, which was the last one, and to end the description.
    Last(DescriptionId),
}
