//! What a file of the lower file system is like.

use super::{Handle, PATH_MAX};
use base::{Attr, Cx, Kind, Result};
use engine::lower::{Change, Stamp, Whole};
use pm::UserSlice;
use pm::host::Statx;

/// Device number of a daemon's files.
const NO_DEVICE: u64 = 0;

/// What a file of the lower file system is like.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// Its attributes.
    pub attr: Attr,
    /// As the cache keeps it.
    pub stamp: Stamp,
}

impl Original {
    /// From what the kernel tells.
    pub fn of(stat: &Statx) -> Result<Original> {
        let (attr, device) = vfs::host::attr_and_device(stat)?;
        let stamp = Stamp {
            number: attr.ino,
            device,
            size: attr.size,
            mtime: attr.mtime,
            ctime: attr.ctime,
            nlink: attr.nlink,
            blocks: u32::try_from(attr.blocks).unwrap_or(u32::MAX),
        };
        Ok(Original { attr, stamp })
    }

    /// From what a daemon tells. Its numbers are not believed, many make them up: what has the same name and the same
    /// type is the same file, and with the same size and time it has the same contents.
    pub fn of_daemon(attr: &Attr) -> Original {
        let stamp = Stamp {
            number: attr.kind as u64,
            device: NO_DEVICE,
            size: attr.size,
            mtime: attr.mtime,
            ctime: attr.ctime,
            nlink: attr.nlink,
            blocks: u32::try_from(attr.blocks).unwrap_or(u32::MAX),
        };
        Original { attr: *attr, stamp }
    }

    /// Whether several names may lead to it.
    pub fn has_names(&self) -> bool {
        self.attr.kind != Kind::Directory && self.stamp.nlink > 1 && self.stamp.device != NO_DEVICE
    }

    /// The node that it becomes.
    pub fn whole<'a>(&self, target: &'a [u8]) -> Whole<'a> {
        let Attr { kind, mode, uid, gid, rdev, .. } = self.attr;
        Whole { kind, mode, uid, gid, rdev, target, stamp: self.stamp, state: 0 }
    }

    /// What a node becomes that has been it before.
    pub fn change(&self) -> Change {
        let Attr { mode, uid, gid, .. } = self.attr;
        Change { mode, uid, gid, stamp: self.stamp, before: None }
    }

    /// The same if what was known when it was looked at is known still.
    pub fn change_from(&self, before: &Stamp) -> Change {
        Change { before: Some(*before), ..self.change() }
    }
}

/// The text of a symlink.
pub struct Target([u8; PATH_MAX], usize);

impl Target {
    /// Of what a handle is on; empty for anything but a symlink.
    pub fn of(cx: &Cx, handle: &Handle, original: &Original) -> Result<Target> {
        let mut target = Target([0; PATH_MAX], 0);
        if original.attr.kind == Kind::Symlink {
            target.1 = handle.target(cx, UserSlice::from_mut(&mut target.0))?;
        }
        Ok(target)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}
