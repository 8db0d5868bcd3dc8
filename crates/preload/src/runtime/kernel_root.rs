//! The kernel's files by their paths, from the root directory in which its mounts are.

use crate::runtime::kernel::Who;
use crate::runtime::{kernel, placeholders};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use pm::sys::abi::*;

const HERE: i32 = -100;

/// The root directory that this process had before it took another one; negative: it has it.
static ROOT: AtomicI32 = AtomicI32::new(-1);

/// Before this process takes another root directory, or other mounts: it keeps a descriptor of the one in which the kernel's
/// mounts are, so that what is open can be given to programs that know the kernel's descriptors only. Out of the way of the
/// program's. Whether it had none before.
pub fn keep() -> bool {
    const OUT_OF_THE_WAY: usize = 1000;
    if ROOT.load(Relaxed) >= 0 {
        return false;
    }
    let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    let low = unsafe { placeholders::creating(__NR_openat, [HERE as usize, c"/".as_ptr() as usize, flags as usize, 0, 0, 0]) };
    if let Ok(root) = kernel::fcntl(low, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) {
        ROOT.store(root as i32, Relaxed);
    }
    if low >= 0 {
        kernel::close(low);
    }
    true
}

/// Whether this process has another root directory, or other mounts, than the session's programs may have.
pub fn is_kept() -> bool {
    ROOT.load(Relaxed) >= 0
}

/// It was for a child, which has its own.
pub fn release() {
    let root = ROOT.swap(-1, Relaxed);
    if root >= 0 {
        kernel::close(root);
    }
}

/// Who may not change its root directory by itself must not find a way out of it here.
pub fn forget() {
    if ROOT.load(Relaxed) >= 0 && kernel::own(Who::EffectiveUser) != 0 {
        release();
    }
}

/// A kernel descriptor of what has inode number `ino` at `path` (NUL-terminated); `None` if the
/// kernel has something else there.
pub fn open_number(path: &[u8], flags: u32, ino: u64) -> Option<usize> {
    // SAFETY: the path is NUL-terminated.
    let open = |from: usize, path: &[u8]| unsafe {
        placeholders::creating(__NR_openat, [from, path.as_ptr() as usize, flags as usize, 0, 0, 0])
    };
    let root = ROOT.load(Relaxed);
    let file = match usize::try_from(root) {
        Ok(root) => open(root, path.get(1..)?),
        Err(_) => open(HERE as usize, path),
    };
    let file = usize::try_from(file).ok()?;
    let mut stat = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: room for a `struct stat`.
    let known = unsafe { pm::call!(__NR_fstat, file, stat.as_mut_ptr()) };
    // SAFETY: zeroed, and filled by the kernel if it succeeded.
    if known.is_err() || unsafe { stat.assume_init() }.st_ino != ino {
        kernel::close(file);
        return None;
    }
    Some(file)
}
