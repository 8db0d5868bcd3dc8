//! Reading a record: whether it is whole, and making its stores.

use super::record::{Counters, Empty, Raise, Set, SetBits, Stores, Touch};
use crate::fs::{Fs, corrupt};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::checksum::Sum;
use format::inode::{self, Head};
use format::lane::{Lane, Op, State, copied_from};
use format::{BLOCK, LINE, layout};

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
    !state.pack()
}

/// What stood for it before, in records that are still to be found in images.
#[cold]
fn mark_before(state: State) -> u64 {
    Sum::new(!state.pack()).finish()
}

/// The record in a lane, if there is a whole one.
pub(crate) fn valid_record(fs: &Fs, lane: &Lane) -> Option<State> {
    let state = State::unpack(lane.state.load(Acquire))?;
    let sum = lane.checksum.load(Acquire);
    (sum == mark(state) || sum == mark_before(state) || checksum(fs, lane, state).ok()? == sum).then_some(state)
}

/// Makes the first `count` stores of a record and starts their write-back.
/// `AGAIN` says that they may have been made before (recovery, adoption).
#[inline(never)]
pub(crate) fn apply<const AGAIN: bool>(fs: &Fs, lane: &Lane, count: usize) -> Result<()> {
    for raw in lane.ops.iter().take(count) {
        match Op::unpack(raw.place.load(Relaxed), raw.value.load(Relaxed)) {
            Some(op) => make::<AGAIN>(fs, lane, op)?,
            None => return Err(corrupt("record operation", fs.image.offset_of(raw))),
        }
    }
    Ok(())
}

/// Makes one store and starts its write-back.
#[inline]
fn make<const AGAIN: bool>(fs: &Fs, lane: &Lane, op: Op) -> Result<()> {
    let (image, what) = (&fs.image, "word of a record");
    let at = match op {
        Op::Set { at, value } => {
            Set { word: fs.at(at, what)?, value }.make(image);
            at
        }
        Op::Max { at, value } => {
            Raise { word: fs.at(at, what)?, value }.make(image);
            at
        }
        Op::SetBits { at, bits } => {
            SetBits { word: fs.at(at, what)?, bits }.make(image);
            at
        }
        Op::ClearBits { at, bits } => {
            image.and(fs.at(at, what)?, !bits);
            at
        }
        Op::Empty { at, was } if AGAIN => {
            // Another may have found the word empty, and have it since then.
            let _ = image.swap_if(fs.at(at, what)?, was, 0);
            at
        }
        Op::Empty { at, was } => {
            Empty { word: fs.at(at, what)?, was }.make(image);
            at
        }
        Op::SetRun { at, count } => return run(fs, at, count, u64::MAX),
        Op::ClearRun { at, count } => return run(fs, at, count, 0),
        Op::Touch { at, now, entries, directories } => {
            let inode = fs.inode(at)?;
            if AGAIN && (entries != 0 || directories != 0) {
                // Counted before or not? Whoever needs the counts takes them again.
                let flag = Head { generation: 0, flags: inode::RECOUNT, kind: 0, permission: 0 }.pack();
                image.or(&inode.head, flag);
                Touch { inode, now, entries: 0, directories: 0 }.make(image);
            } else {
                Touch { inode, now, entries, directories }.make(image);
            }
            // All of it is one line.
            at
        }
        Op::Counters { lines, files } => {
            Counters { lane, lines, files }.make(image);
            image.offset_of(&lane.lines)
        }
        Op::Counts { at, count, value } => return counts(fs, at, count, value),
        Op::Copy { to, block, len } => return copy(fs, to, copied_from(block, to), u64::from(len)),
    };
    image.flush(at, 8);
    Ok(())
}

/// Whole blocks: `count` bitmap words from `at` on.
fn run(fs: &Fs, at: u64, count: u64, value: u64) -> Result<()> {
    let end = count.checked_mul(8).and_then(|bytes| at.checked_add(bytes));
    if at < layout::BITMAP || end.is_none_or(|end| end > fs.layout.blocks) {
        return Err(corrupt("bitmap run of a record", at));
    }
    for i in 0..count {
        fs.image.store(fs.at(at + i * 8, "bitmap word")?, value);
    }
    fs.image.flush(at, count * 8);
    Ok(())
}

/// Counts of blocks, within a block of the table of what is shared.
fn counts(fs: &Fs, at: u64, count: u32, value: u32) -> Result<()> {
    let bytes = u64::from(count) * 8;
    if count == 0 || at % BLOCK + bytes > BLOCK || !fs.is_allocatable(at / BLOCK, 1) {
        return Err(corrupt("counts of a record", at));
    }
    for word in fs.words(at, count as usize, "counts of what is shared")? {
        fs.image.store(word, u64::from(value));
    }
    fs.image.flush(at, bytes);
    Ok(())
}

/// Bytes of a file come from where they were put aside. Both are blocks that can be allocated, and not the same.
fn copy(fs: &Fs, to: u64, from: u64, len: u64) -> Result<()> {
    let blocks = |at: u64| (at / BLOCK, (at % BLOCK + len).div_ceil(BLOCK));
    let ((first, count), (aside, _)) = (blocks(to), blocks(from));
    let apart = aside + count <= first || first + count <= aside;
    fs.refresh_valid();
    if len == 0 || !apart || !fs.is_allocatable(first, count) || !fs.is_allocatable(aside, count) {
        return Err(corrupt("bytes of a record", to));
    }
    Ok(fs.image.copy_within(from, to, len)?)
}

#[cfg(test)]
mod tests {
    use super::{mark, mark_before, valid_record};
    use crate::testing::TestFs;
    use core::sync::atomic::Ordering::Relaxed;
    use format::lane::{Kind, State};

    /// Goal: a record counts by the mark of its state, by the one that records had before, and by no other state's. Method:
    /// a record of no operations, with each of them.
    #[test]
    fn a_record_counts_by_its_own_mark() {
        let test = TestFs::new(64 << 20);
        let lane = test.lane(100);
        let state = |sequence| State { sequence, kind: Kind::SetAttr as u16, objects: 0, ops: 1 };
        lane.state.store(state(7).pack(), Relaxed);
        for (sum, counts) in [
            (mark(state(7)), true),
            (mark_before(state(7)), true),
            (mark(state(6)), false),
            (mark_before(state(6)), false),
            (0, false),
            (state(7).pack(), false),
        ] {
            lane.checksum.store(sum, Relaxed);
            assert_eq!(valid_record(&test, lane).is_some(), counts, "{sum:#x}");
        }
        lane.state.store(0, Relaxed);
    }
}
