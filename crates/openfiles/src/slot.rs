//! A process in the table, and whether it lives.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::life::{Look, Who};
use zerocopy::{FromBytes, KnownLayout};

/// How long a slot readied for a child waits for the child's first step, nanoseconds.
pub(crate) const GRACE_FORK: i64 = 60_000_000_000;
/// The same when the parent has died before it noted its child: there may be none.
const GRACE_ORPHAN: i64 = 10_000_000_000;
/// How long one between exec's two halves waits when its PID tells nothing.
const GRACE_EXEC: i64 = 10_000_000_000;
/// A fork or exec begun less than that many nanoseconds ago is not looked into by who seeks a free slot.
pub(crate) const YOUNG: i64 = 20_000_000;

/// States of a slot.
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A process's.
    pub const USED: u32 = 1;
    /// Readied for a child that has not made its first step; the PID is the parent's.
    pub const FORKING: u32 = 2;
    /// Between exec's two halves.
    pub const EXECUTING: u32 = 3;
}

/// A process, one cache line.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct ProcessSlot {
    /// See [`state`].
    pub state: AtomicU32,
    /// PID as its own namespace knows it; a hint, never a proof.
    pub pid: AtomicU32,
    /// Inode of its PID namespace: PIDs are compared only within one.
    pub pid_namespace: AtomicU64,
    /// A time at which it lived, nanoseconds since boot: a process of that PID that began later is another one. 0: not known.
    pub since: AtomicU64,
    /// Random; a program after exec must show it.
    pub nonce: AtomicU64,
    /// Not 0: it watches something, or was forked from one that does (`engine`'s). Whoever ends the process clears it.
    pub watching: AtomicU32,
    /// Calls that the process has added here, a few thousand at a time, in units of [`CALLS`].
    calls: AtomicU32,
    /// Pages of its descriptor table that have space, a bit each.
    pub table_pages: AtomicU64,
    /// When the state that does not last began, by the monotonic clock, nanoseconds.
    pub begun: AtomicU64,
    /// The child that the slot was readied for: half of the nonce 32 | PID 32.
    pub child: AtomicU64,
}

const _: () = assert!(size_of::<ProcessSlot>() == 64);

/// So many calls are one in a slot: fewer are not told, and 2^38 have room.
const CALLS: u64 = 64;

/// What the parent notes of its child: half of the nonce 32 | PID 32.
pub(crate) fn noted_child(pid: u32, nonce: u64) -> u64 {
    nonce << 32 | u64::from(pid)
}

impl ProcessSlot {
    /// The process of this slot.
    pub fn who(&self) -> Who {
        Who { pid: self.pid.load(Relaxed), namespace: self.pid_namespace.load(Relaxed), since: self.since.load(Relaxed) }
    }

    /// The process has made so many calls more.
    pub fn add_calls(&self, more: u64) {
        self.calls.fetch_add((more / CALLS) as u32, Relaxed);
    }

    /// How many it has added.
    pub fn calls(&self) -> u64 {
        u64::from(self.calls.load(Relaxed)) * CALLS
    }

    /// Nobody has made any.
    pub(crate) fn forget_calls(&self) {
        self.calls.store(0, Relaxed);
    }

    /// Notes that it is this process's.
    pub fn note_own(&self) {
        let own = pm::life::own();
        self.pid_namespace.store(own.namespace, Relaxed);
        self.since.store(own.since, Relaxed);
        self.pid.store(own.pid, Relaxed);
    }

    /// Whether it is somebody's, as far as the slot says.
    pub fn is_used(&self) -> bool {
        self.state.load(Acquire) != state::FREE
    }

    /// The PID of the child that it was readied for; 0 if that is not noted yet.
    fn child_pid(&self) -> u32 {
        let noted = self.child.load(Acquire);
        let pid = noted as u32;
        if noted == noted_child(pid, self.nonce.load(Acquire)) { pid } else { 0 }
    }

    /// How long ago a fork or exec was begun, nanoseconds.
    fn age(&self) -> i64 {
        pm::clock::monotonic().wrapping_sub(self.begun.load(Relaxed) as i64)
    }

    /// Whether the process lives, as far as PIDs tell.
    fn lives_by_pid(&self) -> Option<bool> {
        self.who().lives(Look::Thorough)
    }

    /// Whether a process lives whose mutex nobody holds: the thread that took it
    /// may have ended before the others, or it is between fork or exec and the next step.
    pub fn lives(&self) -> bool {
        match self.state.load(Acquire) {
            state::FORKING => {
                let (lives, grace) = match self.child_pid() {
                    0 if self.lives_by_pid() == Some(false) => (None, GRACE_ORPHAN),
                    0 => (None, GRACE_FORK),
                    pid => (Who { pid, since: 0, ..self.who() }.lives(Look::Thorough), GRACE_FORK),
                };
                (0..grace).contains(&self.age()) && lives.unwrap_or(true)
            }
            state::EXECUTING => self.lives_by_pid().unwrap_or((0..GRACE_EXEC).contains(&self.age())),
            _ => self.lives_by_pid().unwrap_or(false),
        }
    }

    /// The PID of the process that uses the slot, if that lives as far as can be told. A child that has not made its first
    /// step is one, also when its parent has ended.
    pub fn user(&self) -> Option<u32> {
        let who = self.who();
        match self.state.load(Acquire) {
            state::FREE => None,
            state::FORKING => self.lives().then(|| match self.child_pid() {
                0 => who.pid,
                child => child,
            }),
            _ => self.lives_by_pid().unwrap_or_else(|| pm::host::is_alive(who.pid)).then_some(who.pid),
        }
    }

    /// Whether the process lives and is in the middle of a fork or exec: it may want
    /// the mutex at any moment, so nobody takes it just to look. One that began less
    /// than `young` nanoseconds ago is taken to live.
    pub fn is_between_steps(&self, young: i64) -> bool {
        matches!(self.state.load(Acquire), state::FORKING | state::EXECUTING)
            && ((0..young).contains(&self.age()) || self.lives())
    }
}
