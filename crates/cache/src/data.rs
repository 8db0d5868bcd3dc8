//! Bringing bytes.

use crate::lower::{Original, open};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::Known;
use pm::UserSlice;
use pm::file::File;

/// Bytes of a block of the image.
const BLOCK: u64 = 4096;
/// What is read at once where a file seems to be read in order, bytes.
const AHEAD: u64 = 1 << 20;
/// The same elsewhere.
const AROUND: u64 = 128 << 10;
/// How often a file may change, or another process be faster, before we give up.
const ATTEMPTS: u32 = 10_000;

/// What became of bytes that were to be brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Brought {
    /// They are here.
    All,
    /// There is no room for them.
    NoRoom,
}

impl Cache {
    /// Has the bytes of a file from `offset` on here, `len` of them, as far as it goes.
    pub(crate) fn bring_bytes(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<Brought> {
        let cx = own(cx);
        let end = offset.saturating_add(len);
        let mut lower: Option<(File, Known)> = None;
        let mut last = (u64::MAX, 0);
        for _ in 0..ATTEMPTS {
            let Some(hole) = self.hole(&cx, node, offset, end)? else { return Ok(Brought::All) };
            // Nothing has come of it: the file has changed, or another is at it.
            if last.0 == hole && last.1 > 2 {
                lower = None;
            }
            last = (hole, if last.0 == hole { last.1 + 1 } else { 0 });
            let (file, known) = match &lower {
                Some(opened) => opened,
                None => match self.open_lower(&cx, node)? {
                    Some(opened) => lower.insert(opened),
                    None => continue,
                },
            };
            let len = self.piece(&cx, node, hole)?.min(known.end.next_multiple_of(BLOCK).saturating_sub(hole)).max(BLOCK);
            // Behind the end are bytes that have been cut off here.
            let mut read =
                |at: u64, part: UserSlice| match part.part(0, known.end.saturating_sub(at).min(part.len as u64) as usize) {
                    part if part.len == 0 => Ok(0),
                    part => file.read_into(at, part),
                };
            match self.fs().fetch(&cx, node, (hole, len), (&known.stamp, known.end), &mut read) {
                Ok(()) => {}
                Err(Error::Posix(Errno::ENOSPC)) => return Ok(Brought::NoRoom),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Where the first hole between these two begins, at the border of a block.
    fn hole(&self, cx: &Cx, node: Node, from: u64, end: u64) -> Result<Option<u64>> {
        let Some(known) = self.known_if(node)?.filter(|known| known.end > from) else { return Ok(None) };
        match self.fs().seek(cx, node, from, false) {
            Ok(hole) => {
                // Beyond what the original has there are zeros.
                let size = self.fs().attr(cx, node)?.size.min(known.end);
                Ok((hole < end.min(size)).then_some(hole - hole % BLOCK))
            }
            Err(Error::Posix(Errno::ENXIO)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How much to bring of the hole that begins at `hole`.
    fn piece(&self, cx: &Cx, node: Node, hole: u64) -> Result<u64> {
        let end = match self.fs().seek(cx, node, hole, true) {
            Err(Error::Posix(Errno::ENXIO)) => self.fs().attr(cx, node)?.size.next_multiple_of(BLOCK),
            data => data?,
        };
        let is_next = hole == 0 || self.fs().seek(cx, node, hole - 1, true).is_ok_and(|data| data == hole - 1);
        Ok((end.saturating_sub(hole)).clamp(BLOCK, if is_next { AHEAD } else { AROUND }))
    }

    /// Opens the original. `None`: it was not what is known of it, and now that is known.
    fn open_lower(&self, cx: &Cx, node: Node) -> Result<Option<(File, Known)>> {
        let known = self.known(node)?;
        let gone = |error| if error == Error::Posix(Errno::ENOENT) { Errno::ESTALE.into() } else { error };
        let file = open(&self.path(node, b"").map_err(gone)?, false).map_err(gone)?;
        let original = Original::of(&file.statx()?)?;
        if known.stamp.has_same_contents(&original.stamp) {
            return Ok(Some((file, known)));
        }
        // Newer here: its times below may have changed by our own writing.
        if known.is_dirty() && known.stamp.is_same_file(&original.stamp) {
            return Ok(Some((file, known)));
        }
        self.fs().restamp(cx, node, &original.change_from(&known.stamp))?;
        Ok(None)
    }

    /// Reads past the cache, for which there is no room.
    pub(crate) fn read_through(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        let cx = own(cx);
        for _ in 0..ATTEMPTS {
            let Some((file, _)) = self.open_lower(&cx, node)? else { continue };
            let mut done = 0;
            for part in into {
                let came = file.read_into(offset + done as u64, *part)?;
                done += came;
                if came < part.len {
                    break;
                }
            }
            return Ok(done);
        }
        Err(Errno::ESTALE.into())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` of a file that is not all here: the original's.
    pub(crate) fn seek_lower(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        let cx = own(cx);
        for _ in 0..ATTEMPTS {
            if let Some((file, _)) = self.open_lower(&cx, node)? {
                return Ok(file.find(offset, data)?);
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Whether some of these bytes are missing here.
    pub(crate) fn is_missing(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<bool> {
        Ok(self.hole(&own(cx), node, offset, offset.saturating_add(len))?.is_some())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` of a file that is newer here and not all here: what is to be asked below is data.
    pub(crate) fn seek_mixed(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        let attr = self.fs().attr(&own(cx), node)?;
        let end = self.known(node)?.end.min(attr.size);
        match (offset < end, data) {
            (true, true) => Ok(offset),
            (true, false) if end == attr.size => Ok(end),
            (true, false) => self.fs().seek(cx, node, end, false),
            (false, data) => self.fs().seek(cx, node, offset, data),
        }
    }

    /// Whether a part of a file is missing here.
    pub(crate) fn has_holes(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(self.hole(&own(cx), node, 0, u64::MAX)?.is_some())
    }
}
