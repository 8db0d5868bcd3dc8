//! POSIX semantics over the namespace: descriptors, open file descriptions,
//! working directory, credentials, and [`Process::handle`], which serves a
//! system call by its number and raw arguments.
#![cfg_attr(not(test), no_std)]

pub mod call_sites;
pub mod credentials;
pub mod descriptors;
pub mod door;
pub mod environment;
mod fast;
pub mod handle;
pub mod here;
pub mod in_kernel;
mod lock;
pub mod namespace;
pub mod own_calls;
mod passed;
mod path;
pub mod process;
pub mod processes;
mod protected;
mod text;
mod text_out;
pub mod thread;

use core::sync::atomic;

/// A flag of an open file, which no `open(2)` has: it is overwritten whole or not at all ([`Process::open_whole`]).
pub const ATOMIC: u32 = 1 << 28;

pub use descriptors::{CWD_FD, Entry, FD_MAX};
pub use door::{Bitmap, Door, Numbers};
pub use handle::{MapFault, Named};
pub use passed::TOLD;
pub use path::program::COPY_NAME_MAX;
pub use process::{Outcome, Process};
pub use processes::ForkToken;
pub use text::{bad as bad_pointer, has_detours, proc_fd};
pub use thread::{Room, ThreadState};
