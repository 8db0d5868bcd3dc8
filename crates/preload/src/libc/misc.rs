//! `syscall()`: by its number the same way as everything else.

use super::{kernel_files, message};
use crate::process::{exec, fork, hand_over};
use crate::runtime::errno::ret;
use crate::runtime::{call, identity};
use pm::sys::abi::*;

export! {
    fn syscall(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
        match nr as u32 {
            __NR_execve => exec::execveat_call(super::HERE, a as *const _, b as *const _, c as *const _, 0) as isize,
            __NR_execveat => {
                exec::execveat_call(a as i32, b as *const _, c as *const _, d as *const _, e as i32) as isize
            }
            // CLONE_VM: the child shares memory with us and does what it does raw.
            __NR_clone if a & 0x100 == 0 => ret(fork::raw_clone(nr, [a, b, c, d, e, f])),
            // The same by `struct clone_args`, whose first word has the flags.
            __NR_clone3 if pm::faults::read(a as *const u64).is_ok_and(|flags| flags & 0x100 == 0) => {
                ret(fork::raw_clone(nr, [a, b, c, d, e, f]))
            }
            #[cfg(target_arch = "x86_64")]
            __NR_fork | __NR_vfork => ret(fork::raw_clone(__NR_fork as usize, [0; 6])),
            __NR_setuid | __NR_setgid | __NR_setreuid | __NR_setregid | __NR_setresuid | __NR_setresgid
            | __NR_setgroups | __NR_setfsuid | __NR_setfsgid | __NR_capset | __NR_unshare | __NR_setns => {
                let result = ret(pm::sys::raw(nr, [a, b, c, d, e, f]));
                identity::ask_again();
                result
            }
            __NR_io_uring_setup | __NR_io_setup if !kernel_files::from_now_on() => {
                ret(-(kernel_files::ENOSYS as isize))
            }
            __NR_chroot => {
                hand_over::keep_root();
                ret(call::call(nr, [a, b, c, d, e, f]))
            }
            __NR_openat => ret(kernel_files::opened(call::call(nr, [a, b, c, d, e, f]))),
            __NR_sendmsg => match message::send(a as i32, b as *const _, c as i32) {
                Some(result) => ret(result),
                None => ret(pm::sys::raw(nr, [a, b, c, d, e, f])),
            },
            _ => ret(call::call(nr, [a, b, c, d, e, f])),
        }
    }
}
