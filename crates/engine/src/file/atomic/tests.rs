//! Overwrites that happen whole or not at all: what they do, and what deaths leave of them.

use super::*;
use crate::process::{AttachError, Options};
use crate::testing::{TestFs, TestImage};
use base::{Cred, Error, Fast, NewNode, Node, Thread};
use format::Features;
use std::vec;
use std::vec::Vec;

unsafe extern "C" {
    fn raise(signal: i32) -> i32;
}

const BOTH: [Atomic; 2] = [Atomic::Undo, Atomic::Replay];

fn make(test: &TestFs, name: &[u8]) -> Node {
    let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
    test.create(&test.cx(), test.root_node(), name, &new).unwrap()
}

/// A file of these bytes, in blocks that lie apart.
fn scattered(test: &TestFs, name: &[u8], bytes: &[u8]) -> Node {
    let (node, other) = (make(test, name), make(test, &[name, b"-other"].concat()));
    for (number, part) in bytes.chunks(3 * BLOCK as usize).enumerate() {
        for node in [node, other] {
            let at = number as u64 * 3 * BLOCK;
            test.write_as(&test.cx(), node, Some(at), &[UserSlice::from_ref(part)], Atomic::Undo).unwrap();
        }
    }
    node
}

fn contents(test: &TestFs, node: Node) -> Vec<u8> {
    let mut bytes = vec![0; test.attr(&test.cx(), node).unwrap().size as usize + 9];
    let done = test.read(&test.cx(), node, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn free(test: &TestFs) -> u64 {
    test.statfs().unwrap().blocks_free
}

fn is_whole(test: &TestFs) {
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
}

/// Bytes that tell where they are.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed ^ (at / 7) as u8 ^ (at >> 11) as u8).collect()
}

/// Goal: an overwrite that is whole writes what one that is not writes, wherever it begins and ends, over holes and the end
/// too, from one buffer and from several, and leaves nothing reserved. Method: the same writes to three files.
#[test]
fn writes_what_others_write() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let nodes = [b"plain".as_slice(), b"undo", b"replay"].map(|name| make(&test, name));
    let mut seed = 1u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (seed >> 33) % below
    };
    for round in 0..400u64 {
        let len = match round % 4 {
            0 => next(40) + 1,
            1 => next(SMALL) + 1,
            2 => next(9 * BLOCK) + 1,
            _ => next(40 * BLOCK) + 1,
        };
        let at = next(if round % 7 == 0 { 120 * BLOCK } else { 60 * BLOCK });
        let bytes = pattern(round as u8, len as usize);
        let (first, second) = bytes.split_at(next(len) as usize);
        let from = [UserSlice::from_ref(first), UserSlice::from_ref(second)];
        let done = test.write(&cx, nodes[0], Some(at), &from).unwrap();
        for (node, how) in nodes[1..].iter().zip(BOTH) {
            assert_eq!(test.write_as(&cx, *node, Some(at), &from, how).unwrap(), done);
        }
        if round % 20 == 0 {
            let cut = next(70 * BLOCK);
            let change = base::SetAttr { size: Some(cut), size_checked: true, ..Default::default() };
            nodes.iter().for_each(|node| test.set_attr(&cx, *node, &change).unwrap());
        }
        let expected = contents(&test, nodes[0]);
        for node in &nodes[1..] {
            assert!(contents(&test, *node) == expected, "round {round}: {len} bytes at {at}");
        }
    }
    let number = test.own_lane(&test.thread).get() - 1;
    assert!(!test.is_lane_busy(number));
    assert_eq!(test.census().locks, 0);
    is_whole(&test);
}

/// Goal: so do a copy from file to file, within one, and bytes that somebody fills in, perhaps fewer than he said.
#[test]
fn copies_and_fills_whole() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let (old, new) = (pattern(1, 50_000), pattern(2, 50_000));
    let source = scattered(&test, b"source", &new);
    for how in BOTH {
        for (from, to, len) in [(0, 0, 50_000), (100, 3, 300), (5000, 30_000, 30_000), (9, 49_990, 4000)] {
            let node = scattered(&test, b"target", &old);
            let done = test.copy_range_as(&cx, (source, from), (node, to), len, Some(how)).unwrap();
            let mut expected = old.clone();
            expected.resize(expected.len().max((to + done) as usize), 0);
            expected[to as usize..(to + done) as usize].copy_from_slice(&new[from as usize..(from + done) as usize]);
            assert!(contents(&test, node) == expected, "{how:?}: {from} {to} {len}");
            let within = test.copy_range_as(&cx, (node, 0), (node, 20_000), 15_000, Some(how)).unwrap();
            expected.copy_within(0..within as usize, 20_000);
            assert!(contents(&test, node) == expected, "{how:?}: within");
            test.unlink(&cx, test.root_node(), b"target").unwrap();
            test.unlink(&cx, test.root_node(), b"target-other").unwrap();
        }
    }
    for came in [0, 10, 9000, 20_000] {
        let node = scattered(&test, b"target", &old);
        let mut left = came;
        let mut fill = |part: UserSlice| {
            let count = part.len.min(left).min(4000);
            left -= count;
            pm::user::copy(UserSlice::from_ref(&new[..count]), part)
        };
        let done = test.write_with_whole(&cx, node, (40_000, 20_000), &mut fill).unwrap();
        assert_eq!((done, contents(&test, node).len()), (came, 50_000.max(40_000 + came)));
        assert!(contents(&test, node)[..40_000] == old[..40_000]);
        let rest = (40_000 + came).min(50_000);
        assert!(contents(&test, node)[rest..50_000] == old[rest..]);
        test.unlink(&cx, test.root_node(), b"target").unwrap();
        test.unlink(&cx, test.root_node(), b"target-other").unwrap();
    }
    is_whole(&test);
}

/// What a child does before it dies: half of the bytes are there.
fn half_filled(test: &TestFs, cx: &Cx, node: Node, len: u64) -> bool {
    let mut calls = 0;
    let mut fill = |part: UserSlice| {
        calls += 1;
        if calls > 1 {
            // SAFETY: a signal to ourselves.
            unsafe { raise(9) };
        }
        pm::user::copy(UserSlice::from_ref(&vec![0xee; part.len / 2]), part)
    };
    test.write_with_whole(cx, node, (10, len), &mut fill).is_err()
}

/// The same of an overwrite that is made again: its record is there, and the first bytes.
fn half_replayed(test: &TestFs, cx: &Cx, node: Node, bytes: &[u8]) -> bool {
    let mut tx = test.begin(cx, format::lane::Kind::Overwrite).unwrap();
    let cachelet = test.lock_file(&mut tx, cx, node).unwrap();
    let mut job = Job::new(&mut tx, cachelet, node.id).unwrap();
    let pieces = job.set_aside(0, bytes.len() as u64).unwrap();
    let from = [UserSlice::from_ref(bytes)];
    let mut source = Source::Program(super::super::cursor::Cursor::new(&from));
    for piece in pieces.iter() {
        source.put(test.fs, piece.aside(), piece.len, 0).unwrap();
    }
    job.list(&pieces).unwrap();
    job.tx.can_be_undone().unwrap();
    core::mem::forget(Overwriting::begin(cachelet));
    let first = pieces.of[0];
    test.fs.image.copy_within(first.aside(), first.to, first.len / 2).unwrap();
    core::mem::forget(tx);
    true
}

/// A write that fills the image, from blocks that nobody uses.
fn fill_up(test: &TestFs) {
    let (cx, node, bytes) = (test.cx(), make(test, b"full"), vec![0x77; 1 << 20]);
    while test.write(&cx, node, None, &[UserSlice::from_ref(&bytes)]).is_ok() {}
    test.unlink(&cx, test.root_node(), b"full").unwrap();
}

/// Goal: after a death in the middle the bytes are those of before (undo) or of after (replay), for whoever reads them
/// first, though he has nothing to wait for, also when all free space has been used in between; the blocks
/// aside are free again. Method: a child dies there; this process, or one that comes when all are gone, reads.
#[test]
fn the_dead_leave_all_or_nothing() {
    for (how, alone, full) in BOTH.into_iter().flat_map(|how| [(how, false, false), (how, false, true), (how, true, false)]) {
        let mut test = TestFs::new(16 << 20);
        let (old, new) = (pattern(1, 300_000), pattern(2, 250_000));
        let node = scattered(&test, b"file", &old);
        let before = free(&test);
        test.dying(|cx| match how {
            Atomic::Undo => half_filled(&test, cx, node, 200_000),
            Atomic::Replay => half_replayed(&test, cx, node, &new),
        });
        if full {
            fill_up(&test);
        }
        if alone {
            let TestFs { thread, fs, image } = test;
            fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
            std::fs::remove_file(std::str::from_utf8(fs.segment_path()).unwrap()).unwrap();
            test = TestFs::from_image(image).unwrap();
        }
        let node = test.lookup(&test.cx(), test.root_node(), b"file").unwrap();
        let mut expected = old.clone();
        if how == Atomic::Replay {
            expected[..new.len()].copy_from_slice(&new);
        }
        assert!(contents(&test, node) == expected, "{how:?}, alone {alone}, full {full}");
        assert_eq!(test.adopt_dead_processes(&test.cx()), 0);
        assert_eq!(free(&test), before, "{how:?}, alone {alone}, full {full}");
        assert_eq!(test.cached(&test.cx(), node).unwrap().flags.load(Relaxed) & cachelet::OVERWRITTEN, 0);
        is_whole(&test);
    }
}

/// Goal: the checker and the dump know what lies in an image in the middle, and a repair puts nothing where the record
/// copies from. Method: as above; then a copy of the image is looked at.
#[test]
fn a_check_finishes_what_is_under_way() {
    let test = TestFs::new(16 << 20);
    let node = scattered(&test, b"file", &pattern(1, 100_000));
    test.dying(|cx| half_filled(&test, cx, node, 50_000));
    is_whole(&test);
    let mut text = std::string::String::new();
    let options = crate::dump::Options { tree: false, volatile: false };
    let inspected = crate::inspect::Inspected::open(&test.image.path()).unwrap();
    crate::dump::print(&inspected, &options, &mut text).unwrap();
    assert!(text.contains("(overwrite), whole") && text.contains("put aside in block"), "{text}");
}

/// Goal: what fails changes nothing: bytes that do not come, too many of them, no room to put them aside.
#[test]
fn what_fails_changes_nothing() {
    let test = TestFs::new(16 << 20);
    let cx = test.cx();
    let old = pattern(1, 40_000);
    let node = scattered(&test, b"file", &old);
    let too_many = vec![0; WHOLE_MAX as usize + 1];
    for how in BOTH {
        for (at, len) in [(0, 300), (5, 8000), (39_000, 5000)] {
            // Some are there, and are said not to be.
            let mut fill = |part: UserSlice| {
                pm::user::copy(UserSlice::from_ref(&[0xee; 100]), part)?;
                Err(Errno::EIO)
            };
            assert_eq!(test.write_with_whole(&cx, node, (at, len), &mut fill), Err(Error::Posix(Errno::EIO)));
            assert!(contents(&test, node) == old, "{how:?}: {len}");
        }
        let result = test.write_as(&cx, node, Some(5), &[UserSlice::from_ref(&too_many)], how);
        assert_eq!(result, Err(Error::Posix(Errno::EFBIG)));
    }
    let full = make(&test, b"full");
    while test.write(&cx, full, None, &[UserSlice::from_ref(&old)]).is_ok_and(|(done, _)| done == old.len()) {}
    for how in BOTH {
        let result = test.write_as(&cx, node, Some(5), &[UserSlice::from_ref(&too_many[..39_000])], how);
        assert_eq!(result, Err(Error::Posix(Errno::ENOSPC)));
        // This needs no room.
        test.write_as(&cx, node, Some(5), &[UserSlice::from_ref(&old[5..105])], how).unwrap();
        assert!(contents(&test, node) == old);
    }
    assert_eq!(test.census().locks, 0);
    is_whole(&test);
}

/// Goal: the largest that is promised can be had in an image with room.
#[test]
fn as_many_as_promised() {
    let test = TestFs::new(256 << 20);
    let (cx, node) = (test.cx(), make(&test, b"file"));
    let bytes = vec![1; WHOLE_MAX as usize];
    test.write(&cx, node, Some(0), &[UserSlice::from_ref(&bytes)]).unwrap();
    for how in BOTH {
        let bytes = vec![how as u8 + 2; WHOLE_MAX as usize];
        let result = test.write_as(&cx, node, Some(0), &[UserSlice::from_ref(&bytes)], how);
        assert_eq!(result, Ok((bytes.len(), WHOLE_MAX)));
        assert!(contents(&test, node) == bytes);
    }
    is_whole(&test);
}

/// Goal: the option makes all overwrites of a mount whole, and none takes the fast path; the image says so to programs that
/// do not know it. One of an older format is refused.
#[test]
fn an_option_of_the_mount() {
    let image = TestImage::new(16 << 20);
    let (thread, directory) = (Thread::new(), std::string::String::from(image.directory()));
    let features = |image: &TestImage| {
        let bytes = std::fs::read(image.file()).unwrap();
        [0, format::layout::SUPERBLOCK_COPY as usize].map(|at| u64::from_le_bytes(bytes[at + 64..][..8].try_into().unwrap()))
    };
    assert_eq!(features(&image), [0; 2]);
    let options = Options { segment_dir: Some(directory.as_bytes()), atomic: Some(Atomic::Replay), ..Default::default() };
    let fs = image.attach_with(&thread, &options).unwrap();
    assert_eq!((fs.atomic(), features(&image)), (Some(Atomic::Replay), [Features::ATOMIC.0; 2]));
    let test = TestFs { thread, fs, image };
    let (node, cx) = (make(&test, b"file"), test.cx());
    test.write(&cx, node, None, &[UserSlice::from_ref(&[1; 6000])]).unwrap();
    let bytes = [2; 5000];
    assert_eq!(test.write_fast(&test.thread, node, Some(0), UserSlice::from_ref(&bytes)), Fast::Slow);
    // At the end it does.
    assert_eq!(test.write_fast(&test.thread, node, None, UserSlice::from_ref(&bytes[..9])), Fast::Done(6009));
    let lane = test.lane(test.own_lane(&test.thread).get() - 1);
    let sequence = || lane.state.load(Relaxed) >> 32;
    let before = sequence();
    test.write(&cx, node, Some(0), &[UserSlice::from_ref(&bytes)]).unwrap();
    assert_eq!(sequence(), before + 1);
    assert!(contents(&test, node)[..5000] == bytes);
    is_whole(&test);
    let again = test.again();
    assert_eq!(again.atomic(), None);

    let older = TestImage::new(16 << 20);
    let mut bytes = std::fs::read(older.file()).unwrap();
    for at in [0, format::layout::SUPERBLOCK_COPY as usize] {
        bytes[at + 8] = 3;
        bytes[at + 72..at + 80].fill(0);
        let sum = format::checksum::bytes(&bytes[at..at + 120]);
        bytes[at + 120..at + 128].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(older.file(), bytes).unwrap();
    let thread = Thread::new();
    assert!(matches!(
        older.attach_with(&thread, &Options { segment_dir: Some(older.directory().as_bytes()), ..options }),
        Err(AttachError::Older)
    ));
    assert!(older.attach(&thread).is_ok());
}
