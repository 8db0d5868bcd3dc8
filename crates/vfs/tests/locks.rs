//! What a daemon that keeps locks is asked, and when its locks are given up.

mod scripted;

use bypath_vfs as vfs;
use pm::sys::abi::{O_RDONLY, O_RDWR};
use scripted::{Place, entry};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use vfs::backend::{AdvisoryLocks, OpenFileTable};
use vfs::*;

const LOOKUP: u32 = 1;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const GETLK: u32 = 31;
const SETLK: u32 = 32;

const POSIX_LOCKS: u32 = 1 << 1;
const FLOCK_LOCKS: u32 = 1 << 10;
const UNLOCK: u32 = 2;

type Asked = Arc<Mutex<Vec<(u32, Vec<u8>)>>>;

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A daemon with one file, which grants every lock; handles count from 100. Only what is about locks and handles is noted.
fn mount(place: &Place, agreed: u32, asked: &Asked) -> vfs::cached::Cached<fuse_client::FuseClient> {
    let log = asked.clone();
    let handles = Mutex::new(100u64);
    let backend = place.mount(move |operation, _, body| {
        if matches!(operation, OPEN | RELEASE | FLUSH | GETLK | SETLK) {
            log.lock().unwrap().push((operation, body.to_vec()));
        }
        match operation {
            LOOKUP => entry(7, 0o100_644, 0),
            OPEN => {
                let mut next = handles.lock().unwrap();
                *next += 1;
                [next.to_ne_bytes(), [0; 8]].concat()
            }
            // The whole file, by process 9.
            GETLK => [[0; 8], (i64::MAX as u64).to_ne_bytes(), [1, 0, 0, 0, 9, 0, 0, 0]].concat(),
            _ => Vec::new(),
        }
    });
    backend.lower().ring().header().unwrap().agreed.store(agreed, SeqCst);
    backend
}

fn with_cx(run: impl FnOnce(&Cx)) {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
}

fn lock(owner: LockOwner, id: DescriptionId, kind: LockKind) -> Lock {
    Lock { kind, owner, through: Some(id), start: 0, end: u64::MAX, pid: 0 }
}

/// Goal: each open file asks by a handle of its own, which lasts as long as it; what it has locked is given up before.
#[test]
fn an_open_file_has_its_own_handle() {
    let place = Place::new("lock-handles");
    let asked = Asked::default();
    let backend = mount(&place, POSIX_LOCKS | FLOCK_LOCKS, &asked);
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    with_cx(|cx| {
        let node = backend.lookup(cx, backend.root(), b"f").unwrap();
        let ids = [3, 4].map(|fd| backend.open(cx, node, O_RDWR, fd).unwrap());
        assert_eq!(take().len(), 1, "one handle for reading and writing");
        for id in ids {
            backend.lock(cx, node, &lock(LockOwner::Flock(id), id, LockKind::Exclusive)).unwrap();
        }
        let seen = take();
        assert_eq!(seen.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [OPEN, SETLK, OPEN, SETLK]);
        let (first, second) = (&seen[1].1, &seen[3].1);
        assert_ne!((word64(first, 0), word64(first, 8)), (word64(second, 0), word64(second, 8)), "handle and owner");
        assert_eq!((word64(first, 16), word64(first, 24), word32(first, 32)), (0, i64::MAX as u64, 1));
        assert_eq!(word32(first, 40), 1, "flock");

        backend.lock(cx, node, &lock(LockOwner::Description(ids[1]), ids[1], LockKind::Shared)).unwrap();
        assert_eq!(take().iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [SETLK]);
        backend.close(cx, 4);
        let seen: Vec<_> = take().into_iter().filter(|(operation, _)| *operation != FLUSH).collect();
        assert_eq!(seen.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [SETLK, RELEASE]);
        assert_eq!((word32(&seen[0].1, 32), word32(&seen[0].1, 40)), (UNLOCK, 0), "its OFD locks");
        assert_eq!(word64(&seen[1].1, 0), word64(second, 0), "its own handle");
        assert_eq!((word32(&seen[1].1, 12), word64(&seen[1].1, 16)), (2, word64(second, 8)), "FLOCK_UNLOCK by its owner");
        backend.close(cx, 3);
        let released: Vec<_> = take().into_iter().filter(|(operation, _)| *operation == RELEASE).collect();
        assert_eq!(released.len(), 2, "its own, and the one that both had");
    });
}

/// Goal: record locks are a process's, whichever of its descriptors it closes; nothing is flushed for who has none.
#[test]
fn record_locks_go_by_a_flush() {
    let place = Place::new("lock-records");
    let asked = Asked::default();
    let backend = mount(&place, POSIX_LOCKS, &asked);
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    with_cx(|cx| {
        let node = backend.lookup(cx, backend.root(), b"f").unwrap();
        let ids = [3, 4].map(|fd| backend.open(cx, node, O_RDONLY, fd).unwrap());
        take();
        backend.drop_process_locks(cx, node);
        assert_eq!(take(), [], "none yet");
        let held = backend.conflicting_lock(cx, node, &lock(LockOwner::Process, ids[0], LockKind::Exclusive)).unwrap().unwrap();
        assert_eq!((held.kind, held.start, held.end, held.pid), (LockKind::Exclusive, 0, u64::MAX, 9));
        backend.lock(cx, node, &lock(LockOwner::Process, ids[0], LockKind::Shared)).unwrap();
        let seen = take();
        assert_eq!(seen.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [OPEN, GETLK, SETLK]);
        let owner = word64(&seen[2].1, 8);
        backend.drop_process_locks(cx, node);
        let seen = take();
        assert_eq!(seen.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [FLUSH]);
        assert_eq!((word64(&seen[0].1, 0), word64(&seen[0].1, 16)), (102, owner));
        // The program ends without a close.
        backend.lock(cx, node, &lock(LockOwner::Process, ids[1], LockKind::Shared)).unwrap();
        take();
        backend.detach(cx);
        let seen: Vec<_> = take().into_iter().filter(|(_, body)| word64(body, body.len() - 8) == owner).collect();
        assert!(seen.iter().all(|(operation, _)| *operation == FLUSH) && !seen.is_empty(), "{seen:?}");
    });
}

/// Goal: a daemon that has not said that it keeps locks is asked for none; the session's table decides.
#[test]
fn others_are_not_asked() {
    let place = Place::new("lock-none");
    let asked = Asked::default();
    let backend = mount(&place, 0, &asked);
    with_cx(|cx| {
        let node = backend.lookup(cx, backend.root(), b"f").unwrap();
        let ids = [3, 4].map(|fd| backend.open(cx, node, O_RDWR, fd).unwrap());
        asked.lock().unwrap().clear();
        let flock = |id| lock(LockOwner::Flock(id), id, LockKind::Exclusive);
        backend.lock(cx, node, &flock(ids[0])).unwrap();
        assert_eq!(backend.lock(cx, node, &flock(ids[1])).err(), Some(Error::Posix(Errno::EAGAIN)));
        assert_eq!(*asked.lock().unwrap(), []);
    });
}
