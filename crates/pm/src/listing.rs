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

/// So many entries are ordered at once: what fits into 8 KiB.
const ORDERED: usize = 8192 / 24;

impl<'a> Entries<'a> {
    /// Calls `each` for all entries, in the order of their inode numbers: that in which a disk has them, so that asking
    /// for attributes does not go back and forth on it.
    pub fn by_number<E: From<Errno>>(mut self, mut each: impl FnMut(Listed<'a>) -> Result<(), E>) -> Result<(), E> {
        let all = self.0;
        loop {
            let (mut order, mut count) = ([0u64; ORDERED], 0);
            while count < ORDERED {
                let at = (all.len() - self.0.len()) as u64;
                let Some(entry) = self.next() else { break };
                order[count] = entry?.ino << 16 | at & 0xffff;
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            order[..count].sort_unstable();
            for key in &order[..count] {
                if let Some(entry) = Entries(all.get((key & 0xffff) as usize..).unwrap_or(&[])).next() {
                    each(entry?)?;
                }
            }
        }
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

    /// Goal: each entry comes once, by its number. Method: more of them than are ordered at once, backwards.
    #[test]
    fn entries_by_number() {
        let count = ORDERED as u64 + 50;
        let bytes: Vec<u8> = (0..count).flat_map(|i| entry(count - i, b"a\0", 24)).collect();
        let mut read = Vec::new();
        let each = |entry: Listed| {
            read.push(entry.ino);
            Ok::<(), Errno>(())
        };
        Entries(&bytes).by_number(each).unwrap();
        assert!(read[..ORDERED].is_sorted() && read[ORDERED..].is_sorted());
        read.sort_unstable();
        assert_eq!(read, (1..=count).collect::<Vec<_>>());
    }
}
