//! `inotify`: the descriptor is the kernel's, and so are its watches; what they are set on stands for files of ours
//! ([`Backend::watch`](vfs::Backend::watch)).

use super::{err, fail};
use crate::path::CWD;
use crate::{Outcome, Process, ThreadState};
use base::{Last, PATH_MAX};
use pm::Errno;
use pm::sys::{self, abi};

/// What can be watched for. `IN_ACCESS` is told only where the time of the last access is set.
const EVENTS: u32 = 0xfff;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `inotify_add_watch(fd, path, mask)`.
    pub unsafe fn inotify_add_watch(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let mask = args[2] as u32;
        if self.mounts.is_empty() || mask & EVENTS == 0 {
            return Outcome::Kernel;
        }
        if self.file(args[0]).is_some() {
            return fail(Errno::EINVAL);
        }
        if !self.kernel_open(args[0]) {
            return Outcome::Kernel;
        }
        let last = if mask & abi::IN_DONT_FOLLOW != 0 { Last::NoFollow } else { Last::Follow };
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_inotify_add_watch, args), CWD, 1, last, |cx, spot| {
                let node = spot.node(cx)?;
                if !self.door.has_kernel() || !spot.mount.is_kernels && mask & EVENTS == abi::IN_ACCESS {
                    return err(Errno::EOPNOTSUPP);
                }
                let mut path = [0u8; PATH_MAX];
                spot.mount.backend.watch(cx, node, &mut path)?;
                let call = [args[0], path.as_ptr() as usize, args[2], 0, 0, 0];
                Ok(sys::check(self.door.kernel(abi::__NR_inotify_add_watch as usize, call))?)
            })
        }
    }
}
