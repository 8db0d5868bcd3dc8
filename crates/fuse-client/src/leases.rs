//! Leases: what a session as a whole has locked at the daemon, where a cache image in front of it keeps the session's
//! programs apart.
//!
//! The daemon sees one owner, and one handle for each file, which was looked up and opened for that alone: it lasts
//! while nobody has the file open here. As long as there is one, other handles of the file are not released: a daemon that locks
//! records of the kernel's files (`bindfs`) loses all that it has of a file when it closes any. A daemon that was started again knows none of it: the lease is lost then, until
//! whoever had locks by it has given them up.

use super::call::Message;
use super::locks::{message, parse};
use super::protocol::*;
use super::{FuseClient, Key, posix};
use base::{Cx, Errno, Error, Lock, LockKind, LockOwner, Node, Result};
use pm::sys::abi;
use session::lock_handles::NOT_OPENED;
use session::{Lease, LockHandle, LowerLeases, SessionCache};

/// The one owner.
const OWNER: u64 = 1;

impl LowerLeases for FuseClient {
    fn begin(&self, s: &SessionCache, cx: &Cx, (dir, name, node): (Node, &[u8], Node), file: u64) -> Result<()> {
        if let Some(lease) = s.lease(file) {
            return if lease.handle.incarnation == self.ring.incarnation() { Ok(()) } else { posix(Errno::EIO) };
        }
        let entry = self.ask_entry(cx, LOOKUP, self.key(s, cx, dir)?, [name, b"\0", b""])?;
        let key = Key { id: entry.key, incarnation: entry.incarnation };
        let (handle, bits) = self.open_for_locks(cx, key).inspect_err(|_| self.forget_lookup(s, key))?;
        let handle = LockHandle { handle, incarnation: key.incarnation, bits };
        s.put_lease(&Lease { file, key: key.id, node: node.id, handle }).inspect_err(|_| {
            if bits & NOT_OPENED == 0 {
                self.release_handle(cx, key, handle.handle, false);
            }
            self.forget_lookup(s, key);
        })
    }

    fn lock(&self, s: &SessionCache, cx: &Cx, file: u64, lock: &Lock) -> Result<()> {
        let (lease, key) = self.lease_of(s, file)?;
        self.ask_nothing(cx, SETLK, key, [message(lease.handle.handle, OWNER, lock).bytes(), b"", b""])
    }

    fn conflicting_lock(&self, s: &SessionCache, cx: &Cx, file: u64, lock: &Lock) -> Result<Option<Lock>> {
        let (lease, key) = self.lease_of(s, file)?;
        let mut reply = [0u8; 24];
        self.ask_exact(cx, GETLK, key, [message(lease.handle.handle, OWNER, lock).bytes(), b"", b""], &mut reply)?;
        parse(&reply, lock)
    }

    fn end(&self, s: &SessionCache, cx: &Cx, file: u64) {
        let Some(lease) = s.take_lease(file) else { return };
        let (handle, key) = (lease.handle, Key { id: lease.key, incarnation: lease.handle.incarnation });
        if key.incarnation != self.ring.incarnation() {
            return;
        }
        let all = |owner| Lock { kind: LockKind::Unlock, owner, through: None, start: 0, end: u64::MAX, pid: 0 };
        for (is_flock, owner) in [(false, LockOwner::Process), (true, LockOwner::Flock(0))] {
            if self.passes_locks(is_flock) {
                let unlock = message(handle.handle, OWNER, &all(owner));
                let _ = self.ask_nothing(cx, SETLK, key, [unlock.bytes(), b"", b""]);
            }
        }
        if handle.bits & NOT_OPENED == 0 {
            self.release_handle(cx, key, handle.handle, false);
        }
        let node = Node { id: lease.node, hint: 0 };
        let _ = s.alone(node, || {
            self.release_handles(s, cx, node, 1);
            Ok(())
        });
        self.forget_lookup(s, key);
    }

    fn is_lost(&self, s: &SessionCache, file: u64) -> bool {
        s.lease(file).is_some_and(|lease| lease.handle.incarnation != self.ring.incarnation())
    }
}

impl FuseClient {
    /// Opens a file to lock it: to read and write, as long as that is allowed, since the kind of lock may depend on it.
    fn open_for_locks(&self, cx: &Cx, key: Key) -> Result<(u64, u32)> {
        let ask = |access: u32| {
            let mut open = Message::new();
            open.word32(access | LARGEFILE).word32(0);
            let mut reply = [0u8; 16];
            self.ask_exact(cx, OPEN, key, [open.bytes(), b"", b""], &mut reply).map(|()| word64(&reply, 0))
        };
        let opened = match ask(abi::O_RDWR) {
            Err(Error::Posix(Errno::EACCES | Errno::EPERM | Errno::EROFS)) => ask(abi::O_RDONLY),
            opened => opened,
        };
        match opened {
            Err(Error::Posix(Errno::ENOSYS)) => Ok((0, NOT_OPENED)),
            opened => Ok((opened?, 0)),
        }
    }

    fn forget_lookup(&self, s: &SessionCache, key: Key) {
        session::LowerFs::forget(self, s, key.id, 1, key.incarnation);
    }

    /// The lease of a file and its key, unless it is lost.
    fn lease_of(&self, s: &SessionCache, file: u64) -> Result<(Lease, Key)> {
        let lease = s.lease(file).ok_or(Error::Posix(Errno::EIO))?;
        let key = Key { id: lease.key, incarnation: lease.handle.incarnation };
        if key.incarnation == self.ring.incarnation() { Ok((lease, key)) } else { posix(Errno::EIO) }
    }
}
