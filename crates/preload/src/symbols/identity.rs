//! Users and groups: libc's own functions (they reach every thread), after
//! which the cached credentials are asked for again.

use crate::door::PROCESS;
use crate::errno::set;
use crate::guest;
use crate::init;
use crate::next;
use crate::serve;
use core::ffi::c_char;
use pm::sys::abi::*;

/// After a call that may have changed who we are.
fn changed<T>(result: T) -> T {
    ask_again();
    result
}

/// Who we are is asked anew; not by a child of `vfork`, as its parent would be told.
pub fn ask_again() {
    if init::is_mounted() && !guest::is_here() {
        PROCESS.credentials_changed();
        crate::hand_over::forget_root();
    }
}

macro_rules! pass {
    ($name:literal, ($($argument:ident: $kind:ty),*)) => {
        match next!(unsafe extern "C" fn($($kind),*) -> i32, $name) {
            Some(next) => changed(next($($argument),*)),
            None => {
                set(38);
                -1
            }
        }
    };
}

export! {
    fn setuid(uid: u32) -> i32 {
        pass!("setuid", (uid: u32))
    }
    fn seteuid(uid: u32) -> i32 {
        pass!("seteuid", (uid: u32))
    }
    fn setreuid(real: u32, effective: u32) -> i32 {
        pass!("setreuid", (real: u32, effective: u32))
    }
    fn setresuid(real: u32, effective: u32, saved: u32) -> i32 {
        pass!("setresuid", (real: u32, effective: u32, saved: u32))
    }
    fn setgid(gid: u32) -> i32 {
        pass!("setgid", (gid: u32))
    }
    fn setegid(gid: u32) -> i32 {
        pass!("setegid", (gid: u32))
    }
    fn setregid(real: u32, effective: u32) -> i32 {
        pass!("setregid", (real: u32, effective: u32))
    }
    fn setresgid(real: u32, effective: u32, saved: u32) -> i32 {
        pass!("setresgid", (real: u32, effective: u32, saved: u32))
    }
    fn setgroups(count: usize, groups: *const u32) -> i32 {
        pass!("setgroups", (count: usize, groups: *const u32))
    }
    fn initgroups(user: *const c_char, group: u32) -> i32 {
        pass!("initgroups", (user: *const c_char, group: u32))
    }
    fn setfsuid(uid: u32) -> i32 {
        pass!("setfsuid", (uid: u32))
    }
    fn setfsgid(gid: u32) -> i32 {
        pass!("setfsgid", (gid: u32))
    }
    fn capset(header: *mut u8, data: *const u8) -> i32 {
        changed(crate::errno::ret_int(serve!(__NR_capset, header, data)))
    }
    fn unshare(flags: i32) -> i32 {
        pass!("unshare", (flags: i32))
    }
    fn setns(fd: i32, kind: i32) -> i32 {
        pass!("setns", (fd: i32, kind: i32))
    }
}
