//! Lines and blocks: who gets which.
//!
//! The bitmap in the image is the truth: a bit a line, a word a block. Over it
//! lies the *reservation bitmap* in the segment: bitmap ∪ what operations under way have
//! reserved. A reservation is a compare-and-swap in the reservation bitmap, listed in the
//! lane's state; only the record makes it the image's. What a record frees
//! leaves the bitmap first and the reservation bitmap after the record has been applied.
//!
//! A chunk is 512 blocks (2 MiB): it is loaded from the bitmap when
//! somebody first needs it. Lanes claim chunks so as to stay out of each other's
//! way; a claim is a wish, not a lock, and a full image ignores them all.
//!
//! [`arena`] hands out lines from a lane's own magazine, [`reservation`] has the chunks and
//! reservations, [`search`] finds room, [`spare`] keeps some back for what frees.

pub(crate) mod arena;
pub(crate) mod fault;
pub(crate) mod reservation;
pub(crate) mod search;
mod spare;

pub(crate) use reservation::loading_by;

/// What lines are for: objects of a kind share blocks, so that a scan of inodes
/// meets nothing but inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arena {
    /// Inodes.
    Inodes = 0,
    /// Edentries.
    Edentries = 1,
    /// Symlink texts, cold lines, overflow buckets.
    Other = 2,
}
