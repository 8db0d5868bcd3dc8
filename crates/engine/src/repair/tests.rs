//! Each test plants damage, repairs it, and looks whether anything is gone that should not be.

use super::{Repair, RepairError};
use crate::alloc::fault;
use crate::check;
use crate::check::tests::{at, edentry_of, new, node, populated};
use crate::names::proper;
use crate::process::attach::AttachError;
use crate::testing::{TestFs, TestImage};
use crate::{Cx, Kind, NewNode, Node};
use core::sync::atomic::Ordering::Relaxed;
use format::extent::Root;
use format::inode::{node_offset, word};
use format::layout::{self, BLOCK, Layout};
use pm::UserSlice;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec::Vec;

/// All that can be reached: path, kind and contents.
type Tree = BTreeMap<String, (u8, Vec<u8>)>;

fn tree(test: &TestFs) -> Tree {
    let mut found = Tree::new();
    let mut waiting = std::vec![(String::new(), test.root_node())];
    let cx = test.cx();
    while let Some((path, dir)) = waiting.pop() {
        let mut names = Vec::new();
        test.readdir(&cx, dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        for name in names.iter().filter(|name| &name[..] != b"." && &name[..] != b"..") {
            let child = test.lookup(&cx, dir, name).unwrap();
            let attr = test.attr(&cx, child).unwrap();
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let mut contents = std::vec![0; attr.size as usize];
            match attr.kind {
                Kind::Directory => {
                    contents.clear();
                    waiting.push((path.clone(), child));
                }
                Kind::Symlink => {
                    test.readlink(&cx, child, UserSlice::from_mut(&mut contents)).unwrap();
                }
                _ => {
                    test.read(&cx, child, 0, &[UserSlice::from_mut(&mut contents)]).unwrap();
                }
            }
            found.insert(path, (attr.kind as u8, contents));
        }
    }
    found
}

fn write(test: &TestFs, cx: &Cx, node: Node, at: u64, text: &[u8]) {
    test.write(cx, node, Some(at), &[UserSlice::from_ref(text)]).unwrap();
}

/// An image with data in it, left by everybody.
fn with_data() -> TestFs {
    let test = populated();
    let cx = test.cx();
    for i in (0..40).step_by(4).filter(|i| *i != 2) {
        let name = format!("file-{i}-{}", "x".repeat(i * 5));
        let file = node(&test, name.as_bytes());
        write(&test, &cx, file, 0, format!("contents of {name}").repeat(300).as_bytes());
    }
    let holes = test.create(&cx, test.root_node(), b"holes", &new(Kind::Regular)).unwrap();
    for i in 0..9 {
        write(&test, &cx, holes, i * 40_960 + 17, b"between holes");
    }
    for (name, target) in [(&b"one"[..], &b"target of one"[..]), (b"two", b"target of two")] {
        test.create(&cx, test.root_node(), name, &NewNode { target, ..new(Kind::Symlink) }).unwrap();
    }
    let deep = test.create(&cx, node(&test, b"dir"), b"deep", &new(Kind::Directory)).unwrap();
    let below = test.create(&cx, deep, b"below", &new(Kind::Regular)).unwrap();
    write(&test, &cx, below, 0, b"deep down");
    test
}

/// Leaves the image, so that it can be repaired.
fn left(test: TestFs) -> TestImage {
    let TestFs { thread, fs, image } = test;
    fs.detach(&Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread });
    image
}

/// What a fault and its repair leave: what was there, what is there, how many things were dropped.
fn repaired(fault: impl FnOnce(&TestFs)) -> (Tree, Tree, u64) {
    let test = with_data();
    let before = tree(&test);
    fault(&test);
    let image = left(test);
    let repair = Repair::plan(&image.path(), &mut |_| {}).unwrap();
    for action in &repair.actions {
        std::println!("{action}");
    }
    assert!(repair.is_needed(), "the fault is not found");
    let drops = repair.drops;
    repair.apply().unwrap();
    drop(repair);
    assert_eq!(check::run(&image.path(), &mut |_| {}).unwrap().issues, []);
    let test = TestFs::from_image(image).unwrap();
    let after = tree(&test);
    (before, after, drops)
}

/// A fault after whose repair everything is as it was.
fn nothing_lost(fault: impl FnOnce(&TestFs)) {
    let (before, after, drops) = repaired(fault);
    assert_eq!(before, after);
    assert_eq!(drops, 0);
}

fn inode(test: &TestFs, name: &[u8]) -> u64 {
    node_offset(node(test, name).id)
}

fn flip(test: &TestFs, offset: u64, bits: u64) {
    let word = at(test, offset);
    word.store(word.load(Relaxed) ^ bits, Relaxed);
}

/// Goal: a clean image is left alone.
#[test]
fn clean() {
    let image = left(with_data());
    let before = std::fs::read(image.file()).unwrap();
    let repair = Repair::plan(&image.path(), &mut |_| {}).unwrap();
    assert!(!repair.is_needed() && repair.actions.is_empty());
    drop(repair);
    assert!(before == std::fs::read(image.file()).unwrap());
}

/// Goal: nobody's image is repaired while it is in use.
#[test]
fn in_use() {
    let test = with_data();
    assert!(matches!(Repair::plan(&test.image.path(), &mut |_| {}), Err(RepairError::InUse)));
}

/// Goal: an image that was cut off is refused, though the root, which is damaged too, no longer says how long it was.
#[test]
fn cut_off_with_its_root() {
    let test = with_data();
    let len = test.fs.root().grown.load(Relaxed) * BLOCK;
    at(&test, layout::ROOT + 8).store(u64::MAX / 3, Relaxed);
    test.fs.detach(&test.cx());
    let path = test.image.path();
    let file = std::fs::File::options().write(true).open(test.image.file()).unwrap();
    file.set_len(len - BLOCK - 5).unwrap();
    let cut_short = |error| matches!(error, RepairError::Open(AttachError::Truncated { .. }));
    assert!(Repair::plan(&path, &mut |_| {}).is_err_and(cut_short));
    // With all that it had, it is as before.
    file.set_len(len).unwrap();
    assert!(Repair::plan(&path, &mut |_| {}).is_ok());
}

/// Goal: what can be derived is derived again.
#[test]
fn derived() {
    let last = |t: &TestFs| Layout::bitmap_word(t.fs.root().grown.load(Relaxed) - 1);
    nothing_lost(|t| flip(t, last(t), 4));
    nothing_lost(|t| flip(t, Layout::bitmap_word(inode(t, b"link") / BLOCK), 1 << (inode(t, b"link") % BLOCK / 64)));
    nothing_lost(|t| flip(t, inode(t, b"file-0-") + word::LINKS, 5));
    nothing_lost(|t| flip(t, inode(t, b"file-0-") + word::LINKS, 1 << 34));
    nothing_lost(|t| flip(t, inode(t, b"dir") + word::SIZE, 1 << 20));
    nothing_lost(|t| flip(t, layout::LANE_AREA + format::lane::word::FILES, 2));
    nothing_lost(|t| flip(t, layout::ORPHAN_TABLE + 80, 1 << 30));
    nothing_lost(|t| flip(t, layout::SUPERBLOCK_COPY + 64, 1));
    nothing_lost(|t| flip(t, 16, 1));
}

/// Goal: the index and its place in the root are made again.
#[test]
fn index() {
    let entry = |t: &TestFs| {
        let root = t.fs.root().root_inode.load(Relaxed);
        let hit = t.fs.hit(&t.fs.entry_key(root, proper(b"link").unwrap())).unwrap().unwrap();
        crate::index::change::entry_word(t.fs.image.offset_of(hit.place.unwrap().0), hit.index)
    };
    nothing_lost(|t| flip(t, entry(t), 1 << 50));
    nothing_lost(|t| at(t, entry(t)).store(0, Relaxed));
    nothing_lost(|t| flip(t, entry(t) & !63 | 56, 1 << 14));
    // Segment 0 is elsewhere; the number of buckets is another.
    nothing_lost(|t| flip(t, layout::ROOT + 64, 1 << 13));
    nothing_lost(|t| flip(t, layout::ROOT + 24, 1 << 40));
}

/// Goal: the root's words are found again.
#[test]
fn root() {
    nothing_lost(|t| flip(t, layout::ROOT + 16, 1 << 12));
    nothing_lost(|t| flip(t, layout::ROOT + 32, 1));
    nothing_lost(|t| flip(t, layout::ROOT + 8, 1 << 40));
}

/// Goal: every word of an edentry can be fixed, and a lost slot found again.
#[test]
fn edentries() {
    for offset in [8, 24] {
        nothing_lost(|t| flip(t, edentry_of(t, b"link") + offset, 1 << 9));
    }
    // Mark, length of the name, kind, hash; generation of the child.
    for bits in [1, 1 << 9, 1 << 18, 1 << 40] {
        nothing_lost(|t| flip(t, edentry_of(t, b"link"), bits));
    }
    nothing_lost(|t| flip(t, edentry_of(t, b"link") + 16, 1 << 50));
    let slot = |t: &TestFs, name: &[u8]| at(t, edentry_of(t, name) + 24).load(Relaxed);
    nothing_lost(|t| at(t, slot(t, b"link")).store(0, Relaxed));
    nothing_lost(|t| at(t, slot(t, b"dir")).store(0, Relaxed));
    let (before, after, drops) = repaired(|t| flip(t, slot(t, b"link"), 1 << 60));
    assert_eq!((before, drops), (after, 1));
}

/// Goal: a directory whose map is lost keeps its names; a name that is lost does not take the inode with it.
#[test]
fn lost_and_found() {
    let (before, after, _) = repaired(|t| at(t, inode(t, b"dir") + word::ROOT).store(7, Relaxed));
    assert_eq!(before, after);
    // The name of a directory, and what is below it.
    let (before, after, _) = repaired(|t| {
        let name = edentry_of(t, b"dir");
        (0..8).for_each(|i| at(t, name + i * 8).store(0, Relaxed));
    });
    let moved: Vec<_> = after.keys().filter(|path| path.ends_with("/deep/below")).collect();
    assert!(moved.len() == 1 && moved[0].starts_with("/lost+found/#"), "{:?}", after.keys());
    assert_eq!(after.len(), before.len() + 1);
    // That of a file with contents.
    let (before, after, _) = repaired(|t| {
        let at_name = edentry_of(t, b"holes");
        (0..8).for_each(|i| at(t, at_name + i * 8).store(0, Relaxed));
    });
    let found = after.iter().find(|(path, _)| path.starts_with("/lost+found/#")).unwrap();
    assert_eq!(found.1, &before["/holes"]);
}

/// Goal: a circle of directories that nothing leads to is taken in.
#[test]
fn circle() {
    let (_, after, _) = repaired(|t| {
        // `deep` becomes the parent of `dir`, in place of the root.
        let cx = t.cx();
        let deep = node_offset(t.lookup(&cx, node(t, b"dir"), b"deep").unwrap().id);
        let name = edentry_of(t, b"dir");
        at(t, at(t, name + 24).load(Relaxed)).store(0, Relaxed);
        at(t, name + 8).store(deep, Relaxed);
    });
    assert!(after.keys().any(|path| path.starts_with("/lost+found/#") && path.ends_with("below")), "{:?}", after.keys());
}

/// Goal: maps keep what of them is right; blocks that two files have are copied.
#[test]
fn maps() {
    // A longer run than there are blocks.
    the_same_afterwards(|t| flip(t, inode(t, b"file-0-") + word::ROOT, 1 << 25));
    let (before, after, drops) = repaired(|t| {
        let of = |name: &[u8]| at(t, inode(t, name) + word::ROOT).load(Relaxed);
        at(t, inode(t, b"file-0-") + word::ROOT).store(of(b"file-4-xxxxxxxxxxxxxxxxxxxx"), Relaxed);
    });
    assert_eq!(drops, 0);
    let name = "/file-4-xxxxxxxxxxxxxxxxxxxx";
    assert_eq!(before[name], after[name]);
    // One entry of a tree's leaf.
    let (before, after, _) = repaired(|t| {
        let root = at(t, inode(t, b"holes") + word::ROOT).load(Relaxed);
        flip(t, (root >> 32) * BLOCK + 16 + 3 * 16 + 8, 1 << 60);
    });
    assert_eq!(before["/holes"].1.len(), after["/holes"].1.len());
    assert_eq!(before["/holes"].1[..40_960], after["/holes"].1[..40_960]);
}

/// Goal: of two symlinks that say they have the same text, the one it belongs to keeps it, whichever comes first.
/// Method: as in `testkit damage --from 1126 --images 1` one bit turned in the root of one; here the whole root.
#[test]
fn texts() {
    for (hit, whole) in [("one", "two"), ("two", "one")] {
        let (before, after, drops) = repaired(|t| {
            let root = |name: &str| at(t, inode(t, name.as_bytes()) + word::ROOT);
            root(hit).store(root(whole).load(Relaxed), Relaxed);
        });
        let (hit, whole) = (format!("/{hit}"), format!("/{whole}"));
        assert_eq!(before[&whole], after[&whole]);
        assert_eq!(before[&whole], after[&hit]);
        assert_eq!((before.len(), drops), (after.len(), 0));
    }
}

/// Goal: a block without a zero is no text of a symlink, not even one of 4,095 bytes; the repair ends. Method: the zero
/// behind the longest text there is goes away, as after a crash that left newer and older pages (`testkit crash --pages`).
#[test]
fn a_full_block_is_no_text() {
    let (before, mut after, drops) = repaired(|t| {
        let target = &[b'x'; 4095];
        t.create(&t.cx(), t.root_node(), b"full", &NewNode { target, ..new(Kind::Symlink) }).unwrap();
        let text = at(t, inode(t, b"full") + word::ROOT).load(Relaxed);
        at(t, text + 4088).store(u64::from_le_bytes([b'x'; 8]), Relaxed);
    });
    assert_eq!(after.remove("/full"), Some((Kind::Regular as u8, std::vec![])));
    assert_eq!((before, drops), (after, 1));
}

/// Goal: a name into whose edentry another one has come, and is believed, is cut off there.
/// Method: as in `testkit damage` with images of another group than root's, `--from 796 --images 1`: the only
/// edentry of a directory stands in the tail of a long one inside.
#[test]
fn a_name_in_a_name() {
    let name = format!("file-39-{}", "x".repeat(195));
    let (mut before, after, _) = repaired(|t| {
        let key = t.fs.entry_key(inode(t, b"dir"), proper(name.as_bytes()).unwrap());
        let (long, own) = (t.fs.hit(&key).unwrap().unwrap().edentry, edentry_of(t, b"dir"));
        for word in (0..64).step_by(8) {
            at(t, long + 128 + word).store(at(t, own + word).swap(0, Relaxed), Relaxed);
        }
    });
    let file = before.remove(&format!("/dir/{name}")).unwrap();
    before.insert(format!("/dir/{}", &name[..2 * 64 - 32]), file);
    assert_eq!(before, after);
}

/// Goal: a directory whose map is damaged takes no empty block of a file for its own.
#[test]
fn empty_blocks_are_files() {
    let zeros = [0; 3 * BLOCK as usize];
    let (before, mut after, drops) = repaired(|t| {
        let root = |name: &[u8]| at(t, inode(t, name) + word::ROOT);
        let file = t.create(&t.cx(), t.root_node(), b"zeros", &new(Kind::Regular)).unwrap();
        write(t, &t.cx(), file, 0, &zeros);
        let (dir, file) = (Root::unpack(root(b"dir").load(Relaxed)), Root::unpack(root(b"zeros").load(Relaxed)));
        let (Some(Root::One { block, .. }), Some(Root::One { block: end, .. })) = (dir, file) else { panic!() };
        assert!(end > block + 1);
        root(b"dir").store(Root::One { block, len: end + 1 - block, shared: false }.pack(), Relaxed);
    });
    assert!(after.remove("/zeros") == Some((Kind::Regular as u8, zeros.to_vec())));
    assert!(before == after && drops == 0);
}

/// Goal: an attribute whose name nobody can ask for is damage, and goes; those before it stay.
#[test]
fn attributes() {
    let test = with_data();
    let file = node(&test, b"holes");
    for name in [b"user.first", b"user.other"] {
        test.set_xattr(&test.cx(), file, name, UserSlice::from_ref(b"value"), 0).unwrap();
    }
    let cold = at(&test, inode(&test, b"holes") + word::EXTRA).load(Relaxed);
    let run = at(&test, cold + core::mem::offset_of!(format::Cold, xattr) as u64).load(Relaxed);
    let first = test.attribute_bytes((run >> 32) * BLOCK).unwrap();
    flip(&test, (run >> 32) * BLOCK + first + 8, 1);
    let image = left(test);
    let repair = Repair::plan(&image.path(), &mut |_| {}).unwrap();
    assert_eq!(repair.drops, 1);
    repair.apply().unwrap();
    drop(repair);
    assert_eq!(check::run(&image.path(), &mut |_| {}).unwrap().issues, []);
    let test = TestFs::from_image(image).unwrap();
    let mut names = [0; 64];
    let len = test.list_xattr(&test.cx(), node(&test, b"holes"), UserSlice::from_mut(&mut names)).unwrap();
    assert_eq!(names[..len], *b"user.first\0");
}

/// Goal: a removed file that nobody could free is freed by a repair, and nothing else changes.
#[test]
fn removed_files_are_freed() {
    let test = with_data();
    let cx = test.cx();
    let file = test.create(&cx, test.root_node(), b"removed", &new(Kind::Regular)).unwrap();
    for i in 0..70 {
        write(&test, &cx, file, i * 2 * BLOCK, b"x");
    }
    test.set_xattr(&cx, file, b"user.a", UserSlice::from_ref(b"1"), 0).unwrap();
    fault::arm(fault::Kind::Reclaim, 1);
    test.unlink(&cx, test.root_node(), b"removed").unwrap();
    assert!(fault::disarm());
    let before = tree(&test);
    let image = left(test);
    let found = check::run(&image.path(), &mut |_| {}).unwrap();
    assert_eq!((&found.issues[..], found.orphans, found.orphan_lines), (&[][..], 1, 72 * 64 + 2));
    let repair = Repair::plan(&image.path(), &mut |_| {}).unwrap();
    assert!(repair.is_needed());
    assert_eq!((repair.drops, repair.after.orphans), (0, 0));
    repair.apply().unwrap();
    drop(repair);
    let after = check::run(&image.path(), &mut |_| {}).unwrap();
    assert_eq!((&after.issues[..], after.orphans, after.lines_used), (&[][..], 0, found.lines_used - found.orphan_lines));
    assert_eq!(tree(&TestFs::from_image(image).unwrap()), before);
}

/// Goal: what has lost its name is found, though an entry says that it has none. Method: as in `testkit damage`
/// with images of another group than root's, `--seed 12 --from 2802 --images 1`: a directory's only edentry
/// stands among the orphans; then a file's.
#[test]
fn orphans_that_are_none() {
    for name in [&b"dir"[..], b"holes"] {
        let mut number = 0;
        let (before, after, _) = repaired(|t| {
            let own = edentry_of(t, name);
            number = t.own_number(node(t, name).id);
            at(t, layout::ORPHAN_TABLE + 80).store(at(t, own + 16).load(Relaxed), Relaxed);
            (0..8).for_each(|i| at(t, own + i * 8).store(0, Relaxed));
        });
        let (old, new) = (format!("/{}", String::from_utf8_lossy(name)), format!("/lost+found/#{number}"));
        let moved = |path: &String| path.strip_prefix(&old).map_or(path.clone(), |rest| format!("{new}{rest}"));
        for (path, file) in &before {
            assert!(after.get(&moved(path)) == Some(file), "{path} is lost");
        }
    }
}

/// As `nothing_lost`, where the repair cannot know that nothing is.
fn the_same_afterwards(fault: impl FnOnce(&TestFs)) {
    let (before, after, _) = repaired(fault);
    assert_eq!(before, after);
}

/// Goal: owners and modes survive a flipped bit in their table.
#[test]
fn permissions() {
    for (offset, bits) in [(0, 1 << 3), (0, 1 << 40), (8, 1 << 63), (8, 1 << 5), (8, 1 << 33)] {
        nothing_lost(|t| {
            let index = at(t, inode(t, b"link") + word::HEAD).load(Relaxed) & 0xffff;
            flip(t, layout::PERMISSION_TABLE + index * 16 + offset, bits);
        });
    }
    let (before, after, drops) = repaired(|t| flip(t, inode(t, b"link") + word::HEAD, 1 << 13));
    assert_eq!((before, drops), (after, 1));
}

/// Goal: a repair that is killed anywhere can run again and loses no more.
/// Method: only the first part of the changes reaches the file.
#[test]
fn killed() {
    let whole = {
        let test = with_data();
        let name = edentry_of(&test, b"dir");
        (0..16).for_each(|i| at(&test, name + i * 8).store(0, Relaxed));
        let slot = at(&test, edentry_of(&test, b"link") + 24).load(Relaxed);
        at(&test, slot).store(0, Relaxed);
        left(test)
    };
    let damaged = std::fs::read(whole.file()).unwrap();
    let repair = Repair::plan(&whole.path(), &mut |_| {}).unwrap();
    let lines: Vec<u64> = repair.steps().concat();
    repair.apply().unwrap();
    drop(repair);
    let fixed = std::fs::read(whole.file()).unwrap();
    let goal = tree(&TestFs::from_image(whole).unwrap());
    assert!(goal.keys().any(|path| path.ends_with("/deep/below")));
    for cut in (0..lines.len()).step_by(lines.len().div_ceil(24)) {
        let image = TestImage::new(64 << 20);
        let mut part = damaged.clone();
        for line in &lines[..cut] {
            let range = *line as usize..*line as usize + 64;
            part[range.clone()].copy_from_slice(&fixed[range]);
        }
        std::fs::write(image.file(), &part).unwrap();
        let repair = Repair::plan(&image.path(), &mut |_| {}).unwrap();
        repair.apply().unwrap();
        drop(repair);
        assert_eq!(check::run(&image.path(), &mut |_| {}).unwrap().issues, [], "cut after {cut} of {}", lines.len());
        let found = tree(&TestFs::from_image(image).unwrap());
        let contents =
            |tree: &Tree| tree.values().filter(|(_, contents)| !contents.is_empty()).cloned().collect::<Vec<_>>().len();
        assert_eq!(contents(&found), contents(&goal), "cut after {cut} of {}: {:?}", lines.len(), found.keys());
    }
}
