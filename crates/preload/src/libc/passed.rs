//! Descriptors of ours sent to a program of the session that the kernel has no file for ([`Process::tell`](posix::Process::tell)).
//!
//! ```text
//! sent:     a descriptor of ours ──▶ O_PATH of a file in memory that tells which it is
//! received: such a one of our own user ──▶ opened again, under the number that the kernel gave it
//! ```
//! Whoever has no library gets `EBADF` from it for whatever it does.

use crate::runtime::front_end::PROCESS;
use crate::runtime::kernel::Who;
use crate::runtime::{kernel, operation, placeholders, thread, tls, vfork_child};
use crate::serve;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use pm::sys::abi::*;
use posix::TOLD;

const HERE: usize = AT_FDCWD as usize;

/// Opens the kernel's descriptor `fd` again by its link. `None` without `/proc`.
fn again(fd: usize, flags: u32) -> Option<usize> {
    let mut link = [0u8; 32];
    posix::proc_fd(fd as u32, &mut link);
    // SAFETY: a NUL-terminated path.
    usize::try_from(unsafe { placeholders::creating(__NR_openat, [HERE, link.as_ptr() as usize, flags as usize, 0, 0, 0]) }).ok()
}

/// What is sent for descriptor `fd` of ours. Within an operation.
pub fn carrier(fd: u32) -> Option<usize> {
    let told = PROCESS.tell(fd)?;
    let name = c"bypath".as_ptr() as usize;
    // SAFETY: a NUL-terminated name.
    let made = unsafe { placeholders::creating(__NR_memfd_create, [name, MFD_CLOEXEC as usize, 0, 0, 0, 0]) };
    let file = usize::try_from(made).ok()?;
    // SAFETY: the text outlives the call.
    let written = unsafe { pm::call!(__NR_write, file, told.as_ptr(), TOLD) };
    let carrier = if written == Ok(TOLD) { again(file, O_PATH | O_CLOEXEC) } else { None };
    kernel::close(file);
    carrier
}

/// After `fd` was received: what it stands for takes its place, if it is such a one.
pub fn received(fd: c_int) {
    let tls = tls::get();
    if !vfork_child::serves(tls) || !kernel::fcntl(fd as usize, F_GETFL, 0).is_ok_and(|flags| flags as u32 & O_PATH != 0) {
        return;
    }
    let cloexec = kernel::fcntl(fd as usize, F_GETFD, 0).is_ok_and(|flags| flags != 0);
    let Some(told) = told_by(fd as usize) else { return };
    operation::enter(tls);
    let opened = PROCESS.open_told(thread::state(tls), &told, cloexec);
    operation::leave(tls);
    if let Ok(opened) = opened {
        // SAFETY: no pointers.
        let _ = unsafe { serve!(__NR_dup3, opened, fd, if cloexec { O_CLOEXEC } else { 0 }) };
        crate::runtime::call::close(opened as c_int);
    }
}

/// The text of what `fd`, open as a path only, refers to, if that was made by this user, or by root.
fn told_by(fd: usize) -> Option<[u8; TOLD]> {
    let mut stat = MaybeUninit::<stat>::zeroed();
    // SAFETY: room for the answer.
    unsafe { pm::call!(__NR_fstat, fd, stat.as_mut_ptr()) }.ok()?;
    // SAFETY: zeroed, and filled by the kernel.
    let stat = unsafe { stat.assume_init() };
    let is_own = stat.st_uid == 0 || stat.st_uid == kernel::own(Who::EffectiveUser);
    if !is_own || stat.st_mode & S_IFMT != S_IFREG || stat.st_size as usize != TOLD {
        return None;
    }
    let file = again(fd, O_RDONLY | O_CLOEXEC | O_NONBLOCK)?;
    let mut told = [0u8; TOLD];
    // SAFETY: room for the answer.
    let read = unsafe { pm::call!(__NR_pread64, file, told.as_mut_ptr(), TOLD, 0) };
    kernel::close(file);
    (read == Ok(TOLD)).then_some(told)
}
