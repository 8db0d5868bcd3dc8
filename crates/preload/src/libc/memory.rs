//! mmap and its family.

use crate::runtime::errno::{ret, ret_int};
use crate::serve;
use pm::sys::abi::*;

export! {
    fn [mmap, mmap64, __mmap](address: usize, len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> isize {
        ret(serve!(__NR_mmap, address, len, protection, flags, fd, offset))
    }
    fn [munmap, __munmap](address: usize, len: usize) -> i32 {
        ret_int(serve!(__NR_munmap, address, len))
    }
    fn mremap(address: usize, old_len: usize, new_len: usize, flags: i32, new_address: usize) -> isize {
        ret(serve!(__NR_mremap, address, old_len, new_len, flags, new_address))
    }
    fn msync(address: usize, len: usize, flags: i32) -> i32 {
        ret_int(serve!(__NR_msync, address, len, flags))
    }
    fn [mprotect, __mprotect](address: usize, len: usize, protection: i32) -> i32 {
        ret_int(serve!(__NR_mprotect, address, len, protection))
    }
    fn [madvise, __madvise](address: usize, len: usize, advice: i32) -> i32 {
        ret_int(serve!(__NR_madvise, address, len, advice))
    }
    fn remap_file_pages(address: usize, len: usize, protection: i32, page: usize, flags: i32) -> i32 {
        ret_int(serve!(__NR_remap_file_pages, address, len, protection, page, flags))
    }
    fn mlockall(flags: i32) -> i32 {
        ret_int(serve!(__NR_mlockall, flags))
    }
    fn munlockall() -> i32 {
        ret_int(serve!(__NR_munlockall))
    }
}
