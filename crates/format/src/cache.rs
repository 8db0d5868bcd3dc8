//! What a cache image holds beside files: whose cache it is, and what is known of each file's original.
//!
//! An image is one if [`Features::CACHE`](crate::Features::CACHE) is set: [`Root::cache`](crate::Root::cache) leads to
//! the [`State`], [`Cold::lower`](crate::Cold::lower) of a file that the lower file system has to its [`Lower`]. Without
//! the feature both words are 0.

use crate::layout::{BLOCK, LINE};
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, KnownLayout};

/// Whose cache an image is, and how far it has been written back: a block of its own.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct State {
    /// What sort of file system is behind it (0: none yet), and its options, as whoever mounts it numbers them.
    pub kind: AtomicU64,
    /// Device and inode number of its root directory, as they were when the image became its cache: [`Lower::device`] and
    /// all else goes by that number, whatever the device has by now.
    pub root: [AtomicU64; 2],
    /// Its own identity, where it has one (of the UUID of the file system), and 0.
    pub identity: [AtomicU64; 2],
    /// Boot id under which it was last written back.
    pub boot: [AtomicU64; 2],
    /// Rounds of writing back, ever: what is touched now is noted under this number.
    pub rounds: AtomicU64,
    /// Directories moved here, ever.
    pub moved: AtomicU64,
    /// Bytes written back, ever.
    pub written: AtomicU64,
    /// Error number of what could not be written back and has not been solved; 0: none.
    pub error: AtomicU64,
    /// Volatile: rises when there is news for the process that watches the lower file system. The low 32 bits count
    /// directories that were brought, the next 16 those that rounds have made there, the others rounds that are over.
    pub brought: AtomicU64,
    /// Volatile: PID of the process that keeps it fresh; 0: none does.
    pub server: AtomicU64,
    /// Volatile: rises before names go here that there are below.
    pub forgotten: AtomicU64,
    /// Volatile: the bucket of the index at which who makes room goes on.
    pub hand: AtomicU64,
    /// How many of the moves have reached the lower file system.
    pub moves_written: AtomicU64,
    /// Volatile: between the process that writes back and those that change.
    pub writer: Writer,
    /// Where the lower file system is, as the user wrote it, zero-filled.
    pub place: [AtomicU64; PLACE / 8],
}

/// Words that mean nothing once nobody uses the image.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct Writer {
    /// Until when nobody may begin a change, nanoseconds of the monotonic clock; 0: anybody may.
    pub closed: AtomicU64,
    /// Number of the process that writes back; 0: none.
    pub process: AtomicU64,
    /// Rounds that somebody waits for, counted.
    pub wanted: AtomicU64,
    /// How many of them have been made, and synced below.
    pub done: AtomicU64,
    /// How many of them have failed.
    pub failed: AtomicU64,
    /// Its low half changes when somebody wants a round.
    pub call: AtomicU64,
    /// Its PID namespace, and when it began, nanoseconds since boot: another may have its number by now.
    pub who: [AtomicU64; 2],
}

/// Longest text of a place with its NUL, bytes.
pub const PLACE: usize = BLOCK as usize - 192;

const _: () = assert!(size_of::<State>() == BLOCK as usize && offset_of!(State, moved) == 64);
const _: () = assert!(offset_of!(State, writer) == 128 && offset_of!(State, place) == 192);

/// What is known of the original of a file: a line of its own, beside the cold one.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct Lower {
    /// Its inode number there.
    pub number: AtomicU64,
    /// Its device number there; of a FUSE daemon's the generation.
    pub device: AtomicU64,
    /// Bytes of it that hold: below, a hole means "ask there"; beyond, zeros.
    pub end: AtomicU64,
    /// Its size, as last seen or written.
    pub size: AtomicU64,
    /// Its mtime, likewise, nanoseconds since the epoch.
    pub mtime: AtomicU64,
    /// Its ctime, likewise.
    pub ctime: AtomicU64,
    /// When that was, nanoseconds since the epoch.
    pub seen: AtomicU64,
    /// [`state`] bits.
    pub state: AtomicU64,
}

const _: () = assert!(size_of::<Lower>() == LINE as usize && offset_of!(Lower, state) == 56);

/// Bits of [`Lower::state`]. All others are 0.
pub mod state {
    /// The lower file system has it.
    pub const PRESENT: u64 = 1;
    /// A directory all of whose names are here.
    pub const LISTED: u64 = 2;
    /// Something here is newer than there.
    pub const DIRTY: u64 = 4;
    /// It lies in the park there, and is to be moved or removed.
    pub const PARKED: u64 = 8;
    /// It has been written there, and what it is now has not been noted here.
    pub const UNSTAMPED: u64 = 16;
    /// It has no extended attributes there.
    pub const NO_XATTRS: u64 = 32;
    /// Its extended attributes are here, whatever they are.
    pub const XATTRS: u64 = 64;
    /// It was made here: it shows an inode number of its own, whichever it has there by now.
    pub const MADE: u64 = 128;
    /// Its text, or all but its name and type, could not be read there: a symlink with a text of no meaning.
    pub const UNREAD: u64 = 256;
}
