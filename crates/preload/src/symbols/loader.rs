//! `dlopen` of a library inside a mount: the loader makes raw system calls. Where the
//! kernel has nothing at that path, it says "No such file"; we say why, and let it fail.
//!
//! libc's `dlopen` looks at its return address (whose `RUNPATH`, which namespace),
//! so it is jumped to, not called.

use core::ffi::{c_char, c_int, c_void};

use pm::sys::abi;

use crate::{call, errno, init, next, tls};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

unsafe extern "C" fn no_loader(_path: *const c_char, _flags: c_int) -> *mut c_void {
    core::ptr::null_mut()
}

/// Complains if the library is ours; returns the address of libc's `dlopen`.
unsafe extern "C" fn before(path: *const c_char) -> usize {
    // SAFETY: a string, where not null.
    if !path.is_null() && unsafe { *path } != 0 && init::serves(tls::get()) {
        let saved = errno::get();
        let here = abi::AT_FDCWD as usize;
        // SAFETY: a string.
        let found = unsafe { call::serve(abi::__NR_faccessat as usize, [here, path as usize, 0, 0, 0, 0]) };
        // SAFETY: a string.
        let kernel_has_it = unsafe { pm::call!(abi::__NR_faccessat, here, path, 0) }.is_ok();
        errno::set(saved);
        // A bare name is looked for in the system's folders, not here.
        // SAFETY: a string.
        let text = unsafe { super::plain::bytes(path) };
        if found.ours && found.result == 0 && !kernel_has_it && text.contains(&b'/') {
            let name = core::str::from_utf8(text).unwrap_or("library");
            crate::complain!(
                "cannot load {name}: libraries inside an image need the kernel's way in; export it to a kernel directory"
            );
        }
    }
    next!(Dlopen, "dlopen").unwrap_or(no_loader) as *const () as usize
}

/// `dlopen(3)`.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before,
    )
}

/// `dlopen(3)`.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {before}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        before = sym before,
    )
}
