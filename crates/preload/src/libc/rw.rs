//! read and write in all their forms.
//!
//! A call that is not ours goes to libc's own function where that is a
//! cancellation point which may block for long.

use crate::runtime::call::{by_libc, is_ours};
use crate::runtime::errno::ret;
use crate::{direct, next, serve};
use pm::sys::abi::*;

type Two = unsafe extern "C" fn(i32, *const u8, usize) -> isize;
type Vector = unsafe extern "C" fn(i32, *const u8, i32) -> isize;

/// The arguments of such a call.
fn buffers(fd: i32, at: *const u8, len: usize) -> [usize; 6] {
    [fd as usize, at as usize, len, 0, 0, 0]
}

export! {
    fn [read, __read, __read_nocancel](fd: i32, buffer: *mut u8, len: usize) -> isize {
        match next!(Two, "read") {
            Some(next) if !is_ours(fd) => by_libc(__NR_read, buffers(fd, buffer, len), || next(fd, buffer, len)),
            _ => ret(direct!(read, __NR_read, fd, buffer, len)),
        }
    }
    fn [write, __write, __write_nocancel](fd: i32, buffer: *const u8, len: usize) -> isize {
        match next!(Two, "write") {
            Some(next) if !is_ours(fd) => by_libc(__NR_write, buffers(fd, buffer, len), || next(fd, buffer, len)),
            _ => ret(direct!(write, __NR_write, fd, buffer, len)),
        }
    }
    fn readv(fd: i32, vector: *const u8, count: i32) -> isize {
        match next!(Vector, "readv") {
            Some(next) if !is_ours(fd) => by_libc(__NR_readv, buffers(fd, vector, count as usize), || next(fd, vector, count)),
            _ => ret(serve!(__NR_readv, fd, vector, count)),
        }
    }
    fn writev(fd: i32, vector: *const u8, count: i32) -> isize {
        match next!(Vector, "writev") {
            Some(next) if !is_ours(fd) => by_libc(__NR_writev, buffers(fd, vector, count as usize), || next(fd, vector, count)),
            _ => ret(serve!(__NR_writev, fd, vector, count)),
        }
    }
    fn [pread, pread64, __pread64, __libc_pread, __pread64_nocancel](fd: i32, buffer: *mut u8, len: usize, offset: i64) -> isize {
        ret(direct!(fd: pread64, __NR_pread64, fd, buffer, len, offset))
    }
    fn [pwrite, pwrite64, __pwrite64, __libc_pwrite](fd: i32, buffer: *const u8, len: usize, offset: i64) -> isize {
        ret(direct!(fd: pwrite64, __NR_pwrite64, fd, buffer, len, offset))
    }
    fn [preadv, preadv64](fd: i32, vector: *const u8, count: i32, offset: i64) -> isize {
        ret(serve!(__NR_preadv, fd, vector, count, offset, 0))
    }
    fn [pwritev, pwritev64](fd: i32, vector: *const u8, count: i32, offset: i64) -> isize {
        ret(serve!(__NR_pwritev, fd, vector, count, offset, 0))
    }
    fn [preadv2, preadv64v2](fd: i32, vector: *const u8, count: i32, offset: i64, flags: i32) -> isize {
        ret(serve!(__NR_preadv2, fd, vector, count, offset, 0, flags))
    }
    fn [pwritev2, pwritev64v2](fd: i32, vector: *const u8, count: i32, offset: i64, flags: i32) -> isize {
        ret(serve!(__NR_pwritev2, fd, vector, count, offset, 0, flags))
    }
    fn __read_chk(fd: i32, buffer: *mut u8, len: usize, room: usize) -> isize {
        if len > room { crate::runtime::panic::overflow() }
        read(fd, buffer, len)
    }
    fn [__pread_chk, __pread64_chk](fd: i32, buffer: *mut u8, len: usize, offset: i64, room: usize) -> isize {
        if len > room { crate::runtime::panic::overflow() }
        pread(fd, buffer, len, offset)
    }
}
