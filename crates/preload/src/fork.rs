//! fork, vfork, clone: a child of ours shares descriptions and offsets.
//!
//! Before libc's `fork`, every file system readies a copy of this process's
//! descriptors; the child claims it first thing. A child of `vfork` shares our memory
//! until it execs or works with what is ours ([`crate::guest`]). One made
//! by `clone` with `CLONE_VM` shares memory, so its calls go raw.

use crate::door::PROCESS;
use crate::errno;
use crate::{alloc, count, guest, init, libc, next, placeholders, signals, thread, tls};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use pm::sys::{self, abi::*};
use posix::ForkToken;

/// What stands ready for a child; ends in [`Ready::child`] or [`Ready::parent`].
struct Ready {
    token: Option<ForkToken>,
    /// Other threads go on meanwhile, and the child gets a table of the kernel's of its own.
    threaded: bool,
}

/// Whether this program may have more than one thread. Not where a child of `vfork` calls.
fn has_threads() -> bool {
    /// 0: not asked yet, 1: libc doesn't tell, else where it tells.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let mut told = TOLD.load(Relaxed);
    if told == 0 {
        // SAFETY: 0 is `RTLD_DEFAULT`: a program may have this variable for libc. The name is NUL-terminated.
        told = (unsafe { libc::dlsym(core::ptr::null_mut(), c"__libc_single_threaded".as_ptr()) } as usize).max(1);
        TOLD.store(told, Relaxed);
    }
    // SAFETY: a byte of libc's that is there for good.
    told == 1 || unsafe { (told as *const u8).read_volatile() } == 0
}

/// Readies the descriptors. The thread stays inside an operation until `child`
/// or `parent`, so that no handler runs in between.
fn prepare() -> Result<Ready, i32> {
    let tls = tls::get();
    guest::settle(tls)?;
    if !init::is_active(tls) {
        return Ok(Ready { token: None, threaded: false });
    }
    tls::enter(tls);
    match PROCESS.fork_prepare(thread::state(tls)) {
        Ok(token) => Ok(Ready { token: Some(token), threaded: has_threads() }),
        Err(errno) => {
            tls::leave(tls);
            Err(errno.0)
        }
    }
}

impl Ready {
    fn child(self) {
        let Some(token) = self.token else { return };
        let tls = tls::get();
        begins(tls, token);
        if self.threaded {
            settle_beside_threads(tls);
        }
        tls::leave(tls);
    }

    /// `child`: its PID; not positive if `fork` failed.
    fn parent(self, child: isize) {
        let Some(token) = self.token else { return };
        let tls = tls::get();
        match u32::try_from(child) {
            Ok(pid @ 1..) => PROCESS.fork_done(token, pid),
            _ => PROCESS.fork_failed(thread::state(tls), token),
        }
        tls::leave(tls);
    }
}

/// First thing in a child with memory of its own, within an operation.
pub fn begins(tls: &tls::Tls, token: ForkToken) {
    alloc::after_fork();
    thread::reset(tls);
    PROCESS.fork_child(token);
    signals::forget(tls);
    count::forget(tls);
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
        crate::symbols::identity::ask_again();
    }
}

/// Makes a child by `make` (0 in the child, negative or −1 on failure).
#[inline(always)]
fn around(flags: u32, make: impl FnOnce() -> isize) -> isize {
    match prepare() {
        Err(errno) => -(errno as isize),
        Ok(mut ready) => {
            ready.threaded &= flags & CLONE_FILES == 0;
            let result = make();
            if result == 0 {
                ready.child();
                settle_identity(flags);
            } else {
                ready.parent(result);
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

fn libc_fork(own: Option<unsafe extern "C" fn() -> c_int>) -> c_int {
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

#[unsafe(no_mangle)]
extern "C" fn fork() -> c_int {
    libc_fork(next!(unsafe extern "C" fn() -> c_int, "fork"))
}

#[unsafe(no_mangle)]
extern "C" fn __fork() -> c_int {
    fork()
}

/// The child returns first, and what it calls then lies where our frame was: so the return
/// address waits in a register, which the kernel keeps.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {prepare}",
        "add rsp, 8",
        "test eax, eax",
        "jz {fork}",
        // Signals are blocked from here until `arrive` and `resume`.
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "sub rsp, 8",
        "test rax, rax",
        "jz 2f",
        "mov rdi, rax",
        "call {resume}",
        "add rsp, 8",
        "ret",
        "2:",
        "call {arrive}",
        "add rsp, 8",
        "ret",
        prepare = sym guest::prepare,
        fork = sym as_fork,
        arrive = sym guest::arrive,
        number = const __NR_vfork,
        resume = sym guest::resume,
    )
}

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn vfork() -> c_int {
    fork()
}

#[cfg(target_arch = "x86_64")]
extern "C" fn as_fork() -> c_int {
    fork()
}

#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> c_int {
    core::arch::naked_asm!("jmp {vfork}", vfork = sym vfork)
}

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn __vfork() -> c_int {
    fork()
}

#[unsafe(no_mangle)]
extern "C" fn _Fork() -> c_int {
    quiet_fork()
}

pub(crate) type Entry = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type Clone =
    unsafe extern "C" fn(Entry, *mut c_void, c_int, *mut c_void, *mut c_int, *mut c_void, *mut c_int) -> c_int;

/// What a child of [`clone`] begins with; in our own memory, which a child
/// without `CLONE_VM` has a copy of.
struct Begin {
    entry: Entry,
    argument: *mut c_void,
    ready: Ready,
    flags: u32,
}

unsafe extern "C" fn begin(at: *mut c_void) -> c_int {
    // SAFETY: `clone` below made it for us.
    let begin = unsafe { at.cast::<Begin>().read() };
    begin.ready.child();
    settle_identity(begin.flags);
    // SAFETY: as the program asked.
    unsafe { (begin.entry)(begin.argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
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
    if let Err(errno) = guest::settle(tls) {
        errno::set(errno);
        return -1;
    }
    placeholders::flush();
    if flags as u32 & CLONE_VM != 0 {
        // With CLONE_VFORK the child borrows this thread's words until it execs.
        let shares = flags as u32 & (CLONE_VFORK | CLONE_SETTLS) == CLONE_VFORK;
        // SAFETY: by contract.
        let make = || unsafe { own(entry, stack, flags, argument, parent, area, child) };
        return if shares { tls.aside.raw_during(make) } else { make() };
    }
    let Ready { token, threaded } = match prepare() {
        Err(errno) => {
            errno::set(errno);
            return -1;
        }
        Ok(ready) => ready,
    };
    let threaded = threaded && flags as u32 & CLONE_FILES == 0;
    let start = alloc::alloc(size_of::<Begin>()).cast::<Begin>();
    if start.is_null() {
        Ready { token, threaded }.parent(-1);
        errno::set(pm::Errno::ENOMEM.0);
        return -1;
    }
    // SAFETY: the block is large enough and aligned to 16.
    unsafe { start.write(Begin { entry, argument, ready: Ready { token, threaded }, flags: flags as u32 }) };
    // SAFETY: `begin` gets the block; the rest is the program's.
    let pid = unsafe { own(begin, stack, flags, start.cast(), parent, area, child) };
    let saved = errno::get();
    Ready { token, threaded }.parent(pid as isize);
    // SAFETY: the child has its own copy.
    unsafe { alloc::free(start.cast()) };
    errno::set(saved);
    pid
}
