//! Advisory locks of [`Cached`]: the session's, or the lower file system's where it keeps them itself.
//!
//! `flock` is the lower file system's alone then. Record and OFD locks stand in the session's table as well: daemons
//! that lock files of the kernel's (`bindfs`) have one owner for all, and would give the session's programs the same range
//! twice; and the table tells of circles of waiters. What another of the session has is refused; else the lower file
//! system is asked, and what it gives is noted.

use super::{Cached, posix};
use crate::backend::AdvisoryLocks;
use crate::*;
use core::sync::atomic::Ordering::Relaxed;
use openfiles::{Processes, is_refused, owner_word};
use session::LowerFs;

impl<S: LowerFs> Cached<S> {
    /// The open file and the owner's number, if the lower file system is to be asked: of files, as in the kernel.
    fn kept_below(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<(DescriptionId, u64)>> {
        let Some(id) = lock.through else { return Ok(None) };
        let is_flock = matches!(lock.owner, LockOwner::Flock(_));
        if !self.lower.keeps_locks(is_flock) || self.session.get(node)?.kind() != Kind::Regular {
            return Ok(None);
        }
        Ok(Some((id, owner_word(lock.owner, self.files().lock_owner(cx)?))))
    }

    fn lock_below(&self, cx: &Cx, node: Node, (id, owner): (DescriptionId, u64), lock: &Lock) -> Result<()> {
        if matches!(lock.owner, LockOwner::Flock(_)) {
            return self.lower.lock(&self.session, cx, (node, id), owner, lock);
        }
        if lock.kind != LockKind::Unlock && self.files().conflicting_lock(cx, node, lock)?.is_some() {
            return posix(Errno::EAGAIN);
        }
        self.lower.lock(&self.session, cx, (node, id), owner, lock)?;
        self.files().lock(cx, node, lock).inspect_err(|_| {
            // Another of the session was quicker, where the lower file system sees no difference; or the table is full.
            let undo = Lock { kind: LockKind::Unlock, ..*lock };
            let _ = self.lower.lock(&self.session, cx, (node, id), owner, &undo);
        })
    }
}

impl<S: LowerFs> AdvisoryLocks for Cached<S> {
    fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        let Some(by) = self.kept_below(cx, node, lock)? else { return self.files().lock(cx, node, lock) };
        let result = self.lock_below(cx, node, by, lock);
        if !is_refused(&result) {
            return result;
        }
        // Perhaps the holder is dead.
        self.files().adopt_dead_processes(cx);
        self.lock_below(cx, node, by, lock)
    }

    fn lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        let Some(by) = self.kept_below(cx, node, lock)? else { return self.files().lock_waiting(cx, node, lock, since) };
        self.files().adopt_those_gone(cx);
        let result = self.lock_below(cx, node, by, lock);
        if is_refused(&result) && !matches!(lock.owner, LockOwner::Flock(_)) {
            self.files().still_waiting(cx, node, lock, since)?;
        }
        result
    }

    fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        let known = self.files().conflicting_lock(cx, node, lock)?;
        // What is an owner's own stands in the table.
        let by = if lock.kind == LockKind::Unlock { None } else { self.kept_below(cx, node, lock)? };
        let Some((id, owner)) = by.filter(|_| known.is_none()) else { return Ok(known) };
        self.lower.conflicting_lock(&self.session, cx, (node, id), owner, lock)
    }

    fn drop_process_locks(&self, cx: &Cx, node: Node) {
        self.files().drop_process_locks(node);
        if self.session.has_lock_handles()
            && let Ok(process) = self.files().own_slot()
        {
            for id in self.session.with_records(node, process) {
                self.unlock_of(cx, id, process);
            }
        }
    }
}

impl<S: LowerFs> Cached<S> {
    /// A process gives up the record locks that it has by an open file.
    pub(super) fn unlock_of(&self, cx: &Cx, id: DescriptionId, process: u32) {
        let node = self.node_of(id);
        self.lower.unlock_records(&self.session, cx, (node, id), owner_word(LockOwner::Process, process));
    }

    /// What an open file stands for.
    pub(super) fn node_of(&self, id: DescriptionId) -> Node {
        let description = self.session.description(id);
        Node { id: description.node.load(Relaxed), hint: description.hint.load(Relaxed) }
    }
}
