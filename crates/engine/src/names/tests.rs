//! Operations on names against a small image. Larger comparisons with the
//! kernel are the differential tests of `testkit`.

mod at_once;

use crate::testing::TestFs;
use ::format::inode::node_offset;
use base::*;
use core::sync::atomic::Ordering::SeqCst;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec::Vec;

const MIB: u64 = 1 << 20;

fn new(kind: Kind) -> NewNode<'static> {
    NewNode { kind, mode: if kind == Kind::Directory { 0o777 } else { 0o666 }, rdev: 0, target: b"" }
}

fn errno<T: core::fmt::Debug>(result: Result<T>) -> Errno {
    result.expect_err("an error").errno()
}

fn list(test: &TestFs, dir: Node) -> Vec<String> {
    let mut names = Vec::new();
    test.readdir(&test.cx(), dir, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    })
    .unwrap();
    names
}

/// Goal: what is created is found, told, listed and removed.
#[test]
fn create_find_remove() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let file = test.create(&cx, root, b"file", &new(Kind::Regular)).unwrap();
    let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
    assert_eq!(test.lookup(&cx, root, b"file").unwrap(), file);
    assert_eq!(errno(test.lookup(&cx, root, b"nothing")), Errno::ENOENT);
    assert_eq!(errno(test.create(&cx, root, b"file", &new(Kind::Regular))), Errno::EEXIST);
    let attr = test.attr(&cx, file).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size), (Kind::Regular, 0o644, 1, 0));
    let attr = test.attr(&cx, root).unwrap();
    assert_eq!((attr.kind, attr.nlink, attr.size), (Kind::Directory, 3, 80));
    assert_eq!(list(&test, root), [".", "..", "file", "dir"]);
    assert_eq!(test.parent_of(&cx, dir).unwrap(), root);
    let mut name = [0; 255];
    assert_eq!(test.name_of(&cx, dir, &mut name).unwrap(), 3);
    assert_eq!(&name[..3], b"dir");
    assert_eq!(errno(test.unlink(&cx, root, b"dir")), Errno::EISDIR);
    assert_eq!(errno(test.rmdir(&cx, root, b"file")), Errno::ENOTDIR);
    test.create(&cx, dir, b"inside", &new(Kind::Fifo)).unwrap();
    assert_eq!(errno(test.rmdir(&cx, root, b"dir")), Errno::ENOTEMPTY);
    test.unlink(&cx, dir, b"inside").unwrap();
    test.rmdir(&cx, root, b"dir").unwrap();
    test.unlink(&cx, root, b"file").unwrap();
    assert_eq!(errno(test.attr(&cx, file)), Errno::ESTALE);
    assert_eq!(errno(test.create(&cx, dir, b"x", &new(Kind::Regular))), Errno::ENOENT);
    assert_eq!(list(&test, root), [".", ".."]);
    let attr = test.attr(&cx, root).unwrap();
    assert_eq!((attr.nlink, attr.size), (2, 40));
}

/// Goal: names of every length, warm and cold. Method: look each up before and after the segment is gone.
#[test]
fn names_of_every_length() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let text = [b'n'; 256];
    for len in 1..=255 {
        let node = test.create(&cx, root, &text[..len], &new(Kind::Regular)).unwrap();
        assert_eq!(test.lookup(&cx, root, &text[..len]).unwrap(), node, "{len}");
    }
    assert_eq!(errno(test.create(&cx, root, &text, &new(Kind::Regular))), Errno::ENAMETOOLONG);
    assert_eq!(list(&test, root).len(), 257);
    let segment = String::from_utf8(test.segment_path().to_vec()).unwrap();
    test.detach(&cx);
    std::fs::remove_file(segment).unwrap();
    let TestFs { image, .. } = test;
    let test = TestFs::from_image(image).unwrap();
    let (cx, root) = (test.cx(), test.root_node());
    for len in 1..=255 {
        let node = test.lookup(&cx, root, &text[..len]).unwrap();
        assert_eq!(test.lookup(&cx, root, &text[..len]).unwrap(), node, "{len}");
        assert_eq!(test.attr(&cx, node).unwrap().mode, 0o644);
        test.unlink(&cx, root, &text[..len]).unwrap();
    }
    assert_eq!(list(&test, root).len(), 2);
}

/// Goal: the index grows through several segments and loses nothing; what is
/// removed leaves no space behind.
#[test]
fn many_names() {
    let test = TestFs::new(256 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let dir = test.create(&cx, root, b"d", &new(Kind::Directory)).unwrap();
    let before = test.statfs().unwrap();
    let count = 30_000;
    for i in 0..count {
        test.create(&cx, dir, format!("name-{i}").as_bytes(), &new(Kind::Regular)).unwrap();
    }
    let buckets = test.root().buckets.load(core::sync::atomic::Ordering::Relaxed);
    assert!(buckets > count / 4 && buckets < count, "{buckets}");
    assert_eq!(test.attr(&cx, dir).unwrap().size, 40 + 20 * count);
    for i in 0..count {
        let name = format!("name-{i}");
        let node = test.lookup(&cx, dir, name.as_bytes()).unwrap();
        assert_eq!(test.attr(&cx, node).unwrap().nlink, 1, "{name}");
        assert_eq!(errno(test.lookup(&cx, dir, format!("nome-{i}").as_bytes())), Errno::ENOENT);
    }
    assert_eq!(list(&test, dir).len() as u64, count + 2);
    for i in 0..count {
        test.unlink(&cx, dir, format!("name-{i}").as_bytes()).unwrap();
    }
    assert_eq!(list(&test, dir).len(), 2);
    let slots = test.inode(format::inode::node_offset(dir.id)).unwrap().root.load(core::sync::atomic::Ordering::Relaxed);
    // Churn does not make the directory grow.
    for i in 0..count {
        test.create(&cx, dir, format!("again-{i}").as_bytes(), &new(Kind::Regular)).unwrap();
        test.unlink(&cx, dir, format!("again-{i}").as_bytes()).unwrap();
    }
    assert_eq!(test.inode(format::inode::node_offset(dir.id)).unwrap().root.load(core::sync::atomic::Ordering::Relaxed), slots);
    test.rmdir(&cx, root, b"d").unwrap();
    let after = test.statfs().unwrap();
    assert_eq!(after.files - after.files_free + 1, before.files - before.files_free);
}

/// Goal: the index, the slots and the counts agree with a plain map after many
/// random operations. Method: fixed seed; names few enough to collide.
#[test]
fn random_operations_agree_with_a_map() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let dirs: Vec<Node> =
        (0..4).map(|i| test.create(&cx, root, format!("d{i}").as_bytes(), &new(Kind::Directory)).unwrap()).collect();
    let mut model: BTreeMap<(usize, u64), Node> = BTreeMap::new();
    let mut seed = 42u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (seed >> 33) % below
    };
    for step in 0..60_000 {
        let (d, n) = (random(4) as usize, random(300));
        let name = format!("some name {n}");
        match random(5) {
            0 | 1 => match test.create(&cx, dirs[d], name.as_bytes(), &new(Kind::Regular)) {
                Ok(node) => assert!(model.insert((d, n), node).is_none(), "step {step}"),
                Err(error) => assert!(error.errno() == Errno::EEXIST && model.contains_key(&(d, n)), "step {step} {error:?}"),
            },
            2 => match test.unlink(&cx, dirs[d], name.as_bytes()) {
                Ok(()) => assert!(model.remove(&(d, n)).is_some(), "step {step}"),
                Err(error) => assert!(error.errno() == Errno::ENOENT && !model.contains_key(&(d, n)), "step {step} {error:?}"),
            },
            3 => {
                let (d2, n2) = (random(4) as usize, random(300));
                let to = format!("some name {n2}");
                let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][random(3) as usize];
                let result = test.rename(&cx, dirs[d], name.as_bytes(), dirs[d2], to.as_bytes(), mode);
                let (source, target) = (model.get(&(d, n)).copied(), model.get(&(d2, n2)).copied());
                let expected = match (source, target, mode) {
                    (None, _, _) => Err(Errno::ENOENT),
                    (_, Some(_), RenameMode::NoReplace) => Err(Errno::EEXIST),
                    (_, None, RenameMode::Exchange) => Err(Errno::ENOENT),
                    _ => Ok(()),
                };
                assert_eq!(result.map_err(Error::errno), expected, "step {step}");
                if expected.is_ok() && (d, n) != (d2, n2) {
                    let source = model.remove(&(d, n)).unwrap();
                    model.insert((d2, n2), source);
                    if mode == RenameMode::Exchange {
                        model.insert((d, n), target.unwrap());
                    }
                }
            }
            _ => assert_eq!(test.lookup(&cx, dirs[d], name.as_bytes()).ok(), model.get(&(d, n)).copied(), "step {step}"),
        }
    }
    #[allow(clippy::needless_range_loop)]
    for d in 0..4 {
        let mut expected: Vec<String> = model.keys().filter(|k| k.0 == d).map(|k| format!("some name {}", k.1)).collect();
        assert_eq!(test.attr(&cx, dirs[d]).unwrap().size, 40 + 20 * expected.len() as u64);
        expected.extend([String::from("."), String::from("..")]);
        expected.sort();
        let mut found = list(&test, dirs[d]);
        found.sort();
        assert_eq!(found, expected);
    }
}

/// Goal: directories move, keep their tree, and refuse what the kernel refuses.
#[test]
fn directories_move() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let a = test.create(&cx, root, b"a", &new(Kind::Directory)).unwrap();
    let b = test.create(&cx, a, b"b", &new(Kind::Directory)).unwrap();
    let c = test.create(&cx, b, b"c", &new(Kind::Directory)).unwrap();
    let file = test.create(&cx, a, b"f", &new(Kind::Regular)).unwrap();
    let mv = |from: Node, name: &[u8], to: Node, to_name: &[u8]| {
        test.rename(&cx, from, name, to, to_name, RenameMode::Replace).map_err(Error::errno)
    };
    assert_eq!(mv(root, b"a", c, b"x"), Err(Errno::EINVAL));
    assert_eq!(mv(root, b"a", a, b"x"), Err(Errno::EINVAL));
    assert_eq!(mv(b, b"c", root, b"a"), Err(Errno::ENOTEMPTY));
    assert_eq!(mv(a, b"f", root, b"a"), Err(Errno::ENOTEMPTY));
    assert_eq!(mv(a, b"f", a, b"b"), Err(Errno::EISDIR));
    assert_eq!(mv(a, b"b", a, b"f"), Err(Errno::ENOTDIR));
    assert_eq!(mv(b, b"c", root, b"c"), Ok(()));
    assert_eq!(test.parent_of(&cx, c).unwrap(), root);
    assert_eq!(test.attr(&cx, root).unwrap().nlink, 4);
    assert_eq!(test.attr(&cx, b).unwrap().nlink, 2);
    // Over an empty directory.
    let e = test.create(&cx, root, b"e", &new(Kind::Directory)).unwrap();
    assert_eq!(mv(a, b"b", root, b"e"), Ok(()));
    assert_eq!(errno(test.attr(&cx, e)), Errno::ESTALE);
    assert_eq!(test.parent_of(&cx, b).unwrap(), root);
    assert_eq!(test.lookup(&cx, root, b"e").unwrap(), b);
    // A file for a directory.
    test.rename(&cx, a, b"f", root, b"e", RenameMode::Exchange).unwrap();
    assert_eq!(test.lookup(&cx, root, b"e").unwrap(), file);
    assert_eq!(test.parent_of(&cx, b).unwrap(), a);
    assert_eq!((test.attr(&cx, root).unwrap().nlink, test.attr(&cx, a).unwrap().nlink), (4, 3));
    assert_eq!(list(&test, root), [".", "..", "a", "c", "e"]);
}

/// Goal: links count, symlinks tell.
#[test]
fn links() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let a = test.create(&cx, root, b"a", &new(Kind::Directory)).unwrap();
    let b = test.create(&cx, a, b"b", &new(Kind::Directory)).unwrap();
    let file = test.create(&cx, b, b"file", &new(Kind::Regular)).unwrap();
    test.link(&cx, file, root, b"other").unwrap();
    assert_eq!(test.attr(&cx, file).unwrap().nlink, 2);
    assert_eq!(test.lookup(&cx, root, b"other").unwrap(), file);
    test.unlink(&cx, b, b"file").unwrap();
    assert_eq!(test.attr(&cx, file).unwrap().nlink, 1);
    assert_eq!(errno(test.link(&cx, a, root, b"dir")), Errno::EPERM);
    let link = |dir: Node, name: &[u8], target: &[u8]| {
        test.create(&cx, dir, name, &NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target }).unwrap()
    };
    let long = [b'x'; 4000];
    link(root, b"long", &long);
    let mut text = [0; 4096];
    let node = test.lookup(&cx, root, b"long").unwrap();
    assert_eq!(test.readlink(&cx, node, pm::UserSlice::from_mut(&mut text)).unwrap(), 4000);
    assert_eq!(text[..4000], long);
    assert_eq!(test.attr(&cx, node).unwrap().size, 4000);
}

/// Goal: an ordinary user may do what the kernel lets him, and nothing else.
#[test]
fn permissions() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let user = test.cx_as(1000, 1000);
    assert_eq!(errno(test.create(&user, root, b"x", &new(Kind::Regular))), Errno::EACCES);
    let tmp = test.create(&cx, root, b"tmp", &new(Kind::Directory)).unwrap();
    test.set_attr(&cx, tmp, &SetAttr { mode: Some(0o1777), ..SetAttr::default() }).unwrap();
    let own = test.create(&user, tmp, b"own", &new(Kind::Regular)).unwrap();
    test.create(&cx, tmp, b"root's", &new(Kind::Regular)).unwrap();
    assert_eq!(errno(test.unlink(&user, tmp, b"root's")), Errno::EPERM);
    assert_eq!(errno(test.rename(&user, tmp, b"root's", tmp, b"y", RenameMode::Replace)), Errno::EPERM);
    assert_eq!(errno(test.rename(&user, tmp, b"own", tmp, b"root's", RenameMode::Replace)), Errno::EPERM);
    assert_eq!(errno(test.create(&user, tmp, b"own", &new(Kind::Regular))), Errno::EEXIST);
    assert_eq!(errno(test.set_attr(&user, tmp, &SetAttr { mode: Some(0o777), ..SetAttr::default() })), Errno::EPERM);
    assert_eq!(errno(test.set_attr(&user, own, &SetAttr { uid: Some(0), ..SetAttr::default() })), Errno::EPERM);
    test.set_attr(&user, own, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }).unwrap();
    assert_eq!(test.attr(&cx, own).unwrap().mode, 0o6755);
    test.set_attr(&cx, own, &SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() }).unwrap();
    let attr = test.attr(&cx, own).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o755, 7, 8));
    // A set-group-id directory hands its group on.
    let shared = test.create(&cx, root, b"shared", &new(Kind::Directory)).unwrap();
    test.set_attr(&cx, shared, &SetAttr { gid: Some(50), ..SetAttr::default() }).unwrap();
    test.set_attr(&cx, shared, &SetAttr { mode: Some(0o2777), ..SetAttr::default() }).unwrap();
    let below = test.create(&user, shared, b"below", &new(Kind::Directory)).unwrap();
    let attr = test.attr(&cx, below).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o2755, 1000, 50));
    // Times.
    test.set_attr(&user, below, &SetAttr { atime: Some(SetTime::At(5)), mtime: Some(SetTime::At(6)), ..SetAttr::default() })
        .unwrap();
    let attr = test.attr(&cx, below).unwrap();
    assert_eq!((attr.atime, attr.mtime), (5, 6));
    assert_eq!(test.parent_of(&cx, below).unwrap(), shared);
    assert_eq!(errno(test.set_attr(&user, root, &SetAttr { mtime: Some(SetTime::At(6)), ..SetAttr::default() })), Errno::EPERM);
    assert_eq!(
        errno(test.set_attr(
            &user,
            root,
            &SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() }
        )),
        Errno::EACCES
    );
}

/// Goal: whether a directory may be searched comes first, then whether a name is there, then whether names may be
/// changed; these calls look at the directory in which a path begins themselves. Method: each call in a directory
/// that may be written to and not searched, and in one that may be searched and not written to.
#[test]
fn search_permission_comes_first() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let user = test.cx_as(1000, 1000);
    let directory = |name: &[u8], mode| {
        let dir = test.create(&cx, root, name, &new(Kind::Directory)).unwrap();
        test.create(&cx, dir, b"there", &new(Kind::Regular)).unwrap();
        test.create(&cx, dir, b"empty", &new(Kind::Directory)).unwrap();
        test.set_attr(&cx, dir, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        dir
    };
    let (dark, fixed, free) = (directory(b"dark", 0o702), directory(b"fixed", 0o705), directory(b"free", 0o707));
    let own = test.create(&user, free, b"own", &new(Kind::Regular)).unwrap();
    let calls = |dir: Node, name: &[u8]| {
        let renamed = |from, from_name, to, to_name| errno(test.rename(&user, from, from_name, to, to_name, RenameMode::Replace));
        [
            errno(test.create(&user, dir, name, &new(Kind::Regular))),
            errno(test.create(&user, dir, name, &new(Kind::Directory))),
            errno(test.create(&user, dir, name, &NewNode { target: b"text", ..new(Kind::Symlink) })),
            errno(test.link(&user, own, dir, name)),
            errno(test.unlink(&user, dir, name)),
            errno(test.rmdir(&user, dir, name)),
            renamed(dir, name, free, b"new"),
            renamed(dir, name, dir, b"new"),
        ]
    };
    for name in [b"there", b"empty", b"gone!"] {
        assert_eq!(calls(dark, name), [Errno::EACCES; 8], "{name:?}");
        assert_eq!(errno(test.rename(&user, free, b"own", dark, name, RenameMode::Replace)), Errno::EACCES);
    }
    let (exists, gone, no) = (Errno::EEXIST, Errno::ENOENT, Errno::EACCES);
    assert_eq!(calls(fixed, b"there"), [exists, exists, exists, exists, no, no, no, no]);
    assert_eq!(calls(fixed, b"gone!"), [no, no, no, no, gone, gone, gone, gone]);
    assert!(test.lookup(&cx, free, b"own").is_ok());
}

/// Goal: an open file outlives its name, and its space comes back at the last close.
#[test]
fn unlinked_while_open() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let node = test.create(&cx, root, b"f", &new(Kind::Regular)).unwrap();
    let dir = test.create(&cx, root, b"d", &new(Kind::Directory)).unwrap();
    test.open(&cx, node, 0, 10).unwrap();
    test.open(&cx, dir, 0, 11).unwrap();
    test.unlink(&cx, root, b"f").unwrap();
    test.rmdir(&cx, root, b"d").unwrap();
    assert_eq!(test.attr(&cx, node).unwrap().nlink, 0);
    assert_eq!(test.attr(&cx, dir).unwrap().nlink, 0);
    assert_eq!(errno(test.create(&cx, dir, b"x", &new(Kind::Regular))), Errno::ENOENT);
    assert_eq!(errno(test.lookup(&cx, dir, b"x")), Errno::ENOENT);
    assert_eq!(errno(test.link(&cx, node, root, b"again")), Errno::ENOENT);
    let used = |s: &StatFs| s.files - s.files_free;
    let before = test.statfs().unwrap();
    test.close(&cx, 10);
    test.close(&cx, 11);
    assert_eq!(errno(test.attr(&cx, node)), Errno::ESTALE);
    assert_eq!(errno(test.attr(&cx, dir)), Errno::ESTALE);
    assert_eq!(used(&test.statfs().unwrap()), used(&before) - 2);
    assert!((0..100).all(|i| test.orphan_slot(i).unwrap().load(core::sync::atomic::Ordering::Relaxed) == 0));
    // A file without a name gets one.
    let node = test.tmpfile(&cx, root, 0o600, 0).unwrap();
    test.open(&cx, node, 0, 10).unwrap();
    assert_eq!(test.attr(&cx, node).unwrap().nlink, 0);
    test.link(&cx, node, root, b"named").unwrap();
    test.close(&cx, 10);
    assert_eq!(test.lookup(&cx, root, b"named").unwrap(), node);
    assert_eq!(test.attr(&cx, node).unwrap().nlink, 1);
}
