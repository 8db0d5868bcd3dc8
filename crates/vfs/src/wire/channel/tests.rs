use super::*;
use crate::{Cred, Thread};
use std::path::PathBuf;
use std::{format, fs, process, thread};

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
