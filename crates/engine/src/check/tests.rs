//! Each test plants one fault in a clean image and expects one finding.

use super::{IssueKind, Report, run};
use crate::names::proper;
use crate::testing::TestFs;
use crate::{Cx, Kind, NewNode, Node};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::inode::{node_offset, word};
use format::layout::{self, BLOCK, Layout};
use std::format;
use std::string::String;
use std::vec::Vec;

pub(crate) const fn new(kind: Kind) -> NewNode<'static> {
    let target: &[u8] =
        if matches!(kind, Kind::Symlink) { b"a target that takes more than one line of sixty-four bytes, surely" } else { b"" };
    NewNode { kind, mode: 0o644, rdev: 0, target }
}

/// An image with some of everything.
pub(crate) fn populated() -> TestFs {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let root = test.root_node();
    let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
    for i in 0..40 {
        let name = format!("file-{i}-{}", "x".repeat(i * 5));
        test.create(&cx, if i % 2 == 0 { root } else { dir }, name.as_bytes(), &new(Kind::Regular)).unwrap();
    }
    test.create(&cx, dir, b"sub", &new(Kind::Directory)).unwrap();
    test.create(&cx, root, b"link", &new(Kind::Symlink)).unwrap();
    let hard = test.lookup(&cx, root, b"file-0-").unwrap();
    test.link(&cx, hard, dir, b"hard").unwrap();
    test.unlink(&cx, root, b"file-2-xxxxxxxxxx").unwrap();
    test
}

fn check(test: &TestFs) -> Report {
    run(&test.image.path(), &mut |_| {}).unwrap()
}

/// What a fault in a fresh image leads to.
fn planted<R>(fault: impl FnOnce(&TestFs, &Cx) -> R) -> Vec<IssueKind> {
    let test = populated();
    fault(&test, &test.cx());
    let report = check(&test);
    for issue in &report.issues {
        std::println!("{issue}");
    }
    let mut kinds: Vec<IssueKind> = report.issues.iter().map(|issue| issue.kind).collect();
    kinds.dedup();
    kinds
}

pub(crate) fn node(test: &TestFs, name: &[u8]) -> Node {
    test.lookup(&test.cx(), test.root_node(), name).unwrap()
}

pub(crate) fn at(test: &TestFs, offset: u64) -> &AtomicU64 {
    test.fs.at(offset, "a word of the test").unwrap()
}

pub(crate) fn edentry_of(test: &TestFs, name: &[u8]) -> u64 {
    let root = test.fs.root().root_inode.load(Relaxed);
    test.fs.hit(&test.fs.entry_key(root, proper(name).unwrap())).unwrap().unwrap().edentry
}

/// Goal: a clean image is clean, and counted right.
#[test]
fn clean() {
    let test = populated();
    let report = check(&test);
    assert_eq!(report.issues, []);
    assert_eq!((report.directories, report.orphans), (3, 0));
    assert_eq!(report.files, 3 + 39 + 1);
    assert_eq!(report.names, 39 + 4);
}

/// Goal: an open file without a name is an orphan, not a leak.
#[test]
fn orphan() {
    let test = populated();
    let cx = test.cx();
    let file = node(&test, b"file-4-xxxxxxxxxxxxxxxxxxxx");
    test.open(&cx, file, 0, 3).unwrap();
    test.unlink(&cx, test.root_node(), b"file-4-xxxxxxxxxxxxxxxxxxxx").unwrap();
    let report = check(&test);
    assert_eq!(report.issues, []);
    assert_eq!(report.orphans, 1);
}

/// Goal: a bit set for nothing, and a bit missing, are found.
#[test]
fn bitmap() {
    let last = |test: &TestFs| Layout::bitmap_word(test.fs.root().grown.load(Relaxed) - 1);
    assert_eq!(planted(|t, _| at(t, last(t)).store(4, Relaxed)), [IssueKind::Leaked]);
    let inode = |t: &TestFs| node_offset(node(t, b"link").id);
    let missing = planted(|t, _| {
        let bit = 1 << (inode(t) % BLOCK / 64);
        at(t, Layout::bitmap_word(inode(t) / BLOCK)).fetch_and(!bit, Relaxed);
    });
    assert_eq!(missing, [IssueKind::UsedButFree]);
}

/// Goal: wrong counts are found.
#[test]
fn counts() {
    let links = planted(|t, _| at(t, node_offset(node(t, b"file-0-").id) + word::LINKS).fetch_add(1, Relaxed));
    assert_eq!(links, [IssueKind::LinkCount]);
    let entries = planted(|t, _| at(t, node_offset(node(t, b"dir").id) + word::SIZE).fetch_add(1, Relaxed));
    assert_eq!(entries, [IssueKind::EntryCount]);
    let blocks = planted(|t, _| at(t, node_offset(node(t, b"file-0-").id) + word::LINKS).fetch_add(1 << 32, Relaxed));
    assert_eq!(blocks, [IssueKind::BlockCount]);
    let counter = planted(|t, _| at(t, layout::LANE_AREA + format::lane::word::FILES).fetch_add(1, Relaxed));
    assert_eq!(counter, [IssueKind::Counter]);
}

/// Goal: a name that is not in the index, and an entry that is no name, are found.
#[test]
fn index() {
    let clear = |t: &TestFs, value: &dyn Fn(u64) -> u64| {
        let root = t.fs.root().root_inode.load(Relaxed);
        let hit = t.fs.hit(&t.fs.entry_key(root, proper(b"link").unwrap())).unwrap().unwrap();
        let word = at(t, crate::index::change::entry_word(t.fs.image.offset_of(hit.place.unwrap().0), hit.index));
        word.store(value(word.load(Relaxed)), Relaxed);
    };
    assert_eq!(planted(|t, _| clear(t, &|_| 0)), [IssueKind::Index]);
    assert_eq!(planted(|t, _| clear(t, &|entry| entry ^ 1 << 50)), [IssueKind::Index]);
}

/// Goal: damaged edentries are found.
#[test]
fn edentries() {
    assert_eq!(planted(|t, _| at(t, edentry_of(t, b"link") + 24).fetch_add(8, Relaxed)), [IssueKind::Edentry]);
    let name = planted(|t, _| {
        at(t, edentry_of(t, b"link") + format::edentry::NAME).store(u64::from_le_bytes(*b"li/k\0\0\0\0"), Relaxed)
    });
    assert!(name.contains(&IssueKind::Name), "{name:?}");
    let own = planted(|t, _| at(t, node_offset(node(t, b"dir").id) + word::EXTRA).store(64, Relaxed));
    assert_eq!(own, [IssueKind::Own]);
}

/// Goal: two files with the same block are found; so is a map that leads nowhere.
#[test]
fn extents() {
    let map = |block: u64, len: u64| format::extent::Root::One { block, len, shared: false }.pack();
    let outside = planted(|t, _| at(t, node_offset(node(t, b"file-0-").id) + word::ROOT).store(map(1 << 30, 1), Relaxed));
    assert!(outside.contains(&IssueKind::Extent), "{outside:?}");
    let taken = planted(|t, _| {
        let block = t.fs.root().root_inode.load(Relaxed) / BLOCK;
        at(t, node_offset(node(t, b"file-0-").id) + word::ROOT).store(map(block, 1), Relaxed);
    });
    assert!(taken.contains(&IssueKind::DoubleUse), "{taken:?}");
    let odd = planted(|t, _| at(t, node_offset(node(t, b"file-0-").id) + word::ROOT).store(3, Relaxed));
    assert_eq!(odd, [IssueKind::Extent]);
}

/// Goal: permissions, orphans and superblocks are looked at.
#[test]
fn tables() {
    let permission = planted(|t, _| {
        let head = at(t, node_offset(node(t, b"file-0-").id) + word::HEAD);
        head.store(head.load(Relaxed) & !0xffff | 12345, Relaxed);
    });
    assert_eq!(permission, [IssueKind::Permission]);
    assert_eq!(planted(|t, _| at(t, layout::ORPHAN_TABLE + 80).store(1 << 30, Relaxed)), [IssueKind::Orphan]);
    assert_eq!(planted(|t, _| at(t, layout::SUPERBLOCK_COPY + 64).store(1, Relaxed)), [IssueKind::Superblock]);
}

/// Goal: whatever is damaged, the checker and the dump end and do not panic.
/// Method: random words of a populated image become random values.
#[test]
fn survives_damage() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let test = populated();
    let whole = std::fs::read(test.image.file()).unwrap();
    // What is volatile says nothing of the medium.
    let is_medium = |at: usize| at as u64 >= layout::ROOT && !(layout::VOLATILE..layout::LANE_AREA).contains(&(at as u64));
    let used: Vec<usize> = (0..whole.len()).step_by(8).filter(|at| whole[*at..at + 8] != [0; 8] && is_medium(*at)).collect();
    let damaged = format!("{}/damaged\0", test.image.directory());
    let path = &damaged[..damaged.len() - 1];
    std::fs::copy(test.image.file(), path).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let mut found = 0;
    for _ in 0..400 {
        let mut touched = Vec::new();
        for _ in 0..1 + random() % 4 {
            let at = used[random() as usize % used.len()];
            let before = u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
            let value = match random() % 4 {
                0 => before ^ 1 << (random() % 64),
                1 => random(),
                2 => 0,
                _ => before.wrapping_add(random() % 256),
            };
            std::os::unix::fs::FileExt::write_all_at(&file, &value.to_le_bytes(), at as u64).unwrap();
            touched.push(at);
        }
        let mut text = String::new();
        if let Ok(image) = crate::inspect::Inspected::open(damaged.as_bytes()) {
            crate::dump::print(&image, &crate::dump::Options::default(), &mut text).unwrap();
        }
        found += run(damaged.as_bytes(), &mut |_| {}).map_or(1, |report| usize::from(!report.issues.is_empty()));
        for at in touched {
            std::os::unix::fs::FileExt::write_all_at(&file, &whole[at..at + 8], at as u64).unwrap();
        }
    }
    assert!(found > 100, "{found}");
}
