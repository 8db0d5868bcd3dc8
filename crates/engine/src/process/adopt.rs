//! What a dead process leaves: its slot, its descriptors, its locks.
//!
//! Lanes are adopted by whoever waits for them, and by whoever looks at them in
//! turn (`lane::adopt`); processes, with their lanes, by whoever attaches or
//! forks, and by whoever runs short of what they hold. Who adopts also finishes
//! what they have left half done (`process::recover`).

use super::handover::child_of;
use super::kernel;
use super::table::state;
use crate::fs::Fs;
use crate::segment::ProcessSlot;
use base::Cx;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use pm::life::{Look, Who};
use pm::mutex::{Attempt, RobustMutex, Whose};

/// How long a slot readied for a child waits for the child's first step, nanoseconds.
pub(super) const GRACE_FORK: i64 = 60_000_000_000;
/// The same when the parent has died before it noted its child: there may be none.
const GRACE_ORPHAN: i64 = 10_000_000_000;
/// How long one between exec's two halves waits when its PID tells nothing.
const GRACE_EXEC: i64 = 10_000_000_000;

impl Fs {
    /// Adopts every dead process, with its lanes, and finishes what they have left; returns how many others live.
    pub fn adopt_dead_processes(&self, cx: &Cx) -> u32 {
        let living = self.adopt_all(cx, Look::Thorough);
        self.finish_beside_others(cx);
        living
    }

    /// The same for who comes here often: what it takes `/proc` to prove is found in one of the next looks.
    pub(crate) fn adopt_those_gone(&self, cx: &Cx) -> u32 {
        let living = self.adopt_all(cx, Look::Quick);
        self.finish_beside_others(cx);
        living
    }

    /// Adopts every dead process, with its lanes; returns how many others live. Each eighth quick look is a thorough one
    /// at one slot, another one each time.
    pub(super) fn adopt_all(&self, cx: &Cx, look: Look) -> u32 {
        let high = self.header().processes_high.get();
        let own = self.process.load(Relaxed);
        let looks = self.header().looks.fetch_add(1, Relaxed);
        let turn = looks.is_multiple_of(8).then_some(looks / 8 % high.max(1));
        let look_at = |number| if turn == Some(number) { Look::Thorough } else { look };
        (0..high).filter(|number| number + 1 != own && self.adopt_process_if_dead(cx, *number, look_at(*number))).count() as u32
    }

    /// Adopts the process of a slot if it is dead; whether it lives.
    pub(crate) fn adopt_process_if_dead(&self, cx: &Cx, number: u32, look: Look) -> bool {
        let Some(mutex) = self.process_mutex(number) else { return false };
        if self.process_slot(number).is_some_and(|slot| is_between_steps(slot, 0)) {
            return true;
        }
        match mutex.try_take_from(Whose::Process, look) {
            Attempt::Busy => return true,
            Attempt::Broken => return false,
            Attempt::Taken | Attempt::Inherited => {}
        }
        let lives = !self.empty_if_dead(cx, number);
        self.give_back_looked_at(mutex, number);
        lives
    }

    /// Gives back the mutex of a slot that has been looked at. Whoever asks for its holder must find the process if that
    /// lives, whose thread had it: our taking it has overwritten the note.
    pub(super) fn give_back_looked_at(&self, mutex: &RobustMutex, number: u32) {
        match self.process_slot(number).filter(|slot| slot.state.load(Acquire) == state::USED && slot_lives(slot)) {
            Some(slot) => mutex.give_back_of(kernel::process_of(slot)),
            None => mutex.give_back(),
        }
    }

    /// Empties a slot whose mutex the caller holds, unless its process lives
    /// nevertheless; whether it is nobody's who lives.
    pub(super) fn empty_if_dead(&self, cx: &Cx, number: u32) -> bool {
        let Some(slot) = self.process_slot(number) else { return true };
        if slot.state.load(Acquire) == state::FREE {
            return true;
        }
        if slot_lives(slot) {
            return false;
        }
        self.note_leftovers();
        self.adopt_lanes_of(number);
        self.empty_process(cx, number);
        self.header().served.deaths.fetch_add(1, Release);
        true
    }

    /// Gives up all that the process of a slot holds, and frees the slot; not yet if somebody who lives keeps
    /// some of it in doubt: then the next who looks goes on. The caller holds its mutex.
    pub(super) fn empty_process(&self, cx: &Cx, number: u32) {
        for (fd, _) in self.descriptors_of(number) {
            self.empty_entry(cx, number, fd);
        }
        let ended = self.end_half_made(cx, number);
        self.process_ends(cx, number);
        // Before the number is somebody else's.
        self.server_ends(number);
        self.end_notices_of(number);
        if let (true, Some(slot)) = (ended, self.process_slot(number)) {
            Self::table_pages(slot).store(0, Relaxed);
            slot.nonce.store(0, Relaxed);
            slot.state.store(state::FREE, Release);
        }
    }

    /// With nobody else alive: adopts all lanes. False if something is still
    /// counted as held; then only a new segment helps.
    pub(super) fn settle_alone(&self) -> bool {
        for number in 0..self.header().lanes_high.get() {
            self.adopt_if_proven(number);
        }
        !self.any_description()
    }
}

/// Whether the process of a slot lives and is in the middle of a fork or exec:
/// it may want the slot's mutex at any moment, so nobody takes it just to look.
/// One that began less than `young` nanoseconds ago is taken to live.
pub(super) fn is_between_steps(slot: &ProcessSlot, young: i64) -> bool {
    matches!(slot.state.load(Acquire), state::FORKING | state::EXECUTING) && ((0..young).contains(&age(slot)) || slot_lives(slot))
}

/// How long ago a fork or exec was begun, nanoseconds.
fn age(slot: &ProcessSlot) -> i64 {
    let begun = slot.begun.load(Relaxed) as i64;
    #[cfg(test)]
    if begun == 0 {
        return i64::MAX;
    }
    pm::clock::monotonic().wrapping_sub(begun)
}

/// Whether a process lives whose mutex nobody holds: the thread that took it
/// may have ended before the others, or it is between fork or exec and the next step.
fn slot_lives(slot: &ProcessSlot) -> bool {
    match slot.state.load(Acquire) {
        state::FORKING => {
            let (lives, grace) = match child_of(slot) {
                0 if kernel::slot_lives(slot) == Some(false) => (None, GRACE_ORPHAN),
                0 => (None, GRACE_FORK),
                pid => (Who { pid, since: 0, ..kernel::process_of(slot) }.lives(Look::Thorough), GRACE_FORK),
            };
            (0..grace).contains(&age(slot)) && lives.unwrap_or(true)
        }
        state::EXECUTING => kernel::slot_lives(slot).unwrap_or((0..GRACE_EXEC).contains(&age(slot))),
        _ => kernel::slot_lives(slot).unwrap_or(false),
    }
}
