//! Where relative paths start, at hand: the working directory's node and mount, beside its word in the table of
//! descriptors, so that a path needs no look at its description.
//!
//! Read without a lock, and only believed if nobody has changed it meanwhile. In the middle of a change, and where
//! something is mounted inside another mount, it is not at hand, and paths start properly.

use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::atomic::{AtomicU32, AtomicU64, fence};

/// Where relative paths start, if that is at hand.
#[repr(C)]
pub struct Here {
    /// [`Node::id`](base::Node::id) of the working directory.
    pub(crate) node: AtomicU64,
    /// turn 16 | place of its mount in the table 16. Place 0: not at hand. The turn tells changes apart.
    pub(crate) state: AtomicU32,
    /// [`Node::hint`](base::Node::hint).
    pub(crate) hint: AtomicU32,
}

/// What of a state is the place.
const PLACE: u32 = 0xffff;
const TURN: u32 = PLACE + 1;

/// Where a relative path begins: place of the mount, node, hint.
pub type Beginning = (u32, u64, u32);

impl Here {
    /// Where relative paths start; `None`: not at hand.
    #[inline]
    pub fn get(&self) -> Option<Beginning> {
        let state = self.state.load(Acquire);
        if state & PLACE == 0 {
            return None;
        }
        let (node, hint) = (self.node.load(Relaxed), self.hint.load(Relaxed));
        fence(Acquire);
        (self.state.load(Relaxed) == state).then_some((state & PLACE, node, hint))
    }

    /// From now on relative paths start there, or at what is not at hand. By one thread at a time.
    pub fn set(&self, beginning: Option<Beginning>) {
        let cleared = (self.state.load(Relaxed) & !PLACE).wrapping_add(TURN);
        self.state.store(cleared, Release);
        if let Some((place, node, hint)) = beginning.filter(|(place, ..)| (1..=PLACE).contains(place)) {
            // After the state was cleared, for whoever reads them.
            fence(Release);
            self.node.store(node, Relaxed);
            self.hint.store(hint, Relaxed);
            self.state.store(cleared | place, Release);
        }
    }
}
