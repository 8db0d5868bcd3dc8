//! Where relative paths start, at hand: the working directory's node and mount, beside its word in the table of
//! descriptors, so that a path needs no look at its description.
//!
//! Read without a lock, and only believed if nobody has changed it meanwhile. Whoever has changed the working directory
//! [clears](Here::clear) this, and [settles](Here::settle) it; in between, and where something is mounted inside
//! another mount, paths start properly. Nobody waits (a signal handler may interrupt its own thread here): who finds
//! another settling leaves it to him, and what that one has in hand is not published then.

use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
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

/// A directory: place of its mount, node, hint.
pub type Spot = (u32, u64, u32);

impl Here {
    /// Where relative paths start; `None`: not at hand.
    #[inline(always)]
    pub fn get(&self) -> Option<Spot> {
        let state = self.state.load(Acquire);
        if state & PLACE == 0 {
            return None;
        }
        let (node, hint) = (self.node.load(Relaxed), self.hint.load(Relaxed));
        fence(Acquire);
        (self.state.load(Relaxed) == state).then_some((state & PLACE, node, hint))
    }

    /// Not at hand from now on. Returns the state, which differs from all before.
    pub fn clear(&self) -> u32 {
        loop {
            let state = self.state.load(Relaxed);
            let cleared = (state & !PLACE).wrapping_add(TURN);
            if self.state.compare_exchange(state, cleared, AcqRel, Relaxed).is_ok() {
                return cleared;
            }
        }
    }

    /// Brings this to what `now` says, which is asked after the last change that anybody came here with.
    /// `settling` counts who is at it.
    pub fn settle(&self, settling: &AtomicU32, now: impl Fn() -> Option<Spot>) {
        // What another has in hand, or has just published, may be from before our change.
        self.clear();
        if settling.fetch_add(1, AcqRel) != 0 {
            // He sees that we were here, and looks again.
            return;
        }
        loop {
            let many = settling.load(Acquire);
            let cleared = self.clear();
            if let Some((place, node, hint)) = now().filter(|(place, ..)| (1..=PLACE).contains(place)) {
                // After the state was cleared, for whoever reads them.
                fence(Release);
                self.node.store(node, Relaxed);
                self.hint.store(hint, Relaxed);
                // Else somebody has cleared it since, who settles it himself.
                let _ = self.state.compare_exchange(cleared, cleared | place, Release, Relaxed);
            }
            if settling.compare_exchange(many, 0, AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }
}
