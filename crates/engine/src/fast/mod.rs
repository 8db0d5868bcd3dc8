//! The fast path: looking names up, `stat`, `open` and `close`, `read` and `write`, where everything that they ask is
//! cached and nothing is unusual.
//!
//! | file | what |
//! |---|---|
//! | `lookup` | from a path to a cachelet; `chain`, `long`: names in chains of buckets, and too long for a cachelet |
//! | `stat` | attributes out of a cachelet |
//! | `open` | a description for a cachelet, and its end |
//! | `read`, `write` | one buffer, one run of blocks |
//!
//! Each answers [`Fast`](base::Fast): done, no such name, or slow. Slow is whatever is out of the ordinary (`.` and
//! `..`, symlinks, what is not cached, rights by group, a lock that is held); then nothing has been done, and
//! the caller takes the slow path, which gives the same answers to everything.
//!
//! Invariants
//! - Looking up and reading writes nothing that others read, and waits for nobody.
//! - What was read of a cachelet counts only if its sequence is the same after as before
//!   ([`Cachelet::is_still`](crate::segment::Cachelet::is_still)).
//! - What is locked, listed and counted, and in which order, is as on the slow path.

mod chain;
mod long;
pub(crate) mod lookup;
pub(crate) mod open;
mod read;
mod stat;
mod write;
