//! Buffers that belong to the program we serve.

use crate::{Errno, faults};

/// A buffer of the calling program: pointer and length in bytes, laid out as
/// the kernel's `struct iovec`, so that an array of them is an array of these.
///
/// Only a door makes one (that is where the program's pointers come in); all
/// others hand it down to the copy that fills or drains it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UserSlice {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

impl UserSlice {
    /// Wraps a program's buffer.
    ///
    /// # Safety
    /// `ptr..ptr + len` is the program's, and none of it ours: what of it can be read (or
    /// written, where it is a destination) may be, until the call that gets it returns;
    /// what is not there is found out ([`crate::faults`]). Other threads of the
    /// program may race on it, as they may with the kernel's `read`.
    #[inline]
    pub const unsafe fn new(ptr: *mut u8, len: usize) -> Self {
        UserSlice { ptr, len }
    }

    /// A destination backed by a Rust buffer.
    #[inline]
    pub fn from_mut(buffer: &mut [u8]) -> Self {
        UserSlice { ptr: buffer.as_mut_ptr(), len: buffer.len() }
    }

    /// A source backed by a Rust buffer; never used as a destination.
    #[inline]
    pub fn from_ref(buffer: &[u8]) -> Self {
        UserSlice { ptr: buffer.as_ptr().cast_mut(), len: buffer.len() }
    }

    /// At most `len` bytes of it from byte `from` on (none past its end).
    #[inline]
    pub fn part(self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        UserSlice { ptr: self.ptr.wrapping_add(from), len: len.min(self.len - from) }
    }

    /// Fills it with zeros; how many bytes of it are there.
    #[inline]
    pub fn zero(self) -> usize {
        // SAFETY: whoever made it vouched for it as a destination.
        unsafe { faults::clear(self.ptr, self.len) }
    }

    /// How many bytes of it can be read, from the first one on.
    pub fn readable(self) -> usize {
        faults::readable(self.ptr, self.len)
    }

    /// How many bytes of it can be written, from the first one on.
    pub fn writable(self) -> usize {
        // SAFETY: whoever made it vouched for it as a destination.
        unsafe { faults::writable(self.ptr, self.len) }
    }

    /// Total length of several buffers, in bytes (saturating).
    #[inline]
    pub fn total(buffers: &[UserSlice]) -> usize {
        buffers.iter().fold(0usize, |sum, b| sum.saturating_add(b.len))
    }
}

/// Copies as much as fits from one buffer to the other; how many bytes. `EFAULT` if some of it is not there.
pub fn copy(from: UserSlice, to: UserSlice) -> Result<usize, Errno> {
    let len = from.len.min(to.len);
    // SAFETY: whoever made the two vouched for them.
    if unsafe { faults::transfer(from.ptr, to.ptr, len) } == len { Ok(len) } else { Err(Errno::EFAULT) }
}
