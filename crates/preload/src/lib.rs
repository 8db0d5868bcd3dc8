//! The preload front end: `libbypath_preload.so`.
//!
//! It exports libc's file functions under all their names. Each becomes a kernel call number with the kernel's arguments
//! and goes through [`runtime::call`]: what is in a mount is served by `posix` in this process, everything else is made as
//! a raw system call. What libc does inside itself (streams, directory streams, tree walks) has its own versions in
//! [`stdio`] and [`libc`]; the rest of it is seen by syscall patching ([`mod@patch`]) only.
//!
//! ```text
//! init       reads the environment, attaches what is to be mounted, takes over what `exec` left
//!   stdio    libc's streams on descriptors of ours
//!   patch    libc's own system-call sites
//!     libc       the exported symbols, a file a call family
//!       process    fork, vfork, spawn, exec, and what each program inherits
//!         runtime    words of a thread, memory, signals and faults, placeholders, the path of every call
//! ```
//! Each uses what stands below it, and no two modules use each other (`cargo run -p xtask -- dependencies` looks). The one
//! exception: the first call starts everything ([`start`]).
//!
//! Invariants
//! - Every entry works before our constructor ran: other libraries' constructors run earlier.
//! - No libc file function is ever called, nothing is allocated by the program's `malloc`.
//! - `errno` is set only by the symbol wrappers ([`runtime::errno`]).
//! - A signal handler never runs while its thread is inside an operation ([`runtime::signals`]).
#![no_std]
// The kernel's names of its calls, in patterns.
#![allow(non_upper_case_globals)]

#[macro_use]
mod runtime;
mod init;
mod libc;
#[cfg(target_arch = "x86_64")]
mod patch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "patch/none.rs"]
mod patch;
mod process;
mod stdio;

/// The one call from the bottom to the top: whoever comes first starts everything.
use init::start;
