//! Names: links, directories, special files, rename.

use super::{HERE, Text};
use crate::runtime::errno::{ret, ret_int, set};
use crate::{direct, serve};
use pm::sys::abi::*;

const EINVAL: i32 = 22;
const S_IFIFO: u32 = 0o010000;

export! {
    fn [link, __link](from: Text, to: Text) -> i32 {
        ret_int(direct!(linkat, __NR_linkat, HERE, from, HERE, to, 0))
    }
    fn linkat(from_dir: i32, from: Text, to_dir: i32, to: Text, flags: i32) -> i32 {
        ret_int(direct!(linkat, __NR_linkat, from_dir, from, to_dir, to, flags))
    }
    fn [symlink, __symlink](target: Text, path: Text) -> i32 {
        ret_int(direct!(symlinkat, __NR_symlinkat, target, HERE, path))
    }
    fn symlinkat(target: Text, dirfd: i32, path: Text) -> i32 {
        ret_int(direct!(symlinkat, __NR_symlinkat, target, dirfd, path))
    }
    fn [readlink, __readlink](path: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(path: readlinkat, __NR_readlinkat, HERE, path, out, len.min(i32::MAX as usize)))
    }
    fn readlinkat(dirfd: i32, path: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(path: readlinkat, __NR_readlinkat, dirfd, path, out, len.min(i32::MAX as usize)))
    }
    fn __readlink_chk(path: Text, out: *mut u8, len: usize, room: usize) -> isize {
        if len > room { crate::runtime::panic::overflow() }
        readlink(path, out, len)
    }
    fn __readlinkat_chk(dirfd: i32, path: Text, out: *mut u8, len: usize, room: usize) -> isize {
        if len > room { crate::runtime::panic::overflow() }
        readlinkat(dirfd, path, out, len)
    }
    fn [unlink, __unlink](path: Text) -> i32 {
        ret_int(direct!(path: unlinkat, __NR_unlinkat, HERE, path, 0))
    }
    fn unlinkat(dirfd: i32, path: Text, flags: i32) -> i32 {
        ret_int(direct!(path: unlinkat, __NR_unlinkat, dirfd, path, flags))
    }
    fn [rmdir, __rmdir](path: Text) -> i32 {
        ret_int(direct!(path: unlinkat, __NR_unlinkat, HERE, path, AT_REMOVEDIR))
    }
    fn [mkdir, __mkdir](path: Text, mode: u32) -> i32 {
        ret_int(direct!(path: mkdirat, __NR_mkdirat, HERE, path, mode))
    }
    fn mkdirat(dirfd: i32, path: Text, mode: u32) -> i32 {
        ret_int(direct!(path: mkdirat, __NR_mkdirat, dirfd, path, mode))
    }
    fn [mknod, __mknod](path: Text, mode: u32, device: u64) -> i32 {
        mknodat(HERE, path, mode, device)
    }
    fn mknodat(dirfd: i32, path: Text, mode: u32, device: u64) -> i32 {
        if device > u32::MAX as u64 {
            set(EINVAL);
            return -1;
        }
        ret_int(serve!(__NR_mknodat, dirfd, path, mode, device))
    }
    fn __xmknod(version: i32, path: Text, mode: u32, device: *const u64) -> i32 {
        if version != 0 {
            set(EINVAL);
            return -1;
        }
        mknodat(HERE, path, mode, *device)
    }
    fn __xmknodat(version: i32, dirfd: i32, path: Text, mode: u32, device: *const u64) -> i32 {
        if version != 0 {
            set(EINVAL);
            return -1;
        }
        mknodat(dirfd, path, mode, *device)
    }
    fn mkfifo(path: Text, mode: u32) -> i32 {
        ret_int(serve!(__NR_mknodat, HERE, path, mode | S_IFIFO, 0))
    }
    fn mkfifoat(dirfd: i32, path: Text, mode: u32) -> i32 {
        ret_int(serve!(__NR_mknodat, dirfd, path, mode | S_IFIFO, 0))
    }
    fn [rename, __rename](from: Text, to: Text) -> i32 {
        ret_int(direct!(renameat, __NR_renameat, HERE, from, HERE, to))
    }
    fn renameat(from_dir: i32, from: Text, to_dir: i32, to: Text) -> i32 {
        ret_int(direct!(renameat, __NR_renameat, from_dir, from, to_dir, to))
    }
    fn renameat2(from_dir: i32, from: Text, to_dir: i32, to: Text, flags: u32) -> i32 {
        ret_int(serve!(__NR_renameat2, from_dir, from, to_dir, to, flags))
    }
}
