//! What a path walk is asked for and what it answers.

use crate::types::{Kind, Node};

/// Longest path, including the terminating NUL of the kernel's `PATH_MAX`.
pub const PATH_MAX: usize = 4096;
/// How many symlinks one walk may follow.
pub const SYMLINKS_MAX: u32 = 40;

/// What happens at the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// Look it up and follow it if it is a symlink.
    Follow,
    /// Look it up, do not follow (`O_NOFOLLOW`, `AT_SYMLINK_NOFOLLOW`). A
    /// trailing slash still follows, as the kernel does.
    NoFollow,
    /// Do not look it up: only the parent and the name are wanted (create,
    /// unlink, rename).
    Parent,
}

/// Where a walk keeps the text of the symlinks it follows. One per thread;
/// untouched unless a symlink is met.
#[derive(Debug)]
#[repr(C)]
pub struct Scratch {
    /// Two buffers: the current expansion and the next one.
    pub text: [[u8; PATH_MAX]; 2],
}

impl Scratch {
    /// Empty buffers.
    pub const fn new() -> Self {
        Scratch { text: [[0; PATH_MAX]; 2] }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a path led.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The directory that holds (or would hold) the last component.
    pub parent: Node,
    /// The last component, without slashes. Empty, `.` or `..` where the path
    /// ends so; then `node` is that directory (also under [`Last::Parent`]).
    pub name: &'a [u8],
    /// The node; `None` where no such name exists, or [`Last::Parent`] did not look.
    pub node: Option<Node>,
    /// The path ended in a slash: only a directory will do.
    pub slash: bool,
}

/// Why a walk left its backend.
#[derive(Clone, Copy, Debug)]
pub enum Exit<'a> {
    /// `..` at the backend's root. `rest` is what follows it, with no leading
    /// slash; it may be empty.
    Above {
        /// Remaining path.
        rest: &'a [u8],
    },
    /// A symlink with an absolute target: the whole remaining path.
    Absolute {
        /// Absolute path to go on with.
        path: &'a [u8],
    },
    /// A node on which something is mounted.
    Mountpoint {
        /// That node.
        node: Node,
        /// The directory in which it was found.
        parent: Node,
        /// Its name there.
        name: &'a [u8],
        /// Remaining path, no leading slash.
        rest: &'a [u8],
    },
}

/// Result of a walk.
#[derive(Clone, Copy, Debug)]
pub enum Walk<'a> {
    /// The path ended inside this backend.
    Found(Found<'a>),
    /// It leads out of it.
    Exit(Exit<'a>),
}

/// What the fast path tells of a node: enough to open it, or to say who may.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// The node.
    pub node: Node,
    /// [`Node::id`] of the directory that it was seen in.
    pub parent: u64,
    /// anything 8 | kind 8 | mode 16.
    pub word: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Sight {
    /// Nothing seen yet.
    pub const EMPTY: Sight = Sight { node: Node { id: 0, hint: u32::MAX }, parent: 0, word: 0, uid: 0, gid: 0 };

    /// Type of the node.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_dt((self.word >> 16) as u8)
    }

    /// Permission bits.
    #[inline]
    pub fn mode(&self) -> u16 {
        self.word as u16
    }
}

/// What the fast path makes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fast<T> {
    /// It is done.
    Done(T),
    /// There is no such name in a directory that may be searched.
    Absent,
    /// Nothing has been done: take the slow path.
    Slow,
}

impl<T> From<Option<T>> for Fast<T> {
    #[inline]
    fn from(done: Option<T>) -> Fast<T> {
        done.map_or(Fast::Slow, Fast::Done)
    }
}
