//! Advisory locks: `fcntl` records (a process), OFD locks and `flock` (a
//! description), in a table of the segment.
//!
//! An entry is one lock on one range. The entries of a node form a chain; the
//! heads of the chains lie in the first entries of the table. Everything is
//! changed under `Header::advisory`. An entry is filled before it is chained,
//! and unchained before it is freed; while it is not chained it is noted, so that
//! whoever takes the table after a death in between frees it.
//! The lock of a description is added first, then one looks whether the description
//! still is open; who closes it ends it first, then looks for locks.
//! `flock` locks and the two others do not see each other.

use crate::fs::Fs;
use crate::lane::Tx;
use crate::segment::{ADVISORY_LOCKS, Header};
use base::{Cx, DescriptionId, Error, Lock, LockKind, LockOwner, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use format::lane::Kind;
use pm::Errno;
use zerocopy::{FromBytes, KnownLayout};

/// Chains.
const CHAINS: u32 = 256;
/// Entries that get real space at a time.
const STEP: u32 = 1024;

/// An entry of the table, one line.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
struct Entry {
    /// Node id; 0: free.
    node: AtomicU64,
    /// number of a served one 24 | kind of owner 8 | process or description 32.
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
    reserved: [AtomicU32; 3],
}

const _: () = assert!(size_of::<Entry>() == 64);

const OF_PROCESS: u64 = 1;
const OF_DESCRIPTION: u64 = 2;
const OF_FLOCK: u64 = 3;
/// With the number of whom the process serves above it.
const OF_SERVED: u64 = 4;

/// What kind of owner a word names, leaving out the number of a served one.
fn owner_kind(owner: u64) -> u64 {
    owner >> 32 & 0xff
}

/// What an entry says.
#[derive(Clone, Copy)]
struct Held {
    node: u64,
    owner: u64,
    start: u64,
    end: u64,
    exclusive: bool,
    pid: i32,
}

impl Held {
    fn world(&self) -> bool {
        owner_kind(self.owner) == OF_FLOCK
    }

    /// Whether the two cannot be held together.
    fn conflicts(&self, other: &Held) -> bool {
        self.owner != other.owner
            && self.world() == other.world()
            && self.start < other.end
            && other.start < self.end
            && (self.exclusive || other.exclusive)
    }
}

/// Number of the chain of a node.
fn chain_of(node: u64) -> u32 {
    (node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u32 % CHAINS
}

impl Fs {
    /// Sets or clears a lock. `EAGAIN` on conflict, `ENOLCK` when the table is full, `EBADF`
    /// where another thread has closed the description.
    pub fn advisory_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        if self.read_only {
            // Nobody can write: every lock is granted.
            return Ok(());
        }
        let wanted = self.wanted(node, lock)?;
        let attempt = || {
            let mut tx = self.begin(cx, Kind::SetAttr)?;
            self.lock_table(&mut tx)?;
            if let Some(description) = self.description_of(&wanted) {
                // First: whoever closes it from here on looks for locks.
                description.locks.store(1, SeqCst);
            }
            self.change_locks(&wanted, lock.kind)?;
            if lock.kind == LockKind::Unlock || self.is_still_open(&wanted) {
                return Ok(());
            }
            self.unchain(chain_of(wanted.node), |held| held.owner == wanted.owner && held.node == wanted.node);
            Err(Errno::EBADF.into())
        };
        match attempt() {
            // Perhaps the holder is dead.
            Err(Error::Posix(Errno::EAGAIN)) => {
                self.adopt_those_gone(cx);
                attempt()
            }
            result => result,
        }
    }

    /// The first lock that conflicts with this one.
    pub fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let wanted = self.wanted(node, lock)?;
        if self.read_only || !self.any_lock() {
            return Ok(None);
        }
        let look = || {
            let mut tx = self.begin(cx, Kind::SetAttr)?;
            self.lock_table(&mut tx)?;
            Ok::<_, Error>(self.first_conflict(&wanted))
        };
        let mut found = look()?;
        if found.is_some() && self.adopt_those_gone(cx) != u32::MAX {
            found = look()?;
        }
        Ok(found.map(|held| self.as_lock(&held)))
    }

    /// Drops the record locks of this process on a node (at any close of it).
    pub fn drop_process_locks(&self, cx: &Cx, node: Node) {
        if !self.has_locks(node.id) {
            return;
        }
        let Ok(process) = self.own_process() else { return };
        let owner = OF_PROCESS << 32 | u64::from(process);
        self.drop_locks(cx, chain_of(node.id), |held| held.owner == owner && held.node == node.id);
    }

    /// Drops the locks of a description that ends.
    pub(crate) fn drop_locks_of_description(&self, cx: &Cx, id: DescriptionId, node: u64) {
        let locks = &self.description(id).locks;
        if locks.load(SeqCst) != 0 {
            let owners = [OF_DESCRIPTION, OF_FLOCK].map(|kind| kind << 32 | u64::from(id));
            self.drop_locks(cx, chain_of(node), |held| owners.contains(&held.owner));
            locks.store(0, SeqCst);
        }
    }

    /// Drops the record locks of a process that ends, and what descriptions that have ended still hold: another
    /// thread closed one, and the thread that had just added the lock died before it looked.
    pub(crate) fn drop_locks_of_process(&self, cx: &Cx, process: u32) {
        if !self.any_lock() {
            return;
        }
        let is_lost = self.half_way().is_some_and(|half_way| half_way.load(Acquire) != 0);
        if is_lost && let Ok(mut tx) = self.begin(cx, Kind::SetAttr) {
            // Taking the table is enough.
            let _ = self.lock_table(&mut tx);
        }
        let process = u64::from(process);
        for chain in (0..CHAINS).filter(|chain| self.head(*chain).is_some_and(|head| head.load(Acquire) != 0)) {
            self.drop_locks(cx, chain, |held| {
                let is_of_process = matches!(owner_kind(held.owner), OF_PROCESS | OF_SERVED);
                is_of_process && held.owner & 0xffff_ffff == process || !self.is_still_open(held)
            });
        }
    }

    // ---- the table ----

    /// Whether there ever was a lock.
    #[inline(always)]
    pub(crate) fn any_lock(&self) -> bool {
        self.header().locks_high.get() != 0
    }

    /// Whether the chain of a node has any entry: cheap, without the lock.
    #[inline(always)]
    pub(crate) fn has_locks(&self, node: u64) -> bool {
        self.any_lock() && self.has_chain(node)
    }

    /// Whether there is any lock on the nodes that share a chain with this one.
    #[inline(never)]
    fn has_chain(&self, node: u64) -> bool {
        self.head(chain_of(node)).is_some_and(|head| head.load(SeqCst) != 0)
    }

    /// Whether the owner of a lock that was just added can give it up again: if it is a description, whether that
    /// is open. One that was closed by another thread meanwhile may have looked for locks before.
    fn is_still_open(&self, added: &Held) -> bool {
        let Some(description) = self.description_of(added) else { return true };
        fence(SeqCst);
        base::hold::count(description.refs.load(SeqCst)) != 0 && description.node.load(Relaxed) == added.node
    }

    /// The description that owns a lock, if one does.
    fn description_of(&self, held: &Held) -> Option<&base::Description> {
        matches!(owner_kind(held.owner), OF_DESCRIPTION | OF_FLOCK).then(|| self.description(held.owner as u32))
    }

    /// Locks in the table.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn advisory_count(&self) -> u32 {
        (0..ADVISORY_LOCKS).map_while(|number| self.entry(number)).filter(|entry| entry.node.load(Acquire) != 0).count() as u32
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        if number >= self.header().locks_high.get() {
            return None;
        }
        self.segment.at(self.areas.advisory + u64::from(number) * size_of::<Entry>() as u64)
    }

    fn head(&self, chain: u32) -> Option<&AtomicU32> {
        self.entry(chain).map(|entry| &entry.head)
    }

    fn half_way(&self) -> Option<&AtomicU32> {
        self.entry(0).map(|entry| &entry.half_way)
    }

    fn lock_table<'a>(&'a self, tx: &mut Tx<'a>) -> Result<()> {
        let header: &Header = self.header();
        tx.lock(&header.advisory.0)?;
        if header.locks_high.get() == 0 {
            self.grow_table()?;
        }
        if let Some(half_way) = self.half_way()
            && let Some(number) = half_way.load(Acquire).checked_sub(1)
        {
            self.free_lost(number);
            half_way.store(0, Release);
        }
        Ok(())
    }

    /// Whoever had the table before died while this entry was on its way: it is free, unless it is chained.
    #[cold]
    #[inline(never)]
    fn free_lost(&self, number: u32) {
        let Some(entry) = self.entry(number) else { return };
        let node = entry.node.load(Acquire);
        if node != 0 && !self.chain(chain_of(node)).any(|one| core::ptr::eq(one, entry)) {
            entry.node.store(0, Release);
        }
    }

    /// More entries get real space. `ENOLCK` at the end of the table.
    fn grow_table(&self) -> Result<()> {
        let high = self.header().locks_high.get();
        if high >= ADVISORY_LOCKS {
            return Err(Errno::ENOLCK.into());
        }
        let size = size_of::<Entry>() as u64;
        let space = self.segment_space(self.areas.advisory + u64::from(high) * size, u64::from(STEP) * size);
        space.map_err(|_| Errno::ENOLCK)?;
        self.header().locks_high.raise(high + STEP);
        Ok(())
    }

    /// The entries of a chain.
    fn chain(&self, chain: u32) -> impl Iterator<Item = &Entry> {
        let mut next = self.head(chain).map_or(0, |head| head.load(Acquire));
        // Bounded: a damaged table must not make a loop.
        (0..ADVISORY_LOCKS).map_while(move |_| {
            let entry = self.entry(next.checked_sub(1)?)?;
            next = entry.next.load(Acquire);
            Some(entry)
        })
    }

    fn read_entry(entry: &Entry) -> Held {
        Held {
            node: entry.node.load(Relaxed),
            owner: entry.owner.load(Relaxed),
            start: entry.start.load(Relaxed),
            end: entry.end.load(Relaxed),
            exclusive: entry.exclusive.load(Relaxed) != 0,
            pid: entry.pid.load(Relaxed) as i32,
        }
    }

    fn first_conflict(&self, wanted: &Held) -> Option<Held> {
        let chain = self.chain(chain_of(wanted.node)).map(Self::read_entry);
        chain.filter(|held| held.node == wanted.node && held.conflicts(wanted)).min_by_key(|held| held.start)
    }

    /// Takes entries out of a chain that `which` names.
    fn drop_locks(&self, cx: &Cx, chain: u32, which: impl Fn(&Held) -> bool) {
        let Ok(mut tx) = self.begin(cx, Kind::SetAttr) else { return };
        if self.lock_table(&mut tx).is_ok() {
            self.unchain(chain, which);
        }
    }

    fn unchain(&self, chain: u32, which: impl Fn(&Held) -> bool) {
        let (Some(mut link), Some(half_way)) = (self.head(chain), self.half_way()) else { return };
        for _ in 0..ADVISORY_LOCKS {
            let number = link.load(Acquire);
            let Some(entry) = number.checked_sub(1).and_then(|number| self.entry(number)) else { return };
            if which(&Self::read_entry(entry)) {
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

    /// Adds an entry.
    fn add_entry(&self, held: &Held) -> Result<()> {
        loop {
            let high = self.header().locks_high.get();
            for number in 0..high {
                let Some(entry) = self.entry(number) else { break };
                if entry.node.load(Acquire) != 0 {
                    continue;
                }
                let (Some(head), Some(half_way)) = (self.head(chain_of(held.node)), self.half_way()) else { break };
                entry.owner.store(held.owner, Relaxed);
                entry.start.store(held.start, Relaxed);
                entry.end.store(held.end, Relaxed);
                entry.exclusive.store(u32::from(held.exclusive), Relaxed);
                entry.pid.store(held.pid as u32, Relaxed);
                entry.next.store(head.load(Acquire), Relaxed);
                half_way.store(number + 1, Release);
                entry.node.store(held.node, Release);
                pm::touched();
                head.store(number + 1, Release);
                half_way.store(0, Release);
                return Ok(());
            }
            self.grow_table()?;
        }
    }

    // ---- what POSIX says ----

    fn wanted(&self, node: Node, lock: &Lock) -> Result<Held> {
        let process = self.own_process()?;
        let pid = self.process_slot(process).map_or(0, |slot| slot.pid.load(Relaxed)) as i32;
        let (owner, pid) = match lock.owner {
            LockOwner::Process => (OF_PROCESS << 32 | u64::from(process), pid),
            LockOwner::Description(id) => (OF_DESCRIPTION << 32 | u64::from(id), -1),
            LockOwner::Flock(id) => (OF_FLOCK << 32 | u64::from(id), -1),
            LockOwner::Served(who) => (u64::from(who) << 40 | OF_SERVED << 32 | u64::from(process), lock.pid),
        };
        Ok(Held { node: node.id, owner, start: lock.start, end: lock.end, exclusive: lock.kind == LockKind::Exclusive, pid })
    }

    fn as_lock(&self, held: &Held) -> Lock {
        let id = held.owner as u32;
        let owner = match owner_kind(held.owner) {
            OF_PROCESS => LockOwner::Process,
            OF_SERVED => LockOwner::Served((held.owner >> 40) as u32),
            OF_DESCRIPTION => LockOwner::Description(id),
            _ => LockOwner::Flock(id),
        };
        let kind = if held.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Lock { kind, owner, start: held.start, end: held.end, pid: held.pid }
    }

    /// Sets (or clears) a lock; the table is locked.
    ///
    /// What must be added is added before anything is taken away, so that a
    /// table that is full changes nothing, and a death in between unlocks nothing.
    fn change_locks(&self, wanted: &Held, kind: LockKind) -> Result<()> {
        let unlock = kind == LockKind::Unlock;
        if !unlock && self.first_conflict(wanted).is_some() {
            if wanted.world() {
                // Changing a flock drops the old one first: a refused change has lost it.
                self.unchain(chain_of(wanted.node), |held| held.node == wanted.node && held.owner == wanted.owner);
            }
            return Err(Errno::EAGAIN.into());
        }
        // Neighbours of the same kind are one lock with it.
        let mut merged = *wanted;
        let mine = |held: &Held| held.node == wanted.node && held.owner == wanted.owner;
        let touches = |held: &Held| {
            if unlock || held.exclusive != wanted.exclusive {
                held.start < wanted.end && wanted.start < held.end
            } else {
                held.start <= wanted.end && wanted.start <= held.end
            }
        };
        let mut rest = [None, None];
        for held in self.chain(chain_of(wanted.node)).map(Self::read_entry).filter(|held| mine(held) && touches(held)) {
            if !unlock && held.exclusive == wanted.exclusive {
                merged.start = merged.start.min(held.start);
                merged.end = merged.end.max(held.end);
                continue;
            }
            // What sticks out on the left and on the right stays; at most one of each.
            if held.start < wanted.start {
                rest[0] = Some(Held { end: wanted.start, ..held });
            }
            if held.end > wanted.end {
                rest[1] = Some(Held { start: wanted.end, ..held });
            }
        }
        let new = [rest[0], rest[1], (!unlock).then_some(merged)];
        let mut added = 0;
        for held in new.iter().flatten() {
            if let Err(error) = self.add_entry(held) {
                self.take_back(chain_of(wanted.node), added);
                return Err(error);
            }
            added += 1;
        }
        self.unchain_after(chain_of(wanted.node), added, |held| mine(held) && touches(held));
        Ok(())
    }

    /// As `unchain`, leaving the first `skip` entries alone: they were added just now.
    fn unchain_after(&self, chain: u32, skip: usize, which: impl Fn(&Held) -> bool) {
        let seen = core::cell::Cell::new(0);
        self.unchain(chain, |held| {
            seen.set(seen.get() + 1);
            seen.get() > skip && which(held)
        });
    }

    /// Takes the first `count` entries out of a chain.
    fn take_back(&self, chain: u32, count: usize) {
        let seen = core::cell::Cell::new(0);
        self.unchain(chain, |_| {
            seen.set(seen.get() + 1);
            seen.get() <= count
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{Kind, NewNode};
    use std::vec::Vec;

    fn lock(owner: LockOwner, kind: LockKind, start: u64, end: u64) -> Lock {
        Lock { kind, owner, start, end, pid: 0 }
    }

    /// Goal: the table gives the same answers as a byte-by-byte model. Method:
    /// random locks of a few owners on a file of 40 bytes.
    #[test]
    fn agrees_with_bytes() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let node = test
            .create(&cx, test.root_node(), b"f", &NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" })
            .unwrap();
        let id = test.open(&cx, node, 2, 3).unwrap();
        let owners = [LockOwner::Process, LockOwner::Description(id), LockOwner::Served(8)];
        let mut held = [[None::<LockKind>; 40]; 3];
        let mut seed = 1u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % end
        };
        for step in 0..20_000 {
            let who = below(3) as usize;
            let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock][below(3) as usize];
            let start = below(39);
            let end = start + 1 + below(40 - start);
            let range = start as usize..end as usize;
            let conflict = kind != LockKind::Unlock
                && (0..3).filter(|other| *other != who).any(|other| {
                    held[other][range.clone()]
                        .iter()
                        .any(|b| matches!((b, kind), (Some(LockKind::Exclusive), _) | (Some(_), LockKind::Exclusive)))
                });
            let wanted = lock(owners[who], kind, start, end);
            if kind != LockKind::Unlock {
                assert_eq!(test.conflicting_lock(&cx, node, &wanted).unwrap().is_some(), conflict, "step {step}");
            }
            let result = test.advisory_lock(&cx, node, &wanted).map_err(|e| e.errno());
            assert_eq!(result, if conflict { Err(Errno::EAGAIN) } else { Ok(()) }, "step {step}");
            if !conflict {
                held[who][range].fill((kind != LockKind::Unlock).then_some(kind));
            }
            // As few entries as can be.
            let entries = test.fs.chain(chain_of(node.id)).count();
            let runs: usize = held.iter().map(|h| h.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count()).sum();
            assert_eq!(entries, runs, "step {step}");
        }
        test.drop_locks_of_description(&cx, id, node.id);
        test.advisory_lock(&cx, node, &lock(LockOwner::Served(8), LockKind::Unlock, 0, u64::MAX)).unwrap();
        test.drop_process_locks(&cx, node);
        // Those that it holds for others go with the process.
        test.drop_locks_of_process(&cx, test.own_process().unwrap());
        assert_eq!(test.fs.chain(chain_of(node.id)).count(), 0);
    }

    /// Goal: a full table says `ENOLCK` and loses nothing.
    #[test]
    fn full_table() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let node = test.root_node();
        let [one, two] = [3, 4].map(|fd| test.open(&cx, node, 0, fd).unwrap());
        let results: Vec<_> = (0..u64::from(ADVISORY_LOCKS) + 1)
            .map(|i| test.advisory_lock(&cx, node, &lock(LockOwner::Process, LockKind::Shared, i * 2, i * 2 + 1)))
            .collect();
        assert!(results[..ADVISORY_LOCKS as usize].iter().all(|r| r.is_ok()));
        assert_eq!(results.last().unwrap().map_err(|e| e.errno()), Err(Errno::ENOLCK));
        // Whole-file locks, and flock apart from records.
        test.advisory_lock(&cx, node, &lock(LockOwner::Process, LockKind::Unlock, 0, u64::MAX)).unwrap();
        test.advisory_lock(&cx, node, &lock(LockOwner::Flock(one), LockKind::Exclusive, 0, u64::MAX)).unwrap();
        test.advisory_lock(&cx, node, &lock(LockOwner::Process, LockKind::Exclusive, 5, 10)).unwrap();
        assert!(test.advisory_lock(&cx, node, &lock(LockOwner::Flock(two), LockKind::Shared, 0, u64::MAX)).is_err());
    }

    /// Goal: no lock outlives its description. Method: it is closed, as by another thread, before its lock is added;
    /// its number is another file's.
    #[test]
    fn closed_before_it_has_its_lock() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&cx, test.root_node(), b"f", &new).unwrap();
        let id = test.open(&cx, node, 2, 3).unwrap();
        test.close(&cx, 3);
        let ask = |owner| test.advisory_lock(&cx, node, &lock(owner, LockKind::Exclusive, 0, 10)).map_err(|e| e.errno());
        let owners = [LockOwner::Flock(id), LockOwner::Description(id)];
        assert_eq!(owners.map(ask), [Err(Errno::EBADF); 2]);
        test.description_hint.store(id, Relaxed);
        assert_eq!(test.open(&cx, test.root_node(), 0, 3), Ok(id));
        assert_eq!((owners.map(ask), test.advisory_count()), ([Err(Errno::EBADF); 2], 0));
    }

    /// Goal: a lock that was added for a description after its end, by a thread that died then, goes with its process.
    #[test]
    fn held_by_nobody() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&cx, test.root_node(), b"f", &new).unwrap();
        let [ended, other] = [3, 4].map(|fd| test.open(&cx, node, 2, fd).unwrap());
        test.close(&cx, 3);
        let exclusive = |owner| lock(owner, LockKind::Exclusive, 0, 10);
        for owner in [LockOwner::Flock as fn(_) -> _, LockOwner::Description] {
            test.advisory_lock(&cx, node, &lock(owner(other), LockKind::Shared, 20, 30)).unwrap();
            let mut tx = test.begin(&cx, format::lane::Kind::SetAttr).unwrap();
            test.lock_table(&mut tx).unwrap();
            test.add_entry(&test.wanted(node, &exclusive(owner(ended))).unwrap()).unwrap();
            drop(tx);
            let wanted = exclusive(owner(other));
            assert!(test.conflicting_lock(&cx, node, &wanted).unwrap().is_some());
            test.drop_locks_of_process(&cx, 77);
            assert_eq!(test.advisory_count(), 1);
            test.advisory_lock(&cx, node, &lock(owner(other), LockKind::Unlock, 0, 30)).unwrap();
        }
        assert_eq!(test.advisory_count(), 0);
    }

    /// Goal: death while an entry is chained or unchained loses none. Method: what such a death leaves: an entry
    /// that is filled, or no longer chained, and noted; one that is chained and noted.
    #[test]
    fn no_entry_is_lost() {
        let test = TestFs::new(64 << 20);
        let (cx, node) = (test.cx(), test.root_node());
        let set = |kind| test.advisory_lock(&cx, node, &lock(LockOwner::Process, kind, 0, 10)).unwrap();
        set(LockKind::Exclusive);
        let chained = test.head(chain_of(node.id)).unwrap().load(Relaxed);
        let half_way = test.half_way().unwrap();
        half_way.store(chained, Relaxed);
        test.drop_locks_of_process(&cx, 77);
        assert_eq!((test.advisory_count(), half_way.load(Relaxed)), (1, 0));
        let lost = test.entry(chained).unwrap();
        lost.node.store(node.id, Relaxed);
        half_way.store(chained + 1, Relaxed);
        test.drop_locks_of_process(&cx, 77);
        assert_eq!((test.advisory_count(), half_way.load(Relaxed)), (1, 0));
        set(LockKind::Unlock);
        assert_eq!((test.advisory_count(), half_way.load(Relaxed)), (0, 0));
    }
}
