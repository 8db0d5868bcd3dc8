//! fork, vfork, clone: a child of ours shares open files and offsets.
//!
//! Before libc's `fork`, every file system readies a copy of this process's
//! descriptors; the child claims it first thing. A child of `vfork` shares our memory
//! until it execs or works with what is ours ([`vfork_child`]). One made
//! by `clone` with `CLONE_VM` shares memory, so its calls go raw.

use crate::next;
use crate::process::hand_over;
use crate::runtime::front_end::PROCESS;
use crate::runtime::{
    alloc, child, dispatch, errno, identity, imports, kernel_root, operation, phase, placeholders, thread, tls, vfork_child,
};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use pm::sys::{self, abi::*};
use posix::ForkToken;

/// What stands ready for a child; ends in [`Ready::child`] or [`Ready::parent`].
struct Ready {
    token: Option<ForkToken>,
    /// Other threads go on meanwhile, and the child gets a table of the kernel's of its own.
    threaded: bool,
    /// This thread's robust list and number: other threads may ready a fork meanwhile.
    list: (usize, u32),
}

/// Whether this program may have more than one thread. Not where a child of `vfork` calls.
pub fn has_threads() -> bool {
    /// 0: not asked yet, 1: libc doesn't tell, else where it tells.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let mut told = TOLD.load(Relaxed);
    if told == 0 {
        // SAFETY: 0 is `RTLD_DEFAULT`: a program may have this variable for libc. The name is NUL-terminated.
        told = (unsafe { imports::dlsym(core::ptr::null_mut(), c"__libc_single_threaded".as_ptr()) } as usize).max(1);
        TOLD.store(told, Relaxed);
    }
    // SAFETY: a byte of libc's that is there for good.
    told == 1 || unsafe { (told as *const u8).read_volatile() } == 0
}

/// Readies the descriptors. The thread stays inside an operation until `child`
/// or `parent`, so that no handler runs in between.
fn prepare() -> Result<Ready, i32> {
    let tls = tls::get();
    vfork_child::settle(tls)?;
    if !phase::is_active(tls) {
        return Ok(Ready { token: None, threaded: false, list: (0, 0) });
    }
    operation::enter(tls);
    match PROCESS.fork_prepare(thread::state(tls)) {
        Ok(token) => {
            let list = (pm::mutex::robust_list(), pm::mutex::thread_number());
            Ok(Ready { token: Some(token), threaded: has_threads(), list })
        }
        Err(errno) => {
            operation::leave(tls);
            Err(errno.0)
        }
    }
}

impl Ready {
    fn child(self) {
        dispatch::set_here();
        let Some(token) = self.token else { return };
        let tls = tls::get();
        pm::mutex::renew_robust_list(self.list.0, self.list.1);
        child::begins(tls, token);
        if self.threaded {
            settle_beside_threads(tls);
        }
        operation::leave(tls);
    }

    /// `child`: its PID; not positive if `fork` failed.
    fn parent(self, child: isize) {
        let Some(token) = self.token else { return };
        let tls = tls::get();
        match u32::try_from(child) {
            Ok(pid @ 1..) => PROCESS.fork_done(token, pid),
            _ => PROCESS.fork_failed(thread::state(tls), token),
        }
        operation::leave(tls);
    }
}

/// In a child whose parent has other threads. The kernel copies its table of descriptors first and memory, with what
/// we know of that table, after it; what the file systems have readied was copied before either. A thread that opens
/// or closes meanwhile leaves the three unlike: the file systems' copy holds, the other two are made like it.
#[cold]
fn settle_beside_threads(tls: &tls::Tls) {
    let state = thread::state(tls);
    PROCESS.fork_settled(state);
    placeholders::settle_forked(|fd| PROCESS.descriptors.is_ours(fd as usize), |fd| PROCESS.fork_lost(state, fd));
}

/// In a child that begins in a user namespace of its own.
fn settle_identity(flags: u32) {
    if flags & CLONE_NEWUSER != 0 {
        identity::ask_again();
    }
}

/// For a child with mounts of its own, which may leave the kernel's mount of an image behind: what it has open goes along.
/// Whether that is kept here for it alone.
fn keeps_root(flags: u32) -> bool {
    flags & CLONE_NEWNS != 0 && hand_over::keep_root()
}

/// Makes a child by `make` (0 in the child, negative or −1 on failure).
#[inline(always)]
fn around(flags: u32, make: impl FnOnce() -> isize) -> isize {
    match prepare() {
        Err(errno) => -(errno as isize),
        Ok(mut ready) => {
            ready.threaded &= flags & CLONE_FILES == 0;
            let kept = keeps_root(flags);
            let result = make();
            if result == 0 {
                ready.child();
                settle_identity(flags);
            } else {
                ready.parent(result);
                if kept {
                    kernel_root::release();
                }
            }
            result
        }
    }
}

/// `fork` or `clone` without shared memory, by number; the kernel-style result.
///
/// # Safety
/// As for the system call.
pub unsafe fn raw_clone(nr: usize, args: [usize; 6]) -> isize {
    placeholders::flush();
    let flags = match nr as u32 {
        __NR_clone => args[0] as u32,
        // SAFETY: by contract: `struct clone_args` begins with the flags.
        __NR_clone3 => unsafe { (args[0] as *const u32).read_unaligned() },
        _ => 0,
    };
    // SAFETY: by contract.
    around(flags, || unsafe { sys::raw(nr, args) })
}

/// libc's `_Fork` (no handlers run): for our own children. −1 and `errno` on failure.
pub fn quiet_fork() -> c_int {
    type Fork = unsafe extern "C" fn() -> c_int;
    libc_fork(next!(Fork, "_Fork").or(next!(Fork, "fork")))
}

/// By libc's function, if there is one. −1 and `errno` on failure.
pub fn libc_fork(own: Option<unsafe extern "C" fn() -> c_int>) -> c_int {
    let Some(own) = own else {
        errno::set(pm::Errno::ENOSYS.0);
        return -1;
    };
    match prepare() {
        Err(errno) => {
            errno::set(errno);
            -1
        }
        Ok(ready) => {
            // SAFETY: libc's function without arguments.
            let pid = unsafe { own() };
            if pid == 0 {
                ready.child();
            } else {
                let saved = errno::get();
                ready.parent(pid as isize);
                errno::set(saved);
            }
            pid
        }
    }
}

pub(crate) type Entry = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type Clone =
    unsafe extern "C" fn(Entry, *mut c_void, c_int, *mut c_void, *mut c_int, *mut c_void, *mut c_int) -> c_int;

/// What a child of `clone` begins with; in our own memory, which a child
/// without `CLONE_VM` has a copy of.
struct Begin {
    entry: Entry,
    argument: *mut c_void,
    ready: Ready,
    flags: u32,
}

unsafe extern "C" fn begin(at: *mut c_void) -> c_int {
    // SAFETY: `libc_clone` below made it for us, in memory that this child has its own copy of; nobody reads it again.
    let begin = unsafe { at.cast::<Begin>().read() };
    begin.ready.child();
    settle_identity(begin.flags);
    // SAFETY: as the program asked.
    unsafe { (begin.entry)(begin.argument) }
}

/// libc's `clone`.
///
/// # Safety
/// As for `clone(2)`.
pub unsafe fn libc_clone(
    entry: Entry,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_int,
    area: *mut c_void,
    child: *mut c_int,
) -> c_int {
    let Some(own) = next!(Clone, "clone") else {
        errno::set(pm::Errno::ENOSYS.0);
        return -1;
    };
    let tls = tls::get();
    if let Err(errno) = vfork_child::settle(tls) {
        errno::set(errno);
        return -1;
    }
    placeholders::flush();
    if flags as u32 & CLONE_VM != 0 {
        // With CLONE_VFORK the child borrows this thread's words until it execs.
        let shares = flags as u32 & (CLONE_VFORK | CLONE_SETTLS) == CLONE_VFORK;
        // SAFETY: by contract.
        let make = || unsafe { own(entry, stack, flags, argument, parent, area, child) };
        dispatch::give_sites_up();
        return if shares { tls.aside.raw_during(make) } else { make() };
    }
    let Ready { token, threaded, list } = match prepare() {
        Err(errno) => {
            errno::set(errno);
            return -1;
        }
        Ok(ready) => ready,
    };
    let threaded = threaded && flags as u32 & CLONE_FILES == 0;
    let start = alloc::alloc(size_of::<Begin>()).cast::<Begin>();
    if start.is_null() {
        Ready { token, threaded, list }.parent(-1);
        errno::set(pm::Errno::ENOMEM.0);
        return -1;
    }
    // SAFETY: the block is large enough and aligned to 16.
    unsafe { start.write(Begin { entry, argument, ready: Ready { token, threaded, list }, flags: flags as u32 }) };
    let kept = keeps_root(flags as u32);
    // SAFETY: `begin` gets the block; the rest is the program's.
    let pid = unsafe { own(begin, stack, flags, start.cast(), parent, area, child) };
    let saved = errno::get();
    Ready { token, threaded, list }.parent(pid as isize);
    if kept {
        kernel_root::release();
    }
    // SAFETY: the child has its own copy.
    unsafe { alloc::free(start.cast()) };
    errno::set(saved);
    pid
}
