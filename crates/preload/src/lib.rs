//! The preload door: `libbypath_preload.so`.
//!
//! It exports libc's file functions under all their names. Each becomes a
//! kernel call number with the kernel's arguments and goes through [`call::call`]:
//! ours is served by `posix` in this process, everything else is made as a raw
//! system call. What libc does inside itself (streams, directory streams, tree
//! walks) has its own versions in [`stdio`] and [`symbols`];
//! the rest of it is seen on the patched way ([`mod@patch`]) only.
//!
//! Invariants
//! - Every entry works before our constructor ran: other libraries' constructors run earlier.
//! - No libc file function is ever called, nothing is allocated by the program's `malloc`.
//! - `errno` is set only by the symbol wrappers ([`errno::ret`]).
//! - A signal handler never runs while its thread is inside an operation ([`signals`]).
#![no_std]
// The kernel's names of its calls, in patterns.
#![allow(non_upper_case_globals)]

#[macro_use]
mod export;

pub mod actions;
pub mod alloc;
pub mod attach;
pub mod borrowed;
pub mod call;
pub mod contents;
pub mod count;
pub mod door;
pub mod environ;
pub mod errno;
pub mod exec;
pub mod faults;
pub mod foreign;
pub mod fork;
pub mod guest;
pub mod hand_over;
pub mod in_mount;
pub mod in_plugin;
pub mod init;
pub mod kernel_files;
pub mod libc;
pub mod libraries;
pub mod masks;
mod mem_test;
pub mod message;
pub mod mount_table;
pub mod own_calls;
pub mod panic;
pub mod past;
#[cfg(target_arch = "x86_64")]
pub mod patch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "patch/none.rs"]
pub mod patch;
pub mod placeholders;
pub mod refused;
pub mod shell;
pub mod signals;
pub mod spawn;
pub mod stdio;
pub mod symbols;
pub mod thread;
pub mod tls;

/// The namespace is up: from now on streams may meet descriptors of ours.
fn started() {
    stdio::table::prepare();
    signals::start(tls::get());
}
