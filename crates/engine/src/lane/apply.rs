//! Applying a record: the same code for the living, for adopters and for recovery.

use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::checksum::Sum;
use format::inode::{self, Head};
use format::lane::{Lane, Op, State};
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

/// Makes the stores of a record and starts their write-back. `again` says that
/// they may have been made before (recovery, adoption).
pub(crate) fn apply(fs: &Fs, lane: &Lane, state: State, again: bool) -> Result<()> {
    for op in &lane.ops[..usize::from(state.ops)] {
        let (place, value) = (op.place.load(Relaxed), op.value.load(Relaxed));
        // Most are of this kind.
        if place >> 56 == format::lane::SET {
            let at = place & ((1 << 56) - 1);
            fs.image.store(fs.at(at, "word of a record")?, value);
            fs.image.flush(at, 8);
            continue;
        }
        match Op::unpack(place, value) {
            Some(op) => apply_one(fs, op, again)?,
            None => return Err(corrupt("record operation", fs.image.offset_of(op))),
        }
    }
    Ok(())
}

#[inline]
fn apply_one(fs: &Fs, op: Op, again: bool) -> Result<()> {
    let image = &fs.image;
    let at = match op {
        Op::Set { at, value } => {
            image.store(fs.at(at, "word of a record")?, value);
            at
        }
        Op::Max { at, value } => {
            image.raise(fs.at(at, "word of a record")?, value);
            at
        }
        Op::SetBits { at, bits } => {
            image.or(fs.at(at, "word of a record")?, bits);
            at
        }
        Op::ClearBits { at, bits } => {
            image.and(fs.at(at, "word of a record")?, !bits);
            at
        }
        Op::SetRun { at, count } => return run(fs, at, count, u64::MAX),
        Op::ClearRun { at, count } => return run(fs, at, count, 0),
        Op::Count { at, entries, directories } => {
            let inode = fs.inode(at)?;
            if again {
                // Added or not? Whoever needs the counts takes them again.
                let flag = Head { generation: 0, flags: inode::RECOUNT, kind: 0, permission: 0 }.pack();
                image.or(&inode.head, flag);
            } else {
                image.add(&inode.size, i64::from(entries) as u64);
                if directories != 0 {
                    image.add(&inode.links, i64::from(directories) as u64);
                }
            }
            at
        }
    };
    image.flush(at, 8);
    Ok(())
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
