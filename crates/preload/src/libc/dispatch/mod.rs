//! What becomes of a system call that the program made by itself ([`crate::runtime::dispatch`]): the same as of one by libc's
//! `syscall`.
//!
//! ```text
//! program: syscall ─▶ kernel ─ SIGSYS ─▶ on_call: words on the program's stack, below its red zone, or on one of ours;
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
//!
//! Sites that make many calls get a jump in their place ([`sites`]).

mod entry;
mod mapped;
mod room;
mod sites;
mod thread;

use super::misc;
use crate::process::not_loaded;
use crate::process::own_calls::{self, Calls, Found};
use crate::process::vfork;
use crate::runtime::dispatch::{self, HANDED_BACK, SIGSYS};
use crate::runtime::signals::{self, bypath_restore, trampoline};
use crate::runtime::{errno, faults, operation, swap, tls};
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use pm::sys::abi::*;
use room::Filled;

pub use mapped::{set_data, set_program};

/// Where `uc_mcontext.gregs` begins in `ucontext_t`, and the registers in it, as words.
const REGISTERS: usize = 5;
const DI: usize = 8;
const SI: usize = 9;
const DX: usize = 12;
const AX: usize = 13;
const SP: usize = 15;
const IP: usize = 16;
const FLAGS: usize = 17;
/// What the code of the program may use below its stack pointer.
const RED_ZONE: usize = 128;
/// Where the alternate stack stands in it.
const UC_STACK: usize = 2;
/// More than the handler needs from where it looks for room.
const OWN_ROOM: usize = 1 << 10;
/// `si_arch` of calls by `syscall`; others are by `int $0x80`.
const ARCH_X86_64: u32 = 0xc000_003e;
/// The shortest `struct clone_args` that the kernel takes, and the longest that finds room in a red zone.
const CLONE_ARGS_MIN: usize = 64;
const CLONE_ARGS_MAX: usize = RED_ZONE;
/// Where `stack` and `stack_size` stand in it, as words.
const STACK: usize = 5;
const STACK_SIZE: usize = 6;

/// When the program starts, where this thread is alone: from now on the calls come that it, or a library of its, makes.
/// Whether none go past us, as far as is known.
pub fn start() -> bool {
    serve_calls_of(&own_calls::loaded())
}

/// Opens a library by `open`: the same for that and what comes with it, in this thread and those that begin later. `path` is
/// where the kernel has it.
pub fn opening(path: Option<&CStr>, open: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let makes_calls = || path.and_then(own_calls::of_file).is_some_and(Calls::can_be_served);
    let filled = (dispatch::is_on() || dispatch::is_possible() && makes_calls()).then(Filled::above_libc);
    let handle = open();
    drop(filled);
    if !handle.is_null() {
        serve_calls_of(&own_calls::opened());
    }
    handle
}

fn serve_calls_of(found: &Found) -> bool {
    if found.code.is_empty() {
        return !found.past;
    }
    if found.is_go {
        dispatch::switch_stacks();
    }
    if !dispatch::is_on() {
        if !dispatch::is_possible() || !entry::learn() {
            return false;
        }
        signals::watch_calls(on_call as *const () as usize);
        sites::start();
    }
    let can = dispatch::extend(&found.code, &found.outside);
    if !can {
        not_loaded::note_own_calls(b"a library");
    }
    can && !found.past
}

/// For a program that we have mapped, and which may call on `small_stacks`: all calls come that are not made in `own`. Whether
/// they do.
pub fn start_mapped(own: &Range<usize>, small_stacks: bool) -> bool {
    if !entry::learn() {
        return false;
    }
    if small_stacks {
        dispatch::switch_stacks();
    }
    room::Filled::within(own).keep();
    signals::watch_calls(mapped::on_call as *const () as usize);
    sites::start();
    dispatch::all_but(own)
}

/// What an entry has on its stack: the registers that the program has made its call with.
#[repr(C)]
pub struct Frame {
    rbp: usize,
    is_ours: usize,
    flags: usize,
    counter: usize,
    stack: usize,
}

/// What the kernel calls.
unsafe extern "C" fn on_call(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel's own frame.
    if unsafe { faults::told(info) }.0 != HANDED_BACK || signal != SIGSYS {
        // SAFETY: the kernel's own frame.
        return unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: `si_arch` lies there in the `siginfo_t` of a call.
    let arch = unsafe { *info.cast::<u32>().add(7) };
    // SAFETY: the kernel's own frame.
    let registers = unsafe { registers(context) };
    if arch != ARCH_X86_64 {
        // The entry counts on their place. Wider registers may be lost, of which programs with such calls know nothing.
        let (stack, below) = (registers[SP], registers[SP].wrapping_sub(RED_ZONE));
        registers[SP] = leave_words(below, registers, stack, false, &[]);
        registers[IP] = entry::older();
        return;
    }
    // SAFETY: as above.
    unsafe { take_call(registers) };
}

/// A signal that is no call is handled as any, with the mask that there was.
///
/// # Safety
/// They are the kernel's frame.
unsafe fn pass_on(signal: c_int, info: *mut c_void, context: *mut c_void) {
    /// Where `ucontext_t` has it.
    const MASK: usize = 296;
    // SAFETY: by contract.
    operation::set_signals(unsafe { *context.byte_add(MASK).cast::<u64>() });
    // SAFETY: by contract.
    unsafe { trampoline(signal, info, context) };
}

/// The registers in a frame.
///
/// # Safety
/// `context` is the kernel's `ucontext_t`, which nobody else uses.
unsafe fn registers<'a>(context: *mut c_void) -> &'a mut [usize; 23] {
    // SAFETY: by contract; they lie there.
    unsafe { &mut *context.cast::<usize>().add(REGISTERS).cast::<[usize; 23]>() }
}

/// Has the program go on at an entry: `registers` are those of its call, behind which it stands.
///
/// # Safety
/// They are a frame's, from where the program was interrupted.
unsafe fn take_call(registers: &mut [usize; 23]) {
    let nr = registers[AX];
    if swap::is_on() && mapped::takes(registers) {
        return;
    }
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

/// Where an entry finds its words, and whether that is a stack of ours, which it leaves at its end.
fn room(registers: &[usize; 23]) -> (usize, bool) {
    let tls = tls::get();
    let own = tls.service_stack.get();
    // While a call is served there, a handler of the program's makes its own on the stack that it runs on.
    if own != 0 && tls.is_on_it.replace(1) == 0 {
        return (own, true);
    }
    let (stack, here) = (registers[SP], (&raw const tls) as usize);
    // SAFETY: `uc_stack` lies there in the same `ucontext_t`: the alternate stack.
    let [begin, _, len] = unsafe { *registers.as_ptr().sub(REGISTERS - UC_STACK).cast::<[usize; 3]>() };
    let is_alternate = |at: usize| at.wrapping_sub(begin) < len;
    if is_alternate(here) && !is_alternate(stack) {
        return (stack.wrapping_sub(RED_ZONE), false);
    }
    // The frame that the kernel takes the registers from in the end lies where the words would: they go below it, and below
    // what this handler needs itself. No signal comes until then.
    (here - OWN_ROOM, false)
}

/// The program goes on at one of the entries, which finds its words at the stack pointer.
fn go_on_at(registers: &mut [usize; 23], entry: usize) {
    go_on_with(registers, entry, &[]);
}

/// The same with words of the entry's own.
fn go_on_with(registers: &mut [usize; 23], entry: usize, more: &[usize]) {
    let (below, is_ours) = room(registers);
    registers[SP] = leave_words(below, registers, registers[SP], is_ours, more);
    registers[IP] = entry;
}

/// Leaves, below an address, what an entry needs to go on in the program at a stack pointer, and `more` below it; where.
fn leave_words(below: usize, registers: &[usize; 23], stack: usize, is_ours: bool, more: &[usize]) -> usize {
    let words = [usize::from(is_ours), registers[FLAGS], registers[IP], stack];
    let at = below.wrapping_sub((words.len() + more.len()) * size_of::<usize>());
    for (index, word) in more.iter().chain(&words).enumerate() {
        // SAFETY: ours, or the stack that the program runs on, below what it uses; where there is none left, the fault is its own.
        unsafe { (at as *mut usize).add(index).write(*word) };
    }
    at
}

/// The words of a child with a stack of its own, on that; the stack pointer that it shall begin with.
fn leave_words_for_child(stack: usize, registers: &[usize; 23], more: usize) -> usize {
    leave_words(stack.wrapping_sub(RED_ZONE), registers, stack, false, &[more])
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
    dispatch::give_sites_up();
    if stack != 0 {
        registers[SI] = leave_words_for_child(stack, registers, stack);
    }
    go_on_with(registers, entry::clone(), &[stack]);
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
    // SAFETY: by contract.
    if let Err(errno) = unsafe { read_words(given, &mut args[..bytes / 8]) } {
        return registers[AX] = -(errno.0 as isize) as usize;
    }
    let flags = args[0] as u64;
    if flags & u64::from(CLONE_VM) == 0 {
        return go_on_at(registers, entry::call());
    }
    if is_vfork(flags, args[STACK]) {
        return go_on_at(registers, entry::vfork());
    }
    dispatch::give_sites_up();
    let stack = args[STACK].wrapping_add(args[STACK_SIZE]);
    if args[STACK] != 0 {
        let top = leave_words_for_child(stack, registers, given);
        args[STACK_SIZE] = top.wrapping_sub(args[STACK]);
    }
    go_on_with(registers, entry::clone3(), &[given]);
    // Below the stack pointer, where the kernel's frames leave a red zone alone.
    let room = registers[SP] - CLONE_ARGS_MAX;
    // SAFETY: the program's stack, as in `leave_words`.
    unsafe { (room as *mut [usize; CLONE_ARGS_MAX / 8]).write(args) };
    registers[DI] = room;
}

/// # Safety
/// `at` is the program's.
unsafe fn read_words(at: usize, words: &mut [usize]) -> Result<(), pm::Errno> {
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: by contract; what is not there is told.
        *word = unsafe { pm::faults::read((at as *const usize).wrapping_add(index)) }?;
    }
    Ok(())
}

/// A call of the program's own, from an entry; the kernel-style result.
///
/// # Safety
/// As for the system call; `args` are six words, `frame` is the entry's.
unsafe extern "C" fn serve(nr: usize, args: *const [usize; 6], frame: *mut Frame) -> isize {
    // SAFETY: by contract.
    let frame = unsafe { &mut *frame };
    if let Some(next) = sites::count(frame.counter) {
        frame.counter = next;
    }
    // SAFETY: by contract.
    unsafe { serve_call(nr, args, frame) }
}

/// The same, wherever it came from.
///
/// # Safety
/// As for [`serve`].
unsafe fn serve_call(nr: usize, args: *const [usize; 6], frame: *mut Frame) -> isize {
    let saved = errno::get();
    // SAFETY: by contract.
    let result = unsafe { if swap::is_on() { mapped::by_number(nr, *args, frame) } else { misc::by_number(nr, *args) } };
    errno::set(saved);
    result
}

/// Readies a child by vfork: which call makes it, or that negated if it is to be a fork. So it is too where the caller gets a
/// descriptor of the child, which may be another one in the end.
///
/// # Safety
/// As for the system call; `args` are six words.
unsafe extern "C" fn before_vfork(nr: usize, args: *const [usize; 6]) -> isize {
    // SAFETY: by contract.
    let flags = match (nr as u32, unsafe { (*args)[0] }) {
        (__NR_clone, flags) => flags,
        // SAFETY: by contract: `struct clone_args` begins with the flags.
        (__NR_clone3, at) => unsafe { pm::faults::read(at as *const usize) }.unwrap_or(0),
        _ => 0,
    };
    let can = flags & CLONE_PIDFD as usize == 0 && vfork::prepare() != 0;
    if can { nr as isize } else { -(nr as isize) }
}

/// Such a child as a fork.
///
/// # Safety
/// As for [`before_vfork`].
unsafe extern "C" fn fork_instead(nr: usize, args: *const [usize; 6], frame: *mut Frame) -> isize {
    const SHARES: usize = (CLONE_VM | CLONE_VFORK) as usize;
    // SAFETY: by contract.
    let mut given = unsafe { *args };
    let mut copy = [0usize; CLONE_ARGS_MAX / 8];
    match nr as u32 {
        __NR_clone => given[0] &= !SHARES,
        __NR_clone3 => {
            // SAFETY: by contract; the length was looked at.
            match unsafe { read_words(given[0], &mut copy[..given[1] / 8]) } {
                Ok(()) => (copy[0] &= !SHARES, given[0] = copy.as_ptr() as usize),
                Err(errno) => return -(errno.0 as isize),
            };
        }
        // SAFETY: takes no arguments.
        _ => return unsafe { serve(__NR_fork as usize, &given, frame) },
    }
    // SAFETY: by contract, without shared memory.
    unsafe { serve(nr, &given, frame) }
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
