//! Open files of a session whose processes die.

use super::super::Caching;
use super::super::nodes::Entry;
use super::*;
use base::{Attr, Cred, Kind, Thread};
use std::cell::RefCell;
use std::process::Command;
use std::vec::Vec;

/// Notes what ends.
#[derive(Default)]
struct Noted(RefCell<Vec<DescriptionId>>);

impl Ends for Noted {
    fn ended(&self, _: &Cx, id: DescriptionId) {
        self.0.borrow_mut().push(id);
    }
}

/// The PID of a process that has ended.
fn dead() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn dead_mark() -> u32 {
    host::own_mark() ^ host::own_pid() ^ dead()
}

fn with_cx<T>(run: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

fn entry(key: u64, ino: u64) -> Entry {
    let attr = Attr { ino, kind: Kind::Regular, mode: 0o644, nlink: 1, ..Attr::EMPTY };
    let (entry_ns, attr_ns) = (1 << 40, 1 << 40);
    Entry { key, device: 0, attr, entry_ns, attr_ns, incarnation: 0, handle: None, caching: Caching::None }
}

/// A session cache with one file in its root.
fn session(name: &str) -> (SessionCache, Node) {
    let path = std::env::temp_dir().join(std::format!("bypath-open-files-{}-{name}", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(SessionCache::bytes()).unwrap();
    let session = SessionCache::open(std::format!("{}\0", path.display()).as_bytes()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let node = session.enter(session.root(), b"file", &entry(2, 2), session.moment(), &mut |_, _, _| ()).unwrap();
    (session, node)
}

/// Goal: whoever dies while it makes an open file, or while it ends one, keeps no node. Method:
/// the PID of a dead process in this one's slot, its mutex given up, at each step; once the one who gives back dies too.
#[test]
fn the_dead_keep_no_node() {
    let (session, node) = session("dead");
    with_cx(|cx| {
        for step in 0..4 {
            let noted = Noted::default();
            let files = session.open_files(&noted);
            let id = files.make(cx, node, Kind::Regular, 0).unwrap();
            if step > 0 {
                files.hand_out(cx, id, 5).unwrap();
            }
            let own = files.own_slot().unwrap();
            if step > 1 {
                assert_eq!(refcount::put(&files, own, 5), Some(id));
            }
            if step > 2 {
                session.let_go(id, true);
            }
            assert_eq!((noted.0.borrow().len(), session.holds(node)), (0, u32::from(step < 3)));
            let slot = files.slot(own).unwrap();
            slot.pid.store(dead(), Relaxed);
            slot.since.store(0, Relaxed);
            files.slot_mutex(own).unwrap().give_back();
            files.set_process(0, 0);
            assert_eq!(files.adopt_dead_processes(cx), 0);
            assert_eq!(noted.0.borrow().len(), usize::from(step < 3), "told unless it had no node any more");
            assert_eq!((session.holds(node), session.description(id).refs.load(Acquire)), (0, 0));
        }
    });
}

/// Goal: a lock conflicts with other open files', goes with its own, and is a dead process's no more.
#[test]
fn locks_end() {
    let (session, node) = session("locks");
    let noted = Noted::default();
    let files = session.open_files(&noted);
    let lock = |owner| Lock { kind: LockKind::Exclusive, owner, through: None, start: 0, end: u64::MAX, pid: 0 };
    with_cx(|cx| {
        let [one, other] = [5, 6].map(|fd| files.open(cx, node, (Kind::Regular, 2), fd, || Ok(())).unwrap());
        files.lock(cx, node, &lock(base::LockOwner::Flock(one))).unwrap();
        assert_eq!(files.lock(cx, node, &lock(base::LockOwner::Flock(other))), Err(Errno::EAGAIN.into()));
        files.close(cx, 5);
        files.lock(cx, node, &lock(base::LockOwner::Flock(other))).unwrap();
        files.lock(cx, node, &lock(base::LockOwner::Process)).unwrap();
        assert_eq!(files.count_locks(), 2);
        files.process_ends(cx, files.own_slot().unwrap());
        assert_eq!(files.count_locks(), 1, "that of the open file");
    });
}

/// Goal: death with the lock in hand, between counting and naming, changes no count. Method: counts
/// that are wrong, and the PID of a dead process in the lock.
#[test]
fn counts_are_made_anew() {
    let (session, node) = session("anew");
    let noted = Noted::default();
    let files = session.open_files(&noted);
    with_cx(|cx| {
        let id = files.make(cx, node, Kind::Regular, 0).unwrap();
        for wrong in [0, 2, 7] {
            session.get(node).unwrap().holds.store(wrong, Relaxed);
            session.header().lock.store(dead_mark(), Release);
            drop(session.lock());
            assert_eq!((session.holds(node), session.holds(session.root())), (1, 1));
        }
        assert!(!session.let_go_if_shared(id), "it is the last");
        let other = files.make(cx, node, Kind::Regular, 0).unwrap();
        assert!(session.let_go_if_shared(id) && !session.let_go_if_shared(other), "one is told, not both");
    });
}

/// Goal: a lock that a process of another PID namespace holds is waited for, though nobody has its PID here. Method:
/// the mark of a dead process with another namespace's bits; another thread gives the lock back later.
#[test]
fn a_stranger_is_not_taken_for_dead() {
    let (session, _) = session("stranger");
    let word = &session.header().lock;
    for stranger in [false, true] {
        let left = dead_mark() ^ u32::from(stranger) << 22;
        word.store(left, Release);
        let is_given_back = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                is_given_back.store(true, Release);
                // Whoever has it by now keeps it.
                let _ = word.compare_exchange(left, 0, AcqRel, Relaxed);
            });
            let _guard = session.lock();
            assert_eq!(is_given_back.load(Acquire), stranger);
        });
    }
}

/// Goal: who has a file to himself has it under its other id too, and under its other inode number; files without a
/// number don't wait for each other.
#[test]
fn a_file_of_two_ids_has_one_owner() {
    let (session, node) = session("ids");
    let enter = |name: &[u8], key, ino| {
        session.enter(session.root(), name, &entry(key, ino), session.moment(), &mut |_, _, _| ()).unwrap()
    };
    let meet = |one, other| {
        let (one, other) = (session.owner_words(one).unwrap(), session.owner_words(other).unwrap());
        one.iter().any(|word| other.iter().any(|same| core::ptr::eq(*word, *same)))
    };
    // What is meant to be apart falls into different words by its numbers.
    assert!(meet(node, enter(b"other id", 3, 2)) && meet(node, enter(b"other number", 2, 3)));
    assert!(!meet(node, enter(b"other", 3, 3)) && !meet(enter(b"none", 4, 0), enter(b"none too", 5, 0)));
    let are_held = || session.owner_words(node).unwrap().iter().all(|word| word.load(Relaxed) != 0);
    assert_eq!(session.alone(node, || Ok(are_held())), Ok(true));
    assert!(!are_held());
}
