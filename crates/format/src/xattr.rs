//! Extended attributes: a run of blocks that `Cold::xattr` names, replaced whole.
//!
//! ```text
//! entry   value length 32 | reserved 16 | name length 16
//!         name, then value, zeros up to the next word
//! ```
//! Entries follow one another without gaps; the length in `Cold::xattr` is that
//! of all entries.

/// Longest name, bytes, with its namespace.
pub const NAME_MAX: usize = 255;
/// Longest value, bytes.
pub const SIZE_MAX: u64 = 64 << 10;
/// Most bytes of all names of an inode, each with a NUL, that a program can list.
pub const LIST_MAX: usize = 64 << 10;
/// Most bytes of all entries of an inode.
pub const ALL_MAX: u64 = 256 << 10;

/// Bytes in front of the name.
pub const HEAD: u64 = 8;

/// The first word of an entry.
#[inline]
pub const fn pack_head(name: usize, value: usize) -> u64 {
    (value as u64) << 32 | name as u64
}

/// Lengths of name and value; `None` if they cannot be right.
#[inline]
pub const fn unpack_head(word: u64) -> Option<(u64, u64)> {
    let (name, value) = (word & 0xffff, word >> 32);
    if name == 0 || name > NAME_MAX as u64 || value > SIZE_MAX || word >> 16 & 0xffff != 0 { None } else { Some((name, value)) }
}

/// Bytes of an entry.
#[inline]
pub const fn entry_bytes(name: u64, value: u64) -> u64 {
    (HEAD + name + value).next_multiple_of(8)
}
