//! Applying a record: the same code for the living, for adopters and for recovery.

use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::checksum::Sum;
use format::inode::{self, Head};
use format::lane::{Lane, Op, RawOp, State, code};
use format::{LINE, layout};

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

/// Makes the stores of a record, for the one who has just written it; with
/// `FLUSH` starts their write-back.
#[inline(always)]
pub(crate) fn apply<const FLUSH: bool>(fs: &Fs, lane: &Lane, state: State) -> Result<()> {
    each::<FLUSH, false>(fs, lane, state)
}

/// Makes the stores of a record that may have been made before (recovery, adoption).
#[inline(never)]
pub(crate) fn apply_again(fs: &Fs, lane: &Lane, state: State) -> Result<()> {
    each::<true, true>(fs, lane, state)
}

/// What most records consist of is told apart here, the rest in [`seldom`].
#[inline(always)]
fn each<const FLUSH: bool, const AGAIN: bool>(fs: &Fs, lane: &Lane, state: State) -> Result<()> {
    let image = &fs.image;
    for op in lane.ops.iter().take(usize::from(state.ops)) {
        let (place, value) = (op.place.load(Relaxed), op.value.load(Relaxed));
        let at = place & code::OFFSET;
        match place >> 56 {
            code::SET => image.store(fs.at(at, "word of a record")?, value),
            code::SET_BITS => drop(image.or(fs.at(at, "word of a record")?, value)),
            code::CLEAR_BITS => drop(image.and(fs.at(at, "word of a record")?, !value)),
            code::MAX => image.raise(fs.at(at, "word of a record")?, value as i64),
            code::COUNT if !AGAIN => {
                let inode = fs.inode(at)?;
                image.add(&inode.size, (value as i64 >> 32) as u64);
                if value as u32 != 0 {
                    image.add(&inode.links, i64::from(value as i32) as u64);
                }
            }
            _ => {
                seldom(fs, op)?;
                continue;
            }
        }
        if FLUSH {
            image.flush(at, 8);
        }
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn seldom(fs: &Fs, raw: &RawOp) -> Result<()> {
    match Op::unpack(raw.place.load(Relaxed), raw.value.load(Relaxed)) {
        Some(Op::SetRun { at, count }) => run(fs, at, count, u64::MAX),
        Some(Op::ClearRun { at, count }) => run(fs, at, count, 0),
        Some(Op::Count { at, .. }) => {
            // Counted before or not? Whoever needs the counts takes them again.
            let flag = Head { generation: 0, flags: inode::RECOUNT, kind: 0, permission: 0 }.pack();
            fs.image.or(&fs.inode(at)?.head, flag);
            fs.image.flush(at, 8);
            Ok(())
        }
        _ => Err(corrupt("record operation", fs.image.offset_of(raw))),
    }
}

/// Whole blocks: `count` bitmap words from `at` on.
fn run(fs: &Fs, at: u64, count: u64, value: u64) -> Result<()> {
    if at < layout::BITMAP || at + count * 8 > fs.layout.blocks {
        return Err(corrupt("bitmap run of a record", at));
    }
    for i in 0..count {
        fs.image.store(fs.at(at + i * 8, "bitmap word")?, value);
    }
    fs.image.flush(at, count * 8);
    Ok(())
}
