//! Threads that have parted (`unshare(CLONE_FS)`): each has a working directory and a mask of its own, which only the kernel
//! knows. From then on both are asked of the kernel: beside a kernel mount the working directories of all threads are
//! the kernel's own, so that paths relative to them go by the mount; without one nobody goes into a directory of ours.

use super::cwd::put_directory_before;
use super::err;
use crate::descriptors::CWD_FD;
use crate::{Process, ThreadState};
use base::{Cx, Node, PATH_MAX};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::file::File;
use pm::sys::abi;
use vfs::Mount;

/// In the place of the process's mask: each thread has its own.
pub(super) const OF_THREADS: u32 = u32::MAX - 1;

impl Process {
    /// A thread is about to part. `EINVAL` if the working directory is one of ours that the kernel does not know: then it
    /// stays with the others.
    pub fn part(&self, thread: &ThreadState) -> Result<(), Errno> {
        self.moving.with(|| {
            let here = self.descriptors.get(CWD_FD);
            let is_known = |slot: usize| self.shown.load(Relaxed) >> slot & 1 != 0 && !self.cwd_is_virtual.load(Relaxed);
            if here.is_some_and(|entry| !is_known(entry.slot())) {
                return Err(Errno::EINVAL);
            }
            self.umask.store(OF_THREADS, Relaxed);
            self.leave(thread);
            Ok(())
        })?;
        self.kernel_cwd_changed();
        Ok(())
    }

    /// Whether a thread has parted.
    #[inline]
    pub(crate) fn is_parted(&self) -> bool {
        self.umask.load(Relaxed) == OF_THREADS
    }

    /// This thread goes into a directory of ours, in the kernel. `EOPNOTSUPP` where that does not know it.
    pub(super) fn change_in_kernel(&self, cx: &Cx, thread: &ThreadState, mount: &Mount, node: Node) -> base::Result<usize> {
        if self.shown.load(Relaxed) >> mount.slot & 1 == 0 {
            return err(Errno::EOPNOTSUPP);
        }
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let [text, ..] = unsafe { &mut *thread.room().outside.get() };
        let mut at = PATH_MAX - 1;
        text[at] = 0;
        put_directory_before(text, &mut at, cx, mount, node)?;
        let args = [text[at..].as_ptr() as usize, 0, 0, 0, 0, 0];
        // SAFETY: a NUL-terminated path.
        let result = unsafe { self.door.kernel(abi::__NR_chdir as usize, args) };
        if result < 0 { Err(Errno(-result as i32).into()) } else { Ok(0) }
    }
}

/// The calling thread's mask, which the kernel tells without changing it in the thread's status alone; the usual one where it
/// does not.
#[cold]
pub(super) fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let mut status = [0u8; 512];
    let path = b"/proc/thread-self/status\0";
    let told = File::open(path, abi::O_RDONLY | abi::O_CLOEXEC, 0).and_then(|file| file.read_at(&mut status, 0));
    let Ok(status) = told.map(|len| &status[..len]) else { return USUAL };
    let key = b"Umask:\t";
    let Some(at) = status.windows(key.len()).position(|window| window == key) else { return USUAL };
    let digits = status[at + key.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |mask, digit| mask << 3 | u16::from(digit - b'0')) & 0o777
}
