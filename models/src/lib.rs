//! Models of the lock-free protocols, for [loom], which tries every schedule and
//! every value that a load may return, and for [shuttle] (feature `many`), which
//! draws schedules of more threads and longer sequences than can be exhausted, and
//! lets threads die at any access.
//!
//! The engine's code works on mapped memory, which neither can see; so these are
//! models: each follows the functions that it names step by step, with the same
//! orderings. A change there is to be made here too. Where the code itself works on
//! any atomic words (`openfiles::refcount`, `posix::here`, `pm::counted`, `engine::lower::gate`), it is that which is tried, by both.
//!
//! loom takes sequentially consistent accesses for acquire and release only. What stands on them has fences beside each
//! here (`gate/atomic.rs`), or is left to shuttle: entering and closing a directory (`lane/enter.rs`).
//! Shuttle takes all accesses for sequentially consistent: what an ordering is worth is loom's to find.
//!
//! [loom]: https://docs.rs/loom
//! [shuttle]: https://docs.rs/shuttle

#[cfg(all(test, not(feature = "many")))]
use loom::sync::atomic;
#[cfg(all(test, feature = "many"))]
use many::mortal as atomic;

/// As in `base`.
#[cfg(test)]
type DescriptionId = u32;

#[cfg(all(test, not(feature = "many")))]
mod bucket;
#[cfg(all(test, not(feature = "many")))]
mod cachelet;
#[cfg(all(test, not(feature = "many")))]
#[path = "../../crates/pm/src/counted.rs"]
mod counted;
#[cfg(all(test, not(feature = "many")))]
mod gate;
#[cfg(all(test, not(feature = "many")))]
#[path = "../../crates/posix/src/here.rs"]
mod here;
#[cfg(all(test, not(feature = "many")))]
mod holders;
#[cfg(all(test, not(feature = "many")))]
mod known;
#[cfg(all(test, not(feature = "many")))]
mod lane;
#[cfg(all(test, not(feature = "many")))]
mod ledger;
#[cfg(all(test, feature = "many"))]
mod many;
#[cfg(all(test, not(feature = "many")))]
mod pins;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../crates/openfiles/src/refcount.rs"]
mod refcount;
#[cfg(all(test, not(feature = "many")))]
mod relative;
#[cfg(all(test, not(feature = "many")))]
mod reservation;
#[cfg(all(test, not(feature = "many")))]
mod slot;
