//! Opening a file: a descriptor means the file that has the name below at that moment, and no other.
//!
//! What is here of a file is read as it is. Of a file of which bytes are missing the original is compared first, by one look:
//! else a file that was replaced a moment ago would be opened, of which nothing can be read any more. A small file that is
//! opened for reading is brought at once, so that one which is replaced between open and read can be read, too. The fast path
//! leaves such files to the slow one (`Fs::is_unsure`).

use crate::lower::Path;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::Stamp;
use pm::sys::abi;

/// A file of at most so many bytes is brought as it is opened: what a first read would bring.
const SMALL: u64 = crate::data::AROUND;

impl Cache {
    /// Before a node is opened. `ESTALE` if its name leads to another file below, or to none: then it is gone here, and the
    /// caller looks the name up again.
    pub(crate) fn may_open(&self, cx: &Cx, node: Node, flags: u32) -> Result<()> {
        if flags & abi::O_PATH != 0 || !self.fs().is_unsure(cx, node)? {
            return Ok(());
        }
        if !self.has_holes(cx, node)? {
            return self.fs().is_sure(cx, node);
        }
        match self.compare_original(cx, node) {
            // A read reports what is wrong; the bytes that are here can be read.
            Err(error) if error != Error::Posix(Errno::ESTALE) => return Ok(()),
            compared => compared?,
        }
        if flags & abi::O_ACCMODE == abi::O_WRONLY || flags & abi::O_TRUNC != 0 || !self.is_small(cx, node)? {
            return Ok(());
        }
        match self.bring_bytes(cx, node, 0, SMALL) {
            // Replaced since.
            Err(Error::Posix(Errno::ESTALE)) => self.compare_original(cx, node),
            _ => Ok(()),
        }
    }

    /// Whether a file can be brought as it is opened. A daemon's is opened as often as the program asks for it.
    fn is_small(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(!self.goes_by_names() && self.fs().hole(&own(cx), node, SMALL, u64::MAX)?.is_none())
    }

    fn compare_original(&self, cx: &Cx, node: Node) -> Result<()> {
        let (known, mut name) = (self.known(node).map_err(|_| Errno::ENOENT)?, [0; 255]);
        let Some((dir, len)) = self.fs().named(node, &mut name)? else { return Ok(()) };
        // What is newer here a round decides. Of a file with several names it is not known which one is opened; a daemon's
        // attributes hold for as long as the daemon says.
        let is_decided = known.is_dirty() || self.goes_by_names() || self.fs().names_here(node)? > 1;
        if is_decided || self.is_touched(cx, (node, b""))? {
            return Ok(());
        }
        let original = match self.lower.at(cx, self.path(&mut Path::room(), node, b"")?) {
            Ok((_, original)) => Some(original),
            Err(Error::Posix(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        match original {
            Some(original) if known.stamp.has_same_contents(&original.stamp) => Ok(()),
            Some(original) if known.stamp.is_same_file(&original.stamp) => self.follow(cx, node, &known.stamp, &original),
            Some(original) if self.adopt(cx, node, &known, &original).is_ok() => Ok(()),
            _ => self.look_again(cx, dir, &name[..len], (node, &known.stamp)),
        }
    }

    /// A name leads to another file below, or to none, and so it does here.
    fn look_again(&self, cx: &Cx, dir: Node, name: &[u8], (node, looked): (Node, &Stamp)) -> Result<()> {
        let handle = self.lower.handle(cx, self.path(&mut Path::room(), dir, b"")?)?;
        match self.leave(cx, (dir, &handle), name, (node, looked), 0) {
            Ok(()) => {
                // A name that is missing in a listed directory is not asked for below.
                if self.known(dir)?.is_listed() && self.fs().lookup(&own(cx), dir, name).is_err() {
                    let _ = self.ask(cx, dir, name, 0);
                }
                Err(Errno::ESTALE.into())
            }
            // Another thread is changing it.
            Err(_) => Ok(()),
        }
    }
}
