//! Mapped memory and the kernel underneath it.
//!
//! This crate is the only one that touches mapped memory and the only one that
//! makes system calls. Everything here is `no_std`, allocates nothing and calls
//! no file function of libc, because it is loaded into every program.
#![no_std]

pub mod errno;
pub mod sys;
pub mod user;

pub use errno::Errno;
pub use user::UserSlice;
