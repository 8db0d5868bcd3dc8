//! One namespace over several file systems: the mount table and [`Backend`],
//! the trait that every file system implements.
#![no_std]

#[cfg(feature = "mem")]
extern crate alloc;

pub mod backend;
pub mod mount;

pub use backend::{Backend, MapRange};
pub use mount::{Mount, MountTable};
pub use base::*;
