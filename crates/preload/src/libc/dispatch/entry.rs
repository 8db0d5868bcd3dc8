//! Where the program goes on in the place of its system call.
//!
//! On entry the registers are the program's, and on the stack lie: whether that stack is ours, flags, where it goes on, its stack
//! pointer. All registers but `rax`,
//! `rcx` and `r11` come back as they were, the flags and the vector registers too: that is what the kernel promises, and
//! compilers make use of it. Of a program that we have mapped, the thread pointer is changed meanwhile
//! ([`crate::runtime::swap`]).

use super::{before_vfork, fork_instead, in_child, in_parent, serve};
use crate::runtime::swap::SWAPS;
use crate::runtime::tls::{DISPATCHED_OFFSET, IS_ON_IT_OFFSET, PROGRAMS_BASE_OFFSET};
use crate::{own_base, set_fs};
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// What is saved of the registers that calls may change: SSE, AVX, AVX-512.
pub const STATE: u32 = 0xe6;
/// Room for it, as `XSAVE` lays it out.
pub const STATE_BYTES: usize = 2752;
/// Arguments, and space up to the next 64 bytes.
pub const ARGS_BYTES: usize = 64;

/// Whether this processor's registers find room; there are none without `XSAVE` among those that Linux has this on.
pub fn learn() -> bool {
    const XSAVE: u32 = 1 << 26;
    const OSXSAVE: u32 = 1 << 27;
    let has = __cpuid(1).ecx & (XSAVE | OSXSAVE) == XSAVE | OSXSAVE && __cpuid(0).eax >= 13;
    let ends = (2..32).filter(|part| STATE & 1 << part != 0).map(|part| {
        let part = __cpuid_count(13, part);
        (part.ebx + part.eax) as usize
    });
    has && ends.max().is_some_and(|end| end <= STATE_BYTES)
}

core::arch::global_asm!(
    // The thread's words, where the program's thread pointer is in the register.
    ".macro bypath_words to",
    "mov \\to, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "cmp dword ptr [rip + {swaps}], 0",
    "jne 77f",
    "add \\to, qword ptr fs:[0]",
    "jmp 78f",
    "77:",
    "cmp dword ptr [rip + bypath_bases], 2",
    "je 79f",
    "add \\to, qword ptr gs:[0]",
    "jmp 78f",
    "79:",
    "push rax",
    "push rcx",
    "rdfsbase rax",
    "call bypath_own_base",
    "xchg [rsp], rcx",
    "mov rax, [rsp + 8]",
    "add \\to, [rsp]",
    "lea rsp, [rsp + 16]",
    "78:",
    ".endm",
    ".pushsection .text.bypath_dispatch, \"ax\", @progbits",
    // Found from other units of this library, and from nowhere else.
    ".globl bypath_dispatch_call", ".hidden bypath_dispatch_call",
    ".globl bypath_dispatch_past", ".hidden bypath_dispatch_past",
    ".globl bypath_dispatch_older", ".hidden bypath_dispatch_older",
    ".globl bypath_dispatch_clone", ".hidden bypath_dispatch_clone",
    ".globl bypath_dispatch_clone3", ".hidden bypath_dispatch_clone3",
    ".globl bypath_dispatch_vfork", ".hidden bypath_dispatch_vfork",
    ".globl bypath_dispatch_leave", ".hidden bypath_dispatch_leave",
    // A call that is served. What serves it is in r11.
    ".balign 16",
    "bypath_dispatch_call:",
    "lea r11, [rip + {serve}]",
    "bypath_dispatch_full:",
    ".cfi_startproc",
    "push rbp",
    "mov rbp, rsp",
    // The frame above is at *(rbp + 32), goes on at rbp + 24, and its rbp is at rbp.
    ".cfi_escape 0x0f, 0x03, 0x76, 0x20, 0x06",
    ".cfi_escape 0x10, 0x10, 0x02, 0x76, 0x18",
    ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00",
    "push rbx",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    // These are kept by whom we call: here for threads that begin with them.
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "cld",
    "sub rsp, {room}",
    "and rsp, -64",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov rdi, rax",
    // The header of the area, of which XSAVE writes a part only.
    "xor eax, eax",
    ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
    "mov [rsp + {header} + \\at], rax",
    ".endr",
    "mov eax, {state}",
    "xor edx, edx",
    "xsave64 [rsp + {args}]",
    "cmp dword ptr [rip + {swaps}], 0",
    "je 5f",
    "rdfsbase rax",
    own_base!(),
    "mov rdx, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "mov [rcx + rdx + {base}], rax",
    set_fs!("rcx"),
    "5:",
    "mov rsi, rsp",
    "mov rdx, rbp",
    "call r11",
    "mov rbx, rax",
    "cmp dword ptr [rip + {swaps}], 0",
    "je 6f",
    "mov rcx, qword ptr fs:[0]",
    "mov rdx, qword ptr [rip + bypath_tls@GOTTPOFF]",
    "mov rax, [rcx + rdx + {base}]",
    set_fs!("rax"),
    "6:",
    "mov eax, {state}",
    "xor edx, edx",
    "xrstor64 [rsp + {args}]",
    "mov rax, rbx",
    "lea rsp, [rbp - 56]",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbx",
    "pop rbp",
    ".cfi_endproc",
    "bypath_dispatch_back:",
    "pop rcx",
    "jrcxz 1f",
    // The stack is ours: it is left before the thread's word says so.
    "bypath_words r11",
    "popfq",
    "pop rcx",
    "pop rsp",
    "mov qword ptr [r11 + {is_on_it}], 0",
    "jmp rcx",
    "1:",
    "popfq",
    "pop rcx",
    "pop rsp",
    "jmp rcx",
    // A call that is the kernel's.
    ".balign 16",
    "bypath_dispatch_past:",
    "syscall",
    "jmp bypath_dispatch_back",
    // The same by the older instruction, which keeps rcx and r11.
    ".balign 16",
    "bypath_dispatch_older:",
    "int 0x80",
    "lea rsp, [rsp + 8]",
    "popfq",
    "ret 136",
    // A child with a stack of its own: the argument that was changed for it lies on top, on both stacks.
    ".balign 16",
    "bypath_dispatch_clone:",
    "syscall",
    "pop rsi",
    "jmp bypath_dispatch_back",
    ".balign 16",
    "bypath_dispatch_clone3:",
    "syscall",
    "pop rdi",
    "jmp bypath_dispatch_back",
    // A child on its parent's stack. First something of the shape of a call within it, which readies the child.
    ".balign 16",
    "bypath_dispatch_vfork:",
    "lea r11, [rip + 2f]",
    "mov rcx, rsp",
    "push rcx",
    "push r11",
    "pushfq",
    "push 0",
    "lea r11, [rip + {before}]",
    "jmp bypath_dispatch_full",
    "2:",
    "test rax, rax",
    "js 4f",
    // What is on the stack goes into the thread's words.
    "bypath_words rcx",
    "mov r11, [rsp]",
    "mov [rcx + {words}], r11",
    "mov r11, [rsp + 8]",
    "mov [rcx + {words} + 8], r11",
    "mov r11, [rsp + 16]",
    "mov [rcx + {words} + 16], r11",
    "mov r11, [rsp + 24]",
    "mov [rcx + {words} + 24], r11",
    "syscall",
    "bypath_words rcx",
    "mov r11, [rcx + {words}]",
    "mov [rsp], r11",
    "mov r11, [rcx + {words} + 8]",
    "mov [rsp + 8], r11",
    "mov r11, [rcx + {words} + 16]",
    "mov [rsp + 16], r11",
    "mov r11, [rcx + {words} + 24]",
    "mov [rsp + 24], r11",
    "lea r11, [rip + {parent}]",
    "test rax, rax",
    "jnz bypath_dispatch_full",
    "lea r11, [rip + {child}]",
    "jmp bypath_dispatch_full",
    "4:",
    "neg rax",
    "lea r11, [rip + {fork}]",
    "jmp bypath_dispatch_full",
    // The program has ended a thread, which goes on where it was begun, on its own stack.
    ".balign 16",
    "bypath_dispatch_leave:",
    "rdfsbase rax",
    own_base!(),
    set_fs!("rcx"),
    "cld",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
    serve = sym serve,
    before = sym before_vfork,
    parent = sym in_parent,
    child = sym in_child,
    fork = sym fork_instead,
    state = const STATE,
    args = const ARGS_BYTES,
    room = const ARGS_BYTES + STATE_BYTES,
    header = const ARGS_BYTES + 512,
    words = const DISPATCHED_OFFSET,
    is_on_it = const IS_ON_IT_OFFSET,
    swaps = sym SWAPS,
    base = const PROGRAMS_BASE_OFFSET,
);

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident $symbol:literal)*) => { $(
        $(#[$doc])*
        pub fn $name() -> usize {
            unsafe extern "C" {
                #[link_name = $symbol]
                fn entry();
            }
            entry as *const () as usize
        }
    )* };
}

entries! {
    /// For a call that is served.
    call "bypath_dispatch_call"
    /// For one that is the kernel's.
    past "bypath_dispatch_past"
    /// For one by `int $0x80`.
    older "bypath_dispatch_older"
    /// For `clone` of a child with a stack of its own.
    clone "bypath_dispatch_clone"
    /// The same for `clone3`.
    clone3 "bypath_dispatch_clone3"
    /// For a child on its parent's stack.
    vfork "bypath_dispatch_vfork"
    /// For the end of a thread of a program that we have mapped.
    leave "bypath_dispatch_leave"
}
