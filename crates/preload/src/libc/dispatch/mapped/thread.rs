//! Threads of a program that we have mapped.
//!
//! ```text
//! clone ─ pthread_create ─▶ run: words, numbers ─ enter ─▶ program, on its stack … exit ─▶ leave ─▶ run: end ─▶ our libc's end
//!    └ waits for the number ◀──┘
//! ```
//! What the kernel clears at the end of a thread is our libc's word. So the program's is cleared and woken here, when its stack
//! is not used any more; a stack that it has given up itself is unmapped here.

use super::{Frame, undisturbed, wait_while, wake};
use crate::runtime::tls::{OWN_STACK_OFFSET, PROGRAMS_BASE_OFFSET};
use crate::runtime::{alloc, dispatch, operation, swap, tls};
use crate::set_fs;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering::*};
use pm::Errno;
use pm::sys::abi::*;

/// For what runs before and after the program.
const STACK_BYTES: usize = 128 << 10;
const DETACHED: c_int = 1;
const ATTRIBUTES_BYTES: usize = 56;

type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

#[link(name = "c")]
unsafe extern "C" {
    fn pthread_attr_init(attributes: *mut u8) -> c_int;
    fn pthread_attr_setstacksize(attributes: *mut u8, bytes: usize) -> c_int;
    fn pthread_attr_setdetachstate(attributes: *mut u8, state: c_int) -> c_int;
}

/// The registers that a thread begins with, in the order of [`enter`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Registers {
    /// r15, r14, r13, r12, r10, r9, r8, rdx, rsi, rdi, rbx.
    pushed: [usize; 11],
    rbp: usize,
    flags: usize,
    counter: usize,
    stack: usize,
}

/// What it begins with; on the stack of the thread that makes it.
struct Begin {
    registers: Registers,
    /// `None`: its maker's.
    base: Option<usize>,
    makers_base: usize,
    cleared: usize,
    parents_number: usize,
    own_number: usize,
    mask: u64,
    hidden: u64,
    /// The thread's number, from when the rest is not needed any more.
    number: AtomicU32,
}

/// Begins a thread of the program's; its number, or a negated error.
///
/// # Safety
/// As for `clone`; `frame` is the entry's.
pub unsafe fn begin(args: [usize; 6], frame: *const Frame) -> isize {
    type Create = unsafe extern "C" fn(*mut usize, *const u8, Routine, *mut c_void) -> c_int;
    let [flags, stack, parents_number, own_number, base, _] = args;
    let asks = |flag: u32| flags & flag as usize != 0;
    let Some(create) = crate::next!(Create, "pthread_create") else { return -(Errno::ENOSYS.0 as isize) };
    // SAFETY: the entry has left eleven words below it.
    let pushed = unsafe { frame.cast::<[usize; 11]>().sub(1).read() };
    // SAFETY: by contract.
    let frame = unsafe { &*frame };
    let tls = tls::get();
    undisturbed(|mask| {
        let begin = Begin {
            registers: Registers { pushed, rbp: frame.rbp, flags: frame.flags, counter: frame.counter, stack },
            base: asks(CLONE_SETTLS).then_some(base),
            makers_base: tls.programs_base.get(),
            cleared: if asks(CLONE_CHILD_CLEARTID) { own_number } else { 0 },
            parents_number: if asks(CLONE_PARENT_SETTID) { parents_number } else { 0 },
            own_number: if asks(CLONE_CHILD_SETTID) { own_number } else { 0 },
            mask,
            hidden: tls.hidden.get(),
            number: AtomicU32::new(0),
        };
        let (mut attributes, mut thread) = ([0u64; ATTRIBUTES_BYTES / 8], 0usize);
        let attributes = attributes.as_mut_ptr().cast::<u8>();
        // SAFETY: a `pthread_attr_t` has that many bytes.
        let made = unsafe {
            pthread_attr_init(attributes);
            pthread_attr_setstacksize(attributes, STACK_BYTES);
            pthread_attr_setdetachstate(attributes, DETACHED);
            create(&raw mut thread, attributes, run, (&raw const begin).cast_mut().cast())
        };
        if made != 0 {
            return -(made as isize);
        }
        loop {
            match begin.number.load(Acquire) {
                0 => wait_while(begin.number.as_ptr(), 0),
                number => return number as isize,
            }
        }
    })
}

/// A thread of our libc's, all signals blocked.
unsafe extern "C" fn run(at: *mut c_void) -> *mut c_void {
    // SAFETY: it stays until the number is told.
    let begin = unsafe { &*at.cast::<Begin>() };
    swap::here();
    let tls = tls::get();
    let number = pm::mutex::thread_number();
    swap::set_program(begin.base.unwrap_or_else(|| swap::without_own(begin.makers_base)));
    tls.cleared.set(begin.cleared);
    tls.hidden.set(begin.hidden);
    for place in [begin.parents_number, begin.own_number].into_iter().filter(|place| *place != 0) {
        // SAFETY: the program's own word.
        let _ = unsafe { pm::faults::write(place as *mut u32, &number) };
    }
    let (registers, mask, told) = (begin.registers, begin.mask, begin.number.as_ptr());
    begin.number.store(number, Release);
    // The maker may be gone by now: only the address counts.
    wake(told as usize, WAKE_PRIVATE);
    dispatch::set_here();
    let mut spare = MaybeUninit::<[u8; SPARE_BYTES]>::uninit();
    if dispatch::switches_stacks() {
        tls.spare_stack.set(spare.as_mut_ptr() as usize);
        set_spare(0);
    }
    operation::set_signals(mask);
    // SAFETY: as the program has asked.
    unsafe { enter(&registers) };
    operation::block_signals();
    tls.own_stack.set(0);
    if tls.spare_stack.get() != 0 {
        set_spare(DISABLED);
    }
    // Before others can begin one with the same thread pointer.
    swap::end();
    let [given_up, len] = [&tls.given_up[0], &tls.given_up[1]].map(|word| word.replace(0));
    if given_up != 0 {
        // SAFETY: as the program has asked; nobody is on it any more.
        let _ = unsafe { pm::call!(__NR_munmap, given_up, len) };
    }
    clear(tls.cleared.replace(0));
    core::ptr::null_mut()
}

/// For the kernel's frame and our handler.
const SPARE_BYTES: usize = 32 << 10;
/// `SS_DISABLE`.
const DISABLED: u32 = 2;

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SignalStack {
    begin: usize,
    flags: u32,
    bytes: usize,
}

/// Has the thread's signals handled on its spare stack, or on that which it is on.
fn set_spare(flags: u32) {
    let spare = SignalStack { begin: tls::get().spare_stack.get(), flags, bytes: SPARE_BYTES };
    // SAFETY: the stack is there until the thread ends.
    let _ = unsafe { pm::call!(__NR_sigaltstack, &raw const spare, 0) };
}

/// From now on nothing of ours is on the stack of the program, in this process's one thread.
pub fn leave_stack() {
    let tls = tls::get();
    dispatch::ready_stack(tls);
    if tls.spare_stack.get() == 0 {
        let spare = alloc::alloc_pages(SPARE_BYTES);
        if !spare.is_null() {
            tls.spare_stack.set(spare as usize);
            set_spare(0);
        }
    }
}

/// `sigaltstack`, where there is a spare one: the program does not see it.
///
/// # Safety
/// As for the system call.
pub unsafe fn signal_stack(new: usize, old: usize) -> isize {
    let spare = tls::get().spare_stack.get();
    let mut before = SignalStack { begin: 0, flags: 0, bytes: 0 };
    // SAFETY: room for the answer.
    if let Err(errno) = unsafe { pm::call!(__NR_sigaltstack, 0, &raw mut before) } {
        return super::failed(errno);
    }
    if before.begin == spare {
        before = SignalStack { begin: 0, flags: DISABLED, bytes: 0 };
    }
    if new != 0 {
        // SAFETY: by contract.
        let wanted = match unsafe { pm::faults::read(new as *const SignalStack) } {
            Ok(wanted) if wanted.flags & DISABLED != 0 => SignalStack { begin: spare, flags: 0, bytes: SPARE_BYTES },
            Ok(wanted) => wanted,
            Err(errno) => return super::failed(errno),
        };
        // SAFETY: the program's stack, or the spare one.
        if let Err(errno) = unsafe { pm::call!(__NR_sigaltstack, &raw const wanted, 0) } {
            return super::failed(errno);
        }
    }
    // SAFETY: by contract.
    if old != 0 && unsafe { pm::faults::write(old as *mut SignalStack, &before) }.is_err() {
        return super::failed(Errno::EFAULT);
    }
    0
}

const WAKE: u32 = 1;
const WAKE_PRIVATE: u32 = 129;

/// A thread ends: clears and wakes the program's word, if there is one.
pub fn clear(place: usize) {
    if place != 0 {
        // SAFETY: the program's own word.
        let _ = unsafe { pm::faults::write(place as *mut u32, &0) };
        wake(place, WAKE);
    }
}

/// The thread is about to end, and gives up the stack that it is on.
pub fn note_stack(begin: usize, len: usize) {
    let given_up = &tls::get().given_up;
    given_up[0].set(begin);
    given_up[1].set(len);
}

/// Goes on in the program with these registers; returns where the thread has ended.
#[unsafe(naked)]
unsafe extern "C" fn enter(registers: *const Registers) {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rcx, qword ptr fs:[0]",
        "mov rdx, qword ptr [rip + bypath_tls@GOTTPOFF]",
        "mov [rcx + rdx + {own_stack}], rsp",
        "mov rax, [rcx + rdx + {base}]",
        set_fs!("rax"),
        "push qword ptr [rdi + 96]",
        "popfq",
        "mov r15, [rdi]",
        "mov r14, [rdi + 8]",
        "mov r13, [rdi + 16]",
        "mov r12, [rdi + 24]",
        "mov r10, [rdi + 32]",
        "mov r9, [rdi + 40]",
        "mov r8, [rdi + 48]",
        "mov rdx, [rdi + 56]",
        "mov rsi, [rdi + 64]",
        "mov rbx, [rdi + 80]",
        "mov rbp, [rdi + 88]",
        "mov rcx, [rdi + 104]",
        "mov rsp, [rdi + 112]",
        "mov rdi, [rdi + 72]",
        "mov eax, 0",
        "jmp rcx",
        own_stack = const OWN_STACK_OFFSET,
        base = const PROGRAMS_BASE_OFFSET,
    )
}
