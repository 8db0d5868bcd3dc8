//! `fork`, `vfork`, `clone` and their kin.

use crate::next;
use crate::process::fork::{Entry, libc_clone, libc_fork, quiet_fork};
use crate::process::vfork;
use core::ffi::{c_int, c_void};
#[cfg(target_arch = "x86_64")]
use pm::sys::abi::__NR_vfork;

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
        prepare = sym vfork::prepare,
        fork = sym as_fork,
        arrive = sym vfork::arrive,
        number = const __NR_vfork,
        resume = sym vfork::resume,
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

export! {
    fn clone(entry: Entry, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_int, area: *mut c_void, child: *mut c_int) -> c_int {
        libc_clone(entry, stack, flags, argument, parent, area, child)
    }
}
