//! Programs inside a mount, where the kernel has them at the same path: it
//! executes the file itself, so that `/proc/self/exe`, libraries beside the
//! program and set-id bits are as everywhere.

use crate::runtime::front_end::PROCESS;
use crate::runtime::{alloc, operation, thread, tls};
use crate::serve;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use pm::sys::{self, abi::*};
use posix::CWD_FD;

const PATH_MAX: usize = 4096;
const HERE: i32 = -100;

/// A NUL-terminated text of ours.
pub struct Text(*mut u8);

impl Text {
    /// The text.
    pub fn as_ptr(&self) -> *const c_char {
        self.0.cast_const().cast()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: made below; not used any more.
        unsafe { alloc::free(self.0) };
    }
}

/// The absolute path at which the kernel has our open `file`, which the program
/// called `path`; `None` if it has not.
///
/// # Safety
/// `path` is a NUL-terminated string.
pub unsafe fn path(file: i32, dirfd: i32, path: *const c_char) -> Option<Text> {
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    if name.len() <= 1 {
        return None;
    }
    let block = alloc::alloc(PATH_MAX);
    if block.is_null() {
        return None;
    }
    let text = Text(block);
    // SAFETY: a block of that size, ours alone; zeroes are a valid value.
    let room = unsafe {
        core::ptr::write_bytes(block, 0, PATH_MAX);
        core::slice::from_raw_parts_mut(block, PATH_MAX)
    };
    let base = if name[0] == b'/' { 0 } else { directory(dirfd, room)? };
    room.get_mut(base..base + name.len())?.copy_from_slice(name);
    let (mut ours, mut kernels) = (MaybeUninit::<stat>::zeroed(), MaybeUninit::<stat>::zeroed());
    // SAFETY: room for the answer.
    let known = unsafe { serve!(__NR_fstat, file, ours.as_mut_ptr()) };
    let args = [HERE as usize, text.as_ptr() as usize, kernels.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: as above, and a NUL-terminated text.
    let found = unsafe { sys::raw(__NR_newfstatat as usize, args) };
    // SAFETY: zeroed, and plain numbers.
    let (ours, kernels) = unsafe { (ours.assume_init(), kernels.assume_init()) };
    (known == 0 && found == 0 && (ours.st_dev, ours.st_ino) == (kernels.st_dev, kernels.st_ino)).then_some(text)
}

/// Writes the path of a directory of ours, with a slash; its length.
fn directory(dirfd: i32, room: &mut [u8]) -> Option<usize> {
    let fd = if dirfd == HERE { CWD_FD } else { u32::try_from(dirfd).ok()? };
    let tls = tls::get();
    operation::enter(tls);
    let len = PROCESS.in_kernel(thread::state(tls), fd).ok().and_then(|wanted| {
        let path = wanted.path.strip_suffix(b"\0").unwrap_or(wanted.path);
        room.get_mut(..path.len())?.copy_from_slice(path);
        *room.get_mut(path.len())? = b'/';
        Some(path.len() + 1)
    });
    operation::leave(tls);
    len
}
