//! Inputs that nobody would write: damaged images, peers that write anything
//! into what they share, paths of any bytes. `README.md` says how they are run.
//!
//! A target takes bytes and must come back: a panic, a signal, a second of
//! processor time, or an access outside the mappings (guard pages stand around
//! them) is a find.

pub mod input;
pub mod operation;
pub mod patch;
pub mod place;
pub mod target;
pub mod tree;
pub mod visit;
