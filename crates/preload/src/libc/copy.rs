//! Copies inside the kernel, or inside us.

use crate::runtime::errno::ret;
use crate::serve;
use pm::sys::abi::*;

export! {
    fn [sendfile, sendfile64](to: i32, from: i32, offset: *mut i64, len: usize) -> isize {
        ret(serve!(__NR_sendfile, to, from, offset, len))
    }
    fn copy_file_range(from: i32, from_offset: *mut i64, to: i32, to_offset: *mut i64, len: usize, flags: u32) -> isize {
        ret(serve!(__NR_copy_file_range, from, from_offset, to, to_offset, len, flags))
    }
    fn splice(from: i32, from_offset: *mut i64, to: i32, to_offset: *mut i64, len: usize, flags: u32) -> isize {
        ret(serve!(__NR_splice, from, from_offset, to, to_offset, len, flags))
    }
    fn tee(from: i32, to: i32, len: usize, flags: u32) -> isize {
        ret(serve!(__NR_tee, from, to, len, flags))
    }
    fn vmsplice(fd: i32, vector: *const u8, count: usize, flags: u32) -> isize {
        ret(serve!(__NR_vmsplice, fd, vector, count, flags))
    }
}
