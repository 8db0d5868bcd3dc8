//! What `getdents64` writes: entries of an open directory, one behind the other.

use crate::Errno;
use crate::file::File;
use core::ffi::CStr;

/// Bytes of a `struct linux_dirent64` before the name: inode number, place of the next, length, type.
const HEAD: usize = 19;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// Inode number.
    pub ino: u64,
    /// Place of the entry behind it, for [`File::seek`].
    pub next: u64,
    /// `DT_*`.
    pub kind: u8,
}

/// The entries that [`File::entries`] has put into a buffer; `EIO` for what is none.
#[derive(Clone, Debug)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Listed<'a>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let head = self.0.get(..HEAD)?;
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        let (ino, next, len, kind) = (word(0), word(8), usize::from(u16::from_le_bytes([head[16], head[17]])), head[18]);
        let name = self.0.get(HEAD..len).and_then(|text| CStr::from_bytes_until_nul(text).ok());
        self.0 = if name.is_some() { &self.0[len..] } else { &[] };
        Some(name.map(|name| Listed { name, ino, next, kind }).ok_or(Errno::EIO))
    }
}

impl File {
    /// The next entries of an open directory, by way of `buffer`; `None` at the end.
    pub fn listed<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<Entries<'a>>, Errno> {
        let filled = self.entries(buffer)?;
        Ok((filled != 0).then(|| Entries(buffer.get(..filled).unwrap_or(&[]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn entry(ino: u64, name: &[u8], len: u16) -> Vec<u8> {
        let mut bytes = [&ino.to_le_bytes()[..], &7u64.to_le_bytes(), &len.to_le_bytes(), &[8], name].concat();
        bytes.resize(usize::from(len).max(HEAD), 0);
        bytes
    }

    /// Goal: entries are read as they were written; a length that leads nowhere ends the listing with an error.
    #[test]
    fn entries() {
        let bytes = [entry(1, b"a\0", 24), entry(2, b"longer\0x", 32)].concat();
        let read: Vec<_> =
            Entries(&bytes).map(|entry| entry.map(|entry| (entry.name.to_bytes(), entry.ino, entry.next, entry.kind))).collect();
        assert_eq!(read, [Ok((&b"a"[..], 1, 7, 8)), Ok((&b"longer"[..], 2, 7, 8))]);
        for len in [0, 19, 33] {
            let mut bytes = entry(1, b"a\0", 32);
            bytes[16] = len;
            let read: Vec<_> = Entries(&bytes).collect();
            assert_eq!(read, [Err(Errno::EIO)], "{len}");
        }
        assert_eq!(Entries(b"short").next(), None);
    }
}
