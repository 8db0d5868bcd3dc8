//! Users and groups: libc's own functions (they reach every thread), after
//! which the cached credentials are asked for again.

use crate::process::hand_over;
use crate::runtime::errno::{ret_int, set};
use crate::runtime::identity::ask_again;
use crate::{next, serve};
use core::ffi::c_char;
use pm::sys::abi::*;

/// After a call that may have changed who we are.
fn changed<T>(result: T) -> T {
    ask_again();
    result
}

/// Before a call that may give us other mounts.
pub fn leaves_mounts(leaves: bool) {
    if leaves {
        hand_over::keep_root();
    }
}

/// Functions of libc's that may change who we are.
macro_rules! pass {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $(after $before:expr)?;)*) => {
        export! {$(
            fn $name($($argument: $kind),*) -> i32 {
                $($before;)?
                match next!(unsafe extern "C" fn($($kind),*) -> i32, stringify!($name)) {
                    Some(next) => changed(next($($argument),*)),
                    None => {
                        set(38);
                        -1
                    }
                }
            }
        )*}
    };
}

pass! {
    fn setuid(uid: u32);
    fn seteuid(uid: u32);
    fn setreuid(real: u32, effective: u32);
    fn setresuid(real: u32, effective: u32, saved: u32);
    fn setgid(gid: u32);
    fn setegid(gid: u32);
    fn setregid(real: u32, effective: u32);
    fn setresgid(real: u32, effective: u32, saved: u32);
    fn setgroups(count: usize, groups: *const u32);
    fn initgroups(user: *const c_char, group: u32);
    fn setfsuid(uid: u32);
    fn setfsgid(gid: u32);
    fn unshare(flags: i32) after leaves_mounts(flags as u32 & CLONE_NEWNS != 0);
    fn setns(fd: i32, kind: i32) after leaves_mounts(true);
}

export! {
    fn capset(header: *mut u8, data: *const u8) -> i32 {
        changed(ret_int(serve!(__NR_capset, header, data)))
    }
}
