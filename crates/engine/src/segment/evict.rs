//! New cachelets: never used ones first, then the CLOCK takes those nobody uses.

use super::cachelet::{self, Cachelet};
use crate::alloc::fault;
use crate::fs::Fs;
use crate::segment::LaneState;
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use format::inode::node_offset;
use pm::Errno;

/// Cachelets that get real space at a time, at first; later a huge page of them.
const STEP: u32 = 4096;
const STEP_MAX: u32 = (pm::huge::HUGE_PAGE / size_of::<Cachelet>() as u64) as u32;
/// How often somebody else may be faster at taking a new one: after that one is taken away.
const LOADERS: u32 = 1 << 16;

impl Fs {
    /// A cachelet for another node, `owner` held by `lane` and listed as the
    /// `loading_cachelet` of its `state`; `node` is 0. `ENOMEM` if all are in use.
    #[inline(always)]
    pub(crate) fn new_cachelet(&self, lane: u32, state: &LaneState) -> Result<&Cachelet> {
        let header = self.header();
        let next = header.cachelet_next.load(Acquire);
        if next < header.cachelet_ready.load(Acquire)
            && let Some(cachelet) = self.cachelet(next)
            && header.cachelet_next.compare_exchange(next, next + 1, AcqRel, Relaxed).is_ok()
            && self.take_for_loading(lane, state, cachelet)
        {
            return Ok(cachelet);
        }
        let cachelet = self.new_cachelet_anyhow(lane)?;
        Ok(cachelet)
    }

    #[cold]
    #[inline(never)]
    fn new_cachelet_anyhow(&self, lane: u32) -> Result<&Cachelet> {
        if fault::strikes(fault::Kind::Cachelet) {
            return Err(Errno::ENOMEM.into());
        }
        if let Some(cachelet) = self.unused_cachelet(lane) {
            return Ok(cachelet);
        }
        let count = self.areas.cachelet_count;
        // Twice around clears every reference bit; once more is for those in use meanwhile.
        for _ in 0..u64::from(count) * 3 {
            let number = self.header().cachelet_hand.fetch_add(1, Relaxed) % count;
            let Some(cachelet) = self.cachelet(number) else { continue };
            if self.reuse(lane, cachelet) {
                return Ok(cachelet);
            }
        }
        Err(Errno::ENOMEM.into())
    }

    /// The next cachelet never used so far, once there is space for it; `None`
    /// when there are no more, or no space.
    fn unused_cachelet(&self, lane: u32) -> Option<&Cachelet> {
        let header = self.header();
        for _ in 0..LOADERS {
            let next = header.cachelet_next.load(Acquire);
            if next >= self.areas.cachelet_count {
                return None;
            }
            if next >= header.cachelet_ready.load(Acquire) {
                let step = (STEP_MAX - next % STEP_MAX).min(next.max(STEP)).min(self.areas.cachelet_count - next);
                let size = size_of::<Cachelet>() as u64;
                self.segment_space(self.areas.cachelets + u64::from(next) * size, u64::from(step) * size).ok()?;
                header.cachelet_ready.fetch_max(next + step, AcqRel);
            }
            if header.cachelet_next.compare_exchange(next, next + 1, AcqRel, Relaxed).is_ok() {
                let cachelet = self.cachelet(next)?;
                if self.take_for_loading(lane, self.lane_state(lane), cachelet) {
                    return Some(cachelet);
                }
            }
        }
        None
    }

    /// Takes `owner`, listed first; false if somebody has it.
    #[inline(always)]
    fn take_for_loading(&self, lane: u32, state: &LaneState, cachelet: &Cachelet) -> bool {
        let listed = &state.loading_cachelet;
        listed.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        let taken = cachelet.owner.compare_exchange(0, lane + 1, SeqCst, Relaxed).is_ok();
        if !taken {
            listed.store(0, SeqCst);
        }
        taken
    }

    /// Tries to take a cachelet away from its node.
    fn reuse(&self, lane: u32, cachelet: &Cachelet) -> bool {
        if cachelet.owner.load(Relaxed) != 0 || cachelet.opens.load(Relaxed) != 0 {
            return false;
        }
        let flags = cachelet.flags.load(Relaxed);
        if cachelet.node.load(Relaxed) != 0 && flags & cachelet::REFERENCED != 0 {
            cachelet.flags.fetch_and(!cachelet::REFERENCED, Relaxed);
            return false;
        }
        if flags >> 16 != 0 || !self.take_for_loading(lane, self.lane_state(lane), cachelet) {
            return false;
        }
        if self.empty(lane, cachelet) {
            return true;
        }
        self.let_go(lane, cachelet);
        false
    }

    /// Makes a cachelet whose `owner` is held nobody's; false if it is in use.
    /// Flag first, then look: openers and lanes that enter do it the other way round.
    fn empty(&self, lane: u32, cachelet: &Cachelet) -> bool {
        let id = cachelet.node.load(SeqCst);
        if id == 0 {
            return true;
        }
        let closed = cachelet::EVICTING | (lane + 1) << 16;
        let free = |flags: u32| (flags >> 16 == 0).then_some(flags | closed);
        if cachelet.flags.fetch_update(SeqCst, SeqCst, free).is_err() {
            return false;
        }
        let used = cachelet.opens.load(SeqCst) != 0 || self.is_entered(node_offset(id));
        if used {
            cachelet.flags.fetch_and(!(cachelet::EVICTING | 0xffff_0000), SeqCst);
            return false;
        }
        if cachelet.flags.load(SeqCst) & cachelet::KNOWN != 0 {
            // The flag goes; whoever changes the inode and does not find it finds this.
            self.tell_later(id);
        }
        cachelet.sequence.fetch_add(2, SeqCst);
        // Before the inode lets go: were we to die in between, nobody may take this for the inode's.
        cachelet.node.store(0, SeqCst);
        if let Ok(inode) = self.inode(node_offset(id)) {
            let own = u64::from(self.generation) << 32 | u64::from(self.cachelet_number(cachelet) + 1);
            let _ = self.image.swap_if(&inode.cachelet, own, 0);
        }
        cachelet.parent.store(0, SeqCst);
        cachelet.flags.store(0, SeqCst);
        cachelet.map_sequence.fetch_add(2, SeqCst);
        true
    }

    /// Whether any lane is changing names in the directory at `offset`.
    fn is_entered(&self, offset: u64) -> bool {
        let lanes = self.header().lanes_high.get();
        (0..lanes).any(|lane| self.lane_state(lane).entered.iter().any(|e| e.load(SeqCst) == offset))
    }
}
