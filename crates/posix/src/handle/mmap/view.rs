//! A file's bytes where the backend has them, without a mapping of their own.

use super::*;

impl Process {
    /// Where the first `len` bytes of an open regular file lie in this process's memory, for reading, or nothing where
    /// they are not in one piece. They stay the file's as long as `fd` is open: what is cut off reads as zeroes.
    pub fn view(&self, thread: &ThreadState, fd: usize, len: usize) -> base::Result<Option<usize>> {
        let file = self.file(fd).filter(|file| !file.entry.path_only()).ok_or(Error::Posix(Errno::EBADF))?;
        if !readable(file.flags()) {
            return err(Errno::EACCES);
        }
        if file.entry.kind() != Kind::Regular {
            return err(Errno::ENODEV);
        }
        let whole = pages(len).ok_or(Error::Posix(Errno::ENOMEM))? as u64;
        // Address of the first byte, and how many follow it without a gap.
        let mut found: Option<(usize, u64)> = None;
        let mut broken = false;
        // As for a private mapping: the file's blocks are not freed while it is open, and holes stay holes.
        file.mount.backend.map(&self.cx(thread), file.node, 0, whole, MapFor::Private, &mut |range| {
            let (begin, end) = found.unwrap_or((range.address, 0));
            broken |= range.file != end || range.address != begin + end as usize;
            found = Some((begin, end + range.len));
        })?;
        Ok(found.filter(|&(_, end)| !broken && end >= len as u64 && len > 0).map(|(begin, _)| begin))
    }
}
