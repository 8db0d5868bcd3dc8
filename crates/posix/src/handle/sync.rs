//! Durability, and advice that changes nothing.

use super::attr::readable;
use super::{err, fail};
use crate::{Outcome, Process, ThreadState};
use base::Kind;
use pm::Errno;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `fsync(fd)`.
    pub unsafe fn fsync(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let synced = self.on(thread, args[0], |cx, file| file.mount.backend.sync(cx, Some(file.node), false).map(|()| 0));
        self.unless_left_out(args[0], synced)
    }

    /// `fdatasync(fd)`.
    pub unsafe fn fdatasync(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let synced = self.on(thread, args[0], |cx, file| file.mount.backend.sync(cx, Some(file.node), true).map(|()| 0));
        self.unless_left_out(args[0], synced)
    }

    /// `syncfs(fd)`.
    pub unsafe fn syncfs(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let synced = self.on(thread, args[0], |cx, file| file.mount.backend.sync(cx, None, false).map(|()| 0));
        self.unless_left_out(args[0], synced)
    }

    /// `sync()`: ours, then the kernel's.
    pub unsafe fn sync(&self, thread: &ThreadState, _args: [usize; 6]) -> Outcome {
        let cx = self.cx(thread);
        for (_, mount) in self.mounts.iter() {
            // As the kernel's, it reports nothing.
            let _ = mount.backend.sync(&cx, None, false);
        }
        // The kernel's would not leave out a directory: where one is to be left out, nothing of the kernel's is synced.
        if self.door.has_kernel() && !self.leaves_out_syncs() { Outcome::Kernel } else { Outcome::Done(0) }
    }

    /// `sync_file_range(fd, offset, len, flags)`.
    pub unsafe fn sync_file_range(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let synced = self.on(thread, args[0], |cx, file| {
            let (offset, len) = (args[1] as i64, args[2] as i64);
            if args[3] as u32 & !7 != 0 || offset < 0 || offset.checked_add(len).is_none_or(|end| end < offset) {
                return err(Errno::EINVAL);
            }
            if !matches!(file.entry.kind(), Kind::Regular | Kind::Directory) {
                return err(Errno::ESPIPE);
            }
            file.mount.backend.sync(cx, Some(file.node), true).map(|()| 0)
        });
        match synced {
            Outcome::Kernel => self.range_left_out(args).unwrap_or(Outcome::Kernel),
            synced => synced,
        }
    }

    /// `fadvise64(fd, offset, len, advice)`.
    pub unsafe fn fadvise64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |_, _| if args[3] as u32 > 5 || (args[2] as i64) < 0 { err(Errno::EINVAL) } else { Ok(0) })
    }

    /// `readahead(fd, offset, len)`.
    pub unsafe fn readahead(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |_, file| {
            if !readable(file.flags()) {
                return err(Errno::EBADF);
            }
            if file.entry.kind() == Kind::Regular { Ok(0) } else { err(Errno::EINVAL) }
        })
    }

    /// `epoll_ctl(epoll, operation, fd, event)`: files can't be waited for.
    pub unsafe fn epoll_ctl(&self, _thread: &ThreadState, args: [usize; 6]) -> Outcome {
        match self.file(args[2]) {
            Some(file) if file.entry.path_only() => fail(Errno::EBADF),
            Some(_) => fail(Errno::EPERM),
            None => Outcome::Kernel,
        }
    }
}
