//! The program's buffers, as calls that read and write get them.

use super::err;
use crate::text::bad;
use pm::{Errno, UserSlice, faults};

/// The most that one call moves, bytes.
pub(crate) const COUNT_MAX: usize = 0x7fff_f000;
const IOV_MAX: usize = 1024;

/// Whether a pointer leads into the kernel's half of the addresses, which the kernel refuses before anything else, however
/// little is asked. Of what else is [bad] it says so when it is to be used.
#[inline]
fn is_kernels(pointer: usize) -> bool {
    (pointer as isize) < 0
}

/// The buffers before the first one that [cannot be there](bad), if there is such a one.
#[inline]
pub(super) fn before_bad(buffers: &[UserSlice]) -> Option<&[UserSlice]> {
    let is_bad = |buffer: &UserSlice| buffer.len > 0 && bad(buffer.ptr as usize);
    buffers.get(..buffers.iter().position(is_bad)?)
}

/// One buffer, checked; whether it is there is not ([`before_bad`]).
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer), or good for `len` bytes.
#[inline]
pub(super) unsafe fn single(pointer: usize, len: usize) -> base::Result<[UserSlice; 1]> {
    if (len as isize) < 0 || is_kernels(pointer) {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok([unsafe { UserSlice::new(pointer as *mut u8, len.min(COUNT_MAX)) }])
}

/// A program's vector, checked; buffers past [`COUNT_MAX`] are left out. Whether its buffers are there is not ([`before_bad`]).
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer), or leads to `count` buffers that are bad or good.
pub(super) unsafe fn vector<'a>(pointer: usize, count: usize) -> base::Result<&'a [UserSlice]> {
    if count > IOV_MAX {
        return err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if bad(pointer) {
        return err(Errno::EFAULT);
    }
    let bytes = count * size_of::<UserSlice>();
    if faults::readable(pointer as *const u8, bytes) < bytes {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise, and it is there; `UserSlice` has the layout of `struct iovec`.
    let all = unsafe { core::slice::from_raw_parts(pointer as *const UserSlice, count) };
    let mut total = 0usize;
    for (index, buffer) in all.iter().enumerate() {
        if buffer.len as isize >= 0 && is_kernels(buffer.ptr as usize) {
            return err(Errno::EFAULT);
        }
        if (buffer.len as isize) < 0 {
            return err(Errno::EINVAL);
        }
        total = total.saturating_add(buffer.len);
        if total > COUNT_MAX && index > 0 {
            return Ok(&all[..index]);
        }
    }
    Ok(all)
}
