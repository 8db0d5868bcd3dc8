//! Help with a clone: directories of it that other threads fill.
//!
//! A directory has its twin, then is *offered*; who takes it fills it, with all that is below, and may offer parts of that.
//! No two work in one directory. What needs to know the whole tree is put off until all else is done, and is the first thread's:
//! files with several names, and the directories that these lie in, which get mode and times last.

use super::clone::{Clone, Level};
use super::{Failed, Tally, Trees};
use alloc::vec::Vec;
use base::{Kind, Node, Twin};

/// A directory that is to be filled.
pub struct Part {
    pub(super) source: Node,
    pub(super) twin: Twin,
    pub(super) path: Vec<u8>,
}

/// A name that is put off.
pub(super) struct Later {
    pub(super) source: (Node, Kind),
    /// The directory that it is to stand in.
    pub(super) to: Node,
    pub(super) path: Vec<u8>,
    pub(super) name_len: usize,
}

/// What has been done by one, and what is put off.
#[derive(Default)]
pub struct Share {
    /// What has been done.
    pub tally: Tally,
    pub(super) later: Vec<Later>,
    pub(super) unfinished: Vec<Level>,
}

impl Share {
    /// With another one's.
    pub fn add(&mut self, other: Share) {
        let Tally { names, shared, copied, dropped } = other.tally;
        let tally = &mut self.tally;
        (tally.names, tally.shared) = (tally.names + names, tally.shared + shared);
        (tally.copied, tally.dropped) = (tally.copied + copied, tally.dropped + dropped);
        self.later.extend(other.later);
        self.unfinished.extend(other.unfinished);
    }
}

/// Those who clone a tree together.
pub trait Crew {
    /// Takes a part where there is little to do; else it is the caller's.
    fn offer(&self, part: Part) -> Result<(), Part>;
    /// The next part that nobody has begun. Waits; `None` once all have been done, or one has failed.
    fn next(&self) -> Option<Part>;
    /// Whether one has failed: then the rest is in vain.
    fn has_failed(&self) -> bool;
    /// Nothing more is begun. Waits for those at work: what they have done, or why not.
    fn end(&self) -> Result<Share, Failed>;
}

impl Trees<'_> {
    /// Fills a directory that was offered.
    pub fn fill_part(&mut self, part: Part, crew: &dyn Crew) -> Result<Share, Failed> {
        let mut clone = Clone::new(self, false, Some(crew));
        let result = clone.part(part);
        clone.ended(result)
    }
}
