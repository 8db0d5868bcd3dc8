//! Advisory locks that the daemon keeps: it has said so (`FUSE_POSIX_LOCKS`, `FUSE_FLOCK_LOCKS`).
//!
//! As the kernel has it, nothing of them is known here: the daemon decides who excludes whom, also within the session. An open
//! file is known to it by a handle of its own ([`session::lock_handles`]), an owner by a number of ours. Record locks go by
//! a `FLUSH` in their owner's name, `flock` with its handle. OFD locks, which the kernel leaves to the handle's end, are
//! given up by name before that: a daemon that goes by owners would keep them.

use super::call::{FLOCK_LOCKS, Message, POSIX_LOCKS};
use super::protocol::*;
use super::{FuseClient, Key, posix};
use base::{Cx, DescriptionId, Errno, Error, Lock, LockKind, LockOwner, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use pm::host;
use pm::sys::abi;
use session::SessionCache;
use session::lock_handles::{FLOCK, LOST_FLOCK, LOST_RECORDS, LockHandle, NOT_OPENED, OFD, owner_word};

/// `FUSE_LK_FLOCK`.
const LK_FLOCK: u32 = 1;
/// `FUSE_RELEASE_FLOCK_UNLOCK`.
const RELEASE_FLOCK_UNLOCK: u32 = 2;
/// The last byte there can be: it and all that follow.
const LAST: u64 = i64::MAX as u64;
const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

/// `struct fuse_lk_in`.
pub(super) fn message(handle: u64, owner: u64, lock: &Lock) -> Message {
    let kind = match lock.kind {
        LockKind::Shared => F_RDLCK,
        LockKind::Exclusive => F_WRLCK,
        LockKind::Unlock => F_UNLCK,
    };
    let is_flock = matches!(lock.owner, LockOwner::Flock(_));
    let last = if lock.end > LAST { LAST } else { lock.end.saturating_sub(1) };
    let mut message = Message::new();
    message.word64(handle).word64(owner).word64(lock.start).word64(last).word32(kind).word32(host::own_pid_cached());
    message.word32(if is_flock { LK_FLOCK } else { 0 }).word32(0);
    message
}

/// `struct fuse_lk_out`.
pub(super) fn parse(reply: &[u8; 24], asked: &Lock) -> Result<Option<Lock>> {
    let (start, last) = (word64(reply, 0), word64(reply, 8));
    let kind = match word32(reply, 16) {
        F_RDLCK => LockKind::Shared,
        F_WRLCK => LockKind::Exclusive,
        F_UNLCK => return Ok(None),
        _ => return posix(Errno::EIO),
    };
    if start > last || last > LAST {
        return posix(Errno::EIO);
    }
    let end = if last == LAST { u64::MAX } else { last + 1 };
    Ok(Some(Lock { kind, start, end, pid: word32(reply, 20) as i32, ..*asked }))
}

impl FuseClient {
    /// Whether the daemon keeps locks of a kind.
    pub(super) fn passes_locks(&self, flock: bool) -> bool {
        let wanted = if flock { FLOCK_LOCKS } else { POSIX_LOCKS };
        self.ring.header().is_ok_and(|header| header.agreed.load(Relaxed) & wanted != 0)
    }

    /// The open file's own handle, of its key's incarnation; opened if there is none.
    fn lock_handle(&self, s: &SessionCache, cx: &Cx, id: DescriptionId, key: Key) -> Result<u64> {
        let known = || s.lock_handle(id).filter(|known| known.incarnation == key.incarnation);
        if let Some(known) = known() {
            return Ok(known.handle);
        }
        let access = s.description(id).flags.load(Relaxed) & abi::O_ACCMODE;
        let mut open = Message::new();
        open.word32(access | LARGEFILE).word32(0);
        let mut reply = [0u8; 16];
        let (handle, bits) = match self.ask_exact(cx, OPEN, key, [open.bytes(), b"", b""], &mut reply) {
            Ok(()) => (word64(&reply, 0), 0),
            Err(Error::Posix(Errno::ENOSYS)) => (0, NOT_OPENED),
            Err(error) => return Err(error),
        };
        let put = s.put_lock_handle(id, &LockHandle { handle, incarnation: key.incarnation, bits });
        if !matches!(put, Ok(true)) && bits == 0 {
            self.release_handle(cx, key, handle, false);
        }
        put?;
        known().map(|known| known.handle).ok_or(Error::Posix(Errno::ENOTCONN))
    }

    /// See [`session::LowerFs::lock`].
    pub(super) fn set_lock(
        &self,
        s: &SessionCache,
        cx: &Cx,
        (node, id): (Node, DescriptionId),
        owner: u64,
        lock: &Lock,
    ) -> Result<()> {
        let is_records = lock.owner == LockOwner::Process;
        if lock.kind == LockKind::Unlock && !is_records && s.lock_handle(id).is_none() {
            return Ok(());
        }
        let key = self.key(s, cx, node)?;
        if lock.kind == LockKind::Unlock && s.lock_handle(id).is_some_and(|known| known.incarnation != key.incarnation) {
            self.give_up_lost(s, (node, id), owner, lock);
            return Ok(());
        }
        self.locks_must_last(s, node)?;
        let handle = self.lock_handle(s, cx, id, key)?;
        // First: who ends it from here on gives up what is asked for.
        match lock.owner {
            LockOwner::Flock(_) => s.note_lock(id, FLOCK),
            LockOwner::Description(_) => s.note_lock(id, OFD),
            LockOwner::Process | LockOwner::Served(_) => s.note_records(id, owner as u32),
        }
        let is_flock = matches!(lock.owner, LockOwner::Flock(_));
        if is_flock && lock.kind == LockKind::Unlock {
            s.note_flock(id, false);
        }
        self.ask_nothing(cx, SETLK, key, [message(handle, owner, lock).bytes(), b"", b""])?;
        if is_flock && lock.kind != LockKind::Unlock {
            s.note_flock(id, true);
        }
        Ok(())
    }

    /// `EIO` while locks of a file that were had of an earlier incarnation of the daemon have not been given up: it knows
    /// none of them, so another may have had them since.
    pub(super) fn locks_must_last(&self, s: &SessionCache, node: Node) -> Result<()> {
        if s.has_lost_locks(node) { posix(Errno::EIO) } else { Ok(()) }
    }

    /// Locks that are lost are given up by their owner: all of a kind at once, since which ranges they were is not known any more.
    fn give_up_lost(&self, s: &SessionCache, (node, id): (Node, DescriptionId), owner: u64, lock: &Lock) {
        match lock.owner {
            LockOwner::Flock(_) => s.give_up_lost(id, LOST_FLOCK),
            _ if lock.start > 0 || lock.end < u64::MAX => {}
            LockOwner::Description(_) => s.give_up_lost(id, LOST_RECORDS),
            LockOwner::Process | LockOwner::Served(_) => {
                s.with_records(node, owner as u32).for_each(|id| s.give_up_lost(id, LOST_RECORDS));
            }
        }
    }

    /// See [`session::LowerFs::conflicting_lock`].
    pub(super) fn get_lock(
        &self,
        s: &SessionCache,
        cx: &Cx,
        (node, id): (Node, DescriptionId),
        owner: u64,
        lock: &Lock,
    ) -> Result<Option<Lock>> {
        let key = self.key(s, cx, node)?;
        let handle = self.lock_handle(s, cx, id, key)?;
        let mut reply = [0u8; 24];
        self.ask_exact(cx, GETLK, key, [message(handle, owner, lock).bytes(), b"", b""], &mut reply)?;
        parse(&reply, lock)
    }

    /// The open file's handle, if the daemon that has it still serves.
    fn key_of_handle(&self, s: &SessionCache, node: Node, handle: &LockHandle) -> Option<Key> {
        let key = Key { id: s.get(node).ok()?.key.load(Relaxed), incarnation: handle.incarnation };
        (handle.incarnation == self.ring.incarnation()).then_some(key)
    }

    /// See [`session::LowerFs::unlock_records`].
    pub(super) fn flush_owner(&self, s: &SessionCache, cx: &Cx, (node, id): (Node, DescriptionId), owner: u64) {
        let Some(handle) = s.lock_handle(id) else { return };
        let Some(key) = self.key_of_handle(s, node, &handle) else { return s.give_up_lost(id, LOST_RECORDS) };
        let mut flush = Message::new();
        flush.word64(handle.handle).word64(0).word64(owner);
        if let Err(Error::Posix(Errno::ENOSYS)) = self.ask_nothing(cx, FLUSH, key, [flush.bytes(), b"", b""]) {
            self.unlock_all(cx, key, handle.handle, owner, LockOwner::Process);
        }
    }

    fn unlock_all(&self, cx: &Cx, key: Key, handle: u64, word: u64, owner: LockOwner) {
        let all = Lock { kind: LockKind::Unlock, owner, through: None, start: 0, end: u64::MAX, pid: 0 };
        let _ = self.ask_nothing(cx, SETLK, key, [message(handle, word, &all).bytes(), b"", b""]);
    }

    /// See [`session::LowerFs::end_locks`].
    pub(super) fn release_lock_handle(&self, s: &SessionCache, cx: &Cx, (node, id): (Node, DescriptionId)) {
        let Some(handle) = s.take_lock_handle(id) else { return };
        let Some(key) = self.key_of_handle(s, node, &handle) else { return };
        let word = |owner| owner_word(owner, 0);
        if handle.bits & OFD != 0 {
            let owner = LockOwner::Description(id);
            self.unlock_all(cx, key, handle.handle, word(owner), owner);
        }
        let (flags, owner) = if handle.bits & FLOCK != 0 { (RELEASE_FLOCK_UNLOCK, word(LockOwner::Flock(id))) } else { (0, 0) };
        if handle.bits & NOT_OPENED == 0 {
            let mut release = Message::new();
            release.word64(handle.handle).word32(0).word32(flags).word64(owner);
            let _ = self.ask_nothing(cx, RELEASE, key, [release.bytes(), b"", b""]);
        } else if flags != 0 {
            self.unlock_all(cx, key, handle.handle, owner, LockOwner::Flock(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ranges mean the same on both sides, and what no lock can be is refused.
    #[test]
    fn ranges() {
        let asked = Lock { kind: LockKind::Exclusive, owner: LockOwner::Process, through: None, start: 5, end: u64::MAX, pid: 0 };
        let sent = message(1, 2, &asked);
        assert_eq!((word64(sent.bytes(), 16), word64(sent.bytes(), 24), sent.bytes().len()), (5, LAST, 48));
        assert_eq!(word64(message(1, 2, &Lock { end: 6, ..asked }).bytes(), 24), 5);
        let reply = |start: u64, last: u64, kind: u32| {
            let mut out = [0u8; 24];
            out[..8].copy_from_slice(&start.to_ne_bytes());
            out[8..16].copy_from_slice(&last.to_ne_bytes());
            out[16..20].copy_from_slice(&kind.to_ne_bytes());
            out[20] = 7;
            parse(&out, &asked)
        };
        assert_eq!(reply(0, LAST, F_UNLCK).unwrap(), None);
        let held = reply(3, 3, F_RDLCK).unwrap().unwrap();
        assert_eq!((held.kind, held.start, held.end, held.pid), (LockKind::Shared, 3, 4, 7));
        assert_eq!(reply(0, LAST, F_WRLCK).unwrap().unwrap().end, u64::MAX);
        for (start, last, kind) in [(4, 3, F_WRLCK), (0, LAST + 1, F_WRLCK), (0, 1, 3)] {
            assert!(reply(start, last, kind).is_err());
        }
    }
}
