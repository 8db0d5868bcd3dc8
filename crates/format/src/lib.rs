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
pub mod cache;
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
pub mod shares;
pub mod superblock;
pub mod xattr;

pub use bucket::Bucket;
pub use edentry::Edentry;
pub use inode::{Cold, Inode};
pub use lane::{Lane, Op};
pub use layout::{BLOCK, LINE, Layout};
pub use superblock::{Features, Machine, Root, Superblock, Volatile};

/// Version of the format. An image of another one is refused, but for [`VERSION_OLD`].
pub const VERSION: u32 = 4;
/// The version before, which differs in nothing but what this one has room for: such an image is used as it is, and
/// `bypath upgrade` makes it one of [`VERSION`].
pub const VERSION_OLD: u32 = 3;
