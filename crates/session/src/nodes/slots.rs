//! Which slots are free, and which nodes must make room.

use super::super::changes::Of;
use super::super::{Guard, damaged};
use super::{FREE, NEGATIVE, NODES, Record, SessionCache, UNNAMED};
use base::{Errno, Error, Result};
use core::sync::atomic::Ordering::*;

impl SessionCache {
    /// Frees the nodes that have lost their names a while ago and that nobody holds.
    pub fn bury(&self, forget: &mut dyn FnMut(u64, u64, u32)) {
        if self.header().unnamed.swap(0, AcqRel) == 0 {
            return;
        }
        let now = Self::now();
        let _guard = self.lock();
        for index in 1..self.header().nodes_high.load(Relaxed).min(NODES) {
            let Some(record) = self.record(index) else { return };
            if record.state.load(Relaxed) != UNNAMED {
                continue;
            }
            let is_held = record.holds.load(Relaxed) != 0 || record.children.load(Relaxed) != 0;
            if is_held || record.entry_until.load(Relaxed) > now {
                self.header().unnamed.store(1, Relaxed);
            } else {
                self.free(index, record, UNNAMED, forget);
            }
        }
    }

    pub(super) fn free(&self, _index: u32, record: &Record, state: u32, forget: &mut dyn FnMut(u64, u64, u32)) {
        record.state.store(FREE, Relaxed);
        if let Some(parent) = self.record(record.parent.load(Relaxed)) {
            parent.children.fetch_sub(1, Relaxed);
        }
        let count = record.lookups.swap(0, Relaxed);
        if state != NEGATIVE && count != 0 {
            // The lower file system may give the key to another file.
            self.note_change(Of::Contents, record.key.load(Relaxed));
            forget(record.key.load(Relaxed), count, record.incarnation.load(Relaxed));
        }
    }

    /// A slot nobody uses: a new one, or (the second chance of CLOCK) one that
    /// nobody has touched since the hand last came by.
    pub(super) fn take_slot(&self, guard: &Guard, forget: &mut dyn FnMut(u64, u64, u32)) -> Result<u32> {
        let header = self.header();
        let high = header.nodes_high.load(Relaxed);
        // Free slots are found by the hand too; the first quarter of the table is just taken.
        if high < NODES / 4 && self.node_space(high) {
            header.nodes_high.store(high + 1, Relaxed);
            return Ok(high);
        }
        for turn in 0..2 * NODES {
            let high = header.nodes_high.load(Relaxed).min(NODES);
            let index = header.hand.load(Relaxed) % high;
            header.hand.store((index + 1) % high, Relaxed);
            let Some(record) = self.record(index) else { return damaged() };
            let state = record.state.load(Relaxed);
            if state == FREE {
                return Ok(index);
            }
            let is_held = [&record.holds, &record.children, &record.handle_bits].iter().any(|word| word.load(Relaxed) != 0);
            if !is_held && record.touched.swap(0, Relaxed) == 0 {
                if state != UNNAMED {
                    self.unchain(guard, index)?;
                }
                self.free(index, record, state, forget);
                return Ok(index);
            }
            // What is in use keeps its place as long as the table can grow.
            if turn % 64 == 63 && high < NODES && self.node_space(high) {
                header.nodes_high.store(high + 1, Relaxed);
                return Ok(high);
            }
        }
        Err(Error::Posix(Errno::ENFILE))
    }
}
