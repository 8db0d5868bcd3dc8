//! `syscall()`: by its number the same way as everything else.

use super::cwd::change_root;
use super::identity::{CLOSE_RANGE_UNSHARE, EINVAL, leaves_mounts, may_have_own_descriptors, unshare_call};
use super::{kernel_files, loops, masks, message, signals};
use crate::process::{exec, fork};
use crate::runtime::errno::{self, ret};
use crate::runtime::{call, identity};
use pm::sys::abi::*;

/// A system call by its number; the kernel-style result.
///
/// # Safety
/// As for the system call.
pub unsafe fn by_number(nr: usize, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, _] = args;
    // SAFETY: by contract, in each case.
    unsafe {
        match nr as u32 {
            __NR_execve => of_libc(exec::execveat_call(super::HERE, a as *const _, b as *const _, c as *const _, 0)),
            __NR_execveat => of_libc(exec::execveat_call(a as i32, b as *const _, c as *const _, d as *const _, e as i32)),
            // CLONE_VM: the child shares memory with us and does what it does raw.
            __NR_clone if a & 0x100 == 0 => fork::raw_clone(nr, args),
            // The same by `struct clone_args`, whose first word has the flags.
            __NR_clone3 if pm::faults::read(a as *const u64).is_ok_and(|flags| flags & 0x100 == 0) => fork::raw_clone(nr, args),
            #[cfg(target_arch = "x86_64")]
            __NR_fork | __NR_vfork => fork::raw_clone(__NR_fork as usize, [0; 6]),
            __NR_setuid | __NR_setgid | __NR_setreuid | __NR_setregid | __NR_setresuid | __NR_setresgid | __NR_setgroups
            | __NR_setfsuid | __NR_setfsgid | __NR_capset | __NR_setns => {
                leaves_mounts(nr as u32 == __NR_setns);
                let result = pm::sys::raw(nr, args);
                identity::ask_again();
                result
            }
            __NR_unshare => {
                let result = unshare_call(args);
                identity::ask_again();
                result
            }
            __NR_close_range if c & CLOSE_RANGE_UNSHARE != 0 && !may_have_own_descriptors() => -(EINVAL as isize),
            __NR_io_uring_setup | __NR_io_setup if !kernel_files::from_now_on() => -(kernel_files::ENOSYS as isize),
            __NR_chroot | __NR_pivot_root => change_root(nr, args),
            __NR_openat => kernel_files::opened(call::call(nr, args)),
            __NR_sendmsg => match message::send(a as i32, b as *const _, c as i32) {
                Some(result) => result,
                None => pm::sys::raw(nr, args),
            },
            __NR_ioctl => match loops::configured(a as i32, b, c) {
                Some(result) => result,
                None => call::call(nr, args),
            },
            __NR_recvmsg => {
                let room = message::room(b as *const _);
                message::received(call::call(nr, args), b as *mut _, room)
            }
            __NR_rt_sigaction => signals::by_number(args),
            __NR_rt_sigprocmask => masks::by_number(args),
            __NR_rt_sigsuspend | __NR_ppoll | __NR_pselect6 | __NR_epoll_pwait | __NR_epoll_pwait2 => {
                masks::wait_by_number(nr, args, |args| call::call(nr, args))
            }
            _ => call::call(nr, args),
        }
    }
}

/// What a function of libc returns, as the kernel would.
fn of_libc(result: i32) -> isize {
    if result == -1 { -(errno::get() as isize) } else { result as isize }
}

export! {
    fn syscall(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
        ret(by_number(nr, [a, b, c, d, e, f]))
    }
}
