//! Reserving a directory slot: an odd word that names the lane (`format::directory`).

use super::Tx;
use crate::fs::Fs;
use base::Result;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::directory::{reservation, reserved_by};
use pm::Errno;

impl<'a> Tx<'a> {
    /// Reserves the slot at image offset `at`: its word if it was free and is ours now.
    /// The record gives it its value (then [`Tx::slot_filled`]); else it is
    /// free again when the operation ends.
    pub(crate) fn reserve_slot(&mut self, at: u64) -> Result<Option<&'a AtomicU64>> {
        let fs = self.fs;
        let word = fs.at::<AtomicU64>(at, "directory slot")?;
        let seen = word.load(Acquire);
        if seen != 0 && !fs.is_stale_slot(seen) {
            return Ok(None);
        }
        if self.slot {
            return Err(Errno::EIO.into());
        }
        let listed = &self.state.slot;
        listed.store(at, Release);
        if fs.image.swap_if(word, seen, reservation(self.number, fs.generation)).is_err() {
            listed.store(0, Release);
            return Ok(None);
        }
        self.slot = true;
        Ok(Some(word))
    }

    /// After the commit: the slot reserved, if any, has its value.
    pub(crate) fn slot_filled(&mut self) {
        if self.slot {
            self.state.slot.store(0, Release);
        }
        self.slot = false;
    }

    /// Frees the slot if it was reserved and not filled.
    pub(super) fn give_slot_back(&mut self) {
        let slot = &self.state.slot;
        self.fs.return_slot(self.number, slot.load(Relaxed));
        slot.store(0, Release);
    }
}

impl Fs {
    /// Whether a slot holds a reservation of an older generation: as good as free.
    #[inline]
    pub(crate) fn is_stale_slot(&self, slot: u64) -> bool {
        reserved_by(slot).is_some_and(|(_, generation)| generation != self.generation)
    }

    /// Frees a slot if lane `number` has it reserved.
    pub(crate) fn return_slot(&self, number: u32, at: u64) {
        if at == 0 {
            return;
        }
        // In whatever another process has added to the image since we looked, too.
        if let Ok(word) = self.at::<AtomicU64>(at, "directory slot") {
            let _ = self.image.swap_if(word, reservation(number, self.generation), 0);
        }
    }
}
