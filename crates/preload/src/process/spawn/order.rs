//! What a spawn is asked for, and how a child does it.

use super::actions::Step;
use crate::runtime::kernel::Who;
use crate::runtime::{call, errno, kernel};
use crate::serve;
use core::ffi::{c_char, c_int, c_void};
use pm::sys::abi::*;

const HERE: i32 = -100;

/// An array of strings that ends with null.
pub type Strings = *const *mut c_char;

/// Everything that a spawn is asked for.
pub struct Order {
    pub file: *const c_char,
    pub actions: *const c_void,
    pub attr: *const c_void,
    pub argv: Strings,
    pub envp: Strings,
    pub search: bool,
}

/// What the attribute object says.
#[derive(Default)]
pub struct Attributes {
    pub flags: i16,
    group: c_int,
    defaults: [u64; 16],
    pub mask: [u64; 16],
    policy: c_int,
    priority: c_int,
}

const RESETIDS: i16 = 1;
const SETPGROUP: i16 = 2;
const SETSIGDEF: i16 = 4;
pub const SETSIGMASK: i16 = 8;
const SETSCHEDPARAM: i16 = 0x10;
const SETSCHEDULER: i16 = 0x20;
const SETSID: i16 = 0x80;

#[link(name = "c")]
unsafe extern "C" {
    fn posix_spawnattr_getflags(attr: *const c_void, out: *mut i16) -> c_int;
    fn posix_spawnattr_getpgroup(attr: *const c_void, out: *mut c_int) -> c_int;
    fn posix_spawnattr_getsigdefault(attr: *const c_void, out: *mut u64) -> c_int;
    fn posix_spawnattr_getsigmask(attr: *const c_void, out: *mut u64) -> c_int;
    fn posix_spawnattr_getschedpolicy(attr: *const c_void, out: *mut c_int) -> c_int;
    fn posix_spawnattr_getschedparam(attr: *const c_void, out: *mut c_int) -> c_int;
}

impl Attributes {
    /// The signals that the new program is to have with their defaults, as a mask.
    pub fn defaults(&self) -> u64 {
        if self.flags & SETSIGDEF != 0 { self.defaults[0] } else { 0 }
    }
}

/// # Safety
/// `attr` is null or an attribute object.
pub unsafe fn attributes(attr: *const c_void) -> Attributes {
    let mut out = Attributes::default();
    if attr.is_null() {
        return out;
    }
    // SAFETY: by contract; every place has room for what is asked.
    unsafe { posix_spawnattr_getflags(attr, &mut out.flags) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getpgroup(attr, &mut out.group) };
    // SAFETY: as above; a `sigset_t` is 128 bytes.
    unsafe { posix_spawnattr_getsigdefault(attr, out.defaults.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getsigmask(attr, out.mask.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getschedpolicy(attr, &mut out.policy) };
    // SAFETY: as above; a `sched_param` is one int.
    unsafe { posix_spawnattr_getschedparam(attr, &mut out.priority) };
    out
}

/// Scheduling, session, group, identity, in libc's order.
pub fn apply(attributes: &Attributes) -> Result<(), pm::Errno> {
    let flags = attributes.flags;
    let priority = &raw const attributes.priority;
    if flags & SETSCHEDULER != 0 {
        // SAFETY: the parameter outlives the call.
        unsafe { pm::call!(__NR_sched_setscheduler, 0, attributes.policy, priority) }?;
    } else if flags & SETSCHEDPARAM != 0 {
        // SAFETY: as above.
        unsafe { pm::call!(__NR_sched_setparam, 0, priority) }?;
    }
    if flags & SETSID != 0 {
        // SAFETY: takes no arguments.
        unsafe { pm::call!(__NR_setsid) }?;
    }
    if flags & SETPGROUP != 0 {
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setpgid, 0, attributes.group) }?;
    }
    if flags & RESETIDS != 0 {
        let gid = kernel::own(Who::Gid);
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setresgid, -1isize, gid, -1isize) }?;
        let uid = kernel::own(Who::User);
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setresuid, -1isize, uid, -1isize) }?;
    }
    Ok(())
}

/// One file action, in the child; the pipe at `report` stays, if there is one.
pub fn do_step(step: Step, report: Option<usize>) -> Result<(), i32> {
    let check = |result: isize| if result < 0 { Err(-result as i32) } else { Ok(result as c_int) };
    match step {
        Step::Close(fd) => {
            call::close(fd);
        }
        Step::Dup2(from, to) if from == to => {
            let flags = check(call::fcntl(from, F_GETFD, 0))?;
            check(call::fcntl(from, F_SETFD, flags & !(FD_CLOEXEC as c_int)))?;
        }
        Step::Dup2(from, to) => {
            check(call::dup3(from, to, 0))?;
        }
        Step::Open { fd, path, flags, mode } => {
            call::close(fd);
            // SAFETY: our copy of the path.
            let got = check(unsafe { serve!(__NR_openat, HERE, path, flags, mode) })?;
            if got != fd {
                check(call::dup3(got, fd, flags & O_CLOEXEC as c_int))?;
                call::close(got);
            }
        }
        Step::Chdir(path) => {
            // SAFETY: our copy of the path.
            check(unsafe { serve!(__NR_chdir, path) })?;
        }
        Step::Fchdir(fd) => {
            check(call::fchdir(fd))?;
        }
        Step::CloseFrom(first) => {
            let first = first.max(0) as usize;
            if let Some(report) = report.filter(|report| first < *report) {
                // SAFETY: no pointers.
                check(unsafe { serve!(__NR_close_range, first, report - 1, 0) })?;
            }
            // SAFETY: no pointers.
            check(unsafe { serve!(__NR_close_range, report.map_or(first, |report| first.max(report + 1)), u32::MAX, 0) })?;
        }
        Step::TcSetPgrp(fd) => {
            let group = kernel::own(Who::Group);
            // SAFETY: the group outlives the call.
            check(unsafe { serve!(__NR_ioctl, fd, 0x5410, &raw const group) })?;
        }
    }
    Ok(())
}

/// Waits for `pid`; its status, or −1.
pub fn wait(pid: c_int) -> c_int {
    let mut status = 0;
    loop {
        // SAFETY: the status outlives the call.
        match unsafe { pm::call!(__NR_wait4, pid, &raw mut status, 0, 0) } {
            Err(pm::Errno::EINTR) => continue,
            Ok(_) => return status,
            Err(errno) => {
                errno::set(errno.0);
                return -1;
            }
        }
    }
}
