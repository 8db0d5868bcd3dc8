//! Files that are newer here than below and not all here: what is here and what is below, put together for one call.

use crate::lower::Handle;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::Known;
use pm::UserSlice;

/// How often a file may change in the middle.
const ATTEMPTS: u32 = 100;

impl Cache {
    /// The original of a file that is newer here.
    fn open_for_mixed(&self, cx: &Cx, node: Node) -> Result<(Handle, Known)> {
        self.open_lower(cx, node)?.ok_or(Errno::ESTALE.into())
    }

    /// Reads what is not here past the cache, for which there is no room.
    pub(crate) fn read_mixed(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        for _ in 0..ATTEMPTS {
            let before = self.fs().moves(cx, node)?;
            let (file, known) = self.open_for_mixed(cx, node)?;
            let done = self.fs().read(cx, node, offset, into)?;
            let (mut at, end) = (offset, offset + done as u64);
            while let Some(hole) = self.fs().hole(&own(cx), node, at, end)? {
                let (from, to) = (hole.start.max(at), hole.end.min(end).min(known.end));
                fill(cx, &file, (from, to), (offset, into))?;
                at = hole.end;
            }
            // Bytes that came here meanwhile may be newer than those below.
            if self.fs().moves(cx, node)? == before {
                return Ok(done);
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek_mixed(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        let size = self.fs().attr(&own(cx), node)?.size;
        let (file, known) = self.open_for_mixed(cx, node)?;
        let mut at = offset;
        loop {
            let here = self.fs().seek(cx, node, at, data);
            let Some(missing) = self.fs().hole(&own(cx), node, at, u64::MAX)? else { return here };
            let (from, to) = (missing.start.max(at), missing.end.min(known.end).min(size));
            match here {
                Ok(found) if found < from => return Ok(found),
                Ok(_) | Err(Error::Posix(Errno::ENXIO)) => {}
                Err(error) => return Err(error),
            }
            match file.find(cx, from, data) {
                Ok(found) if found < to => return Ok(found),
                Ok(_) | Err(Error::Posix(Errno::ENXIO)) => at = to,
                Err(error) => return Err(error),
            }
            if at >= size {
                return if data { Err(Errno::ENXIO.into()) } else { Ok(size) };
            }
        }
    }
}

/// Reads bytes of a file into buffers that begin at `offset` of it.
fn fill(cx: &Cx, file: &Handle, (from, to): (u64, u64), (offset, into): (u64, &[UserSlice])) -> Result<()> {
    let mut start = offset;
    for part in into {
        let (mut at, end) = (from.max(start), to.min(start + part.len as u64));
        while at < end {
            let came = file.read(cx, at, part.part((at - start) as usize, (end - at) as usize))?;
            if came == 0 {
                return Ok(());
            }
            at += came as u64;
        }
        start += part.len as u64;
    }
    Ok(())
}
