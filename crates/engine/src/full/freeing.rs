//! What frees space, or makes something smaller, on images where there is none: it works, or nothing has happened,
//! and all that it frees can be used again.

use super::operations::remove_all;
use super::{check, state};
use crate::alloc::fault::{self, Kind as What};
use crate::testing::TestFs;
use crate::{Errno, Error, Fallocate, Kind, NewNode, Node, RenameMode, Result, SetAttr};
use format::BLOCK;
use format::extent::NODE_ENTRIES;
use pm::UserSlice;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// More points than an operation has.
const POINTS_MAX: u32 = 100;
/// Size of the images.
const LIMIT: u64 = 32 << 20;

/// An operation, and whether it may say `ENOSPC` when not even what is kept back is there.
struct Freeing(&'static str, bool, fn(&TestFs) -> Result<()>);

fn make(test: &TestFs, name: &str, kind: Kind) -> Node {
    let new = NewNode { kind, mode: 0o755, rdev: 0, target: b"target" };
    test.create(&test.cx(), test.root_node(), name.as_bytes(), &new).unwrap()
}

fn node(test: &TestFs, name: &str) -> Node {
    test.lookup(&test.cx(), test.root_node(), name.as_bytes()).unwrap()
}

fn write(test: &TestFs, node: Node, block: u64, blocks: u64) -> Result<()> {
    let bytes: Vec<u8> = (0..blocks * BLOCK).map(|i| (block + i / BLOCK) as u8 | 1).collect();
    test.write(&test.cx(), node, Some(block * BLOCK), &[UserSlice::from_ref(&bytes)]).map(drop)
}

/// A file of `extents` extents of `blocks` blocks, with a hole of one behind each.
fn scattered(test: &TestFs, name: &str, extents: u64, blocks: u64) -> Node {
    let node = make(test, name, Kind::Regular);
    (0..extents).for_each(|i| write(test, node, i * (blocks + 1), blocks).unwrap());
    node
}

fn set(test: &TestFs, name: &str, attribute: &str, len: usize) -> Result<()> {
    let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
    test.set_xattr(&test.cx(), node(test, name), attribute.as_bytes(), UserSlice::from_ref(&value), 0)
}

fn unset(test: &TestFs, name: &str, attribute: &str) -> Result<()> {
    test.remove_xattr(&test.cx(), node(test, name), attribute.as_bytes())
}

fn punch(test: &TestFs, name: &str, block: u64, blocks: u64) -> Result<()> {
    test.fallocate(&test.cx(), node(test, name), Fallocate::PunchHole, block * BLOCK, blocks * BLOCK)
}

fn zero(test: &TestFs, name: &str, at: u64, len: u64) -> Result<()> {
    test.fallocate(&test.cx(), node(test, name), Fallocate::ZeroKeepSize, at, len)
}

fn cut(test: &TestFs, name: &str, size: u64) -> Result<()> {
    test.set_attr(&test.cx(), node(test, name), &SetAttr { size: Some(size), ..Default::default() })
}

fn unlink(test: &TestFs, name: &str) -> Result<()> {
    test.unlink(&test.cx(), test.root_node(), name.as_bytes())
}

fn move_over(test: &TestFs, from: &str, to: &str) -> Result<()> {
    let root = test.root_node();
    test.rename(&test.cx(), root, from.as_bytes(), root, to.as_bytes(), RenameMode::Replace)
}

const LEAF: u64 = NODE_ENTRIES as u64;

/// What the operations work on.
fn tree(test: &TestFs) {
    write(test, make(test, "one", Kind::Regular), 0, 40).unwrap();
    write(test, make(test, "start", Kind::Regular), 0, 40).unwrap();
    // A leaf that is full, and some that are not.
    scattered(test, "leaf", LEAF, 3);
    scattered(test, "some", 60, 3);
    scattered(test, "two levels", LEAF + 40, 3);
    for name in ["few", "many", "large"] {
        make(test, name, Kind::Regular);
        (0..5).for_each(|i| set(test, name, &format!("user.{i}"), 700).unwrap());
    }
    (0..60).for_each(|i| set(test, "many", &format!("user.small {i}"), 90).unwrap());
    set(test, "large", "user.large", 60_000).unwrap();
    for name in ["open", "attributes", "target", "target 2"] {
        scattered(test, name, 55, 1);
        set(test, name, "user.a", 3).unwrap();
    }
    make(test, "source", Kind::Regular);
    for name in ["empty", "full of names"] {
        let dir = make(test, name, Kind::Directory);
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        for i in 0..600 {
            test.create(&test.cx(), dir, format!("{i}").as_bytes(), &new).unwrap();
        }
        (0..600).for_each(|i| test.unlink(&test.cx(), dir, format!("{i}").as_bytes()).unwrap());
    }
    test.open(&test.cx(), node(test, "open"), 2, 3).unwrap();
}

const ALL: &[Freeing] = &[
    Freeing("punch a single extent", false, |t| punch(t, "one", 7, 2)),
    Freeing("punch the start of a single extent", false, |t| punch(t, "start", 0, 1)),
    Freeing("punch an extent of a full leaf", false, |t| punch(t, "leaf", 4 * 100 + 1, 1)),
    Freeing("punch the first extent of a full leaf", false, |t| punch(t, "leaf", 1, 1)),
    Freeing("punch the last extent of a full leaf", false, |t| punch(t, "leaf", 4 * (LEAF - 1) + 1, 1)),
    Freeing("punch the start of an extent", false, |t| punch(t, "leaf", 4 * 9, 1)),
    Freeing("punch a whole extent", false, |t| punch(t, "leaf", 4 * 9, 3)),
    Freeing("punch many extents, from within to within", false, |t| punch(t, "some", 4 * 3 + 1, 4 * 50)),
    Freeing("punch below the top", false, |t| punch(t, "two levels", 4 * 20 + 1, 1)),
    Freeing("punch whole leaves", false, |t| punch(t, "two levels", 4 * 3 + 1, 4 * (LEAF + 20))),
    Freeing("zero what is there", false, |t| zero(t, "one", 10 * BLOCK + 7, 3 * BLOCK)),
    Freeing("truncate", false, |t| cut(t, "leaf", 4 * 200 * BLOCK + 5)),
    Freeing("truncate to nothing", false, |t| cut(t, "leaf", 0)),
    Freeing("truncate two levels", false, |t| cut(t, "two levels", 4 * 10 * BLOCK)),
    Freeing("remove an attribute", true, |t| unset(t, "few", "user.2")),
    Freeing("remove one of many", true, |t| unset(t, "many", "user.small 1")),
    Freeing("remove a small one before a large one", true, |t| unset(t, "large", "user.1")),
    Freeing("shorten an attribute", true, |t| set(t, "few", "user.1", 500)),
    Freeing("replace an attribute", true, |t| set(t, "few", "user.3", 700)),
    Freeing("shorten a large one", true, |t| set(t, "large", "user.large", 59_000)),
    Freeing("remove a large one", true, |t| unset(t, "large", "user.large")),
    Freeing("remove the only one", false, |t| unset(t, "open", "user.a")),
    Freeing("unlink", false, |t| unlink(t, "attributes")),
    Freeing("unlink two levels", false, |t| unlink(t, "two levels")),
    Freeing("unlink attributes", false, |t| unlink(t, "large")),
    Freeing("unlink and close", false, |t| {
        unlink(t, "open")?;
        t.close(&t.cx(), 3);
        Ok(())
    }),
    Freeing("rename over", true, |t| move_over(t, "source", "target")),
    Freeing("rename a directory over", true, |t| move_over(t, "full of names", "empty")),
    Freeing("rmdir", false, |t| {
        let name = if t.lookup(&t.cx(), t.root_node(), b"full of names").is_ok() { "full of names" } else { "empty" };
        t.rmdir(&t.cx(), t.root_node(), name.as_bytes())
    }),
];

/// Every name, with its contents and its attributes.
fn seen(test: &TestFs) -> BTreeMap<String, (u64, u64, String)> {
    let mut names: Vec<String> = Vec::new();
    test.readdir(&test.cx(), test.root_node(), 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .unwrap();
    names.retain(|name| !name.starts_with("fill") && !name.starts_with('.'));
    let look = |name: String| {
        let node = node(test, &name);
        let attr = test.attr(&test.cx(), node).unwrap();
        let is_file = attr.kind == Kind::Regular;
        let mut bytes = vec![0; if is_file { attr.size as usize } else { 0 }];
        if is_file {
            assert_eq!(test.read(&test.cx(), node, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap(), bytes.len());
        }
        let mut list = vec![0; 9000];
        let len = test.list_xattr(&test.cx(), node, UserSlice::from_mut(&mut list)).unwrap();
        let mut attributes = String::new();
        for attribute in list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 65_536];
            let len = test.get_xattr(&test.cx(), node, attribute, UserSlice::from_mut(&mut value)).unwrap();
            let sum = format::checksum::bytes(&value[..len]);
            attributes += &format!("{} {len} {sum:x};", String::from_utf8_lossy(attribute));
        }
        (name, (attr.size, format::checksum::bytes(&bytes), attributes))
    };
    names.into_iter().map(look).collect()
}

/// The image is whole, nothing waits to be freed, and once all is removed all space is free again.
fn all_comes_back(test: &TestFs, start: &state::State, when: &str) {
    let settled = |test: &TestFs| {
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!((report.issues, report.orphans), (vec![], 0), "{when}");
        assert_eq!(state::of(test).reserved, 0, "{when}: reservations are left");
    };
    test.close(&test.cx(), 3);
    settled(test);
    remove_all(test, test.root_node());
    settled(test);
    let end = state::of(test);
    let kept = end.table_blocks - start.table_blocks;
    assert_eq!(start.free_lines, end.free_lines + kept * 64 + end.overflow_lines, "{when}");
}

/// Goal: whatever frees works though an image has no block left, from any of its allocations on; and where not even
/// what is kept back is there, it has been done or nothing has happened. Method: all allocations fail from the n-th
/// on; the same operation without faults says what is right.
#[test]
fn every_allocation_fails() {
    let mut points = 0;
    for Freeing(name, may_fail, run) in ALL {
        let (before, after) = {
            let test = TestFs::new(LIMIT);
            tree(&test);
            let before = seen(&test);
            run(&test).unwrap();
            (before, seen(&test))
        };
        for all in [false, true] {
            for n in 1..POINTS_MAX {
                let when = format!("{name}, no space from point {n} on, nothing kept back: {all}");
                let test = TestFs::new(LIMIT);
                let start = state::of(&test);
                tree(&test);
                fault::fill_up(n, all);
                let result = run(&test);
                let struck = fault::disarm();
                match result {
                    Ok(()) => assert_eq!(seen(&test), after, "{when}"),
                    Err(error) => {
                        assert_eq!(error, Error::Posix(Errno::ENOSPC), "{when}");
                        assert!(all && *may_fail || name.starts_with("rename"), "{when}");
                        assert_eq!(seen(&test), before, "{when}");
                    }
                }
                all_comes_back(&test, &start, &when);
                if !struck {
                    break;
                }
                points += 1;
            }
        }
    }
    std::println!("{} operations, {points} points", ALL.len());
    assert!(points >= 40, "the points are not reached: {points}");
}

/// Takes every block that is to be had.
fn fill_up(test: &TestFs, name: &str) {
    let file = make(test, name, Kind::Regular);
    let mut at = 0;
    for blocks in [64, 1] {
        while write(test, file, at, blocks).is_ok() {
            at = test.attr(&test.cx(), file).unwrap().size.div_ceil(BLOCK);
        }
    }
    assert!(write(test, file, at, 1).is_err());
}

/// Goal: on a full image all that frees works, also if others take what has been freed at once. Method: the same
/// operations one after the other, the image filled up again before each.
#[test]
fn freeing_on_a_full_image() {
    let test = TestFs::new(LIMIT);
    let start = state::of(&test);
    tree(&test);
    for (i, Freeing(name, _, run)) in ALL.iter().enumerate() {
        fill_up(&test, &format!("fill {i}"));
        match run(&test) {
            Ok(()) => {}
            // A name that is longer than the old one needs lines, as any name does.
            Err(error) => assert!(name.starts_with("rename"), "{name}: {error:?}"),
        }
        check(&test, name);
    }
    all_comes_back(&test, &start, "a full image");
}

/// Goal: any block of a file can be punched on a full image, and is given back. Method: a third of a file's blocks in
/// order, then in no order; what is freed is taken again each time.
#[test]
fn punching_on_a_full_image() {
    let test = TestFs::new(LIMIT);
    let start = state::of(&test);
    let blocks = 2000;
    for (name, step) in [("in order", 3), ("in no order", 1667)] {
        let file = make(&test, name, Kind::Regular);
        write(&test, file, 0, blocks).unwrap();
        fill_up(&test, &format!("fill {name}"));
        let more = make(&test, &format!("fill again {name}"), Kind::Regular);
        let (mut taken, mut punched) = (0, 0);
        for i in (0..blocks / 3).map(|i| i * step % blocks) {
            punch(&test, name, i, 1).unwrap();
            punched += 1;
            while write(&test, more, taken, 1).is_ok() {
                taken += 1;
            }
        }
        assert_eq!(test.attr(&test.cx(), file).unwrap().blocks, (blocks - punched) * BLOCK / 512, "{name}");
        assert!(taken > punched / 2, "{name}: {taken} of {punched}");
        let mut bytes = vec![0; (blocks * BLOCK) as usize];
        test.read(&test.cx(), file, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap();
        for (i, block) in bytes.chunks(BLOCK as usize).enumerate() {
            let is_hole = (0..blocks / 3).any(|n| n * step % blocks == i as u64);
            let right = if is_hole { 0 } else { i as u8 | 1 };
            assert!(block.iter().all(|byte| *byte == right), "{name}: block {i}");
        }
        check(&test, name);
        for name in [name, &format!("fill {name}"), &format!("fill again {name}")] {
            unlink(&test, name).unwrap();
        }
    }
    all_comes_back(&test, &start, "punched");
}

/// Goal: a set of attributes can be made smaller on a full image again and again, though others take what it frees at
/// once: the first who takes anything makes up for what was kept back.
#[test]
fn attributes_shrink_on_a_full_image() {
    let test = TestFs::new(LIMIT);
    let start = state::of(&test);
    make(&test, "shrinks", Kind::Regular);
    set(&test, "shrinks", "user.large", 30_000).unwrap();
    // What is kept back does not lie beside it.
    scattered(&test, "apart", 2, 40);
    (0..100).for_each(|i| set(&test, "shrinks", &format!("user.{i}"), 100).unwrap());
    fill_up(&test, "fill");
    let takes = make(&test, "fill again", Kind::Regular);
    for i in 0..100 {
        let name = format!("user.{i}");
        let done = if i % 2 == 0 { unset(&test, "shrinks", &name) } else { set(&test, "shrinks", &name, 90) };
        done.unwrap_or_else(|error| panic!("attribute {i}: {error:?}"));
        while write(&test, takes, test.attr(&test.cx(), takes).unwrap().size.div_ceil(BLOCK), 32).is_ok() {
            assert_eq!(test.spare_blocks(), test.spare_max(), "attribute {i}");
        }
        assert_eq!(test.spare_blocks(), test.spare_max(), "attribute {i}");
    }
    check(&test, "attributes");
    all_comes_back(&test, &start, "attributes");
}

/// Goal: a file goes with all that it holds, however many extents it has. Method: files of 2 to 120 extents of a
/// block each, with an attribute, are removed; by the last close too.
#[test]
fn files_of_any_number_of_extents_go() {
    let test = TestFs::new(LIMIT);
    let start = state::of(&test);
    for extents in 2..=120 {
        for open in [false, true] {
            let file = scattered(&test, "file", extents, 1);
            set(&test, "file", "user.x", 3).unwrap();
            if open {
                test.open(&test.cx(), file, 2, 4).unwrap();
            }
            unlink(&test, "file").unwrap();
            test.close(&test.cx(), 4);
            let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
            assert_eq!((report.issues, report.orphans), (vec![], 0), "{extents} extents, open: {open}");
        }
    }
    all_comes_back(&test, &start, "files of many extents");
}

/// Goal: a removed file that cannot be freed at once is freed later: by the next who frees one, or who attaches.
/// Method: a fault in the first attempt.
#[test]
fn what_cannot_be_freed_is_tried_again() {
    for attach in [false, true] {
        let mut test = TestFs::new(LIMIT);
        let start = state::of(&test);
        for name in ["first", "second"] {
            scattered(&test, name, 100, 1);
        }
        fault::arm(What::Reclaim, 1);
        unlink(&test, "first").unwrap();
        assert!(fault::disarm());
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!((report.issues, report.orphans), (vec![], 1));
        assert!(report.orphan_lines > 100 * 64, "{}", report.orphan_lines);
        if attach {
            test = test.again();
        } else {
            unlink(&test, "second").unwrap();
        }
        all_comes_back(&test, &start, "freed later");
    }
}

/// The result of what frees.
fn must(result: Result<()>) -> Result<()> {
    assert_eq!(result, Ok(()), "there must be no error");
    result
}

/// Goal: what fails half-way on a full image leaves nothing behind. Method: `fallocate`, writes, truncations, punches and
/// removals at random, where space is short; then all is removed.
#[test]
fn nothing_is_lost_where_space_is_short() {
    for seed in 1..=4u64 {
        let test = TestFs::new(16 << 20);
        let start = state::of(&test);
        let mut random = seed;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        let mut full = 0;
        for _ in 0..6000 {
            let name = format!("f{}", below(40));
            let file = match test.lookup(&test.cx(), test.root_node(), name.as_bytes()) {
                Ok(file) => file,
                Err(_) => match super::operations::make_file(&test, test.root_node(), name.as_bytes(), 0) {
                    Ok(()) => node(&test, &name),
                    Err(_) => continue,
                },
            };
            let (at, len) = (below(6 << 20), 1 + below(300_000));
            let allocate = |how| test.fallocate(&test.cx(), file, how, at, len);
            let size = test.attr(&test.cx(), file).unwrap().size;
            let result = match below(40) {
                0 => must(unlink(&test, &name)),
                1 | 2 => must(cut(&test, &name, at.min(size))),
                3 => must(allocate(Fallocate::PunchHole)),
                4..=7 => allocate(Fallocate::ZeroKeepSize),
                8..=11 => allocate(Fallocate::Zero),
                12..=16 => allocate(Fallocate::KeepSize),
                17..=26 => allocate(Fallocate::Allocate),
                _ => {
                    let bytes = vec![1; len as usize / 5];
                    test.write(&test.cx(), file, Some(at), &[UserSlice::from_ref(&bytes)]).map(drop)
                }
            };
            if let Err(error) = result {
                assert_eq!(error, Error::Posix(Errno::ENOSPC));
                full += 1;
            }
        }
        assert!(full > 300, "the image was not full: {full}");
        all_comes_back(&test, &start, &format!("seed {seed}"));
    }
}
