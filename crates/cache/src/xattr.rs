//! Extended attributes: the original's, asked for each time. That there are none, as nearly always, is kept.

use crate::lower::Original;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use core::ffi::CStr;
use engine::lower::bits;
use pm::UserSlice;
use pm::file::File;

impl Cache {
    /// A handle on the original, unless it is known to have no attributes.
    fn attributed(&self, cx: &Cx, node: Node) -> Result<Option<File>> {
        let cx = own(cx);
        if self.known(node)?.state & bits::NO_XATTRS != 0 {
            return Ok(None);
        }
        let (handle, _) = Original::at(&self.path(node, b"")?)?;
        match handle.list_xattr(UserSlice::from_mut(&mut [])) {
            Ok(0) | Err(Errno::EOPNOTSUPP) => {
                self.fs().mark(&cx, node, bits::NO_XATTRS, 0)?;
                Ok(None)
            }
            Ok(_) | Err(Errno::ERANGE) => Ok(Some(handle)),
            // A symlink: the kernel lists by the name that leads to it.
            Err(errno) => Err(errno.into()),
        }
    }

    /// See `Backend::get_xattr`.
    pub(crate) fn get(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        match self.attributed(cx, node)? {
            Some(handle) => {
                let mut text = [0; 256];
                text[..255].get_mut(..name.len()).ok_or(Errno::ERANGE)?.copy_from_slice(name);
                let text = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::ERANGE)?;
                Ok(handle.get_xattr(text, out)?)
            }
            // Which names there may be the engine knows.
            None => self.fs().get_xattr(cx, node, name, out),
        }
    }

    /// See `Backend::list_xattr`.
    pub(crate) fn list_attributes(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        match self.attributed(cx, node) {
            Ok(Some(handle)) => Ok(handle.list_xattr(out)?),
            Ok(None) => Ok(0),
            Err(Error::Posix(Errno::ENOENT)) => Err(Errno::ESTALE.into()),
            Err(error) => Err(error),
        }
    }
}
