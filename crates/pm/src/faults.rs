//! Access to the program's memory that may fail.
//!
//! What a program hands over need not be there: the kernel answers `EFAULT` then, or with
//! how much it has moved so far. So the program's memory is touched here only. Each
//! instruction that does so stands in a table with the place where it goes on if its memory
//! is not there; whoever handles this process's faults asks [`landing`] for that place.
//! Where nobody does so, nothing is different: a fault is a fault.
//!
//! Elsewhere than on x86-64 there is no table, and bad memory is a fault.

use crate::Errno;
use core::mem::MaybeUninit;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Up to this many bytes are moved in blocks of registers.
const BLOCKS_MAX: usize = 256;
/// From the end of this on the processor's own instruction for it moves them, if it is quick at that; here libc is quicker.
const ASKED: core::ops::Range<usize> = BLOCKS_MAX + 1..4096;

/// An entry of the table: three distances from where each of them stands.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Entry {
    /// First instruction.
    first: i32,
    /// Behind the last one.
    end: i32,
    /// Where to go on.
    landing: i32,
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "__start_bypath_faults"]
    static FIRST: [Entry; 0];
    #[link_name = "__stop_bypath_faults"]
    static END: [Entry; 0];
}

/// Where a thread goes on whose instruction at `pc` met memory that is not there.
#[cfg(target_arch = "x86_64")]
pub fn landing(pc: usize) -> Option<usize> {
    // The linker puts both around the entries.
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end as usize - first as usize) / size_of::<Entry>();
    // SAFETY: so many lie between the two, and nobody writes them.
    let entries = unsafe { core::slice::from_raw_parts(first.cast::<Entry>(), count) };
    let place = |word: &i32| (core::ptr::from_ref(word) as usize).wrapping_add_signed(*word as isize);
    entries.iter().find(|entry| (place(&entry.first)..place(&entry.end)).contains(&pc)).map(|entry| place(&entry.landing))
}

/// There is no table.
#[cfg(not(target_arch = "x86_64"))]
pub fn landing(_pc: usize) -> Option<usize> {
    None
}

/// Instructions that may meet memory which is not there; then they are left for the label `fault`.
#[cfg(target_arch = "x86_64")]
macro_rules! touching {
    ([$($line:literal),+], $($rest:tt)*) => {
        core::arch::asm!(
            "2:",
            $($line,)+
            "3:",
            ".pushsection bypath_faults,\"aR\",@progbits",
            ".p2align 2",
            ".long 2b - .",
            ".long 3b - .",
            ".long {fault} - .",
            ".popsection",
            $($rest)*
        )
    };
}

/// Whether the byte at `at` can be read.
#[inline(always)]
pub fn is_readable(at: *const u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads a byte, or lands.
    unsafe {
        touching!(["cmp byte ptr [{at}], 0"], at = in(reg) at, fault = label { return false }, options(nostack, readonly));
    }
    let _ = at;
    true
}

/// Whether the byte at `at` is `byte`; no if it cannot be read.
#[inline(always)]
pub fn is_byte(at: *const u8, byte: u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: it reads a byte, or lands.
        unsafe {
            touching!(
                ["cmp byte ptr [{at}], {byte}", "jne {other}"],
                at = in(reg) at, byte = in(reg_byte) byte, other = label { return false }, fault = label { return false },
                options(nostack, readonly),
            );
        }
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as for any access of the program's.
    unsafe {
        *at == byte
    }
}

/// Whether the byte at `at` is a slash; `None` if it cannot be read.
#[inline(always)]
pub fn is_slash(at: *const u8) -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: it reads a byte, or lands.
        unsafe {
            touching!(
                ["cmp byte ptr [{at}], 0x2f", "jne {other}"],
                at = in(reg) at, other = label { return Some(false) }, fault = label { return None },
                options(nostack, readonly),
            );
        }
        Some(true)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as for any access of the program's.
    Some(unsafe { *at } == b'/')
}

/// Whether the byte at `at` can be written. It stays what it is.
///
/// # Safety
/// `at` leads to memory of the program's, or to none, and what is there is about to be written.
#[inline(always)]
pub unsafe fn is_writable(at: *mut u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it changes nothing, or lands.
    unsafe {
        touching!(["or byte ptr [{at}], 0"], at = in(reg) at, fault = label { return false }, options(nostack));
    }
    let _ = at;
    true
}

/// Stores two words, at `at` and so many bytes further on; false if one of them is not there.
///
/// # Safety
/// Both places are the program's, and aligned.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn put_ends(at: *mut u64, words: [u64; 2], further: usize) -> bool {
    // SAFETY: it stores the two, or lands.
    unsafe {
        touching!(
            ["mov qword ptr [{at}], {first}", "mov qword ptr [{last}], {second}"],
            at = in(reg) at, last = in(reg) at.wrapping_byte_add(further), first = in(reg) words[0], second = in(reg) words[1],
            fault = label { return false }, options(nostack, preserves_flags),
        );
    }
    true
}

/// How many of `len` bytes at `at` can be read, from the first one on.
pub fn readable(at: *const u8, len: usize) -> usize {
    pages(at as usize, len, |page| is_readable(page as *const u8))
}

/// Length of a NUL-terminated text of the program's; `None` if it runs into memory that is not there.
pub fn text_len(at: *const u8) -> Option<usize> {
    let mut len = 0;
    loop {
        let place = at.wrapping_add(len);
        if (len == 0 || (place as usize).is_multiple_of(PAGE)) && !is_readable(place) {
            return None;
        }
        // SAFETY: in a page that is there.
        if unsafe { *place } == 0 {
            return Some(len);
        }
        len += 1;
    }
}

/// How many of `len` bytes at `at` can be written, from the first one on.
///
/// # Safety
/// As for [`is_writable`], of all of them.
pub unsafe fn writable(at: *mut u8, len: usize) -> usize {
    // SAFETY: the caller's promise.
    pages(at as usize, len, |page| unsafe { is_writable(page as *mut u8) })
}

/// How many bytes lie before the first page of which `is_there` says no.
fn pages(at: usize, len: usize, is_there: impl Fn(usize) -> bool) -> usize {
    let mut done = 0;
    while done < len {
        let place = at.wrapping_add(done);
        if !is_there(place) {
            return done;
        }
        done += PAGE - place % PAGE;
    }
    len
}

/// Copies `len` bytes, the first one first; how many: fewer if one side ends before.
///
/// # Safety
/// Both sides lead to memory that may be read, or written, for as many bytes, or of which a
/// part is not there. Races with others are theirs.
#[inline]
pub unsafe fn transfer(from: *const u8, to: *mut u8, len: usize) -> usize {
    if len > 64 && (ASKED.contains(&len) || len >= ASKED.end && !moves_quickly() || (to as usize).abs_diff(from as usize) < len) {
        // SAFETY: the caller's promise.
        return unsafe { asked_first(from, to, len) };
    }
    // SAFETY: the caller's promise.
    if unsafe { in_blocks(from, to, len) } {
        return len;
    }
    // SAFETY: the caller's promise; what has been copied already is copied once more.
    len - unsafe { by_bytes(from, to, len) }
}

/// Whether the processor's own instruction for it moves many bytes as quickly as wide registers do (ERMS). Where it does
/// not, it moves them one by one.
#[cfg(target_arch = "x86_64")]
#[inline]
fn moves_quickly() -> bool {
    match MOVES_QUICKLY.load(Relaxed) {
        UNKNOWN => ask_processor(),
        known => known == YES,
    }
}

/// There is no such instruction.
#[cfg(not(target_arch = "x86_64"))]
fn moves_quickly() -> bool {
    true
}

/// What the processor has said of itself: asked once, as it is slow to answer, and slower in a virtual machine.
#[cfg(target_arch = "x86_64")]
static MOVES_QUICKLY: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(target_arch = "x86_64")]
const UNKNOWN: u8 = 0;
#[cfg(target_arch = "x86_64")]
const NO: u8 = 1;
#[cfg(target_arch = "x86_64")]
const YES: u8 = 2;

#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn ask_processor() -> bool {
    use core::arch::x86_64::__cpuid_count;
    const FEATURES: u32 = 7;
    const ERMS: u32 = 1 << 9;
    let is_quick = __cpuid_count(0, 0).eax >= FEATURES && __cpuid_count(FEATURES, 0).ebx & ERMS != 0;
    MOVES_QUICKLY.store(if is_quick { YES } else { NO }, Relaxed);
    is_quick
}

/// Copies by what libc has for it, where that has wider registers, or both sides have bytes in common: all of it, or what can be
/// seen to be there. What another thread takes away between the look and the copy is a fault.
///
/// # Safety
/// As for [`transfer`].
#[inline(never)]
unsafe fn asked_first(from: *const u8, to: *mut u8, len: usize) -> usize {
    // SAFETY: the caller's promise.
    let len = unsafe { writable(to, readable(from, len)) };
    // SAFETY: as above, and it is there.
    unsafe { core::ptr::copy(from, to, len) };
    len
}

/// Copies four registers' worth and at most twice that, compiled into the caller; false if
/// some of it is not there.
///
/// # Safety
/// As for [`transfer`]; `len` is 32 to 64.
#[inline(always)]
pub unsafe fn short(from: *const u8, to: *mut u8, len: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // From both ends: they may have bytes in common. All is read before any is written.
        // SAFETY: the caller's promise.
        unsafe {
            touching!(
                [
                    "movdqu {a}, [{from}]",
                    "movdqu {b}, [{from} + 16]",
                    "movdqu {c}, [{from} + {len} - 32]",
                    "movdqu {d}, [{from} + {len} - 16]",
                    "movdqu [{to}], {a}",
                    "movdqu [{to} + 16], {b}",
                    "movdqu [{to} + {len} - 32], {c}",
                    "movdqu [{to} + {len} - 16], {d}"
                ],
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                fault = label { return false }, options(nostack, preserves_flags),
            );
        }
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy(from, to, len) };
        true
    }
}

/// Copies what is short enough for that; false if it is not, or some of it is not there.
///
/// # Safety
/// As for [`transfer`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn in_blocks(from: *const u8, to: *mut u8, len: usize) -> bool {
    match len {
        8..16 => {
            // SAFETY: the caller's promise.
            unsafe {
                touching!(
                    [
                        "mov {a}, [{from}]",
                        "mov {b}, [{from} + {len} - 8]",
                        "mov [{to}], {a}",
                        "mov [{to} + {len} - 8], {b}"
                    ],
                    from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(reg) _, b = out(reg) _,
                    fault = label { return false }, options(nostack, preserves_flags),
                );
            }
            true
        }
        16..32 => {
            // SAFETY: the caller's promise.
            unsafe {
                touching!(
                    [
                        "movdqu {a}, [{from}]",
                        "movdqu {b}, [{from} + {len} - 16]",
                        "movdqu [{to}], {a}",
                        "movdqu [{to} + {len} - 16], {b}"
                    ],
                    from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(xmm_reg) _, b = out(xmm_reg) _,
                    fault = label { return false }, options(nostack, preserves_flags),
                );
            }
            true
        }
        32..=64 => {
            // SAFETY: the caller's promise.
            unsafe { short(from, to, len) }
        }
        65..=BLOCKS_MAX => {
            let mut at = 0;
            while len - at > 64 {
                // SAFETY: within the two, by the caller's promise.
                if !unsafe { short(from.wrapping_add(at), to.wrapping_add(at), 64) } {
                    return false;
                }
                at += 64;
            }
            // The last ones, some of which may be there already.
            // SAFETY: as above.
            unsafe { short(from.wrapping_add(len - 64), to.wrapping_add(len - 64), 64) }
        }
        _ => false,
    }
}

/// What libc does is as good.
///
/// # Safety
/// As for [`transfer`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn in_blocks(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy(from, to, len) };
    true
}

/// Copies `len` bytes, however few or many; how many were left.
///
/// # Safety
/// As for [`transfer`].
#[inline]
unsafe fn by_bytes(from: *const u8, to: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let left;
        // Where it stops, the registers tell how far it has come.
        // SAFETY: the caller's promise; the direction flag is clear.
        unsafe {
            core::arch::asm!(
                "2:",
                "rep movsb",
                "3:",
                ".pushsection bypath_faults,\"aR\",@progbits",
                ".p2align 2",
                ".long 2b - .",
                ".long 3b - .",
                ".long 3b - .",
                ".popsection",
                inout("rcx") len => left, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        left
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy(from, to, len) };
        0
    }
}

/// Fills `len` bytes with zeros, the first one first; how many.
///
/// # Safety
/// As for [`transfer`], of `to`.
pub unsafe fn clear(to: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let left: usize;
        // SAFETY: the caller's promise; the direction flag is clear.
        unsafe {
            core::arch::asm!(
                "2:",
                "rep stosb",
                "3:",
                ".pushsection bypath_faults,\"aR\",@progbits",
                ".p2align 2",
                ".long 2b - .",
                ".long 3b - .",
                ".long 3b - .",
                ".popsection",
                inout("rcx") len => left, inout("rdi") to => _, in("al") 0u8,
                options(nostack, preserves_flags),
            );
        }
        len - left
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(to, 0, len) };
        len
    }
}

/// A structure of the program's. `EFAULT`.
///
/// # Safety
/// Any bytes are a `T`; as for [`transfer`].
#[inline]
pub unsafe fn read<T: Copy>(at: *const T) -> Result<T, Errno> {
    let mut item = MaybeUninit::<T>::uninit();
    // SAFETY: the caller's promise; there is room.
    match unsafe { transfer(at.cast(), item.as_mut_ptr().cast(), size_of::<T>()) } == size_of::<T>() {
        // SAFETY: all bytes have come.
        true => Ok(unsafe { item.assume_init() }),
        false => Err(Errno::EFAULT),
    }
}

/// Hands the program a structure. `EFAULT`.
///
/// # Safety
/// As for [`transfer`].
#[inline]
pub unsafe fn write<T: Copy>(at: *mut T, item: &T) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    match unsafe { transfer(core::ptr::from_ref(item).cast(), at.cast(), size_of::<T>()) } == size_of::<T>() {
        true => Ok(()),
        false => Err(Errno::EFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Goal: every length and alignment is copied as it is, and nothing beside it.
    #[test]
    fn transfers_are_copies() {
        let source: Vec<u8> = (0..6000u32).map(|i| (i * 7 % 251) as u8 + 1).collect();
        for len in (0..200).chain([255, 256, 257, 511, 512, 513, 1000, 2500, 4095, 4096, 5000]) {
            for (from, to) in [(0, 0), (1, 0), (3, 16), (16, 7)] {
                let mut target = std::vec![0u8; 6000];
                // SAFETY: within both.
                assert_eq!(unsafe { transfer(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) }, len);
                assert_eq!(target[to..to + len], source[from..from + len], "{len} from {from} to {to}");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0));
            }
        }
    }

    /// Goal: what can be touched is counted whole, and is not changed; the table knows its own instructions only.
    #[test]
    fn looks_change_nothing() {
        let mut bytes = std::vec![0xa5u8; 3 * PAGE];
        assert_eq!(readable(bytes[5..].as_ptr(), 2 * PAGE), 2 * PAGE);
        // SAFETY: the test's own bytes.
        assert_eq!(unsafe { writable(bytes[5..].as_mut_ptr(), 2 * PAGE) }, 2 * PAGE);
        assert!(is_byte(bytes.as_ptr(), 0xa5) && !is_byte(bytes.as_ptr(), 0x5a));
        // SAFETY: as above.
        assert_eq!(unsafe { clear(bytes[PAGE..].as_mut_ptr(), PAGE) }, PAGE);
        assert!(bytes[..PAGE].iter().chain(&bytes[2 * PAGE..]).all(|byte| *byte == 0xa5));
        assert!(bytes[PAGE..2 * PAGE].iter().all(|byte| *byte == 0));
        assert_eq!(landing(looks_change_nothing as *const () as usize), None);
    }
}
