//! Adopting the lane of a dead thread: its operation happens entirely or not at
//! all, and everything it held is free again. Whoever meets the dead does it.

use super::apply;
use crate::fs::Fs;
use crate::segment::{Cachelet, LaneState, LockWord, cachelet};
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use pm::mutex::Attempt;

impl Fs {
    /// Adopts lane `number` if its holder is dead; otherwise does nothing.
    #[cold]
    pub(crate) fn adopt_if_dead(&self, number: u32) {
        let Some(mutex) = self.lane_mutex(number) else { return };
        if matches!(mutex.try_take(), Attempt::Inherited | Attempt::Taken) {
            // A damaged record is kept for the checker; the locks go either way.
            let _ = self.adopt_lane(number);
            mutex.give_back();
        }
    }

    /// Cleans up after the last user of a lane. The caller holds its mutex.
    ///
    /// Order: the record first (its words are still protected by the locks),
    /// then reservations and slots, the directories, and the locks last.
    pub(crate) fn adopt_lane(&self, number: u32) -> Result<()> {
        let (lane, state) = (self.lane(number), self.lane_state(number));
        let mut result = Ok(());
        if lane.state.load(Acquire) != 0 {
            if let Some(record) = apply::valid_record(self, lane) {
                result = apply::apply(self, lane, record, true);
                self.image.fence();
                self.release_freed(lane, record);
            }
            self.image.store(&lane.state, 0);
            self.image.flush(self.image.offset_of(lane), 8);
            self.image.fence();
        }
        self.forget_loading(number, state);
        self.return_reservations(state);
        self.settle_tentative(number, state);
        for slot in &state.slots {
            self.return_slot(number, slot.swap(0, AcqRel));
        }
        for closed in &state.closed {
            if let (1.., Some(directory)) = (closed.load(Relaxed), self.segment.at::<Cachelet>(closed.load(Relaxed))) {
                self.reopen(directory, number);
            }
            closed.store(0, SeqCst);
        }
        for entered in &state.entered {
            entered.store(0, SeqCst);
        }
        for held in state.held.iter().rev() {
            self.free_lock(number, held.load(Acquire));
            held.store(0, Release);
        }
        self.free_lock(number, state.loading_cachelet.swap(0, AcqRel));
        // Offsets of open files that it held.
        for offset in &state.spare2[..crate::process::descriptions::OFFSETS] {
            self.free_lock(number, offset.swap(0, AcqRel));
        }
        for word in state.arenas.iter().chain([&state.cursor]).chain(&state.pages) {
            word.store(0, Relaxed);
        }
        result
    }

    /// Frees the lock at segment offset `at` if lane `number` holds it; an inode
    /// that was being changed is loaded again by whoever comes next.
    fn free_lock(&self, number: u32, at: u64) {
        let Some(word) = (at != 0).then(|| self.segment.at::<LockWord>(at)).flatten() else { return };
        if word.load(Acquire) != number + 1 {
            return;
        }
        if at >= self.areas.cachelets {
            let index = (at - self.areas.cachelets) / size_of::<Cachelet>() as u64;
            if let Some(cachelet) = self.cachelet(index as u32) {
                cachelet.flags.fetch_or(cachelet::INVALID, SeqCst);
                // The record may have taken its name away.
                cachelet.parent.store(0, SeqCst);
                cachelet.map_sequence.store((cachelet.map_sequence.load(Acquire).wrapping_add(2)) & !1, Release);
                self.reopen(cachelet, number);
                if cachelet.sequence.load(Acquire) & 1 == 1 {
                    cachelet.sequence.fetch_add(1, AcqRel);
                }
            }
        }
        let _ = word.compare_exchange(number + 1, 0, AcqRel, Relaxed);
    }

    /// The dead lane was loading a page of the shadow: nobody could use the page yet, so it starts afresh.
    fn forget_loading(&self, number: u32, state: &LaneState) {
        let loading = state.loading.swap(0, AcqRel);
        if loading != 0
            && let Some(page) = self.page(loading - 1)
        {
            let _ = page.ready.compare_exchange(crate::alloc::loading_by(number), 0, AcqRel, Relaxed);
        }
    }
}
