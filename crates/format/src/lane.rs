//! A lane: room for one thread's operation in progress.
//!
//! A record is a few stores that may be made again. Written whole (checksum right), it is
//! the commit point of its operation: whoever comes next can apply it. Applied,
//! it is ended. The checksum also covers the new objects that the
//! operation wrote aside, so one fence orders them all.
//!
//! ```text
//!   0 state      sequence 32 | kind 16 | ended 1 | objects 7 | operations 8;   0: nothing here yet
//!   8 checksum   over state, the operations, and the words of the objects
//!  16 lines      lines this lane has allocated minus freed, ever (two's complement)
//!  24 files      inodes made minus freed, ever
//!  32 operations[56], 16 bytes each
//! 928 objects[6] offset 48 | lines 16
//! 976 intent     node id of an inode whose blocks are being given up; 0: none
//! 984 intent_arg file block from which on they are given up
//! 992 reserved[4]
//! ```
//! So a record of six operations lies on two lines, with all that it takes to write it.

use crate::layout::{BLOCK, LANE_BYTES};
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, KnownLayout};

/// Operations a record can hold.
pub const OPS_MAX: usize = 56;
/// New objects a record can cover.
pub const OBJECTS_MAX: usize = 6;

/// An operation of a record, as stored.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawOp {
    pub place: AtomicU64,
    pub value: AtomicU64,
}

/// A lane on the medium.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Lane {
    pub state: AtomicU64,
    pub checksum: AtomicU64,
    pub lines: AtomicU64,
    pub files: AtomicU64,
    pub ops: [RawOp; OPS_MAX],
    pub objects: [AtomicU64; OBJECTS_MAX],
    pub intent: AtomicU64,
    pub intent_arg: AtomicU64,
    pub reserved: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Lane>() == LANE_BYTES as usize && offset_of!(Lane, lines) == word::LINES as usize);
const _: () = assert!(offset_of!(Lane, ops) == word::OPS as usize && offset_of!(Lane, intent) == word::INTENT as usize);
const _: () = assert!(offset_of!(Lane, reserved) == word::RESERVED as usize);

/// Offsets within a lane.
#[allow(missing_docs)]
pub mod word {
    pub const LINES: u64 = 16;
    pub const FILES: u64 = 24;
    pub const OPS: u64 = 32;
    pub const OBJECTS: u64 = 928;
    pub const INTENT: u64 = 976;
    pub const INTENT_ARG: u64 = 984;
    pub const RESERVED: u64 = 992;
}

/// What an operation of a record does. All but [`Op::Touch`] may be done again.
///
/// ```text
/// code 8 | offset 56                                     value 64
/// touch: code 8 | entries 4 | directories 4 | offset 48  time 64
/// counters: code 8 | files 56                            lines 64
/// copy:  code 8 | offset 56                              bytes 32 | block 32
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The word becomes `value`.
    Set {
        /// Byte offset of the word.
        at: u64,
        /// New value.
        value: u64,
    },
    /// The word becomes at least `value` (signed: times).
    Max {
        /// Byte offset of the word.
        at: u64,
        /// Lower bound.
        value: i64,
    },
    /// Bits are set.
    SetBits {
        /// Byte offset of the word.
        at: u64,
        /// Which bits.
        bits: u64,
    },
    /// Bits are cleared.
    ClearBits {
        /// Byte offset of the word.
        at: u64,
        /// Which bits.
        bits: u64,
    },
    /// `count` bitmap words from `at` on become all ones: whole blocks allocated.
    SetRun {
        /// Byte offset of the first bitmap word.
        at: u64,
        /// Number of words.
        count: u64,
    },
    /// `count` bitmap words from `at` on become zero: whole blocks freed.
    ClearRun {
        /// Byte offset of the first bitmap word.
        at: u64,
        /// Number of words.
        count: u64,
    },
    /// The word, which holds `was`, becomes 0. Made a second time it stays if it
    /// holds anything else: somebody has found it 0 and taken it meanwhile.
    Empty {
        /// Byte offset of the word.
        at: u64,
        /// What it held.
        was: u64,
    },
    /// Times and counts of a directory change. Counts don't bear that twice, so
    /// applying it a second time marks the directory `RECOUNT` instead.
    Touch {
        /// Byte offset of the directory's inode, below 2⁴⁸.
        at: u64,
        /// Lower bound of mtime and ctime; [`i64::MIN`]: they stay.
        now: i64,
        /// Change in the number of entries, −8 to 7.
        entries: i8,
        /// Change in the number of sub-directories, −8 to 7.
        directories: i8,
    },
    /// The counters of the record's own lane become these.
    Counters {
        /// [`Lane::lines`].
        lines: u64,
        /// [`Lane::files`], of 56 bits with a sign.
        files: u64,
    },
    /// `len` bytes from `to` on become those that a block aside holds, from the same place of a block on: those that
    /// were there (the overwriting under way is undone), or those that are to be there.
    Copy {
        /// Byte offset in the image.
        to: u64,
        /// First of the blocks aside, which nobody uses.
        block: u32,
        /// Number of bytes.
        len: u32,
    },
    /// `count` words from `at` on become `value`: how many more extents have each of so many blocks
    /// ([`crate::shares`]).
    Counts {
        /// Byte offset of the first word.
        at: u64,
        /// Number of words.
        count: u32,
        /// New value.
        value: u32,
    },
}

/// Where the bytes of an [`Op::Copy`] are.
#[inline]
pub const fn copied_from(block: u32, to: u64) -> u64 {
    block as u64 * BLOCK + to % BLOCK
}

/// Codes of operations, the upper 8 bits of their first word.
#[allow(missing_docs)]
pub mod code {
    pub const SET: u64 = 1;
    pub const MAX: u64 = 2;
    pub const SET_BITS: u64 = 3;
    pub const CLEAR_BITS: u64 = 4;
    pub const SET_RUN: u64 = 5;
    pub const CLEAR_RUN: u64 = 6;
    pub const TOUCH: u64 = 7;
    pub const EMPTY: u64 = 8;
    pub const COUNTERS: u64 = 9;
    pub const COPY: u64 = 10;
    pub const COUNTS: u64 = 11;
    /// The other bits of that word.
    pub const OFFSET: u64 = (1 << 56) - 1;
}

impl Op {
    /// Packs it into two words.
    #[inline]
    pub const fn pack(self) -> (u64, u64) {
        let (code, at, value) = match self {
            Op::Set { at, value } => (code::SET, at, value),
            Op::Max { at, value } => (code::MAX, at, value as u64),
            Op::SetBits { at, bits } => (code::SET_BITS, at, bits),
            Op::ClearBits { at, bits } => (code::CLEAR_BITS, at, bits),
            Op::SetRun { at, count } => (code::SET_RUN, at, count),
            Op::ClearRun { at, count } => (code::CLEAR_RUN, at, count),
            Op::Empty { at, was } => (code::EMPTY, at, was),
            Op::Touch { at, now, entries, directories } => {
                let (entries, directories) = (entries as u64 & 15, directories as u64 & 15);
                (code::TOUCH, at | entries << 52 | directories << 48, now as u64)
            }
            Op::Counters { lines, files } => (code::COUNTERS, files & code::OFFSET, lines),
            Op::Copy { to, block, len } => (code::COPY, to, (len as u64) << 32 | block as u64),
            Op::Counts { at, count, value } => (code::COUNTS, at, (count as u64) << 32 | value as u64),
        };
        (at | code << 56, value)
    }

    /// Unpacks it; `None` if the code is unknown.
    #[inline]
    pub const fn unpack(place: u64, value: u64) -> Option<Op> {
        let at = place & code::OFFSET;
        Some(match place >> 56 {
            code::SET => Op::Set { at, value },
            code::MAX => Op::Max { at, value: value as i64 },
            code::SET_BITS => Op::SetBits { at, bits: value },
            code::CLEAR_BITS => Op::ClearBits { at, bits: value },
            code::SET_RUN => Op::SetRun { at, count: value },
            code::CLEAR_RUN => Op::ClearRun { at, count: value },
            code::TOUCH => Op::Touch {
                at: at & ((1 << 48) - 1),
                now: value as i64,
                // From the upper half of a byte, whose sign is theirs.
                entries: (at >> 48) as i8 >> 4,
                directories: (at >> 44) as i8 >> 4,
            },
            code::EMPTY => Op::Empty { at, was: value },
            code::COUNTERS => Op::Counters { lines: value, files: ((place << 8) as i64 >> 8) as u64 },
            code::COPY => Op::Copy { to: at, block: value as u32, len: (value >> 32) as u32 },
            code::COUNTS => Op::Counts { at, count: (value >> 32) as u32, value: value as u32 },
            _ => return None,
        })
    }
}

/// What kind of operation a record belongs to; only for people (`bypath dump`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Kind {
    Create = 1,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Write,
    Truncate,
    SetAttr,
    Xattr,
    DirectoryGrow,
    IndexGrow,
    IndexSplit,
    ImageGrow,
    Reclaim,
    Orphan,
    Fallocate,
    Tmpfile,
    Overwrite,
    Clone,
}

/// The state word, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Sequence number of the record within its lane.
    pub sequence: u32,
    /// [`Kind`].
    pub kind: u16,
    /// Number of new objects.
    pub objects: u8,
    /// Number of operations.
    pub ops: u8,
}

/// In a state word: the record has been applied, and counts no more.
const ENDED: u64 = 1 << 15;

impl State {
    /// Packs it.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.sequence as u64) << 32 | (self.kind as u64) << 16 | (self.objects as u64) << 8 | self.ops as u64
    }

    /// Unpacks a word; `None` if there is no record or its counts are out of range.
    #[inline]
    pub const fn unpack(word: u64) -> Option<State> {
        let state =
            State { sequence: (word >> 32) as u32, kind: (word >> 16) as u16, objects: (word >> 8) as u8, ops: word as u8 };
        if !Self::counts(word) || state.objects as usize > OBJECTS_MAX || state.ops as usize > OPS_MAX {
            None
        } else {
            Some(state)
        }
    }

    /// Whether a state word tells of a record that is to be applied, if it is whole.
    #[inline]
    pub const fn counts(word: u64) -> bool {
        word != 0 && word & ENDED == 0
    }

    /// The same state word, of a record that has been applied.
    #[inline]
    pub const fn ended(word: u64) -> u64 {
        word | ENDED
    }

    /// What a state word tells of its lane's last record, the same before its end and after it.
    #[inline]
    pub const fn stamp(word: u64) -> u64 {
        word & !ENDED
    }

    /// The number of the record after the one that a state word is of.
    #[inline]
    pub const fn next(word: u64) -> u32 {
        ((word >> 32) as u32).wrapping_add(1)
    }

    /// How many operations the record had whose stamp this is.
    #[inline]
    pub const fn ops_of(stamp: u64) -> usize {
        let ops = stamp as u8 as usize;
        if ops > OPS_MAX { 0 } else { ops }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the words of each operation are those that images have, and lead back to it. Method: literal words.
    #[test]
    fn operations_are_these_words() {
        let (at, value) = (0x0000_1234_5678_9ab8, 0xfedc_ba98_7654_3210);
        let words = [
            (Op::Set { at, value }, 0x0100_1234_5678_9ab8, value),
            (Op::Max { at, value: -2 }, 0x0200_1234_5678_9ab8, 0xffff_ffff_ffff_fffe),
            (Op::SetBits { at, bits: value }, 0x0300_1234_5678_9ab8, value),
            (Op::ClearBits { at, bits: value }, 0x0400_1234_5678_9ab8, value),
            (Op::SetRun { at, count: 3 }, 0x0500_1234_5678_9ab8, 3),
            (Op::ClearRun { at, count: 3 }, 0x0600_1234_5678_9ab8, 3),
            (Op::Touch { at, now: 3, entries: -1, directories: 2 }, 0x07f2_1234_5678_9ab8, 3),
            (Op::Touch { at, now: -3, entries: 1, directories: -1 }, 0x071f_1234_5678_9ab8, 0xffff_ffff_ffff_fffd),
            (Op::Empty { at, was: value }, 0x0800_1234_5678_9ab8, value),
            (Op::Counters { lines: value, files: 5 }, 0x0900_0000_0000_0005, value),
            (Op::Counters { lines: 5, files: u64::MAX }, 0x09ff_ffff_ffff_ffff, 5),
            (Op::Copy { to: at, block: 0x1234_5678, len: 0x8000_0001 }, 0x0a00_1234_5678_9ab8, 0x8000_0001_1234_5678),
            (Op::Counts { at, count: 0x8000_0001, value: 0x9000_0002 }, 0x0b00_1234_5678_9ab8, 0x8000_0001_9000_0002),
        ];
        for (op, place, value) in words {
            assert_eq!((op.pack(), Op::unpack(place, value)), ((place, value), Some(op)));
        }
        assert!([0, 12].iter().all(|code| Op::unpack(code << 56 | at, value).is_none()));
    }

    /// Goal: a record counts from its state word's store to its end, and what tells it from others stays the same then.
    #[test]
    fn states() {
        let state = State { sequence: u32::MAX, kind: 2, objects: 3, ops: 4 };
        let word = state.pack();
        let ended = State::ended(word);
        assert_eq!((State::unpack(word), State::unpack(ended), State::unpack(0)), (Some(state), None, None));
        assert_eq!((State::counts(word), State::counts(ended), State::counts(0)), (true, false, false));
        assert_eq!((State::stamp(ended), State::next(ended), State::ops_of(State::stamp(ended))), (word, 0, 4));
        assert_eq!((State::unpack(word | 57), State::ops_of(57)), (None, 0));
    }
}
