//! Who executes a path.

use crate::runtime::call::Served;
use crate::runtime::front_end::PROCESS;
use crate::runtime::{call, operation, thread, tls};
use core::ffi::c_char;
use pm::sys::abi::*;
use posix::Outcome;

/// Who executes a path.
pub enum Whose {
    /// Ours; 0 or why it can't be executed.
    Ours(isize),
    /// The kernel's, as the program named it.
    Kernel,
    /// The kernel's, by another name.
    KernelAt(i32, *const c_char),
}

/// Whose file that is, by asking whether it may be executed.
///
/// # Safety
/// `path` is the program's.
pub unsafe fn whose(dirfd: i32, path: *const c_char, flags: i32) -> Whose {
    let tls = tls::get();
    let args = access_args(dirfd, path, flags);
    operation::enter(tls);
    // SAFETY: by contract.
    let outcome = unsafe { PROCESS.handle(thread::state(tls), __NR_faccessat2 as usize, args) };
    operation::leave(tls);
    match outcome {
        Outcome::Done(result) => Whose::Ours(result),
        Outcome::Kernel => Whose::Kernel,
        Outcome::KernelWith { args, .. } => Whose::KernelAt(args[0] as i32, args[1] as *const c_char),
    }
}

/// What the execution of a path that the kernel could not find comes to, if it leads into a mount (through symlinks): 0, or why
/// it can't be executed.
///
/// # Safety
/// `path` is the program's.
pub unsafe fn leads_in(dirfd: i32, path: *const c_char, flags: i32) -> Option<isize> {
    // SAFETY: by contract.
    let Served { result, ours } = unsafe { call::serve(__NR_faccessat2 as usize, access_args(dirfd, path, flags)) };
    ours.then_some(result)
}

/// `faccessat2(dirfd, path, X_OK, AT_EACCESS | flags)`.
fn access_args(dirfd: i32, path: *const c_char, flags: i32) -> [usize; 6] {
    [dirfd as usize, path as usize, 1, AT_EACCESS as usize | flags as usize, 0, 0]
}
