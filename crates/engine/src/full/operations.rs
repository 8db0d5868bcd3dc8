//! One operation of each kind, on a tree that has what it needs.

use crate::testing::TestFs;
use crate::{Fallocate, Kind, NewNode, Node, RenameMode, Result, SetAttr, SetTime};
use format::BLOCK;
use pm::UserSlice;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// An operation.
pub(super) struct Operation {
    pub name: &'static str,
    pub run: fn(&TestFs, &Tree) -> Result<()>,
    /// It may work though something is not to be had: less of a write, a smaller
    /// run, or work that can wait.
    pub may_do_without: bool,
    /// It gives space back: it must not need any.
    pub removes: bool,
}

const fn changes(name: &'static str, run: fn(&TestFs, &Tree) -> Result<()>) -> Operation {
    Operation { name, run, may_do_without: false, removes: false }
}

const fn flexible(name: &'static str, run: fn(&TestFs, &Tree) -> Result<()>) -> Operation {
    Operation { name, run, may_do_without: true, removes: false }
}

const fn removes(name: &'static str, run: fn(&TestFs, &Tree) -> Result<()>) -> Operation {
    Operation { name, run, may_do_without: true, removes: true }
}

/// What operations work on.
pub(super) struct Tree {
    dir: Node,
    other: Node,
    file: Node,
    data: Node,
    holes: Node,
    ahead: Node,
    plain: Node,
    open: Node,
    origin: Node,
}

fn make(test: &TestFs, dir: Node, name: &[u8], kind: Kind, target: &[u8]) -> Result<Node> {
    test.create(&test.cx(), dir, name, &NewNode { kind, mode: 0o755, rdev: 0x103, target })
}

fn write(test: &TestFs, node: Node, at: Option<u64>, len: usize) -> Result<()> {
    test.write(&test.cx(), node, at, &[UserSlice::from_ref(&vec![0x5a; len])]).map(drop)
}

/// A file with `len` bytes.
pub(super) fn make_file(test: &TestFs, dir: Node, name: &[u8], len: usize) -> Result<()> {
    let node = make(test, dir, name, Kind::Regular, b"")?;
    if len == 0 { Ok(()) } else { write(test, node, Some(0), len) }
}

/// A directory in the root.
pub(super) fn make_directory(test: &TestFs, name: &[u8]) -> Node {
    make(test, test.root_node(), name, Kind::Directory, b"").unwrap()
}

impl Tree {
    pub(super) fn new(test: &TestFs) -> Tree {
        let root = test.root_node();
        let dir = make(test, root, b"dir", Kind::Directory, b"").unwrap();
        let other = make(test, root, b"other", Kind::Directory, b"").unwrap();
        make(test, dir, b"empty", Kind::Directory, b"").unwrap();
        make(test, other, b"target dir", Kind::Directory, b"").unwrap();
        make(test, other, b"target", Kind::Regular, b"").unwrap();
        make(test, dir, b"symlink", Kind::Symlink, &[b's'; 500]).unwrap();
        let file = make(test, dir, b"file", Kind::Regular, b"").unwrap();
        let data = make(test, dir, b"data", Kind::Regular, b"").unwrap();
        write(test, data, Some(0), 60_000).unwrap();
        let holes = make(test, dir, b"holes", Kind::Regular, b"").unwrap();
        for i in 0..5 {
            write(test, holes, Some(i * 50_000), 10).unwrap();
        }
        let ahead = make(test, dir, b"ahead", Kind::Regular, b"").unwrap();
        write(test, ahead, Some(0), 10).unwrap();
        allocate(test, ahead, Fallocate::KeepSize, 1 << 20, BLOCK).unwrap();
        let plain = make(test, dir, b"plain", Kind::Regular, b"").unwrap();
        test.set_xattr(&test.cx(), plain, b"user.a", UserSlice::from_ref(b"1"), 0).unwrap();
        test.set_xattr(&test.cx(), plain, b"user.b", UserSlice::from_ref(&[2; 300]), 0).unwrap();
        let open = make(test, dir, b"open", Kind::Regular, b"").unwrap();
        write(test, open, Some(0), 9000).unwrap();
        test.open(&test.cx(), open, 2, 3).unwrap();
        let origin = make(test, dir, b"origin", Kind::Regular, b"").unwrap();
        write(test, origin, Some(0), 60_000).unwrap();
        let shared = make(test, dir, b"shared", Kind::Regular, b"").unwrap();
        test.clone_range(&test.cx(), (origin, 0), (shared, 0), 0).unwrap();
        Tree { dir, other, file, data, holes, ahead, plain, open, origin }
    }
}

fn rename(test: &TestFs, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
    test.rename(&test.cx(), from.0, from.1, to.0, to.1, mode)
}

fn set(test: &TestFs, node: Node, change: SetAttr) -> Result<()> {
    test.set_attr(&test.cx(), node, &change)
}

fn allocate(test: &TestFs, node: Node, how: Fallocate, at: u64, len: u64) -> Result<()> {
    test.fallocate(&test.cx(), node, how, at, len)
}

fn xattr(test: &TestFs, node: Node, name: &[u8], len: usize) -> Result<()> {
    test.set_xattr(&test.cx(), node, name, UserSlice::from_ref(&vec![3; len]), 0)
}

/// A file without a name; closed again at once if it gets none.
fn tmpfile(test: &TestFs, tree: &Tree, name: Option<&[u8]>) -> Result<()> {
    let node = test.tmpfile(&test.cx(), tree.dir, 0o600, 2)?;
    let opened = test.open(&test.cx(), node, 2, 9);
    if let Err(error) = opened {
        // As a caller does who cannot open what it has made.
        test.forget_tmpfile(&test.cx(), node);
        return Err(error);
    }
    let linked = name.map_or(Ok(()), |name| test.link(&test.cx(), node, tree.dir, name));
    test.close(&test.cx(), 9);
    linked
}

/// Everything.
pub(super) const ALL: &[Operation] = &[
    changes("create", |t, n| make(t, n.dir, b"new", Kind::Regular, b"").map(drop)),
    changes("create, long name", |t, n| make(t, n.dir, &[b'n'; 255], Kind::Regular, b"").map(drop)),
    changes("create, new permission", |t, n| {
        let new = NewNode { kind: Kind::Regular, mode: 0o431, rdev: 0, target: b"" };
        t.create(&t.cx(), n.dir, b"new permission", &new).map(drop)
    }),
    changes("mkdir", |t, n| make(t, n.dir, b"new dir", Kind::Directory, b"").map(drop)),
    changes("create in an empty directory", |t, n| {
        let empty = t.lookup(&t.cx(), n.dir, b"empty")?;
        make(t, empty, b"first", Kind::Regular, b"").map(drop)
    }),
    changes("mknod", |t, n| make(t, n.dir, b"new device", Kind::CharDevice, b"").map(drop)),
    changes("symlink", |t, n| make(t, n.dir, b"new symlink", Kind::Symlink, b"target").map(drop)),
    changes("symlink, long", |t, n| make(t, n.dir, b"long symlink", Kind::Symlink, &[b'x'; 3000]).map(drop)),
    changes("link", |t, n| t.link(&t.cx(), n.file, n.other, b"new link")),
    changes("rename", |t, n| rename(t, (n.dir, b"file"), (n.dir, b"file 2"), RenameMode::NoReplace)),
    changes("rename to another directory", |t, n| rename(t, (n.dir, b"data"), (n.other, b"data"), RenameMode::Replace)),
    changes("rename over a file", |t, n| rename(t, (n.dir, b"plain"), (n.other, b"target"), RenameMode::Replace)),
    changes("rename over a directory", |t, n| rename(t, (n.dir, b"empty"), (n.other, b"target dir"), RenameMode::Replace)),
    changes("rename, exchanging", |t, n| rename(t, (n.dir, b"symlink"), (n.other, b"target"), RenameMode::Exchange)),
    changes("rename over an open file", |t, n| rename(t, (n.dir, b"holes"), (n.dir, b"open"), RenameMode::Replace)),
    changes("tmpfile", |t, n| tmpfile(t, n, None)),
    changes("tmpfile and link", |t, n| tmpfile(t, n, Some(b"named at last"))),
    changes("first write", |t, n| write(t, n.file, Some(0), 100)),
    flexible("write of many blocks", |t, n| write(t, n.file, Some(0), 300_000)),
    flexible("append", |t, n| write(t, n.data, None, 50_000)),
    changes("write into a hole", |t, n| write(t, n.holes, Some(30_000), 100)),
    changes("write far behind the end", |t, n| write(t, n.data, Some(1 << 30), 100)),
    changes("extend", |t, n| set(t, n.data, SetAttr { size: Some(1 << 20), ..Default::default() })),
    flexible("fallocate", |t, n| allocate(t, n.file, Fallocate::Allocate, 0, 100_000)),
    flexible("fallocate, keeping the size", |t, n| allocate(t, n.data, Fallocate::KeepSize, 65_536, 100_000)),
    flexible("fallocate over holes", |t, n| allocate(t, n.holes, Fallocate::Allocate, 0, 200_010)),
    flexible("zero range", |t, n| allocate(t, n.data, Fallocate::Zero, 10, 80_000)),
    changes("fallocate of a block that the map has no room for", |t, n| allocate(t, n.data, Fallocate::KeepSize, 1 << 20, 10)),
    changes("fallocate of a block, longer", |t, n| allocate(t, n.data, Fallocate::Allocate, 1 << 20, 10)),
    changes("fallocate around a block", |t, n| allocate(t, n.ahead, Fallocate::Allocate, (1 << 20) - BLOCK, 3 * BLOCK)),
    flexible("fallocate of many holes", |t, n| allocate(t, n.holes, Fallocate::Allocate, 5000, 200_000)),
    changes("fallocate of holes, keeping the size", |t, n| {
        allocate(t, n.ahead, Fallocate::KeepSize, (1 << 20) - BLOCK, 3 * BLOCK)
    }),
    changes("zero range around a block", |t, n| allocate(t, n.ahead, Fallocate::ZeroKeepSize, (1 << 20) - BLOCK, 3 * BLOCK)),
    changes("fallocate of a block in a hole", |t, n| allocate(t, n.holes, Fallocate::Allocate, 20_000, 10)),
    changes("zero range, in a hole", |t, n| allocate(t, n.holes, Fallocate::Zero, 20_000, 10)),
    changes("zero range behind the end", |t, n| allocate(t, n.data, Fallocate::Zero, 1 << 20, 10)),
    flexible("copy to a far place", |t, n| t.copy_range(&t.cx(), n.data, 0, n.holes, 1 << 20, 9000).map(drop)),
    flexible("clone", |t, n| t.clone_range(&t.cx(), (n.data, 0), (n.file, 0), 40_960)),
    flexible("clone of what is shared", |t, n| t.clone_range(&t.cx(), (n.origin, 0), (n.file, 0), 40_960)),
    changes("xattr", |t, n| xattr(t, n.file, b"user.new", 10)),
    changes("xattr, large", |t, n| xattr(t, n.file, b"user.large", 30_000)),
    changes("xattr of a directory", |t, n| xattr(t, n.dir, b"user.new", 10)),
    changes("xattr, replaced", |t, n| xattr(t, n.plain, b"user.a", 500)),
    flexible("remove xattr, others stay", |t, n| t.remove_xattr(&t.cx(), n.plain, b"user.a")),
    changes("chmod", |t, n| set(t, n.file, SetAttr { mode: Some(0o613), ..Default::default() })),
    changes("chown", |t, n| set(t, n.dir, SetAttr { uid: Some(77), gid: Some(88), ..Default::default() })),
    changes("atime", |t, n| set(t, n.file, SetAttr { atime: Some(SetTime::At(5)), ..Default::default() })),
    changes("open", |t, n| t.open(&t.cx(), n.file, 2, 5).map(|_| t.close(&t.cx(), 5))),
    removes("unlink", |t, n| t.unlink(&t.cx(), n.dir, b"symlink")),
    removes("unlink, with data", |t, n| t.unlink(&t.cx(), n.dir, b"data")),
    removes("unlink, with many extents", |t, n| t.unlink(&t.cx(), n.dir, b"holes")),
    removes("unlink, with xattrs", |t, n| t.unlink(&t.cx(), n.dir, b"plain")),
    removes("unlink an open file and close it", |t, n| {
        let result = t.unlink(&t.cx(), n.dir, b"open");
        if result.is_ok() {
            t.close(&t.cx(), 3);
        }
        result
    }),
    removes("unlink, with shared data", |t, n| t.unlink(&t.cx(), n.dir, b"shared")),
    flexible("hole in shared data", |t, n| allocate(t, n.origin, Fallocate::PunchHole, 8192, 8192)),
    removes("truncate shared data", |t, n| set(t, n.origin, SetAttr { size: Some(5), ..Default::default() })),
    removes("rmdir", |t, n| t.rmdir(&t.cx(), n.dir, b"empty")),
    removes("truncate", |t, n| set(t, n.data, SetAttr { size: Some(5), ..Default::default() })),
    removes("truncate an open file", |t, n| set(t, n.open, SetAttr { size: Some(0), ..Default::default() })),
    removes("truncate a file with many extents", |t, n| set(t, n.holes, SetAttr { size: Some(60_000), ..Default::default() })),
];

/// `rm -rf` of what a directory has.
pub(super) fn remove_all(test: &TestFs, dir: Node) {
    let mut names: Vec<(String, Kind)> = Vec::new();
    test.readdir(&test.cx(), dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
        }
        true
    })
    .unwrap();
    for (name, kind) in names {
        if kind == Kind::Directory {
            let node = test.lookup(&test.cx(), dir, name.as_bytes()).unwrap();
            remove_all(test, node);
            test.rmdir(&test.cx(), dir, name.as_bytes()).unwrap();
        } else {
            test.unlink(&test.cx(), dir, name.as_bytes()).unwrap();
        }
    }
    for fd in 3..10 {
        test.close(&test.cx(), fd);
    }
}
