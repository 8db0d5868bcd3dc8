//! Data against a plain model, with maps that fragment.

use crate::testing::TestFs;
use base::{Cred, Cx, Fallocate, Kind, NewNode, Node, SetAttr, SetTime, Thread};
use core::sync::atomic::Ordering::Relaxed;
use format::BLOCK;
use openfiles::Handover;
use pm::{Errno, UserSlice};
use std::vec;
use std::vec::Vec;

pub(super) const FILE: NewNode<'static> = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

/// Deterministic random numbers.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
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

/// Goal: space allocated beyond the end goes when a file is cut to the length that it has; its contents stay, and its
/// times if it was cut by name. Method: a file with contents and an empty one.
#[test]
fn space_beyond_the_end_goes() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    for size in [0, 5000] {
        let node = make(&test, if size == 0 { b"empty" } else { b"full" });
        if size > 0 {
            write(&test, node, 0, &vec![7; size]);
        }
        for size_checked in [false, true] {
            test.fallocate(&cx, node, Fallocate::KeepSize, 0, 1 << 20).unwrap();
            test.set_attr(&cx, node, &SetAttr { mtime: Some(SetTime::At(5)), ..Default::default() }).unwrap();
            assert_eq!(test.attr(&cx, node).unwrap().blocks, (1 << 20) / 512);
            test.set_attr(&cx, node, &SetAttr { size: Some(size as u64), size_checked, ..Default::default() }).unwrap();
            let after = test.attr(&cx, node).unwrap();
            assert_eq!((after.size, after.blocks), (size as u64, (size as u64).div_ceil(BLOCK) * BLOCK / 512));
            assert_eq!(after.mtime == 5, !size_checked);
        }
        assert_eq!(read(&test, node, 0, 9000), vec![7; size]);
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
}

/// The checker finds nothing.
fn check(test: &TestFs) {
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    let issues: Vec<_> = report.issues.iter().map(|issue| std::format!("{issue}")).collect();
    assert_eq!(issues, [""; 0]);
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
        check(&test);
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
        check(&test);
        test.unlink(&test.cx(), test.root_node(), b"file").unwrap();
        test.close(&test.cx(), 3);
        assert!(free(&test).abs_diff(before) <= 2, "order {order}: {} blocks, before {before}", free(&test));
    }
}

/// Goal: a death in the middle of any change of data leaves a whole file that
/// others can go on with. Method: a child changes files until it is killed;
/// what it wrote has the block's number in every block, so foreign data show.
#[test]
fn killed_while_changing_data() {
    let test = TestFs::new(128 << 20);
    let nodes: Vec<Node> = (0..4u8).map(|i| test.create(&test.cx(), test.root_node(), &[b'a' + i], &FILE).unwrap()).collect();
    for round in 0..60u64 {
        let token = test.fork_prepare(&test.cx()).unwrap();
        // SAFETY: the child runs until it is killed.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            test.fork_child(token);
            change_for_ever(&test, &Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, &nodes, round);
        }
        std::thread::sleep(core::time::Duration::from_micros(1500 + round * 331 % 4000));
        // SAFETY: a child of ours.
        unsafe { kill(pid, 9) };
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status & 0x7f, 9, "the child failed");
        // A change that was not told to anybody may show only when the lane is adopted.
        for lane in 0..test.fs.header().lanes_high.get() {
            test.fs.adopt_if_dead(lane);
        }
        for (i, node) in nodes.iter().enumerate() {
            let size = test.attr(&test.cx(), *node).unwrap().size;
            let bytes = read(&test, *node, 0, size as usize);
            assert_eq!(bytes.len() as u64, size);
            for (block, bytes) in bytes.chunks(BLOCK as usize).enumerate() {
                let mark = (block as u8 | 1) ^ (i as u8) << 6;
                assert!(bytes.iter().all(|b| *b == 0 || *b == mark), "round {round}, file {i}, block {block}");
            }
            // It can be changed.
            write(&test, *node, BLOCK * 3, &[3 ^ (i as u8) << 6; 10]);
        }
        test.adopt_dead_processes(&test.cx());
        if round % 10 == 9 {
            check(&test);
        }
    }
}

fn change_for_ever(test: &TestFs, cx: &Cx, nodes: &[Node], seed: u64) -> ! {
    let mut random = Random(seed);
    loop {
        let file = random.below(nodes.len() as u64) as usize;
        let node = nodes[file];
        let (first, count) = (random.below(300), 1 + random.below(8));
        let mut bytes = vec![0; (count * BLOCK) as usize];
        for (i, block) in bytes.chunks_mut(BLOCK as usize).enumerate() {
            block.fill(((first + i as u64) as u8 | 1) ^ (file as u8) << 6);
        }
        match random.below(8) {
            0..=3 => drop(test.write(cx, node, Some(first * BLOCK), &[UserSlice::from_ref(&bytes)]).unwrap()),
            4 => {
                test.set_attr(cx, node, &SetAttr { size: Some(first * BLOCK), size_checked: true, ..Default::default() }).unwrap()
            }
            5 => test.fallocate(cx, node, Fallocate::PunchHole, first * BLOCK, count * BLOCK).unwrap(),
            6 => test.fallocate(cx, node, Fallocate::KeepSize, first * BLOCK, count * BLOCK).unwrap(),
            _ => {
                test.open(cx, node, 2, 5).unwrap();
                test.close(cx, 5);
            }
        }
    }
}

/// Goal: readers see a file whole, whatever a writer does to it. Method: one
/// thread punches, truncates and writes blocks that carry their mark, while
/// another file's blocks take the freed space; readers look for foreign bytes.
#[test]
fn readers_see_no_foreign_data() {
    let test = TestFs::new(32 << 20);
    let (a, b) = (make(&test, b"a"), test.create(&test.cx(), test.root_node(), b"b", &FILE).unwrap());
    let stop = core::sync::atomic::AtomicBool::new(false);
    let fs = test.fs;
    std::thread::scope(|scope| {
        for (node, mark) in [(a, 1u8), (b, 2)] {
            let stop = &stop;
            scope.spawn(move || {
                let thread = Thread::new();
                let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
                let mut random = Random(u64::from(mark));
                let bytes = vec![mark; 8 * BLOCK as usize];
                while !stop.load(Relaxed) {
                    let at = random.below(200) * BLOCK;
                    match random.below(4) {
                        0 => fs.fallocate(&cx, node, Fallocate::PunchHole, at, 20 * BLOCK).unwrap(),
                        1 => {
                            fs.set_attr(&cx, node, &SetAttr { size: Some(at), size_checked: true, ..Default::default() }).unwrap()
                        }
                        _ => drop(fs.write(&cx, node, Some(at), &[UserSlice::from_ref(&bytes)]).unwrap()),
                    }
                }
                fs.give_lane_back(&thread);
            });
        }
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let mut random = Random(99);
        let mut bytes = vec![0; 16 * BLOCK as usize];
        let (mut seen, start) = (0, std::time::Instant::now());
        while seen < 1 << 28 && start.elapsed().as_secs() < 5 {
            let (node, mark) = if random.below(2) == 0 { (a, 1) } else { (b, 2) };
            let at = random.below(200 * BLOCK);
            let len = random.below(16 * BLOCK) as usize;
            let done = fs.read(&cx, node, at, &[UserSlice::from_mut(&mut bytes[..len])]).unwrap();
            let foreign = bytes[..done].iter().find(|b| **b != 0 && **b != mark);
            assert_eq!(foreign, None);
            seen += bytes[..done].iter().filter(|b| **b == mark).count();
        }
        stop.store(true, Relaxed);
        assert!(seen > 0);
        fs.give_lane_back(&thread);
    });
    check(&test);
}

/// Goal: what fills the image's memory itself may come in pieces, and end early.
#[test]
fn filled_from_outside() {
    let test = TestFs::new(64 << 20);
    let node = make(&test, b"file");
    let mut left = 10_000;
    let mut fill = |part: UserSlice| {
        let count = part.len.min(left).min(3000);
        left -= count;
        part.part(0, count).zero();
        Ok(count)
    };
    assert_eq!(test.write_with(&test.cx(), node, 5, 20_000, &mut fill).unwrap(), 10_000);
    assert_eq!(test.attr(&test.cx(), node).unwrap().size, 10_005);
    let failed = test.write_with(&test.cx(), node, 20_000, 5, &mut |_| Err(Errno::EIO));
    assert_eq!(failed.map_err(|e| e.errno()), Err(Errno::EIO));
    assert_eq!(test.attr(&test.cx(), node).unwrap().size, 10_005);
    write(&test, node, 0, &[1; 10_005]);
    assert_eq!(test.write_with(&test.cx(), node, 8000, 5000, &mut |_| Ok(0)).unwrap(), 0);
    assert_eq!(read(&test, node, 0, 20_000), [1; 10_005]);
    check(&test);
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
    assert_eq!(
        test.fallocate(&test.cx(), node, Fallocate::Allocate, 1 << 30, 1 << 20).map_err(|e| e.errno()),
        Err(Errno::ENOSPC)
    );
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
    test.map(&test.cx(), node, 0, 1 << 20, base::MapFor::Reading, &mut |file, image, len| ranges.push((file, image, len)))
        .unwrap();
    assert_eq!(ranges.iter().map(|r| r.2).sum::<u64>(), 3 * BLOCK);
    resize(&test, node, 1);
    let word = test.fs.image.word(ranges[0].1 + BLOCK).unwrap();
    assert_eq!(word.load(Relaxed), 0);
    assert_eq!(test.attr(&test.cx(), node).unwrap().blocks, 24);
    test.close(&test.cx(), 3);
    assert_eq!(test.attr(&test.cx(), node).unwrap().blocks, 8);
}
