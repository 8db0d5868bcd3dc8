//! Where the stubs lead: saves what the kernel would leave alone, and calls
//! [`super::serve`].
//!
//! libc's code may keep values in `xmm` registers across a system call; wider
//! parts are never live there, since its compiled code knows the baseline only
//! and the functions written by hand make no system calls.

core::arch::global_asm!(
    ".hidden bypath_patch_entry",
    ".globl bypath_patch_entry",
    ".type bypath_patch_entry, @function",
    "bypath_patch_entry:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "and rsp, -16",
    "sub rsp, 304",
    // The arguments in the kernel's order.
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps [rsp + 48 + 16 * \\n], xmm\\n",
    ".endr",
    "mov rdi, rax",
    "mov rsi, rsp",
    "call {serve}",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps xmm\\n, [rsp + 48 + 16 * \\n]",
    ".endr",
    "lea rsp, [rbp - 48]",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size bypath_patch_entry, . - bypath_patch_entry",
    serve = sym super::serve,
);

unsafe extern "C" {
    fn bypath_patch_entry();
}

/// Its address.
pub fn address() -> usize {
    bypath_patch_entry as *const () as usize
}
