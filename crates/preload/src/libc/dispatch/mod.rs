//! What becomes of a system call that the program made by itself ([`crate::runtime::dispatch`]): the same as of one by libc's
//! `syscall`.
//!
//! ```text
//! program: syscall ─▶ kernel ─ SIGSYS ─▶ on_call: program counter and flags on the program's stack, below its red zone;
//!                                        goes on at an entry ─ rt_sigreturn ─▶ entry ─ serve ─▶ program, behind its call
//! ```
//! So a call is served where the thread stands, not in a handler: its masks, its alternate stack, its handlers are as with any
//! call by libc, a handler that never returns leaves nothing behind, and fork returns twice. What is left to the handler
//! is what must not have another frame below it:
//!
//! - `rt_sigreturn` finds the program's own frame at the stack pointer that the program had;
//! - a child with memory of its parent's and a stack of its own finds on that what it needs to go on. Its calls are the
//!   kernel's from then on, as those of one by libc's `clone`;
//! - a child by vfork goes on on its parent's stack: what the parent needs waits in the thread's words.

mod entry;
mod thread;

use super::misc;
use crate::process::vfork;
use crate::runtime::dispatch::{HANDED_BACK, SIGSYS, start as start_dispatch};
use crate::runtime::signals::{self, bypath_restore, trampoline};
use crate::runtime::{errno, faults};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use pm::sys::abi::*;

/// Where `uc_mcontext.gregs` begins in `ucontext_t`, and the registers in it, as words.
const REGISTERS: usize = 5;
const DI: usize = 8;
const SI: usize = 9;
const AX: usize = 13;
const SP: usize = 15;
const IP: usize = 16;
const FLAGS: usize = 17;
/// What the code of the program may use below its stack pointer.
const RED_ZONE: usize = 128;
/// `si_arch` of calls by `syscall`; others are by `int $0x80`.
const ARCH_X86_64: u32 = 0xc000_003e;
/// The shortest `struct clone_args` that the kernel takes, and the longest that finds room in a red zone.
const CLONE_ARGS_MIN: usize = 64;
const CLONE_ARGS_MAX: usize = RED_ZONE;
/// Where `stack` and `stack_size` stand in it, as words.
const STACK: usize = 5;
const STACK_SIZE: usize = 6;

/// From now on the calls that the program makes in `range` come to us; `outside` as for [`start_dispatch`]. Whether that can
/// be had.
pub fn start(range: &Range<usize>, outside: impl Iterator<Item = Range<usize>>) -> bool {
    if !entry::learn() {
        return false;
    }
    signals::watch_calls(on_call as *const () as usize);
    start_dispatch(range, outside)
}

/// What the kernel calls.
unsafe extern "C" fn on_call(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel's own frame.
    if unsafe { faults::told(info) }.0 != HANDED_BACK || signal != SIGSYS {
        // SAFETY: the kernel's own frame.
        return unsafe { trampoline(signal, info, context) };
    }
    // SAFETY: `si_arch` lies there in the `siginfo_t` of a call.
    let arch = unsafe { *info.cast::<u32>().add(7) };
    // SAFETY: they lie there in the kernel's `ucontext_t`; nobody else has this frame.
    let registers = unsafe { &mut *context.cast::<usize>().add(REGISTERS).cast::<[usize; 23]>() };
    if arch != ARCH_X86_64 {
        return go_on_at(registers, entry::older());
    }
    let nr = registers[AX];
    match nr as u32 {
        __NR_rt_sigreturn => registers[IP] = bypath_restore as *const () as usize,
        __NR_exit | __NR_exit_group => go_on_at(registers, entry::past()),
        __NR_vfork => go_on_at(registers, entry::vfork()),
        // SAFETY: the program's own arguments.
        __NR_clone if registers[DI] & CLONE_VM as usize != 0 => unsafe { clone(registers) },
        // SAFETY: the program's own arguments.
        __NR_clone3 => unsafe { clone3(registers) },
        _ => go_on_at(registers, entry::call()),
    }
}

/// The program goes on at one of the entries, which finds flags and program counter at the stack pointer.
fn go_on_at(registers: &mut [usize; 23], entry: usize) {
    registers[SP] = leave_words(registers[SP], registers, &[]);
    registers[IP] = entry;
}

/// Leaves what an entry needs to go on in the program, and `more` below it, under a stack pointer; the new one.
fn leave_words(stack: usize, registers: &[usize; 23], more: &[usize]) -> usize {
    let words = [registers[FLAGS], registers[IP]];
    let at = stack.wrapping_sub(RED_ZONE + (words.len() + more.len()) * size_of::<usize>());
    for (index, word) in more.iter().chain(&words).enumerate() {
        // SAFETY: the stack that the program runs on, below what it uses; where there is none left, the fault is its own.
        unsafe { (at as *mut usize).add(index).write(*word) };
    }
    at
}

/// Whether a child with its parent's memory takes its parent's place on the stack, and thread.
fn is_vfork(flags: u64, stack: usize) -> bool {
    flags & u64::from(CLONE_VFORK | CLONE_SETTLS) == u64::from(CLONE_VFORK) && stack == 0
}

/// `clone` of a child that shares memory.
///
/// # Safety
/// As for the system call.
unsafe fn clone(registers: &mut [usize; 23]) {
    let stack = registers[SI];
    if is_vfork(registers[DI] as u64, stack) {
        return go_on_at(registers, entry::vfork());
    }
    registers[SP] = leave_words(registers[SP], registers, &[stack]);
    if stack != 0 {
        registers[SI] = leave_words(stack, registers, &[stack]);
    }
    registers[IP] = entry::clone();
}

/// `clone3`: `ENOSYS` where more is asked than is known, for which programs have `clone`.
///
/// # Safety
/// As for the system call.
unsafe fn clone3(registers: &mut [usize; 23]) {
    let (given, bytes) = (registers[DI], registers[SI]);
    let mut args = [0usize; CLONE_ARGS_MAX / 8];
    if bytes < CLONE_ARGS_MIN {
        return go_on_at(registers, entry::past());
    }
    if bytes > CLONE_ARGS_MAX || bytes % 8 != 0 {
        registers[AX] = -(pm::Errno::ENOSYS.0 as isize) as usize;
        return;
    }
    for (index, word) in args[..bytes / 8].iter_mut().enumerate() {
        // SAFETY: the program's own.
        match unsafe { pm::faults::read((given as *const usize).wrapping_add(index)) } {
            Ok(read) => *word = read,
            Err(_) => return registers[AX] = -(pm::Errno::EFAULT.0 as isize) as usize,
        }
    }
    let flags = args[0] as u64;
    if flags & u64::from(CLONE_VM) == 0 {
        return go_on_at(registers, entry::call());
    }
    if is_vfork(flags, args[STACK]) {
        return go_on_at(registers, entry::vfork());
    }
    let stack = args[STACK].wrapping_add(args[STACK_SIZE]);
    if args[STACK] != 0 {
        let top = leave_words(stack, registers, &[given]);
        args[STACK_SIZE] = top.wrapping_sub(args[STACK]);
    }
    registers[SP] = leave_words(registers[SP], registers, &[given]);
    // Below the stack pointer, where the kernel's frames leave a red zone alone.
    let room = registers[SP] - CLONE_ARGS_MAX;
    // SAFETY: the program's stack, as in `leave_words`.
    unsafe { (room as *mut [usize; CLONE_ARGS_MAX / 8]).write(args) };
    registers[DI] = room;
    registers[IP] = entry::clone3();
}

/// A call of the program's own, from an entry; the kernel-style result.
///
/// # Safety
/// As for the system call; `args` are six words.
unsafe extern "C" fn serve(nr: usize, args: *const [usize; 6]) -> isize {
    let saved = errno::get();
    // SAFETY: by contract.
    let result = unsafe { misc::by_number(nr, *args) };
    errno::set(saved);
    result
}

/// Readies a child by vfork: which call makes it, or 0: it is to be a fork.
unsafe extern "C" fn before_vfork(nr: usize, _args: *const [usize; 6]) -> isize {
    if vfork::prepare() == 0 { 0 } else { nr as isize }
}

/// In the child.
unsafe extern "C" fn in_child(_made: usize, _args: *const [usize; 6]) -> isize {
    vfork::arrive() as isize
}

/// In the parent again.
unsafe extern "C" fn in_parent(made: usize, _args: *const [usize; 6]) -> isize {
    let saved = errno::get();
    let result = match vfork::resume(made as isize) {
        -1 => -(errno::get() as isize),
        child => child as isize,
    };
    errno::set(saved);
    result
}
