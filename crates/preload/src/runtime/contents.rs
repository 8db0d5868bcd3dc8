//! Small files of the kernel's, read whole into memory of ours.

use crate::runtime::alloc;
use core::ffi::CStr;
use pm::file::File;
use pm::sys::abi::O_RDONLY;

/// More than any of them has; pages that are not touched cost nothing.
const ROOM: usize = 1 << 20;

/// What a file holds; the memory goes with it.
pub struct Contents {
    at: *mut u8,
    len: usize,
}

impl Contents {
    /// Of the file at a path; `None` if it can't be opened, or there is no memory.
    pub fn of(path: &CStr) -> Option<Contents> {
        let file = File::open(path.to_bytes_with_nul(), O_RDONLY, 0).ok()?;
        let at = alloc::alloc_pages(ROOM);
        if at.is_null() {
            return None;
        }
        let mut contents = Contents { at, len: 0 };
        // SAFETY: a zeroed block of that size, which nobody else has; it lives until `contents` goes.
        let room = unsafe { core::slice::from_raw_parts_mut(at, ROOM) };
        while let Some(rest) = room.get_mut(contents.len..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, contents.len as u64) {
                Ok(read @ 1..) => contents.len += read,
                _ => break,
            }
        }
        Some(contents)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many of the block's bytes have been written, and nobody changes them.
        unsafe { core::slice::from_raw_parts(self.at, self.len) }
    }

    /// The bytes, kept for good.
    pub fn leak(self) -> &'static [u8] {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: as in `bytes`; the block is never given back.
        unsafe { core::slice::from_raw_parts(this.at, this.len) }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // SAFETY: from `alloc_pages`, and nobody else has it.
        unsafe { alloc::free(self.at) };
    }
}
