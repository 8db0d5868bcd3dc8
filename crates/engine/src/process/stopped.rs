//! Who keeps others waiting: processes that were stopped in the middle of a change.

use crate::fs::Fs;
use crate::segment::LockWord;
use base::{Cx, Holder};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::layout::LANES;

impl Fs {
    /// The lane of this thread + 1, by which its waits are known; 0: it can have none.
    pub fn waits_as(&self, cx: &Cx) -> u32 {
        self.lane_of(cx).map_or(0, |number| number + 1)
    }

    /// The process that lane `number` waits for, if it has waited for long.
    pub fn kept_waiting_by(&self, number: u32) -> Option<Holder> {
        let at = self.lane_state(number).waits_for.load(Relaxed);
        let word: &LockWord = (at != 0).then(|| self.segment.at(at)).flatten()?;
        let holder = word.load(Acquire).checked_sub(1).filter(|holder| *holder < LANES)?;
        self.user_of(holder)
    }

    /// The processes that are stopped in the middle of a change, as far as PIDs tell.
    pub fn stopped_users(&self) -> impl Iterator<Item = u32> {
        let busy = (0..self.header().lanes_high.get()).filter(|number| self.is_lane_busy(*number));
        busy.filter_map(|number| self.user_of(number)).filter(|user| user.is_stopped).map(|user| user.pid)
    }

    /// The process that uses a lane.
    fn user_of(&self, number: u32) -> Option<Holder> {
        let process = self.lane_state(number).process.load(Relaxed).checked_sub(1)?;
        let slot = self.process_slot(process)?;
        let who = slot.who();
        Some(Holder { pid: who.pid, is_stopped: matches!(who.state(), Some(b'T' | b't')) })
    }
}
