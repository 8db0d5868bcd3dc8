//! Advisory locks, local to the session: the lower file systems know nothing of them.

use super::{Guard, LOCKS, LOCKS_AT, SessionCache, damaged};
use base::{Errno, Error, Lock, LockKind, LockOwner, Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::host;
use zerocopy::{FromBytes, KnownLayout};

const PROCESS: u32 = 1;
const DESCRIPTION: u32 = 2;
const FLOCK: u32 = 3;

/// A lock on `start..end` of a file.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub(super) struct LockSlot {
    /// 0: free; else one of the above.
    owner_kind: AtomicU32,
    /// PID or description.
    owner: AtomicU32,
    pid: AtomicU32,
    exclusive: AtomicU32,
    key: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    reserved: AtomicU64,
}

fn owner(lock: &Lock) -> (u32, u32) {
    match lock.owner {
        LockOwner::Process => (PROCESS, host::own_pid_cached()),
        LockOwner::Description(id) => (DESCRIPTION, id),
        LockOwner::Flock(id) => (FLOCK, id),
        // Only images are served.
        LockOwner::Served(owner) => (DESCRIPTION, owner),
    }
}

impl LockSlot {
    fn is_owned_by(&self, owner: (u32, u32)) -> bool {
        (self.owner_kind.load(Relaxed), self.owner.load(Relaxed)) == owner
    }

    /// Whether the two are of kinds that see one another and overlap on one file.
    fn meets(&self, key: u64, lock: &Lock, flock: bool) -> bool {
        let kind = self.owner_kind.load(Relaxed);
        kind != 0
            && (kind == FLOCK) == flock
            && self.key.load(Relaxed) == key
            && self.start.load(Relaxed) < lock.end
            && lock.start < self.end.load(Relaxed)
    }

    fn set(&self, key: u64, owner: (u32, u32), exclusive: bool, start: u64, end: u64) {
        self.key.store(key, Relaxed);
        self.owner.store(owner.1, Relaxed);
        self.pid.store(host::own_pid_cached(), Relaxed);
        self.exclusive.store(u32::from(exclusive), Relaxed);
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.owner_kind.store(owner.0, Relaxed);
    }
}

impl SessionCache {
    fn lock_slot(&self, index: u32) -> Option<&LockSlot> {
        self.region.at(LOCKS_AT + u64::from(index) * size_of::<LockSlot>() as u64)
    }

    fn lock_slots(&self) -> impl Iterator<Item = &LockSlot> {
        (0..self.header().locks_high.load(Relaxed).min(LOCKS)).filter_map(|index| self.lock_slot(index))
    }

    fn free_lock(&self, _: &Guard) -> Result<&LockSlot> {
        if let Some(free) = self.lock_slots().find(|slot| slot.owner_kind.load(Relaxed) == 0) {
            return Ok(free);
        }
        let high = self.header().locks_high.load(Relaxed);
        if high >= LOCKS {
            return Err(Error::Posix(Errno::ENOLCK));
        }
        self.header().locks_high.store(high + 1, Relaxed);
        match self.lock_slot(high) {
            Some(slot) => Ok(slot),
            None => damaged(),
        }
    }

    fn conflict(&self, _: &Guard, key: u64, lock: &Lock) -> Option<&LockSlot> {
        let (own, flock) = (owner(lock), matches!(lock.owner, LockOwner::Flock(_)));
        self.lock_slots().find(|slot| {
            let wants = lock.kind == LockKind::Exclusive || slot.exclusive.load(Relaxed) != 0;
            wants && slot.meets(key, lock, flock) && !slot.is_owned_by(own)
        })
    }

    /// Sets or clears a lock; `EAGAIN` if another holds a conflicting one.
    pub fn set_lock(&self, node: Node, lock: &Lock) -> Result<()> {
        let guard = self.lock();
        let key = self.get(node)?.key.load(Relaxed);
        if lock.kind != LockKind::Unlock && self.conflict(&guard, key, lock).is_some() {
            return Err(Error::Posix(Errno::EAGAIN));
        }
        let (own, flock) = (owner(lock), matches!(lock.owner, LockOwner::Flock(_)));
        // Whatever of its own locks the range covers goes; what sticks out stays.
        for index in 0..self.header().locks_high.load(Relaxed).min(LOCKS) {
            let Some(slot) = self.lock_slot(index) else { continue };
            if !slot.meets(key, lock, flock) || !slot.is_owned_by(own) {
                continue;
            }
            let (start, end) = (slot.start.load(Relaxed), slot.end.load(Relaxed));
            let exclusive = slot.exclusive.load(Relaxed) != 0;
            match (start < lock.start, lock.end < end) {
                (false, false) => slot.owner_kind.store(0, Relaxed),
                (true, false) => slot.end.store(lock.start, Relaxed),
                (false, true) => slot.start.store(lock.end, Relaxed),
                (true, true) => {
                    self.free_lock(&guard)?.set(key, own, exclusive, lock.end, end);
                    slot.end.store(lock.start, Relaxed);
                }
            }
        }
        if lock.kind != LockKind::Unlock {
            self.free_lock(&guard)?.set(key, own, lock.kind == LockKind::Exclusive, lock.start, lock.end);
        }
        self.header().locks_used.store(1, Release);
        Ok(())
    }

    /// See `Backend::conflicting_lock`.
    pub fn conflicting_lock(&self, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let guard = self.lock();
        let key = self.get(node)?.key.load(Relaxed);
        let own = owner(lock);
        let found = if lock.kind == LockKind::Unlock {
            let flock = own.0 == FLOCK;
            self.lock_slots().find(|slot| slot.meets(key, lock, flock) && slot.is_owned_by(own))
        } else {
            self.conflict(&guard, key, lock)
        };
        Ok(found.map(|slot| {
            let id = slot.owner.load(Relaxed);
            let (owner, pid) = match slot.owner_kind.load(Relaxed) {
                PROCESS => (LockOwner::Process, slot.pid.load(Relaxed) as i32),
                DESCRIPTION => (LockOwner::Description(id), -1),
                _ => (LockOwner::Flock(id), slot.pid.load(Relaxed) as i32),
            };
            let kind = if slot.exclusive.load(Relaxed) != 0 { LockKind::Exclusive } else { LockKind::Shared };
            Lock { kind, owner, start: slot.start.load(Relaxed), end: slot.end.load(Relaxed), pid }
        }))
    }

    fn drop_locks(&self, drop: impl Fn(&LockSlot) -> bool) {
        if self.header().locks_used.load(Acquire) == 0 {
            return;
        }
        let _guard = self.lock();
        self.lock_slots().filter(|slot| drop(slot)).for_each(|slot| slot.owner_kind.store(0, Relaxed));
    }

    /// Drops this process's record locks on a node.
    pub fn drop_process_locks(&self, node: Node) {
        let Ok(key) = self.get(node).map(|record| record.key.load(Relaxed)) else { return };
        let own = (PROCESS, host::own_pid_cached());
        self.drop_locks(|slot| slot.is_owned_by(own) && slot.key.load(Relaxed) == key);
    }

    /// A description ended: its locks go.
    pub fn drop_description_locks(&self, id: u32) {
        self.drop_locks(|slot| slot.is_owned_by((DESCRIPTION, id)) || slot.is_owned_by((FLOCK, id)));
    }

    pub(super) fn drop_dead_locks(&self) {
        self.drop_locks(|slot| slot.owner_kind.load(Relaxed) == PROCESS && !host::is_alive(slot.owner.load(Relaxed)));
    }
}
