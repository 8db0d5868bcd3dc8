//! Advisory locks. They are in the image's one table, so both ways see them.
//!
//! The kernel names owners of record locks and OFD locks by a number of its
//! own; each gets one of ours while it holds a lock. Its locks on a file go
//! when it closes any descriptor of it (`FLUSH`), and, since OFD locks know no
//! `FLUSH`, with the handle through which they were taken. `flock` locks belong
//! to the description behind the handle.
//!
//! A request that waits is kept in a list. A thread tries them again, because
//! who holds the lock may be a process on the direct path that knows nothing of
//! us; an `INTERRUPT` takes one off.

use super::abi::{InterruptIn, LOCK_FLOCK, LockIn, LockOut, op};
use super::contents::Sent;
use super::message::{Body, Reply, Result, err};
use super::{Call, Done, Later, Worker};
use base::{Cred, Cx, Lock, LockKind, LockOwner, Node};
use pm::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vfs::Backend;

/// Kinds of locks, as `struct flock` has them.
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;
/// Numbers of owners: 24 bits.
const OWNERS_MAX: u32 = 1 << 24;
/// Pauses between two attempts for waiting requests.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// A request that waits for its lock.
struct Waiting {
    unique: u64,
    node: Node,
    lock: Lock,
    /// Since when ([`openfiles::moment`]).
    since: u32,
}

/// Owners that hold, or may hold, record locks.
#[derive(Default)]
struct Owners {
    numbers: HashMap<u64, u32>,
    /// Files each has locked.
    files: HashMap<u64, HashSet<u64>>,
    /// Owners that have locked through a handle.
    handles: HashMap<u64, HashSet<u64>>,
    free: Vec<u32>,
    next: u32,
}

/// All about locks.
pub(super) struct Locks {
    owners: Mutex<Owners>,
    waiting: Mutex<Vec<Waiting>>,
    changed: Condvar,
    pub(super) later: Later,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owners {
    /// Our number for an owner that is about to lock `file` through `handle`.
    fn number(&mut self, owner: u64, file: u64, handle: u64) -> Result<u32> {
        let number = match self.numbers.get(&owner) {
            Some(number) => *number,
            None => match self.free.pop() {
                Some(number) => number,
                None if self.next < OWNERS_MAX => {
                    self.next += 1;
                    self.next - 1
                }
                None => return err(Errno::ENOLCK),
            },
        };
        self.numbers.insert(owner, number);
        self.files.entry(owner).or_default().insert(file);
        self.handles.entry(handle).or_default().insert(owner);
        Ok(number)
    }

    /// An owner holds nothing on `file` any more; its number, if it could have.
    fn leaves(&mut self, owner: u64, file: u64) -> Option<u32> {
        let files = self.files.get_mut(&owner)?;
        if !files.remove(&file) {
            return None;
        }
        let number = self.numbers.get(&owner).copied();
        if files.is_empty() {
            self.files.remove(&owner);
            self.numbers.remove(&owner);
        }
        number
    }

    /// A number may be given to another owner, if nobody has it.
    fn give_back(&mut self, number: u32) {
        if !self.numbers.values().any(|used| *used == number) {
            self.free.push(number);
        }
    }
}

impl Locks {
    pub(super) fn new(later: Later) -> Locks {
        Locks { owners: Mutex::default(), waiting: Mutex::default(), changed: Condvar::new(), later }
    }

    /// Tries waiting requests again and again, until `stop`.
    pub(super) fn run(&self, backend: &dyn Backend, worker: &Worker, stop: &AtomicBool) {
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &worker.thread };
        let mut pause = PAUSE_MIN;
        let mut waiting = locked(&self.waiting);
        while !stop.load(Relaxed) {
            let before = waiting.len();
            waiting.retain(|request| !self.attempt(backend, &cx, request));
            // Locks come back in their own time: look often at first.
            pause = if waiting.len() < before { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            let wait = if waiting.is_empty() { Duration::from_secs(1) } else { pause };
            waiting = self.changed.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a request has been answered.
    fn attempt(&self, backend: &dyn Backend, cx: &Cx, request: &Waiting) -> bool {
        let result = backend.lock_waiting(cx, request.node, &request.lock, request.since);
        if result.is_err_and(|error| error.errno() == Errno::EAGAIN) {
            return false;
        }
        (self.later)(Reply::new().finish(request.unique, result));
        true
    }

    /// Wakes whoever looks after waiting requests.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }
}

impl Call<'_> {
    /// The lock that is asked for.
    fn lock(&self, asked: &LockIn) -> Result<Lock> {
        let kind = match asked.kind {
            READ => LockKind::Shared,
            WRITE => LockKind::Exclusive,
            UNLOCK => LockKind::Unlock,
            _ => return err(Errno::EINVAL),
        };
        let owner = if asked.flags & LOCK_FLOCK != 0 {
            LockOwner::Flock(self.fuse.handles.description(asked.handle)?)
        } else {
            LockOwner::Served(locked(&self.fuse.locks.owners).number(asked.owner, self.node().id, asked.handle)?)
        };
        // The last byte there can be stands for all that follow.
        let end = if asked.end >= i64::MAX as u64 { u64::MAX } else { asked.end + 1 };
        if asked.start >= end {
            return err(Errno::EINVAL);
        }
        Ok(Lock { kind, owner, through: None, start: asked.start, end, pid: asked.pid as i32 })
    }

    pub(super) fn get_lock(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: LockIn = body.take()?;
        let wanted = self.lock(&asked)?;
        let found = self.backend().conflicting_lock(&self.cx, self.node(), &wanted)?;
        reply.put(&match found {
            None => LockOut { kind: UNLOCK, start: asked.start, end: asked.end, pid: 0 },
            Some(held) => LockOut {
                start: held.start,
                end: if held.end == u64::MAX { i64::MAX as u64 } else { held.end - 1 },
                kind: if held.kind == LockKind::Shared { READ } else { WRITE },
                pid: held.pid as u32,
            },
        });
        Ok(())
    }

    pub(super) fn set_lock(&self, mut body: Body, wait: bool) -> Result<Done> {
        let lock = self.lock(&body.take()?)?;
        let result = self.backend().lock(&self.cx, self.node(), &lock);
        if lock.kind == LockKind::Unlock {
            self.fuse.locks.wake();
        }
        match result {
            Err(error) if wait && error.errno() == Errno::EAGAIN => {
                let request = Waiting { unique: self.header.unique, node: self.node(), lock, since: openfiles::moment() };
                locked(&self.fuse.locks.waiting).push(request);
                self.fuse.locks.wake();
                Ok(Done::Silent)
            }
            result => result.map(|()| Done::Answered(Sent::Now)),
        }
    }

    /// A request that waits for an advisory lock is given up; one that a thread is at, if its caller is about to end
    /// (`pool`). One that nobody is at (yet): the kernel asks again.
    pub(super) fn interrupt(&self, mut body: Body) -> Result<Done> {
        let asked: InterruptIn = body.take()?;
        let mut waiting = locked(&self.fuse.locks.waiting);
        let Some(at) = waiting.iter().position(|request| request.unique == asked.unique) else {
            return if self.fuse.pool.interrupt(asked.unique) { Ok(Done::Silent) } else { err(Errno::EAGAIN) };
        };
        waiting.swap_remove(at);
        drop(waiting);
        (self.fuse.locks.later)(Reply::new().finish(asked.unique, err(Errno::EINTR)));
        Ok(Done::Silent)
    }

    /// An owner gives up what it has locked of the file.
    pub(super) fn drop_owner(&self, owner: u64) {
        debug_assert!(matches!(self.header.opcode, op::FLUSH | op::RELEASE | op::RELEASEDIR));
        let node = self.node();
        let mut owners = locked(&self.fuse.locks.owners);
        let Some(number) = owners.leaves(owner, node.id) else { return };
        let all =
            Lock { kind: LockKind::Unlock, owner: LockOwner::Served(number), through: None, start: 0, end: u64::MAX, pid: 0 };
        let _ = self.backend().lock(&self.cx, node, &all);
        owners.give_back(number);
        drop(owners);
        self.fuse.locks.wake();
    }

    /// It closes a descriptor of the handle. It may open the file again and lock
    /// it before the handle is released: that lock is not the handle's.
    pub(super) fn drop_owner_of(&self, handle: u64, owner: u64) {
        if let Some(owners) = locked(&self.fuse.locks.owners).handles.get_mut(&handle) {
            owners.remove(&owner);
        }
        self.drop_owner(owner);
    }

    /// So do all that have locked through this handle.
    pub(super) fn drop_owners_of(&self, handle: u64) {
        let owners = locked(&self.fuse.locks.owners).handles.remove(&handle);
        for owner in owners.into_iter().flatten() {
            self.drop_owner(owner);
        }
        self.fuse.locks.wake();
    }
}
