//! Calls that change names or touch data: the native engine's functions, without a call through a table of them, while
//! no kernel mount has to be told of changes; else the [`Backend`](crate::Backend)'s.

use super::Mount;
use crate::{Cx, Node};
use base::{Description, DescriptionId, Name, NewNode, RenameMode, Thread, Unclosed};
use pm::UserSlice;

/// The native engine of a mount in which a [glance](Mount::glance_parent) has found a name: nobody asks again whether there is one.
#[cfg(feature = "native")]
pub type Native = &'static engine::Fs;
/// There is none: no glance finds a name.
#[cfg(not(feature = "native"))]
pub type Native = ();

/// The native engine, while nobody has to be told of changes.
#[cfg(feature = "native")]
#[inline(always)]
fn unserved(native: Native) -> Option<&'static engine::Fs> {
    (!native.is_served()).then_some(native)
}

impl Mount {
    /// [`Backend::create`](crate::Backend::create).
    #[inline(always)]
    pub fn create(&self, _native: Native, cx: &Cx, dir: Node, name: Name, new: &NewNode) -> base::Result<Node> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return fs.create_in_line(cx, dir, name, new);
        }
        let made = self.backend.create(&cx.copied(), dir, name.bytes(), &new.copied())?;
        Ok(made)
    }

    /// [`Mount::create`] and [`Mount::open`] in one, with these flags and under this number; and the description, if that
    /// is quick. Else only the node has been made.
    #[inline(always)]
    pub fn create_open(
        &self,
        _native: Native,
        cx: &Cx,
        dir: Node,
        name: Name,
        new: &NewNode,
        _opened: (impl FnOnce() -> u32, u32),
    ) -> base::Result<(Node, Option<(DescriptionId, &Description)>)> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return fs.create_open(cx, dir, name, new, _opened);
        }
        let made = self.backend.create(&cx.copied(), dir, name.bytes(), &new.copied())?;
        Ok((made, None))
    }

    /// [`Backend::link`](crate::Backend::link).
    #[inline(always)]
    pub fn link(&self, _native: Native, cx: &Cx, node: Node, dir: Node, name: Name) -> base::Result<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return fs.link_in_line(cx, node, dir, name);
        }
        self.backend.link(&cx.copied(), node, dir, name.bytes())?;
        Ok(())
    }

    /// [`Backend::unlink`](crate::Backend::unlink).
    #[inline(always)]
    pub fn unlink(&self, _native: Native, cx: &Cx, dir: Node, name: Name) -> base::Result<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return fs.unlink_in_line(cx, dir, name);
        }
        self.backend.unlink(&cx.copied(), dir, name.bytes())?;
        Ok(())
    }

    /// [`Backend::rmdir`](crate::Backend::rmdir).
    #[inline(always)]
    pub fn rmdir(&self, _native: Native, cx: &Cx, dir: Node, name: Name) -> base::Result<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return fs.rmdir_in_line(cx, dir, name);
        }
        self.backend.rmdir(&cx.copied(), dir, name.bytes())?;
        Ok(())
    }

    /// [`Backend::rename`](crate::Backend::rename); `IN_LINE`: in one function with the caller.
    #[inline(always)]
    pub fn rename<const IN_LINE: bool>(
        &self,
        _native: Native,
        cx: &Cx,
        (from_dir, from): (Node, Name),
        (to_dir, to): (Node, Name),
        mode: RenameMode,
    ) -> base::Result<()> {
        #[cfg(feature = "native")]
        if let Some(fs) = unserved(_native) {
            return match IN_LINE {
                true => fs.rename_in_line(cx, from_dir, from, to_dir, to, mode),
                false => fs.rename(cx, from_dir, from.bytes(), to_dir, to.bytes(), mode),
            };
        }
        self.backend.rename(&cx.copied(), from_dir, from.bytes(), to_dir, to.bytes(), mode)?;
        Ok(())
    }

    /// [`Backend::open`](crate::Backend::open).
    #[inline(always)]
    pub fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> base::Result<DescriptionId> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.open(cx, node, flags, fd);
        }
        self.backend.open(cx, node, flags, fd)
    }

    /// [`Backend::close`](crate::Backend::close), as far as that is quick; the rest is for [`Mount::close_rest`].
    #[inline(always)]
    pub fn close_at_hand(&self, _fd: u32) -> Option<Unclosed> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.close_at_hand(_fd);
        }
        Some(Unclosed::All)
    }

    /// What [`Mount::close_at_hand`] has left.
    pub fn close_rest(&self, cx: &Cx, fd: u32, _rest: Unclosed) {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.close_rest(cx, fd, _rest);
        }
        self.backend.close(cx, fd);
    }

    /// [`Backend::glance_read`](crate::Backend::glance_read).
    #[inline(always)]
    pub fn glance_read(&self, node: Node, offset: u64, into: UserSlice) -> Option<usize> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_read(node, offset, into);
        }
        self.backend.glance_read(node, offset, into)
    }

    /// [`Backend::write`](crate::Backend::write).
    #[inline(always)]
    pub fn write(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice]) -> base::Result<(usize, u64)> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.changing.and_then(unserved) {
            return fs.write(cx, node, offset, from);
        }
        self.backend.write(cx, node, offset, from)
    }

    /// [`Backend::write`](crate::Backend::write) of one buffer, where that is quick; the offset after
    /// it. `None`: do it properly, nothing has been done.
    #[inline(always)]
    pub fn write_at_hand(&self, _thread: &Thread, _node: Node, _offset: Option<u64>, _from: UserSlice) -> Option<u64> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.changing.and_then(unserved) {
            return fs.write_at_hand(_thread, _node, _offset, _from);
        }
        None
    }

    /// As [`Mount::write_at_hand`] at a description's offset, or at the end, which moves the offset.
    #[inline(always)]
    pub fn write_on_at_hand(
        &self,
        _thread: &Thread,
        _id: DescriptionId,
        _node: Node,
        _append: bool,
        _from: UserSlice,
    ) -> Option<u64> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.changing.and_then(unserved) {
            return fs.write_on_at_hand(_thread, _id, _node, _append, _from);
        }
        None
    }
}
