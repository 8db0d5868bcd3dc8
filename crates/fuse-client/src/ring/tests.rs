use super::*;
use base::{Cred, Thread};
use std::path::PathBuf;
use std::{format, fs, process, thread, vec::Vec};

const GETATTR: u32 = 3;

/// A ring whose daemon is said to serve; its file.
fn ring(name: &str) -> (Ring, PathBuf) {
    let path = std::env::temp_dir().join(format!("bypath-ring-{}-{name}", process::id()));
    fs::File::create(&path).unwrap().set_len(RING_BYTES).unwrap();
    let ring = Ring::open(format!("{}\0", path.display()).as_bytes()).unwrap();
    ring.header().unwrap().daemon.store(process::id(), SeqCst);
    ring.renew().unwrap();
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    (ring, path)
}

/// One request and what came of it.
fn call(ring: &Ring) -> Result<usize, Errno> {
    let thread = Thread::new();
    let nothing = UserSlice::from_ref(&[]);
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let request = Request { operation: GETATTR, node: 1, incarnation: ring.incarnation(), parts: [b""; 3], data: nothing };
    ring.call(&cx, &request, nothing)
}

/// What the slots of a process that has been would say.
fn dead() -> u32 {
    let mut child = process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    own_owner() ^ process::id() ^ child.id()
}

/// Goal: a daemon that lives and stays in the middle of an answer keeps nobody past the time-out, and the
/// slot is not another's before the daemon is done with it, or has ended.
#[test]
fn given_up_while_it_is_answered() {
    let (ring, path) = ring("left");
    for ends in [false, true] {
        let timeout = |ms| ring.header().unwrap().timeout_ms.store(ms, SeqCst);
        // However slow the machine is, the client does not give up before the answer has begun.
        timeout(600_000);
        let result = thread::scope(|scope| {
            let client = scope.spawn(|| call(&ring));
            let mut request = [0u8; IN_HEADER];
            ring.receive(&[UserSlice::from_mut(&mut request)]).unwrap();
            assert!(ring.slot(0).unwrap().step(TAKEN, REPLYING));
            timeout(50);
            client.join().unwrap()
        });
        assert_eq!(result, Err(Errno::ETIMEDOUT));
        let slot = ring.slot(0).unwrap();
        ring.reclaim().unwrap();
        assert_ne!(ring.claim_free().unwrap(), Some(0));
        if ends {
            ring.renew().unwrap();
        } else {
            assert!(!slot.step(REPLYING, REPLIED) && slot.step(LEFT, FREE));
        }
        assert_eq!(slot.state.load(SeqCst), FREE);
        ring.hint.store(0, SeqCst);
    }
    fs::remove_file(path).unwrap();
}

/// Goal: of what nobody waits for yet there is so much and no more, calls have slots besides; and of those who died with
/// it nothing is counted once their slots are used again.
#[test]
fn asked_for_ahead() {
    let (ring, path) = ring("ahead");
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let nothing = UserSlice::from_ref(&[]);
    let request = Request { operation: GETATTR, node: 1, incarnation: ring.incarnation(), parts: [b""; 3], data: nothing };
    let posted: Vec<_> = core::iter::from_fn(|| ring.post(&cx, &request)).collect();
    assert_eq!((posted.len() as u32, ring.posted()), (POSTED_MAX, POSTED_MAX));
    thread::scope(|scope| {
        let client = scope.spawn(|| call(&ring));
        let mut room = [0u8; IN_HEADER];
        for _ in 0..=POSTED_MAX {
            ring.receive(&[UserSlice::from_mut(&mut room)]).unwrap();
            let mut reply = [0u8; OUT_HEADER];
            reply[0] = OUT_HEADER as u8;
            reply[8..].copy_from_slice(&room[8..16]);
            ring.reply(&[UserSlice::from_ref(&reply)], true).unwrap();
        }
        assert_eq!(client.join().unwrap(), Ok(0));
    });
    assert!(posted[1..].iter().all(|one| ring.fetch(one, nothing) == Ok(0)));
    ring.withdraw(&posted[0]);
    assert_eq!(ring.posted(), 0);
    assert_eq!(ring.fetch(&posted[0], nothing), Err(Errno::EIO), "there no more");
    // Not taken yet: the daemon is not to answer it any more.
    let posted = ring.post(&cx, &request).unwrap();
    ring.withdraw(&posted);
    assert_eq!(stage(ring.slot(posted.index).unwrap().state.load(SeqCst)), ABANDONED);
    ring.renew().unwrap();
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    ring.header().unwrap().posted.store(u32::MAX, SeqCst);
    assert_eq!(ring.post(&cx, &Request { incarnation: ring.incarnation(), ..request }), None);
    let request = Request { incarnation: ring.incarnation(), ..request };
    (0..SLOTS).for_each(|_| ring.begin(&cx, &request, true, true).map(drop).unwrap());
    assert_eq!(ring.posted(), 0);
    fs::remove_file(path).unwrap();
}

/// Goal: what a client that died has left is freed, at whatever stage; what a living one has is not.
#[test]
fn what_the_dead_have_left() {
    let (ring, path) = ring("dead");
    let (dead, own) = (dead(), own_owner());
    let slot = ring.slot(0).unwrap();
    for (stage_left, stage_then) in
        [(CLAIMED, FREE), (REQUEST, ABANDONED), (TAKEN, ABANDONED), (REPLYING, REPLYING), (REPLIED, FREE), (ABANDONED, ABANDONED)]
    {
        slot.incarnation.store(ring.incarnation(), SeqCst);
        slot.state.store(word(own, stage_left), SeqCst);
        ring.reclaim().unwrap();
        assert_eq!(slot.state.load(SeqCst), word(own, stage_left), "of the living");
        // The same PID in another namespace is another process, of which nobody can tell.
        slot.state.store(word(dead ^ 1 << 22, stage_left), SeqCst);
        ring.reclaim().unwrap();
        assert_eq!(slot.state.load(SeqCst), word(dead ^ 1 << 22, stage_left), "of another namespace");
        slot.state.store(word(dead, stage_left), SeqCst);
        ring.reclaim().unwrap();
        assert_eq!(stage(slot.state.load(SeqCst)), stage_then, "stage {stage_left}");
        // Told even if its client died before it could.
        assert_eq!(ring.header().unwrap().pending.swap(0, SeqCst), u64::from(stage_left == REQUEST));
    }
    // A message without an answer is delivered, however its sender has ended.
    slot.incarnation.store(ring.incarnation(), SeqCst);
    slot.one_way.store(1, SeqCst);
    slot.len.store(IN_HEADER as u32, SeqCst);
    slot.state.store(word(dead, REQUEST), SeqCst);
    ring.reclaim().unwrap();
    assert_eq!(slot.state.load(SeqCst), word(dead, REQUEST));
    let mut message = [0u8; IN_HEADER];
    assert_eq!(ring.receive(&[UserSlice::from_mut(&mut message)]), Ok(IN_HEADER));
    assert_eq!(slot.state.load(SeqCst), FREE);
    // From the first moment a slot says whose it is.
    slot.state.store(FREE, SeqCst);
    assert_eq!(ring.claim_free().unwrap(), Some(0));
    assert_eq!(slot.state.load(SeqCst), word(own, CLAIMED));
    fs::remove_file(path).unwrap();
}
