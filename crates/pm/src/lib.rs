//! Mapped memory and the kernel underneath it.
//!
//! This crate is the only one that touches mapped memory and the only one that
//! makes system calls. Everything here is `no_std`, allocates nothing and calls
//! no file function of libc, because it is loaded into every program.
//!
//! - [`region`]: a mapping, its words and its copies; every store that must
//!   survive goes through it, and can be recorded (`record`).
//! - [`stat`]: the kernel's structure, for a program.
//! - [`table`]: what lies at a fixed place of a region, checked once; [`steps`]: an array that grows; [`text`]: a program's path.
//! - [`domain`]: what survives what, and what an ordering point costs there.
//! - [`dispatch`]: system calls that the kernel hands back.
//! - [`faults`]: access to the program's memory, which need not be there.
//! - [`mutex`]: robust mutexes, the proof of a peer's death.
//! - [`sys`]: raw system calls; [`file`](mod@file), [`names`]: the few the engine makes.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod acting;
pub mod c_errno;
pub mod clock;
mod counted;
pub mod dispatch;
pub mod domain;
pub mod errno;
pub mod faults;
pub mod fetch;
pub mod file;
pub mod handover;
pub mod host;
pub mod huge;
mod libc;
pub mod life;
pub mod listing;
pub mod memory_limit;
pub mod mutex;
pub mod names;
#[cfg(target_arch = "x86_64")]
pub mod narrow;
pub mod own;
pub mod processor;
#[cfg(feature = "sim")]
pub mod record;
pub mod region;
pub mod signal;
pub mod stat;
pub mod steps;
pub mod sys;
pub mod table;
pub mod text;
pub mod user;
pub mod vdso;

use core::sync::atomic;

pub use c_errno::CErrno;
pub use domain::Domain;
pub use errno::Errno;
pub use region::Region;
pub use steps::Steps;
pub use table::{Growing, Pinned, Ring, Table};
pub use text::Text;
pub use user::UserSlice;

/// Here a restless schedule may interrupt who runs (`record::on_touch`). Nothing without the feature `sim`.
#[inline(always)]
pub fn touched() {
    #[cfg(feature = "sim")]
    record::touched();
}
