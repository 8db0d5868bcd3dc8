//! Goal: every sort of damage is found as what it is, and can be fixed.
//! Method: for each [`IssueKind`] one fault is planted in a clean image; the
//! check must find that kind and no other, and after the repair none. A kind
//! without a fault here does not compile.

use super::IssueKind;
use super::tests::{at, edentry_of, node, populated};
use crate::names::proper;
use crate::repair::Repair;
use crate::testing::TestFs;
use core::sync::atomic::Ordering::Relaxed;
use format::bucket;
use format::edentry::{Head, NAME};
use format::extent;
use format::inode::{node_offset, word};
use format::layout::{self, BLOCK, Layout};
use std::vec::Vec;

/// One fault a kind: the list of all kinds, and what plants each.
macro_rules! faults {
    ($($kind:ident => $plant:expr,)*) => {
        const KINDS: &[IssueKind] = &[$(IssueKind::$kind),*];

        fn plant(kind: IssueKind, test: &TestFs) {
            let fault: fn(&TestFs) = match kind {
                $(IssueKind::$kind => $plant,)*
            };
            fault(test);
        }
    };
}

faults! {
    Superblock => |t| at(t, layout::SUPERBLOCK_COPY + 64).store(1, Relaxed),
    Root => |t| t.fs.root().flags.store(2, Relaxed),
    Record => |t| t.fs.lane(7).intent.store(node(t, b"link").id | 0xffff_ffff, Relaxed),
    Permission => |t| {
        let head = at(t, file(t) + word::HEAD);
        head.store(head.load(Relaxed) & !0xffff | 12345, Relaxed);
    },
    Inode => |t| at(t, file(t) + word::SIZE).store(extent::FILE_MAX + 1, Relaxed),
    LinkCount => |t| add(t, file(t) + word::LINKS, 1),
    EntryCount => |t| add(t, node_offset(node(t, b"dir").id) + word::SIZE, 1),
    Edentry => |t| add(t, edentry_of(t, b"link") + 24, 8),
    Name => rename_to_no_name,
    Own => |t| at(t, node_offset(node(t, b"dir").id) + word::EXTRA).store(64, Relaxed),
    Index => |t| {
        let root = t.fs.root().root_inode.load(Relaxed);
        let hit = t.fs.hit(&t.fs.entry_key(root, proper(b"link").unwrap())).unwrap().unwrap();
        at(t, crate::index::change::entry_word(t.fs.image.offset_of(hit.place.unwrap().0), hit.index)).store(0, Relaxed);
    },
    Extent => |t| at(t, file(t) + word::ROOT).store(3, Relaxed),
    BlockCount => |t| add(t, file(t) + word::LINKS, 1 << 32),
    DoubleUse => |t| {
        // The blocks of the root directory, which uses all of them.
        let root = t.fs.root().root_inode.load(Relaxed);
        let taken = at(t, root + word::ROOT).load(Relaxed);
        at(t, file(t) + word::ROOT).store(taken, Relaxed);
    },
    UsedButFree => |t| {
        let word = at(t, Layout::bitmap_word(file(t) / BLOCK));
        word.store(word.load(Relaxed) & !(1 << (file(t) % BLOCK / 64)), Relaxed);
    },
    Leaked => |t| at(t, Layout::bitmap_word(t.fs.root().grown.load(Relaxed) - 1)).store(4, Relaxed),
    Orphan => |t| at(t, layout::ORPHAN_TABLE + 80).store(1 << 30, Relaxed),
    Counter => |t| add(t, layout::LANE_AREA + format::lane::word::FILES, 1),
    ShareCount => |t| {
        let count = share(t);
        add(t, count, 1);
    },
}

/// Adds to a word of the image.
fn add(test: &TestFs, offset: u64, value: u64) {
    at(test, offset).fetch_add(value, Relaxed);
}

/// Offset of the inode of a file with two names and no blocks.
fn file(test: &TestFs) -> u64 {
    node_offset(node(test, b"file-0-").id)
}

/// `link` becomes a name of four bytes with a slash in it, with a hash that leaves it in its bucket:
/// everything fits but the name.
fn rename_to_no_name(test: &TestFs) {
    let fs = test.fs;
    let root = fs.root().root_inode.load(Relaxed);
    let hit = fs.hit(&fs.entry_key(root, proper(b"link").unwrap())).unwrap().unwrap();
    let buckets = fs.root().buckets.load(Relaxed);
    let wanted = bucket::number(fs.hash(root, b"link"), buckets);
    let fits = |name: &[u8; 4]| bucket::number(fs.hash(root, name), buckets) == wanted;
    let letters = || b'a'..=b'z';
    let mut names = letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b'/', b, c])));
    let name = names.find(fits).unwrap();
    let head = at(test, hit.edentry);
    let changed = Head { hash: (fs.hash(root, &name) >> 32) as u32, ..Head::unpack(head.load(Relaxed)).unwrap() };
    head.store(changed.pack(), Relaxed);
    at(test, hit.edentry + NAME).store(u64::from(u32::from_le_bytes(name)), Relaxed);
    let entry = bucket::pack_entry(fs.hash(root, &name), hit.edentry);
    at(test, crate::index::change::entry_word(test.fs.image.offset_of(hit.place.unwrap().0), hit.index)).store(entry, Relaxed);
}

/// Two files share a block; where its count is.
fn share(test: &TestFs) -> u64 {
    let [first, second] = [b"shared", b"shares"]
        .map(|name| test.create(&test.cx(), test.root_node(), name, &super::tests::new(crate::Kind::Regular)).unwrap());
    test.write(&test.cx(), first, Some(0), &[pm::UserSlice::from_ref(&[7; 4096])]).unwrap();
    test.clone_range(&test.cx(), (first, 0), (second, 0), 0).unwrap();
    let root = at(test, node_offset(first.id) + word::ROOT).load(Relaxed);
    let (block, _) = extent::Root::one(root).unwrap();
    let (top, middle, leaf) = format::shares::place(block);
    let follow = |table: u64, number: u64| at(test, table + number * 8).load(Relaxed);
    let table = test.fs.root().shares.load(Relaxed);
    let count = follow(follow(table, top), middle) + leaf * 8;
    assert_eq!(at(test, count).load(Relaxed), 1);
    count
}

/// Goal: a table of counts that is lost, leads elsewhere, or has parts with nothing in them is made again, and nothing is
/// given up for it. Method: its top is forgotten; a middle is the root directory's inode; all is dropped, and the table stays.
#[test]
fn tables_of_counts() {
    for number in 0..3 {
        let test = populated();
        let count = share(&test);
        let top = test.fs.root().shares.load(Relaxed);
        match number {
            0 => test.fs.root().shares.store(0, Relaxed),
            1 => at(&test, top).store(test.fs.root().root_inode.load(Relaxed), Relaxed),
            _ => at(&test, count).store(0, Relaxed),
        }
        test.fs.detach(&test.cx());
        let path = test.image.path();
        assert!(!found(&path).is_empty(), "{number}");
        let repair = Repair::plan(&path, &mut |_| {}).unwrap();
        assert_eq!(repair.drops, 0, "{number}: {:?}", repair.actions);
        repair.apply().unwrap();
        drop(repair);
        assert_eq!(found(&path), [], "{number} after its repair");
        let test = TestFs::from_image(test.image).unwrap();
        let read = |name: &[u8]| {
            let mut bytes = [0; 4096];
            let node = test.lookup(&test.cx(), test.root_node(), name).unwrap();
            test.read(&test.cx(), node, 0, &[pm::UserSlice::from_mut(&mut bytes)]).map(|done| (done, bytes[4095]))
        };
        assert_eq!([read(b"shared"), read(b"shares")], [Ok((4096, 7)); 2]);
        test.unlink(&test.cx(), test.root_node(), b"shared").unwrap();
        assert_eq!(read(b"shares"), Ok((4096, 7)));
        test.fs.detach(&test.cx());
        assert_eq!(found(&path), [], "{number} after use");
    }
}

fn found(path: &[u8]) -> Vec<IssueKind> {
    let report = super::run(path, &mut |_| {}).unwrap();
    for issue in &report.issues {
        std::println!("{issue}");
    }
    report.issues.iter().map(|issue| issue.kind).collect()
}

#[test]
fn every_kind() {
    for &kind in KINDS {
        let test = populated();
        plant(kind, &test);
        test.fs.detach(&test.cx());
        let path = test.image.path();
        let mut kinds = found(&path);
        kinds.dedup();
        assert_eq!(kinds, [kind]);
        Repair::plan(&path, &mut |_| {}).unwrap().apply().unwrap();
        assert_eq!(found(&path), [], "{kind:?} after its repair");
    }
}

/// Goal: bytes behind a short name hide it from look-ups: the check says so, the repair takes them away.
#[test]
fn bytes_behind_a_name() {
    for place in [NAME, NAME + 8] {
        let test = populated();
        let id = node(&test, b"link").id;
        at(&test, edentry_of(&test, b"link") + place).fetch_or(0xff << 56, Relaxed);
        test.fs.detach(&test.cx());
        let path = test.image.path();
        assert_eq!(found(&path), [IssueKind::Edentry]);
        Repair::plan(&path, &mut |_| {}).unwrap().apply().unwrap();
        assert_eq!(found(&path), []);
        let thread = base::Thread::new();
        let again = test.image.attach(&thread).unwrap();
        let cx = crate::Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread };
        assert_eq!(again.lookup(&cx, again.root_node(), b"link").map(|node| node.id), Ok(id));
        again.detach(&cx);
    }
}

/// Goal: what is kept for what is to come is 0: the check says what is not, the repair clears it, nothing is lost.
/// Method: a bit in each word of the root and of a lane, and in each sort of data root and the entry of a leaf.
#[test]
fn room_is_empty() {
    let root = |word: u64| layout::ROOT + word;
    let lane = layout::LANE_AREA + 3 * layout::LANE_BYTES;
    type Place<'a> = &'a dyn Fn(&TestFs) -> u64;
    let planted: [(IssueKind, Place, u64); 8] = [
        (IssueKind::Root, &|_| root(40), 1 << 20),
        (IssueKind::Root, &|_| root(48), 1 << 20),
        (IssueKind::Root, &|_| root(56), 1),
        (IssueKind::Record, &|_| lane + 992, 1),
        (IssueKind::Record, &|_| lane + 1016, 1 << 63),
        (IssueKind::Extent, &|t| node_offset(node(t, b"dir").id) + word::ROOT, extent::SHARED),
        (IssueKind::Extent, &|t| node_offset(node(t, b"holes").id) + word::ROOT, 1 << 12),
        (IssueKind::Extent, &|t| leaf_of(t, b"holes") + 16, extent::ENTRY_SHARED),
    ];
    for (number, (kind, place, bits)) in planted.into_iter().enumerate() {
        let test = populated();
        let holes = test.create(&test.cx(), test.root_node(), b"holes", &super::tests::new(crate::Kind::Regular)).unwrap();
        for i in 0..3 {
            test.write(&test.cx(), holes, Some(i * 3 * BLOCK), &[pm::UserSlice::from_ref(b"data")]).unwrap();
        }
        let before = at(&test, place(&test)).fetch_xor(bits, Relaxed);
        let place = place(&test);
        test.fs.detach(&test.cx());
        let path = test.image.path();
        assert!(found(&path).first() == Some(&kind), "{number}");
        let repair = Repair::plan(&path, &mut |_| {}).unwrap();
        assert_eq!(repair.drops, 0, "{number}: {:?}", repair.actions);
        repair.apply().unwrap();
        assert_eq!(found(&path), [], "{number} after its repair");
        // A map is written anew; all else is what it was.
        assert!(kind == IssueKind::Extent || at(&test, place).load(Relaxed) == before, "{number}");
    }
}

/// Offset of the leaf that is the whole map of a file.
fn leaf_of(test: &TestFs, name: &[u8]) -> u64 {
    let root = at(test, node_offset(node(test, name).id) + word::ROOT).load(Relaxed);
    match extent::Root::unpack(root) {
        Some(extent::Root::Tree { node, depth: 0 }) => node * BLOCK,
        other => panic!("{other:?}"),
    }
}

/// Goal: an inode that says that nobody changes it is sound in an image with snapshots, and damaged in one that has none.
#[test]
fn frozen_without_snapshots() {
    let test = populated();
    at(&test, file(&test) + word::HEAD).fetch_or(u64::from(format::inode::FROZEN) << 24, Relaxed);
    test.fs.detach(&test.cx());
    assert_eq!(found(&test.image.path()), [IssueKind::Inode]);
    let test = populated();
    test.fs.freeze(&test.cx(), test.fs.node_at(file(&test)).unwrap(), true).unwrap();
    test.fs.detach(&test.cx());
    assert_eq!(found(&test.image.path()), []);
}
