//! What a file system must offer to stand behind the caching layer.

use crate::{Entry, LowerLeases, PageKey, SessionCache};
use base::{
    Attr, Cx, DescriptionId, DirEntry, Errno, Error, Fallocate, Lock, NewNode, Node, RenameMode, Result, SetAttr, StatFs,
};
use pm::UserSlice;

fn refused<T>() -> Result<T> {
    Err(Error::Posix(Errno::EOPNOTSUPP))
}

/// What a lower file system can't hold.
pub mod lacks {
    /// Second names of a file.
    pub const LINKS: u32 = 1;
    /// Symlinks.
    pub const SYMLINKS: u32 = 2;
    /// FIFOs, sockets, devices.
    pub const NODES: u32 = 4;
    /// Extended attributes.
    pub const XATTRS: u32 = 8;
}

/// A file system that answers for nodes of a [`SessionCache`], which says what it
/// calls them (`key`) and by which path they are reached.
///
/// Nothing it answers is trusted with more than its own mount: sizes, names and
/// kinds are checked here or by the lower file system itself.
pub trait LowerFs: Sync {
    /// `st_dev`, where an entry says none.
    fn device(&self) -> u64;

    /// See `Backend::unsynced`.
    fn unsynced(&self) -> Option<&[u8]> {
        None
    }

    /// The node called `name` in `dir`; [`Miss`] says how long its absence may be believed.
    fn lookup(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> core::result::Result<Entry, Miss>;

    /// Attributes and how long they may be believed, nanoseconds.
    fn attr(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<(Attr, u64)>;

    /// See `Backend::access`. `attr` tells attributes, if they are needed.
    fn access(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()>;

    /// See `Backend::permits`.
    fn permits(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        self.access(s, cx, node, want, attr)
    }

    /// Whether a step of a walk needs search permission by the directory's attributes.
    fn checks_search(&self) -> bool {
        false
    }

    /// Changes attributes. `attr` as they are.
    fn set_attr(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()>;

    /// The target of a symlink.
    fn readlink(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize>;

    /// Makes a node.
    fn create(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry>;

    /// Gives a node another name.
    fn link(&self, s: &SessionCache, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()>;

    /// Removes a name.
    fn remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()>;

    /// Whether the caller may remove a name that is there: asked where another error follows.
    fn may_remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let _ = (s, cx, dir, name);
        Ok(())
    }

    /// Moves a name.
    fn rename(&self, s: &SessionCache, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()>;

    /// Reports entries from `cookie` on.
    fn readdir(&self, s: &SessionCache, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Reports all entries, each with its attributes where they come with it. They hold now, for however long else.
    fn list(&self, s: &SessionCache, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry, Option<&Attr>) -> bool) -> Result<()> {
        self.readdir(s, cx, dir, 0, &mut |entry| each(entry, None))
    }

    /// Figures.
    fn statfs(&self, s: &SessionCache) -> Result<StatFs>;

    /// A description is being made with these `O_*`.
    fn open(&self, s: &SessionCache, cx: &Cx, node: Node, flags: u32) -> Result<()> {
        let _ = (s, cx, node, flags);
        Ok(())
    }

    /// A descriptor on an open regular file is closed; the close fails as this does.
    fn flush(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<()> {
        let _ = (s, cx, node);
        Ok(())
    }

    /// Whether it keeps advisory locks of an open file itself: `flock`, or else record and OFD locks.
    fn keeps_locks(&self, flock: bool) -> bool {
        let _ = flock;
        false
    }

    /// Sets or clears a lock of `owner`'s, by open file `id`; `EAGAIN` where another holds a conflicting one.
    fn lock(&self, s: &SessionCache, cx: &Cx, (node, id): (Node, DescriptionId), owner: u64, lock: &Lock) -> Result<()> {
        let _ = (s, cx, node, id, owner, lock);
        refused()
    }

    /// The first lock that conflicts with one.
    fn conflicting_lock(
        &self,
        s: &SessionCache,
        cx: &Cx,
        (node, id): (Node, DescriptionId),
        owner: u64,
        lock: &Lock,
    ) -> Result<Option<Lock>> {
        let _ = (s, cx, node, id, owner, lock);
        refused()
    }

    /// An owner gives up all record locks that it has by an open file.
    fn unlock_records(&self, s: &SessionCache, cx: &Cx, (node, id): (Node, DescriptionId), owner: u64) {
        let _ = (s, cx, node, id, owner);
    }

    /// An open file ends, and so do its locks.
    fn end_locks(&self, s: &SessionCache, cx: &Cx, (node, id): (Node, DescriptionId)) {
        let _ = (s, cx, node, id);
    }

    /// Locks that it keeps for the session as a whole, where it keeps any.
    fn leases(&self) -> Option<&dyn LowerLeases> {
        None
    }

    /// Nobody has the node open any more.
    fn closed(&self, s: &SessionCache, cx: &Cx, node: Node) {
        let _ = (s, cx, node);
    }

    /// The handle that came with a new node, in `incarnation`, is not needed.
    fn release(&self, s: &SessionCache, cx: &Cx, key: u64, handle: u64, incarnation: u32) {
        let _ = (s, cx, key, handle, incarnation);
    }

    /// The cache knows `key` no more, which was looked up `count` times in `incarnation`.
    fn forget(&self, s: &SessionCache, key: u64, count: u64, incarnation: u32) {
        let _ = (s, key, count, incarnation);
    }

    /// Reads one buffer at `offset`; fewer bytes only at the end of the file.
    fn read(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        let _ = (s, cx, node, offset, into);
        refused()
    }

    /// What an open file holds from `offset` on is likely to be read next: one frame's length
    /// ([`FRAME_BYTES`](crate::FRAME_BYTES)), at once and in one call of [`LowerFs::read`].
    fn read_ahead(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64) {
        let _ = (s, cx, node, offset);
    }

    /// Rises when it has told of a change that others have made.
    fn told(&self) -> u64 {
        0
    }

    /// Nothing that was asked for ahead is under way any more: the program ends, or becomes another one.
    fn settle_all(&self) {}

    /// What an open file is called in the page cache; `None`: it is not to be kept there.
    fn page_key(&self, s: &SessionCache, node: Node) -> Option<PageKey> {
        let _ = (s, node);
        None
    }

    /// Whether anything of what it says of a node is believed beyond the call that asked, or kept as pages.
    fn is_remembered(&self) -> bool {
        true
    }

    /// Writes one buffer at `offset`.
    fn write(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        let _ = (s, cx, node, offset, from);
        refused()
    }

    /// Writes one buffer at the end, which is at `offset` as far as one knows: with others who append, the lower file system
    /// may know better.
    fn append(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        self.write(s, cx, node, offset, from)
    }

    /// Space management.
    fn fallocate(&self, s: &SessionCache, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _ = (s, cx, node, how, offset, len);
        refused()
    }

    /// See `Backend::seek`; `None`: it can't tell, all is data.
    fn seek(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<Option<u64>> {
        let _ = (s, cx, node, offset, data);
        Ok(None)
    }

    /// Copies within the file system, without the bytes coming here; `EXDEV`: it has no way, the caller reads and writes.
    fn copy_range(&self, s: &SessionCache, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64> {
        let _ = (s, cx, from, to, len);
        Err(Errno::EXDEV.into())
    }

    /// What it can't hold, as bits of [`lacks`].
    fn lacks(&self) -> u32 {
        0
    }

    /// Whether what is closed is stored later, and a sync of the whole (no node) waits for it and says what failed.
    fn syncs_whole(&self) -> bool {
        false
    }

    /// Makes durable.
    fn sync(&self, s: &SessionCache, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()>;

    /// See `Backend::get_xattr`.
    fn get_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize>;
    /// See `Backend::set_xattr`.
    fn set_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()>;
    /// See `Backend::list_xattr`.
    fn list_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize>;
    /// See `Backend::remove_xattr`.
    fn remove_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8]) -> Result<()>;

    /// Whether it sees by itself that a name is taken or missing, that a directory
    /// would come to lie in itself, and so on. Others rely on us, as on the kernel.
    fn checks_names(&self) -> bool {
        false
    }

    /// Whether [`LowerFs::open_in_kernel`] is to be asked.
    fn is_kernels(&self) -> bool {
        false
    }

    /// For a lower file system whose files are the kernel's: opens one (or makes it, if
    /// `node` is `None`) as the program asked and returns the kernel's
    /// descriptor, made by `make` (an `openat2` with its six arguments).
    fn open_in_kernel(&self, s: &SessionCache, spot: &KernelOpen, make: &mut KernelCall) -> Option<Result<usize>> {
        let _ = (s, spot, make);
        None
    }

    /// See `Backend::watch`; permission was not asked.
    fn watch(&self, s: &SessionCache, node: Node, path: &mut [u8]) -> Result<usize> {
        let _ = (s, node, path);
        Err(Error::Posix(Errno::EOPNOTSUPP))
    }

    /// See `Backend::handle_below`.
    fn handle_below(&self, s: &SessionCache, base: Node, path: &[u8], follow: bool) -> Option<Result<pm::file::File>> {
        let _ = (s, base, path, follow);
        None
    }

    /// See `Backend::directory_below`.
    fn directory_below(&self, s: &SessionCache, base: Node, path: &[u8]) -> Option<Result<(pm::file::File, Entry)>> {
        let _ = (s, base, path);
        None
    }

    /// See `Backend::open_below`.
    fn open_below(
        &self,
        s: &SessionCache,
        base: Node,
        path: &[u8],
        flags: u32,
        mode: u16,
        make: &mut KernelCall,
    ) -> Option<Result<usize>> {
        let _ = (s, base, path, flags, mode, make);
        None
    }
}

/// A kernel call on the program's behalf: number, arguments, raw result.
pub type KernelCall<'a> = dyn FnMut(u32, [usize; 6]) -> isize + 'a;

/// What is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct KernelOpen<'a> {
    /// Directory.
    pub dir: Node,
    /// Name in it; empty: `node` itself.
    pub name: &'a [u8],
    /// The node, if it exists.
    pub node: Option<Node>,
    /// `O_*`.
    pub flags: u32,
    /// For a new file.
    pub mode: u16,
}

/// Why a look-up found nothing.
#[derive(Clone, Copy, Debug)]
pub enum Miss {
    /// There is no such name; believe it for that long, nanoseconds.
    Absent(u64),
    /// It could not be looked up.
    Failed(Error),
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        match error {
            Error::Posix(Errno::ENOENT) => Miss::Absent(0),
            other => Miss::Failed(other),
        }
    }
}

impl From<Errno> for Miss {
    fn from(errno: Errno) -> Self {
        Error::Posix(errno).into()
    }
}
