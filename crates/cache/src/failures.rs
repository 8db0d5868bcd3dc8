//! What the last round could not write, of each name and file: the file `touched/failed` of the image.
//!
//! A process that waits for a round which has failed finds out here whether that concerns what it has asked for. The file is
//! there before the answer is; a round that fails in nothing removes it.
//!
//! ```text
//! error number u32 · directory u64 · node u64 · length u32 · path
//! ```

use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::Answer;
use pm::UserSlice;

/// Name of the file.
pub const NAME: &[u8] = b"failed";
/// Bytes of a record before the path.
pub const HEAD: usize = 24;

/// A name or file that could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Why.
    pub errno: Errno,
    /// The directory of a name; 0: it is bytes or attributes.
    pub dir: u64,
    /// The node, or what the name leads to; 0: to nothing. With no directory either: everything.
    pub node: u64,
}

impl Failed {
    /// Whether it is not about one file.
    pub fn is_everything(&self) -> bool {
        (self.dir, self.node) == (0, 0)
    }

    /// The record of it, before a path of so many bytes.
    pub fn head(&self, path: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&self.errno.0.to_le_bytes());
        head[4..12].copy_from_slice(&self.dir.to_le_bytes());
        head[12..20].copy_from_slice(&self.node.to_le_bytes());
        head[20..].copy_from_slice(&path.to_le_bytes());
        head
    }

    /// What a record says, and the length of the path behind it.
    pub fn parse(head: &[u8; HEAD]) -> (Failed, u32) {
        let [a, b, c, d, ..] = *head;
        let long = |at: usize| head[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let failed = Failed { errno: Errno(i32::from_le_bytes([a, b, c, d])), dir: long(4), node: long(12) };
        (failed, head[20..].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}

impl Cache {
    /// Calls `each` with what the last round could not write, until that says `false`. `None`: it has noted nothing.
    pub fn each_failure(&self, cx: &Cx, each: &mut dyn FnMut(Failed) -> bool) -> Result<Option<()>> {
        let (cx, fs) = (&own(cx), self.fs());
        let file = match fs.lookup(cx, self.touched, NAME) {
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => return Ok(None),
            file => file?,
        };
        let mut at = 0;
        loop {
            let mut head = [0; HEAD];
            match fs.read(cx, file, at, &[UserSlice::from_mut(&mut head)]) {
                // A newer one has taken its place: the caller asks again, or believes the worst.
                Err(Error::Posix(Errno::ESTALE)) => return Err(Errno::EAGAIN.into()),
                came if came? < HEAD => return Ok(Some(())),
                _ => {}
            }
            let (failed, path) = Failed::parse(&head);
            if !each(failed) {
                return Ok(Some(()));
            }
            at += HEAD as u64 + u64::from(path);
        }
    }

    /// What an answer means for this node; for all that was changed, if it is none.
    pub(crate) fn outcome(&self, cx: &Cx, node: Option<Node>, answer: Answer) -> Result<()> {
        let Answer::Failed(error) = answer else { return Ok(()) };
        let Some(node) = node else { return Err(error.into()) };
        for _ in 0..100 {
            let mut why = None;
            let noted = self.each_failure(cx, &mut |failed| {
                why = self.concerns(&failed, node).then_some(failed.errno);
                why.is_none()
            });
            match noted {
                Ok(Some(())) => return why.map_or(Ok(()), |errno| Err(errno.into())),
                // A later round has written all of it.
                Ok(None) if self.fs().writer()?.1 == 0 => return Ok(()),
                Err(Error::Posix(Errno::EAGAIN)) => {}
                _ => break,
            }
        }
        Err(error.into())
    }

    /// Whether a node is not below because of this: its bytes and attributes, its names, those in it, and those of the
    /// directories on the way to it.
    fn concerns(&self, failed: &Failed, node: Node) -> bool {
        if failed.is_everything() || failed.node == node.id || failed.dir == node.id {
            return true;
        }
        let (mut at, mut text) = (node, [0; 255]);
        for _ in 0..base::PATH_MAX {
            match self.fs().named(at, &mut text) {
                Ok(Some((dir, _))) if failed.dir != 0 && at != self.tree => at = dir,
                _ => return false,
            }
            if at.id == failed.node {
                return true;
            }
        }
        false
    }
}
