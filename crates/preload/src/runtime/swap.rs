//! Two thread pointers, where the program has a C library of its own, or none, and stands beside ours.
//!
//! A program that we have mapped ourselves lives in one process with the C library that this one needs. Both find what is a
//! thread's by the base of `fs`. The register holds the program's while code of the program runs, and ours while code of ours
//! does; where ours is stands in the base of `gs`, which no such program uses. Whoever comes from the program (a system
//! call that is handed back, a signal) changes the register, and changes it back.
//!
//! Invariants
//! - Which of the two is in the register is never noted: it is compared with the base of `gs`.
//! - While ours is in the register, the thread's word has the program's.

use crate::runtime::tls;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Whether the registers are changed: 1, or 0.
pub static SWAPS: AtomicU32 = AtomicU32::new(0);

/// Whether this program is one that we have mapped.
#[inline(always)]
pub fn is_on() -> bool {
    cfg!(target_arch = "x86_64") && SWAPS.load(Relaxed) != 0
}

/// From now on, in this first thread; ours is in the register.
pub fn start() {
    here();
    SWAPS.store(1, Release);
}

/// In a thread that begins, with ours in the register.
pub fn here() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nobody uses this base but us, and the first word at the thread pointer holds it.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr fs:[0]", "wrgsbase {0}", out(reg) _, options(nostack, preserves_flags));
    }
    tls::get().programs_base.set(0);
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
        "rdgsbase rbx",
        "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
        "mov rax, [rbx + r8 + {base}]",
        "wrfsbase rax",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call rax",
        "rdfsbase rax",
        "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
        "mov [rbx + r8 + {base}], rax",
        "wrfsbase rbx",
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
                "rdgsbase rcx",
                "cmp rax, rcx",
                "je {own}",
                "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
                "mov [rcx + r8 + {base}], rax",
                "wrfsbase rcx",
                "sub rsp, 8",
                "call {target}",
                "add rsp, 8",
                "rdgsbase rcx",
                "mov r8, qword ptr [rip + bypath_tls@GOTTPOFF]",
                "mov rax, [rcx + r8 + {base}]",
                "wrfsbase rax",
                "ret",
                base = const $crate::runtime::tls::PROGRAMS_BASE_OFFSET,
                target = sym $target,
                own = sym $own,
            )
        }
    };
}
