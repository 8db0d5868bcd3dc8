//! sync and read-ahead.

use crate::runtime::errno::{ret, ret_int};
use crate::serve;
use pm::sys::abi::*;

export! {
    fn [fsync, __fsync](fd: i32) -> i32 {
        ret_int(serve!(__NR_fsync, fd))
    }
    fn fdatasync(fd: i32) -> i32 {
        ret_int(serve!(__NR_fdatasync, fd))
    }
    fn sync() -> () {
        serve!(__NR_sync);
    }
    fn syncfs(fd: i32) -> i32 {
        ret_int(serve!(__NR_syncfs, fd))
    }
    fn sync_file_range(fd: i32, offset: i64, len: i64, flags: u32) -> i32 {
        ret_int(serve!(__NR_sync_file_range, fd, offset, len, flags))
    }
    fn [posix_fadvise, posix_fadvise64](fd: i32, offset: i64, len: i64, advice: i32) -> i32 {
        -(serve!(__NR_fadvise64, fd, offset, len, advice) as i32)
    }
    fn readahead(fd: i32, offset: i64, len: usize) -> isize {
        ret(serve!(__NR_readahead, fd, offset, len))
    }
}
