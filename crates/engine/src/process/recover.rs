//! Nobody lives: what the lanes' records say is finished, and what was begun is not there.
//!
//! The same `apply` as in life. Nothing here depends on the number of files:
//! records are found in the lanes; orphans and half-done truncations are
//! finished a few at a time, the rest at the next opportunity.

use crate::fs::Fs;
use crate::lane::apply;
use base::{Cx, Result};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

/// How long attaching may spend on orphans, nanoseconds.
const WORK_NS: i64 = 2_000_000;

impl Fs {
    /// Applies every whole record and retires it. Alone, before the segment is made.
    pub(crate) fn recover_records(&self) -> Result<()> {
        let mut any = false;
        for number in self.lane_numbers() {
            let lane = self.lane(number);
            if lane.state.load(Acquire) == 0 {
                continue;
            }
            any = true;
            if let Some(record) = apply::valid_record(self, lane) {
                apply::apply::<true>(self, lane, usize::from(record.ops))?;
                self.image.fence();
            }
            self.image.store(&lane.state, 0);
            self.image.flush(self.image.offset_of(lane), 8);
        }
        if any {
            self.image.fence();
        }
        Ok(())
    }

    /// Frees inodes that nobody refers to any more, and finishes truncations
    /// that somebody left; for as long as attaching may take. Nobody else uses
    /// the image.
    pub(super) fn finish_work(&self, cx: &Cx) {
        let leftovers = self.leftovers();
        if leftovers.load(Acquire) == 0 {
            return;
        }
        let end = pm::clock::monotonic().saturating_add(WORK_NS);
        let mut stopped = false;
        self.finish_leftovers(cx, &mut || {
            stopped = pm::clock::monotonic() >= end;
            !stopped
        });
        if !stopped {
            leftovers.store(0, Release);
        }
    }

    /// Not 0: there may be work that the dead have left. So it is in a new
    /// segment, and after every adoption.
    pub(super) fn leftovers(&self) -> &AtomicU32 {
        &self.header().reserved2[5]
    }
}
