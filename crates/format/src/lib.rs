//! The image: what stands where on the medium, bit by bit (`docs/internals/format.md`).
//!
//! Everything is little-endian, made of 64-byte lines and 4 KiB blocks, and
//! referred to by byte offset from the start of the image. Words that live code
//! changes are atomics, because other processes map the same bytes. Nothing
//! here reads or writes memory: accessors pack and unpack words, `validate`
//! functions turn untrusted words into proven values.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod bucket;
pub mod checksum;
pub mod directory;
pub mod edentry;
pub mod extent;
pub mod fingerprint;
pub mod hash;
pub mod inode;
pub mod lane;
pub mod layout;
pub mod permission;
pub mod superblock;
pub mod xattr;

pub use bucket::Bucket;
pub use edentry::Edentry;
pub use inode::{Cold, Inode};
pub use lane::{Lane, Op};
pub use layout::{BLOCK, LINE, Layout};
pub use superblock::{Machine, Root, Superblock, Volatile};

/// Version of the format; an image of another version is refused.
pub const VERSION: u32 = 3;
