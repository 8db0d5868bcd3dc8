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
    "movaps [rsp + 48], xmm0",
    "movaps [rsp + 64], xmm1",
    "movaps [rsp + 80], xmm2",
    "movaps [rsp + 96], xmm3",
    "movaps [rsp + 112], xmm4",
    "movaps [rsp + 128], xmm5",
    "movaps [rsp + 144], xmm6",
    "movaps [rsp + 160], xmm7",
    "movaps [rsp + 176], xmm8",
    "movaps [rsp + 192], xmm9",
    "movaps [rsp + 208], xmm10",
    "movaps [rsp + 224], xmm11",
    "movaps [rsp + 240], xmm12",
    "movaps [rsp + 256], xmm13",
    "movaps [rsp + 272], xmm14",
    "movaps [rsp + 288], xmm15",
    "mov rdi, rax",
    "mov rsi, rsp",
    "call {serve}",
    "movaps xmm0, [rsp + 48]",
    "movaps xmm1, [rsp + 64]",
    "movaps xmm2, [rsp + 80]",
    "movaps xmm3, [rsp + 96]",
    "movaps xmm4, [rsp + 112]",
    "movaps xmm5, [rsp + 128]",
    "movaps xmm6, [rsp + 144]",
    "movaps xmm7, [rsp + 160]",
    "movaps xmm8, [rsp + 176]",
    "movaps xmm9, [rsp + 192]",
    "movaps xmm10, [rsp + 208]",
    "movaps xmm11, [rsp + 224]",
    "movaps xmm12, [rsp + 240]",
    "movaps xmm13, [rsp + 256]",
    "movaps xmm14, [rsp + 272]",
    "movaps xmm15, [rsp + 288]",
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
