//! The one path of every call: ours by `posix`, all others to the kernel.
//!
//! ```text
//! call ─ nothing mounted, or "go raw" ─────────────────────────────▶ kernel
//!   └─ depth+1 ─ Process::handle ─ Done ─ depth−1 ─▶ result
//!                       ├ KernelWith ──────────────▶ kernel, other arguments
//!                       └ Kernel ─ depth−1 ─ placeholders ─▶ kernel
//!                                   └ failed: handle_after_failure ─ as above
//! ```
//! While `depth` is not 0 the signal handlers of this thread are put off
//! ([`crate::runtime::signals`]); kernel calls with the program's own arguments, which
//! may block, are made at depth 0.

use crate::runtime::front_end::PROCESS;
use crate::runtime::kernel::Word;
use crate::runtime::{count, errno, kernel, kernel_path, operation, phase, placeholders, signals, thread, tls, vfork_child};
use pm::sys::{self, abi::*};
use posix::{Outcome, ThreadState};

const EINTR: isize = -4;
const EFAULT: isize = -14;
const EINVAL: isize = -22;

/// A result and who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// As the kernel would return it.
    pub result: isize,
    /// Served by us; the kernel was not asked.
    pub ours: bool,
}

/// Makes kernel call `nr`: serves it if its path or descriptor is ours, else
/// makes the raw system call. Returns the kernel's result (`-errno` on failure).
///
/// # Safety
/// As for the system call: pointers must be what the kernel expects.
#[inline]
pub unsafe fn call(nr: usize, args: [usize; 6]) -> isize {
    // SAFETY: by contract.
    unsafe { serve(nr, args).result }
}

/// As [`call`], and says whose result it is.
///
/// # Safety
/// As for [`call`].
#[inline(never)]
pub unsafe fn serve(nr: usize, args: [usize; 6]) -> Served {
    // SAFETY: by contract.
    unsafe { serve_by(nr, args, |thread| PROCESS.handle(thread, nr, args)) }
}

/// As [`serve`], where the handler of the call is known: without the switch
/// over all numbers.
///
/// The handler has arguments of its own: copied from `args`, which the kernel's turn has the address
/// of, they would be read from memory in pieces wider than they had just been stored, and wait for it.
///
/// # Safety
/// As for [`call`]; `handler` is that of call `nr` with these arguments.
#[inline(always)]
pub unsafe fn serve_by(nr: usize, args: [usize; 6], handler: impl FnOnce(&ThreadState) -> Outcome) -> Served {
    let tls = tls::get();
    if !phase::is_active(tls) {
        // SAFETY: by contract.
        return unsafe { inactive(tls, nr, args) };
    }
    operation::enter(tls);
    let state = thread::state(tls);
    match handler(state) {
        Outcome::Done(result) if result != EINTR && result != EFAULT => {
            count::served(tls);
            operation::leave(tls);
            Served { result, ours: true }
        }
        // SAFETY: by contract.
        Outcome::Kernel => unsafe { kernel(tls, nr, args) },
        // SAFETY: by contract.
        outcome => unsafe { unusual(tls, nr, args, outcome) },
    }
}

/// As [`serve_by`], for calls whose first argument is their only descriptor and
/// which have no path: one look at the table tells whose they are.
///
/// # Safety
/// As for [`serve_by`].
#[inline(always)]
pub unsafe fn serve_fd(nr: usize, args: [usize; 6], handler: impl FnOnce(&ThreadState) -> Outcome) -> isize {
    let tls = tls::get();
    if !phase::is_active(tls) {
        // SAFETY: by contract.
        return unsafe { inactive(tls, nr, args) }.result;
    }
    if PROCESS.descriptors.is_ours(args[0] as u32 as usize) {
        // SAFETY: by contract.
        return unsafe { serve_by(nr, args, handler) }.result;
    }
    if let Some(result) = placeholders::before_kernel(nr, args) {
        return result;
    }
    // SAFETY: by contract.
    let result = unsafe { sys::raw(nr, args) };
    if result == EFAULT && brought(tls, nr, &args) {
        // SAFETY: by contract.
        return unsafe { sys::raw(nr, args) };
    }
    result
}

/// Whether a buffer of a call that failed with `EFAULT` lies in a mapping of ours whose pages are put in place when they
/// are touched, and was put in place now: then the call is made once more.
#[cold]
#[inline(never)]
fn brought(tls: &tls::Tls, nr: usize, args: &[usize; 6]) -> bool {
    operation::enter(tls);
    let brought = PROCESS.bring_buffers(thread::state(tls), nr, args);
    operation::leave(tls);
    brought
}

/// Makes a call by libc's own function, and once more where [`brought`] says so.
#[inline(always)]
pub fn by_libc(nr: u32, args: [usize; 6], next: impl Fn() -> isize) -> isize {
    let result = next();
    if result == -1 { again_by_libc(nr, args, &next) } else { result }
}

#[cold]
#[inline(never)]
fn again_by_libc(nr: u32, args: [usize; 6], next: &dyn Fn() -> isize) -> isize {
    let (errno, tls) = (errno::get(), tls::get());
    if errno != -EFAULT as i32 || !phase::is_active(tls) || !brought(tls, nr as usize, &args) {
        errno::set(errno);
        return -1;
    }
    next()
}

/// As [`serve_by`], for calls with one path, in the second argument.
///
/// # Safety
/// As for [`serve_by`].
#[inline(always)]
pub unsafe fn serve_path(nr: usize, args: [usize; 6], handler: impl FnOnce(&ThreadState) -> Outcome) -> isize {
    let tls = tls::get();
    // SAFETY: by contract.
    if phase::is_active(tls) && unsafe { kernel_path::is_kernel_path(args[1]) } {
        if let Some(result) = placeholders::before_kernel(nr, args) {
            return result;
        }
        // SAFETY: by contract.
        let result = unsafe { sys::raw(nr, args) };
        if may_lead_in(result) {
            // SAFETY: by contract.
            return unsafe { second_step(tls, nr, args, result) }.result;
        }
        return result;
    }
    // SAFETY: by contract.
    unsafe { serve_by(nr, args, handler) }.result
}

/// Nothing is mounted, or the thread goes raw: the kernel's, unless a child by `vfork` wants what is ours.
///
/// # Safety
/// As for [`call`].
#[cold]
#[inline(never)]
unsafe fn inactive(tls: &tls::Tls, nr: usize, args: [usize; 6]) -> Served {
    // SAFETY: by contract.
    match unsafe { vfork_child::serve(tls, nr, args) } {
        // SAFETY: by contract.
        Ok(None) => unsafe { serve(nr, args) },
        Ok(Some(result)) => Served { result, ours: false },
        Err(errno) => Served { result: -(errno as isize), ours: true },
    }
}

/// Interrupted, or rewritten for the kernel. Leaves the operation.
///
/// # Safety
/// As for [`call`]; `outcome` is the answer to these arguments.
#[cold]
unsafe fn unusual(tls: &tls::Tls, nr: usize, args: [usize; 6], outcome: Outcome) -> Served {
    match outcome {
        Outcome::KernelWith { nr, args } => {
            // SAFETY: `posix` made these arguments.
            let result = unsafe { rewritten(tls, nr, args) };
            Served { result, ours: false }
        }
        Outcome::Done(EFAULT) => {
            let state = thread::state(tls);
            let again = PROCESS.bring_buffers(state, nr, &args);
            // SAFETY: by contract.
            let second = if again { unsafe { PROCESS.handle(state, nr, args) } } else { outcome };
            operation::leave(tls);
            Served { result: if let Outcome::Done(result) = second { result } else { EFAULT }, ours: true }
        }
        Outcome::Done(result) => {
            let again = result == EINTR && signals::all_restart(tls);
            operation::leave(tls);
            if again {
                // SAFETY: by contract.
                return unsafe { serve(nr, args) };
            }
            Served { result, ours: true }
        }
        Outcome::Kernel => {
            operation::leave(tls);
            // SAFETY: by contract.
            Served { result: unsafe { sys::raw(nr, args) }, ours: false }
        }
    }
}

/// The kernel's turn, with the program's own arguments. Leaves the operation.
///
/// # Safety
/// As for the system call.
#[inline(always)]
unsafe fn kernel(tls: &tls::Tls, nr: usize, args: [usize; 6]) -> Served {
    if let Some(result) = placeholders::before_kernel(nr, args) {
        operation::leave(tls);
        return Served { result, ours: false };
    }
    operation::leave(tls);
    // SAFETY: by contract.
    let result = unsafe { sys::raw(nr, args) };
    if may_lead_in(result) {
        // SAFETY: by contract.
        return unsafe { second_step(tls, nr, args, result) };
    }
    if result == EFAULT && brought(tls, nr, &args) {
        // SAFETY: by contract.
        return Served { result: unsafe { sys::raw(nr, args) }, ours: false };
    }
    if result >= 0 && matches!(nr as u32, __NR_close | __NR_close_range) {
        placeholders::kernel_closed(args[0]);
    }
    Served { result, ours: false }
}

/// The kernel failed in a way that a path into a mount explains.
#[cold]
unsafe fn second_step(tls: &tls::Tls, nr: usize, args: [usize; 6], result: isize) -> Served {
    operation::enter(tls);
    // SAFETY: the caller's arguments.
    match unsafe { PROCESS.handle_after_failure(thread::state(tls), nr, args, -result as i32) } {
        Outcome::Done(result) => {
            operation::leave(tls);
            Served { result, ours: true }
        }
        Outcome::Kernel => {
            operation::leave(tls);
            Served { result, ours: false }
        }
        // SAFETY: `posix` made these arguments.
        Outcome::KernelWith { nr, args } => Served { result: unsafe { rewritten(tls, nr, args) }, ours: false },
    }
}

/// A kernel call whose paths lie in the thread's state. Leaves the operation.
///
/// `open` may block for long (a FIFO): its path is copied first, so that the
/// handlers of this thread may run meanwhile. The others don't block, and keep
/// the state by staying inside the operation.
///
/// # Safety
/// As for the system call.
#[cold]
unsafe fn rewritten(tls: &tls::Tls, nr: usize, args: [usize; 6]) -> isize {
    if let Some(result) = placeholders::before_kernel(nr, args) {
        operation::leave(tls);
        return result;
    }
    if nr == __NR_openat as usize {
        let mut path = [0u8; 4096];
        let mut len = 0;
        while len < path.len() - 1 {
            // SAFETY: a NUL-terminated string of `posix`.
            let byte = unsafe { *(args[1] as *const u8).add(len) };
            if byte == 0 {
                break;
            }
            path[len] = byte;
            len += 1;
        }
        operation::leave(tls);
        // SAFETY: the same call with a copy of the path.
        return unsafe { sys::raw(nr, [args[0], path.as_ptr() as usize, args[2], args[3], args[4], args[5]]) };
    }
    // SAFETY: by contract.
    let result = unsafe { sys::raw(nr, args) };
    operation::leave(tls);
    result
}

/// `ENOENT`, `ENOTDIR`, `ELOOP`: failures that a path into a mount explains.
#[inline]
fn may_lead_in(result: isize) -> bool {
    matches!(result, -2 | -20 | -40)
}

/// Whether descriptor `fd` of this process is ours.
#[inline(always)]
pub fn is_ours(fd: i32) -> bool {
    let tls = tls::get();
    if phase::is_active(tls) {
        return PROCESS.descriptors.is_ours(fd as u32 as usize);
    }
    vfork_child::is_ours(tls, fd)
}

/// Whether any descriptor or the working directory is ours.
pub fn any_ours() -> bool {
    phase::is_mounted() && (PROCESS.descriptors.get(posix::CWD_FD).is_some() || placeholders::in_use() != 0)
}

/// Whether `path` leads into one of our mounts: by its text, or through a
/// symlink or the working directory. What can't be found is where its parent
/// would be; a path that can't be read is not ours.
///
/// # Safety
/// `path` is a NUL-terminated string of the program, or null.
pub unsafe fn path_is_ours(dirfd: i32, path: *const u8) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: by contract.
    unsafe { serve(__NR_faccessat as usize, [dirfd as usize, path as usize, 0, 0, 0, 0]).ours }
}

/// `close`.
pub fn close(fd: impl Word) -> isize {
    // SAFETY: no pointers.
    unsafe { call(__NR_close as usize, [fd.word(), 0, 0, 0, 0, 0]) }
}

/// `fcntl` of flags and duplicates; `EINVAL` for any other.
pub fn fcntl(fd: impl Word, operation: u32, argument: impl Word) -> isize {
    if !kernel::is_plain_fcntl(operation) {
        return EINVAL;
    }
    // SAFETY: none of these operations takes an address.
    unsafe { call(__NR_fcntl as usize, [fd.word(), operation as usize, argument.word(), 0, 0, 0]) }
}

/// `dup3`.
pub fn dup3(from: impl Word, to: impl Word, flags: impl Word) -> isize {
    // SAFETY: no pointers.
    unsafe { call(__NR_dup3 as usize, [from.word(), to.word(), flags.word(), 0, 0, 0]) }
}

/// `fchdir`.
pub fn fchdir(fd: impl Word) -> isize {
    // SAFETY: no pointers.
    unsafe { call(__NR_fchdir as usize, [fd.word(), 0, 0, 0, 0, 0]) }
}

/// How many descriptors this process may have; a bound for loops that close all.
pub fn descriptor_limit() -> i32 {
    let mut limit = [0u64; 2];
    // RLIMIT_NOFILE is 7.
    // SAFETY: the array is a `struct rlimit64`.
    match unsafe { pm::call!(__NR_prlimit64, 0, 7, 0, limit.as_mut_ptr()) } {
        Ok(_) => limit[0].min(1 << 20) as i32,
        Err(_) => 1024,
    }
}

/// `direct!(handler, __NR_x, a, b, …)`: as `serve!`, straight to the handler of
/// the call; `direct!(fd: …)` for calls on one descriptor, `direct!(path: …)` for
/// those with one path, in the second argument. Must stand in `unsafe`. Arguments are taken twice.
#[macro_export]
macro_rules! direct {
    (fd: $handler:ident, $nr:expr $(, $a:expr)*) => {
        $crate::runtime::call::serve_fd($nr as usize, $crate::direct!(@ $($a),*), $crate::direct!(@by $handler $(, $a)*))
    };
    (path: $handler:ident, $nr:expr $(, $a:expr)*) => {
        $crate::runtime::call::serve_path($nr as usize, $crate::direct!(@ $($a),*), $crate::direct!(@by $handler $(, $a)*))
    };
    (@by $handler:ident $(, $a:expr)*) => {
        |thread| {
            let args = $crate::direct!(@ $($a),*);
            // SAFETY: the program's own arguments.
            #[allow(unused_unsafe)]
            let outcome = unsafe { $crate::runtime::front_end::PROCESS.$handler(thread, args) };
            outcome
        }
    };
    (@ $($a:expr),*) => { $crate::direct!(@six $($a as usize,)* 0, 0, 0, 0, 0, 0,) };
    (@six $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr, $($rest:tt)*) => { [$a, $b, $c, $d, $e, $f] };
    ($handler:ident, $nr:expr $(, $a:expr)*) => {
        $crate::runtime::call::serve_by($nr as usize, $crate::direct!(@ $($a),*), $crate::direct!(@by $handler $(, $a)*)).result
    };
}

/// `serve!(__NR_x, a, b, …)`: [`call`] with up to six arguments, each cast to
/// `usize`; the kernel-style result. Must stand in `unsafe`.
#[macro_export]
macro_rules! serve {
    ($nr:expr) => { $crate::serve!(@ $nr, 0, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr) => { $crate::serve!(@ $nr, $a, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr) => { $crate::serve!(@ $nr, $a, $b, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => { $crate::serve!(@ $nr, $a, $b, $c, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, $e, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { $crate::serve!(@ $nr, $a, $b, $c, $d, $e, $f) };
    (@ $nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::runtime::call::call($nr as usize, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize])
    };
}
