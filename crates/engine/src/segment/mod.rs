//! The segment: what the users of an image share and nobody needs after a crash.
//!
//! ```text
//! header          sizes, hints, the global locks
//! bucket locks    1,024, 16 bytes apart
//! notices         what the kernel must no longer keep
//! lane states     locks held, reservations made, directories entered
//! processes       who uses the image
//! descriptors     a table of numbers for each process
//! descriptions    open file descriptions
//! advisory locks
//! chunks          hint and readiness of each 2 MiB of the reservation bitmap
//! reservations    the bitmap, and what is reserved on top of it
//! cachelets
//! ```
//! All references are offsets or numbers, checked on use. Areas get real space
//! (`Fs::segment_space`) before they are first touched.

pub mod cache;
pub mod cachelet;
pub(crate) mod device;
pub mod evict;
pub mod high;
pub mod lane_state;
pub mod space;

pub use cache::Snapshot;
pub use cachelet::Cachelet;
pub use high::High;
pub use lane_state::{LaneState, Reserved};
pub use openfiles::OpenFile;

use crate::lower::Freshness;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use core::sync::atomic::{AtomicU32, AtomicU64};
use format::layout::{LANES, Layout, PROCESSES};
use zerocopy::{FromBytes, KnownLayout};

/// First word of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BYPSEG\0\x15");
/// Descriptors of a process: 16,384 numbers (the last one stands for the working
/// directory) and 4,096 for mappings.
pub const DESCRIPTORS: u64 = 16_384 + 4_096;
/// Open file descriptions in all.
pub const DESCRIPTIONS: u32 = 1 << 16;
/// Advisory locks in all.
pub const ADVISORY_LOCKS: u32 = 1 << 14;
/// Number of bucket locks (`format::bucket::BUCKETS_MIN`: a lock per lowest 10 bits).
pub const BUCKET_LOCKS: u64 = format::bucket::BUCKETS_MIN;

/// A lock: 0 when free, else the number of the lane that holds it + 1.
pub type LockWord = AtomicU32;

/// The lock of a bucket, 16 bytes.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BucketLock {
    pub word: LockWord,
    pub reserved: [AtomicU32; 3],
}

/// The head of a segment.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Header {
    pub magic: AtomicU64,
    /// Same as in the image's volatile header.
    pub token: AtomicU64,
    pub generation: AtomicU64,
    /// Bytes in the segment.
    pub len: AtomicU64,
    pub cachelet_count: AtomicU64,
    pub reserved: [AtomicU64; 3],
    pub lanes_high: High<LANES>,
    pub processes_high: High<PROCESSES>,
    pub descriptions_hint: AtomicU32,
    pub descriptions_high: High<DESCRIPTIONS>,
    pub locks_high: High<ADVISORY_LOCKS>,
    /// Next cachelet never used so far.
    pub cachelet_next: AtomicU32,
    /// Hand of the CLOCK.
    pub cachelet_hand: AtomicU32,
    /// Next chunk that a lane looks at for an arena.
    pub chunk_hint: AtomicU32,
    /// Cachelets below this number have real space.
    pub cachelet_ready: AtomicU32,
    /// How often the index is not asked for another segment, since there was no room for one.
    pub index_patience: AtomicU32,
    /// Process that serves the kernel mount + 1, 0: none; and [`WATCHED`]. Here, where who makes something looks anyway.
    pub server: AtomicU32,
    /// Slots of the orphan table that were ever in use + 1; 0: not known (`names/orphan.rs`).
    pub orphans_high: AtomicU32,
    /// Rises with each look for dead processes: its turn is another slot's.
    pub looks: AtomicU32,
    /// When more cachelets were last asked for in vain, seconds.
    pub cachelet_refused: AtomicU32,
    /// Whether a recovery has left something to be done (`process/recover.rs`).
    pub leftovers: AtomicU32,
    /// How often the window of zeroes was taken away (`file/zeros.rs`).
    pub zeros: AtomicU32,
    // The global locks, a line each.
    pub rename: PaddedLock,
    pub split: PaddedLock,
    pub grow: PaddedLock,
    pub permission: PaddedLock,
    pub orphan: PaddedLock,
    pub reservations: PaddedLock,
    pub descriptions: PaddedLock,
    pub advisory: PaddedLock,
    pub space: PaddedLock,
    pub shares: PaddedLock,
    pub process: PaddedLock,
    /// What is kept back.
    pub spare: Spare,
    /// The kernel's way in.
    pub served: Served,
    pub calls: Counted,
    pub requests: Counted,
    pub serves: Serves,
    /// Which nodes may be watched, by a hash: a bit each.
    pub watched: [AtomicU64; WATCHED_WORDS],
    pub covered: Covered,
    pub freshness: Freshness,
}

/// In [`Header::server`]: a program watches something of the image (`crate::watch`).
pub const WATCHED: u32 = 1 << 31;
/// Words of [`Header::watched`].
pub const WATCHED_WORDS: usize = 64;

impl Header {
    /// Process that serves the kernel mount + 1; 0: none.
    pub fn server(&self) -> u32 {
        self.server.load(Acquire) & !WATCHED
    }

    /// Makes another process the server, if `before` is; whether it was.
    pub fn change_server(&self, before: u32, after: u32) -> bool {
        let change = |word: u32| (word & !WATCHED == before).then_some(word & WATCHED | after);
        self.server.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

/// Which image a segment serves, so that no other one can name it. Written once, by its maker.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Serves {
    /// Device and inode number of the image's file.
    pub file: [AtomicU64; 2],
    /// The random identity in its superblock.
    pub uuid: [AtomicU64; 2],
    pub reserved: [AtomicU64; 4],
}

/// Nodes that the kernel has mounted something on; see `process/covered.rs`.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Covered {
    /// How many there are, or more if somebody died adding one.
    pub count: AtomicU32,
    /// What the server's mount namespace calls the kernel mount; 0: not known.
    pub mount: AtomicU32,
    pub reserved: [AtomicU32; 14],
    /// Their ids; 0: free.
    pub nodes: [AtomicU64; COVERED],
}

/// On how many nodes of an image the kernel may have mounted something.
pub const COVERED: usize = 32;

/// Blocks kept back for what frees space; see `alloc/spare.rs`.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Spare {
    /// Blocks that lie together: count 24 | first block 40; 0: none.
    pub run: AtomicU64,
    /// Single blocks; 0: none.
    pub blocks: [AtomicU64; 7],
    /// Lane that fills it + 1.
    pub lock: LockWord,
    /// Allocations before what is missing is looked for again; the largest number: nothing is missing.
    pub patience: AtomicU32,
    pub reserved: [AtomicU32; 14],
}

/// Counts on a line of their own; see `process/calls.rs` and `lower/fetched.rs`.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct Counted(pub [AtomicU64; 8]);

// The bucket locks follow.
const _: () = assert!(size_of::<Header>() <= 4096);

/// What the server of the kernel mount and everybody else tell each other. Read often, written seldom.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Served {
    /// `st_dev` of the mount, also when it is gone; the image's own if there was none. 0 only before the first process is in.
    pub device: AtomicU64,
    /// Notices that wait to be passed on to the kernel.
    pub pending: AtomicU32,
    /// Rises with each notice: the server sleeps on it.
    pub bell: AtomicU32,
    /// Rises when a process that died has been adopted.
    pub deaths: AtomicU32,
    /// Deaths after which the kernel has been made to forget all.
    pub deaths_told: AtomicU32,
    /// When the server last looked for dead processes, seconds.
    pub looked_s: AtomicU32,
    /// Files that the kernel executes through the mount; too many after a server's death.
    pub executed: AtomicU32,
    /// Rises with each notice that nobody could wait for and that found no room.
    pub missed: AtomicU32,
    /// How many of those the kernel has been made to forget everything for: who waits for that sleeps on it.
    pub missed_told: AtomicU32,
    /// `device` as the directories' cachelets have been told: another one, if whoever was telling them has died.
    pub device_told: AtomicU64,
    /// Files whose pages programs may store into through the mount.
    pub stored: AtomicU32,
    pub reserved: [AtomicU32; 3],
}

/// Notices there can be at a time.
pub const NOTICES: u32 = 64;

/// Something that the kernel must no longer keep. See `process/served.rs`.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Notice {
    /// Process that writes it + 1, 30 | 2: 0 free, 1 being written, 2 to be passed on.
    pub state: AtomicU32,
    /// Rises when it has been passed on, or given up: who waits for that sleeps on it.
    pub ended: AtomicU32,
    /// Bytes of `name`; 0: `node` itself is meant, not a name in it.
    pub name_len: AtomicU32,
    pub reserved: [AtomicU32; 11],
    pub node: AtomicU64,
    pub name: [AtomicU64; 32],
}

const _: () = assert!(size_of::<Notice>() == 320);

/// A lock on a line of its own.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct PaddedLock(pub LockWord);

/// A number in the descriptor table of a process.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(8))]
pub struct Descriptor {
    /// What it stands for (`openfiles::refcount`); 0: nothing.
    pub word: AtomicU32,
    /// The description + 1 that it had last, to which it comes back if that is free; 0: none yet.
    pub last: AtomicU32,
}

/// A chunk of the reservation bitmap: 512 blocks, 2 MiB of image.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Chunk {
    /// 0: the reservation bitmap of this chunk is not loaded yet; 1: it is.
    pub ready: AtomicU32,
    /// Lane + 1 that prefers this chunk; others stay away while they can.
    pub claim: AtomicU32,
    /// Free lines, about.
    pub free: AtomicU32,
    /// Blocks of the chunk, from its first on, that the reservation bitmap knows to have
    /// grown; those that follow are taken in the reservation bitmap, and nobody's.
    pub known: AtomicU32,
}

/// Where the areas of a segment lie; offsets in bytes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Areas {
    pub bucket_locks: u64,
    pub notices: u64,
    pub lanes: u64,
    pub processes: u64,
    pub descriptors: u64,
    pub descriptions: u64,
    pub advisory: u64,
    pub chunks: u64,
    pub reservations: u64,
    pub cachelets: u64,
    pub cachelet_count: u32,
    /// Bytes of the whole segment.
    pub len: u64,
}

impl Areas {
    /// The areas for an image of this layout and a budget of cachelets.
    pub const fn new(layout: &Layout, cachelet_count: u32) -> Areas {
        const fn up(offset: u64) -> u64 {
            offset.next_multiple_of(65_536)
        }
        let bucket_locks = 4096;
        let notices = bucket_locks + BUCKET_LOCKS * size_of::<BucketLock>() as u64;
        let lanes = up(notices + NOTICES as u64 * size_of::<Notice>() as u64);
        let processes = up(lanes + LANES as u64 * size_of::<LaneState>() as u64);
        let descriptors = up(processes + PROCESSES as u64 * 64);
        let descriptions = up(descriptors + PROCESSES as u64 * DESCRIPTORS * size_of::<Descriptor>() as u64);
        let advisory = up(descriptions + DESCRIPTIONS as u64 * 64);
        let chunks = up(advisory + ADVISORY_LOCKS as u64 * 64);
        let chunk_count = layout.block_count().div_ceil(512);
        let reservations = up(chunks + chunk_count * size_of::<Chunk>() as u64);
        let cachelets = (reservations + chunk_count * 4096).next_multiple_of(pm::huge::HUGE_PAGE);
        let len = up(cachelets + cachelet_count as u64 * size_of::<Cachelet>() as u64);
        Areas {
            bucket_locks,
            notices,
            lanes,
            processes,
            descriptors,
            descriptions,
            advisory,
            chunks,
            reservations,
            cachelets,
            cachelet_count,
            len,
        }
    }
}

/// Cachelets for an image of this size: one for 4 KiB of limit, within bounds.
pub const fn cachelet_budget(layout: &Layout) -> u32 {
    let wanted = layout.limit / 4096;
    if wanted < 16_384 {
        16_384
    } else if wanted > 16 << 20 {
        16 << 20
    } else {
        wanted as u32
    }
}
