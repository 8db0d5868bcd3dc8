//! Running out: of blocks and lines, permissions, orphans, cachelets, descriptions.
//!
//! Each operation of [`operations::ALL`] meets each point at which something can
//! run out: the right error, the same tree as before, the same free space, a
//! clean check. And on images that are really full.

mod freeing;
mod operations;
mod state;

use crate::alloc::fault::{self, Kind};
use crate::testing::TestFs;
use crate::{Errno, Error};
use operations::{ALL, Operation, Tree};
use std::format;
use std::vec::Vec;

/// What can run out, and what it is called then.
const KINDS: [(Kind, Errno); 5] = [
    (Kind::Space, Errno::ENOSPC),
    (Kind::Permission, Errno::ENOSPC),
    (Kind::Orphan, Errno::ENOSPC),
    (Kind::Cachelet, Errno::ENOMEM),
    (Kind::Description, Errno::ENFILE),
];

/// More points than an operation has.
const POINTS_MAX: u32 = 100;

fn check(test: &TestFs, when: &str) {
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, [], "{when}");
}

/// Lets `kind` run out at point 1, 2, … of an operation until it no longer gets
/// so far; returns how many points there were.
fn run_out(operation: &Operation, kind: Kind, errno: Errno) -> u32 {
    let test = TestFs::new(16 << 20);
    let tree = Tree::new(&test);
    for n in 1..POINTS_MAX {
        let when = format!("{}, out of {kind:?} at point {n}", operation.name);
        let before = state::of(&test);
        fault::arm(kind, n);
        let result = (operation.run)(&test, &tree);
        let struck = fault::disarm();
        if !struck {
            result.unwrap_or_else(|error| panic!("{when}: not reached, but {error:?}"));
            check(&test, &when);
            return n - 1;
        }
        match result {
            Err(error) => assert_eq!(error, Error::Posix(errno), "{when}"),
            // Done without what was not to be had (a cache, a larger run), or less of it.
            Ok(()) => {
                assert!(operation.may_do_without, "{when}: it worked");
                check(&test, &when);
                return n + run_out_rest(operation, kind, n);
            }
        }
        let after = state::of(&test);
        assert_eq!(before.tree, after.tree, "{when}");
        // A directory or the index may have grown before: that is a record of its own, and nothing is lost.
        let grown = after.table_blocks - before.table_blocks;
        assert_eq!(before.free_lines, after.free_lines + grown * 64, "{when}");
        assert_eq!(after.reserved, 0, "{when}: reservations are left");
        check(&test, &when);
    }
    panic!("{}: no end of points", operation.name);
}

/// The points behind `n`, each on a fresh image: the operation has been done.
fn run_out_rest(operation: &Operation, kind: Kind, n: u32) -> u32 {
    for more in n + 1..POINTS_MAX {
        let test = TestFs::new(16 << 20);
        let tree = Tree::new(&test);
        fault::arm(kind, more);
        let result = (operation.run)(&test, &tree);
        let struck = fault::disarm();
        check(&test, &format!("{}, out of {kind:?} at point {more}", operation.name));
        assert_eq!(state::of(&test).reserved, 0, "{}: reservations are left", operation.name);
        if !struck {
            result.unwrap();
            return more - 1 - n;
        }
    }
    panic!("{}: no end of points", operation.name);
}

/// Goal: whatever runs out, at whatever point of whatever operation: an error
/// that says so, and nothing has changed. Method: faults, one at a time.
#[test]
fn every_operation_at_every_point() {
    let mut points = 0;
    for operation in ALL {
        let counts: Vec<u32> = KINDS.iter().map(|(kind, errno)| run_out(operation, *kind, *errno)).collect();
        assert!(!operation.removes || counts[0] == 0, "{} needs space to remove something", operation.name);
        points += counts.iter().sum::<u32>();
    }
    std::println!("{} operations, {points} points", ALL.len());
    assert!(points >= 70, "the points are not reached: {points}");
}

/// Fills an image: files of `len` bytes in a directory of their own until there
/// is no room for another, then empty ones.
fn fill(test: &TestFs, len: usize) {
    let dir = operations::make_directory(test, state::FULL.as_bytes());
    let mut full = 0;
    for i in 0..1_000_000 {
        let (name, len) = (format!("f{i}"), if full > 0 { 0 } else { len });
        if let Err(error) = operations::make_file(test, dir, name.as_bytes(), len) {
            assert_eq!(error, Error::Posix(Errno::ENOSPC));
            full += 1;
        }
        if full > 3 {
            return;
        }
    }
    panic!("the image does not get full");
}

/// Goal: on a full image every operation says `ENOSPC` or needs no space, and
/// removing works until nothing is left and all space is free again.
/// Method: images of several sizes, filled with files of several sizes.
#[test]
fn full_images() {
    for (limit, len) in [(16 << 20, 0), (16 << 20, 100), (24 << 20, 3000), (32 << 20, 40_000)] {
        let test = TestFs::new(limit);
        let start = state::of(&test);
        let tree = Tree::new(&test);
        fill(&test, len);
        let when = format!("{limit} bytes full of files of {len}");
        check(&test, &when);
        for operation in ALL.iter().filter(|operation| !operation.removes) {
            let before = state::of(&test);
            match (operation.run)(&test, &tree) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, Error::Posix(Errno::ENOSPC), "{when}: {}", operation.name);
                    let after = state::of(&test);
                    assert_eq!((&before.tree, before.free_lines), (&after.tree, after.free_lines), "{when}: {}", operation.name);
                }
            }
            assert_eq!(state::of(&test).reserved, 0, "{when}: {}", operation.name);
        }
        check(&test, &when);
        operations::remove_all(&test, test.root_node());
        check(&test, &when);
        let end = state::of(&test);
        // The root's slots and the index keep what they have grown to.
        let kept = end.table_blocks - start.table_blocks;
        assert_eq!(start.free_lines, end.free_lines + kept * 64 + end.overflow_lines, "{when}");
        assert_eq!(end.reserved, 0, "{when}");
    }
}
