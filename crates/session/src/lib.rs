//! The session cache: what the users of one mount share when its file system is not native.
//!
//! A file in memory, made by whoever starts the session and mapped by every
//! program in it: the nodes that were looked up, with their names and
//! attributes (dentry, negative and attribute cache in one); open files, with
//! the descriptors that refer to them; advisory locks; pages. What is behind it
//! is a lower file system ([`LowerFs`]): a directory of the kernel's, a FUSE
//! daemon, a library.
//!
//! ```text
//! header | processes | their mutexes | descriptors, 80 KiB a process | descriptions | locks | lock handles | changes | names' hash | nodes |
//!   page cache, if any
//! ```
//!
//! Invariants
//! - One lock guards everything but the words of a description that is open. It
//!   is never held while a request is under way, and never over a system call
//!   other than those of waiting. Names and attributes are mostly read without it (`nodes/fast.rs`).
//! - The holder's PID stands in the lock. Whoever finds it dead takes the lock
//!   over and mends: chains and counters are computed anew from the nodes.
//! - A node's slot number and generation are its identity; a slot is reused only
//!   when nothing is below it and nobody has it open.
//! - Everything read from here is checked before it is used as an index.
#![no_std]

#[cfg(test)]
extern crate std;

mod changes;
pub mod lock_handles;
mod lower;
mod lower_leases;
mod nodes;
mod open_files;
pub mod pages;

pub use changes::Moment;
pub use lock_handles::{Lease, LockHandle};
pub use lower::{KernelCall, KernelOpen, LowerFs, Miss, lacks};
pub use lower_leases::LowerLeases;
pub use nodes::{Caching, Entry, Found, Record, Rule};
pub use open_files::{Ends, OpenFiles};
pub use pages::{FRAME_BYTES, Fetch, PageFigures, PageKey};

use base::{Errno, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use openfiles::OpenFile;
use openfiles::{LockEntry, ProcessSlot};
use pm::{Region, Table, clock, file, host};
use zerocopy::{FromBytes, KnownLayout};

/// How many nodes are kept at a time.
pub const NODES: u32 = 65536;
/// How many open file descriptions there can be.
pub const DESCRIPTIONS: u32 = 16384;
/// How many programs can use a mount at a time.
pub const PROCESSES: u32 = 1024;
/// How many advisory locks there can be.
pub const LOCKS: u32 = 2048;
/// Descriptor numbers of one process, the pseudo ones of mappings and of the working directory among them.
pub const DESCRIPTORS: u32 = 20 * 1024 + 512;
const BUCKETS: u32 = NODES;
const OWNERS: usize = 256;
/// Words that tell when something of a kind last changed.
const WORDS: u64 = 4096;
/// Kinds of changes.
const KINDS: u64 = 5;

/// How often a word may name nobody who lives, and yet another one, until it is taken whatever it says.
const NONSENSE: u32 = 64;

/// So long a process of another PID namespace may have a word.
const UNTOLD_NS: i64 = 10_000_000_000;

const MAGIC: u64 = u64::from_le_bytes(*b"bypathL9");

const PROCESSES_AT: u64 = 4096;
const MUTEXES_AT: u64 = PROCESSES_AT + PROCESSES as u64 * size_of::<ProcessSlot>() as u64;
const DESCRIPTORS_AT: u64 = MUTEXES_AT + PROCESSES as u64 * 64;
const DESCRIPTIONS_AT: u64 = DESCRIPTORS_AT + PROCESSES as u64 * DESCRIPTORS as u64 * 4;
const LOCKS_AT: u64 = DESCRIPTIONS_AT + DESCRIPTIONS as u64 * size_of::<OpenFile>() as u64;
const LOCK_HANDLES_AT: u64 = LOCKS_AT + LOCKS as u64 * size_of::<LockEntry>() as u64;
const CHANGED_AT: u64 = (LOCK_HANDLES_AT + DESCRIPTIONS as u64 * size_of::<lock_handles::Place>() as u64).next_multiple_of(4096);
const PAGES_AT: u64 = (NODES_AT + NODES as u64 * size_of::<Record>() as u64).next_multiple_of(pages::FRAME_BYTES);
const BUCKETS_AT: u64 = CHANGED_AT + KINDS * WORDS * 8;
const NODES_AT: u64 = BUCKETS_AT + BUCKETS as u64 * 4;

/// First page.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
struct Header {
    magic: AtomicU64,
    /// Mark of the holder ([`host::own_mark`]); 0 when free.
    lock: AtomicU32,
    /// Every node ever used is below this.
    nodes_high: AtomicU32,
    /// Where the search for a node to reuse goes on.
    hand: AtomicU32,
    descriptions_high: AtomicU32,
    description_hint: AtomicU32,
    /// Looks for dead programs so far.
    looks: AtomicU32,
    /// Rises with every change of names: a look-up that began before may be stale.
    changes: AtomicU64,
    /// Rises with every change of a node.
    ticks: AtomicU64,
    /// Figures for people.
    hits: AtomicU64,
    misses: AtomicU64,
    /// Keys given to nodes of lower file systems that have no names of their own for them.
    keys: AtomicU64,
    locks_high: AtomicU32,
    lock_handles_high: AtomicU32,
    /// Mark of whoever has the leases to itself.
    leases_owner: AtomicU32,
    reserved: AtomicU32,
    processes_high: AtomicU32,
    /// There may be nodes to be freed that have lost their names.
    unnamed: AtomicU32,
    /// Pages that the page cache may have, and has.
    pages_max: AtomicU32,
    pages_used: AtomicU32,
    /// Where the search for a frame to empty goes on.
    page_hand: AtomicU32,
    page_hits: AtomicU64,
    page_misses: AtomicU64,
    /// When unused frames were last looked for.
    pages_swept: AtomicU64,
    /// Rises each time the lock is let go.
    version: AtomicU64,
    /// Marks of those who have a node to themselves, by a hash of its key.
    owners: [AtomicU32; OWNERS],
}

/// A mapped session cache.
#[derive(Debug)]
pub struct SessionCache {
    region: Region,
    records: Table<Record>,
    descriptions: Table<OpenFile>,
    device: u64,
    /// This process's slot + 1; 0 before it is needed.
    process: AtomicU32,
    /// That of the process that this one was forked from.
    parent: AtomicU32,
    /// Robust list and number of the thread that is about to fork.
    robust_list: AtomicUsize,
    forking_thread: AtomicU32,
}

/// Holds the lock.
pub(crate) struct Guard<'a>(&'a SessionCache);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let header = self.0.header();
        header.version.store(header.version.load(Relaxed).wrapping_add(1), Release);
        header.lock.store(0, Release);
    }
}

/// In a description: it has no node, yet or any more.
const NO_NODE: u64 = u64::MAX;

static NOTHING: OpenFile = OpenFile::new();

impl SessionCache {
    /// Whether it is mapped at `address`.
    pub fn is_mapped(&self, address: usize) -> bool {
        self.region.covers(address)
    }

    /// How large the file is that [`SessionCache::open`] wants.
    pub const fn bytes() -> u64 {
        NODES_AT + NODES as u64 * size_of::<Record>() as u64
    }

    /// Gives memory to what every user of a new session cache touches, the file at `path` (NUL-terminated). The rest gets it
    /// before it is touched: where that is refused the call fails, and nobody is killed.
    pub fn set_aside(path: &[u8]) -> core::result::Result<(), Errno> {
        let file = file::File::open(path, pm::sys::abi::O_RDWR, 0)?;
        let first_nodes = NODES_AT + Self::CHUNK;
        for (from, end) in [(0, PROCESSES_AT), (CHANGED_AT, first_nodes)] {
            match file.allocate(from, end - from) {
                // A file system that can't tell can't be helped.
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// So many bytes of nodes get memory at a time.
    const CHUNK: u64 = 64 << 10;

    /// Gives memory to a part. `ENFILE` where there is none.
    fn space(&self, from: u64, len: u64) -> Result<()> {
        let (first, end) = (from & !4095, (from + len).next_multiple_of(4096));
        match self.region.populate(first, end - first) {
            // A kernel before 5.14 can't be asked.
            Ok(()) | Err(Errno::EINVAL) => Ok(()),
            Err(_) => Err(base::Error::Posix(Errno::ENFILE)),
        }
    }

    /// Gives memory to node `index`, which nobody has had; whether there is any.
    fn node_space(&self, index: u32) -> bool {
        let size = size_of::<Record>() as u64;
        let (from, end) = (u64::from(index) * size, (u64::from(index) + 1) * size);
        // Whoever came to the chunk first has got all of it.
        let chunk = (end - 1) / Self::CHUNK * Self::CHUNK;
        from > chunk || self.space(NODES_AT + chunk, Self::CHUNK.min(u64::from(NODES) * size - chunk)).is_ok()
    }

    /// Maps the session cache at `path` (NUL-terminated), a sparse file of zeroes at first.
    pub fn open(path: &[u8]) -> core::result::Result<SessionCache, Errno> {
        // With a page cache, if the file has room for it and the program too.
        let region = file::share(path, Self::bytes_with_pages()).or_else(|_| file::share(path, Self::bytes()))?;
        // A major number that the kernel gives to nothing, and a minor one of its own.
        let ino = file::File::open(path, pm::sys::abi::O_RDONLY, 0)?.stat()?.ino;
        let device = 0xff << 8 | ino & 0xff | (ino & 0xf_ff00) << 12;
        let records = Table::new(&region, NODES_AT, NODES).ok_or(Errno::EINVAL)?;
        let descriptions = Table::new(&region, DESCRIPTIONS_AT, DESCRIPTIONS).ok_or(Errno::EINVAL)?;
        let session = SessionCache {
            region,
            records,
            descriptions,
            device,
            process: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            robust_list: AtomicUsize::new(0),
            forking_thread: AtomicU32::new(0),
        };
        let magic = session.region.word(0).ok_or(Errno::EINVAL)?;
        match magic.compare_exchange(0, MAGIC, AcqRel, Acquire) {
            Ok(_) | Err(MAGIC) => Ok(session),
            Err(_) => Err(Errno::EINVAL),
        }
    }

    /// A `st_dev` for the mount, if its lower file system has none.
    pub fn device(&self) -> u64 {
        self.device
    }

    fn header(&self) -> &Header {
        // The region is longer than a page, which `open` has checked.
        self.region.at(0).unwrap_or_else(|| unreachable_header())
    }

    /// Names have been found in the cache, and had to be asked for.
    pub fn figures(&self) -> (u64, u64) {
        (self.header().hits.load(Relaxed), self.header().misses.load(Relaxed))
    }

    /// How many nodes have a name or a holder.
    pub fn nodes_in_use(&self) -> u32 {
        let _guard = self.lock();
        (0..self.header().nodes_high.load(Relaxed)).filter(|&n| self.record(n).is_some_and(|r| r.in_use())).count() as u32
    }

    /// Programs that use the mount now.
    pub fn programs(&self) -> u32 {
        let high = self.header().processes_high.load(Acquire).min(PROCESSES);
        (0..high).filter(|&p| self.process_slot(p).is_some_and(|slot| slot.is_used() && slot.lives())).count() as u32
    }

    /// Nanoseconds of the clock by which entries grow old. Its steps of some milliseconds are
    /// those in which the kernel's FUSE counts too, and it is read in a third of the time.
    pub(crate) fn now() -> u64 {
        clock::coarse() as u64
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        let word = &self.header().lock;
        let own = host::own_mark();
        let (mut rounds, mut nobody, mut is_left, mut wait) = (0u32, 0, false, Wait::default());
        while let Err(holder) = word.compare_exchange_weak(0, own, Acquire, Relaxed) {
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(64) {
                file::give_way();
            }
            if rounds.is_multiple_of(4096) && holder != 0 && wait.is_over(holder) {
                nobody += 1;
                is_left = take_from(word, holder, own, nobody);
                if is_left {
                    break;
                }
            }
        }
        // Whoever sees a change to come sees the lock taken (`nodes/fast.rs`).
        fence(Release);
        if is_left {
            self.repair();
        }
        Guard(self)
    }

    /// Number of changes of names so far.
    pub fn changes(&self) -> u64 {
        self.header().changes.load(Acquire)
    }

    /// Names changed.
    pub fn changed(&self) {
        self.header().changes.fetch_add(1, AcqRel);
    }
}

/// A header that is not there can't be: the length was checked.
#[cold]
fn unreachable_header() -> &'static Header {
    static EMPTY: Header = Header {
        magic: AtomicU64::new(0),
        lock: AtomicU32::new(0),
        nodes_high: AtomicU32::new(0),
        hand: AtomicU32::new(0),
        descriptions_high: AtomicU32::new(0),
        description_hint: AtomicU32::new(0),
        looks: AtomicU32::new(0),
        changes: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
        hits: AtomicU64::new(0),
        misses: AtomicU64::new(0),
        keys: AtomicU64::new(0),
        locks_high: AtomicU32::new(0),
        lock_handles_high: AtomicU32::new(0),
        leases_owner: AtomicU32::new(0),
        reserved: AtomicU32::new(0),
        processes_high: AtomicU32::new(0),
        unnamed: AtomicU32::new(0),
        pages_max: AtomicU32::new(0),
        pages_used: AtomicU32::new(0),
        page_hand: AtomicU32::new(0),
        page_hits: AtomicU64::new(0),
        page_misses: AtomicU64::new(0),
        pages_swept: AtomicU64::new(0),
        version: AtomicU64::new(0),
        owners: [const { AtomicU32::new(0) }; OWNERS],
    };
    &EMPTY
}

/// Takes a word for `own`, waiting while a living process has it.
pub(crate) fn take_word(word: &AtomicU32, own: u32) {
    let (mut rounds, mut nobody, mut wait) = (0u32, 0, Wait::default());
    while let Err(holder) = word.compare_exchange(0, own, Acquire, Relaxed) {
        rounds = rounds.wrapping_add(1);
        if rounds < 64 {
            core::hint::spin_loop();
            continue;
        }
        file::give_way();
        if rounds.is_multiple_of(1024) && wait.is_over(holder) {
            nobody += 1;
            if take_from(word, holder, own, nobody) {
                return;
            }
        }
    }
}

/// Takes a word from `holder`, who does not live. What has named nobody who lives `nobody` times, and
/// another one each time, is nonsense that somebody writes: taken whatever it says.
fn take_from(word: &AtomicU32, holder: u32, own: u32, nobody: u32) -> bool {
    let taken = word.compare_exchange(holder, own, AcqRel, Relaxed).is_ok();
    if !taken && nobody >= NONSENSE {
        word.store(own, Release);
    }
    taken || nobody >= NONSENSE
}

/// Who is being waited for, and since when.
#[derive(Clone, Copy, Default)]
struct Wait {
    holder: u32,
    since: i64,
}

impl Wait {
    /// Whether `holder` is dead. One in another PID namespace counts as dead once it has kept a word, which takes
    /// microseconds, for [`UNTOLD_NS`]: nobody here can ask for it, and all would hang if it had died.
    fn is_over(&mut self, holder: u32) -> bool {
        let dead = host::is_alive_by_mark(holder).map(|lives| !lives);
        if self.holder != holder {
            *self = Wait { holder, since: clock::monotonic() };
        }
        dead.unwrap_or_else(|| clock::monotonic() - self.since > UNTOLD_NS)
    }
}

/// The result of a look into a table that a damaged index would miss.
pub(crate) const fn damaged<T>() -> Result<T> {
    Err(base::Error::Corrupt { what: "session cache", at: 0 })
}
