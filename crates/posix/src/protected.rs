//! The machine's `fs.protected_*` settings: what the kernel refuses in
//! directories that many may write to. Asked for once.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use pm::sys::abi;

/// Links to files of others.
pub(crate) const HARDLINKS: &CStr = c"/proc/sys/fs/protected_hardlinks";
/// `O_CREAT` on regular files of others.
pub(crate) const REGULAR: &CStr = c"/proc/sys/fs/protected_regular";
/// `O_CREAT` on FIFOs of others.
pub(crate) const FIFOS: &CStr = c"/proc/sys/fs/protected_fifos";
const UNKNOWN: u32 = u32::MAX;

/// The settings.
pub(crate) struct Protected {
    pub hardlinks: AtomicU32,
    pub regular: AtomicU32,
    pub fifos: AtomicU32,
}

impl Protected {
    pub(crate) const fn new() -> Self {
        Protected { hardlinks: AtomicU32::new(UNKNOWN), regular: AtomicU32::new(UNKNOWN), fifos: AtomicU32::new(UNKNOWN) }
    }

    /// The value of one: 0 (off), 1 or 2.
    pub(crate) fn get(&self, which: &AtomicU32, path: &CStr) -> u32 {
        let known = which.load(Relaxed);
        if known != UNKNOWN {
            return known;
        }
        let value = ask(path);
        which.store(value, Relaxed);
        value
    }
}

#[cold]
fn ask(path: &CStr) -> u32 {
    const READ_CLOEXEC: u32 = abi::O_RDONLY | abi::O_CLOEXEC;
    let mut value = [b'1'];
    // SAFETY: a NUL-terminated path.
    if let Ok(fd) = unsafe { pm::call!(abi::__NR_openat, crate::path::CWD, path.as_ptr(), READ_CLOEXEC) } {
        // SAFETY: a buffer of one byte.
        let _ = unsafe { pm::call!(abi::__NR_read, fd, value.as_mut_ptr(), 1) };
        // SAFETY: the descriptor just opened.
        let _ = unsafe { pm::call!(abi::__NR_close, fd) };
    }
    value[0].wrapping_sub(b'0') as u32
}
