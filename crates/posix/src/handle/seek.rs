//! `lseek` and `fallocate`.

use super::attr::writable;
use super::err;
use crate::{Outcome, Process, ThreadState};
use base::{Error, Fallocate, Kind};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;

const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;
const SEEK_END: u32 = 2;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `lseek(fd, offset, whence)`.
    pub unsafe fn lseek(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            let (offset, whence) = (args[1] as i64, args[2] as u32);
            let backend = file.mount.backend;
            let directory = file.entry.kind() == Kind::Directory;
            if whence > SEEK_HOLE || directory && whence > SEEK_CUR {
                return err(Errno::EINVAL);
            }
            let id = file.entry.description();
            backend.offset_lock(cx, id);
            let at = || -> base::Result<i64> {
                let from = match whence {
                    SEEK_SET => 0,
                    SEEK_CUR => file.description.offset.load(Relaxed) as i64,
                    SEEK_END => backend.attr(cx, file.node)?.size as i64,
                    _ if offset < 0 => return err(Errno::ENXIO),
                    _ => return backend.seek(cx, file.node, offset as u64, whence == SEEK_DATA).map(|at| at as i64),
                };
                match from.checked_add(offset) {
                    Some(at) if at >= 0 => Ok(at),
                    _ => err(Errno::EINVAL),
                }
            }();
            if let Ok(at) = at {
                file.description.offset.store(at as u64, Relaxed);
            }
            backend.offset_unlock(cx, id);
            at.map(|at| at as usize)
        })
    }

    /// `fallocate(fd, mode, offset, len)`.
    pub unsafe fn fallocate(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            let (offset, len) = (args[2] as i64, args[3] as i64);
            if offset < 0 || len <= 0 {
                return err(Errno::EINVAL);
            }
            let Some(how) = Fallocate::of_flags(args[1] as u32) else { return err(Errno::EOPNOTSUPP) };
            if !writable(file.flags()) {
                return err(Errno::EBADF);
            }
            match file.entry.kind() {
                Kind::Regular => {}
                Kind::Directory => return err(Errno::EISDIR),
                _ => return err(Errno::ENODEV),
            }
            let end = offset.checked_add(len).ok_or(Error::Posix(Errno::EFBIG))? as u64;
            let grows = matches!(how, Fallocate::Allocate | Fallocate::Zero);
            if grows && end > self.file_limit() && end > file.mount.backend.attr(cx, file.node)?.size {
                super::rw::over_limit();
                return err(Errno::EFBIG);
            }
            file.mount.backend.fallocate(cx, file.node, how, offset as u64, len as u64).map(|()| 0)
        })
    }
}
