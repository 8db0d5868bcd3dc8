//! Lists of arguments that are made here.

use crate::runtime::{alloc, vfork_child};
use core::ffi::c_char;

/// A list that ends with null. It goes when `exec` has failed; one that a child by `vfork` has left behind, with that.
pub struct Arguments {
    at: *mut *mut c_char,
    len: usize,
    room: usize,
}

impl Arguments {
    /// An empty list with room for so many; `None`: no memory.
    pub fn new(room: usize) -> Option<Arguments> {
        let at = alloc::alloc_zeroed((room + 1) * size_of::<usize>()).cast::<*mut c_char>();
        if at.is_null() {
            return None;
        }
        vfork_child::note(at.cast());
        Some(Arguments { at, len: 0, room })
    }

    /// Appends what there is room for.
    pub fn extend(&mut self, texts: impl IntoIterator<Item = *const c_char>) {
        for text in texts.into_iter().take(self.room - self.len) {
            // SAFETY: inside the block, before the null at its end.
            unsafe { self.at.add(self.len).write(text.cast_mut()) };
            self.len += 1;
        }
    }

    /// What `exec` gets.
    pub fn as_ptr(&self) -> *const *mut c_char {
        self.at
    }
}

impl Drop for Arguments {
    fn drop(&mut self) {
        vfork_child::forget(self.at.cast());
        // SAFETY: from `new`; nobody else has it.
        unsafe { alloc::free(self.at.cast()) };
    }
}
