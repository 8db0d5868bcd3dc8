//! Where a call goes that a jump has taken from its site.
//!
//! On entry all registers are the program's, but for `rcx`, which says where it goes on: the kernel would have put
//! that there too. The stack pointer is the program's; there may be no room below it (Go). Flags are in `ah` and `al` as `lahf`
//! and `seto` leave them.
//!
//! Vector registers come back as they were. Our code has the lower halves of sixteen of them only, and leaves the others alone
//! ([`super::copies`]). Where it has others too (a library that is a lower file system), all are kept; those that the processor says to
//! have nothing in them are made so again.

use super::serve_site;
use crate::libc::dispatch::entry::{ARGS_BYTES, STATE, STATE_BYTES};
use crate::runtime::tls::{IS_ON_IT_OFFSET, PROGRAMS_BASE_OFFSET, SERVICE_STACK_OFFSET};
use crate::{own_base, set_fs};
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// Parts of the registers that only wider instructions have: AVX, AVX-512's three.
const WIDE: u32 = 0xe4;

/// Whether this processor has the instructions that the entry is made of; to keep `all` registers takes one more.
pub fn learn(all: bool) -> bool {
    const LAHF: u32 = 1;
    const SAYS_WHAT_IS_USED: u32 = 1 << 2;
    __cpuid(0x8000_0001).ecx & LAHF != 0 && (!all || __cpuid_count(13, 1).eax & SAYS_WHAT_IS_USED != 0)
}

core::arch::global_asm!(
    ".macro bypath_site_entry name, seg, swaps, all",
    ".globl \\name", ".hidden \\name",
    ".balign 16",
    "\\name:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    // Nothing may be written yet: number and flags go into one register.
    "mov r11d, eax",
    "lahf",
    "seto al",
    "movzx eax, ax",
    "shl rax, 32",
    "or r11, rax",
    "mov rax, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "cmp qword ptr \\seg:[rax + {is_on_it}], 0",
    "jne 1f",
    "cmp qword ptr \\seg:[rax + {service_stack}], 0",
    "je 1f",
    "mov qword ptr \\seg:[rax + {is_on_it}], 1",
    "mov rax, qword ptr \\seg:[rax + {service_stack}]",
    "mov [rax - 8], rsp",
    "lea rsp, [rax - 40]",
    "mov qword ptr [rsp + 8], 1",
    "jmp 2f",
    "1:",
    "lea rsp, [rsp - 168]",
    "mov qword ptr [rsp + 8], 0",
    "lea rax, [rsp + 168]",
    "mov [rsp + 32], rax",
    "2:",
    "mov [rsp + 24], rcx",
    "mov rcx, r11",
    "shr rcx, 32",
    "mov [rsp + 16], rcx",
    "mov [rsp], rbp",
    "mov rbp, rsp",
    // As in the other entry: the frame above is at *(rbp + 32), goes on at rbp + 24, and its rbp is at rbp.
    ".cfi_escape 0x0f, 0x03, 0x76, 0x20, 0x06",
    ".cfi_escape 0x10, 0x10, 0x02, 0x76, 0x18",
    ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "cld",
    "sub rsp, {room}",
    "and rsp, -64",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    ".if \\all",
    "mov ecx, 1",
    "xgetbv",
    "and eax, {wide}",
    "mov [rsp + 48], eax",
    "jnz 3f",
    ".endif",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps [rsp + {xmm} + 16 * \\n], xmm\\n",
    ".endr",
    "4:",
    ".if \\swaps",
    "rdfsbase rax",
    own_base!(),
    "mov rdx, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "mov [rcx + rdx + {base}], rax",
    set_fs!("rcx"),
    ".endif",
    "mov edi, r11d",
    "mov rsi, rsp",
    "mov rdx, rbp",
    "call {serve}",
    "mov [rsp + 56], rax",
    ".if \\swaps",
    "mov rcx, qword ptr fs:[0]",
    "mov rdx, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "mov rax, [rcx + rdx + {base}]",
    set_fs!("rax"),
    ".endif",
    ".if \\all",
    "cmp dword ptr [rsp + 48], 0",
    "jne 5f",
    "mov ecx, 1",
    "xgetbv",
    "and eax, {wide}",
    "jnz 6f",
    ".endif",
    "7:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps xmm\\n, [rsp + {xmm} + 16 * \\n]",
    ".endr",
    "8:",
    "mov r11, [rsp + 56]",
    "lea rsp, [rbp - 48]",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "mov rax, [rbp + 16]",
    "mov rcx, [rbp + 24]",
    "cmp qword ptr [rsp + 8], 0",
    "pop rbp",
    ".cfi_undefined rip",
    "jne 9f",
    "add al, 127",
    "sahf",
    "mov rax, r11",
    "lea rsp, [rsp + 160]",
    "jmp rcx",
    // The stack is ours: it is left before the thread's word says so.
    "9:",
    "add al, 127",
    "sahf",
    "mov rax, r11",
    "mov r11, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "mov rsp, [rsp + 24]",
    "mov qword ptr \\seg:[r11 + {is_on_it}], 0",
    "jmp rcx",
    ".if \\all",
    // Wider parts are in use: all is kept.
    "3:",
    "xor eax, eax",
    ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
    "mov [rsp + {header} + \\at], rax",
    ".endr",
    "mov eax, {state}",
    "xor edx, edx",
    "xsave64 [rsp + {args}]",
    "jmp 4b",
    "5:",
    "mov eax, {state}",
    "xor edx, edx",
    "xrstor64 [rsp + {args}]",
    "jmp 8b",
    // They have something in them that was not there: back to nothing.
    "6:",
    "xor ecx, ecx",
    ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
    "mov [rsp + {header} + \\at], rcx",
    ".endr",
    "stmxcsr [rsp + {args} + 24]",
    "xor edx, edx",
    "xrstor64 [rsp + {args}]",
    "jmp 7b",
    ".endif",
    ".cfi_endproc",
    ".endm",
    ".pushsection .text.bypath_site, \"ax\", @progbits",
    "bypath_site_entry bypath_site_own, fs, 0, 0",
    "bypath_site_entry bypath_site_mapped, gs, 1, 0",
    "bypath_site_entry bypath_site_own_all, fs, 0, 1",
    "bypath_site_entry bypath_site_mapped_all, gs, 1, 1",
    ".popsection",
    serve = sym serve_site,
    state = const STATE,
    wide = const WIDE,
    args = const ARGS_BYTES,
    room = const ARGS_BYTES + STATE_BYTES,
    header = const ARGS_BYTES + 512,
    xmm = const ARGS_BYTES + 160,
    is_on_it = const IS_ON_IT_OFFSET,
    service_stack = const SERVICE_STACK_OFFSET,
    base = const PROGRAMS_BASE_OFFSET,
);

unsafe extern "C" {
    fn bypath_site_own();
    fn bypath_site_mapped();
    fn bypath_site_own_all();
    fn bypath_site_mapped_all();
}

/// Its address: of the program that we have mapped, or of one that the loader has; and whether it keeps all registers.
pub fn address(is_mapped: bool, all: bool) -> usize {
    let entry = match (is_mapped, all) {
        (true, false) => bypath_site_mapped,
        (true, true) => bypath_site_mapped_all,
        (false, false) => bypath_site_own,
        (false, true) => bypath_site_own_all,
    };
    entry as *const () as usize
}
