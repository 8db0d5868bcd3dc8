//! What a file of the lower file system is like.

use super::{Handle, PATH_MAX};
use base::{Attr, Cx, Errno, Error, Kind, Result};
use engine::lower::{Change, Stamp, Whole, bits};
use pm::UserSlice;
use pm::host::Statx;

/// Device number of a daemon's files.
const NO_DEVICE: u64 = 0;
/// Of what such a text consists that could not be read.
const NO_TEXT: u8 = 1;
/// What an original has no text for.
pub const TEXTLESS: (&[u8], u64) = (b"", 0);

/// Whether an error may be of one file alone: not that there is none, nor of who was asked, or of who asks.
pub fn is_of_one(error: Error) -> bool {
    let Error::Posix(errno) = error else { return false };
    !matches!(
        errno,
        Errno::ENOENT
            | Errno::ENOTCONN
            | Errno::ECONNABORTED
            | Errno::EHOSTDOWN
            | Errno::EHOSTUNREACH
            | Errno::EINTR
            | Errno::ENOMEM
            | Errno::ENFILE
            | Errno::EMFILE
            | Errno::ENOSPC
            | Errno::EAGAIN
            | Errno::ETIMEDOUT
            | Errno::ENODEV
    )
}

/// Device numbers change, by a reboot or another loop device; what is known goes by the one that the lower file system had
/// when the image became its cache.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// That one.
    pub known: u64,
    /// The one it has.
    pub now: u64,
}

impl Devices {
    /// Numbers are as the kernel has them.
    pub const SAME: Devices = Devices { known: 0, now: 0 };

    /// What a number is known as; and the number of what is known so. One that has the lower file system's old number is
    /// another file system.
    pub fn swap(self, device: u64) -> u64 {
        match device {
            device if device == self.now => self.known,
            device if device == self.known => self.now,
            device => device,
        }
    }
}

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
    pub fn of(stat: &Statx, devices: Devices) -> Result<Original> {
        let (attr, device) = vfs::host::attr_and_device(stat)?;
        let stamp = Stamp {
            number: attr.ino,
            device: devices.swap(device),
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
    pub fn whole<'a>(&self, (target, state): (&'a [u8], u64)) -> Whole<'a> {
        let Attr { kind, mode, uid, gid, rdev, .. } = self.attr;
        Whole { kind, mode, uid, gid, rdev, target, stamp: self.stamp, state, unless: 0 }
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

/// The text of a symlink, and whether it is what was read.
pub struct Target([u8; PATH_MAX], usize, bool);

impl Target {
    /// Of what a handle is on; empty for anything but a symlink. One that can't be read is marked so.
    pub fn of(cx: &Cx, handle: &Handle, original: &Original) -> Result<Target> {
        let mut target = Target([0; PATH_MAX], 0, true);
        if original.attr.kind == Kind::Symlink {
            match handle.target(cx, UserSlice::from_mut(&mut target.0)) {
                Ok(len) if len > 0 => target.1 = len,
                Err(error) if !is_of_one(error) => return Err(error),
                // As long as it is said to be.
                _ => {
                    let len = original.stamp.size.clamp(1, PATH_MAX as u64 - 1) as usize;
                    target.0[..len].fill(NO_TEXT);
                    (target.1, target.2) = (len, false);
                }
            }
        }
        Ok(target)
    }

    /// Its bytes, and the state of a node that has them.
    pub fn text(&self) -> (&[u8], u64) {
        (&self.0[..self.1], if self.2 { 0 } else { bits::UNREAD })
    }
}
