//! Whoever is stopped in the middle of a change keeps others from what it holds, and from nothing else.
//!
//! Who is "stopped" here is the thread of the test, whose lane holds something while others make calls.

use super::lock::LATER;
use crate::alloc::loading_by;
use crate::alloc::reservation::CHUNK_BLOCKS;
use crate::segment::{BUCKET_LOCKS, Cachelet};
use crate::testing::TestFs;
use crate::{Cred, Cx, Errno, Error, Fs, Kind, NewNode, Node, Thread};
use core::sync::atomic::Ordering::SeqCst;
use pm::UserSlice;
use std::format;
use std::string::String;
use std::vec;

const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

/// A file called `file`, held by the lane of the test's own thread.
fn held(test: &TestFs) -> (Node, &Cachelet) {
    let node = test.create(&test.cx(), test.root_node(), b"file", &FILE).unwrap();
    let cachelet = test.fs.cachelet(node.hint).unwrap();
    cachelet.owner.store(test.thread.lanes[0].get(), SeqCst);
    (node, cachelet)
}

/// Makes a call in a thread with a lane of its own.
fn by_another<T>(fs: &Fs, call: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    let result = call(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    fs.give_lane_back(&thread);
    result
}

/// Waits until some lane waits; its number.
fn who_waits(fs: &Fs) -> u32 {
    loop {
        let mut lanes = 0..fs.header().lanes_high.get();
        if let Some(lane) = lanes.find(|lane| fs.lane_state(*lane).waits_for.load(SeqCst) != 0) {
            return lane;
        }
        std::thread::yield_now();
    }
}

/// Goal: who waits for an inode keeps nobody from the names of its bucket. Method: each call that wants the inode by its
/// name, and meanwhile names of the same bucket are made and removed. (Without it this never ends.)
#[test]
fn who_waits_holds_nothing() {
    type Call = fn(&Fs, &Cx, Node, Node) -> Result<(), Error>;
    let calls: [Call; 4] = [
        |fs, cx, root, _| fs.unlink(cx, root, b"file"),
        |fs, cx, root, _| fs.rename(cx, root, b"file", root, b"moved", crate::RenameMode::Replace),
        |fs, cx, root, _| fs.rename(cx, root, b"other", root, b"file", crate::RenameMode::Replace),
        |fs, cx, root, node| fs.link(cx, node, root, b"linked"),
    ];
    for call in calls {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        test.create(&cx, root, b"other", &FILE).unwrap();
        let (node, cachelet) = held(&test);
        let bucket = |name: &str| test.entry_key(root.id, crate::names::proper(name.as_bytes()).unwrap()).hash % BUCKET_LOCKS;
        let beside = |name: &str| -> String { (0..).map(|i| format!("{i}")).find(|one| bucket(one) == bucket(name)).unwrap() };
        std::thread::scope(|scope| {
            let fs = test.fs;
            let waiter = scope.spawn(move || by_another(fs, |cx| call(fs, cx, root, node)));
            who_waits(fs);
            for name in ["file", "moved", "linked", "other"] {
                test.create(&cx, root, beside(name).as_bytes(), &FILE).unwrap();
                test.unlink(&cx, root, beside(name).as_bytes()).unwrap();
            }
            assert!(!waiter.is_finished());
            cachelet.owner.store(0, SeqCst);
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
    }
    assert_ne!(LATER, Error::Posix(Errno::EINTR));
}

/// Goal: a wait that is called off ends, with `EINTR` and nothing done; the next call is not meant.
#[test]
fn waits_are_called_off() {
    let test = TestFs::new(16 << 20);
    let root = test.root_node();
    let (node, cachelet) = held(&test);
    std::thread::scope(|scope| {
        let fs = test.fs;
        let waiter = scope.spawn(move || {
            by_another(fs, |cx| {
                let number = fs.waits_as(cx) - 1;
                let wrote = fs.write(cx, node, Some(0), &[UserSlice::from_ref(b"text")]).map(drop);
                let removed = fs.unlink(cx, root, b"file");
                fs.call_off(number, true);
                (wrote, removed, fs.create(cx, root, b"next", &FILE).map(drop))
            })
        });
        let lane = who_waits(fs);
        assert_eq!(fs.kept_waiting_by(lane).map(|holder| holder.pid), fs.users().next());
        fs.call_off(lane, false);
        let called_off = Err(Error::Posix(Errno::EINTR));
        assert_eq!(waiter.join().unwrap(), (called_off, called_off, Ok(())));
    });
    cachelet.owner.store(0, SeqCst);
    assert_eq!(test.attr(&test.cx(), node).unwrap().size, 0);
}

/// Goal: one who is stopped while it makes the image grow, or loads a chunk of the reservation bitmap, keeps nobody from space.
/// Method: its lane has the lock of growth, and each chunk that is not loaded yet; others write until the image is full.
#[test]
fn space_for_others() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    test.create(&cx, root, b"first", &FILE).unwrap();
    let own = test.thread.lanes[0].get();
    test.fs.header().grow.0.store(own, SeqCst);
    let grown = test.fs.root().grown.load(SeqCst);
    // Of what the image has: one chunk in loading.
    let first = (0..grown / CHUNK_BLOCKS).filter_map(|at| test.fs.chunk(at)).find(|chunk| chunk.ready.load(SeqCst) == 0);
    if let Some(chunk) = first {
        chunk.ready.store(loading_by(own - 1), SeqCst);
    }
    let fs = test.fs;
    let written = std::thread::scope(|scope| {
        let writer = move || {
            by_another(fs, |cx| {
                let node = fs.create(cx, root, b"large", &FILE).unwrap();
                let piece = vec![7; 1 << 20];
                let write = |at: u64| fs.write(cx, node, Some(at << 20), &[UserSlice::from_ref(&piece)]);
                (0..40).take_while(|at| matches!(write(*at), Ok((0x10_0000, _)))).count()
            })
        };
        scope.spawn(writer).join().unwrap()
    });
    assert_eq!(written, 40);
    assert!(fs.root().grown.load(SeqCst) > grown);
    if let Some(chunk) = first {
        chunk.ready.store(0, SeqCst);
    }
    assert_ne!(fs.header().grow.0.swap(0, SeqCst), own, "it was taken from the stopped one");
}
