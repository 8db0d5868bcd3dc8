//! How many calls came which way, for `bypath info`: since the segment was made.
//!
//! Programs count for themselves and add here now and then, so that no call
//! stores into a line that others use.

use crate::fs::Fs;
use base::Calls;
use core::sync::atomic::Ordering::Relaxed;

impl Fs {
    /// Adds what has been counted elsewhere.
    pub fn count_calls(&self, more: &Calls) {
        let header = self.header();
        if let Some(slot) = self.own_process().ok().and_then(|number| self.process_slot(number)) {
            slot.calls.fetch_add((more.symbols + more.patched + more.mount) as u32, Relaxed);
        }
        let add = |count: &core::sync::atomic::AtomicU64, more: u64| {
            if more != 0 {
                count.fetch_add(more, Relaxed);
            }
        };
        add(&header.calls.0[0], more.symbols);
        add(&header.calls.0[1], more.patched);
        add(&header.requests.0[0], more.mount);
        add(&header.requests.0[1], more.passed);
    }

    /// What all have added.
    pub fn calls(&self) -> Calls {
        let header = self.header();
        let [symbols, patched] = [0, 1].map(|which| header.calls.0[which].load(Relaxed));
        let [mount, passed] = [0, 1].map(|which| header.requests.0[which].load(Relaxed));
        Calls { symbols, patched, mount, passed }
    }
}
