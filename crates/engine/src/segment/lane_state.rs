//! What a lane is doing: enough for another to clean up after its death.

use core::sync::atomic::{AtomicU32, AtomicU64};
use zerocopy::{FromBytes, KnownLayout};

/// Locks a lane can hold at a time.
pub const HELD_MAX: usize = 14;
/// Kinds of lines (`alloc::Arena`).
pub const ARENAS: usize = 3;
/// Offsets of open files that a thread can hold at a time (a copy from one file to another takes two).
pub const OFFSETS: usize = 2;
/// Reservations an operation can make.
pub const RESERVED_MAX: usize = 30;

/// A reservation in the reservation bitmap: `bits` of the bitmap word of `block`, or the
/// whole words of `count` blocks from `block` on when `bits` is 0.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Reserved {
    /// count 24 | block 40; 0: empty.
    pub run: AtomicU64,
    pub bits: AtomicU64,
}

/// Lines of one block, reserved for a lane to hand them out.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Magazine {
    /// The block.
    pub block: AtomicU64,
    /// Lines of it reserved and not handed out yet.
    pub lines: AtomicU64,
}

/// The volatile half of a lane, 1 KiB.
///
/// What every change of names asks lies on the first two lines, to the first two locks.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct LaneState {
    /// Inode offsets of directories this lane is changing the entries of.
    pub entered: [AtomicU64; 2],
    /// Process slot + 1 of the user.
    pub process: AtomicU32,
    /// Number of `reserved` in use.
    pub reserved_count: AtomicU32,
    /// Offset in the image of the directory slot reserved.
    pub slot: AtomicU64,
    /// Segment offset of the cachelet of the directory this lane has closed to entry.
    pub closed: AtomicU64,
    /// Lines that the operation under way has taken out of a magazine, by arena.
    pub taken: [AtomicU64; ARENAS],

    /// Stamp of the last record whose freed space went back to the reservation bitmap: not the
    /// lane's, so long as one frees what the reservation bitmap has not got back; 0 in a new segment.
    pub released: AtomicU64,
    /// What this lane hands out, of all arenas but the last: see [`LaneState::magazine`].
    magazines: [Magazine; ARENAS - 1],
    /// Segment offset of the owner word of a cachelet being loaded outside an operation's locks.
    pub loading_cachelet: AtomicU64,
    /// Segment offsets of lock words held, or about to be: listed before they are taken.
    pub held: [AtomicU64; HELD_MAX],

    /// What it hands out of the last arena.
    last_magazine: Magazine,
    /// Where the search for blocks goes on.
    pub cursor: AtomicU64,
    /// Where the last block of slots was found.
    pub slot_block: AtomicU64,
    /// Chunks claimed + 1: metadata, data.
    pub chunks: [AtomicU64; 2],
    /// Chunk of the reservation bitmap being loaded + 1.
    pub loading: AtomicU64,
    /// Segment offsets of the owner words of open files' offsets held, or about to be.
    pub offsets: [AtomicU64; OFFSETS],
    /// Segment offset of the word that this lane waits for; 0: none that it has waited for long.
    pub waits_for: AtomicU64,
    /// Not 0: what this lane waits for is not wanted any more (the server's lanes: `Fs::call_off`).
    pub called_off: AtomicU64,
    /// Block at which this lane has put something aside before: it is in the processor's caches.
    pub aside: AtomicU64,
    /// Not 0: in the middle of a change of a cached directory (`lower::gate`).
    pub changing: AtomicU64,
    pub spare: [AtomicU64; 28 - OFFSETS],
    /// Node that this lane has made without a name, for whoever opens it next: nobody frees it before.
    pub unopened: AtomicU64,
    pub reserved: [Reserved; RESERVED_MAX],
}

impl LaneState {
    /// What this lane hands out of an arena (`alloc::Arena`).
    #[inline]
    pub fn magazine(&self, arena: usize) -> &Magazine {
        self.magazines.get(arena).unwrap_or(&self.last_magazine)
    }
}

const _: () = assert!(size_of::<LaneState>() == 1024 && core::mem::offset_of!(LaneState, held) + 16 == 128);
