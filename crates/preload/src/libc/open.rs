//! open, creat, close.

use super::{HERE, Text};
use crate::libc::identity::{CLOSE_RANGE_UNSHARE, EINVAL, may_have_own_descriptors};
use crate::libc::kernel_files::opened;
use crate::runtime::errno::{ret, ret_int};
use crate::{direct, serve};
use pm::sys::abi::*;

export! {
    fn [open, open64, __open, __open64, __open_nocancel, __open64_nocancel](path: Text, flags: i32, mode: u32) -> i32 {
        ret_int(opened(direct!(path: openat, __NR_openat, HERE, path, flags, mode)))
    }
    fn [__open_2, __open64_2](path: Text, flags: i32) -> i32 {
        ret_int(opened(direct!(path: openat, __NR_openat, HERE, path, flags, 0)))
    }
    fn [openat, openat64, __openat, __openat64](dirfd: i32, path: Text, flags: i32, mode: u32) -> i32 {
        ret_int(opened(direct!(path: openat, __NR_openat, dirfd, path, flags, mode)))
    }
    fn [__openat_2, __openat64_2](dirfd: i32, path: Text, flags: i32) -> i32 {
        ret_int(opened(direct!(path: openat, __NR_openat, dirfd, path, flags, 0)))
    }
    fn [creat, creat64, __creat](path: Text, mode: u32) -> i32 {
        ret_int(opened(direct!(path: openat, __NR_openat, HERE, path, O_CREAT | O_WRONLY | O_TRUNC, mode)))
    }
    fn openat2(dirfd: i32, path: Text, how: *const u8, bytes: usize) -> i32 {
        ret_int(serve!(__NR_openat2, dirfd, path, how, bytes))
    }
    fn open_by_handle_at(dirfd: i32, handle: *const u8, flags: i32) -> i32 {
        ret_int(serve!(__NR_open_by_handle_at, dirfd, handle, flags))
    }
    fn name_to_handle_at(dirfd: i32, path: Text, handle: *mut u8, mount: *mut i32, flags: i32) -> i32 {
        ret_int(serve!(__NR_name_to_handle_at, dirfd, path, handle, mount, flags))
    }
    fn [close, __close, __close_nocancel](fd: i32) -> i32 {
        ret_int(direct!(close, __NR_close, fd))
    }
    fn close_range(first: u32, last: u32, flags: i32) -> i32 {
        if flags as usize & CLOSE_RANGE_UNSHARE != 0 && !may_have_own_descriptors() {
            return ret_int(-(EINVAL as isize));
        }
        ret_int(serve!(__NR_close_range, first, last, flags))
    }
    fn closefrom(first: i32) -> () {
        let first = first.max(0);
        if serve!(__NR_close_range, first, u32::MAX, 0) < 0 {
            for fd in first..crate::runtime::call::descriptor_limit() {
                direct!(close, __NR_close, fd);
            }
        }
    }
    fn [lseek, lseek64, __lseek, __libc_lseek64, llseek](fd: i32, offset: i64, whence: i32) -> i64 {
        ret(direct!(fd: lseek, __NR_lseek, fd, offset, whence)) as i64
    }
}
