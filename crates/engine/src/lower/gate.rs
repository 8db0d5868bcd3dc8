//! Changes of a cached directory, and the moments at which there are none.
//!
//! Who changes something notes first what (the log of `cache::touch`), then changes it. Who writes back reads the tree at
//! a moment at which nobody is between the two: it closes the gate, waits until every lane is outside, reads, and opens it
//! again. A note that was read is of a change that has happened; one made later stands under the next number.
//!
//! - A lane says that it is inside *before* it looks whether the gate is closed; who closes it does so *before* it looks at
//!   the lanes. So one of the two sees the other.
//! - The gate is closed until a time, not by somebody: whoever closed it and died, or was stopped, keeps nobody out for
//!   longer. Who opens it is told whether it was closed all the time; if not, what it has read means nothing.
//! - Nobody inside waits for the kernel mount to be told of the change (`Fs::tell_changed`): that may have to wait for a
//!   request that waits for a round. It is waited for outside, before the call returns.
//! - Who dies inside is outside once its lane is adopted, which makes its record happen or not.
//!
//! It works on any words, so `models/` tries this file itself.

use super::atomic::AtomicU64;
use super::atomic::Ordering::SeqCst;

/// Longest time for which the gate is closed, nanoseconds. A word that says more is of another boot.
const CLOSED_MAX: u64 = 10_000_000_000;
/// Looks until a lane that stays inside is looked at for its owner's death.
const LOOKS: u32 = 20;

/// The words of a gate.
pub(crate) trait Gate {
    /// Until when it is closed; 0: it is open.
    fn closed(&self) -> &AtomicU64;
    /// Lanes that there may be.
    fn lanes(&self) -> u32;
    /// How many changes a lane is inside of, one within the other.
    fn inside(&self, lane: u32) -> &AtomicU64;
    /// Adopts a lane whose owner has died.
    fn adopt_if_dead(&self, lane: u32);
    /// Nanoseconds, which do not go back.
    fn now(&self) -> u64;
    /// Lets others run for a moment.
    fn nap(&self);
}

/// Begins a change; waits while the gate is closed. `inside` is the caller's own.
pub(crate) fn enter(gate: &impl Gate, inside: &AtomicU64) {
    if inside.fetch_add(1, SeqCst) > 0 {
        return;
    }
    loop {
        let until = gate.closed().load(SeqCst);
        if until == 0 {
            return;
        }
        let left = until.wrapping_sub(gate.now());
        if left == 0 || left > CLOSED_MAX {
            let _ = gate.closed().compare_exchange(until, 0, SeqCst, SeqCst);
            return;
        }
        inside.store(0, SeqCst);
        gate.nap();
        inside.store(1, SeqCst);
    }
}

/// Ends a change.
pub(crate) fn leave(inside: &AtomicU64) {
    // Adopted meanwhile (a call that was broken off): nothing is left to give back.
    let _ = inside.fetch_update(SeqCst, SeqCst, |depth| depth.checked_sub(1));
}

/// Closes the gate for a time and waits until nobody is inside. Until when it is closed; `None`, and it is open, if
/// somebody stays there for half of that time.
pub(crate) fn close(gate: &impl Gate, nanoseconds: u64) -> Option<u64> {
    let begun = gate.now();
    let until = begun + nanoseconds.min(CLOSED_MAX);
    gate.closed().store(until, SeqCst);
    let mut looks = 0;
    for lane in 0..gate.lanes() {
        while gate.inside(lane).load(SeqCst) != 0 {
            looks += 1;
            if looks % LOOKS == 0 {
                gate.adopt_if_dead(lane);
            }
            if gate.now() > begun + nanoseconds / 2 {
                open(gate, until);
                return None;
            }
            gate.nap();
        }
    }
    Some(until)
}

/// Opens the gate; whether it was closed all the time.
pub(crate) fn open(gate: &impl Gate, until: u64) -> bool {
    let ours = gate.closed().compare_exchange(until, 0, SeqCst, SeqCst).is_ok();
    ours && gate.now() < until
}
