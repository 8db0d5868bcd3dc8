//! The parts of [`Backend`](crate::Backend) that every file system has beside names, attributes and contents.

use crate::MapRange;
use base::{Cx, DescriptionId, Lock, MapFor, Node, Result};
use openfiles::OpenFile;
use pm::{Errno, Table, UserSlice};

/// Open files and the descriptors that hold them.
pub trait OpenFileTable {
    /// Makes a regular file without a name (`O_TMPFILE`), opened at once: see `open`.
    fn tmpfile(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId>;

    /// Makes an open file description on `node`, held by descriptor `fd` of
    /// this process. `flags` are the program's `O_*`. Permission was checked by
    /// the caller with `access`. Does not truncate.
    fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId>;

    /// All descriptions, by their index, where they lie in one table: it stands
    /// for `description` as long as the backend is mounted.
    fn descriptions(&self) -> Table<OpenFile> {
        Table::EMPTY
    }

    /// The description behind an index that `open` returned and nobody has closed.
    fn description(&self, id: DescriptionId) -> &OpenFile;

    /// Descriptor `fd` of this process holds `id` too (dup, mapping, working directory).
    fn dup(&self, id: DescriptionId, fd: u32) -> Result<()>;

    /// Descriptor `fd` of this process lets go of whatever it holds; the last
    /// holder's close ends the description and its OFD and `flock` locks, and
    /// frees an unlinked node.
    fn close(&self, cx: &Cx, fd: u32);

    /// As [`OpenFileTable::close`]; fails as what the file system had put off until then. It is closed all the same.
    fn close_checked(&self, cx: &Cx, fd: u32) -> Result<()> {
        self.close(cx, fd);
        Ok(())
    }

    /// Takes the description's offset for this thread, so that a `read` that
    /// moves it is atomic; give back with `offset_unlock`.
    fn offset_lock(&self, cx: &Cx, id: DescriptionId);

    /// Gives the offset back.
    fn offset_unlock(&self, cx: &Cx, id: DescriptionId);
}

/// Files' bytes as memory of the program's.
pub trait Mappings {
    /// Whether memory that this backend works on lies at `address`.
    fn is_mapped(&self, _address: usize) -> bool {
        false
    }

    /// Reports where the file's bytes `offset..offset + len` (page-aligned) lie,
    /// in order. The caller must hold a description for as long as it uses the memory.
    fn map(&self, cx: &Cx, node: Node, offset: u64, len: u64, what: MapFor, each: &mut dyn FnMut(MapRange)) -> Result<()>;

    /// A file was stored into by a mapping: its times of change are now; which that is. The caller holds an open file.
    fn stored(&self, _: &Cx, _: Node) -> Result<i64> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The kernel file behind [`MapRange::image`], opened to be read, if there is one and it is still at its path.
    fn backing(&self) -> Option<pm::file::File>;

    /// A file of zeroes to show in place of holes, open to be read, and where in it [`ZEROS`](base::ZEROS) bytes of them begin. To be
    /// asked for before [`Mappings::map`] with [`MapFor::Reading`]; who fills a hole takes them away: touching them raises
    /// `SIGBUS` then. None by default.
    fn zeros(&self) -> Option<(pm::file::File, u64)> {
        None
    }
}

/// Extended attributes.
pub trait Xattrs {
    /// Copies the value of `name`; returns its length. An empty `out` asks only for the length; `ERANGE` if too small.
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize>;

    /// Sets it; `flags` are `XATTR_CREATE`, `XATTR_REPLACE`.
    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()>;

    /// NUL-terminated names one after the other; empty `out` asks for the length.
    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize>;

    /// Removes it; `ENODATA` if absent.
    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()>;
}

/// Advisory locks.
pub trait AdvisoryLocks {
    /// Sets or clears a lock; `EAGAIN` when another holds a conflicting one
    /// (waiting is the caller's business).
    fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()>;

    /// As `lock`, by who waits for it since `since` ([`openfiles::moment`]): `EDEADLK` where that would be for ever.
    fn lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, _since: u32) -> Result<()> {
        self.lock(cx, node, lock)
    }

    /// The first lock that conflicts with this one, if any; with
    /// [`LockKind::Unlock`](base::LockKind::Unlock), the first of the owner's own locks in the range.
    fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>>;

    /// Drops the record locks of this process on `node` (POSIX: at any close).
    fn drop_process_locks(&self, cx: &Cx, node: Node);
}
