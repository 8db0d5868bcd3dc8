//! The ends of things: where processes and descriptions meet files and locks.

use crate::fs::Fs;
use crate::segment::Cachelet;
use base::{Cx, DescriptionId};

impl Fs {
    /// A description ends: so do its OFD and `flock` locks.
    #[inline]
    pub(super) fn description_ends(&self, _id: DescriptionId, _node: u64) {}

    /// A process ends: so do its record locks.
    pub(super) fn process_ends(&self, _number: u32) {}

    /// Nobody has the node open any more.
    pub(super) fn last_close(&self, _cx: &Cx, _cachelet: &Cachelet, _id: u64) {}

    /// Work that the dead left, while `go_on` says so.
    pub(super) fn finish_leftovers(&self, _cx: &Cx, _go_on: &mut dyn FnMut() -> bool) {}
}
