//! One namespace over several file systems: the mount table and [`Backend`],
//! the trait that every file system implements.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(any(feature = "mem", feature = "tree"))]
extern crate alloc;

pub mod backend;

pub mod cached;
mod groups;
pub mod host;
#[cfg(feature = "mem")]
pub mod mem;
pub mod mount;
#[cfg(feature = "native")]
pub mod native;
mod parts;
pub mod refused;
#[cfg(feature = "tree")]
pub mod tree;
pub mod walk;

/// What the names of trees begin with that are being made or removed ([`tree`](crate)).
pub const ASIDE: &[u8] = b".bypath-aside-";

pub use backend::{Backend, MapRange, Whole};
pub use base::*;
pub use mount::{Mount, MountTable};
pub use openfiles::{OpenFile, Unclosed};
