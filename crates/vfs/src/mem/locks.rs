//! Advisory locks: a list of ranges per node.

use super::{State, posix};
use crate::*;
use alloc::vec::Vec;

/// `flock` and record locks do not see one another.
fn same_world(a: LockOwner, b: LockOwner) -> bool {
    matches!(a, LockOwner::Flock(_)) == matches!(b, LockOwner::Flock(_))
}

impl State {
    pub fn conflict(&self, node: u64, lock: &Lock) -> Option<Lock> {
        let held = self.locks.get(&node)?;
        let first = held.iter().filter(|h| h.start < lock.end && lock.start < h.end).filter(|h| match lock.kind {
            LockKind::Unlock => h.owner == lock.owner,
            kind => {
                h.owner != lock.owner
                    && same_world(h.owner, lock.owner)
                    && (h.kind == LockKind::Exclusive || kind == LockKind::Exclusive)
            }
        });
        first.min_by_key(|h| h.start).copied()
    }

    pub fn lock(&mut self, node: u64, lock: &Lock) -> Result<()> {
        let refused = lock.kind != LockKind::Unlock && self.conflict(node, lock).is_some();
        // Changing a flock drops the old one first: a refused change has lost it.
        if refused && !matches!(lock.owner, LockOwner::Flock(_)) {
            return posix(Errno::EAGAIN);
        }
        let held = self.locks.entry(node).or_default();
        let mut next = Vec::new();
        for old in held.drain(..) {
            if old.owner != lock.owner || old.end <= lock.start || lock.end <= old.start {
                next.push(old);
                continue;
            }
            if old.start < lock.start {
                next.push(Lock { end: lock.start, ..old });
            }
            if old.end > lock.end {
                next.push(Lock { start: lock.end, ..old });
            }
        }
        if refused {
            *held = next;
            return posix(Errno::EAGAIN);
        }
        if lock.kind != LockKind::Unlock {
            next.push(Lock { pid: holder(lock.owner), ..*lock });
        }
        next.sort_by_key(|l| l.start);
        // Neighbours of one owner and kind are one lock.
        let mut merged: Vec<Lock> = Vec::new();
        for one in next {
            match merged.iter_mut().find(|m| m.owner == one.owner && m.kind == one.kind && m.end == one.start) {
                Some(before) => before.end = one.end,
                None => merged.push(one),
            }
        }
        *held = merged;
        Ok(())
    }

    pub fn drop_locks(&mut self, node: u64, whose: impl Fn(LockOwner) -> bool) {
        if let Some(held) = self.locks.get_mut(&node) {
            held.retain(|l| !whose(l.owner));
        }
    }
}

fn holder(owner: LockOwner) -> i32 {
    match owner {
        // SAFETY: takes no arguments.
        LockOwner::Process => unsafe { pm::sys::raw(pm::sys::abi::__NR_getpid as usize, [0; 6]) as i32 },
        _ => -1,
    }
}
