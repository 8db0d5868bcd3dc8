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
//! - [`faults`]: access to the program's memory, which need not be there.
//! - [`mutex`]: robust mutexes, the proof of a peer's death.
//! - [`sys`]: raw system calls; [`file`](mod@file): the few the engine makes.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod c_errno;
pub mod clock;
mod counted;
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
pub mod mutex;
pub mod own;
pub mod prints;
pub mod processor;
#[cfg(feature = "sim")]
pub mod record;
pub mod region;
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
pub use prints::Prints;
pub use region::Region;
pub use steps::Steps;
pub use table::{Growing, Ordinal, Pinned, Ring, Table, first_word};
pub use text::Text;
pub use user::UserSlice;

/// Here a restless schedule may interrupt who runs (`record::on_touch`). Nothing without the feature `sim`.
#[inline(always)]
pub fn touched() {
    #[cfg(feature = "sim")]
    record::touched();
}

/// The same reference, of which the compiler no longer knows where it comes from: what is reached from it is addressed
/// by how far it is from there, in one byte where that is less than 128, and not from where it was computed.
#[inline(always)]
pub fn from_here<T>(item: &T) -> &T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut place = core::ptr::from_ref(item);
        // SAFETY: no instruction: it leaves the address what it is.
        #[allow(clippy::pointers_in_nomem_asm_block, reason = "there is nothing that could look where it leads")]
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) place, options(pure, nomem, nostack, preserves_flags))
        };
        // SAFETY: the reference that came in.
        unsafe { &*place }
    }
    #[cfg(not(target_arch = "x86_64"))]
    item
}

/// 0, which the compiler does not know: it keeps it in a register, whose store takes four bytes less than that of a number.
/// For where several zeros are stored.
#[inline(always)]
pub fn zero() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let zero: u64;
        // SAFETY: changes this register and flags.
        unsafe { core::arch::asm!("xor {0:e}, {0:e}", out(reg) zero, options(nomem, nostack)) };
        zero
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The same number, which the compiler no longer knows.
#[inline(always)]
pub fn unknown(number: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut number = number;
        // SAFETY: no instruction: it leaves the number what it is.
        unsafe { core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
        number
    }
    #[cfg(not(target_arch = "x86_64"))]
    number
}
