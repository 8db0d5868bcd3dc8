//! The end of a process: its own, in order, and of all that nobody alive has.
//!
//! How the dead are found, and what they had open given up: [`openfiles::Processes`].
//! Lanes are adopted by whoever waits for them, and by whoever looks at them in
//! turn (`lane::adopt`); processes, with their lanes, by whoever attaches or
//! forks, and by whoever runs short of what they hold. Who adopts also finishes
//! what they have left half done (`process::recover`).

use crate::fs::Fs;
use base::{Cred, Cx, Thread};
use openfiles::{Handover, Processes};

impl Fs {
    /// Adopts every dead process, with its lanes, and finishes what they have left; returns how many others live.
    pub fn adopt_dead_processes(&self, cx: &Cx) -> u32 {
        Processes::adopt_dead_processes(self, cx)
    }

    /// The same of those of whom it is told at once that they are dead.
    pub fn adopt_those_gone(&self, cx: &Cx) -> u32 {
        Processes::adopt_those_gone(self, cx)
    }

    /// At orderly exit: gives everything back. Calls that need this process's slot fail from now on.
    pub fn detach(&self, cx: &Cx) {
        if self.own_slot().is_ok() {
            self.leave_table(cx);
            self.tidy_up();
        }
    }

    /// [`Fs::detach`] for a program that keeps no context at hand.
    pub fn leave(&self) {
        let thread = Thread::new();
        self.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
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
