//! truncate and fallocate.

use super::Text;
use crate::runtime::call::is_ours;
use crate::runtime::errno::ret_int;
use crate::{direct, next, serve};
use pm::sys::abi::*;

export! {
    fn [truncate, truncate64, __truncate](path: Text, size: i64) -> i32 {
        ret_int(serve!(__NR_truncate, path, size))
    }
    fn [ftruncate, ftruncate64, __ftruncate](fd: i32, size: i64) -> i32 {
        ret_int(direct!(fd: ftruncate, __NR_ftruncate, fd, size))
    }
    fn [fallocate, fallocate64](fd: i32, mode: i32, offset: i64, len: i64) -> i32 {
        ret_int(serve!(__NR_fallocate, fd, mode, offset, len))
    }
    fn [posix_fallocate, posix_fallocate64](fd: i32, offset: i64, len: i64) -> i32 {
        if !is_ours(fd) {
            // libc's own also has a way for file systems without the call.
            type Own = unsafe extern "C" fn(i32, i64, i64) -> i32;
            if let Some(next) = next!(Own, "posix_fallocate") {
                return next(fd, offset, len);
            }
        }
        -(serve!(__NR_fallocate, fd, 0, offset, len) as i32)
    }
}
