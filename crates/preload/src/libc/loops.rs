//! Loop devices whose file is ours (`mount -o loop`, `losetup`): the kernel gets its own descriptor of it, through its mount.

use crate::process::hand_over;
use crate::runtime::{call, kernel, operation, tls, vfork_child};
use core::ffi::c_int;
use pm::faults;
use pm::sys::{self, abi::*};

const LOOP_SET_FD: usize = 0x4c00;
const LOOP_CHANGE_FD: usize = 0x4c06;
const LOOP_CONFIGURE: usize = 0x4c0a;
/// `struct loop_config`, in 32-bit words; the first is the descriptor.
const CONFIG: usize = 76;

/// Makes the call if it is one of these and about a file of ours that the kernel has; the kernel-style result.
///
/// # Safety
/// As for `ioctl`.
pub unsafe fn configured(device: c_int, request: usize, argument: usize) -> Option<isize> {
    if !matches!(request, LOOP_SET_FD | LOOP_CHANGE_FD | LOOP_CONFIGURE) || !vfork_child::serves(tls::get()) {
        return None;
    }
    let mut config = [0; CONFIG];
    if request == LOOP_CONFIGURE {
        // SAFETY: by contract.
        config = unsafe { faults::read(argument as *const [u32; CONFIG]) }.ok()?;
    }
    let fd = if request == LOOP_CONFIGURE { config[0] } else { argument as u32 };
    if !call::is_ours(fd as c_int) {
        return None;
    }
    let tls = tls::get();
    operation::enter(tls);
    let file = hand_over::open_in_kernel(tls, fd, false);
    operation::leave(tls);
    let file = file?;
    config[0] = file as u32;
    let argument = if request == LOOP_CONFIGURE { config.as_ptr() as usize } else { file };
    // SAFETY: by contract; the copy outlives the call.
    let result = unsafe { sys::raw(__NR_ioctl as usize, [device as usize, request, argument, 0, 0, 0]) };
    kernel::close(file);
    Some(result)
}
