//! Users and groups: libc's own functions (they reach every thread), after
//! which the cached credentials are asked for again.

use crate::process::fork::has_threads;
use crate::process::hand_over;
use crate::runtime::errno::{ret_int, set};
use crate::runtime::front_end::PROCESS;
use crate::runtime::identity::ask_again;
use crate::runtime::session::is_first_of;
use crate::runtime::{operation, phase, thread, tls};
use crate::{complain, next, serve};
use core::ffi::c_char;
use pm::sys::abi::*;

pub const EINVAL: i32 = 22;
/// Of `close_range`: in a table of descriptors of its own.
pub const CLOSE_RANGE_UNSHARE: usize = 2;

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

/// `unshare`. A thread that is to have descriptors of its own is refused: the tables of ours are the process's. One that is to
/// have a working directory of its own gets it from the kernel ([`posix::Process::part`]).
///
/// # Safety
/// As for the system call.
pub unsafe fn unshare_call(args: [usize; 6]) -> isize {
    let flags = args[0] as u32;
    leaves_mounts(flags & CLONE_NEWNS != 0);
    if flags & CLONE_FILES != 0 && !may_have_own_descriptors() || flags & (CLONE_FS | CLONE_NEWNS) != 0 && !may_part() {
        return -(EINVAL as isize);
    }
    // SAFETY: by contract.
    unsafe { pm::sys::raw(__NR_unshare as usize, args) }
}

/// Whether this thread may have a table of descriptors of its own: where it is the only one, it has that already. If not, a
/// line, once a session, says so.
pub fn may_have_own_descriptors() -> bool {
    let may = !phase::is_mounted() || !has_threads();
    if !may && is_first_of(format_args!("unshare-files")) {
        complain!(
            "a thread asks for descriptors of its own (unshare), which can't be had among files in a mount; this is said once"
        );
    }
    may
}

/// The same of a working directory.
fn may_part() -> bool {
    if !phase::is_mounted() || !has_threads() {
        return true;
    }
    let tls = tls::get();
    operation::enter(tls);
    let may = PROCESS.part(thread::state(tls)).is_ok();
    operation::leave(tls);
    if !may && is_first_of(format_args!("unshare-fs")) {
        complain!(
            "a thread in a mount asks for a working directory of its own (unshare), which can't be had without a kernel mount; \
             this is said once"
        );
    }
    may
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
    fn setns(fd: i32, kind: i32) after leaves_mounts(true);
}

export! {
    fn unshare(flags: i32) -> i32 {
        changed(ret_int(unshare_call([flags as usize, 0, 0, 0, 0, 0])))
    }
    fn capset(header: *mut u8, data: *const u8) -> i32 {
        changed(ret_int(serve!(__NR_capset, header, data)))
    }
}
