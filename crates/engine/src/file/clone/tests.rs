//! Files that share blocks, against a plain model.

use crate::file::tests::{FILE, Random};
use crate::testing::TestFs;
use base::{Atomic, Fallocate, MapFor, Node, SetAttr};
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use pm::{Errno, UserSlice};
use std::vec;
use std::vec::Vec;

fn make(test: &TestFs, name: &[u8]) -> Node {
    test.create(&test.cx(), test.root_node(), name, &FILE).unwrap()
}

fn write(test: &TestFs, node: Node, at: u64, bytes: &[u8]) -> usize {
    test.write(&test.cx(), node, Some(at), &[UserSlice::from_ref(bytes)]).unwrap().0
}

fn read(test: &TestFs, node: Node) -> Vec<u8> {
    let mut bytes = vec![0xa5; test.attr(&test.cx(), node).unwrap().size as usize + 10];
    let done = test.read(&test.cx(), node, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn clone(test: &TestFs, from: (Node, u64), to: (Node, u64), len: u64) -> Result<(), base::Error> {
    test.clone_range(&test.cx(), from, to, len)
}

fn resize(test: &TestFs, node: Node, size: u64) {
    test.set_attr(&test.cx(), node, &SetAttr { size: Some(size), size_checked: true, ..Default::default() }).unwrap();
}

fn free(test: &TestFs) -> u64 {
    test.statfs().unwrap().blocks_free
}

fn is_whole(test: &TestFs) {
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
}

/// Goal: a clone has the same bytes, takes next to no space, and neither changes the other; when all are gone the space is
/// what it was. Method: a file of a run and one of many extents; writes to the first, the clone, the clone's clone.
#[test]
fn a_clone_is_another_file() {
    let test = TestFs::new(64 << 20);
    let before = free(&test);
    let [first, second, third] = [b"a", b"b", b"c"].map(|name| make(&test, name));
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i / 5) as u8).collect();
    write(&test, first, 0, &bytes);
    for i in 0..20 {
        write(&test, first, 4_000_000 + i * 20_000, b"scattered");
    }
    let model = read(&test, first);
    let left = free(&test);
    clone(&test, (first, 0), (second, 0), 0).unwrap();
    clone(&test, (second, 0), (third, 0), 0).unwrap();
    assert!(left - free(&test) < 12, "{left} {}", free(&test));
    assert_eq!(test.attr(&test.cx(), first).unwrap().blocks, test.attr(&test.cx(), third).unwrap().blocks);
    is_whole(&test);
    for (i, node) in [second, first, third].into_iter().enumerate() {
        write(&test, node, 5000, &[i as u8; 5000]);
        let mut expected = model.clone();
        expected[5000..10_000].fill(i as u8);
        assert!(read(&test, node) == expected, "{i}");
        is_whole(&test);
    }
    for name in [b"b", b"a", b"c"] {
        test.unlink(&test.cx(), test.root_node(), name).unwrap();
        is_whole(&test);
    }
    // The directory's block of slots stays.
    assert!(before - free(&test) <= 8, "{before} {}", free(&test));
    assert_eq!(test.fs.root().shares.load(Relaxed), 0);
}

/// Goal: what is shared is read on the fast path too, and not written there. Method: both, of a clone and of a file alone.
#[test]
fn the_fast_path_reads_and_does_not_write() {
    let test = TestFs::new(64 << 20);
    let [first, second] = [b"a", b"b"].map(|name| make(&test, name));
    let mut bytes = [0; 100];
    let mut fast = |node| {
        let read = matches!(test.read_fast(node, 0, UserSlice::from_mut(&mut bytes)), base::Fast::Done(100));
        (read, matches!(test.write_fast(&test.thread, node, Some(0), UserSlice::from_ref(b"new")), base::Fast::Done(_)))
    };
    write(&test, first, 0, &[7; 5000]);
    assert_eq!(fast(first), (true, true));
    clone(&test, (first, 0), (second, 0), 0).unwrap();
    assert_eq!([fast(first), fast(second)], [(true, false); 2]);
    write(&test, second, 0, b"other");
    test.unlink(&test.cx(), test.root_node(), b"b").unwrap();
    write(&test, first, 0, b"own");
    assert_eq!(fast(first), (true, true), "nobody else has it any more");
}

/// Goal: blocks of a file are shared within it, next to each other and apart. Method: a file of one run, and what is written to
/// the one copy and the other.
#[test]
fn within_one_file() {
    for (from, to) in [(0, 1), (1, 0), (0, 3), (3, 0), (2, 3)] {
        let test = TestFs::new(64 << 20);
        let node = make(&test, b"a");
        let mut model: Vec<u8> = (0..5 * BLOCK).map(|i| (i / 16) as u8 ^ (i / BLOCK) as u8).collect();
        write(&test, node, 0, &model);
        clone(&test, (node, from * BLOCK), (node, to * BLOCK), BLOCK).unwrap();
        let of = |block: u64| (block * BLOCK) as usize..(block * BLOCK + BLOCK) as usize;
        model.copy_within(of(from), of(to).start);
        assert!(read(&test, node) == model, "{from} {to}");
        is_whole(&test);
        assert_ne!(test.fs.root().shares.load(Relaxed), 0);
        write(&test, node, to * BLOCK + 9, b"changed");
        model[of(to)][9..16].copy_from_slice(b"changed");
        assert!(read(&test, node) == model, "{from} {to}");
        is_whole(&test);
        test.unlink(&test.cx(), test.root_node(), b"a").unwrap();
        is_whole(&test);
        assert_eq!(test.fs.root().shares.load(Relaxed), 0);
    }
}

/// Goal: whatever is done to files that share blocks, each has its own bytes, and the image is whole. Method: all that
/// changes contents, at random, to five files, compared with plain vectors.
#[test]
fn as_a_plain_model() {
    const SPAN: u64 = 40 * BLOCK;
    for seed in 0..6 {
        let (test, mut random) = (TestFs::new(64 << 20), Random(seed));
        let names = [b"0", b"1", b"2", b"3", b"4"];
        let nodes = names.map(|name| make(&test, name));
        let before = free(&test);
        let mut model: [Vec<u8>; 5] = Default::default();
        for step in 0..700u32 {
            let (a, b) = (random.below(5) as usize, random.below(5) as usize);
            let (at, len) = (random.below(SPAN), 1 + random.below(5 * BLOCK));
            let end = (at + len) as usize;
            let byte = step as u8;
            match random.below(12) {
                0..4 => {
                    let (from, to) = (at / BLOCK * BLOCK, random.below(40) * BLOCK);
                    let size = model[a].len() as u64;
                    let len = if random.below(3) == 0 { size.saturating_sub(from) } else { random.below(20) * BLOCK };
                    let done = clone(&test, (nodes[a], from), (nodes[b], to), len);
                    let len = if len == 0 { size.saturating_sub(from) } else { len };
                    let whole = len % BLOCK == 0 || from + len == size && to + len >= model[b].len() as u64;
                    let overlaps = a == b && from < to + len && to < from + len;
                    if from + len > size || !whole || overlaps {
                        assert_eq!(done, Err(Errno::EINVAL.into()), "{seed} {step}");
                    } else {
                        done.unwrap();
                        let bytes = model[a][from as usize..(from + len) as usize].to_vec();
                        if len > 0 {
                            let size = model[b].len().max((to + len) as usize);
                            model[b].resize(size, 0);
                            model[b][to as usize..(to + len) as usize].copy_from_slice(&bytes);
                        }
                    }
                }
                4..7 => {
                    write(&test, nodes[a], at, &vec![byte; len as usize]);
                    let size = model[a].len().max(end);
                    model[a].resize(size, 0);
                    model[a][at as usize..end].fill(byte);
                }
                7 => {
                    resize(&test, nodes[a], at);
                    model[a].resize(at as usize, 0);
                }
                8 => {
                    test.fallocate(&test.cx(), nodes[a], Fallocate::PunchHole, at, len).unwrap();
                    let end = end.min(model[a].len());
                    if (at as usize) < end {
                        model[a][at as usize..end].fill(0);
                    }
                }
                9 => {
                    test.fallocate(&test.cx(), nodes[a], Fallocate::Zero, at, len).unwrap();
                    let size = model[a].len().max(end);
                    model[a].resize(size, 0);
                    model[a][at as usize..end].fill(0);
                }
                10 => {
                    let how = if random.below(2) == 0 { Atomic::Undo } else { Atomic::Replay };
                    test.write_as(&test.cx(), nodes[a], Some(at), &[UserSlice::from_ref(&vec![byte; len as usize])], how)
                        .unwrap();
                    let size = model[a].len().max(end);
                    model[a].resize(size, 0);
                    model[a][at as usize..end].fill(byte);
                }
                _ if a != b => {
                    let done = test.copy_range(&test.cx(), nodes[a], 0, nodes[b], at / BLOCK * BLOCK, SPAN).unwrap();
                    assert_eq!(done as usize, model[a].len().min(SPAN as usize));
                    let (to, bytes) = ((at / BLOCK * BLOCK) as usize, model[a][..done as usize].to_vec());
                    if done > 0 {
                        let size = model[b].len().max(to + bytes.len());
                        model[b].resize(size, 0);
                        model[b][to..to + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                _ => {}
            }
            for (node, model) in nodes.iter().zip(&model) {
                assert!(read(&test, *node) == *model, "seed {seed}, step {step}");
            }
            if step % 50 == 0 {
                is_whole(&test);
            }
        }
        is_whole(&test);
        for name in names {
            test.unlink(&test.cx(), test.root_node(), name).unwrap();
            is_whole(&test);
        }
        assert!(free(&test) >= before, "{before} {}", free(&test));
        assert_eq!((test.fs.root().shares.load(Relaxed), test.census().locks), (0, 0));
    }
}

/// Goal: a mapped file shares nothing: it is made its own, and copied. Method: each way to map, on either side.
#[test]
fn what_is_mapped_is_copied() {
    for what in [MapFor::Private, MapFor::Reading, MapFor::Writing, MapFor::Touching] {
        let test = TestFs::new(64 << 20);
        let [first, second, third] = [b"a", b"b", b"c"].map(|name| make(&test, name));
        let bytes = vec![3; 50_000];
        write(&test, first, 0, &bytes);
        clone(&test, (first, 0), (second, 0), 0).unwrap();
        assert_ne!(test.fs.root().shares.load(Relaxed), 0);
        test.open(&test.cx(), second, 2, 3).unwrap();
        let mut place = (0, 0, 0);
        test.map(&test.cx(), second, 0, 50_000, what, &mut |at, image, len| place = (at, image, len)).unwrap();
        assert_eq!(test.fs.root().shares.load(Relaxed), 0, "it is its own");
        // A store into the mapping, then a clone of it, then another store.
        let word = test.fs.image.word(place.1).unwrap();
        word.store(u64::MAX, Relaxed);
        clone(&test, (second, 0), (third, 0), 0).unwrap();
        assert_eq!(test.fs.root().shares.load(Relaxed), 0, "it is copied");
        word.store(5, Relaxed);
        assert_eq!(
            (read(&test, first), &read(&test, third)[..9]),
            (bytes.clone(), &[255, 255, 255, 255, 255, 255, 255, 255, 3][..])
        );
        // Nor does it become a clone.
        clone(&test, (first, 0), (second, 0), 0).unwrap();
        assert_eq!((read(&test, second), word.load(Relaxed)), (bytes, 0x0303_0303_0303_0303));
        assert_eq!(test.fs.root().shares.load(Relaxed), 0);
        is_whole(&test);
    }
}

/// Goal: where an image is full, what would break sharing says so and changes nothing; what needs no space goes on.
/// Method: all space taken; a write, an append within the last block, a hole in the middle of a block, then a removal.
#[test]
fn a_full_image_loses_nothing() {
    let test = TestFs::new(16 << 20);
    let [first, second] = [b"a", b"b"].map(|name| make(&test, name));
    let bytes = vec![3; 50_000];
    write(&test, first, 0, &bytes);
    clone(&test, (first, 0), (second, 0), 0).unwrap();
    let filler = make(&test, b"filler");
    let mut at = 0;
    while let Ok((done, end)) = test.write(&test.cx(), filler, Some(at), &[UserSlice::from_ref(&[9; 4096])]) {
        assert_eq!(done, 4096);
        at = end;
    }
    let full = Err(Errno::ENOSPC.into());
    let write_at = |node, at| test.write(&test.cx(), node, Some(at), &[UserSlice::from_ref(b"other")]).map(drop);
    for node in [first, second] {
        assert_eq!([write_at(node, 8000), write_at(node, 50_000)], [full; 2]);
        assert_eq!(test.fallocate(&test.cx(), node, Fallocate::PunchHole, 5000, 100), full);
        assert_eq!(test.fallocate(&test.cx(), node, Fallocate::Zero, 5000, 100), full);
    }
    assert_eq!((read(&test, first), read(&test, second)), (bytes.clone(), bytes));
    is_whole(&test);
    test.fallocate(&test.cx(), second, Fallocate::PunchHole, 4096, 8192).unwrap();
    test.unlink(&test.cx(), test.root_node(), b"a").unwrap();
    is_whole(&test);
    // It has them alone now.
    assert_eq!(write_at(second, 20_000), Ok(()));
    test.unlink(&test.cx(), test.root_node(), b"b").unwrap();
    test.unlink(&test.cx(), test.root_node(), b"filler").unwrap();
    is_whole(&test);
    assert_eq!(test.fs.root().shares.load(Relaxed), 0);
}

/// Goal: who dies in the middle of a clone, or of breaking it, or holding the counts, keeps nobody waiting, and leaves
/// all files whole. Method: a child dies with the counts locked, before and after what it does.
#[test]
fn who_dies_holding_the_counts() {
    for number in 0..3 {
        let test = TestFs::new(64 << 20);
        let [first, second, third] = [b"a", b"b", b"c"].map(|name| make(&test, name));
        let bytes = vec![3; 50_000];
        write(&test, first, 0, &bytes);
        clone(&test, (first, 0), (second, 0), 0).unwrap();
        test.dying(|cx| {
            match number {
                0 => {}
                1 => test.clone_range(cx, (first, 0), (third, 0), 0).unwrap(),
                _ => _ = test.write(cx, second, Some(100), &[UserSlice::from_ref(b"other")]).unwrap(),
            }
            let mut tx = test.begin(cx, format::lane::Kind::Clone).unwrap();
            let held = tx.lock_shares().is_ok();
            core::mem::forget(tx);
            held
        });
        assert_ne!(test.header().shares.0.load(Relaxed), 0);
        clone(&test, (second, 0), (third, 0), 0).unwrap();
        write(&test, first, 0, b"changed");
        let mut expected = bytes.clone();
        if number == 2 {
            expected[100..105].copy_from_slice(b"other");
        }
        assert!(read(&test, third) == expected && read(&test, second) == expected);
        is_whole(&test);
    }
}
