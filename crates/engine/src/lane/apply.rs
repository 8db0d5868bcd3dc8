//! Reading a record: whether it is whole, and making its stores.

use super::record::make;
use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::LINE;
use format::checksum::Sum;
use format::lane::{Lane, Op, State};

/// Checksum of a record: its state, its operations, and the words of the
/// objects written aside. `Corrupt` if an object lies outside the image.
pub(crate) fn checksum(fs: &Fs, lane: &Lane, state: State) -> Result<u64> {
    let mut sum = Sum::new(state.pack());
    for op in &lane.ops[..usize::from(state.ops)] {
        sum.word(op.place.load(Relaxed));
        sum.word(op.value.load(Relaxed));
    }
    for object in &lane.objects[..usize::from(state.objects)] {
        let object = object.load(Relaxed);
        sum.word(object);
        let (offset, lines) = (object & 0xffff_ffff_ffff, object >> 48);
        for line in 0..lines {
            let words: &[core::sync::atomic::AtomicU64; 8] = fs.at(offset + line * LINE, "object of a record")?;
            for word in words {
                sum.word(word.load(Relaxed));
            }
        }
    }
    Ok(sum.finish())
}

/// What stands for the checksum of a record written where stores become visible
/// in order and nothing else can happen to them (the `process` domain): there a
/// state word that is not 0 is proof enough of everything stored before it.
#[inline]
pub(crate) fn mark(state: State) -> u64 {
    Sum::new(!state.pack()).finish()
}

/// The record in a lane, if there is a whole one.
pub(crate) fn valid_record(fs: &Fs, lane: &Lane) -> Option<State> {
    let state = State::unpack(lane.state.load(Acquire))?;
    let sum = lane.checksum.load(Acquire);
    (sum == mark(state) || checksum(fs, lane, state).ok()? == sum).then_some(state)
}

/// Makes the first `count` stores of a record and starts their write-back.
/// `AGAIN` says that they may have been made before (recovery, adoption).
#[inline(never)]
pub(crate) fn apply<const AGAIN: bool>(fs: &Fs, lane: &Lane, count: usize) -> Result<()> {
    for raw in lane.ops.iter().take(count) {
        match Op::unpack(raw.place.load(Relaxed), raw.value.load(Relaxed)) {
            Some(op) => make::<true, AGAIN>(fs, op)?,
            None => return Err(corrupt("record operation", fs.image.offset_of(raw))),
        }
    }
    Ok(())
}
