//! Calls of a program that we have mapped ([`crate::runtime::swap`]): its C library is its own, so what libc's functions do
//! elsewhere is done here.
//!
//! - What the kernel keeps once a thread, and our libc needs, is answered here: the thread pointer, the list of robust
//!   mutexes, the word that is cleared at the end; once a process: the end of the data (`brk`).
//! - A thread is one of our libc's, which begins at once in the program ([`thread`]). So it has all that a thread of ours has.
//! - Where calls are served on stacks of ours (Go's), signals have one of ours too while the program has none: a thread gives
//!   up the stack that it is on before it makes its last call.
//! - A child with memory of its own is a fork of our libc's; one by `posix_spawn` has a copy of it too ([`spawn`]).
//!
//! What is refused is said: the base of `gs`, a child that shares memory and is neither.

mod spawn;
mod thread;

use super::{AX, DI, DX, Frame, IP, REGISTERS, SI, SP, entry};
use crate::libc::misc;
use crate::process::fork;
use crate::runtime::kernel::Who;
use crate::runtime::session::is_first_of;
use crate::runtime::{alloc, dispatch, errno, faults, kernel, operation, placeholders, swap, tls};
use crate::{complain, from_kernel, next};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use pm::Errno;
use pm::sys::{self, abi::*};

const ARCH_SET_GS: usize = 0x1001;
const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
const ARCH_GET_GS: usize = 0x1004;
/// Addresses of programs end here.
const ADDRESSES_END: usize = (1 << 47) - PAGE;
const PAGE: usize = 4096;
/// `PR_SET_SYSCALL_USER_DISPATCH`.
const SET_DISPATCH: usize = 59;
const ROBUST_HEAD_BYTES: usize = 24;
/// The signal that a child's end sends, in the flags.
const SIGNAL: usize = 0xff;
const SIGCHLD: usize = 17;
/// What a plain fork may ask for.
const PLAIN: usize = SIGNAL | (CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID) as usize;

from_kernel!(
    /// What the kernel calls.
    pub on_call, super::on_call, on_own_call
);

/// A call that we have made, by the kernel's code in this process: where that can't tell the time, it asks.
unsafe extern "C" fn on_own_call(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel's own frame.
    if !dispatch::is_call(unsafe { faults::told(info) }.0) {
        // SAFETY: the kernel's own frame.
        return unsafe { super::pass_on(signal, info, context) };
    }
    const R8: usize = 0;
    const R9: usize = 1;
    const R10: usize = 2;
    // SAFETY: they lie there in the kernel's `ucontext_t`; nobody else has this frame.
    let registers = unsafe { &mut *context.cast::<usize>().add(REGISTERS).cast::<[usize; 23]>() };
    let args = [registers[DI], registers[SI], registers[DX], registers[R10], registers[R8], registers[R9]];
    if pm::dispatch::TRAPPED.contains(&registers[IP]) {
        // Of `is_filtered`: code of ours is elsewhere.
        registers[AX] = COMES;
        return;
    }
    // SAFETY: as the caller has asked.
    registers[AX] = unsafe { sys::raw(registers[AX], args) } as usize;
}

/// What a call that comes to us says.
const COMES: usize = 1;

/// Whether a filter that hands calls back is in place: those that executed us may have had one. Asked by a call that nobody knows.
pub fn is_filtered() -> bool {
    const PLACE: usize = 1 << 44;
    const NONE: usize = 0xffff;
    const CODE: [u8; 3] = [0x0f, 5, 0xc3];
    let kind = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: new memory.
    let Ok(page) = (unsafe { pm::call!(__NR_mmap, PLACE, PAGE, PROT_READ | PROT_WRITE, kind, -1isize, 0) }) else { return false };
    // SAFETY: a page of ours, which nobody else knows.
    unsafe { (page as *mut [u8; 3]).write(CODE) };
    // SAFETY: the same page.
    let runs = unsafe { pm::call!(__NR_mprotect, page, PAGE, PROT_READ | PROT_EXEC) }.is_ok();
    let mut told = NONE;
    if runs && pm::dispatch::TRAPPED.contains(&page) {
        // SAFETY: a call and a return. The stack is left alone but for the address that `call` puts there.
        unsafe { core::arch::asm!("call {0}", in(reg) page, inout("rax") told, out("rcx") _, out("r11") _) };
    }
    // SAFETY: not used any more.
    let _ = unsafe { pm::call!(__NR_munmap, page, PAGE) };
    told == COMES
}

/// What must not have another frame below it; whether that was one.
pub fn takes(registers: &mut [usize; 23]) -> bool {
    let tls = tls::get();
    match registers[AX] as u32 {
        __NR_exit | __NR_exit_group if tls.shared.get() != 0 => {
            spawn::tell_parent(tls.shared.get());
            return false;
        }
        __NR_exit if tls.is_vfork_child() => return false,
        __NR_exit if tls.own_stack.get() != 0 => {}
        __NR_exit => {
            thread::clear(tls.cleared.replace(0));
            return false;
        }
        // musl's detached threads give up the stack that they are on, and then end.
        __NR_munmap if tls.own_stack.get() != 0 => {
            let (begin, len) = (registers[DI], registers[SI]);
            if registers[SP].wrapping_sub(begin) >= len {
                return false;
            }
            thread::note_stack(begin, len);
        }
        __NR_clone | __NR_clone3 => {
            // A child on the stack of its parent is as everywhere.
            let is_vfork = registers[AX] as u32 == __NR_clone && super::is_vfork(registers[DI] as u64, registers[SI]);
            if !is_vfork {
                super::go_on_at(registers, entry::call());
            }
            return !is_vfork;
        }
        _ => return false,
    }
    registers[IP] = entry::leave();
    // The program's stack may be another thread's by now.
    registers[SP] = tls.own_stack.get();
    true
}

/// A call by its number; the kernel-style result.
///
/// # Safety
/// As for the system call; `frame` is the entry's.
pub unsafe fn by_number(nr: usize, args: [usize; 6], frame: *mut Frame) -> isize {
    let tls = tls::get();
    let [a, b, c, ..] = args;
    match nr as u32 {
        // SAFETY: by contract.
        __NR_arch_prctl => unsafe { bases(a, b) },
        __NR_brk => data_end(a) as isize,
        __NR_set_tid_address => {
            tls.cleared.set(a);
            kernel::own(Who::Thread) as isize
        }
        __NR_set_robust_list if b != ROBUST_HEAD_BYTES => failed(Errno::EINVAL),
        __NR_set_robust_list => {
            tls.robust_list.set(a);
            0
        }
        __NR_get_robust_list if a == 0 || a == kernel::own(Who::Thread) as usize => {
            // SAFETY: the program's own words.
            let written = unsafe {
                pm::faults::write(b as *mut usize, &tls.robust_list.get())
                    .and_then(|()| pm::faults::write(c as *mut usize, &ROBUST_HEAD_BYTES))
            };
            written.map_or_else(failed, |()| 0)
        }
        // SAFETY: by contract.
        __NR_sigaltstack if tls.spare_stack.get() != 0 => unsafe { thread::signal_stack(a, b) },
        // All who ask for more know that older kernels have `clone` only.
        __NR_clone3 => failed(Errno::ENOSYS),
        // SAFETY: by contract.
        __NR_clone => unsafe { clone(args, frame) },
        __NR_fork | __NR_vfork => plain_fork(0, [0; 6]),
        __NR_prctl if a == SET_DISPATCH => failed(Errno::EINVAL),
        // SAFETY: by contract.
        _ => unsafe { about_program(nr, args).unwrap_or_else(|args| misc::by_number(nr, args)) },
    }
}

fn failed(errno: Errno) -> isize {
    -(errno.0 as isize)
}

/// `arch_prctl`.
///
/// # Safety
/// As for the system call.
unsafe fn bases(what: usize, at: usize) -> isize {
    let base = &tls::get().programs_base;
    match what {
        ARCH_SET_FS if at >= ADDRESSES_END => failed(Errno::EPERM),
        ARCH_SET_FS => {
            swap::set_program(at);
            0
        }
        // SAFETY: by contract.
        ARCH_GET_FS => unsafe { pm::faults::write(at as *mut usize, &base.get()) }.map_or_else(failed, |()| 0),
        ARCH_SET_GS | ARCH_GET_GS => {
            if is_first_of(format_args!("gs")) {
                complain!("this program uses the base of gs, as this library does: it gets an error");
            }
            failed(Errno::EINVAL)
        }
        // SAFETY: by contract.
        _ => unsafe { sys::raw(__NR_arch_prctl as usize, [what, at, 0, 0, 0, 0]) },
    }
}

/// `clone`.
///
/// # Safety
/// As for the system call; `frame` is the entry's.
unsafe fn clone(args: [usize; 6], frame: *mut Frame) -> isize {
    const THREAD: usize = (CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FILES | CLONE_FS) as usize;
    const SPAWN: usize = (CLONE_VM | CLONE_VFORK) as usize;
    let [flags, stack, _, number, base, _] = args;
    if flags & THREAD == THREAD && stack != 0 {
        // SAFETY: by contract.
        return unsafe { thread::begin(args, frame) };
    }
    if flags & (SPAWN | CLONE_THREAD as usize) == SPAWN && stack != 0 {
        // SAFETY: by contract.
        return unsafe { spawn::begin(args, frame) };
    }
    if flags & CLONE_VM as usize != 0 {
        if is_first_of(format_args!("shares")) {
            complain!("this program makes a child that shares its memory and is no thread: it gets an error");
        }
        return failed(Errno::EINVAL);
    }
    let left = flags & !(CLONE_SETTLS | CLONE_VFORK) as usize;
    let made = if left & !PLAIN == 0 && left & SIGNAL == SIGCHLD {
        plain_fork(left, args)
    } else {
        // SAFETY: by contract; the child goes on here, on a copy of this stack.
        unsafe { misc::by_number(__NR_clone as usize, [left, 0, args[2], number, 0, 0]) }
    };
    if made == 0 {
        if stack != 0 {
            // SAFETY: by contract, and this process's own copy.
            unsafe { (*frame).stack = stack };
        }
        if flags & CLONE_SETTLS as usize != 0 {
            swap::set_program(base);
        }
    }
    made
}

/// A fork by our libc, which sets right what it has for this thread and the others.
fn plain_fork(flags: usize, args: [usize; 6]) -> isize {
    type Fork = unsafe extern "C" fn() -> c_int;
    placeholders::flush();
    let made = fork::libc_fork(next!(Fork, "fork"));
    if made < 0 {
        return -(errno::get() as isize);
    }
    let number = if made == 0 { kernel::own(Who::Thread) } else { made as u32 };
    let (wanted, place) = if made == 0 { (CLONE_CHILD_SETTID, args[3]) } else { (CLONE_PARENT_SETTID, args[2]) };
    if flags & wanted as usize != 0 {
        // SAFETY: the program's own word.
        let _ = unsafe { pm::faults::write(place as *mut u32, &number) };
    }
    if made == 0 {
        let cleared = if flags & CLONE_CHILD_CLEARTID as usize != 0 { args[3] } else { 0 };
        tls::get().cleared.set(cleared);
    }
    made as isize
}

/// Where the program's data begin to grow, and how far they do.
static DATA: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// Before the program starts: its data grow from here on.
pub fn set_data(begin: usize) {
    DATA.0.store(begin, Relaxed);
    DATA.1.store(begin, Relaxed);
}

/// `brk`: the kernel's is our libc's.
fn data_end(wanted: usize) -> usize {
    alloc::lock();
    let (begin, end) = (DATA.0.load(Relaxed), DATA.1.load(Relaxed));
    let (old, new) = (end.next_multiple_of(PAGE), wanted.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX));
    let can = if wanted < begin || new > ADDRESSES_END {
        false
    } else if new > old {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        // SAFETY: new memory where there was none.
        let made = unsafe { pm::call!(__NR_mmap, old, new - old, PROT_READ | PROT_WRITE, flags, -1isize, 0) };
        made == Ok(old)
    } else {
        // SAFETY: the program gives it up.
        new == old || unsafe { pm::call!(__NR_munmap, new, old - new) }.is_ok()
    };
    if can {
        DATA.1.store(wanted, Relaxed);
    }
    alloc::unlock();
    if can { wanted } else { end }
}

/// The program's path.
static PROGRAM: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Before the program starts: where it is, a text that is there for good.
pub fn set_program(path: &'static CStr) {
    PROGRAM.store(path.as_ptr().cast_mut(), Release);
}

/// A call about `/proc/self/exe`, which is our loader: `readlink` is answered, others are about the program.
///
/// # Safety
/// As for the system call.
unsafe fn about_program(nr: usize, args: [usize; 6]) -> Result<isize, [usize; 6]> {
    let link = |flags: usize| flags as u32 & (AT_SYMLINK_NOFOLLOW | O_NOFOLLOW) != 0;
    let place = match nr as u32 {
        // Of the link itself.
        __NR_openat | __NR_statx if link(args[2]) => return Err(args),
        __NR_newfstatat | __NR_faccessat2 if link(args[3]) => return Err(args),
        __NR_open if link(args[1]) => return Err(args),
        __NR_open | __NR_stat | __NR_access | __NR_readlink | __NR_execve => 0,
        __NR_openat | __NR_newfstatat | __NR_statx | __NR_faccessat | __NR_faccessat2 | __NR_readlinkat | __NR_execveat => 1,
        _ => return Err(args),
    };
    let program = PROGRAM.load(Acquire);
    if program.is_null() || !is_program_link(args[place]) {
        return Err(args);
    }
    if !matches!(nr as u32, __NR_readlink | __NR_readlinkat) {
        let mut args = args;
        args[place] = program as usize;
        return Err(args);
    }
    // SAFETY: `set_program` has it from a text that stays.
    let path = unsafe { CStr::from_ptr(program) }.to_bytes();
    let (at, room) = (args[place + 1], args[place + 2] as c_int);
    if room <= 0 {
        return Ok(failed(Errno::EINVAL));
    }
    let len = path.len().min(room as usize);
    // SAFETY: the program's own buffer.
    let copied = unsafe { pm::faults::transfer(path.as_ptr(), at as *mut u8, len) };
    Ok(if copied == len { len as isize } else { failed(Errno::EFAULT) })
}

/// Whether a path is that of the link to this process's program.
fn is_program_link(path: usize) -> bool {
    const BEGIN: &[u8] = b"/proc/";
    if posix::bad_pointer(path) {
        return false;
    }
    let text = path as *const u8;
    let is = |from: usize, what: &[u8]| {
        what.iter().enumerate().all(|(index, &byte)| pm::faults::is_byte(text.wrapping_add(from + index), byte))
    };
    if !is(0, BEGIN) {
        return false;
    }
    let from = BEGIN.len();
    if is(from, b"self/exe\0") || is(from, b"thread-self/exe\0") {
        return true;
    }
    let mut digits = [0u8; 10];
    let (mut left, mut begin) = (kernel::own(Who::Process), digits.len());
    while left > 0 {
        begin -= 1;
        digits[begin] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    let digits = &digits[begin..];
    is(from, digits) && is(from + digits.len(), b"/exe\0")
}

/// Waits until the word at `at` is not `value` any more, or a little.
fn wait_while(at: *const u32, value: u32) {
    const WAIT_PRIVATE: u32 = 128;
    // SAFETY: a word of ours.
    let _ = unsafe { pm::call!(__NR_futex, at, WAIT_PRIVATE, value, 0) };
}

/// Wakes whoever waits for the word at `at`.
fn wake(at: usize, how: u32) {
    // SAFETY: only the address counts.
    let _ = unsafe { pm::call!(__NR_futex, at, how, i32::MAX, 0) };
}

/// All signals are blocked during `run`.
fn undisturbed<R>(run: impl FnOnce(u64) -> R) -> R {
    let mask = operation::block_signals();
    let result = run(mask);
    operation::set_signals(mask);
    result
}
