//! Advisory locks: the table of them in the segment ([`openfiles::Locks`]), which is
//! changed under `Header::advisory`.

use crate::fs::Fs;
use crate::lane::Tx;
use crate::segment::ADVISORY_LOCKS;
use base::{Cx, DescriptionId, Error, Lock, LockKind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::lane::Kind;
use openfiles::OpenFile;
use openfiles::{CHAINS, HeldLock, LockEntry, Locks, TOLD, is_refused};
use pm::Errno;

/// Entries that get real space at a time.
const STEP: u32 = 1024;
const _: () = assert!(STEP >= CHAINS);

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
            self.set_lock(&wanted, lock.kind)
        };
        let result = attempt();
        if !is_refused(&result) {
            return result;
        }
        // Perhaps the holder is dead.
        self.adopt_those_gone(cx);
        attempt()
    }

    /// As [`Fs::advisory_lock`], for who waits for the lock since `since`: `EDEADLK` where it would wait for ever.
    pub fn advisory_lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        let result = self.advisory_lock(cx, node, lock);
        if !is_refused(&result) {
            return result;
        }
        let wanted = self.wanted(node, lock)?;
        let mut tx = self.begin(cx, Kind::SetAttr)?;
        self.lock_table(&mut tx)?;
        self.still_waits(&wanted, lock.kind, since)?;
        result
    }

    /// The first lock that conflicts with this one; with [`LockKind::Unlock`], the first of the owner's own in the range.
    pub fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let wanted = self.wanted(node, lock)?;
        if self.read_only || !self.any_lock() {
            return Ok(None);
        }
        let look = || {
            let mut tx = self.begin(cx, Kind::SetAttr)?;
            self.lock_table(&mut tx)?;
            Ok::<_, Error>(self.first_conflict(&wanted, lock.kind))
        };
        let mut found = look()?;
        if found.is_some() && lock.kind != LockKind::Unlock {
            self.adopt_those_gone(cx);
            found = look()?;
        }
        Ok(found.map(|held| held.as_lock()))
    }

    /// Drops the record locks of this process on a node (at any close of it).
    pub fn drop_process_locks(&self, cx: &Cx, node: Node) {
        if !self.has_locks(node.id) {
            return;
        }
        let Ok(process) = self.own_process() else { return };
        self.with_table(cx, || self.drop_process_locks_on(node.id, process));
    }

    /// Drops the locks of a description that ends.
    pub(crate) fn drop_locks_of_description(&self, cx: &Cx, id: DescriptionId, node: u64) {
        let locks = &self.description(id).locks;
        if locks.load(SeqCst) & !TOLD != 0 {
            self.with_table(cx, || self.drop_locks_of_open_file(id, node));
            locks.fetch_and(TOLD, SeqCst);
        }
    }

    /// Drops the locks of a process that ends.
    pub(crate) fn drop_locks_of_process(&self, cx: &Cx, process: u32) {
        if !self.any_lock() {
            return;
        }
        if self.has_lost() {
            // Taking the table is enough.
            self.with_table(cx, || ());
        }
        for chain in (0..CHAINS).filter(|chain| self.has_chain(*chain)) {
            self.with_table(cx, || self.drop_locks_of_process_in(chain, process));
        }
    }

    /// Runs with the table, if that can be had.
    fn with_table(&self, cx: &Cx, run: impl FnOnce()) {
        let Ok(mut tx) = self.begin(cx, Kind::SetAttr) else { return };
        if self.lock_table(&mut tx).is_ok() {
            run();
        }
    }

    fn lock_table<'a>(&'a self, tx: &mut Tx<'a>) -> Result<()> {
        tx.lock(&self.header().advisory.0)?;
        self.free_lost()
    }

    fn wanted(&self, node: Node, lock: &Lock) -> Result<HeldLock> {
        let process = self.own_process()?;
        let pid = self.process_slot(process).map_or(0, |slot| slot.pid.load(Relaxed));
        Ok(HeldLock::wanted(node.id, lock, process, pid))
    }
}

impl Locks for Fs {
    const ENTRIES: u32 = ADVISORY_LOCKS;

    #[inline(always)]
    fn lock_entries(&self) -> u32 {
        self.header().locks_high.get()
    }

    fn lock_entry(&self, number: u32) -> Option<&LockEntry> {
        if number >= self.lock_entries() {
            return None;
        }
        self.segment.at(self.areas.advisory + u64::from(number) * size_of::<LockEntry>() as u64)
    }

    fn more_lock_entries(&self) -> Result<()> {
        let high = self.lock_entries();
        if high >= ADVISORY_LOCKS {
            return Err(Errno::ENOLCK.into());
        }
        let size = size_of::<LockEntry>() as u64;
        let space = self.segment_space(self.areas.advisory + u64::from(high) * size, u64::from(STEP) * size);
        space.map_err(|_| Errno::ENOLCK)?;
        self.header().locks_high.raise(high + STEP);
        Ok(())
    }

    fn open_file(&self, id: DescriptionId) -> &OpenFile {
        self.description(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{Kind, LockOwner, NewNode};
    use openfiles::chain_of;
    use std::vec::Vec;

    fn lock(owner: LockOwner, kind: LockKind, start: u64, end: u64) -> Lock {
        Lock { kind, owner, through: None, start, end, pid: 0 }
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
        assert_eq!((owners.map(ask), test.count_locks()), ([Err(Errno::EBADF); 2], 0));
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
            test.add_lock(&test.wanted(node, &exclusive(owner(ended))).unwrap()).unwrap();
            drop(tx);
            let wanted = exclusive(owner(other));
            assert!(test.conflicting_lock(&cx, node, &wanted).unwrap().is_some());
            test.drop_locks_of_process(&cx, 77);
            assert_eq!(test.count_locks(), 1);
            test.advisory_lock(&cx, node, &lock(owner(other), LockKind::Unlock, 0, 30)).unwrap();
        }
        assert_eq!(test.count_locks(), 0);
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
        assert_eq!((test.count_locks(), half_way.load(Relaxed)), (1, 0));
        let lost = test.lock_entry(chained).unwrap();
        lost.restore(node.id);
        half_way.store(chained + 1, Relaxed);
        test.drop_locks_of_process(&cx, 77);
        assert_eq!((test.count_locks(), half_way.load(Relaxed)), (1, 0));
        set(LockKind::Unlock);
        assert_eq!((test.count_locks(), half_way.load(Relaxed)), (0, 0));
    }
}
