//! A whole file of ours as the kernel's.

use crate::runtime::alloc;
use crate::serve;
use pm::sys::abi::*;

const ENOMEM: isize = -12;

/// Copies a whole file of ours into a kernel descriptor.
pub fn copy_out(from: i32, to: i32) -> Result<(), isize> {
    const PIECE: usize = 1 << 20;
    let buffer = alloc::alloc_pages(PIECE);
    if buffer.is_null() {
        return Err(ENOMEM);
    }
    let mut offset = 0usize;
    let result = loop {
        // SAFETY: the buffer has that many bytes.
        let got = unsafe { serve!(__NR_pread64, from, buffer, PIECE, offset) };
        if got <= 0 {
            break if got < 0 { Err(got) } else { Ok(()) };
        }
        // SAFETY: as above.
        match unsafe { pm::call!(__NR_pwrite64, to, buffer, got, offset) } {
            Ok(written) if written as isize == got => offset += written,
            Ok(_) => break Err(-(pm::Errno::ENOSPC.0 as isize)),
            Err(errno) => break Err(-(errno.0 as isize)),
        }
    };
    // SAFETY: not used any more.
    unsafe { alloc::free(buffer) };
    result
}
