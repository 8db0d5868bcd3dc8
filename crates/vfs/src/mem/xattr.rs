//! Extended attributes.

use super::data::{copy_in, copy_out};
use super::node::{Inode, now};
use super::posix;
use crate::*;
use alloc::vec;
use pm::UserSlice;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

impl Inode {
    /// The rules of the name's first part, then that there is more of it.
    fn may_xattr(&self, cx: &Cx, name: &[u8], want: u16) -> Result<()> {
        self.may_prefix(cx, name, want)?;
        if matches!(name, b"user." | b"trusted." | b"security.") { posix(Errno::EINVAL) } else { Ok(()) }
    }

    fn may_prefix(&self, cx: &Cx, name: &[u8], want: u16) -> Result<()> {
        let denied = posix(if want == W { Errno::EPERM } else { Errno::ENODATA });
        if name.starts_with(b"security.") {
            return if want == W && !cx.cred.privileged { posix(Errno::EPERM) } else { Ok(()) };
        }
        if name.starts_with(b"trusted.") {
            return if cx.cred.privileged { Ok(()) } else { denied };
        }
        if !name.starts_with(b"user.") {
            // A namespace that the system knows asks for no permission.
            if !name.starts_with(b"system.") {
                self.may(cx, want)?;
            }
            return posix(Errno::EOPNOTSUPP);
        }
        if !matches!(self.kind, Kind::Regular | Kind::Directory) {
            return denied;
        }
        if self.kind == Kind::Directory && self.mode & 0o1000 != 0 && want == W && !self.owned_by(cx) {
            return posix(Errno::EPERM);
        }
        self.may(cx, want)?;
        if name == b"user." { posix(Errno::EINVAL) } else { Ok(()) }
    }

    pub fn get_xattr(&self, cx: &Cx, name: &[u8], out: UserSlice) -> Result<usize> {
        self.may_xattr(cx, name, R)?;
        let value = self.xattrs.get(name).ok_or(Error::Posix(Errno::ENODATA))?;
        if out.len == 0 {
            return Ok(value.len());
        }
        if value.len() > out.len {
            return posix(Errno::ERANGE);
        }
        copy_out(value, out.ptr)?;
        Ok(value.len())
    }

    pub fn set_xattr(&mut self, cx: &Cx, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.may_xattr(cx, name, W)?;
        match self.xattrs.contains_key(name) {
            true if flags & XATTR_CREATE != 0 => return posix(Errno::EEXIST),
            false if flags & XATTR_REPLACE != 0 => return posix(Errno::ENODATA),
            _ => {}
        }
        let mut bytes = vec![0; value.len];
        copy_in(value.ptr, &mut bytes)?;
        self.xattrs.insert(name.to_vec(), bytes);
        self.ctime = now();
        Ok(())
    }

    pub fn list_xattr(&self, cx: &Cx, out: UserSlice) -> Result<usize> {
        let visible = || self.xattrs.keys().filter(|n| cx.cred.privileged || !n.starts_with(b"trusted."));
        let len: usize = visible().map(|n| n.len() + 1).sum();
        if out.len == 0 {
            return Ok(len);
        }
        if len > out.len {
            return posix(Errno::ERANGE);
        }
        let mut at = 0;
        for name in visible() {
            copy_out(name, out.ptr.wrapping_add(at))?;
            copy_out(&[0], out.ptr.wrapping_add(at + name.len()))?;
            at += name.len() + 1;
        }
        Ok(len)
    }

    pub fn remove_xattr(&mut self, cx: &Cx, name: &[u8]) -> Result<()> {
        self.may_xattr(cx, name, W)?;
        if self.xattrs.remove(name).is_none() {
            return posix(Errno::ENODATA);
        }
        self.ctime = now();
        Ok(())
    }
}
