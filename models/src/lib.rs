//! Models of the lock-free protocols, for [loom], which tries every schedule and
//! every value that a load may return.
//!
//! The engine's code works on mapped memory, which loom cannot see; so these are
//! models: each follows the functions that it names step by step, with the same
//! orderings. A change there is to be made here too. Where the code itself works on
//! any atomic words (`base::hold`), it is that which is tried.
//!
//! Not here: entering and closing a directory (`lane/enter.rs`), which stands on
//! sequential consistency; loom takes such accesses for acquire and release only.
//!
//! [loom]: https://docs.rs/loom

#[cfg(test)]
use loom::sync::atomic;

/// As in `base`.
#[cfg(test)]
type DescriptionId = u32;

#[cfg(test)]
mod bucket;
#[cfg(test)]
mod cachelet;
#[cfg(test)]
#[path = "../../crates/base/src/hold.rs"]
mod hold;
#[cfg(test)]
mod holders;
#[cfg(test)]
mod lane;
#[cfg(test)]
mod pins;
#[cfg(test)]
mod reservation;
#[cfg(test)]
mod slot;
