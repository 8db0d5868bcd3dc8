//! The fast path of a mount: the native engine's, in one function with the caller. Of other backends those calls are fast
//! that a [`Backend`](crate::Backend) offers so.

use super::{Mount, MountTable};
use crate::Node;
use base::stat::Stat;
use base::{Caller, Cx, DescriptionId, Fast, Sight, Thread};
use core::mem::MaybeUninit;
use openfiles::Unclosed;
#[cfg(feature = "native")]
use pm::sys::abi::{O_ACCMODE, O_RDONLY};
use pm::{Text, UserSlice};

impl Mount {
    /// The native engine, while nobody has to be told of changes.
    #[cfg(feature = "native")]
    #[inline(always)]
    fn untold(&self) -> Option<&'static engine::Fs> {
        self.changing.filter(|fs| !fs.is_told())
    }

    /// Whether something is mounted on a node, which is not asked in most mounts.
    #[cfg(feature = "native")]
    #[inline(always)]
    fn covered<'a>(&'a self, among: &'a MountTable) -> impl Fn(u64) -> bool {
        let is_covered = self.is_covered();
        move |id| is_covered && among.mounted_on(self, id).is_some()
    }

    /// The fast path of [`Backend::walk`](crate::Backend::walk): a path of plain components (no leading slash) whose nodes
    /// are cached, none of them covered. It may always be slow, and is where a right is missing.
    #[inline(always)]
    pub fn find_fast(&self, _among: &MountTable, _who: &Caller, _from: (Node, Text), _follow: bool) -> Fast<Sight> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.find_fast(_who, _from, _follow, self.covered(_among));
        }
        Fast::Slow
    }

    /// The directory in which a path ends, and the last component, which nobody has looked for.
    #[inline(always)]
    pub fn parent_fast<'a>(&self, _among: &MountTable, _who: &Caller, _from: (Node, Text<'a>)) -> Fast<(Node, &'a [u8])> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.parent_fast(_who, _from, self.covered(_among));
        }
        Fast::Slow
    }

    /// As `find_fast`, and the node's attributes for the program. `out` is written only if it was found.
    #[inline(always)]
    pub fn stat_fast(
        &self,
        _among: &MountTable,
        who: &Caller,
        from: (Node, Text),
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Fast<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.stat_fast(who, from, follow, self.covered(_among), out);
        }
        if self.is_covered() { Fast::Slow } else { self.backend.stat_fast(who, from, follow, out) }
    }

    /// The fast path of `open`, of a file or directory that `find_fast` has found.
    #[inline(always)]
    pub fn open_fast(&self, _found: &Sight, _flags: u32, _fd: u32) -> Fast<DescriptionId> {
        #[cfg(feature = "native")]
        if let Some(fs) = if _flags & O_ACCMODE == O_RDONLY { self.direct } else { self.changing } {
            return fs.open_fast(_found, _flags, _fd);
        }
        Fast::Slow
    }

    /// The fast path of `close`: what it leaves is for `close_rest`.
    #[inline(always)]
    pub fn close_fast(&self, _fd: u32) -> Option<Unclosed> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.close_fast(_fd);
        }
        Some(Unclosed::All)
    }

    /// What `close_fast` has left. It is closed also if that fails.
    pub fn close_rest(&self, cx: &Cx, fd: u32, _rest: Unclosed) -> base::Result<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            fs.close_rest(cx, fd, _rest);
            return Ok(());
        }
        self.backend.close_checked(cx, fd)
    }

    /// The fast path of `read` into one buffer.
    #[inline(always)]
    pub fn read_fast(&self, _node: Node, _offset: u64, _into: UserSlice) -> Fast<usize> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.read_fast(_node, _offset, _into);
        }
        Fast::Slow
    }

    /// The fast path of `write` of one buffer; the offset after it.
    #[inline(always)]
    pub fn write_fast(&self, _thread: &Thread, _node: Node, _offset: Option<u64>, _from: UserSlice) -> Fast<u64> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.untold() {
            return fs.write_fast(_thread, _node, _offset, _from);
        }
        Fast::Slow
    }

    /// As `write_fast` at a description's offset, or at the end, which moves the offset.
    #[inline(always)]
    pub fn write_on_fast(&self, _thread: &Thread, _id: DescriptionId, _node: Node, _append: bool, _from: UserSlice) -> Fast<u64> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.untold() {
            return fs.write_on_fast(_thread, _id, _node, _append, _from);
        }
        Fast::Slow
    }
}
