//! The tree that inputs damage: one of each thing that the format knows.

use base::{Cx, Fallocate, Kind, NewNode, Node, RenameMode, SetAttr, SetTime};
use engine::Fs;
use pm::UserSlice;

/// Fills an empty image.
pub fn populate(fs: &Fs, cx: &Cx) {
    let make = |dir: Node, name: &[u8], kind, mode, target: &[u8]| {
        fs.create(cx, dir, name, &NewNode { kind, mode, rdev: 0x103, target }).expect("create")
    };
    let write = |node: Node, at: u64, text: &[u8]| {
        fs.write(cx, node, Some(at), &[UserSlice::from_ref(text)]).expect("write");
    };
    let root = fs.root_node();
    let a = make(root, b"a", Kind::Directory, 0o755, b"");
    let b = make(a, b"b", Kind::Directory, 0o1777, b"");
    let c = make(b, b"c", Kind::Directory, 0o700, b"");
    let file = make(a, b"file", Kind::Regular, 0o644, b"");
    write(file, 0, b"The quick brown fox jumps over the lazy dog.\n");
    fs.link(cx, file, b, b"second").expect("link");
    fs.link(cx, file, c, b"third").expect("link");
    // One extent; a map of several; one with a tree of two levels.
    let whole = make(root, b"whole", Kind::Regular, 0o600, b"");
    write(whole, 0, &[0x77; 40_000]);
    let holes = make(root, b"holes", Kind::Regular, 0o666, b"");
    for i in 0..6 {
        write(holes, i * 40_960 + 17, b"data between holes");
    }
    let deep = make(c, b"deep", Kind::Regular, 0o666, b"");
    for i in 0..300 {
        write(deep, i * 8192, b"x");
    }
    // Files that share their blocks: all of them, one that has broken it in the middle, a twin; a frozen one.
    let clone = make(b, b"clone", Kind::Regular, 0o644, b"");
    fs.clone_range(cx, (whole, 0), (clone, 0), 0).expect("clone");
    let broken = make(b, b"broken", Kind::Regular, 0o644, b"");
    fs.clone_range(cx, (whole, 0), (broken, 0), 0).expect("clone");
    write(broken, 9000, b"own");
    let twin = fs.twin(cx, (whole, Kind::Regular), c, b"twin", None).expect("twin");
    fs.freeze(cx, twin.node, true).expect("freeze");
    let ahead = make(b, b"ahead", Kind::Regular, 0o644, b"");
    fs.fallocate(cx, ahead, Fallocate::KeepSize, 0, 30_000).expect("fallocate");
    make(root, b"link", Kind::Symlink, 0o777, b"a/b/c");
    make(b, b"up", Kind::Symlink, 0o777, b"../file");
    make(b, b"loop", Kind::Symlink, 0o777, b"loop");
    make(root, b"long", Kind::Symlink, 0o777, &[b'x'; 700]);
    make(root, b"fifo", Kind::Fifo, 0o622, b"");
    make(root, b"device", Kind::CharDevice, 0o666, b"");
    make(root, &[b'n'; 255], Kind::Regular, 0o400, b"");
    fs.set_xattr(cx, file, b"user.colour", UserSlice::from_ref(b"green"), 0).expect("xattr");
    fs.set_xattr(cx, file, b"user.shape", UserSlice::from_ref(&[b'r'; 5000]), 0).expect("xattr");
    fs.set_xattr(cx, a, b"user.of a directory", UserSlice::from_ref(b"yes"), 0).expect("xattr");
    let times = SetAttr { atime: Some(SetTime::At(1)), mtime: Some(SetTime::At(2)), ..Default::default() };
    fs.set_attr(cx, holes, &times).expect("times");
    let owner = SetAttr { uid: Some(1000), gid: Some(100), mode: Some(0o4755), ..Default::default() };
    fs.set_attr(cx, ahead, &owner).expect("owner");
    // Names that come and go; buckets with chains.
    let many = make(root, b"many", Kind::Directory, 0o777, b"");
    for i in 0..700 {
        make(many, format!("name {i}").as_bytes(), Kind::Regular, 0o644, b"");
    }
    for i in (0..700).step_by(3) {
        fs.unlink(cx, many, format!("name {i}").as_bytes()).expect("unlink");
    }
    fs.rename(cx, many, b"name 1", c, b"moved", RenameMode::Replace).expect("rename");
    // Inodes without a name, and one that is being truncated no more.
    for (fd, name) in [(3, b"open 1"), (4, b"open 2")] {
        let orphan = make(root, name, Kind::Regular, 0o644, b"");
        write(orphan, 0, &[1; 9000]);
        fs.open(cx, orphan, 2, fd).expect("open");
        fs.unlink(cx, root, name).expect("unlink");
    }
}
