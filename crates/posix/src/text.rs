//! Path names as a program hands them over.

use base::PATH_MAX;
use pm::Errno;
#[cfg(target_arch = "x86_64")]
use pm::faults;

#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;

/// A program's path: its bytes, and whether it may hold `//`, `/.` or `/..`.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    pub bytes: &'a [u8],
    pub dotted: bool,
}

/// Whether a program's pointer cannot be good (the kernel would say `EFAULT`):
/// it leads into the first page, or into the kernel's half of the addresses.
/// Signed, so that one comparison tells both.
#[inline]
pub fn bad(pointer: usize) -> bool {
    (pointer as isize) < 4096
}

/// A program's NUL-terminated path. `EFAULT`, `ENAMETOOLONG`.
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer), leads to a NUL-terminated text that stays as it is for `'a`, or to no memory.
#[inline]
pub(crate) unsafe fn path<'a>(pointer: usize) -> Result<Path<'a>, Errno> {
    if bad(pointer) {
        return Err(Errno::EFAULT);
    }
    let start = pointer as *const u8;
    // SAFETY: the caller's promise.
    let (len, dotted) = unsafe { scan(start) }.ok_or(Errno::EFAULT)?;
    if len >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    // SAFETY: `scan` has seen these bytes, up to the NUL.
    Ok(Path { bytes: unsafe { core::slice::from_raw_parts(start, len) }, dotted })
}

/// Length of a NUL-terminated text (at least [`PATH_MAX`] if it is longer than
/// that), and whether a slash in it is followed by a slash or a dot. Sixteen
/// bytes at a time, in aligned blocks, which never cross into another page.
/// `None` where it cannot be read.
///
/// # Safety
/// `start` leads to a NUL-terminated text.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn scan(start: *const u8) -> Option<(usize, bool)> {
    use core::arch::x86_64::*;
    let lead = start as usize % 16;
    let mut block = start.wrapping_sub(lead).cast::<__m128i>();
    let mut done = 0usize;
    let mut keep = !0u32 << lead;
    let mut carry = 0u32;
    let mut dotted = 0u32;
    if !faults::is_readable(start) {
        return None;
    }
    loop {
        // SAFETY: aligned, and within the page of a byte of the text that is before its end.
        let bytes = unsafe { _mm_load_si128(block) };
        // SAFETY: every x86-64 has SSE2.
        let at = |byte: u8| unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32 };
        let nul = at(0) & keep;
        let slash = at(b'/') & keep;
        let dot = at(b'.') & keep;
        // Bits below the NUL.
        let valid = if nul == 0 { !0 } else { (nul & nul.wrapping_neg()) - 1 };
        dotted |= (slash << 1 | carry) & (slash | dot) & valid;
        if nul != 0 {
            return Some((done + nul.trailing_zeros() as usize - lead, dotted != 0));
        }
        done += 16;
        if done >= PATH_MAX + 16 {
            return Some((PATH_MAX, true));
        }
        carry = slash >> 15;
        keep = !0;
        block = block.wrapping_add(1);
        if (block as usize).is_multiple_of(PAGE) && !faults::is_readable(block.cast()) {
            return None;
        }
    }
}

/// As above, a byte at a time.
///
/// # Safety
/// `start` leads to a NUL-terminated text.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn scan(start: *const u8) -> Option<(usize, bool)> {
    let (mut len, mut dotted, mut before) = (0, false, 0u8);
    while len < PATH_MAX {
        // SAFETY: no NUL so far, so the text goes on.
        let byte = unsafe { *start.add(len) };
        if byte == 0 {
            break;
        }
        dotted |= before == b'/' && (byte == b'/' || byte == b'.');
        before = byte;
        len += 1;
    }
    Some((len, dotted))
}

/// Whether an absolute path has an empty, `.` or `..` component.
#[cold]
pub fn has_detours(path: &[u8]) -> bool {
    let mut parts = path.split(|&b| b == b'/').skip(1).peekable();
    while let Some(part) = parts.next() {
        if part == b"." || part == b".." || part.is_empty() && parts.peek().is_some() {
            return true;
        }
    }
    false
}

/// A decimal number that fills the whole text.
pub(crate) fn decimal(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter().try_fold(0u32, |n, b| b.is_ascii_digit().then(|| n * 10 + (b - b'0') as u32))
}

/// Writes `/proc/self/fd/N` with a NUL into `out`.
pub fn proc_fd(fd: u32, out: &mut [u8; 32]) {
    let head = b"/proc/self/fd/";
    out[..head.len()].copy_from_slice(head);
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut left = fd;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let len = digits.len() - at;
    out[head.len()..head.len() + len].copy_from_slice(&digits[at..]);
    out[head.len() + len] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alignment and length against the plain definition.
    #[test]
    fn scan_agrees_with_its_definition() {
        let texts: [&[u8]; 9] = [
            b"",
            b"/",
            b"a",
            b"/a/b",
            b"/a//b",
            b"/a/.b",
            b"/usr/include/x86_64-linux-gnu/sys/types.h",
            b"/0123456789abcd/.",
            b"/0123456789abc//x",
        ];
        for text in texts {
            for lead in 0..16 {
                let mut buffer = vec![b'/'; lead];
                buffer.extend_from_slice(text);
                buffer.push(0);
                buffer.extend_from_slice(b"//..//..//..//../");
                let dotted = text.windows(2).any(|w| w == b"//" || w == b"/.");
                // SAFETY: the text ends in a NUL.
                assert_eq!(unsafe { scan(buffer.as_ptr().add(lead)) }, Some((text.len(), dotted)));
            }
        }
    }
}
