//! Processes come and go: attaching, recovering, open files, fork, exec, death.
//!
//! | file | what |
//! |---|---|
//! | [`attach`] | from a path to an [`Fs`](crate::Fs): open, check, map, join or recover |
//! | `volatile` | the header that names the segment; who lives |
//! | [`machine`] | on which machine an image is used |
//! | `join` | the segment's file |
//! | `owner` | whether a file is the segment of an image |
//! | `memory` | attaching memory in place of files (crash explorer) |
//! | `rescue`, `in_place` | reading an image whose file may not be written: in one process, in a session |
//! | `sweep` | segments that nobody needs any more |
//! | `recover` | nobody lives: finish what records and orphans say |
//! | `table` | where process slots and descriptor tables lie |
//! | `descriptions` | open file descriptions, pins on cachelets, offsets |
//! | [`served`] | the server of the kernel mount |
//! | [`calls`] | how many calls came which way |
//! | [`executed`] | files that are being executed |
//! | `adopt` | the end of a process |
//! | `census` | what is held at the moment, for tests |
//! | `usage` | what users do, for people |
//! | `last` | the ends of descriptions and processes |
//! | `kernel` | what `/proc` tells |
//! | `feature` | what not every program of the format knows |
//! | `stopped` | who keeps others waiting |
//!
//! Invariants
//! - Attaching holds the kernel's lock on the image file: who is the first to do
//!   so has it alone, any number join others at a time. So one that is stopped while
//!   it joins keeps nobody from joining.
//! - Process slots, fork, exec and death: [`openfiles`].

pub mod adopt;
pub mod attach;
pub mod calls;
#[cfg(any(test, feature = "check"))]
pub mod census;
pub mod covered;
pub mod descriptions;
pub mod executed;
mod feature;
pub mod in_place;
mod join;
mod kernel;
mod last;
pub mod machine;
#[cfg(feature = "sim")]
pub mod memory;
mod owner;
mod recover;
mod rescue;
pub mod served;
mod session;
mod stopped;
mod sweep;
pub mod table;
#[cfg(any(test, feature = "check"))]
pub mod usage;
pub(crate) mod volatile;

#[cfg(test)]
mod tests;

pub use attach::{AttachError, Options};
