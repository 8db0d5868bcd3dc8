//! Advisory locks: `fcntl` records (a process), OFD locks and `flock` (an open
//! file), in a table.
//!
//! An entry is one lock on one range. The entries of a node form a chain; the
//! heads of the chains lie in the first entries of the table. An entry is filled
//! before it is chained, and unchained before it is freed; while it is not chained
//! it is noted, so that whoever takes the table after a death in between frees it.
//! The lock of an open file is added first, then one looks whether that still is
//! open; who closes it ends it first, then looks for locks.
//! `flock` locks and the two others do not see each other.
//!
//! Whoever calls what changes or follows a chain has the table to himself, by a lock
//! of its owner's, and has called [`Locks::free_lost`] since.

use crate::{OpenFile, refcount};
use base::{DescriptionId, Error, Lock, LockKind, LockOwner, Result};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use pm::Errno;
use zerocopy::{FromBytes, KnownLayout};

/// Chains; a table has at least so many entries.
pub const CHAINS: u32 = 256;

/// An entry of the table, one line.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct LockEntry {
    /// Node; 0: free.
    node: AtomicU64,
    /// Number of a kernel mount's owner 24 | kind of owner 8 | process or open file 32.
    owner: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    /// 1: exclusive.
    exclusive: AtomicU32,
    pid: AtomicU32,
    /// Next entry of the chain + 1.
    next: AtomicU32,
    /// First entry + 1 of the chain with this entry's number.
    head: AtomicU32,
    /// In the first entry: entry + 1 that is on its way into its chain or out of it.
    half_way: AtomicU32,
    /// When its owner was last seen to wait, by the monotonic clock, milliseconds.
    waits_since: AtomicU32,
    /// For which owner; 0: for none. In any of the locks of who waits.
    waits_for: AtomicU64,
}

/// A time, as far as waiting is told by it: milliseconds of the monotonic clock, which wrap round.
pub fn moment() -> u32 {
    (pm::clock::monotonic() / 1_000_000) as u32
}

/// How many owners that wait for one another are looked at, as in the kernel.
const DEADLOCK_MAX: usize = 10;

const _: () = assert!(size_of::<LockEntry>() == 64);

impl LockEntry {
    /// Whether it is some lock's.
    pub fn is_used(&self) -> bool {
        self.node.load(Acquire) != 0
    }

    /// As if it had been left filled: for tests of what a death leaves.
    #[doc(hidden)]
    pub fn restore(&self, node: u64) {
        self.node.store(node, Relaxed);
    }

    fn read(&self) -> HeldLock {
        HeldLock {
            node: self.node.load(Relaxed),
            owner: self.owner.load(Relaxed),
            start: self.start.load(Relaxed),
            end: self.end.load(Relaxed),
            exclusive: self.exclusive.load(Relaxed) != 0,
            pid: self.pid.load(Relaxed) as i32,
        }
    }
}

const OF_PROCESS: u64 = 1;
const OF_OPEN_FILE: u64 = 2;
const OF_FLOCK: u64 = 3;
/// With the number of whom the process serves above it.
const OF_KERNEL_MOUNT: u64 = 4;

/// What kind of owner a word names, leaving out the number above it.
fn owner_kind(owner: u64) -> u64 {
    owner >> 32 & 0xff
}

/// The number of an owner, whose process has this slot: unlike all others for as long as it can have locks.
pub fn owner_word(owner: LockOwner, process: u32) -> u64 {
    match owner {
        LockOwner::Process => OF_PROCESS << 32 | u64::from(process),
        LockOwner::Description(id) => OF_OPEN_FILE << 32 | u64::from(id),
        LockOwner::Flock(id) => OF_FLOCK << 32 | u64::from(id),
        LockOwner::Served(who) => u64::from(who) << 40 | OF_KERNEL_MOUNT << 32 | u64::from(process),
    }
}

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub struct HeldLock {
    node: u64,
    owner: u64,
    start: u64,
    end: u64,
    exclusive: bool,
    pid: i32,
}

impl HeldLock {
    /// The lock that is asked for on `node` (not 0), by the process in slot `process` whose PID is `pid`.
    pub fn wanted(node: u64, lock: &Lock, process: u32, pid: u32) -> HeldLock {
        let owner = owner_word(lock.owner, process);
        let pid = match lock.owner {
            LockOwner::Process => pid as i32,
            LockOwner::Description(_) | LockOwner::Flock(_) => -1,
            LockOwner::Served(_) => lock.pid,
        };
        HeldLock { node, owner, start: lock.start, end: lock.end, exclusive: lock.kind == LockKind::Exclusive, pid }
    }

    /// As callers know it.
    pub fn as_lock(&self) -> Lock {
        let id = self.owner as u32;
        let owner = match owner_kind(self.owner) {
            OF_PROCESS => LockOwner::Process,
            OF_KERNEL_MOUNT => LockOwner::Served((self.owner >> 40) as u32),
            OF_OPEN_FILE => LockOwner::Description(id),
            _ => LockOwner::Flock(id),
        };
        let kind = if self.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Lock { kind, owner, through: None, start: self.start, end: self.end, pid: self.pid }
    }

    /// Number of the chain of its node.
    pub fn chain(&self) -> u32 {
        chain_of(self.node)
    }

    /// Whether its owner is one that a deadlock is told of: processes, as in the kernel.
    fn is_of_process(&self) -> bool {
        matches!(owner_kind(self.owner), OF_PROCESS | OF_KERNEL_MOUNT)
    }

    fn is_flock(&self) -> bool {
        owner_kind(self.owner) == OF_FLOCK
    }

    fn open_file(&self) -> Option<DescriptionId> {
        matches!(owner_kind(self.owner), OF_OPEN_FILE | OF_FLOCK).then_some(self.owner as u32)
    }

    fn is_same(&self, other: &HeldLock) -> bool {
        self.node == other.node && self.owner == other.owner
    }

    fn overlaps(&self, other: &HeldLock) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether the two cannot be held together.
    fn conflicts(&self, other: &HeldLock) -> bool {
        self.owner != other.owner
            && self.is_flock() == other.is_flock()
            && self.overlaps(other)
            && (self.exclusive || other.exclusive)
    }
}

/// Number of the chain of a node.
pub fn chain_of(node: u64) -> u32 {
    (node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u32 % CHAINS
}

/// A table of locks.
pub trait Locks {
    /// How many entries it can have.
    const ENTRIES: u32;

    /// Entries below this have memory.
    fn lock_entries(&self) -> u32;

    /// An entry that has memory.
    fn lock_entry(&self, number: u32) -> Option<&LockEntry>;

    /// Gives more entries memory, at first as many as there are chains. `ENOLCK` at the end of the table.
    fn more_lock_entries(&self) -> Result<()>;

    /// An open file; of one that does not exist one that nobody has.
    fn open_file(&self, id: DescriptionId) -> &OpenFile;

    // ---- without the table ----

    /// Whether there ever was a lock.
    #[inline(always)]
    fn any_lock(&self) -> bool {
        self.lock_entries() != 0
    }

    /// Whether the chain of a node has any entry.
    #[inline(always)]
    fn has_locks(&self, node: u64) -> bool {
        self.any_lock() && self.has_chain(chain_of(node))
    }

    /// Whether a chain has any entry.
    #[inline(never)]
    fn has_chain(&self, chain: u32) -> bool {
        self.head(chain).is_some_and(|head| head.load(SeqCst) != 0)
    }

    /// Whether an entry is noted that was on its way when somebody died.
    fn has_lost(&self) -> bool {
        self.half_way().is_some_and(|half_way| half_way.load(Acquire) != 0)
    }

    /// Locks in the table.
    fn count_locks(&self) -> u32 {
        (0..Self::ENTRIES).map_while(|number| self.lock_entry(number)).filter(|entry| entry.is_used()).count() as u32
    }

    /// The first entry of a chain, + 1.
    fn head(&self, chain: u32) -> Option<&AtomicU32> {
        self.lock_entry(chain).map(|entry| &entry.head)
    }

    /// The entry + 1 that is on its way.
    fn half_way(&self) -> Option<&AtomicU32> {
        self.lock_entry(0).map(|entry| &entry.half_way)
    }

    // ---- with the table ----

    /// The first thing whoever has taken the table does: if whoever had it before died while an entry was on
    /// its way, that is free, unless it is chained. `ENOLCK` where the table has no memory.
    fn free_lost(&self) -> Result<()> {
        if self.lock_entries() == 0 {
            self.more_lock_entries()?;
        }
        let Some(half_way) = self.half_way() else { return Ok(()) };
        let Some(number) = half_way.load(Acquire).checked_sub(1) else { return Ok(()) };
        if let Some(entry) = self.lock_entry(number).filter(|entry| entry.is_used()) {
            let chain = chain_of(entry.node.load(Acquire));
            if !self.chain(chain).any(|one| core::ptr::eq(one, entry)) {
                entry.node.store(0, Release);
            }
        }
        half_way.store(0, Release);
        Ok(())
    }

    /// The entries of a chain.
    fn chain(&self, chain: u32) -> impl Iterator<Item = &LockEntry> {
        let mut next = self.head(chain).map_or(0, |head| head.load(Acquire));
        // Bounded: a damaged table must not make a loop.
        (0..Self::ENTRIES).map_while(move |_| {
            let entry = self.lock_entry(next.checked_sub(1)?)?;
            next = entry.next.load(Acquire);
            Some(entry)
        })
    }

    /// Sets or clears a lock. `EAGAIN` on conflict, `ENOLCK` when the table is full, `EBADF`
    /// where another thread has closed the open file.
    fn set_lock(&self, wanted: &HeldLock, kind: LockKind) -> Result<()> {
        if let Some(id) = wanted.open_file() {
            // First: whoever closes it from here on looks for locks.
            self.open_file(id).locks.fetch_or(1, SeqCst);
        }
        self.change_locks(wanted, kind)?;
        if kind == LockKind::Unlock || self.is_still_open(wanted) {
            return Ok(());
        }
        self.unchain(wanted.chain(), |held| held.is_same(wanted));
        Err(Errno::EBADF.into())
    }

    /// Its owner waits for a lock since `since` ([`moment`]) and has just been refused it: notes that, or `EDEADLK`.
    ///
    /// Who is part of a deadlock holds a lock, in which it is noted for whom he waits. Everybody who waits notes it again and
    /// again. So if a circle of such notes comes back to us, each of them made while we waited, nobody in it can go on.
    fn still_waits(&self, wanted: &HeldLock, kind: LockKind, since: u32) -> Result<()> {
        let Some(first) = self.first_conflict(wanted, kind).filter(HeldLock::is_of_process) else { return Ok(()) };
        if !wanted.is_of_process() {
            return Ok(());
        }
        let mut owner = first.owner;
        for _ in 0..DEADLOCK_MAX {
            match self.waits_for(owner, since) {
                Some(next) if next == wanted.owner => {
                    // It waits no more: nobody else of the circle is told.
                    self.entries_of(wanted.owner).for_each(|own| own.waits_for.store(0, Relaxed));
                    return Err(Errno::EDEADLK.into());
                }
                Some(next) => owner = next,
                None => break,
            }
        }
        if let Some(own) = self.entries_of(wanted.owner).next() {
            own.waits_for.store(first.owner, Relaxed);
            own.waits_since.store(moment(), Relaxed);
        }
        Ok(())
    }

    /// For whom an owner waits, if that was noted after `since`.
    fn waits_for(&self, owner: u64, since: u32) -> Option<u64> {
        let is_later = |entry: &&LockEntry| (entry.waits_since.load(Relaxed).wrapping_sub(since) as i32) > 0;
        let noted = self.entries_of(owner).find(|entry| entry.waits_for.load(Relaxed) != 0 && is_later(entry));
        noted.map(|entry| entry.waits_for.load(Relaxed))
    }

    /// The locks of an owner, whatever they are on.
    fn entries_of(&self, owner: u64) -> impl Iterator<Item = &LockEntry> {
        let all = (0..self.lock_entries()).map_while(|number| self.lock_entry(number));
        all.filter(move |entry| entry.is_used() && entry.owner.load(Relaxed) == owner)
    }

    /// The first lock that conflicts with one; with [`LockKind::Unlock`], the first of the owner's own in the range.
    fn first_conflict(&self, wanted: &HeldLock, kind: LockKind) -> Option<HeldLock> {
        let chain = self.chain(wanted.chain()).map(LockEntry::read);
        let is_meant = |held: &HeldLock| match kind {
            LockKind::Unlock => held.owner == wanted.owner && held.overlaps(wanted),
            _ => held.conflicts(wanted),
        };
        chain.filter(|held| held.node == wanted.node && is_meant(held)).min_by_key(|held| held.start)
    }

    /// Drops the record locks of a process on a node.
    fn drop_process_locks_on(&self, node: u64, process: u32) {
        let owner = OF_PROCESS << 32 | u64::from(process);
        self.unchain(chain_of(node), |held| held.owner == owner && held.node == node);
    }

    /// Drops all locks on a node; whether there were any.
    fn drop_all_locks_on(&self, node: u64) -> bool {
        let had_any = Cell::new(false);
        self.unchain(chain_of(node), |held| {
            had_any.set(had_any.get() || held.node == node);
            held.node == node
        });
        had_any.get()
    }

    /// Drops the locks of an open file on a node.
    fn drop_locks_of_open_file(&self, id: DescriptionId, node: u64) {
        let owners = [OF_OPEN_FILE, OF_FLOCK].map(|kind| kind << 32 | u64::from(id));
        self.unchain(chain_of(node), |held| owners.contains(&held.owner));
    }

    /// Drops the record locks in a chain of a process that ends, and what open files that have ended still hold: another
    /// thread closed one, and the thread that had just added the lock died before it looked.
    fn drop_locks_of_process_in(&self, chain: u32, process: u32) {
        self.unchain(chain, |held| {
            let is_of_process = matches!(owner_kind(held.owner), OF_PROCESS | OF_KERNEL_MOUNT);
            is_of_process && held.owner as u32 == process || !self.is_still_open(held)
        });
    }

    /// Whether the owner of a lock that was just added can give it up again: if it is an open file, whether that
    /// is open. One that was closed by another thread meanwhile may have looked for locks before.
    fn is_still_open(&self, added: &HeldLock) -> bool {
        let Some(file) = added.open_file().map(|id| self.open_file(id)) else { return true };
        fence(SeqCst);
        refcount::count(file.refs.load(SeqCst)) != 0 && self.lock_key(file.node.load(Relaxed)) == added.node
    }

    /// What a node is called in the table, as an open file calls it.
    fn lock_key(&self, node: u64) -> u64 {
        node
    }

    /// Takes entries out of a chain.
    fn unchain(&self, chain: u32, which: impl Fn(&HeldLock) -> bool) {
        let (Some(mut link), Some(half_way)) = (self.head(chain), self.half_way()) else { return };
        for _ in 0..Self::ENTRIES {
            let number = link.load(Acquire);
            let Some(entry) = number.checked_sub(1).and_then(|number| self.lock_entry(number)) else { return };
            if which(&entry.read()) {
                half_way.store(number, Release);
                link.store(entry.next.load(Acquire), Release);
                pm::touched();
                entry.node.store(0, Release);
                half_way.store(0, Release);
            } else {
                link = &entry.next;
            }
        }
    }

    /// Takes entries out of a chain that lie at these places of it, and that `which` names.
    fn unchain_at(&self, chain: u32, places: core::ops::Range<usize>, which: impl Fn(&HeldLock) -> bool) {
        let seen = Cell::new(0);
        self.unchain(chain, |held| {
            let place = seen.replace(seen.get() + 1);
            places.contains(&place) && which(held)
        });
    }

    /// Adds an entry, at the head of its chain.
    fn add_lock(&self, held: &HeldLock) -> Result<()> {
        loop {
            for number in 0..self.lock_entries() {
                let Some(entry) = self.lock_entry(number) else { break };
                if entry.is_used() {
                    continue;
                }
                let (Some(head), Some(half_way)) = (self.head(held.chain()), self.half_way()) else { break };
                entry.owner.store(held.owner, Relaxed);
                entry.start.store(held.start, Relaxed);
                entry.end.store(held.end, Relaxed);
                entry.exclusive.store(u32::from(held.exclusive), Relaxed);
                entry.pid.store(held.pid as u32, Relaxed);
                entry.waits_for.store(0, Relaxed);
                entry.next.store(head.load(Acquire), Relaxed);
                half_way.store(number + 1, Release);
                entry.node.store(held.node, Release);
                pm::touched();
                head.store(number + 1, Release);
                half_way.store(0, Release);
                return Ok(());
            }
            self.more_lock_entries()?;
        }
    }

    /// What POSIX says of setting (or clearing) a lock.
    ///
    /// What must be added is added before anything is taken away, so that a
    /// table that is full changes nothing, and a death in between unlocks nothing.
    fn change_locks(&self, wanted: &HeldLock, kind: LockKind) -> Result<()> {
        let unlock = kind == LockKind::Unlock;
        if !unlock && self.first_conflict(wanted, kind).is_some() {
            if wanted.is_flock() {
                // Changing a flock drops the old one first: a refused change has lost it.
                self.unchain(wanted.chain(), |held| held.is_same(wanted));
            }
            return Err(Errno::EAGAIN.into());
        }
        // Neighbours of the same kind are one lock with it.
        let mut merged = *wanted;
        let joins = |held: &HeldLock| !unlock && held.exclusive == wanted.exclusive;
        let touches = |held: &HeldLock| match joins(held) {
            true => held.start <= wanted.end && wanted.start <= held.end,
            false => held.overlaps(wanted),
        };
        let mut rest = [None, None];
        for held in self.chain(wanted.chain()).map(LockEntry::read).filter(|held| held.is_same(wanted) && touches(held)) {
            if joins(&held) {
                merged.start = merged.start.min(held.start);
                merged.end = merged.end.max(held.end);
                continue;
            }
            // What sticks out on the left and on the right stays; at most one of each.
            if held.start < wanted.start {
                rest[0] = Some(HeldLock { end: wanted.start, ..held });
            }
            if held.end > wanted.end {
                rest[1] = Some(HeldLock { start: wanted.end, ..held });
            }
        }
        let new = [rest[0], rest[1], (!unlock).then_some(merged)];
        let mut added = 0;
        for held in new.iter().flatten() {
            if let Err(error) = self.add_lock(held) {
                self.unchain_at(wanted.chain(), 0..added, |_| true);
                return Err(error);
            }
            added += 1;
        }
        self.unchain_at(wanted.chain(), added..usize::MAX, |held| held.is_same(wanted) && touches(held));
        Ok(())
    }
}

/// Whether a result says that another holds a conflicting lock: perhaps that one is dead.
pub fn is_refused(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Posix(Errno::EAGAIN)))
}
