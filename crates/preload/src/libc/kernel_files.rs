//! Programs that hand descriptors to the kernel by number: rings (io_uring) and
//! Linux AIO. What the kernel does there passes the library by.
//!
//! When a program makes its first ring, the regular files that it has open
//! become the kernel's for good, opened through the kernel's mount at the same
//! path, and so does each that it opens from then on. Its directories and paths
//! stay ours: both ways lead to the same files. Where a mount of the session has
//! files that cannot become the kernel's, there are no rings (`ENOSYS`), and programs
//! do without, as in a container that forbids them: a ring that answers `EBADF` for
//! each request is one that databases try again for ever (decision 0078).
//!
//! A ring that is made without any function of libc, liburing or libaio is not seen.

use crate::next;
use crate::process::hand_over;
use crate::runtime::front_end::PROCESS;
use crate::runtime::{kernel, operation, thread, tls, vfork_child};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use pm::sys::abi::*;
use posix::FD_MAX;

static WANTED: AtomicBool = AtomicBool::new(false);

/// What came of an `open`, on its way to the program.
#[inline(always)]
pub fn opened(result: isize) -> isize {
    if WANTED.load(Relaxed) && !tls::get().is_vfork_child() {
        to_kernel(result);
    }
    result
}

/// The program wants a ring. `false`: it gets none.
#[cold]
pub fn from_now_on() -> bool {
    crate::runtime::stores::not_seen();
    if !vfork_child::serves(tls::get()) {
        return true;
    }
    // Nor does a ring leave out syncs, where they are to be left out.
    let is_ruled_out = PROCESS.leaves_out_syncs();
    if is_ruled_out || PROCESS.mounts.iter().any(|(_, mount)| !mount.is_kernels && !mount.is_served()) {
        return false;
    }
    if !WANTED.swap(true, Relaxed) {
        PROCESS.descriptors.range(0, FD_MAX).for_each(|(fd, _)| to_kernel(fd as isize));
    }
    true
}

/// The kernel gets a file of its own on `fd`, if that is a regular one of ours.
#[cold]
fn to_kernel(fd: isize) {
    let Some(entry) = u32::try_from(fd).ok().and_then(|fd| PROCESS.descriptors.get(fd)) else { return };
    if fd >= FD_MAX as isize || entry.kind() != base::Kind::Regular || entry.path_only() {
        return;
    }
    let tls = tls::get();
    operation::enter(tls);
    if let Some(file) = hand_over::open_in_kernel(tls, fd as u32, false) {
        let cloexec = if entry.cloexec() { O_CLOEXEC } else { 0 };
        // In the placeholder's place at once: the number is never free.
        if kernel::dup3(file, fd, cloexec).is_ok() {
            PROCESS.became_kernels(thread::state(tls), fd as u32);
        }
        kernel::close(file);
    }
    operation::leave(tls);
}

type Queue = unsafe extern "C" fn(c_uint, *mut c_void, usize) -> c_int;
type QueueIn = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void, *mut c_void, usize) -> c_int;
type Setup = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
/// What the kernel says where there are no rings.
pub const ENOSYS: c_int = 38;

// The functions of liburing and libaio that make system calls by themselves;
// negated error numbers, as theirs are.
export! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: usize) -> c_int {
        next!(Queue, "io_uring_queue_init").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(entries, ring, flags))
    }
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: usize) -> c_int {
        next!(Queue, "io_uring_queue_init_params").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(entries, ring, parameters))
    }
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, bytes: usize) -> c_int {
        next!(QueueIn, "io_uring_queue_init_mem").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(entries, ring, parameters, memory, bytes))
    }
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        next!(Setup, "io_uring_setup").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(entries as c_int, parameters))
    }
    fn io_setup(events: c_int, context: *mut c_void) -> c_int {
        next!(Setup, "io_setup").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(events, context))
    }
    fn io_queue_init(events: c_int, context: *mut c_void) -> c_int {
        next!(Setup, "io_queue_init").filter(|_| from_now_on()).map_or(-ENOSYS, |next| next(events, context))
    }
}
