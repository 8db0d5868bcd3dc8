//! Paths that are plainly not ours, told apart in a few instructions.
//!
//! An absolute path whose second byte begins no mount point, and which holds no
//! `//` and no `/.`, can lead into a mount only through a symlink; that is looked
//! into after the kernel failed. `/proc` and `/dev` are left to the longer way,
//! because of `/proc/self/fd` and `/dev/fd`.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use pm::faults;

/// Bytes of a page.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;

/// Second bytes that may lead to us; at first all.
static OURS: [AtomicU64; 4] = [const { AtomicU64::new(u64::MAX) }; 4];

/// Computes the set from the mount points (without their trailing slashes; empty is `/`).
pub fn learn<'a>(prefixes: impl Iterator<Item = &'a [u8]>) {
    let mut set = [0u64; 4];
    let mut add = |byte: u8| set[byte as usize / 64] |= 1 << (byte % 64);
    b"/.pd".iter().for_each(|&byte| add(byte));
    for prefix in prefixes {
        match prefix.get(1) {
            Some(&byte) => add(byte),
            None => (0..=255).for_each(&mut add),
        }
    }
    OURS.iter().zip(set).for_each(|(word, bits)| word.store(bits, Relaxed));
}

/// Whether the text at `path` is plainly the kernel's.
///
/// # Safety
/// `path` is bad ([`posix::bad_pointer`]) or leads to a NUL-terminated text.
#[inline(always)]
pub unsafe fn is_kernel_path(path: usize) -> bool {
    if posix::bad_pointer(path) {
        return false;
    }
    let text = path as *const u8;
    // What cannot be read left to the slow path.
    let next = text.wrapping_add(1);
    if faults::is_slash(text) != Some(true) || !faults::is_readable(next) {
        return false;
    }
    // SAFETY: just seen to be there.
    let second = unsafe { *next };
    if OURS[second as usize / 64].load(Relaxed) & (1 << (second % 64)) != 0 {
        return false;
    }
    // SAFETY: by contract.
    second == 0 || unsafe { is_plain(text.add(1)) }
}

/// Whether no slash is followed by a slash or a dot. Sixteen bytes at a time, in
/// aligned blocks, which never cross into another page.
///
/// # Safety
/// `text` leads to a NUL-terminated text.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn is_plain(text: *const u8) -> bool {
    use core::arch::x86_64::*;
    let lead = text as usize % 16;
    let mut block = text.wrapping_sub(lead).cast::<__m128i>();
    let mut keep = !0u32 << lead;
    let mut carry = 0;
    loop {
        // SAFETY: aligned, and in the page of a byte of the text that is before its end.
        let bytes = unsafe { _mm_load_si128(block) };
        // SAFETY: every x86-64 has SSE2.
        let at = |byte: u8| unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32 };
        let slash = at(b'/') & keep;
        let nul = at(0) & keep;
        let valid = if nul == 0 { !0 } else { (nul & nul.wrapping_neg()) - 1 };
        if (slash << 1 | carry) & (slash | at(b'.')) & valid != 0 {
            return false;
        }
        if nul != 0 {
            return true;
        }
        carry = slash >> 15;
        keep = !0;
        block = block.wrapping_add(1);
        if (block as usize).is_multiple_of(PAGE) && !faults::is_readable(block.cast()) {
            return false;
        }
    }
}

/// As above, a byte at a time.
///
/// # Safety
/// `text` leads to a NUL-terminated text.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn is_plain(text: *const u8) -> bool {
    let (mut at, mut before) = (text, 0u8);
    loop {
        // SAFETY: no NUL so far.
        let byte = unsafe { *at };
        if byte == 0 {
            return true;
        }
        if before == b'/' && (byte == b'/' || byte == b'.') {
            return false;
        }
        before = byte;
        // SAFETY: the text goes on.
        at = unsafe { at.add(1) };
    }
}
