//! `system` and `popen`: a shell by our own `posix_spawn`.

use crate::next;
use crate::process::spawn::order::{Order, wait};
use crate::process::spawn::spawn;
use crate::runtime::operation::{SIG_BLOCK, set_signals};
use crate::runtime::tls::raw_during;
use crate::runtime::{alloc, call, errno, imports, kernel, operation, placeholders, tls};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use pm::sys::abi::*;

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const SETSIGDEF: i16 = 4;
const SETSIGMASK: i16 = 8;

#[link(name = "c")]
unsafe extern "C" {
    fn posix_spawnattr_init(attr: *mut c_void) -> c_int;
    fn posix_spawnattr_setflags(attr: *mut c_void, flags: i16) -> c_int;
    fn posix_spawnattr_setsigdefault(attr: *mut c_void, set: *const u64) -> c_int;
    fn posix_spawnattr_setsigmask(attr: *mut c_void, set: *const u64) -> c_int;
    // Our own, in `spawn.rs`.
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int;
}

export! {
    fn system(command: *const c_char) -> c_int {
        if command.is_null() {
            return (system_call(c"exit 0".as_ptr()) == 0) as c_int;
        }
        system_call(command)
    }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
        popen_call(command, CStr::from_ptr(mode).to_bytes())
    }
    fn pclose(stream: *mut c_void) -> c_int {
        pclose_call(stream)
    }
}

/// `sh -c command` as an order.
fn shell(argv: &[*mut c_char; 4], actions: *const c_void, attr: *const c_void) -> Order {
    Order {
        file: c"/bin/sh".as_ptr(),
        actions,
        attr,
        argv: argv.as_ptr(),
        // SAFETY: a plain read of libc's pointer.
        envp: unsafe { imports::environ },
        search: false,
    }
}

fn shell_arguments(command: *const c_char) -> [*mut c_char; 4] {
    [c"sh".as_ptr().cast_mut(), c"-c".as_ptr().cast_mut(), command.cast_mut(), core::ptr::null_mut()]
}

/// glibc's `struct sigaction` and `posix_spawnattr_t`, opaque.
type Opaque<const WORDS: usize> = [u64; WORDS];

/// # Safety
/// `command` is the program's string.
unsafe fn system_call(command: *const c_char) -> c_int {
    type SigAction = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;
    let Some(sigaction) = next!(SigAction, "sigaction") else { return -1 };
    const SIGINT: c_int = 2;
    const SIGQUIT: c_int = 3;
    let mut ignore: Opaque<19> = [0; 19];
    ignore[0] = 1;
    let (mut interrupt, mut quit): (Opaque<19>, Opaque<19>) = ([0; 19], [0; 19]);
    // SAFETY: valid actions.
    unsafe { sigaction(SIGINT, ignore.as_ptr(), interrupt.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { sigaction(SIGQUIT, ignore.as_ptr(), quit.as_mut_ptr()) };
    // SIGCHLD is 17: block it.
    let before = operation::change_mask(SIG_BLOCK, 1 << 16);
    let mut attr: Opaque<42> = [0; 42];
    let at = attr.as_mut_ptr().cast::<c_void>();
    let mut defaults = [0u64; 16];
    defaults[0] = ((interrupt[0] != 1) as u64) << 1 | ((quit[0] != 1) as u64) << 2;
    let mut mask = [0u64; 16];
    // As the program believes it.
    mask[0] = before | tls::get().hidden.get();
    // SAFETY: the object has libc's size (336 bytes).
    unsafe { posix_spawnattr_init(at) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_setflags(at, SETSIGDEF | SETSIGMASK) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_setsigdefault(at, defaults.as_ptr()) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_setsigmask(at, mask.as_ptr()) };
    let argv = shell_arguments(command);
    let mut pid = 0;
    // SAFETY: valid strings.
    let error = unsafe { spawn(&mut pid, &shell(&argv, core::ptr::null(), at)) };
    // No shell: as if it had exited with 127.
    let status = if error == 0 { wait(pid) } else { 127 << 8 };
    // SAFETY: what the call gave before.
    unsafe { sigaction(SIGINT, interrupt.as_ptr(), core::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { sigaction(SIGQUIT, quit.as_ptr(), core::ptr::null_mut()) };
    set_signals(before);
    status
}

export! {
    fn wordexp(words: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        type WordExp = unsafe extern "C" fn(*const c_char, *mut c_void, c_int) -> c_int;
        let Some(own) = next!(WordExp, "wordexp") else {
            // WRDE_NOSPACE
            return 1;
        };
        // A command in it runs in a child that borrows our memory until it execs.
        if imports::bytes(words).iter().any(|byte| matches!(byte, b'`' | b'$')) {
            raw_during(|| own(words, out, flags))
        } else {
            own(words, out, flags)
        }
    }
}

/// A stream of `popen` and its child.
struct Pipe {
    stream: *mut c_void,
    pid: c_int,
    fd: c_int,
    next: *mut Pipe,
}

struct Pipes(UnsafeCell<*mut Pipe>);
// SAFETY: used through `locked` only.
unsafe impl Sync for Pipes {}
static PIPES: Pipes = Pipes(UnsafeCell::new(core::ptr::null_mut()));
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Calls `run` with the head of the list, under the lock.
fn locked<T>(run: impl FnOnce(*mut *mut Pipe) -> T) -> T {
    let tls = tls::get();
    operation::enter(tls);
    while LOCK.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        core::hint::spin_loop();
    }
    let result = run(PIPES.0.get());
    LOCK.store(0, Release);
    operation::leave(tls);
    result
}

/// # Safety
/// `command` is the program's string.
unsafe fn popen_call(command: *const c_char, mode: &[u8]) -> *mut c_void {
    let reads = mode.contains(&b'r');
    if reads == mode.contains(&b'w') || mode.iter().any(|b| !b"rwe".contains(b)) {
        errno::set(EINVAL);
        return core::ptr::null_mut();
    }
    let mut ends = [0i32; 2];
    // SAFETY: the array outlives the call.
    let made = unsafe { placeholders::creating(__NR_pipe2, [ends.as_mut_ptr() as usize, O_CLOEXEC as usize, 0, 0, 0, 0]) };
    if made < 0 {
        errno::set(-made as i32);
        return core::ptr::null_mut();
    }
    let (own, theirs, target) = if reads { (ends[0], ends[1], 1) } else { (ends[1], ends[0], 0) };
    let mut pid = 0;
    // SAFETY: the program's command.
    let error = unsafe { popen_spawn(&mut pid, command, theirs, target) };
    call::close(theirs);
    let stream = if error == 0 { open_stream(own, reads) } else { Err(error) };
    let stream = match stream {
        Ok(stream) if remember(stream, pid, own) => stream,
        other => {
            call::close(own);
            errno::set(other.err().unwrap_or(ENOMEM));
            return core::ptr::null_mut();
        }
    };
    if !mode.contains(&b'e') {
        let _ = kernel::fcntl(own, F_SETFD, 0);
    }
    stream
}

/// The child of `popen`: its pipe end on 0 or 1, earlier streams closed.
///
/// # Safety
/// `command` is the program's string.
unsafe fn popen_spawn(pid: *mut c_int, command: *const c_char, theirs: c_int, target: c_int) -> i32 {
    let mut actions: Opaque<10> = [0; 10];
    let at = actions.as_mut_ptr().cast::<c_void>();
    // SAFETY: the object has libc's size (80 bytes).
    unsafe { posix_spawn_file_actions_init(at) };
    let mut earlier = locked(|head| {
        // SAFETY: under the lock.
        unsafe { *head }
    });
    while !earlier.is_null() {
        // SAFETY: entries live until their `pclose`.
        let pipe = unsafe { &*earlier };
        if pipe.fd != target {
            // SAFETY: as above.
            unsafe { posix_spawn_file_actions_addclose(at, pipe.fd) };
        }
        earlier = pipe.next;
    }
    // SAFETY: as above.
    unsafe { posix_spawn_file_actions_adddup2(at, theirs, target) };
    let argv = shell_arguments(command);
    // SAFETY: valid strings.
    let error = unsafe { spawn(pid, &shell(&argv, at, core::ptr::null())) };
    // SAFETY: as above.
    unsafe { posix_spawn_file_actions_destroy(at) };
    error
}

/// libc's stream on a kernel descriptor.
fn open_stream(fd: c_int, reads: bool) -> Result<*mut c_void, i32> {
    let mode = if reads { c"r" } else { c"w" };
    let Some(fdopen) = next!(unsafe extern "C" fn(c_int, *const c_char) -> *mut c_void, "fdopen") else { return Err(38) };
    // SAFETY: a valid mode.
    let stream = unsafe { fdopen(fd, mode.as_ptr()) };
    if stream.is_null() { Err(errno::get()) } else { Ok(stream) }
}

fn remember(stream: *mut c_void, pid: c_int, fd: c_int) -> bool {
    let pipe = alloc::alloc(size_of::<Pipe>()).cast::<Pipe>();
    if pipe.is_null() {
        return false;
    }
    locked(|head| {
        // SAFETY: under the lock; the block is large enough.
        unsafe { pipe.write(Pipe { stream, pid, fd, next: *head }) };
        // SAFETY: under the lock.
        unsafe { *head = pipe };
    });
    true
}

/// # Safety
/// `stream` is the program's.
unsafe fn pclose_call(stream: *mut c_void) -> c_int {
    let pid = locked(|head| {
        let mut at = head;
        loop {
            // SAFETY: under the lock, inside the list.
            let pipe = unsafe { *at };
            if pipe.is_null() {
                return None;
            }
            // SAFETY: as above.
            if unsafe { (*pipe).stream } == stream {
                // SAFETY: as above.
                unsafe { *at = (*pipe).next };
                // SAFETY: unlinked.
                let pid = unsafe { (*pipe).pid };
                // SAFETY: unlinked.
                unsafe { alloc::free(pipe.cast()) };
                return Some(pid);
            }
            // SAFETY: as above.
            at = unsafe { &raw mut (*pipe).next };
        }
    });
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    let Some(pid) = pid else {
        return match next!(Close, "pclose") {
            // SAFETY: by contract.
            Some(next) => unsafe { next(stream) },
            None => -1,
        };
    };
    if let Some(fclose) = next!(Close, "fclose") {
        // SAFETY: by contract.
        unsafe { fclose(stream) };
    }
    wait(pid)
}
