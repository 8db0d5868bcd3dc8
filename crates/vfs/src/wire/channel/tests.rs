use super::*;
use crate::{Cred, Thread};
use std::path::PathBuf;
use std::{format, fs, process, thread, vec::Vec};

const GETATTR: u32 = 3;

/// A channel whose daemon is said to serve; its file.
fn channel(name: &str) -> (Channel, PathBuf) {
    let path = std::env::temp_dir().join(format!("bypath-channel-{}-{name}", process::id()));
    fs::File::create(&path).unwrap().set_len(CHANNEL_BYTES).unwrap();
    let channel = Channel::open(format!("{}\0", path.display()).as_bytes()).unwrap();
    channel.header().unwrap().daemon.store(process::id(), SeqCst);
    channel.renew().unwrap();
    channel.set_life(life::SERVING).unwrap();
    (channel, path)
}

/// One request and what came of it.
fn call(channel: &Channel) -> Result<usize, Errno> {
    let thread = Thread::new();
    let nothing = UserSlice::from_ref(&[]);
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let request = Request { operation: GETATTR, node: 1, epoch: channel.epoch(), parts: [b""; 3], data: nothing };
    channel.call(&cx, &request, nothing)
}

/// The PID of a process that has been.
fn dead() -> u32 {
    let mut child = process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Goal: a daemon that lives and stays in the middle of an answer keeps nobody past the time-out, and the
/// slot is not another's before the daemon is done with it, or has ended.
#[test]
fn given_up_while_it_is_answered() {
    let (channel, path) = channel("left");
    for ends in [false, true] {
        let timeout = |ms| channel.header().unwrap().timeout_ms.store(ms, SeqCst);
        // However slow the machine is, the client does not give up before the answer has begun.
        timeout(600_000);
        let result = thread::scope(|scope| {
            let client = scope.spawn(|| call(&channel));
            let mut request = [0u8; IN_HEADER];
            channel.receive(&[UserSlice::from_mut(&mut request)]).unwrap();
            assert!(channel.slot(0).unwrap().step(TAKEN, REPLYING));
            timeout(50);
            client.join().unwrap()
        });
        assert_eq!(result, Err(Errno::ETIMEDOUT));
        let slot = channel.slot(0).unwrap();
        channel.reclaim().unwrap();
        assert_ne!(channel.claim_free().unwrap(), Some(0));
        if ends {
            channel.renew().unwrap();
        } else {
            assert!(!slot.step(REPLYING, REPLIED) && slot.step(LEFT, FREE));
        }
        assert_eq!(slot.state.load(SeqCst), FREE);
        channel.hint.store(0, SeqCst);
    }
    fs::remove_file(path).unwrap();
}

/// Goal: of what nobody waits for yet there is so much and no more, calls have slots besides; and of those who died with
/// it nothing is counted once their slots are used again.
#[test]
fn asked_for_ahead() {
    let (channel, path) = channel("ahead");
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let nothing = UserSlice::from_ref(&[]);
    let request = Request { operation: GETATTR, node: 1, epoch: channel.epoch(), parts: [b""; 3], data: nothing };
    let posted: Vec<_> = core::iter::from_fn(|| channel.post(&cx, &request)).collect();
    assert_eq!((posted.len() as u32, channel.posted()), (POSTED_MAX, POSTED_MAX));
    thread::scope(|scope| {
        let client = scope.spawn(|| call(&channel));
        let mut room = [0u8; IN_HEADER];
        for _ in 0..=POSTED_MAX {
            channel.receive(&[UserSlice::from_mut(&mut room)]).unwrap();
            let mut reply = [0u8; OUT_HEADER];
            reply[0] = OUT_HEADER as u8;
            reply[8..].copy_from_slice(&room[8..16]);
            channel.reply(&[UserSlice::from_ref(&reply)], true).unwrap();
        }
        assert_eq!(client.join().unwrap(), Ok(0));
    });
    assert!(posted[1..].iter().all(|one| channel.fetch(one, nothing) == Ok(0)));
    channel.withdraw(&posted[0]);
    assert_eq!(channel.posted(), 0);
    assert_eq!(channel.fetch(&posted[0], nothing), Err(Errno::EIO), "there no more");
    // Not taken yet: the daemon is not to answer it any more.
    let posted = channel.post(&cx, &request).unwrap();
    channel.withdraw(&posted);
    assert_eq!(stage(channel.slot(posted.index).unwrap().state.load(SeqCst)), ABANDONED);
    channel.renew().unwrap();
    channel.set_life(life::SERVING).unwrap();
    channel.header().unwrap().posted.store(u32::MAX, SeqCst);
    assert_eq!(channel.post(&cx, &Request { epoch: channel.epoch(), ..request }), None);
    let request = Request { epoch: channel.epoch(), ..request };
    (0..SLOTS).for_each(|_| channel.begin(&cx, &request, true, true).map(drop).unwrap());
    assert_eq!(channel.posted(), 0);
    fs::remove_file(path).unwrap();
}

/// Goal: what a client that died has left is freed, at whatever stage; what a living one has is not.
#[test]
fn what_the_dead_have_left() {
    let (channel, path) = channel("dead");
    let (dead, own) = (dead(), process::id());
    let slot = channel.slot(0).unwrap();
    for (stage_left, stage_then) in
        [(CLAIMED, FREE), (REQUEST, ABANDONED), (TAKEN, ABANDONED), (REPLYING, REPLYING), (REPLIED, FREE), (ABANDONED, ABANDONED)]
    {
        slot.epoch.store(channel.epoch(), SeqCst);
        slot.state.store(word(own, stage_left), SeqCst);
        channel.reclaim().unwrap();
        assert_eq!(slot.state.load(SeqCst), word(own, stage_left), "of the living");
        slot.state.store(word(dead, stage_left), SeqCst);
        channel.reclaim().unwrap();
        assert_eq!(stage(slot.state.load(SeqCst)), stage_then, "stage {stage_left}");
        // Told even if its client died before it could.
        assert_eq!(channel.header().unwrap().pending.swap(0, SeqCst), u64::from(stage_left == REQUEST));
    }
    // A message without an answer is delivered, however its sender has ended.
    slot.epoch.store(channel.epoch(), SeqCst);
    slot.one_way.store(1, SeqCst);
    slot.len.store(IN_HEADER as u32, SeqCst);
    slot.state.store(word(dead, REQUEST), SeqCst);
    channel.reclaim().unwrap();
    assert_eq!(slot.state.load(SeqCst), word(dead, REQUEST));
    let mut message = [0u8; IN_HEADER];
    assert_eq!(channel.receive(&[UserSlice::from_mut(&mut message)]), Ok(IN_HEADER));
    assert_eq!(slot.state.load(SeqCst), FREE);
    // From the first moment a slot says whose it is.
    slot.state.store(FREE, SeqCst);
    assert_eq!(channel.claim_free().unwrap(), Some(0));
    assert_eq!(slot.state.load(SeqCst), word(own, CLAIMED));
    fs::remove_file(path).unwrap();
}
