//! Extended attributes.

use super::Text;
use crate::direct;
use crate::runtime::errno::{ret, ret_int};
use pm::sys::abi::*;

export! {
    fn getxattr(path: Text, name: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(getxattr, __NR_getxattr, path, name, out, len))
    }
    fn lgetxattr(path: Text, name: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(lgetxattr, __NR_lgetxattr, path, name, out, len))
    }
    fn fgetxattr(fd: i32, name: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(fgetxattr, __NR_fgetxattr, fd, name, out, len))
    }
    fn setxattr(path: Text, name: Text, value: *const u8, len: usize, flags: i32) -> i32 {
        ret_int(direct!(setxattr, __NR_setxattr, path, name, value, len, flags))
    }
    fn lsetxattr(path: Text, name: Text, value: *const u8, len: usize, flags: i32) -> i32 {
        ret_int(direct!(lsetxattr, __NR_lsetxattr, path, name, value, len, flags))
    }
    fn fsetxattr(fd: i32, name: Text, value: *const u8, len: usize, flags: i32) -> i32 {
        ret_int(direct!(fsetxattr, __NR_fsetxattr, fd, name, value, len, flags))
    }
    fn listxattr(path: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(listxattr, __NR_listxattr, path, out, len))
    }
    fn llistxattr(path: Text, out: *mut u8, len: usize) -> isize {
        ret(direct!(llistxattr, __NR_llistxattr, path, out, len))
    }
    fn flistxattr(fd: i32, out: *mut u8, len: usize) -> isize {
        ret(direct!(flistxattr, __NR_flistxattr, fd, out, len))
    }
    fn removexattr(path: Text, name: Text) -> i32 {
        ret_int(direct!(removexattr, __NR_removexattr, path, name))
    }
    fn lremovexattr(path: Text, name: Text) -> i32 {
        ret_int(direct!(lremovexattr, __NR_lremovexattr, path, name))
    }
    fn fremovexattr(fd: i32, name: Text) -> i32 {
        ret_int(direct!(fremovexattr, __NR_fremovexattr, fd, name))
    }
}
