//! Files that share their data: `ioctl(FICLONE)`, `ioctl(FICLONERANGE)`.

use super::err;
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Process, ThreadState};
use base::Result;
use pm::{Errno, faults};

pub(super) const FICLONE: u32 = 0x4004_9409;
pub(super) const FICLONERANGE: u32 = 0x4020_940d;

/// `struct file_clone_range`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Range {
    from: i64,
    from_at: u64,
    len: u64,
    to_at: u64,
}

impl Range {
    /// What such a request asks for.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub(super) unsafe fn of(request: u32, argument: usize) -> Result<Range> {
        if request == FICLONE {
            return Ok(Range { from: i64::from(argument as i32), from_at: 0, len: 0, to_at: 0 });
        }
        if bad(argument) {
            return err(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { faults::read(argument as *const Range) }?)
    }

    /// The descriptor that is cloned from.
    pub(super) fn source(&self) -> usize {
        self.from as i32 as usize
    }
}

impl Process {
    /// Makes a range of `to` one of another file.
    pub(super) fn clone_range(&self, thread: &ThreadState, to: &OpenFile, asked: &Range) -> Result<usize> {
        let Some(from) = self.file(asked.source()) else {
            // The kernel's, or nothing.
            let is_open = super::copy::kind_in_kernel(asked.source()).is_some();
            return err(if is_open { Errno::EXDEV } else { Errno::EBADF });
        };
        if from.entry.path_only() {
            return err(Errno::EBADF);
        }
        if from.slot != to.slot {
            return err(Errno::EXDEV);
        }
        super::copy::may_copy(&from, to)?;
        // What is to be overwritten whole or not at all is copied.
        if to.whole().is_some() {
            return err(Errno::EOPNOTSUPP);
        }
        let (cx, limit) = (&self.cx(thread), self.file_limit());
        let end_of = |at: u64, len: u64| at.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        if end_of(asked.from_at, asked.len).is_none() || end_of(asked.to_at, asked.len).is_none() {
            return err(Errno::EINVAL);
        }
        let len = match asked.len {
            0 => from.mount.backend.attr(cx, from.node)?.size.saturating_sub(asked.from_at),
            len => len,
        };
        if len > 0 && asked.to_at.saturating_add(len) > limit {
            if asked.to_at < limit {
                return err(Errno::EINVAL);
            }
            super::rw::over_limit();
            return err(Errno::EFBIG);
        }
        to.mount.backend.clone_range(cx, (from.node, asked.from_at), (to.node, asked.to_at), asked.len)?;
        Ok(0)
    }
}
