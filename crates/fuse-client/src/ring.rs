//! The way to a FUSE daemon: slots in shared memory in place of `/dev/fuse`.
//!
//! ```text
//! header | slot 0 | slot 1 | …            a slot: a page of words, then room for one message
//!
//!          client                                  daemon (its reads and writes are replaced)
//! FREE ──► CLAIMED ──fill──► REQUEST ─────────► TAKEN ──► REPLYING ──copy──► REPLIED ──► FREE (by the client)
//!                               │                 │           │
//! the client gives up:          └──► ABANDONED ◄──┘           └──► LEFT
//!                                        └──► FREE (by the daemon) ◄──┘
//! ```
//!
//! Every client process has as many slots as it has calls under way; the daemon's
//! threads drain them all through one bitmap. Both sides spin for a while if that
//! is worth it, then yield, if that is, then sleep on a futex. There is nobody in between.
//!
//! Of the daemon's threads that have nothing to do one leads: it looks for requests,
//! and sleeps on the bell. The others follow, asleep. Who takes a request leads no
//! more, and is back before anybody else was needed, as a rule: a follower is woken
//! only if a request lies there that nobody is coming for. So a program that makes one
//! call after the other has to do with one thread, and wakes it once each at most.
//!
//! The daemon is not trusted: it maps this file and nothing else of ours, and what
//! it writes is copied out once and checked then. Whether it lives, a supervisor
//! says (and its mark, should the supervisor be gone); a call never outlasts either
//! the daemon or its time-out.

mod client;
mod daemon;
mod notices;
#[cfg(test)]
mod tests;

use super::adaptive_spin::AdaptiveSpin;
use super::co_location::{self, CoLocation, NOWHERE};
use super::protocol::{FLUSH, FORGET, INIT, INTERRUPT, RELEASE, RELEASEDIR};
use super::yielding::Yielding;
use base::{Cx, Errno};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::{Region, UserSlice, clock, file, host};
use zerocopy::{FromBytes, KnownLayout};

/// How many requests can be under way.
pub const SLOTS: u32 = 32;
/// Largest piece of a file in one request, bytes.
pub const DATA_MAX: usize = 128 * 1024;
/// Largest message, bytes.
pub const MESSAGE_MAX: usize = DATA_MAX + 4096 + 512;
const SLOT_BYTES: u64 = 4096 + (MESSAGE_MAX as u64).next_multiple_of(4096);
/// Length of the file.
pub const RING_BYTES: u64 = 4096 + SLOTS as u64 * SLOT_BYTES;

/// Bytes of `struct fuse_in_header` and `struct fuse_out_header`.
pub const IN_HEADER: usize = 40;
/// See [`IN_HEADER`].
pub const OUT_HEADER: usize = 16;

/// So many slots at most hold what nobody waits for yet, of all clients together.
const POSTED_MAX: u32 = SLOTS / 2;

/// States of the daemon.
pub mod daemon_state {
    /// Nobody is there yet.
    pub const STARTING: u32 = 0;
    /// It serves.
    pub const SERVING: u32 = 1;
    /// It ended.
    pub const DEAD: u32 = 2;
    /// It is to end.
    pub const CLOSING: u32 = 3;
}

const NOBODY: u32 = 0;
const LOOKS: u32 = 1;
const SLEEPS: u32 = 2;

// Where a slot is. Its word holds the client's PID as well, so that nobody who frees what the dead have
// left takes the slot from who has it since; nobody's is `FREE`.
const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const REQUEST: u32 = 2;
const TAKEN: u32 = 3;
const REPLYING: u32 = 4;
const REPLIED: u32 = 5;
/// Given up by its client; the daemon frees it.
const ABANDONED: u32 = 6;
/// Given up while its answer was being copied; who copies frees it.
const LEFT: u32 = 7;

/// So much of a client's mark ([`pm::host::own_mark`]) stands in its slots.
const OWNER_BITS: u32 = 24;

/// The word of a slot of the client with this mark.
fn word(mark: u32, stage: u32) -> u32 {
    mark << 8 | stage
}

fn stage(word: u32) -> u32 {
    word & 0xff
}

fn owner(word: u32) -> u32 {
    word >> 8
}

/// What [`owner`] says of our own slots.
fn own_owner() -> u32 {
    pm::host::own_mark() & ((1 << OWNER_BITS) - 1)
}

/// First page. What both sides write at each request has lines of its own, so that what
/// both only read stays in both processors' caches.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// See [`daemon_state`].
    pub daemon_state: AtomicU32,
    /// Rises with each start of the daemon.
    pub incarnation: AtomicU32,
    /// Mark ([`pm::host::own_mark`]) of the daemon, as it last said.
    pub daemon: AtomicU32,
    /// Mark of whoever started it.
    pub supervisor: AtomicU32,
    /// Milliseconds that a request may take.
    pub timeout_ms: AtomicU32,
    /// Minor version of the protocol that was agreed.
    pub minor: AtomicU32,
    /// Largest piece of a write, bytes.
    pub max_write: AtomicU32,
    /// `mount` was told `default_permissions` (1), read-only (2).
    pub mount_flags: AtomicU32,
    /// Bit n: the daemon does not know operation n.
    pub unknown: AtomicU64,
    /// How often it was started again.
    pub restarts: AtomicU32,
    /// Flags of `INIT` that both want.
    pub agreed: AtomicU32,
    /// Notifications so far.
    pub notices: AtomicU32,
    /// 1: the daemon's side is a proxy's, which has the daemon at a socket.
    pub by_socket: AtomicU32,
    /// A daemon's thread that has a request goes to another processor: its client is not to sleep ([`CoLocation`]).
    leaving: AtomicU32,
    /// Bit n: the reply in slot n is fetched later, or never.
    posted: AtomicU32,

    /// Slots with a request that nobody has taken.
    pending: AtomicU64,
    /// Whether a thread leads: [`NOBODY`], [`LOOKS`], [`SLEEPS`].
    leader: AtomicU32,
    /// Rings (a futex) for the thread that leads.
    bell: AtomicU32,
    reserved2: [AtomicU64; 6],

    /// A daemon's thread has replied and is coming back for more: no need to ring.
    returning: AtomicU32,
    /// Rings for one that follows.
    bench: AtomicU32,
    /// Threads that follow.
    followers: AtomicU32,
    reserved3: [AtomicU32; 13],

    /// Rings for the watcher: there is a notice.
    told: AtomicU32,
    /// Whether somebody takes notices (`ring/notices.rs`).
    watcher: AtomicU32,
    /// Notices that nobody has obeyed: pages of before are not believed.
    pub unheeded: AtomicU32,
    reserved4: [AtomicU32; 13],
}

const _: () = assert!(core::mem::offset_of!(Header, pending) == 64 && core::mem::offset_of!(Header, returning) == 128);

/// Head of a slot. The daemon changes the first line several times in a request; the client does not look there,
/// which would take it away each time, but at the second, which is written once.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
struct Slot {
    /// Stage and client: [`word`].
    state: AtomicU32,
    reserved: AtomicU32,
    unique: AtomicU64,
    /// Length of the message.
    len: AtomicU32,
    /// The client sleeps on `state`.
    sleeps: AtomicU32,
    /// No reply is awaited.
    one_way: AtomicU32,
    /// The daemon's incarnation for which the request is meant.
    incarnation: AtomicU32,
    /// The client yields before it sleeps, and so may the daemon: where ([`CoLocation::place`]).
    yields: AtomicU32,
    /// Where the client is who sleeps, as far as he knows.
    slept_at: AtomicU32,
    reserved2: [AtomicU32; 6],

    /// Which request was answered, and how long the answer is ([`answered`]): a hint for who spins, written
    /// last, when `state` says so too.
    answered: AtomicU64,
}

const _: () = assert!(core::mem::offset_of!(Slot, answered) == 64);

/// What a slot says once this request has an answer of `len` bytes.
fn answered(unique: u64, len: usize) -> u64 {
    unique >> 8 << 32 | len as u64
}

impl Slot {
    /// Whether what lies here is for an earlier incarnation of the daemon than `incarnation`.
    fn is_past(&self, incarnation: u32) -> bool {
        !matches!(stage(self.state.load(Acquire)), FREE | CLAIMED)
            && (self.incarnation.load(Relaxed).wrapping_sub(incarnation) as i32) < 0
    }

    /// Frees what an earlier incarnation than `incarnation` has left here and nobody else frees: what its client gave
    /// up, and a message that nobody waits for. Who waits sees the end of that incarnation itself.
    fn free_left(&self, incarnation: u32) -> bool {
        let state = self.state.load(Acquire);
        let is_left = match stage(state) {
            ABANDONED | LEFT => true,
            REQUEST | TAKEN => self.one_way.load(Relaxed) != 0,
            _ => false,
        };
        is_left && self.is_past(incarnation) && self.state.compare_exchange(state, FREE, AcqRel, Relaxed).is_ok()
    }

    /// From one stage to the next (or to `FREE`), the client's as it is; `false`: it is not at the first.
    fn step(&self, from: u32, to: u32) -> bool {
        let state = self.state.load(Acquire);
        let next = if to == FREE { FREE } else { word(owner(state), to) };
        stage(state) == from && self.state.compare_exchange(state, next, SeqCst, Relaxed).is_ok()
    }
}

/// A mapped ring.
#[derive(Debug)]
pub struct Ring {
    region: Region,
    /// Of this process, client or daemon.
    spin: AdaptiveSpin,
    yielding: Yielding,
    co_location: CoLocation,
    /// Where the client is who was answered last, was awake, and yields: his next request may come soon. Else `NOWHERE`.
    met_at: AtomicU32,
    /// Whether who was answered last had to be woken: spinning for his next request would keep him from running where he is
    /// woken beside us, and would be in vain for as long as that takes elsewhere.
    roused: AtomicU32,
    hint: AtomicU32,
}

/// How long a client sleeps before it looks at the daemon's incarnation.
const NAP_NS: i64 = 100_000_000;
/// How long it sleeps at first while nobody has taken its request. Not less: a time-out before
/// the kernel's next tick has it set the processor's timer, at the price of half a hand-over.
const UNTAKEN_NS: i64 = 12_000_000;
/// How long a daemon's thread sleeps before it looks at the supervisor's.
const LOOK_NS: i64 = 1_000_000_000;

/// A request: operation, node, and what follows the header.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `FUSE_*`.
    pub operation: u32,
    /// Node of the daemon's.
    pub node: u64,
    /// The daemon's incarnation in which that node and all else in the request mean something.
    pub incarnation: u32,
    /// Parts of the message, one after the other.
    pub parts: [&'a [u8]; 3],
    /// File contents behind them.
    pub data: UserSlice,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Its slot.
    pub index: u32,
    /// Its number.
    pub unique: u64,
    /// The daemon's incarnation for which it is meant.
    pub incarnation: u32,
    /// `FUSE_*`.
    pub operation: u32,
}

impl Posted {
    /// Whether a signal may break it off: not what gives something up, as in the kernel.
    fn may_be_interrupted(&self) -> bool {
        !matches!(self.operation, INIT | FLUSH | RELEASE | RELEASEDIR | FORGET)
    }
}

impl Ring {
    /// Maps the ring at `path` (NUL-terminated).
    pub fn open(path: &[u8]) -> Result<Ring, Errno> {
        let region = file::share(path, RING_BYTES)?;
        Ok(Ring {
            region,
            spin: AdaptiveSpin::new(),
            yielding: Yielding::new(),
            co_location: CoLocation::new(),
            met_at: AtomicU32::new(NOWHERE),
            roused: AtomicU32::new(0),
            hint: AtomicU32::new(0),
        })
    }

    /// The first page. `EIO` can't be: the length was checked.
    pub fn header(&self) -> Result<&Header, Errno> {
        self.region.at(0).ok_or(Errno::EIO)
    }

    fn slot(&self, index: u32) -> Result<&Slot, Errno> {
        if index >= SLOTS {
            return Err(Errno::EIO);
        }
        self.region.at(Self::place(index)).ok_or(Errno::EIO)
    }

    fn place(index: u32) -> u64 {
        4096 + u64::from(index) * SLOT_BYTES
    }

    /// Brings what a short request is in, all at once, to who is about to write it or to take it. To the latter
    /// too as if he were to change it: a line that the one only writes and the other only reads goes
    /// back and forth more slowly than one that is handed over.
    fn bring(&self, index: u32) {
        self.region.bring(Self::place(index));
        for line in [0, 64, 128, 192] {
            self.region.bring(Self::room(index) + line);
        }
    }

    /// Requests so far: every slot counts its own.
    pub fn requests(&self) -> u64 {
        (0..SLOTS).filter_map(|index| self.slot(index).ok()).map(|slot| slot.unique.load(Relaxed) >> 8).sum()
    }

    /// How many slots hold what nobody waits for yet.
    pub fn posted(&self) -> u32 {
        self.header().map_or(0, |header| header.posted.load(Relaxed).count_ones())
    }

    fn room(index: u32) -> u64 {
        Self::place(index) + 4096
    }

    // ---- whose turn it is ----

    /// Tells the daemon that there is a request.
    fn notify(&self, header: &Header) {
        match header.leader.load(SeqCst) {
            // One ring for each time that it falls asleep.
            SLEEPS if header.leader.compare_exchange(SLEEPS, LOOKS, SeqCst, Relaxed).is_ok() => {
                header.bell.fetch_add(1, SeqCst);
                file::wake_one(&header.bell);
            }
            // Who has replied comes back at once and looks, or else `wait` calls another.
            NOBODY if header.returning.load(SeqCst) == 0 => self.call_follower(header),
            _ => {}
        }
    }

    fn call_follower(&self, header: &Header) {
        if header.followers.load(SeqCst) != 0 {
            header.bench.fetch_add(1, SeqCst);
            file::wake_one(&header.bench);
        }
    }

    /// Wakes whoever sleeps, for a request that lies there untaken: who was to ring for
    /// it, or to look, may have died or be busy.
    fn alarm(&self, header: &Header) {
        header.bell.fetch_add(1, SeqCst);
        file::wake_one(&header.bell);
        self.call_follower(header);
    }

    // ---- the supervisor's side ----

    /// The daemon's incarnation changes; all who wait are woken.
    pub fn set_daemon_state(&self, state: u32) -> Result<(), Errno> {
        let header = self.header()?;
        header.daemon_state.store(state, SeqCst);
        file::wake(&header.daemon_state);
        header.bell.fetch_add(1, SeqCst);
        file::wake(&header.bell);
        header.bench.fetch_add(1, SeqCst);
        file::wake(&header.bench);
        for index in 0..SLOTS {
            file::wake(&self.slot(index)?.state);
        }
        Ok(())
    }

    /// Before a daemon is started: nothing of its predecessor's counts any more.
    pub fn renew(&self) -> Result<(), Errno> {
        let header = self.header()?;
        let incarnation = header.incarnation.fetch_add(1, SeqCst).wrapping_add(1);
        header.daemon.store(0, SeqCst);
        header.unknown.store(0, SeqCst);
        header.pending.store(0, SeqCst);
        for word in [&header.leader, &header.followers, &header.returning] {
            word.store(0, SeqCst);
        }
        header.mount_flags.store(0, SeqCst);
        self.clear_notices();
        for index in 0..SLOTS {
            self.slot(index)?.free_left(incarnation);
        }
        self.set_daemon_state(daemon_state::STARTING)
    }
}
