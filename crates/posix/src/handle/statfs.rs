//! `statfs`.

use super::err;
use crate::path::CWD;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::Last;
use pm::sys::abi;
use pm::{Errno, faults};
use vfs::Backend;

const ST_RDONLY: i64 = 1;
const ST_VALID: i64 = 0x20;
const ST_RELATIME: i64 = 0x1000;

/// # Safety
/// `out` is [bad](crate::bad_pointer) or writable for a `struct statfs`.
unsafe fn write_statfs(backend: &dyn Backend, out: usize) -> base::Result<usize> {
    let figures = backend.statfs()?;
    if bad(out) {
        return err(Errno::EFAULT);
    }
    // SAFETY: all fields are integers, for which zero is a value.
    let mut fs: abi::statfs = unsafe { core::mem::zeroed() };
    fs.f_type = figures.magic as _;
    fs.f_bsize = figures.block_bytes as _;
    fs.f_frsize = figures.block_bytes as _;
    fs.f_blocks = figures.blocks as _;
    fs.f_bfree = figures.blocks_free as _;
    fs.f_bavail = figures.blocks_free as _;
    fs.f_files = figures.files as _;
    fs.f_ffree = figures.files_free as _;
    fs.f_fsid.val = [figures.id as i32, (figures.id >> 32) as i32];
    fs.f_namelen = figures.name_max as _;
    fs.f_flags = (ST_VALID | ST_RELATIME | if figures.read_only { ST_RDONLY } else { 0 }) as _;
    // SAFETY: the caller's promise.
    unsafe { faults::write(out as *mut abi::statfs, &fs) }?;
    Ok(0)
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `statfs(path, out)`.
    pub unsafe fn statfs(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (abi::__NR_statfs, args), CWD, 0, Last::Follow, |cx, spot| {
                spot.node(cx)?;
                write_statfs(spot.mount.backend, args[1])
            })
        }
    }

    /// `fstatfs(fd, out)`.
    pub unsafe fn fstatfs(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        self.on_any(thread, args[0], |_, file| unsafe { write_statfs(file.mount.backend, args[1]) })
    }
}
