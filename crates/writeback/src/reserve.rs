//! Room in the image that is kept for rounds: without it an image that programs have filled could not be written back.

use crate::Writer;
use base::{Error, Fallocate, Kind, NewNode, SetAttr};
use pm::Errno;

/// Name of the file that keeps it, at the top of the image.
const NAME: &[u8] = b"reserve";
/// Bytes.
const LEN: u64 = 512 << 10;

impl Writer {
    /// Keeps room, if there is any.
    pub fn keep_room(&self) {
        let _ = self.set_room(LEN);
    }

    /// Gives it to the round that is under way.
    pub(crate) fn give_room(&self) {
        let _ = self.set_room(0);
    }

    fn set_room(&self, len: u64) -> base::Result<()> {
        let (fs, cx) = (self.cache.fs(), self.cx());
        let file = match fs.lookup(&cx, fs.root_node(), NAME) {
            Err(Error::Posix(Errno::ENOENT)) if len > 0 => {
                fs.create(&cx, fs.root_node(), NAME, &NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" })?
            }
            found => found?,
        };
        if fs.attr(&cx, file)?.size == len {
            return Ok(());
        }
        match len {
            0 => fs.set_attr(&cx, file, &SetAttr { size: Some(0), size_checked: true, ..SetAttr::default() }),
            _ => fs.fallocate(&cx, file, Fallocate::Allocate, 0, len),
        }
    }
}
