//! Nodes with originals, in a small image; the originals are made up.

use super::{Change, Hole, Identity, Stamp, Whole, bits};
use crate::testing::{TestFs, TestImage, find_fast};
use ::format::Features;
use base::stat::Stat;
use base::{Errno, Error, Fast, Kind, Node};
use core::mem::MaybeUninit;
use pm::UserSlice;
use std::string::ToString;
use std::vec;

const LIMIT: u64 = 32 << 20;

fn cache() -> TestFs {
    TestFs::from_image(TestImage::with(LIMIT, Features::CACHE)).unwrap()
}

fn stamp(number: u64, size: u64) -> Stamp {
    Stamp { number, device: 7, size, mtime: 1_000_000_007, ctime: 2_000_000_009, nlink: 3, blocks: 24 }
}

fn make(test: &TestFs, dir: Node, name: &[u8], kind: Kind, stamp: Stamp) -> Node {
    let new = Whole { kind, mode: 0o4751, uid: 11, gid: 22, rdev: 0, target: b"to", stamp, state: 0, unless: 0 };
    test.create_whole(&test.cx(), dir, name, &new).unwrap()
}

/// Nothing is wrong with the image: what each test ends with.
fn sound(test: TestFs) {
    let image = test.again();
    let report = crate::check::run(&image.image.path(), &mut |_| {}).unwrap();
    assert!(report.issues.is_empty(), "{:?}", report.issues);
}

/// Goal: a node is as its original from the first moment, also when its cachelet is loaded again; changes of the original
/// become its, and what is gone gives all its space back.
#[test]
fn whole_nodes() {
    let test = cache();
    let (cx, root) = (test.cx(), test.root_node());
    let dir = make(&test, root, b"a-directory-with-a-name-that-is-long", Kind::Directory, stamp(1, 4096));
    let file = make(&test, dir, b"file", Kind::Regular, stamp(2, 10_000));
    let link = make(&test, dir, b"link", Kind::Symlink, Stamp { size: 2, ..stamp(3, 2) });
    let seen = |test: &TestFs, node| {
        let attr = test.attr(&test.cx(), node).unwrap();
        (attr.mode, attr.uid, attr.gid, attr.size, attr.mtime, attr.ctime, attr.nlink, attr.blocks)
    };
    let wanted = (0o4751, 11, 22, 10_000, 1_000_000_007, 2_000_000_009, 3, 24);
    assert_eq!((seen(&test, file), seen(&test, link).3), (wanted, 2));
    assert_eq!(test.known(file).unwrap().unwrap().stamp, stamp(2, 10_000));
    assert_eq!(test.attr(&cx, dir).unwrap().mtime, 1_000_000_007, "what is known has changed, not the directory");
    let test = test.again();
    let cx = test.cx();
    assert_eq!(seen(&test, file), wanted);
    let changed = Change { mode: 0o600, uid: 1, gid: 2, stamp: Stamp { ctime: 5, nlink: 1, ..stamp(2, 10_000) }, before: None };
    test.restamp(&cx, file, &changed).unwrap();
    assert_eq!(seen(&test, file), (0o600, 1, 2, 10_000, 1_000_000_007, 5, 1, 24));
    // Of two who look at once, one before and one after a change, the one who comes later with what was known before is told.
    let late = Change { mode: 0o640, before: Some(stamp(2, 10_000)), ..changed };
    assert_eq!(test.restamp(&cx, file, &late), Err(Error::Posix(Errno::ESTALE)), "it was looked at too early");
    let other = Change { stamp: stamp(99, 1), ..changed };
    assert_eq!(test.restamp(&cx, file, &other), Err(Error::Posix(Errno::ESTALE)), "another file is not this one");
    test.restamp_as_another(&cx, file, &other).unwrap();
    assert_eq!((test.known(file).unwrap().unwrap().stamp, seen(&test, file).3), (other.stamp, 1), "unless it is to be");
    // A directory too, by the fast path.
    let figures = |test: &TestFs| {
        let (attr, mut out) = (test.attr_as_original(&test.cx(), dir).unwrap(), MaybeUninit::<Stat>::zeroed());
        let found = test.lookup(&test.cx(), test.root_node(), b"a-directory-with-a-name-that-is-long").unwrap();
        let fast = test.fstat_fast(found, &mut out);
        // SAFETY: zeroed, and words alone.
        let out = unsafe { out.assume_init() };
        (fast, (out.st_size as u64, out.st_nlink as u32, out.st_mtime), (attr.size, attr.nlink, attr.mtime / 1_000_000_000))
    };
    let (fast, shown, attr) = figures(&test);
    assert_eq!((fast, shown, attr), (Fast::Done(()), (4096, 3, 1), (4096, 3, 1)));
    let grown =
        Change { mode: 0o755, uid: 0, gid: 0, stamp: Stamp { size: 8192, mtime: 3_000_000_000, ..stamp(1, 0) }, before: None };
    test.restamp(&cx, dir, &grown).unwrap();
    assert_eq!(figures(&test), (Fast::Done(()), (8192, 3, 3), (8192, 3, 3)));
    test.unlink(&cx, dir, b"file").unwrap();
    test.unlink(&cx, dir, b"link").unwrap();
    test.rmdir(&cx, root, b"a-directory-with-a-name-that-is-long").unwrap();
    assert_eq!(test.known(file).err(), Some(Error::Posix(Errno::ESTALE)));
    sound(test);
}

/// Goal: a name that is not here is only missing once its directory is listed; and not before, when it is loaded again.
#[test]
fn absence() {
    let test = cache();
    let (cx, root) = (test.cx(), test.root_node());
    let dir = make(&test, root, b"dir", Kind::Directory, stamp(1, 4096));
    make(&test, dir, b"here", Kind::Regular, stamp(2, 0));
    let look = |test: &TestFs, path: &[u8]| find_fast(test, test.root_node(), path).0;
    assert_eq!((look(&test, b"dir/here"), look(&test, b"dir/gone")), (Fast::Done(()), Fast::Slow));
    test.mark(&cx, dir, bits::LISTED, 0).unwrap();
    assert_eq!((look(&test, b"dir/here"), look(&test, b"dir/gone")), (Fast::Done(()), Fast::Absent));
    test.mark(&cx, dir, 0, bits::LISTED).unwrap();
    assert_eq!(look(&test, b"dir/gone"), Fast::Slow);
    let test = test.again();
    test.attr(&test.cx(), dir).unwrap();
    assert_ne!(look(&test, b"dir/gone"), Fast::Absent);
    test.mark(&test.cx(), dir, bits::LISTED, 0).unwrap();
    assert_eq!(look(&test, b"dir/gone"), Fast::Absent);
    sound(test);
}

/// Goal: bytes that are brought are read, and change nothing else; those of an original that is another by now are not
/// taken, nor those that are here already.
#[test]
fn fetching() {
    const SIZE: u64 = 300_000;
    let test = cache();
    let cx = test.cx();
    let file = make(&test, test.root_node(), b"file", Kind::Regular, stamp(2, SIZE));
    let before = test.attr(&cx, file).unwrap();
    let byte = |at: u64| (at / 7) as u8;
    let fetch = |from: u64, len: u64, stamp: &Stamp, add: u8| {
        test.fetch(&cx, file, (from, len), (stamp, SIZE), &mut |at, part: UserSlice| {
            let bytes: vec::Vec<u8> = (at..(at + part.len as u64).min(SIZE)).map(|at| byte(at).wrapping_add(add)).collect();
            pm::user::copy(UserSlice::from_ref(&bytes), part).unwrap();
            Ok(bytes.len())
        })
    };
    fetch(131_072, 65_536, &stamp(2, SIZE), 0).unwrap();
    fetch(131_072, 65_536, &stamp(2, SIZE), 1).unwrap();
    fetch(0, 131_072, &stamp(2, SIZE), 0).unwrap();
    fetch(196_608, 200_000, &stamp(2, SIZE + 1), 1).unwrap();
    assert_eq!(test.seek(&cx, file, 0, false), Ok(196_608), "that of another original is not taken");
    let hole = Hole { start: 196_608, end: SIZE.next_multiple_of(4096), is_next: true };
    assert_eq!(test.hole(&cx, file, 100, SIZE), Ok(Some(hole)));
    assert_eq!(test.hole(&cx, file, 204_801, 204_802), Ok(Some(Hole { start: 204_800, is_next: false, ..hole })));
    assert_eq!((test.hole(&cx, file, 100, 196_608), test.hole(&cx, file, SIZE, SIZE + 9)), (Ok(None), Ok(None)));
    // What there is of free blocks may come in several runs.
    while let Some(hole) = test.seek(&cx, file, 0, false).ok().filter(|hole| *hole < SIZE) {
        fetch(hole, SIZE - hole, &stamp(2, SIZE), 0).unwrap();
    }
    let mut bytes = vec![0; SIZE as usize + 1];
    assert_eq!(test.read(&cx, file, 0, &[UserSlice::from_mut(&mut bytes)]), Ok(SIZE as usize));
    assert_eq!((0..SIZE).find(|at| bytes[*at as usize] != byte(*at)), None);
    let after = test.attr(&cx, file).unwrap();
    assert_eq!((after.size, after.mtime, after.ctime, after.blocks), (before.size, before.mtime, before.ctime, before.blocks));
    let other = Change { mode: 0o600, uid: 0, gid: 0, stamp: stamp(99, 1), before: None };
    test.open(&cx, file, 0, 4).unwrap();
    assert_eq!(test.restamp_as_another(&cx, file, &other), Err(Error::Posix(Errno::ESTALE)), "an open file stays the one it is");
    test.close(&cx, 4);
    // Looked at before it became what it is now.
    let early = Change { mode: 0, uid: 9, gid: 9, stamp: stamp(2, 7), before: Some(stamp(2, 1)) };
    assert_eq!(test.restamp(&cx, file, &early), Err(Error::Posix(Errno::ESTALE)));
    assert_eq!(test.attr(&cx, file).unwrap().size, before.size);
    // Other contents: what is here goes.
    let changed = Change { mode: 0o600, uid: 0, gid: 0, stamp: Stamp { mtime: 8, ..stamp(2, 5000) }, before: None };
    test.restamp(&cx, file, &changed).unwrap();
    assert_eq!((test.seek(&cx, file, 0, false), test.attr(&cx, file).unwrap().size), (Ok(0), 5000));
    sound(test);
}

/// Goal: who is killed while it waits for the original leaves nothing. Method: a child that dies in the fetch.
#[test]
fn death_in_a_fetch() {
    let test = cache();
    let file = make(&test, test.root_node(), b"file", Kind::Regular, stamp(2, 300_000));
    let free = test.statfs().unwrap().blocks_free;
    test.dying(|cx| {
        let _ = test.fetch(cx, file, (0, 300_000), (&stamp(2, 300_000), 300_000), &mut |_, _| {
            std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
            Ok(0)
        });
        false
    });
    assert_eq!((test.seek(&test.cx(), file, 0, false), test.statfs().unwrap().blocks_free), (Ok(0), free));
    sound(test);
}

/// Goal: what is here and below goes where somebody needs room, but for files that are open; a directory that has lost a
/// name while it was listed is not called listed. Method: two files that are full, one of them open; all names go by.
#[test]
fn evicting() {
    let test = cache();
    let cx = test.cx();
    test.become_cache(&cx, &Identity::new(1, [7, 1], b"/srv/data").unwrap()).unwrap();
    let dir = make(&test, test.root_node(), b"dir", Kind::Directory, stamp(1, 4096));
    let [open, closed] = [2, 3].map(|number| {
        let node = make(&test, dir, number.to_string().as_bytes(), Kind::Regular, stamp(number, 100_000));
        while let Some(hole) = test.hole(&cx, node, 0, 100_000).unwrap() {
            let whole = (hole.start, hole.end - hole.start);
            test.fetch(&cx, node, whole, (&stamp(number, 100_000), 100_000), &mut |_, part| Ok(part.len)).unwrap();
        }
        node
    });
    test.open(&cx, open, 0, 4).unwrap();
    let (mut names, mut freed) = (0, 0);
    for _ in 0..test.names_steps() {
        test.next_names(&mut |parent, child, kind| {
            names += u64::from(parent.id == dir.id && kind == Kind::Regular);
            freed += test.evict_contents(&cx, child).unwrap();
        })
        .unwrap();
    }
    assert_eq!((names, freed), (2, 25));
    let is_here = |node| test.hole(&cx, node, 0, 1).unwrap().is_none();
    assert_eq!((is_here(open), is_here(closed)), (true, false));
    test.close(&cx, 4);
    let before = test.forgotten();
    assert_eq!((test.mark_listed(&cx, dir, before), test.known(dir).unwrap().unwrap().is_listed()), (Ok(true), true));
    test.forget();
    test.mark(&cx, dir, 0, bits::LISTED).unwrap();
    assert_eq!((test.mark_listed(&cx, dir, before), test.known(dir).unwrap().unwrap().is_listed()), (Ok(false), false));
    sound(test);
}

/// Goal: an image says whose cache it is, and becomes one's only once.
#[test]
fn identity() {
    let test = cache();
    let cx = test.cx();
    assert_eq!(test.cache_of().err(), Some(Error::Posix(Errno::ENODATA)));
    let identity = Identity::new(1, [7, 1], b"/srv/data").unwrap();
    test.become_cache(&cx, &identity).unwrap();
    assert_eq!(test.cache_of(), Ok(identity));
    assert_eq!(test.become_cache(&cx, &identity), Err(Error::Posix(Errno::EEXIST)));
    let test = test.again();
    assert_eq!(test.cache_of().unwrap().place(), b"/srv/data");
    sound(test);
}

/// Goal: a node that was made here gets its original, with attributes and contents left as they are, and can get another
/// stamp; one that has a cold line before too. What is newer here is not made older; and it is found by its name.
#[test]
fn written_nodes() {
    let test = cache();
    let (cx, root) = (test.cx(), test.root_node());
    let new = |kind| base::NewNode { kind, mode: 0o755, rdev: 0, target: b"" };
    let dir = test.create(&cx, root, b"made", &new(Kind::Directory)).unwrap();
    let file = test.create(&cx, dir, b"file", &new(Kind::Regular)).unwrap();
    let cold = test.create(&cx, dir, b"cold", &new(Kind::Regular)).unwrap();
    let times = base::SetAttr { atime: Some(base::SetTime::At(1)), mtime: Some(base::SetTime::At(2)), ..Default::default() };
    test.set_attr(&cx, cold, &times).unwrap();
    assert!(test.known(file).unwrap().is_none());
    for (node, name, number) in [(dir, &b"made"[..], 5), (file, b"file", 6), (cold, b"cold", 7)] {
        let name = Some((if node == dir { root } else { dir }, name));
        for (number, is_clean) in [(number, false), (number + 10, false), (number + 10, true)] {
            test.written(&cx, node, &super::Written { stamp: stamp(number, 9), is_clean, name }).unwrap();
            let known = test.known(node).unwrap().unwrap();
            assert_eq!(
                (known.stamp.number, known.stamp.size, known.end, known.is_dirty()),
                (number, 9, if is_clean { 9 } else { 0 }, !is_clean)
            );
        }
        let mut text = [0; 255];
        let (parent, len) = test.named(node, &mut text).unwrap().unwrap();
        assert_eq!(Some((parent, &text[..len])), name);
    }
    assert!(test.known(dir).unwrap().unwrap().is_listed());
    assert_eq!((test.attr(&cx, file).unwrap().size, test.attr(&cx, cold).unwrap().atime), (0, 1), "here it is newer");
    assert_eq!(test.lookup(&cx, dir, b"file").unwrap().id, file.id);
    test.mark(&cx, file, bits::DIRTY, 0).unwrap();
    test.restamp(&cx, file, &Change { mode: 0, uid: 1, gid: 1, stamp: stamp(16, 77), before: None }).unwrap();
    assert_eq!(test.attr(&cx, file).unwrap().size, 0, "what is newer here stays");
    sound(test);
}

/// Goal: a node shows the number of its original, the same by every call; but what was made here, or lies on another device,
/// or has a number like those that are made here, shows one that no original shows. What was made here keeps it when it is
/// below, until another file takes its place. Without having been told to, an image shows its own.
#[test]
fn numbers() {
    let test = cache();
    let (cx, root) = (test.cx(), test.root_node());
    let dir = make(&test, root, b"dir", Kind::Directory, stamp(11, 4096));
    let file = make(&test, dir, b"file", Kind::Regular, stamp(12, 9));
    let own = [dir, file].map(|node| test.own_number(node.id));
    test.become_cache(&cx, &Identity::new(1, [7, 11], b"/srv/data").unwrap()).unwrap();
    let shown = |test: &TestFs, node: Node| {
        let (attr, mut out, mut listed) = (test.attr(&test.cx(), node).unwrap(), MaybeUninit::<Stat>::zeroed(), vec![]);
        let number = attr.ino;
        let hint = test.cachelet_number(test.see(&test.cx(), node).unwrap().cachelet);
        let is_fast = test.fstat_fast(Node { hint, ..node }, &mut out) == Fast::Done(());
        // Another `st_dev`, or access time, has only the slow path.
        assert_eq!(is_fast, test.other_device(node).is_none() && attr.atime == attr.mtime);
        // SAFETY: zeroed, and words alone.
        assert!(!is_fast || unsafe { out.assume_init() }.st_ino == number, "fast and slow");
        for within in [test.root_node(), dir] {
            test.readdir(&test.cx(), within, 0, &mut |entry| {
                listed.extend((entry.id == node.id).then_some(entry.ino));
                true
            })
            .unwrap();
        }
        assert!(!listed.is_empty() && listed.iter().all(|one| *one == number), "{listed:?} and {number}");
        number
    };
    assert_eq!([dir, file].map(|node| shown(&test, node)), own);
    test.show_originals().unwrap();
    assert_eq!([dir, file].map(|node| shown(&test, node)), [11, 12]);
    assert_eq!(test.node_by_number(own[1], (file.id >> 40) as u32).map(|node| node.id), Some(file.id));
    let elsewhere = make(&test, dir, b"elsewhere", Kind::Regular, Stamp { device: 8, ..stamp(12, 9) });
    let strange = make(&test, dir, b"strange", Kind::Regular, stamp(1 << 52 | 12, 9));
    let new = base::NewNode { kind: Kind::Regular, mode: 0o755, rdev: 0, target: b"" };
    let made = [b"made", b"cold"].map(|name| test.create(&cx, dir, name, &new).unwrap());
    let times = base::SetAttr { atime: Some(base::SetTime::At(1)), mtime: Some(base::SetTime::At(2)), ..Default::default() };
    test.set_attr(&cx, made[1], &times).unwrap();
    let others = [elsewhere, strange, made[0], made[1]];
    let as_own = others.map(|node| test.own_number(node.id) | 1 << 52);
    assert_eq!(others.map(|node| shown(&test, node)), as_own);
    assert_eq!(others.map(|node| test.other_device(node)), [Some(8), None, None, None]);
    for (node, number) in made.iter().zip(20..) {
        test.written(&cx, *node, &super::Written { stamp: stamp(number, 0), is_clean: true, name: None }).unwrap();
    }
    let test = test.again();
    test.show_originals().unwrap();
    assert_eq!(others.map(|node| shown(&test, node)), as_own, "and it is below");
    let other = Change { mode: 0o600, uid: 1, gid: 2, stamp: stamp(31, 1), before: None };
    test.restamp_as_another(&test.cx(), made[0], &other).unwrap();
    assert_eq!(shown(&test, made[0]), 31);
    test.unlink(&test.cx(), dir, b"file").unwrap();
    sound(test);
}

/// Goal: bytes below that a truncation has cut off do not come back when the file grows again.
#[test]
fn truncation_lowers_the_end() {
    let test = cache();
    let cx = test.cx();
    let file = make(&test, test.root_node(), b"file", Kind::Regular, stamp(2, 300_000));
    let size = |size| base::SetAttr { size: Some(size), size_checked: true, ..Default::default() };
    test.set_attr(&cx, file, &size(5_000)).unwrap();
    test.set_attr(&cx, file, &size(300_000)).unwrap();
    let known = test.known(file).unwrap().unwrap();
    assert_eq!((known.end, known.stamp.size), (5_000, 300_000));
    // Read before the truncation, offered after it.
    test.fetch(&cx, file, (0, 4096), (&known.stamp, 300_000), &mut |_, part| Ok(part.len)).unwrap();
    assert_eq!(test.seek(&cx, file, 0, false), Ok(0));
    sound(test);
}

/// Goal: nobody is inside while the gate is closed, who was is waited for, and who died inside is not; a gate that nobody
/// opens opens itself.
#[test]
fn the_gate() {
    let test = cache();
    let cx = test.cx();
    test.become_cache(&cx, &Identity::new(1, [7, 1], b"/srv/data").unwrap()).unwrap();
    let inside = test.begin_change(&cx).unwrap();
    assert!(test.close_changes(2_000_000).unwrap().is_none());
    drop(inside);
    let closed = test.close_changes(20_000_000).unwrap().unwrap();
    let begun = std::time::Instant::now();
    drop(test.begin_change(&cx).unwrap());
    assert!(begun.elapsed().as_millis() >= 10, "it was closed");
    assert!(!closed.open(), "it had opened itself");
    assert!(test.close_changes(1_000_000_000).unwrap().unwrap().open());
    test.dying(|cx| {
        core::mem::forget(test.begin_change(cx));
        true
    });
    assert!(test.close_changes(1_000_000_000).unwrap().unwrap().open());
    sound(test);
}
