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

    /// A process ends: so do its record locks.
    pub(super) fn process_ends(&self, cx: &Cx, number: u32) {
        self.drop_locks_of_process(cx, number);
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
            // A failure leaves it in the orphan table, for the next who attaches alone.
            let _ = self.reclaim_orphan(cx, Node { id, hint: self.cachelet_number(cachelet) });
        }
    }

    /// Work that the dead left, while `go_on` says so: truncations, and orphans
    /// that nobody has open. Nobody else uses the image.
    pub(super) fn finish_leftovers(&self, cx: &Cx, go_on: &mut dyn FnMut() -> bool) {
        self.finish_truncations(cx, go_on);
        for number in self.orphan_numbers() {
            let Ok(slot) = self.orphan_slot(number) else { return };
            let id = slot.load(Acquire);
            if id != 0 {
                if !go_on() {
                    return;
                }
                let node = Node { id, hint: u32::MAX };
                // Nobody else uses the image, and we have opened nothing yet: a
                // count is what somebody left who died between counting and noting it.
                if let Ok(cachelet) = self.cached(cx, node) {
                    cachelet.opens.store(0, SeqCst);
                }
                let _ = self.reclaim_orphan(cx, node);
            }
        }
        self.finish_truncations(cx, go_on);
    }
}
