//! `trait Backend`: what a file system must offer to stand in the namespace.
//!
//! It speaks of nodes, not paths. All methods may be called from any thread;
//! those of a shared backend also act on what other processes see. Errors are
//! the kernel's, in the kernel's order. Permission is checked by the backend
//! from `cx.cred`, in every method that names a right below.

pub use crate::groups::{Handover, KernelFiles, KernelMount, NoKernelFiles, NotMounted};
pub use crate::parts::{AdvisoryLocks, Mappings, OpenFileTable, Xattrs};
use base::stat::Stat;
pub use base::walk::{Exit, Fast, Found, Last, PATH_MAX, SYMLINKS_MAX, Scratch, Walk};
use base::*;
use core::mem::MaybeUninit;
use pm::{Text, UserSlice};

/// A run of a file's bytes that lies contiguously in this process's memory.
#[derive(Clone, Copy, Debug)]
pub struct MapRange {
    /// Where in the file, bytes (page-aligned).
    pub file: u64,
    /// Where in the backing object (the image), bytes (page-aligned).
    pub image: u64,
    /// Address in this process.
    pub address: usize,
    /// Length in bytes (page-aligned).
    pub len: u64,
}

/// A file system: names, attributes and contents here, the rest in its parts.
pub trait Backend: OpenFileTable + Mappings + Xattrs + AdvisoryLocks + Sync {
    /// The root directory.
    fn root(&self) -> Node;

    /// `st_dev` of everything in it.
    fn device(&self) -> u64;

    /// The error with which everything is answered, if the file system can't be served ([`crate::refused`]).
    fn refuses(&self) -> Option<Errno> {
        None
    }

    /// A number that stays the same whatever `device` does, for names outside of it.
    fn identity(&self) -> u64 {
        self.device()
    }

    /// With `sync=none`: the kernel's path of the directory whose files need no sync; empty for `/`.
    fn unsynced(&self) -> Option<&[u8]> {
        None
    }

    /// `st_dev` of one node, where a mount shows several devices of the kernel's.
    fn device_of(&self, _node: Node) -> u64 {
        self.device()
    }

    /// Walks `path` (no leading slash) from directory `base`, following `..`
    /// and symlinks, checking search permission (`X`) at every step.
    ///
    /// `links` counts the symlinks followed so far in this call (`ELOOP` past
    /// [`SYMLINKS_MAX`]). `covered` tells on which nodes something is mounted;
    /// it is not asked when `None`.
    #[allow(clippy::too_many_arguments)]
    fn walk<'a>(
        &self,
        cx: &Cx,
        base: Node,
        path: &'a [u8],
        last: Last,
        links: &mut u32,
        covered: Option<&dyn Fn(Node) -> bool>,
        scratch: &'a mut Scratch,
    ) -> Result<Walk<'a>> {
        crate::walk::walk(self, cx, base, path, last, links, covered, scratch)
    }

    /// The fast path of `walk` and `attr` in one, for the program: see [`Mount::stat_fast`](crate::Mount::stat_fast).
    /// Nothing is mounted in it.
    fn stat_fast(&self, _who: &Caller, _from: (Node, Text), _follow: bool, _out: &mut MaybeUninit<Stat>) -> Fast<()> {
        Fast::Slow
    }

    /// The attributes of a node that is open, as `stat_fast`.
    fn fstat_fast(&self, _node: Node, _out: &mut MaybeUninit<Stat>) -> Fast<()> {
        Fast::Slow
    }

    /// The node called `name` in `dir` (`X` on `dir`). Not for `.` and `..`.
    fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node>;

    /// As `lookup`, and the node's type.
    fn lookup_kind(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        let node = self.lookup(cx, dir, name)?;
        Ok((node, self.attr(cx, node)?.kind))
    }

    /// The operation of this thread was broken off: what it has recorded happens, all else does not, and what it
    /// held is free again.
    fn break_off(&self, _cx: &Cx) {}

    /// The directory that holds directory `dir`; the root is its own parent.
    fn parent(&self, cx: &Cx, dir: Node) -> Result<Node>;

    /// The name of directory `dir` in its parent, into `name`; length in bytes.
    /// `ENOENT` for the root and for a removed directory.
    fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize>;

    /// As `attr`, of a node that this call's walk has found: what a look-up has just said is not asked for again.
    fn attr_found(&self, cx: &Cx, node: Node) -> Result<Attr> {
        self.attr(cx, node)
    }

    /// As `access`, where the node is searched or opened next: a file system that refuses that itself is not asked first.
    fn permits(&self, cx: &Cx, node: Node, want: u16) -> Result<()> {
        self.access(cx, node, want)
    }

    /// Attributes; needs no permission on the node.
    fn attr(&self, cx: &Cx, node: Node) -> Result<Attr>;

    /// Whether the caller may do `want` ([`R`] | [`W`] | [`X`], or 0): `EACCES` if not.
    fn access(&self, cx: &Cx, node: Node, want: u16) -> Result<()>;

    /// Changes attributes.
    fn set_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()>;

    /// The target of a symlink: copies up to `out.len()` bytes, returns how many.
    fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize>;

    /// Makes a node (`W` and `X` on `dir`); `EEXIST` if the name is there.
    fn create(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node>;

    /// The same where this call's own walk has just found no such name: where looking is dear, it is not done twice.
    fn create_absent(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        self.create(cx, dir, name, new)
    }

    /// Gives `node` another name. A node without names can get one only if it
    /// came from `tmpfile` without `O_EXCL`.
    fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()>;

    /// Removes a name that is not a directory.
    fn unlink(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()>;

    /// Moves a name.
    fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()>;

    /// Reports entries from `cookie` on (0 is the start), `.` and `..` among
    /// them, until `each` returns `false` (that entry counts as not taken).
    fn readdir(&self, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// File-system figures.
    fn statfs(&self) -> Result<StatFs>;

    /// As [`Backend::direct`], for what changes files; `None` where that is for the backend, though it is read directly.
    #[cfg(feature = "native")]
    fn direct_changes(&self) -> Option<&'static engine::Fs> {
        self.direct()
    }

    /// The native engine behind it: the fast path goes there without a detour.
    #[cfg(feature = "native")]
    fn direct(&self) -> Option<&'static engine::Fs> {
        None
    }

    /// Whether a directory is called `name` in `dir`, if that is cached.
    fn is_called(&self, _directory: Node, _dir: Node, _name: &[u8]) -> Option<bool> {
        None
    }

    /// Reads at `offset` into the buffers in turn; returns bytes read, 0 at the end.
    fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize>;

    /// Whether the calls of one buffer are answered by the backend alone: nothing is at
    /// hand that the fast path could ask, and `descriptions` is where they lie.
    fn is_direct(&self) -> bool {
        false
    }

    /// As `read` into one buffer that is not empty.
    fn read_one(&self, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        self.read(cx, node, offset, &[into])
    }

    /// Writes at `offset` (`None`: atomically at the end), returns bytes
    /// written and the offset after them.
    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)>;

    /// As `write` at an offset, of what programs have stored into a mapping: capabilities and set-id bits stay.
    fn write_stored(&self, cx: &Cx, node: Node, offset: u64, from: &[UserSlice]) -> Result<(usize, u64)> {
        self.write(cx, node, Some(offset), from)
    }

    /// As `write` at an offset from one buffer that is not empty; bytes written.
    fn write_one(&self, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        self.write(cx, node, Some(offset), &[from]).map(|(done, _)| done)
    }

    /// Copies between two files of this backend without passing through the program.
    fn copy_range(&self, cx: &Cx, from: Node, from_offset: u64, to: Node, to_offset: u64, len: u64) -> Result<u64>;

    /// Makes `len` bytes (0: all up to its end) of a file, from an offset on, those of another one from an offset on, so
    /// that they share the space. As `FICLONERANGE`: `EINVAL`; `EOPNOTSUPP` from a backend whose files share nothing.
    fn clone_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<()> {
        let _ = (cx, from, to, len);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes a node called `name` in `dir` as `source` of this type is: owner and mode as far as the caller may give them, mtime,
    /// a symlink's text; of a file also the contents, shared, if that is one step. `mode` is for a directory that is to have
    /// another one while it is filled. Times of `dir` stay. `EOPNOTSUPP` from a backend that can't.
    fn twin(&self, cx: &Cx, source: (Node, Kind), dir: Node, name: &[u8], mode: Option<u16>) -> Result<Twin> {
        let _ = (cx, source, dir, name, mode);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The first bytes from `at` on, as offset and length, in which two files of this backend may differ: `None` if nothing
    /// from there on can. What both have in the same place, or neither has, is the same.
    fn differs(&self, cx: &Cx, a: Node, b: Node, at: u64) -> Result<Option<(u64, u64)>> {
        let _ = (cx, a, b);
        Ok(Some((at, u64::MAX - at)))
    }

    /// Writes at `offset` at most `len` bytes that `fill` puts straight into the
    /// file's memory (such as the kernel reading a file of its own); returns how
    /// many, perhaps fewer. `EXDEV` from a backend without such memory.
    fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize> {
        let _ = (cx, node, offset, len, fill);
        Err(Errno::EXDEV.into())
    }

    /// Space management.
    fn fallocate(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()>;

    /// `SEEK_DATA` (`data`) or `SEEK_HOLE`: the next such offset at or after `offset`; `ENXIO` past the end.
    fn seek(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64>;

    /// Makes what was written durable, as far as the medium promises.
    fn sync(&self, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()>;

    /// What a mount through the kernel needs of it.
    fn kernel_mount(&self) -> &dyn KernelMount {
        &NotMounted
    }

    /// Its files as the kernel's own, where they are.
    fn kernel_files(&self) -> &dyn KernelFiles {
        &NoKernelFiles
    }

    /// Overwrites that happen whole or not at all, where there are such.
    fn whole(&self) -> Option<&dyn Whole> {
        None
    }

    /// How what is open goes on over `fork`, `spawn` and `exec`.
    fn handover(&self) -> &dyn Handover;

    /// At orderly exit: gives everything back (death does the same, later).
    fn detach(&self, cx: &Cx);

    /// A file or directory of the kernel's, by its path with a NUL behind it, that an inotify watch is to be set on in place
    /// of `node` ([`R`]): the kernel tells there of what happens to that, whoever does it. The path's length.
    /// `EOPNOTSUPP` if nobody would tell.
    fn watch(&self, _cx: &Cx, _node: Node, _path: &mut [u8]) -> Result<usize> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Adds to what is known of the calls there were. Not kept by default.
    fn count_calls(&self, _more: &Calls) {}

    /// [`name_of`](Backend::name_of) and [`parent`](Backend::parent) at once: one step of `getcwd`.
    fn step_up(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<(usize, Node)> {
        Ok((self.name_of(cx, dir, name)?, self.parent(cx, dir)?))
    }

    /// Has `len` bytes of a file share the space of another one's if they are the same: how many do then; `None` if they
    /// differ. As `FIDEDUPERANGE`: `EINVAL`; `EOPNOTSUPP` from a backend whose files share nothing.
    fn dedupe_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<Option<u64>> {
        let _ = (cx, from, to, len);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Nobody changes a node from here on, or the names in it (`EROFS`); or who may, again. For its owner. `EOPNOTSUPP` from a
    /// backend that has no such nodes.
    fn freeze(&self, cx: &Cx, node: Node, frozen: bool) -> Result<()> {
        let _ = (cx, node, frozen);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Whether nobody may change a node.
    fn is_frozen(&self, _node: Node) -> Result<bool> {
        Ok(false)
    }

    /// The first run of a file's blocks that ends behind byte `at`; `None` if there is none. `EOPNOTSUPP` from a backend
    /// whose files have no places.
    fn run_at(&self, cx: &Cx, node: Node, at: u64) -> Result<Option<FileRun>> {
        let _ = (cx, node, at);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Whether the node with this number, which is no directory, may have several names.
    fn has_several_names(&self, _id: u64) -> bool {
        true
    }

    /// The node with this number will soon be the source of a twin called `name` in `dir`; first said far ahead, then,
    /// without these, near. To be quick is all that it is for.
    fn expect_twin(&self, _id: u64, _far: Option<(Node, &[u8])>) {}
}

/// Calls of which each changes the bytes that a file has all or not at all, whoever dies in it. What fails has changed none.
pub trait Whole {
    /// Whether all calls of the mount are so.
    fn is_asked(&self) -> bool;
    /// Makes sure that they can be: `EOPNOTSUPP`, `EROFS`.
    fn allow(&self, cx: &Cx) -> Result<()>;
    /// As [`Backend::write`]: `EFBIG` where there is more than one call can change, `ENOSPC`.
    fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)>;
    /// As [`Backend::copy_range`]; of a longer range as much as one call can change.
    fn copy_range(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64>;
    /// As [`Backend::write_with`].
    fn write_with(
        &self,
        cx: &Cx,
        node: Node,
        place: (u64, u64),
        fill: &mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    ) -> Result<usize>;
}
