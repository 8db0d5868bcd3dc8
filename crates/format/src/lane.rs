//! A lane: room for one thread's operation in progress.
//!
//! A record is a few idempotent stores. Written whole (checksum right), it is
//! the commit point of its operation: whoever comes next can apply it. Applied
//! and retired, it is gone. The checksum also covers the new objects that the
//! operation wrote aside, so one fence orders them all.
//!
//! ```text
//!   0 state      sequence 32 | kind 16 | objects 8 | operations 8;   0: nothing here
//!   8 checksum   over state, the operations, and the words of the objects
//!  16 objects[6] offset 48 | lines 16
//!  64 intent     node id of an inode whose blocks are being given up; 0: none
//!  72 intent_arg file block from which on they are given up
//!  80 lines      lines this lane has allocated minus freed, ever (two's complement)
//!  88 files      inodes made minus freed, ever
//!  96 sequence   of the last record: its state word with the halves exchanged, so the number is in the lower one
//! 104 reserved[3]
//! 128 operations[56], 16 bytes each: code 8 | offset 56, value 64
//! ```

use crate::layout::LANE_BYTES;
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
    pub objects: [AtomicU64; OBJECTS_MAX],
    pub intent: AtomicU64,
    pub intent_arg: AtomicU64,
    pub lines: AtomicU64,
    pub files: AtomicU64,
    pub sequence: AtomicU64,
    pub reserved: [AtomicU64; 3],
    pub ops: [RawOp; OPS_MAX],
}

const _: () = assert!(size_of::<Lane>() == LANE_BYTES as usize && offset_of!(Lane, ops) == 128 && offset_of!(Lane, intent) == 64);

/// Offsets within a lane, for record operations on its own counters.
#[allow(missing_docs)]
pub mod word {
    pub const INTENT: u64 = 64;
    pub const INTENT_ARG: u64 = 72;
    pub const LINES: u64 = 80;
    pub const FILES: u64 = 88;
}

/// An idempotent store.
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
    /// A directory's counts change. Not idempotent, so applying it a second time
    /// marks the directory `RECOUNT` instead.
    Count {
        /// Byte offset of the directory's inode.
        at: u64,
        /// Change in the number of entries.
        entries: i32,
        /// Change in the number of sub-directories.
        directories: i32,
    },
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
    pub const COUNT: u64 = 7;
    pub const EMPTY: u64 = 8;
    /// Code 1 where it stands in that word.
    pub const ONE: u64 = 1 << 56;
    /// The other bits of that word.
    pub const OFFSET: u64 = (1 << 56) - 1;
}

impl Op {
    /// Packs it into two words.
    #[inline(always)]
    pub const fn pack(self) -> (u64, u64) {
        self.pack_by(code::ONE)
    }

    /// As [`Op::pack`], with [`code::ONE`] at hand: codes are multiples of it, which a processor makes of a register
    /// in four bytes, and takes ten to load.
    #[inline(always)]
    pub const fn pack_by(self, one: u64) -> (u64, u64) {
        let (code, at, value) = match self {
            Op::Set { at, value } => (code::SET, at, value),
            Op::Max { at, value } => (code::MAX, at, value as u64),
            Op::SetBits { at, bits } => (code::SET_BITS, at, bits),
            Op::ClearBits { at, bits } => (code::CLEAR_BITS, at, bits),
            Op::SetRun { at, count } => (code::SET_RUN, at, count),
            Op::ClearRun { at, count } => (code::CLEAR_RUN, at, count),
            Op::Empty { at, was } => (code::EMPTY, at, was),
            Op::Count { at, entries, directories } => {
                (code::COUNT, at, (entries as u32 as u64) << 32 | directories as u32 as u64)
            }
        };
        (at.wrapping_add(one.wrapping_mul(code)), value)
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
            code::COUNT => Op::Count { at, entries: (value >> 32) as u32 as i32, directories: value as u32 as i32 },
            code::EMPTY => Op::Empty { at, was: value },
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
        if word == 0 || state.objects as usize > OBJECTS_MAX || state.ops as usize > OPS_MAX { None } else { Some(state) }
    }

    /// What `Lane::sequence` keeps of it once the record is retired.
    #[inline]
    pub const fn stamp(self) -> u64 {
        self.pack().rotate_left(32)
    }

    /// How many operations the record had whose stamp this is; 0 where an older version wrote its number only.
    #[inline]
    pub const fn ops_of(stamp: u64) -> usize {
        let ops = (stamp >> 32) as u8 as usize;
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
            (Op::Count { at, entries: -1, directories: 2 }, 0x0700_1234_5678_9ab8, 0xffff_ffff_0000_0002),
            (Op::Empty { at, was: value }, 0x0800_1234_5678_9ab8, value),
        ];
        for (op, place, value) in words {
            assert_eq!((op.pack(), Op::unpack(place, value)), ((place, value), Some(op)));
        }
        assert!([0, 9].iter().all(|code| Op::unpack(code << 56 | at, value).is_none()));
    }
}
