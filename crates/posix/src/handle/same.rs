//! `ioctl(FIDEDUPERANGE)`: ranges of files that have the same bytes share their space from then on.

use super::attr::{readable, writable};
use super::err;
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Process, ThreadState};
use base::{Cx, Kind, Result, W};
use pm::{Errno, faults};

pub(super) const FIDEDUPERANGE: u32 = 0xc018_9436;
/// `FILE_DEDUPE_RANGE_DIFFERS`.
const DIFFERS: i32 = 1;
/// Most bytes of a request's header and its targets: a page.
const REQUEST_MAX: usize = 4096;
/// Most bytes of one request.
const LEN_MAX: u64 = 1 << 30;
/// Bytes that are compared and shared with both files locked.
const STEP: u64 = 4 << 20;

/// `struct file_dedupe_range` without its targets.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    at: u64,
    len: u64,
    count: u16,
    reserved: u16,
    reserved_too: u32,
}

/// `struct file_dedupe_range_info`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Target {
    fd: i64,
    at: u64,
    done: u64,
    status: i32,
    reserved: u32,
}

const _: () = assert!(size_of::<Request>() == 24 && size_of::<Target>() == 32);

impl Process {
    /// # Safety
    /// As for [`Process::handle`].
    pub(super) unsafe fn dedupe(&self, thread: &ThreadState, from: &OpenFile, argument: usize) -> Result<usize> {
        if bad(argument) {
            return err(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let request = unsafe { faults::read(argument as *const Request) }?;
        let (count, first) = (usize::from(request.count), argument + size_of::<Request>());
        let end = first + count * size_of::<Target>();
        if end - argument > REQUEST_MAX {
            return err(Errno::ENOMEM);
        }
        if count > 0 {
            // SAFETY: the caller's promise; all of it is read before anything is done.
            unsafe { faults::read((end - 1) as *const u8) }?;
        }
        let cx = &self.cx(thread);
        may_ask(cx, from, &request)?;
        for at in (first..end).step_by(size_of::<Target>()) {
            // SAFETY: the caller's promise.
            let mut target = unsafe { faults::read(at as *const Target) }?;
            (target.done, target.status) = match self.dedupe_into(cx, from, &request, &target) {
                Ok(true) => (request.len.min(LEN_MAX), 0),
                Ok(false) => (0, DIFFERS),
                Err(error) => (0, -error.errno().0),
            };
            // SAFETY: the same.
            unsafe { faults::write(at as *mut Target, &target) }?;
        }
        Ok(0)
    }

    /// Whether the target had the same bytes.
    fn dedupe_into(&self, cx: &Cx, from: &OpenFile, request: &Request, target: &Target) -> Result<bool> {
        let fd = target.fd as i32 as usize;
        let Some(to) = self.file(fd) else {
            // The kernel's, or nothing.
            let is_open = super::copy::kind_in_kernel(fd).is_some();
            return err(if is_open && target.reserved == 0 {
                Errno::EXDEV
            } else if is_open {
                Errno::EINVAL
            } else {
                Errno::EBADF
            });
        };
        if to.entry.path_only() {
            return err(Errno::EBADF);
        }
        let len = request.len.min(LEN_MAX);
        if target.reserved != 0 || !is_range(target.at, len) {
            return err(Errno::EINVAL);
        }
        may_be_target(cx, &to)?;
        if from.slot != to.slot {
            return err(Errno::EXDEV);
        }
        match to.entry.kind() {
            Kind::Regular => {}
            Kind::Directory => return err(Errno::EISDIR),
            _ => return err(Errno::EINVAL),
        }
        let mut done = 0;
        while done < len {
            let step = STEP.min(len - done);
            let both = ((from.node, request.at + done), (to.node, target.at + done));
            match to.mount.backend.dedupe_range(cx, both.0, both.1, step)? {
                Some(_) => done += step,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// As the kernel asks of the source, in its order.
fn may_ask(cx: &Cx, from: &OpenFile, request: &Request) -> Result<()> {
    if !readable(from.flags()) || request.reserved != 0 || request.reserved_too != 0 {
        return err(Errno::EINVAL);
    }
    match from.entry.kind() {
        Kind::Regular => {}
        Kind::Directory => return err(Errno::EISDIR),
        _ => return err(Errno::EINVAL),
    }
    let size = from.mount.backend.attr(cx, from.node)?.size;
    if !is_range(request.at, request.len) || request.at + request.len > size {
        return err(Errno::EINVAL);
    }
    Ok(())
}

/// Who may write to a file, or has it, may let it share: nothing can be seen of that.
fn may_be_target(cx: &Cx, to: &OpenFile) -> Result<()> {
    let owner = to.mount.backend.attr(cx, to.node)?.uid;
    let may = cx.cred.privileged || writable(to.flags()) || owner == cx.cred.uid;
    if may || to.mount.backend.access(cx, to.node, W).is_ok() { Ok(()) } else { err(Errno::EPERM) }
}

fn is_range(at: u64, len: u64) -> bool {
    let last = i64::MAX as u64;
    at <= last && len <= last && at + len <= last
}
