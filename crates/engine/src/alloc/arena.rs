//! Lines from a lane's own stock: a block's worth of lines is reserved at a time,
//! and handed out with a few instructions.
//!
//! The shadow has a bit for every line in a stock, so nobody else takes them.
//! `LaneState::stock` names those that are left, `taken` those that the operation
//! under way has taken out: the image's once its record has committed, back in
//! the stock if it does not. A line is in `taken` before it leaves `stock`, so
//! whoever adopts a dead lane finds each of them, and gives back to the shadow
//! what the bitmap does not have.
//!
//! When the image is nearly full nothing is stocked: lines are reserved one by
//! one, and a lane's own stock goes back before `ENOSPC` is said.

use super::Arena;
use super::search::free_run;
use crate::fs::Fs;
use crate::segment::LaneState;
use crate::segment::lane_state::ARENAS;
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Fs {
    /// Takes `count` (1–64) neighbouring lines of one block: (block, bits). `ENOSPC`.
    #[inline(always)]
    pub(crate) fn take_lines(&self, number: u32, state: &LaneState, count: u32, arena: Arena) -> Result<(u64, u64)> {
        let (stock, taken) = (&state.stock[arena as usize], &state.taken[arena as usize]);
        let left = stock.load(Relaxed);
        let Some(bits) = free_run(!left, count) else { return self.take_lines_elsewhere(number, state, count, arena) };
        // In this order: see the module.
        taken.store(taken.load(Relaxed) | bits, Release);
        stock.store(left & !bits, Release);
        Ok((state.arenas[arena as usize].load(Relaxed), bits))
    }

    /// The stock does not have them.
    #[cold]
    #[inline(never)]
    fn take_lines_elsewhere(&self, number: u32, state: &LaneState, count: u32, arena: Arena) -> Result<(u64, u64)> {
        let place = arena as usize;
        if state.taken[place].load(Relaxed) != 0 {
            // The arena's block must stay the one that `taken` is about.
            return self.reserve_lines(number, state, count, arena, false);
        }
        self.return_stock(state, place);
        let (block, bits) = self.reserve_lines(number, state, count, arena, true)?;
        if !self.stock_up(state, place, block, bits) {
            return Ok((block, bits));
        }
        let mine = free_run(!bits, count).unwrap_or(bits);
        state.taken[place].store(mine, Release);
        state.stock[place].store(bits & !mine, Release);
        Ok((block, mine))
    }

    /// Makes the lines reserved last an arena's stock; false if they are just what was asked for.
    ///
    /// The list entry goes in two steps, so that the lines are listed all the
    /// time, but as certainly reserved never twice: once not counted any more, it
    /// is only believed where no arena has its block (`settle_reservations`).
    fn stock_up(&self, state: &LaneState, place: usize, block: u64, bits: u64) -> bool {
        let Some(last) = (state.reserved_count.load(Relaxed) as usize).checked_sub(1) else { return false };
        state.reserved_count.store(last as u32, Release);
        state.arenas[place].store(block, Release);
        state.stock[place].store(bits, Release);
        if let Some(entry) = state.reserved.get(last) {
            entry.run.store(0, Release);
        }
        true
    }

    /// Gives what is left in a stock back to the shadow; listed once more, so that it is not lost if we die in between.
    pub(crate) fn return_stock(&self, state: &LaneState, place: usize) {
        let left = state.stock[place].load(Relaxed);
        if left == 0 {
            return;
        }
        let run = state.arenas[place].load(Relaxed) | 1 << 40;
        let listed = state.reserved.get(state.reserved_count.load(Relaxed) as usize);
        if let Some(entry) = listed {
            entry.bits.store(left, Relaxed);
            entry.run.store(run, Release);
        }
        state.stock[place].store(0, Release);
        self.release(run, left, true);
        if let Some(entry) = listed {
            entry.run.store(0, Release);
        }
    }

    /// Gives all stocks of a lane back: at the end of its use, or when there is no other space.
    pub(crate) fn return_stocks(&self, state: &LaneState) {
        for place in 0..ARENAS {
            self.return_stock(state, place);
        }
    }

    /// Puts back what an operation has taken and no record has made the image's.
    #[inline]
    pub(crate) fn put_back_lines(&self, state: &LaneState) {
        for (stock, taken) in state.stock.iter().zip(&state.taken) {
            stock.store(stock.load(Relaxed) | taken.load(Relaxed), Release);
            taken.store(0, Release);
        }
    }

    /// After a death: gives back what a lane had in stock, and what it had taken
    /// unless its record, which has been applied, made that the image's.
    pub(crate) fn return_arenas(&self, number: u32, state: &LaneState) {
        for place in 0..ARENAS {
            let bits = state.stock[place].load(Relaxed) | state.taken[place].load(Relaxed);
            if bits != 0 {
                self.release_own(number, state.arenas[place].load(Relaxed), bits);
            }
            for word in [&state.stock[place], &state.taken[place], &state.arenas[place]] {
                word.store(0, Release);
            }
        }
    }
}

/// The lines of `block` that the arenas of a lane have.
pub(crate) fn stocked(state: &LaneState, block: u64) -> u64 {
    let places = (0..ARENAS).filter(|place| state.arenas[*place].load(Relaxed) == block);
    // Taken out they are in both for a moment, put back too: so in this order nothing is missed.
    let both = |place: usize| {
        let (stock, taken) = (&state.stock[place], &state.taken[place]);
        stock.load(Acquire) | taken.load(Acquire) | stock.load(Acquire)
    };
    places.fold(0, |lines, place| lines | both(place))
}

/// How many lines the arenas of a lane have.
#[cfg(any(test, feature = "check"))]
pub(crate) fn lines_stocked(state: &LaneState) -> u64 {
    let places = state.stock.iter().zip(&state.taken);
    places.map(|(stock, taken)| u64::from((stock.load(Relaxed) | taken.load(Relaxed)).count_ones())).sum()
}
