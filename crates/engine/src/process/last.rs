//! The ends of things: where processes and descriptions meet files and locks.

use crate::fs::Fs;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, DescriptionId, Kind, Node};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

impl Fs {
    /// A description ends: so do its OFD and `flock` locks.
    #[inline]
    pub(super) fn description_ends(&self, cx: &Cx, id: DescriptionId, node: u64) {
        self.drop_locks_of_description(cx, id, node);
    }

    /// Nobody has the node open any more: without a name it goes, else it gives
    /// back the blocks that were given out ahead of need.
    #[inline]
    pub(super) fn last_close(&self, cx: &Cx, cachelet: &Cachelet, id: u64) {
        let flags = cachelet.flags.load(Acquire);
        let directory = cachelet.mode.load(Relaxed) >> 16 & 0xff == Kind::Directory as u32;
        let nameless = if directory { flags & cachelet::REMOVED != 0 } else { cachelet.nlink.load(Acquire) == 0 };
        // An invalid cachelet says nothing: its inode does.
        if nameless || flags & cachelet::INVALID != 0 {
            self.last_close_of_orphan(cx, cachelet, id);
        } else {
            self.trim(cx, cachelet, id);
        }
    }

    #[cold]
    #[inline(never)]
    fn last_close_of_orphan(&self, cx: &Cx, cachelet: &Cachelet, id: u64) {
        if self.is_nameless(cachelet, id) == Ok(true) {
            self.free_orphan(cx, Node { id, hint: self.cachelet_number(cachelet) });
        }
    }

    /// Work that the dead left, while `go_on` says so: truncations, and orphans
    /// that nobody has open. Nobody else uses the image. False if some is left.
    pub(super) fn finish_leftovers(&self, cx: &Cx, go_on: &mut dyn FnMut() -> bool) -> bool {
        let mut finished = true;
        let looked_at_all = self.finish_truncations(go_on)
            && self.each_orphan(|node| {
                if !go_on() {
                    return false;
                }
                // Nobody else uses the image, and we have opened nothing yet: a
                // count is what somebody left who died between counting and noting it.
                if let Ok(cachelet) = self.cached(cx, node) {
                    cachelet.opens.store(0, SeqCst);
                }
                finished &= self.try_orphan(cx, node);
                true
            });
        finished && looked_at_all
    }

    /// As `finish_leftovers`, beside others, who are spared what they have open and
    /// what they are about to open. False if some is left that can be done soon.
    pub(super) fn finish_what_nobody_has(&self, cx: &Cx, go_on: &mut dyn FnMut() -> bool) -> bool {
        let mut finished = true;
        let looked_at_all = self.finish_truncations(go_on)
            && self.each_orphan(|node| {
                let Ok(cachelet) = self.cached(cx, node) else { return true };
                // In this order: what a lane has opened it need not name any more.
                if cachelet.opens.load(SeqCst) != 0 || self.is_to_be_opened(node.id) {
                    return true;
                }
                // Whoever lives and is at it frees it himself; if he has died since, the next look is soon.
                if cachelet.owner.load(SeqCst) != 0 {
                    finished = false;
                    return true;
                }
                go_on() && {
                    finished &= self.try_orphan(cx, node);
                    true
                }
            });
        finished && looked_at_all
    }

    /// Whether a lane has made a node without a name and may not have opened it yet.
    fn is_to_be_opened(&self, id: u64) -> bool {
        let lanes = self.header().lanes_high.get();
        (0..lanes).any(|lane| self.lane_state(lane).unopened.load(SeqCst) == id)
    }

    /// Calls `each` for all orphans while it returns true; whether it always did.
    ///
    /// Every program that starts comes here when another one has died: it looks as far as a slot was ever used.
    fn each_orphan(&self, mut each: impl FnMut(Node) -> bool) -> bool {
        // A table that is not there holds none.
        let high = self.orphans_high().unwrap_or(0);
        let ids = (0..high).map_while(|number| self.orphan_slot(number).ok()).map(|slot| slot.load(SeqCst));
        ids.filter(|id| *id != 0).all(|id| each(Node { id, hint: u32::MAX }))
    }
}
