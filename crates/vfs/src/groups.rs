//! Groups of calls beside [`Backend`](crate::Backend): what only some file systems have, and the hand-over of what is open.

use crate::cached::{KernelCall, KernelOpen};
use base::{Cx, DescriptionId, Holder, Node, Result};

/// What a mount through the kernel asks and tells. Not one of them needs an answer where nothing else changes files.
pub trait KernelMount {
    /// The node with [this number](KernelMount::number_of) that was its place's `generation`-th, if
    /// there can be one (native: `Node::id >> 40`). Whether there is one shows at its first use.
    fn by_number(&self, _number: u64, _generation: u32) -> Option<Node> {
        None
    }

    /// The number by which [`KernelMount::by_number`] finds a node; not what programs see, behind a cache.
    fn number_of(&self, _node: Node) -> u64 {
        0
    }

    /// The kernel is about to be told the attributes of `node`, or names in it,
    /// and may keep them. `None`: nobody would tell it of changes; else whether
    /// it might have known before.
    fn kernel_keeps(&self, _cx: &Cx, _node: Node, _names: bool) -> Option<bool> {
        None
    }

    /// Whether a kernel mount serves it too, by another process.
    fn is_served(&self) -> bool {
        false
    }

    /// Whether that one's kernel may know names in a directory.
    fn kernel_knows_names(&self, _cx: &Cx, _dir: Node) -> bool {
        false
    }

    /// Whether the kernel has mounted something on any node, below its mount of this one.
    fn has_covered(&self) -> bool {
        false
    }

    /// Whether it has on that node.
    fn is_covered(&self, _node: Node) -> bool {
        false
    }

    /// The kernel has mounted something on a node: from now on [`KernelMount::is_covered`]. `ENOSPC`: it is on too many.
    fn cover(&self, _cx: &Cx, _node: Node) -> Result<()> {
        Ok(())
    }

    /// What the mount namespace whose mounts are told by [`KernelMount::cover`] calls the kernel mount; 0: not known.
    fn mount_id(&self) -> u32 {
        0
    }

    /// Programs may store into pages of one file more through the kernel's mount (`begins`), or of one less: who changes
    /// files tells the kernel before as well as after. Nobody need be told by default.
    fn count_stored(&self, _begins: bool) {}

    /// The kernel has begun to execute a file through the mount, or ended.
    fn count_executed(&self, _cx: &Cx, _node: Node, _begins: bool) {}

    /// Whether the kernel executes a file: it must not be opened for writing.
    fn is_executed(&self, _node: Node) -> bool {
        false
    }

    /// Whether programs may have stored into the file's pages, of which nobody is told: what the kernel
    /// has read of it may be old.
    fn may_be_stored(&self, _cx: &Cx, _node: Node) -> bool {
        false
    }

    /// A number, not 0, by which this thread's waits for other processes are known; 0 where it waits for nobody.
    fn waits_as(&self, _cx: &Cx) -> u32 {
        0
    }

    /// What the thread with this number waits for is not wanted any more: its call ends with `EINTR`. Or (`over`) the next
    /// one is not meant.
    fn call_off(&self, _number: u32, _over: bool) {}

    /// The process that the thread with this number has been waiting for.
    fn kept_waiting_by(&self, _number: u32) -> Option<Holder> {
        None
    }

    /// Whether process `pid` has the file system open itself, as far as its PID tells.
    fn is_user(&self, _pid: u32) -> bool {
        false
    }
}

/// Of a file system that nobody but its own process changes.
#[derive(Debug)]
pub struct NotMounted;

impl KernelMount for NotMounted {}

/// Files that are the kernel's own: opened there, below a directory's handle.
pub trait KernelFiles {
    /// Whether [`KernelFiles::open_in_kernel`] is to be asked at all.
    fn is_kernels(&self) -> bool {
        false
    }

    /// Opens (or makes) a file as a descriptor of the kernel's; `None` for what
    /// is opened here. `make` makes the system call.
    fn open_in_kernel(&self, _spot: &KernelOpen, _make: &mut KernelCall) -> Option<Result<usize>> {
        None
    }

    /// A handle (`O_PATH`) of the kernel's on what lies at `path` below `base`, if it takes no more than that plain path:
    /// names and single slashes, no symlink on the way nor, with `follow`, at its end. `None`: walk.
    fn handle_below(&self, _base: Node, _path: &[u8], _follow: bool) -> Option<Result<pm::file::File>> {
        None
    }

    /// As [`KernelFiles::handle_below`] of a directory that is to be listed: its handle, the
    /// directory that holds it, and its node. The caller may read it.
    fn directory_below(&self, _base: Node, _path: &[u8]) -> Option<Result<(pm::file::File, Node, Node)>> {
        None
    }

    /// As [`KernelFiles::open_in_kernel`] for such a path. What is opened may be a directory.
    fn open_below(&self, _base: Node, _path: &[u8], _flags: u32, _mode: u16, _make: &mut KernelCall) -> Option<Result<usize>> {
        None
    }
}

/// Of a file system whose files the kernel does not have.
#[derive(Debug)]
pub struct NoKernelFiles;

impl KernelFiles for NoKernelFiles {}

/// What a process has open, over `fork`, `spawn` and `exec`.
pub trait Handover {
    /// Before `fork`: a copy of this process's descriptors for the child. The
    /// token goes to `fork_child` in the child, and to `fork_done` or `fork_failed` in the parent.
    fn fork_prepare(&self, cx: &Cx) -> Result<u64>;

    /// In the child, first thing.
    fn fork_child(&self, token: u64);

    /// In the child of a program with other threads, after `fork_child`: what number `fd` holds there. `known` is what
    /// the program's table says: what a thread opened after `fork_prepare` is held if the parent still has it.
    /// A file system in memory of the process's own has what the table says.
    fn inherited(&self, _cx: &Cx, _fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        known
    }

    /// In the parent: the child is process `pid`, so that its early death is noticed.
    fn fork_done(&self, _token: u64, _pid: u32) {}

    /// In the parent, when `fork` failed.
    fn fork_failed(&self, cx: &Cx, token: u64);

    /// Whether the token of `fork_prepare` will do for a child that borrows our memory until it
    /// executes a program: `spawn_exec` in that child just before, `exec_claim` in the program, no
    /// `fork_child`. `spawn_failed` in the parent, if it comes to nothing.
    fn spawns(&self) -> bool {
        false
    }

    /// In such a child, just before `exec`.
    fn spawn_exec(&self, _token: u64) {}

    /// In such a child, when `exec` failed.
    fn spawn_undone(&self, _token: u64) {}

    /// In the parent, when such a child was not made or did not come to `exec`.
    fn spawn_failed(&self, cx: &Cx, token: u64) {
        self.fork_failed(cx, token)
    }

    /// Before `exec`: marks this process as replacing itself; the token lets
    /// the new program claim its descriptors (0: cannot).
    fn exec_prepare(&self) -> u64;

    /// `exec` failed: everything as before.
    fn exec_failed(&self);

    /// In the new program: takes over the descriptors under `token`; reports each.
    fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()>;
}
