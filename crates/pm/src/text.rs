//! A program's path, read a component at a time where it lies.

use crate::faults;
use core::marker::PhantomData;

/// A NUL-terminated text of the program. Where a text ends in memory that is not there, it has a component that is too
/// long for any name ([`Text::component`]): that is found out wherever it comes into another page.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Never beyond the NUL.
    at: *const u8,
    life: PhantomData<&'a [u8]>,
}

/// A component of less than 16 bytes: what is before the next slash or NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The first 8 bytes, little-endian, zero-filled.
    pub low: u64,
    /// The others.
    pub high: u64,
    /// Bytes.
    pub len: u32,
}

impl Short {
    /// Whether it may be no name: nothing, `.` or `..`. True of a few odd names besides.
    #[inline(always)]
    pub fn may_be_dots(&self) -> bool {
        self.low & !0x2e2e == 0
    }
}

/// Longest name that a file can have.
const NAME_MAX: usize = 255;

/// What stands for a component that cannot be read: it is too long for a name, ends in a NUL, and is far from the text that
/// it was to be a part of ([`Text::is_long_by`]).
pub static UNREADABLE: [u8; NAME_MAX + 2] = {
    let mut text = [b'x'; NAME_MAX + 2];
    text[NAME_MAX + 1] = 0;
    text
};

/// Bytes of a page, and of the longest path with its NUL.
const PAGE: usize = 4096;
/// Longest path over the border of a page that the fast path looks at, bytes, and what may precede it: below `PATH_MAX` together.
const FAST_MAX: usize = PAGE / 2 - 1;

impl<'a> Text<'a> {
    /// Wraps a text.
    ///
    /// # Safety
    /// `at` leads to a NUL-terminated text that stays as it is for `'a`, or to one that ends where there is no memory. Of
    /// one that may begin there [`Text::is_absolute`] is asked first.
    #[inline(always)]
    pub const unsafe fn new(at: *const u8) -> Text<'a> {
        Text { at, life: PhantomData }
    }

    /// Whether it begins with a slash; `None` if it cannot be read.
    #[inline(always)]
    pub fn is_absolute(self) -> Option<bool> {
        faults::is_slash(self.at)
    }

    /// Whether it begins with this byte; no if it cannot be read.
    #[inline(always)]
    pub fn begins_with(self, byte: u8) -> bool {
        faults::is_byte(self.at, byte)
    }

    /// Where it starts.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.at as usize
    }

    /// Whether a path is too long for the fast path. A text in one page is not: with its NUL it is no longer than a
    /// path may be. So this is asked of what leaves a page only, which no component that [`Text::short`] takes
    /// does: of each other one, from `start` to `end`.
    #[inline(always)]
    pub fn is_long_by(self, start: Text, end: Text) -> bool {
        (start.address() ^ (end.address() + 1)) / PAGE != 0 && self.is_long(end)
    }

    /// Whether `rest`, which is behind a mount point at the start of this text, is too far behind it, or too long for the fast path.
    #[inline(always)]
    pub fn is_far_to(self, rest: Text) -> bool {
        // Where a page ends before it, its own first component says how long it is.
        rest.address().wrapping_sub(self.address()) > FAST_MAX
            || (self.address() ^ rest.address()) / PAGE != 0 && rest.is_long(rest.component().1)
    }

    #[cold]
    #[inline(never)]
    fn is_long(self, mut end: Text) -> bool {
        while let (Some(next), false) = (end.next(), end.address().wrapping_sub(self.address()) > FAST_MAX) {
            end = next.component().1;
        }
        end.address().wrapping_sub(self.address()) > FAST_MAX
    }

    /// Whether a component from here lies in one page, with what follows it, for all that [`Text::short`] looks at.
    #[inline(always)]
    fn is_within_page(self) -> bool {
        // Sixteen bytes on is not among the first sixteen of a page.
        self.address().wrapping_add(16) & (PAGE - 16) != 0
    }

    /// The first byte; 0 at the end.
    #[inline(always)]
    pub fn first(self) -> u8 {
        // SAFETY: never beyond the NUL.
        unsafe { *self.at }
    }

    /// What follows the slash at which a component ended; `None` at the end.
    #[inline(always)]
    pub fn next(self) -> Option<Text<'a>> {
        if self.first() == 0 { None } else { Some(Text { at: self.at.wrapping_add(1), life: PhantomData }) }
    }

    /// What follows `prefix` (without a NUL in it), if it starts so.
    #[inline(always)]
    pub fn after(self, prefix: &[u8]) -> Option<Text<'a>> {
        let mut rest = self;
        for byte in prefix {
            if !rest.begins_with(*byte) {
                return None;
            }
            rest.at = rest.at.wrapping_add(1);
        }
        Some(rest)
    }

    /// The first component, and its end. One that cannot be read to its end is [`UNREADABLE`].
    #[inline(never)]
    pub fn component(self) -> (&'a [u8], Text<'a>) {
        let Some(len) = self.component_len() else { return Text::unreadable() };
        // SAFETY: these bytes were just read.
        let name = unsafe { core::slice::from_raw_parts(self.at, len) };
        (name, Text { at: self.at.wrapping_add(len), life: PhantomData })
    }

    /// A component, and its end, that are no part of the text.
    #[cold]
    fn unreadable() -> (&'a [u8], Text<'a>) {
        let (name, end) = UNREADABLE.split_at(NAME_MAX + 1);
        (name, Text { at: end.as_ptr(), life: PhantomData })
    }

    /// Sixteen bytes at a time, in aligned blocks, which never cross into another page. `None` if it cannot be read.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn component_len(self) -> Option<usize> {
        use core::arch::x86_64::*;
        let lead = self.at as usize % 16;
        let mut block = self.at.wrapping_sub(lead).cast::<__m128i>();
        let mut keep = !0u32 << lead;
        loop {
            if (block as usize).is_multiple_of(PAGE) && !faults::is_readable(block.cast()) {
                return None;
            }
            // SAFETY: aligned, and within the page of a byte of the text that is not past its NUL.
            let bytes = unsafe { _mm_load_si128(block) };
            // SAFETY: every x86-64 has SSE2.
            let at = |byte: u8| unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32 };
            let ends = (at(0) | at(b'/')) & keep;
            if ends != 0 {
                return Some((block as usize + ends.trailing_zeros() as usize).wrapping_sub(self.at as usize));
            }
            keep = !0;
            block = block.wrapping_add(1);
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn component_len(self) -> Option<usize> {
        let mut end = self;
        while !matches!(end.first(), 0 | b'/') {
            end.at = end.at.wrapping_add(1);
        }
        Some(end.at as usize - self.at as usize)
    }
}

impl<'a> Text<'a> {
    /// The first component, and its end; `None` if it is longer than [`Short`]
    /// or lies where looking at 16 bytes is not safe.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn short(self) -> Option<(Short, Text<'a>)> {
        use core::arch::x86_64::*;
        if !self.is_within_page() {
            return None;
        }
        // SAFETY: all 16 bytes are in the page of the first one, which is part of the text.
        let bytes = unsafe { _mm_loadu_si128(self.at.cast()) };
        // 0 where the byte is NUL or differs from a slash in nothing.
        // SAFETY: every x86-64 has SSE2.
        let least = unsafe { _mm_min_epu8(bytes, _mm_xor_si128(bytes, _mm_set1_epi8(b'/' as i8))) };
        // SAFETY: as above.
        let ends = unsafe { _mm_cmpeq_epi8(least, _mm_setzero_si128()) };
        // SAFETY: as above.
        let mask = unsafe { _mm_movemask_epi8(ends) } as u32;
        if mask == 0 {
            return None;
        }
        let len = mask.trailing_zeros();
        // A number of 128 bits less one has all bits before its first one, and behind it those that it had.
        let before = number_of(ends) - 1;
        // SAFETY: as above.
        let name = number_of(unsafe { _mm_andnot_si128(ends, bytes) }) & before;
        let short = Short { low: name as u64, high: (name >> 64) as u64, len };
        Some((short, Text { at: self.at.wrapping_add(len as usize), life: PhantomData }))
    }

    /// As above, a byte at a time.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub fn short(self) -> Option<(Short, Text<'a>)> {
        let (name, end) = self.component();
        if name.len() > 15 || !self.is_within_page() {
            return None;
        }
        let mut words = [0u8; 16];
        words[..name.len()].copy_from_slice(name);
        let all = u128::from_le_bytes(words);
        Some((Short { low: all as u64, high: (all >> 64) as u64, len: name.len() as u32 }, end))
    }
}

/// Sixteen bytes as a number.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn number_of(bytes: core::arch::x86_64::__m128i) -> u128 {
    use core::arch::x86_64::{_mm_cvtsi128_si64, _mm_unpackhi_epi64};
    // SAFETY: every x86-64 has SSE2.
    let (low, high) = unsafe { (_mm_cvtsi128_si64(bytes), _mm_cvtsi128_si64(_mm_unpackhi_epi64(bytes, bytes))) };
    u128::from(high as u64) << 64 | u128::from(low as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Goal: both ways of taking a component agree, at every alignment, and where a page ends in the text.
    #[test]
    fn components_agree() {
        let text = b"a/bc/x86_64-linux-gnu/012345678901234/0123456789abcdef//.hidden/\xff/end";
        let mut buffer = vec![b'z'; 3 * PAGE];
        let page = PAGE - buffer.as_ptr() as usize % PAGE;
        for lead in (0..32).chain(page + PAGE - text.len() - 32..page + PAGE + 1) {
            buffer.fill(b'z');
            buffer[lead..][..text.len()].copy_from_slice(text);
            buffer[lead + text.len()] = 0;
            // SAFETY: the text ends in a NUL.
            let mut rest = unsafe { Text::new(buffer.as_ptr().add(lead)) };
            loop {
                let (name, end) = rest.component();
                let left = &buffer[rest.at as usize - buffer.as_ptr() as usize..];
                assert_eq!(name.len(), left.iter().position(|b| matches!(b, 0 | b'/')).unwrap());
                match rest.short() {
                    Some((short, after)) => {
                        let mut words = [0; 16];
                        words[..name.len()].copy_from_slice(name);
                        let all = u128::from_le_bytes(words);
                        let expected = Short { low: all as u64, high: (all >> 64) as u64, len: name.len() as u32 };
                        assert_eq!((short, after.at), (expected, end.at));
                    }
                    None => assert!(name.len() > 15 || !rest.is_within_page()),
                }
                let Some(next) = end.next() else { break };
                rest = next;
            }
            // SAFETY: as above.
            let text = unsafe { Text::new(buffer.as_ptr().add(lead)) };
            assert_eq!(text.after(b"a/b").map(Text::first), Some(b'c'));
            assert!(text.after(b"a/c").is_none());
        }
    }
}
