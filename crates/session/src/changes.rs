//! When what was last changed, so that an answer that overlaps with a change is
//! not kept.
//!
//! Changes of nodes are numbered through. The number of a node's last change
//! stands in a word that a hash of its key chooses: nodes that share a word only
//! forget more than they must. Whoever asks a lower file system notes the [`Moment`] first;
//! an answer is kept only if nothing it speaks of has changed since. A change
//! counts from its end, when the lower file system has answered, so an answer kept after
//! that holds it already.

use super::{CHANGED_AT, SessionCache, WORDS};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// A point in the order of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Changes of names.
    pub names: u64,
    /// Changes of nodes.
    pub nodes: u64,
}

/// What of a node has changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// Attributes.
    Attributes,
    /// Any of the contents.
    Contents,
    /// A part of the contents: [`super::pages`] has its key.
    Part,
    /// Something written, so perhaps the end.
    End,
    /// Type, mode or owner.
    Rights,
}

impl SessionCache {
    /// Now, in the order of changes.
    pub fn moment(&self) -> Moment {
        Moment { names: self.changes(), nodes: self.header().ticks.load(Acquire) }
    }

    pub(super) fn changed_word(&self, of: Of, key: u64) -> Option<&AtomicU64> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.region.at(CHANGED_AT + (of as u64 * WORDS + hash % WORDS) * 8)
    }

    /// Something of the node with this key has just changed.
    pub(super) fn note_change(&self, of: Of, key: u64) {
        let tick = self.header().ticks.fetch_add(1, AcqRel) + 1;
        if let Some(word) = self.changed_word(of, key) {
            word.fetch_max(tick, AcqRel);
        }
    }

    /// The number of its last change, or a later one.
    pub(super) fn last_change(&self, of: Of, key: u64) -> u64 {
        self.changed_word(of, key).map_or(u64::MAX, |word| word.load(Acquire))
    }
}
