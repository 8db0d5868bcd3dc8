//! Goal: a walk leads where the kernel's leads, on every kind of backend, and says what the kernel says.
//! Method: the same tree in the plain model and in an image; paths with all that a walk may meet.

use base::{Cred, Cx, Errno, Kind, NewNode, Node, Thread};
use bypath_testkit::image;
use vfs::mem::Mem;
use vfs::{Backend, Exit, Last, Scratch, Walk};

#[test]
fn walks() {
    let _segments = image::Segments::new();
    on(Mem::leak(0, 0, 0o755, 1));
    let path = image::fresh_path("walk");
    image::make(&path, 64 << 20);
    let native = image::attach(&path);
    let _ = std::fs::remove_file(&path);
    on(native);
}

/// The tree: `a/b/up`, a symlink to the file `other`, and symlinks at the root.
fn on(backend: &dyn Backend) {
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let root = backend.root();
    let make = |dir: Node, name: &str, kind, target: &[u8]| {
        backend.create(&cx, dir, name.as_bytes(), &NewNode { kind, mode: 0o755, rdev: 0, target }).unwrap()
    };
    let a = make(root, "a", Kind::Directory, b"");
    let b = make(a, "b", Kind::Directory, b"");
    let file = make(root, "other", Kind::Regular, b"");
    make(root, "l", Kind::Symlink, b"a/b/");
    make(b, "up", Kind::Symlink, b"../../other");
    make(root, "loop", Kind::Symlink, b"loop");
    make(root, "abs", Kind::Symlink, b"/etc/passwd");
    make(root, "long", Kind::Symlink, &[b'x'; 4000]);
    // Turn by turn this one becomes longer than a path may be, before it has been followed 40 times.
    make(root, "grows", Kind::Symlink, format!("grows/{}", "x".repeat(200)).as_bytes());
    let walk = |path: &str, last: Last| {
        let mut scratch = Scratch::new();
        match backend.walk(&cx, root, path.as_bytes(), last, &mut 0, None, &mut scratch) {
            Ok(Walk::Found(found)) => Ok((found.node, String::from_utf8(found.name.to_vec()).unwrap(), found.slash)),
            Ok(Walk::Exit(Exit::Above { rest })) => Ok((None, format!("above:{}", String::from_utf8_lossy(rest)), false)),
            Ok(Walk::Exit(Exit::Absolute { path })) => Ok((None, format!("abs:{}", String::from_utf8_lossy(path)), false)),
            Ok(Walk::Exit(Exit::Mountpoint { .. })) => Ok((None, String::from("mount"), false)),
            Err(error) => Err(error.errno()),
        }
    };
    let found = |node: Node, name: &str, slash| Ok((Some(node), String::from(name), slash));
    let absent = |name: &str| Ok((None, String::from(name), false));
    assert_eq!(walk("l/up", Last::Follow), found(file, "other", false));
    assert_eq!(walk("a//b/./../b/up", Last::Follow), found(file, "other", false));
    assert_eq!(walk("l", Last::Follow), found(b, "b", true));
    assert_eq!(walk("a/b/", Last::Follow), found(b, "b", true));
    assert_eq!(walk("a/b/..", Last::Follow), found(a, "..", false));
    assert_eq!(walk("", Last::Follow), found(root, "", false));
    assert_eq!(walk("../x/y", Last::Follow), absent("above:x/y"));
    assert_eq!(walk("abs", Last::Follow), absent("abs:/etc/passwd"));
    assert_eq!(walk("abs/more", Last::NoFollow), absent("abs:/etc/passwd/more"));
    assert_eq!(walk("loop", Last::Follow), Err(Errno::ELOOP));
    assert_eq!(walk("grows", Last::Follow), Err(Errno::ELOOP));
    assert_eq!(walk("other/x", Last::Follow), Err(Errno::ENOTDIR));
    assert_eq!(walk("none/x", Last::Follow), Err(Errno::ENOENT));
    assert_eq!(walk("none", Last::Follow), absent("none"));
    assert_eq!(walk("long", Last::Follow), Err(Errno::ENAMETOOLONG));
    assert_eq!(walk("l/new", Last::Parent), absent("new"));
}
