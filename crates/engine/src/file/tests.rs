//! Data against a plain model, with maps that fragment.

use crate::testing::TestFs;
use base::{Fallocate, Kind, NewNode, Node, SetAttr};
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use pm::{Errno, UserSlice};
use std::vec;
use std::vec::Vec;

const FILE: NewNode<'static> = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

/// Deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end.max(1)
    }
}

fn make(test: &TestFs, name: &[u8]) -> Node {
    let node = test.create(&test.cx(), test.root_node(), name, &FILE).unwrap();
    // Open, so that nothing is given back behind our back.
    test.open(&test.cx(), node, 2, 3).unwrap();
    node
}

fn write(test: &TestFs, node: Node, at: u64, bytes: &[u8]) -> usize {
    test.write(&test.cx(), node, Some(at), &[UserSlice::from_ref(bytes)]).unwrap().0
}

fn read(test: &TestFs, node: Node, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; len];
    let done = test.read(&test.cx(), node, at, &[UserSlice::from_mut(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn resize(test: &TestFs, node: Node, size: u64) {
    test.set_attr(&test.cx(), node, &SetAttr { size: Some(size), size_checked: true, ..Default::default() }).unwrap();
}

fn free(test: &TestFs) -> u64 {
    test.statfs().unwrap().blocks_free
}

/// Goal: a file behaves as a plain row of bytes. Method: random writes, appends,
/// truncations, punches, allocations and copies, against a `Vec`.
#[test]
fn behaves_like_bytes() {
    for seed in 1..=6 {
        let test = TestFs::new(64 << 20);
        let before = free(&test);
        let node = make(&test, b"file");
        let (mut random, mut model) = (Random(seed), Vec::new());
        let limit = 600 * BLOCK;
        for step in 0..1500u64 {
            let at = random.below(limit);
            // Mostly block by block, so that the map gets many extents.
            let at = if random.below(2) == 0 { at & !(BLOCK - 1) } else { at };
            let most = if random.below(10) == 0 { 20 * BLOCK } else { 2 * BLOCK };
            let len = 1 + random.below(most);
            match random.below(12) {
                0..=4 => {
                    let bytes = vec![step as u8 | 1; len as usize];
                    assert_eq!(write(&test, node, at, &bytes), bytes.len());
                    model.resize(model.len().max((at + len) as usize), 0);
                    model[at as usize..][..len as usize].copy_from_slice(&bytes);
                }
                5 => {
                    let (a, b) = (vec![7; len as usize / 2], vec![9; 100]);
                    let from = [UserSlice::from_ref(&a), UserSlice::from_ref(&b)];
                    let (done, end) = test.write(&test.cx(), node, None, &from).unwrap();
                    model.extend_from_slice(&a);
                    model.extend_from_slice(&b);
                    assert_eq!((done, end as usize), (a.len() + b.len(), model.len()));
                }
                6 => {
                    let size = random.below(limit);
                    resize(&test, node, size);
                    model.resize(size as usize, 0);
                }
                7 | 8 => {
                    test.fallocate(&test.cx(), node, Fallocate::PunchHole, at, len).unwrap();
                    let end = model.len().min((at + len) as usize);
                    model.get_mut(at as usize..end).unwrap_or_default().fill(0);
                }
                9 => {
                    let how = if random.below(2) == 0 { Fallocate::Zero } else { Fallocate::Allocate };
                    test.fallocate(&test.cx(), node, how, at, len).unwrap();
                    model.resize(model.len().max((at + len) as usize), 0);
                    if how == Fallocate::Zero {
                        model[at as usize..][..len as usize].fill(0);
                    }
                }
                10 => test.fallocate(&test.cx(), node, Fallocate::KeepSize, at, len).unwrap(),
                _ => {
                    let to = random.below(limit);
                    match test.copy_range(&test.cx(), node, at, node, to, len) {
                        Ok(done) => {
                            let (at, to, done) = (at as usize, to as usize, done as usize);
                            if done > 0 {
                                model.resize(model.len().max(to + done), 0);
                                model.copy_within(at..at + done, to);
                            }
                        }
                        Err(error) => assert_eq!(error.errno(), Errno::EINVAL),
                    }
                }
            }
            let attr = test.attr(&test.cx(), node).unwrap();
            assert_eq!(attr.size, model.len() as u64, "seed {seed} step {step}");
            let (from, len) = (random.below(limit) as usize, random.below(30 * BLOCK) as usize);
            let expected = model.get(from..model.len().min(from + len)).unwrap_or_default();
            assert_eq!(read(&test, node, from as u64, len), expected, "seed {seed} step {step}");
            if step % 100 == 0 {
                assert_eq!(read(&test, node, 0, limit as usize * 2), model, "seed {seed} step {step}");
            }
        }
        test.unlink(&test.cx(), test.root_node(), b"file").unwrap();
        test.close(&test.cx(), 3);
        assert!(free(&test).abs_diff(before) <= 2, "seed {seed}: {} blocks, before {before}", free(&test));
    }
}

/// Goal: trees of several levels grow and shrink, in any order. Method: every
/// second block of a large sparse file, forwards, backwards and mixed.
#[test]
fn trees_grow_and_shrink() {
    for order in 0..3u64 {
        let test = TestFs::new(256 << 20);
        let before = free(&test);
        let node = make(&test, b"file");
        let count = 9_000u64;
        let place = |i: u64| match order {
            0 => i,
            1 => count - 1 - i,
            _ => i * 4_999 % count,
        };
        for i in 0..count {
            let block = place(i) * 2;
            write(&test, node, block * BLOCK + 5, &block.to_le_bytes());
        }
        for i in 0..count {
            assert_eq!(read(&test, node, i * 2 * BLOCK + 5, 8), (i * 2).to_le_bytes(), "order {order} block {i}");
            assert_eq!(read(&test, node, (i * 2 + 1) * BLOCK, 4), if i + 1 < count { vec![0; 4] } else { vec![] });
        }
        let attr = test.attr(&test.cx(), node).unwrap();
        assert_eq!(attr.blocks, count * 8);
        // Every third goes, then the upper half, then all.
        for i in (0..count).step_by(3) {
            test.fallocate(&test.cx(), node, Fallocate::PunchHole, place(i) * 2 * BLOCK, BLOCK).unwrap();
        }
        for i in 0..count {
            let expected = if i % 3 == 0 { [0; 8] } else { (place(i) * 2).to_le_bytes() };
            // The last bytes of the file may be fewer.
            let bytes = read(&test, node, place(i) * 2 * BLOCK + 5, 8);
            assert_eq!(bytes, expected[..bytes.len()], "order {order} block {i}");
        }
        resize(&test, node, count * BLOCK);
        for i in 0..count / 2 {
            let block = read(&test, node, i * 2 * BLOCK + 5, 8);
            assert!(block == [0; 8] || block == (i * 2).to_le_bytes());
        }
        test.unlink(&test.cx(), test.root_node(), b"file").unwrap();
        test.close(&test.cx(), 3);
        assert!(free(&test).abs_diff(before) <= 2, "order {order}: {} blocks, before {before}", free(&test));
    }
}

/// Goal: data and holes are where they should be.
#[test]
fn seeks_data_and_holes() {
    let test = TestFs::new(64 << 20);
    let node = make(&test, b"file");
    write(&test, node, 10 * BLOCK, &[1; 100]);
    write(&test, node, 20 * BLOCK, &[1; BLOCK as usize]);
    resize(&test, node, 40 * BLOCK);
    let seek = |at, data| test.seek(&test.cx(), node, at, data).map_err(|e| e.errno());
    assert_eq!(seek(0, true), Ok(10 * BLOCK));
    assert_eq!(seek(10 * BLOCK + 7, true), Ok(10 * BLOCK + 7));
    assert_eq!(seek(10 * BLOCK, false), Ok(11 * BLOCK));
    assert_eq!(seek(11 * BLOCK, true), Ok(20 * BLOCK));
    assert_eq!(seek(20 * BLOCK, false), Ok(21 * BLOCK));
    assert_eq!(seek(21 * BLOCK, true), Err(Errno::ENXIO));
    assert_eq!(seek(21 * BLOCK, false), Ok(21 * BLOCK));
    assert_eq!(seek(40 * BLOCK, false), Err(Errno::ENXIO));
}

/// Goal: a growing file gets blocks ahead, and gives them back at the last close.
#[test]
fn gives_back_what_was_ahead() {
    let test = TestFs::new(64 << 20);
    let node = make(&test, b"file");
    for _ in 0..100 {
        test.write(&test.cx(), node, None, &[UserSlice::from_ref(&[3; 1000])]).unwrap();
    }
    assert!(test.attr(&test.cx(), node).unwrap().blocks > 25 * 8);
    test.close(&test.cx(), 3);
    assert_eq!(test.attr(&test.cx(), node).unwrap().blocks, 25 * 8);
    assert_eq!(read(&test, node, 0, 1 << 20), vec![3; 100_000]);
}

/// Goal: a full image gives `ENOSPC`, what fits is written, and all of it comes back.
#[test]
fn full_image() {
    let test = TestFs::new(16 << 20);
    let before = free(&test);
    let node = make(&test, b"file");
    let bytes = vec![1; 1 << 20];
    let mut total = 0;
    let error = loop {
        match test.write(&test.cx(), node, None, &[UserSlice::from_ref(&bytes)]) {
            Ok((done, _)) => total += done,
            Err(error) => break error.errno(),
        }
    };
    assert_eq!(error, Errno::ENOSPC);
    assert!(total as u64 > before * BLOCK * 9 / 10, "{total} of {}", before * BLOCK);
    assert_eq!(test.attr(&test.cx(), node).unwrap().size, total as u64);
    assert_eq!(test.fallocate(&test.cx(), node, Fallocate::Allocate, 1 << 30, 1 << 20).map_err(|e| e.errno()), Err(Errno::ENOSPC));
    resize(&test, node, 0);
    assert!(free(&test).abs_diff(before) <= 2);
}

/// Goal: blocks of a mapped file stay its own: truncation empties them.
#[test]
fn mapped_files_keep_their_blocks() {
    let test = TestFs::new(64 << 20);
    let node = make(&test, b"file");
    write(&test, node, 0, &[1; 10_000]);
    let mut ranges = Vec::new();
    test.map(&test.cx(), node, 0, 1 << 20, true, &mut |file, image, len| ranges.push((file, image, len))).unwrap();
    assert_eq!(ranges.iter().map(|r| r.2).sum::<u64>(), 3 * BLOCK);
    resize(&test, node, 1);
    let word = test.fs.image.word(ranges[0].1 + BLOCK).unwrap();
    assert_eq!(word.load(Relaxed), 0);
    assert_eq!(test.attr(&test.cx(), node).unwrap().blocks, 24);
    test.close(&test.cx(), 3);
    assert_eq!(test.attr(&test.cx(), node).unwrap().blocks, 8);
}
