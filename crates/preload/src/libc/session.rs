//! `daemon`, `login_tty`, `forkpty`: libc forks and moves the standard
//! descriptors inside them, past our `fork` and `dup2`. And `_exit`, the last
//! moment to add what was counted and to stamp mapped files.

use crate::runtime::{call, errno};
use core::ffi::{c_char, c_int, c_void};

use pm::Errno;
use pm::sys::abi;

use crate::{next, serve};

unsafe extern "C" {
    /// Our own.
    fn fork() -> c_int;
}

type Openpty = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;

/// Makes a terminal the controlling one (of `asm-generic/ioctls.h`).
const TIOCSCTTY: usize = 0x540e;

fn exit_at_once(status: c_int) -> ! {
    let tls = crate::runtime::tls::get();
    crate::runtime::count::add(tls);
    crate::runtime::stores::at_end(tls);
    loop {
        // SAFETY: ends the process; no exit handlers, as `_exit`.
        let _ = unsafe { pm::call!(abi::__NR_exit_group, status) };
    }
}

/// `_exit(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    exit_at_once(status)
}

/// `_Exit(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    exit_at_once(status)
}

/// Puts `fd` on 0, 1 and 2, and closes it elsewhere.
fn make_standard(fd: c_int) -> isize {
    for number in 0..=2 {
        if number != fd {
            let moved = call::dup3(fd, number, 0);
            if moved < 0 {
                return moved;
            }
        }
    }
    if fd > 2 {
        call::close(fd);
    }
    0
}

/// The null device on the standard descriptors; `ENODEV` if it is not what it should be.
fn use_null_device() -> isize {
    // SAFETY: a string.
    let fd = unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, c"/dev/null".as_ptr(), abi::O_RDWR, 0) };
    if fd < 0 {
        return fd;
    }
    let mut stat = core::mem::MaybeUninit::<abi::stat>::zeroed();
    // SAFETY: room for the answer.
    let code = unsafe { serve!(abi::__NR_fstat, fd, stat.as_mut_ptr()) };
    // SAFETY: zeroed, and plain numbers.
    let stat = unsafe { stat.assume_init_ref() };
    if code < 0 || stat.st_mode & abi::S_IFMT != abi::S_IFCHR || stat.st_rdev != 0x103 {
        call::close(fd);
        return if code < 0 { code } else { -(Errno::ENODEV.0 as isize) };
    }
    make_standard(fd as c_int)
}

/// `daemon(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(stay_here: c_int, keep_descriptors: c_int) -> c_int {
    // SAFETY: as the program's own `fork`.
    match unsafe { fork() } {
        -1 => return -1,
        0 => {}
        _ => exit_at_once(0),
    }
    // SAFETY: no arguments.
    if errno::ret(unsafe { serve!(abi::__NR_setsid) }) < 0 {
        return -1;
    }
    if stay_here == 0 {
        // SAFETY: a string.
        unsafe { serve!(abi::__NR_chdir, c"/".as_ptr()) };
    }
    if keep_descriptors == 0 { errno::ret_int(use_null_device()) } else { 0 }
}

/// `login_tty(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn login_tty(fd: c_int) -> c_int {
    // SAFETY: no arguments; fails harmlessly for a session leader.
    unsafe { serve!(abi::__NR_setsid) };
    // SAFETY: no pointers.
    if errno::ret(unsafe { serve!(abi::__NR_ioctl, fd, TIOCSCTTY, 0) }) < 0 {
        return -1;
    }
    errno::ret_int(make_standard(fd))
}

/// `forkpty(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    control_out: *mut c_int,
    name: *mut c_char,
    termios: *const c_void,
    size: *const c_void,
) -> c_int {
    let (mut control, mut terminal) = (-1, -1);
    let Some(openpty) = next!(Openpty, "openpty") else {
        errno::set(Errno::ENOSYS.0);
        return -1;
    };
    // SAFETY: the program's pointers, and two of ours.
    if unsafe { openpty(&raw mut control, &raw mut terminal, name, termios, size) } < 0 {
        return -1;
    }
    // SAFETY: as the program's own `fork`.
    let pid = unsafe { fork() };
    let unused = if pid == 0 { control } else { terminal };
    let saved = errno::get();
    call::close(unused);
    match pid {
        0 => {
            // SAFETY: no pointers.
            if unsafe { login_tty(terminal) } < 0 {
                exit_at_once(1);
            }
        }
        -1 => {
            call::close(control);
            errno::set(saved);
        }
        // SAFETY: the program's pointer.
        _ => unsafe { *control_out = control },
    }
    pid
}
