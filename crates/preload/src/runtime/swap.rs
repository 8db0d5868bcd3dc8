//! Two thread pointers, where the program has a C library of its own, or none, and stands beside ours.
//!
//! A program that we have mapped ourselves lives in one process with the C library that this one needs. Both find what is a
//! thread's by the base of `fs`. The register holds the program's while code of the program runs, and ours while code of ours
//! does; where ours is stands in the base of `gs`, which no such program uses. Whoever comes from the program (a system
//! call that is handed back, a signal) changes the register, and changes it back.
//!
//! In gVisor the base of `fs` is what a call of `arch_prctl` has made it: an instruction's change is gone with the next call. So it is
//! changed by a call there. And where its own code in each process uses `gs` (systrap), ours is found in a [`table`] by what is in the
//! register.
//!
//! Invariants
//! - Which of the two is in the register is never noted: it is compared with the base of `gs`, or looked up.
//! - While ours is in the register, the thread's word has the program's.

use super::bases as table;
use crate::runtime::{imports, tls};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use pm::dispatch::Bases;

#[cfg(target_arch = "x86_64")]
const ARCH_SET_FS: usize = 0x1002;

/// Whether the registers are changed: 1, or 0.
pub static SWAPS: AtomicU32 = AtomicU32::new(0);

/// Whether this program is one that we have mapped.
#[inline(always)]
pub fn is_on() -> bool {
    cfg!(target_arch = "x86_64") && SWAPS.load(Relaxed) != 0
}

// `bypath_set_fs`: rax becomes the base of `fs`, by a call; all registers stay.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .bss, \"aw\", @nobits",
    ".balign 4",
    ".globl bypath_bases",
    ".hidden bypath_bases",
    "bypath_bases: .zero 4",
    ".popsection",
    ".pushsection .text.bypath_set_fs, \"ax\", @progbits",
    ".balign 16",
    ".globl bypath_set_fs",
    ".hidden bypath_set_fs",
    "bypath_set_fs:",
    ".irp register, rdi, rsi, rcx, r11, rax",
    "push \\register",
    ".endr",
    "mov rsi, rax",
    "mov edi, {set}",
    "mov eax, {arch_prctl}",
    "syscall",
    ".irp register, rax, r11, rcx, rsi, rdi",
    "pop \\register",
    ".endr",
    "ret",
    ".popsection",
    set = const ARCH_SET_FS,
    arch_prctl = const pm::sys::abi::__NR_arch_prctl,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// How the bases are changed: [`Bases`] as a number.
    static bypath_bases: AtomicU32;
}

/// The base of `fs` becomes what a register holds. Takes some stack, and the flags.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! set_fs {
    ($register:literal) => {
        concat!(
            "cmp dword ptr [rip + bypath_bases], 0\n jne 91f\n wrfsbase ",
            $register,
            "\n jmp 92f\n 91: xchg rax, ",
            $register,
            "\n call bypath_set_fs\n xchg rax, ",
            $register,
            "\n 92:"
        )
    };
}

/// rcx becomes our base for the thread whose base of `fs` is in rax: the program's, or ours. Takes some stack, and the flags.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! own_base {
    () => {
        "cmp dword ptr [rip + bypath_bases], 2\n je 93f\n rdgsbase rcx\n jmp 94f\n 93: call bypath_own_base\n 94:"
    };
}

/// Whether no register leads from a program's thread to ours, but the [`table`].
pub fn is_by_table() -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a word of ours.
    return is_on() && unsafe { bypath_bases.load(Relaxed) } == Bases::ByCallAlone as u32;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// From now on, in this first thread; ours is in the register.
pub fn start() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a word of ours.
    unsafe {
        bypath_bases.store(bases() as u32, Relaxed);
    }
    SWAPS.store(1, Release);
    here();
    set_program(0);
}

/// `BYPATH_BASES=table` asks for gVisor's way, which works everywhere: for tests.
#[cfg(target_arch = "x86_64")]
fn bases() -> Bases {
    // SAFETY: nobody changes the environment meanwhile: this thread is alone.
    let asked = unsafe { imports::get_variable(imports::environ, b"BYPATH_BASES") };
    if asked.is_some_and(|value| value.to_bytes() == b"table") { Bases::ByCallAlone } else { pm::dispatch::bases() }
}

/// In a thread that begins, with ours in the register.
pub fn here() {
    if is_by_table() {
        table::set(own(), own());
    } else {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: nobody uses this base but us.
        unsafe {
            core::arch::asm!("wrgsbase {0}", in(reg) own(), options(nostack, preserves_flags));
        }
    }
    tls::get().programs_base.set(0);
}

/// This thread's base, of ours.
fn own() -> usize {
    let own: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word at the thread pointer holds it.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr fs:[0]", out(reg) own, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        own = 0;
    }
    own
}

/// The program's base in this thread is this one from now on.
pub fn set_program(base: usize) {
    let before = tls::get().programs_base.replace(base);
    if is_by_table() {
        if before != base {
            table::remove(before, own());
        }
        table::set(base, own());
    }
}

/// The base of a thread that begins without one of its own, as its maker has `makers`: where threads are told apart by it, another.
pub fn without_own(makers: usize) -> usize {
    if is_by_table() { own() + size_of::<usize>() } else { makers }
}

/// This thread ends; ours is in the register.
pub fn end() {
    if is_by_table() {
        table::remove(tls::get().programs_base.get(), own());
        table::remove(own(), own());
    }
}

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);

/// Calls a handler of the program's.
///
/// # Safety
/// It is one; the rest is the kernel's frame.
#[inline]
pub unsafe fn call_handler(handler: usize, signal: c_int, info: *mut c_void, context: *mut c_void) {
    #[cfg(target_arch = "x86_64")]
    if is_on() {
        // SAFETY: by contract.
        return unsafe { call_swapped(handler, signal, info, context) };
    }
    // SAFETY: by contract; one that takes only the signal number ignores the other arguments.
    unsafe { core::mem::transmute::<usize, Handler>(handler)(signal, info, context) }
}

/// The same with the program's thread pointer, which the handler may change.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_swapped(handler: usize, signal: c_int, info: *mut c_void, context: *mut c_void) {
    core::arch::naked_asm!(
        "push rbx",
        "mov rbx, qword ptr fs:[0]",
        "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
        "mov rax, [rbx + r8 + {base}]",
        set_fs!("rax"),
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call rax",
        "rdfsbase rax",
        "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
        "mov [rbx + r8 + {base}], rax",
        set_fs!("rbx"),
        "pop rbx",
        "ret",
        base = const tls::PROGRAMS_BASE_OFFSET,
    )
}

/// `from_kernel!(name, target, own)`: a signal handler of ours for the kernel, `name`, that calls `target` where the program was
/// interrupted, with our thread pointer, and `own` where we were.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! from_kernel {
    ($(#[$doc:meta])* $vis:vis $name:ident, $target:path, $own:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        $vis unsafe extern "C" fn $name(signal: c_int, info: *mut c_void, context: *mut c_void) {
            core::arch::naked_asm!(
                "rdfsbase rax",
                $crate::own_base!(),
                "cmp rax, rcx",
                "je {own}",
                "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
                "mov [rcx + r8 + {base}], rax",
                $crate::set_fs!("rcx"),
                "sub rsp, 8",
                "call {target}",
                "add rsp, 8",
                "mov rcx, qword ptr fs:[0]",
                "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
                "mov rax, [rcx + r8 + {base}]",
                $crate::set_fs!("rax"),
                "ret",
                base = const $crate::runtime::tls::PROGRAMS_BASE_OFFSET,
                target = sym $target,
                own = sym $own,
            )
        }
    };
}
