//! Buffers that belong to the program we serve.

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
    /// `ptr..ptr + len` must stay readable (and writable, where it is a
    /// destination) until the call that gets it returns. Other threads of the
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

    /// Fills it with zeros.
    #[inline]
    pub fn zero(self) {
        // SAFETY: whoever made it vouched for it as a destination.
        unsafe { core::ptr::write_bytes(self.ptr, 0, self.len) };
    }

    /// Total length of several buffers, in bytes (saturating).
    #[inline]
    pub fn total(buffers: &[UserSlice]) -> usize {
        buffers.iter().fold(0usize, |sum, b| sum.saturating_add(b.len))
    }
}

/// Copies as much as fits from one buffer to the other; how many bytes.
pub fn copy(from: UserSlice, to: UserSlice) -> usize {
    let len = from.len.min(to.len);
    // SAFETY: whoever made the two vouched for them; overlap is allowed.
    unsafe { core::ptr::copy(from.ptr, to.ptr, len) };
    len
}
