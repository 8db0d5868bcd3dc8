//! What the compiler calls to copy, fill and compare, with the lower halves of the first vector registers alone (x86-64).
//!
//! libc's functions have all that the processor has. Who must keep the registers of somebody else, and does not want to keep all of
//! them, has these called.

core::arch::global_asm!(
    ".pushsection .text.bypath_copies, \"ax\", @progbits",
    ".globl bypath_move",
    ".hidden bypath_move",
    ".globl bypath_fill",
    ".hidden bypath_fill",
    ".globl bypath_differ",
    ".hidden bypath_differ",
    ".globl bypath_length",
    ".hidden bypath_length",
    // (target, source, bytes) that may overlap.
    ".balign 16",
    "bypath_move:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 4f",
    "cmp rdx, 32",
    "ja 1f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    "1:",
    "cmp rdx, 64",
    "ja 2f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    "2:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 6f",
    "cmp rdx, 1024",
    "jae 3f",
    // From the beginning; the end is read first.
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 64]",
    "5:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "cmp rdi, r8",
    "jb 5b",
    "movups [r8], xmm4",
    "movups [r8 + 16], xmm5",
    "movups [r8 + 32], xmm6",
    "movups [r8 + 48], xmm7",
    "ret",
    "3:",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    // From the end; the beginning is read first.
    "6:",
    "movups xmm4, [rsi]",
    "movups xmm5, [rsi + 16]",
    "movups xmm6, [rsi + 32]",
    "movups xmm7, [rsi + 48]",
    "7:",
    "movups xmm0, [rsi + rdx - 16]",
    "movups xmm1, [rsi + rdx - 32]",
    "movups xmm2, [rsi + rdx - 48]",
    "movups xmm3, [rsi + rdx - 64]",
    "movups [rdi + rdx - 16], xmm0",
    "movups [rdi + rdx - 32], xmm1",
    "movups [rdi + rdx - 48], xmm2",
    "movups [rdi + rdx - 64], xmm3",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 7b",
    "movups [rdi], xmm4",
    "movups [rdi + 16], xmm5",
    "movups [rdi + 32], xmm6",
    "movups [rdi + 48], xmm7",
    "ret",
    "4:",
    "cmp edx, 8",
    "jb 8f",
    "mov r8, [rsi]",
    "mov r9, [rsi + rdx - 8]",
    "mov [rdi], r8",
    "mov [rdi + rdx - 8], r9",
    "ret",
    "8:",
    "cmp edx, 4",
    "jb 9f",
    "mov r8d, [rsi]",
    "mov r9d, [rsi + rdx - 4]",
    "mov [rdi], r8d",
    "mov [rdi + rdx - 4], r9d",
    "ret",
    "9:",
    "test edx, edx",
    "jz 3f",
    "movzx r8d, byte ptr [rsi]",
    "movzx r9d, byte ptr [rsi + rdx - 1]",
    "mov ecx, edx",
    "shr ecx, 1",
    "movzx r10d, byte ptr [rsi + rcx]",
    "mov [rdi], r8b",
    "mov [rdi + rdx - 1], r9b",
    "mov [rdi + rcx], r10b",
    "3:",
    "ret",
    // (target, byte, bytes)
    ".balign 16",
    "bypath_fill:",
    "mov r8, rdi",
    "movzx eax, sil",
    "mov rcx, 0x0101010101010101",
    "imul rax, rcx",
    "cmp rdx, 16",
    "jb 2f",
    "cmp rdx, 128",
    "ja 1f",
    "movq xmm0, rax",
    "punpcklqdq xmm0, xmm0",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm0",
    "cmp rdx, 32",
    "jbe 4f",
    "movups [rdi + 16], xmm0",
    "movups [rdi + rdx - 32], xmm0",
    "cmp rdx, 64",
    "jbe 4f",
    "movups [rdi + 32], xmm0",
    "movups [rdi + 48], xmm0",
    "movups [rdi + rdx - 48], xmm0",
    "movups [rdi + rdx - 64], xmm0",
    "jmp 4f",
    "1:",
    "mov rcx, rdx",
    "rep stosb",
    "jmp 4f",
    "2:",
    "cmp edx, 8",
    "jb 3f",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rax",
    "jmp 4f",
    "3:",
    "test edx, edx",
    "jz 4f",
    "mov [rdi + rdx - 1], al",
    "dec edx",
    "jmp 3b",
    "4:",
    "mov rax, r8",
    "ret",
    // (one, other, bytes): 0, or how the first bytes that differ do.
    ".balign 16",
    "bypath_differ:",
    "xor ecx, ecx",
    "1:",
    "lea r8, [rcx + 8]",
    "cmp r8, rdx",
    "ja 2f",
    "mov rax, [rdi + rcx]",
    "cmp rax, [rsi + rcx]",
    "jne 2f",
    "mov rcx, r8",
    "jmp 1b",
    "2:",
    "cmp rcx, rdx",
    "jae 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "jz 2b",
    "ret",
    "3:",
    "xor eax, eax",
    "ret",
    // (text)
    ".balign 16",
    "bypath_length:",
    "mov rdx, rdi",
    "and rdx, -16",
    "mov ecx, edi",
    "and ecx, 15",
    "pxor xmm0, xmm0",
    "pcmpeqb xmm0, [rdx]",
    "pmovmskb eax, xmm0",
    "shr eax, cl",
    "test eax, eax",
    "jnz 2f",
    "1:",
    "add rdx, 16",
    "pxor xmm0, xmm0",
    "pcmpeqb xmm0, [rdx]",
    "pmovmskb eax, xmm0",
    "test eax, eax",
    "jz 1b",
    "bsf eax, eax",
    "add rax, rdx",
    "sub rax, rdi",
    "ret",
    "2:",
    "bsf eax, eax",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn bypath_move();
    fn bypath_fill();
    fn bypath_differ();
    fn bypath_length();
}

/// The function that is called in the place of libc's.
pub fn instead(name: &[u8]) -> Option<usize> {
    let function = match name {
        b"memcpy" | b"memmove" => bypath_move,
        b"memset" => bypath_fill,
        b"bcmp" | b"memcmp" => bypath_differ,
        b"strlen" => bypath_length,
        _ => return None,
    };
    Some(function as *const () as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::transmute;

    /// Goal: what is copied, filled and compared is what libc's functions make of it. Method: all short lengths, and some long ones,
    /// in a block at all distances, those that overlap included.
    #[test]
    fn as_libc() {
        type Move = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
        type Fill = unsafe extern "C" fn(*mut u8, i32, usize) -> *mut u8;
        type Differ = unsafe extern "C" fn(*const u8, *const u8, usize) -> i32;
        type Length = unsafe extern "C" fn(*const u8) -> usize;
        // SAFETY: they have these shapes.
        let (moves, fills, differs, length) = unsafe {
            (
                transmute::<*const (), Move>(bypath_move as *const ()),
                transmute::<*const (), Fill>(bypath_fill as *const ()),
                transmute::<*const (), Differ>(bypath_differ as *const ()),
                transmute::<*const (), Length>(bypath_length as *const ()),
            )
        };
        let block: std::vec::Vec<u8> = (0..6000u32).map(|i| (i * 7 % 251) as u8 + 1).collect();
        let lens = (0..200).chain([255, 256, 300, 511, 640, 1000, 1023, 1024, 1025, 2000]);
        for len in lens {
            for (from, to) in
                [(0, 3000), (3000, 1), (100, 101), (101, 100), (100, 117), (117, 100), (100, 170), (170, 100), (5, 5)]
            {
                let (mut got, mut wanted) = (block.clone(), block.clone());
                wanted.copy_within(from..from + len, to);
                // SAFETY: inside the block.
                let back = unsafe { moves(got.as_mut_ptr().add(to), got.as_ptr().add(from), len) };
                assert!(got == wanted && back == got.as_mut_ptr().wrapping_add(to), "{len} {from} {to}");
            }
            let (mut got, mut wanted) = (block.clone(), block.clone());
            wanted[33..33 + len].fill(0x9a);
            // SAFETY: as above.
            unsafe { fills(got.as_mut_ptr().add(33), 0x79a, len) };
            assert_eq!(got, wanted, "{len}");
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|at| *at < len) {
                let mut other = block.clone();
                other[at] = 0;
                // SAFETY: as above.
                let told =
                    unsafe { [differs(block.as_ptr(), other.as_ptr(), len), differs(other.as_ptr(), block.as_ptr(), len)] };
                assert!(told[0] > 0 && told[1] < 0, "{len} {at}");
                // SAFETY: as above.
                assert_eq!(unsafe { differs(block.as_ptr(), other.as_ptr(), at) }, 0);
            }
            let mut text = block.clone();
            text[40 + len % 16 + len] = 0;
            // SAFETY: it ends inside the block.
            assert_eq!(unsafe { length(text.as_ptr().add(40 + len % 16)) }, len);
        }
    }
}
