//! System calls whose arguments are numbers: they touch no memory of the program, so they are safe to make.

use pm::Errno;
use pm::sys::{self, abi::*};

/// A number as the kernel takes it.
pub trait Word: Copy {
    /// In a register.
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Word for $kind {
            #[inline(always)]
            fn word(self) -> usize {
                self as usize
            }
        }
    )*};
}

numbers! { i32 u32 isize usize }

/// Closes one of the kernel's descriptors.
pub fn close(fd: impl Word) {
    // SAFETY: no pointers.
    let _ = unsafe { pm::call!(__NR_close, fd.word()) };
}

/// Whether the third argument of this `fcntl` is no address.
pub fn is_plain_fcntl(operation: u32) -> bool {
    matches!(operation, F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL | F_SETFL)
}

/// `fcntl` of flags and duplicates; `EINVAL` for any other.
pub fn fcntl(fd: impl Word, operation: u32, argument: impl Word) -> Result<usize, Errno> {
    if !is_plain_fcntl(operation) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: none of these operations takes an address.
    unsafe { pm::call!(__NR_fcntl, fd.word(), operation, argument.word()) }
}

/// `dup3`.
pub fn dup3(from: impl Word, to: impl Word, flags: impl Word) -> Result<usize, Errno> {
    // SAFETY: no pointers.
    unsafe { pm::call!(__NR_dup3, from.word(), to.word(), flags.word()) }
}

/// `fchdir`.
pub fn fchdir(fd: impl Word) -> Result<usize, Errno> {
    // SAFETY: no pointers.
    unsafe { pm::call!(__NR_fchdir, fd.word()) }
}

/// Who this process or thread is.
#[derive(Clone, Copy)]
pub enum Who {
    /// Process.
    Process,
    /// Thread.
    Thread,
    /// Process group.
    Group,
    /// Session.
    Session,
    /// Real user.
    User,
    /// Real group of users.
    Gid,
    /// Effective user.
    EffectiveUser,
    /// Effective group of users.
    EffectiveGid,
}

/// A number of this process's.
pub fn own(who: Who) -> u32 {
    let nr = match who {
        Who::Process => __NR_getpid,
        Who::Thread => __NR_gettid,
        Who::Group => __NR_getpgid,
        Who::Session => __NR_getsid,
        Who::User => __NR_getuid,
        Who::Gid => __NR_getgid,
        Who::EffectiveUser => __NR_geteuid,
        Who::EffectiveGid => __NR_getegid,
    };
    // SAFETY: these take no arguments, or 0 for this process.
    unsafe { sys::raw(nr as usize, [0; 6]) as u32 }
}
