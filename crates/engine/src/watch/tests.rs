//! What the kernel tells of mirrors, read as a program that watches reads it.

use super::events::Event;
use super::renaming::Renaming;
use super::*;
use crate::testing::TestFs;
use base::{NewNode, RenameMode};
use pm::sys::abi;
use std::ffi::CStr;
use std::string::String;
use std::vec::Vec;
use std::{format, fs, vec};

unsafe extern "C" {
    fn inotify_init1(flags: i32) -> i32;
    fn inotify_add_watch(fd: i32, path: *const core::ffi::c_char, mask: u32) -> i32;
    fn read(fd: i32, into: *mut u8, len: usize) -> isize;
}

const ALL: u32 = 0xfff;

/// A program's descriptor.
struct Watcher(i32);

impl Watcher {
    fn new() -> Watcher {
        // SAFETY: no pointers.
        Watcher(unsafe { inotify_init1(0o4000) })
    }

    fn add(&self, test: &TestFs, node: Node) -> i32 {
        let mut path = [0; 4096];
        let len = test.watch(&test.cx(), node, &mut path).unwrap();
        let path = CStr::from_bytes_with_nul(&path[..len]).unwrap();
        // SAFETY: a NUL-terminated path.
        unsafe { inotify_add_watch(self.0, path.as_ptr(), ALL) }
    }

    /// What was told since: watch, events, name.
    fn told(&self) -> Vec<(i32, u32, String)> {
        let (mut bytes, mut told) = (vec![0u8; 65536], Vec::new());
        // SAFETY: a buffer of that length.
        let len = unsafe { read(self.0, bytes.as_mut_ptr(), bytes.len()) };
        let mut left = &bytes[..len.max(0) as usize];
        while !left.is_empty() {
            let word = |at: usize| u32::from_le_bytes(left[at..at + 4].try_into().unwrap());
            let end = 16 + word(12) as usize;
            let name = left[16..end].split(|byte| *byte == 0).next().unwrap_or(b"");
            told.push((word(0) as i32, word(4), String::from_utf8_lossy(name).into_owned()));
            left = &left[end..];
        }
        told
    }
}

fn new(kind: Kind) -> NewNode<'static> {
    NewNode { kind, mode: 0o755, rdev: 0, target: b"" }
}

/// Makes something and tells of it.
fn make(test: &TestFs, dir: Node, name: &[u8], kind: Kind) -> Node {
    let (cx, what) = (test.cx(), Renaming::Made(kind == Kind::Directory));
    test.change_names(&cx, &[(dir, name)], what, || test.create(&cx, dir, name, &new(kind))).unwrap()
}

fn remove(test: &TestFs, dir: Node, name: &[u8]) {
    let cx = test.cx();
    test.change_names(&cx, &[(dir, name)], Renaming::Removed, || test.unlink(&cx, dir, name)).unwrap();
}

fn mirrors(test: &TestFs) -> usize {
    let list = fs::read_dir(test.image.directory()).unwrap().flatten();
    list.filter(|entry| entry.file_name().to_str().unwrap().contains(".w")).count()
}

/// Goal: names are told in the order of changes, those that were there before too; a node is told by itself and by
/// its name, a long one too; and when nobody watches any more all is as before.
#[test]
fn tells_and_ends() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    let long = [b'n'; 200];
    let old = test.create(&cx, root, &long, &new(Kind::Regular)).unwrap();
    assert!(!test.is_told() && !test.is_watched());
    let watcher = Watcher::new();
    let (whole, one) = (watcher.add(&test, root), watcher.add(&test, old));
    assert!(test.is_told() && test.is_watched() && !test.is_served() && mirrors(&test) == 1);
    make(&test, root, b"d", Kind::Directory);
    make(&test, root, b"f", Kind::Regular);
    remove(&test, root, b"f");
    let file = |name: &str| String::from(name);
    let expected = [
        (whole, abi::IN_CREATE | abi::IN_ISDIR, file("d")),
        (whole, abi::IN_CREATE, file("f")),
        (whole, abi::IN_DELETE, file("f")),
    ];
    assert_eq!(watcher.told(), expected);

    let id = test.open(&cx, old, abi::O_RDWR, 5).unwrap();
    test.description(id).parent.store(root.id, Relaxed);
    test.tell(&cx, old, Event::Modify);
    let name = String::from_utf8(long.to_vec()).unwrap();
    assert_eq!(watcher.told(), [(whole, abi::IN_MODIFY, name.clone()), (one, abi::IN_MODIFY, file(""))]);
    test.close(&cx, 5);
    let closed = [(whole, name), (one, file(""))]
        .map(|(wd, name)| [abi::IN_OPEN, abi::IN_CLOSE_WRITE].map(|event| (wd, event, name.clone())));
    assert_eq!(watcher.told(), closed.concat());

    let moved = || test.rename(&cx, root, &long, root, b"short", RenameMode::Replace);
    test.change_names(&cx, &[(root, &long), (root, b"short")], Renaming::Moved, moved).unwrap();
    let told: Vec<_> = watcher.told().into_iter().map(|(wd, event, _)| (wd, event)).collect();
    assert_eq!(told, [(whole, abi::IN_MOVED_FROM), (whole, abi::IN_MOVED_TO), (one, abi::IN_MOVE_SELF)]);
    remove(&test, root, b"short");
    let told: Vec<_> = watcher.told().into_iter().filter(|told| told.0 == one).map(|told| told.1).collect();
    assert_eq!(told, [abi::IN_ATTRIB, abi::IN_DELETE_SELF, abi::IN_IGNORED]);

    test.watcher_ends(test.own_process().unwrap());
    assert!(!test.is_told() && mirrors(&test) == 0);
    assert!(test.header().watched.iter().all(|word| word.load(Relaxed) == 0));
}

/// Goal: a name made or removed by who had begun before anybody watched is told, or shown, nevertheless.
#[test]
fn catches_up() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    test.create(&cx, root, b"old", &new(Kind::Regular)).unwrap();
    let watcher = Watcher::new();
    watcher.add(&test, root);
    test.create(&cx, root, b"new", &new(Kind::Directory)).unwrap();
    test.unlink(&cx, root, b"old").unwrap();
    for name in [b"new", b"old", b"new", b"old"] {
        test.catch_up_name(&cx, (root, name));
    }
    let told: Vec<_> = watcher.told().into_iter().map(|(_, event, name)| (event, name)).collect();
    let expected = [(abi::IN_CREATE | abi::IN_ISDIR, "new"), (abi::IN_DELETE, "old")];
    assert_eq!(told, expected.map(|(event, name)| (event, String::from(name))));
}

/// Goal: a name that somebody has left in a mirror, or has not put there, spoils no later event.
#[test]
fn what_the_killed_have_left() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    let watcher = Watcher::new();
    watcher.add(&test, root);
    // Killed before they had told.
    test.create(&cx, root, b"untold", &new(Kind::Regular)).unwrap();
    make(&test, root, b"gone", Kind::Regular);
    test.unlink(&cx, root, b"gone").unwrap();
    watcher.told();
    make(&test, root, b"gone", Kind::Directory);
    let moved = || test.rename(&cx, root, b"untold", root, b"told", RenameMode::Replace);
    test.change_names(&cx, &[(root, b"untold"), (root, b"told")], Renaming::Moved, moved).unwrap();
    let told: Vec<_> = watcher.told().into_iter().map(|(_, event, name)| format!("{event:x} {name}")).collect();
    assert_eq!(told, ["200 gone", "40000100 gone", "100 untold", "40 untold", "80 told"]);
}

/// Goal: what another one has laid where mirrors go is neither used nor removed, and what is no change there is none here.
#[test]
fn what_others_have_laid() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    let place = format!("{}.w", String::from_utf8(test.segment_path().to_vec()).unwrap());
    fs::create_dir(format!("{}/elsewhere", test.image.directory())).unwrap();
    std::os::unix::fs::symlink("elsewhere", &place).unwrap();
    let mut path = [0; 4096];
    assert_eq!(test.watch(&cx, root, &mut path), Err(Errno::EOPNOTSUPP.into()));
    make(&test, root, b"a", Kind::Regular);
    test.remove_mirrors();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    fs::remove_file(&place).unwrap();
    let watcher = Watcher::new();
    watcher.add(&test, root);
    let missing = test.change_names(&cx, &[(root, b"no")], Renaming::Removed, || test.unlink(&cx, root, b"no"));
    assert_eq!(missing, Err(Errno::ENOENT.into()));
    assert_eq!(watcher.told(), []);
}

/// Goal: as long as another process watches, or a child of one, nothing is taken away.
#[test]
fn the_last_one_ends_it() {
    let test = TestFs::new(64 << 20);
    let watcher = Watcher::new();
    watcher.add(&test, test.root_node());
    let own = test.own_process().unwrap();
    let token = openfiles::Handover::fork_prepare(test.fs, &test.cx()).unwrap();
    test.watcher_ends(own);
    assert!(test.is_watched() && mirrors(&test) == 1);
    openfiles::Handover::fork_failed(test.fs, &test.cx(), token);
    assert!(!test.is_watched() && mirrors(&test) == 0);
}
