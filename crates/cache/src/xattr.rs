//! Extended attributes: the original's, asked for each time. That there are none, as nearly always, is kept.

use crate::lower::{Handle, Path};
use crate::settle::elsewhere;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use core::ffi::CStr;
use engine::lower::bits;
use pm::UserSlice;
use vfs::cached::lacks;

impl Cache {
    /// A handle on the original, unless it is known to have no attributes.
    fn attributed(&self, cx: &Cx, node: Node) -> Result<Option<Handle>> {
        let Some(known) = self.known_if(node)?.filter(|known| known.state & (bits::NO_XATTRS | bits::XATTRS) == 0) else {
            return Ok(None);
        };
        if self.lower.lacks(lacks::XATTRS) {
            return Ok(None);
        }
        let before = self.names_lead(cx, (node, b""))?;
        let (handle, original) =
            self.path_to(cx, &mut Path::room(), node).and_then(|path| self.lower.at(cx, path)).map_err(elsewhere)?;
        self.names_led(cx, before, (node, b""))?;
        if !original.stamp.is_same_file(&known.stamp) {
            return Err(Errno::ESTALE.into());
        }
        match handle.list_xattr(cx, UserSlice::from_mut(&mut [])) {
            Ok(0) | Err(Errno::EOPNOTSUPP) => {
                self.fs().mark(&own(cx), node, bits::NO_XATTRS, 0)?;
                Ok(None)
            }
            Ok(_) | Err(Errno::ERANGE) => Ok(Some(handle)),
            // A symlink: the kernel lists by the name that leads to it.
            Err(errno) => Err(errno.into()),
        }
    }

    /// See `Backend::get_xattr`.
    pub(crate) fn get(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        if self.fs().is_marked(node, bits::XATTRS)? {
            return self.fs().get_xattr(cx, node, name, out);
        }
        if self.fs().is_marked(node, bits::NO_XATTRS)? {
            return self.none(cx, node, name, out);
        }
        match self.settled(cx, (node, b""), || self.attributed(cx, node))? {
            Some(handle) => {
                let mut text = [0; 256];
                text[..255].get_mut(..name.len()).ok_or(Errno::ERANGE)?.copy_from_slice(name);
                let text = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::ERANGE)?;
                handle.get_xattr(cx, text, out)
            }
            None if self.fs().is_marked(node, bits::XATTRS)? => self.fs().get_xattr(cx, node, name, out),
            None => self.none(cx, node, name, out),
        }
    }

    /// Which names there may be the engine knows. Values that it has are of before another program has removed them.
    fn none(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        match self.fs().get_xattr(cx, node, name, out) {
            Ok(_) | Err(Error::Posix(Errno::ERANGE)) => Err(Errno::ENODATA.into()),
            error => error,
        }
    }

    /// See `Backend::list_xattr`.
    pub(crate) fn list_attributes(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        // There are none below, and whoever sets one here brings them.
        if self.fs().is_marked(node, bits::NO_XATTRS)? && !self.fs().is_marked(node, bits::XATTRS)? {
            return Ok(0);
        }
        match self.settled(cx, (node, b""), || self.attributed(cx, node)) {
            Ok(Some(handle)) => Ok(handle.list_xattr(cx, out)?),
            Ok(None) if self.known_if(node)?.is_some_and(|known| known.state & bits::XATTRS == 0) => Ok(0),
            Ok(None) => self.fs().list_xattr(cx, node, out),
            Err(Error::Posix(Errno::ENOENT)) => Err(Errno::ESTALE.into()),
            Err(error) => Err(error),
        }
    }

    /// Has the attributes of a node here, from now on.
    pub(crate) fn bring_attributes(&self, cx: &Cx, node: Node) -> Result<()> {
        if self.known_if(node)?.is_none_or(|known| known.state & bits::XATTRS != 0) {
            return Ok(());
        }
        let handle = self.attributed(cx, node)?;
        self.remove_attributes(cx, node)?;
        if let Some(handle) = handle {
            self.copy_attributes(cx, node, &handle)?;
        }
        self.fs().mark(&own(cx), node, bits::XATTRS, 0)
    }

    /// Those that are here are of before another program has changed them below.
    fn remove_attributes(&self, cx: &Cx, node: Node) -> Result<()> {
        let mut names = [0u8; 8192];
        let len = self.fs().list_xattr(&own(cx), node, UserSlice::from_mut(&mut names))?;
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match self.fs().remove_xattr(&own(cx), node, name) {
                Err(Error::Posix(Errno::ENODATA)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn copy_attributes(&self, cx: &Cx, node: Node, handle: &Handle) -> Result<()> {
        let (mut names, mut value) = ([0u8; 8192], [0u8; 8192]);
        let len = handle.list_xattr(cx, UserSlice::from_mut(&mut names))?;
        for name in names[..len].split_inclusive(|byte| *byte == 0) {
            let text = CStr::from_bytes_with_nul(name).map_err(|_| Errno::ERANGE)?;
            let len = handle.get_xattr(cx, text, UserSlice::from_mut(&mut value))?;
            match self.fs().set_xattr(&own(cx), node, text.to_bytes(), UserSlice::from_ref(&value[..len]), 0) {
                // Of a kind that images do not have.
                Err(Error::Posix(Errno::EOPNOTSUPP)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
