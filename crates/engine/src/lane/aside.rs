//! Bytes put aside: blocks that are nobody's, from which a record copies; and a record that is there while the
//! operation goes on, and undoes it.
//!
//! Such blocks are reserved and listed in the lane's state like any others, and the bitmap calls them free: so after the
//! death of all nobody has to give them back, and after that of one its adopter does, once the record has ended.
//!
//! Invariants
//! - What was put aside is durable before a record that refers to it.
//! - The blocks are given back after the record has ended on the medium, so nobody else's bytes are ever copied.
//! - A record that undoes has ended before the call returns: its end is what makes the operation happen.

use super::{Tx, apply};
use base::Result;
use core::sync::atomic::Ordering::{Relaxed, Release};
use format::lane::{Op, State};
use pm::Errno;

impl Tx<'_> {
    /// Up to `want` neighbouring blocks to put something aside in, behind block `near` if that is free (0: where this lane
    /// had some before): the first, and how many. `ENOSPC`.
    pub(crate) fn blocks_aside(&mut self, want: u64, near: u64) -> Result<(u64, u64)> {
        if crate::alloc::fault::strikes(crate::alloc::fault::Kind::Space) {
            return Err(Errno::ENOSPC.into());
        }
        let hint = &self.state.aside;
        let found = self.fs.reserve_blocks(self.number, self.state, want, if near == 0 { hint.load(Relaxed) } else { near })?;
        self.aside = true;
        if near == 0 {
            hint.store(found.0, Relaxed);
        }
        Ok(found)
    }

    /// The record copies `len` bytes to `to` from the same place of block `block` on.
    pub(crate) fn copies(&mut self, to: u64, block: u64, len: u64) -> Result<()> {
        let (Ok(block), Ok(len)) = (u32::try_from(block), u32::try_from(len)) else { return Err(Errno::EFBIG.into()) };
        self.push(Op::Copy { to, block, len })
    }

    /// Publishes a record of the stores listed, which undoes what the operation does from here on until
    /// [`Tx::has_happened`]: whoever finds it makes them.
    pub(crate) fn can_be_undone(&mut self) -> Result<State> {
        let state = self.head(usize::from(self.ops));
        self.show(state)?;
        Ok(state)
    }

    /// What the operation does has happened, all of it: its record means nothing any more.
    pub(crate) fn has_happened(&mut self, state: State) {
        self.fs.image.fence();
        self.end_record(state);
    }

    /// Undoes what the operation has done.
    pub(crate) fn undo(&mut self, state: State) -> Result<()> {
        let undone = apply::apply::<true>(self.fs, self.lane, usize::from(state.ops));
        self.fs.image.fence();
        self.end_record(state);
        undone
    }

    /// Writes the state word, and what makes the record count; it is durable.
    fn show(&self, state: State) -> Result<()> {
        if self.plain {
            self.publish(state);
            return Ok(());
        }
        self.show_on_medium(state)
    }

    fn end_record(&mut self, state: State) {
        if !self.plain {
            let image = &self.fs.image;
            image.store(&self.lane.state, State::ended(state.pack()));
            image.flush(image.offset_of(self.lane), 8);
            // Before the blocks aside may be another's: the record, found whole, would be applied.
            image.fence();
        }
        self.retired(state, 0);
        self.state.released.store(state.pack(), Release);
    }
}
