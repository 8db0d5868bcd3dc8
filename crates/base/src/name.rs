//! Names in directories, as they come from anywhere that is not a program's call: an image, a journal, an archive, a daemon,
//! an object store.
//!
//! Bytes that are no name must not reach a call or a program: with a slash, `.` or `..` they are a path, and lead out of
//! the directory. So each reader makes a [`Name`], the only type with such bytes, here.

use core::ops::Deref;

/// Each byte 1, and each byte's highest bit.
const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;
const SLASHES: u64 = ONES * b'/' as u64;

/// 1 to 255 bytes without a slash and NUL, and neither `.` nor `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Longest name, bytes.
    pub const MAX: usize = 255;

    /// These bytes as a name; `None`: they are none.
    pub fn new(bytes: &'a [u8]) -> Option<Name<'a>> {
        let (words, tail) = bytes.as_chunks::<8>();
        let is_bad = words.iter().any(|word| has_bad_byte(u64::from_le_bytes(*word))) || tail.iter().any(is_bad_byte);
        (!is_bad && has_good_length(bytes)).then_some(Name(bytes))
    }

    /// The first `len` bytes of a buffer in which whole words may be read.
    #[inline]
    pub fn in_buffer(buffer: &'a [u8; 256], len: u8) -> Option<Name<'a>> {
        let (words, _) = buffer.as_chunks::<8>();
        let (whole, rest) = (usize::from(len / 8), len % 8);
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        // Bytes behind the name do not count.
        let is_bad = (0..whole).any(|index| has_bad_byte(word(index)))
            || rest != 0 && has_bad_byte(word(whole) | u64::MAX << (u32::from(rest) * 8));
        let bytes = &buffer[..usize::from(len)];
        (!is_bad && has_good_length(bytes)).then_some(Name(bytes))
    }

    /// The bytes.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl Deref for Name<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

#[inline]
fn has_good_length(bytes: &[u8]) -> bool {
    match bytes.len() {
        0 => false,
        1 | 2 => bytes != b"." && bytes != b"..",
        len => len <= Name::MAX,
    }
}

fn is_bad_byte(byte: &u8) -> bool {
    matches!(byte, 0 | b'/')
}

/// Whether a byte of a word is NUL or a slash.
#[inline]
const fn has_bad_byte(word: u64) -> bool {
    (has_zero(word) | has_zero(word ^ SLASHES)) != 0
}

#[inline]
const fn has_zero(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(bytes: &[u8]) -> bool {
        let mut buffer = [b'/'; 256];
        buffer[..bytes.len()].copy_from_slice(bytes);
        let (name, there) = (Name::new(bytes), Name::in_buffer(&buffer, bytes.len() as u8));
        assert_eq!(name, there, "{bytes:?}");
        name.is_some()
    }

    /// Goal: each byte value at each place of names of each length counts as it should, whichever way the name is read.
    #[test]
    fn each_byte_at_each_place() {
        for len in 1..=255usize {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = [b'n'; 255];
                    bytes[at] = byte;
                    let is_name = byte != 0 && byte != b'/' && (len, byte) != (1, b'.');
                    assert_eq!(both(&bytes[..len]), is_name, "{byte} at {at} of {len}");
                }
            }
        }
    }

    /// Goal: paths are no names.
    #[test]
    fn paths_are_no_names() {
        for bytes in [&b""[..], b".", b"..", b"/", b"../x", b"/x", b"x/", b"a/b", b"a\0b"] {
            assert!(!both(bytes), "{bytes:?}");
        }
        for bytes in [&b"..."[..], b".x", b"..x", b"\xff\x80\x01", b" "] {
            assert!(both(bytes), "{bytes:?}");
        }
        assert_eq!(Name::new(&[b'n'; 256]), None);
    }
}
