//! Open files of several processes, in memory that they share: who has what open,
//! over `fork`, `exec` and death; advisory locks.
//!
//! The engine's shared cache and the session cache each have tables of their own,
//! somewhere in a `pm::Region`; they say where by the traits here, and this crate
//! does the rest, once.
//!
//! | file | what |
//! |---|---|
//! | `open_file.rs` | [`OpenFile`]: offset, flags, node |
//! | `refcount.rs` | who refers to an open file: the count and the descriptor tables change together |
//! | `slot.rs` | a process in the table, and whether it lives |
//! | `processes.rs` | [`Processes`]: slots are taken, the dead adopted |
//! | `handover.rs` | [`Handover`]: descriptors over `fork`, `vfork`, spawn and `exec` |
//! | `locks.rs` | [`Locks`]: `fcntl` records, OFD locks, `flock` |
//!
//! Invariants
//! - A process slot belongs to whoever holds its robust mutex, or, in the states
//!   between fork and exec, to whoever its PID says.
//! - A death is proven, never guessed: by that mutex; or, where the mutex says
//!   nothing, by PID, PID namespace and start time ([`pm::life`]).
//! - A reference is counted before it is listed in a descriptor table, and taken
//!   off the list before it is given up.
#![no_std]

#[cfg(test)]
extern crate std;

mod handover;
mod locks;
mod open_file;
mod processes;
pub mod refcount;
mod slot;

use core::sync::atomic;

pub use base::DescriptionId;
pub use handover::{Forks, Handover};
pub use locks::{CHAINS, HeldLock, LockEntry, Locks, chain_of, is_refused, moment, owner_word};
pub use open_file::{EACH_READ, EXECUTE, OpenFile, SHARE, TOLD, Unclosed};
pub use processes::{PAGE, Processes};
pub use slot::{ProcessSlot, state};
