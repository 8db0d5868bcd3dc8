//! Names in an image that are paths: nobody gets them.

use crate::check::tests::{at, edentry_of, new, node, populated};
use crate::testing::TestFs;
use base::{Cx, Error, Kind, Node};
use core::sync::atomic::Ordering::Relaxed;
use std::string::String;
use std::vec::Vec;

/// Ways by which a name comes out of an image, each with what it does for a directory `victim` below the root.
type Way = fn(&TestFs, &Cx, Node) -> Result<(), Error>;

const WAYS: [(&str, Way); 4] = [
    ("readdir", |t, cx, _| t.readdir(cx, t.root_node(), 0, &mut |_| true)),
    ("readdir from a cookie", |t, cx, _| {
        let mut cookie = 0;
        t.readdir(cx, t.root_node(), 0, &mut |entry| {
            cookie = entry.next;
            false
        })?;
        t.readdir(cx, t.root_node(), cookie, &mut |_| true)
    }),
    ("name in the parent", |t, cx, victim| t.name_of(cx, victim, &mut [0; 255]).map(drop)),
    ("path", |t, _, victim| t.path_of(victim, t.root_node(), &mut [0; 4096]).map(drop)),
];

/// Goal: each way refuses each kind of name that is none, with an error, and gives every other. Method: the words of the
/// name are overwritten in a clean image.
#[test]
fn names_that_are_paths_are_refused() {
    for (bytes, is_name) in [(*b"victim\0\0", true), (*b"vi/tim\0\0", false), (*b"/ictim\0\0", false), (*b"vi\0tim\0\0", false)] {
        for (way, ask) in WAYS {
            let test = populated();
            let cx = test.cx();
            test.create(&cx, test.root_node(), b"victim", &new(Kind::Directory)).unwrap();
            let victim = node(&test, b"victim");
            let edentry = edentry_of(&test, b"victim");
            at(&test, edentry + format::edentry::NAME).store(u64::from_le_bytes(bytes), Relaxed);
            assert_eq!(ask(&test, &cx, victim).is_ok(), is_name, "{way}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// Goal: `.` and `..`, which are shorter than any name that could be patched in place, are refused too.
#[test]
fn dots_are_refused() {
    for (name, dots) in [(&b"v"[..], b'.'), (b"vv", b'.')] {
        let test = populated();
        let cx = test.cx();
        test.create(&cx, test.root_node(), name, &new(Kind::Directory)).unwrap();
        let word = name.iter().enumerate().fold(0, |word, (index, _)| word | u64::from(dots) << (index * 8));
        at(&test, edentry_of(&test, name) + format::edentry::NAME).store(word, Relaxed);
        assert!(test.readdir(&cx, test.root_node(), 0, &mut |_| true).is_err());
    }
}

/// Goal: no reader is left that takes the bytes as they are, but those that check, repair, show or hash them.
#[test]
fn readers_of_raw_names_are_known() {
    const KNOWN: [&str; 4] = ["check/", "repair/", "dump.rs", "index/split.rs"];
    fn sources(at: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&top, &mut files);
    for file in files {
        let short = file.strip_prefix(&top).unwrap().to_str().unwrap();
        let is_known = KNOWN.iter().any(|known| short.starts_with(known)) || short == "dir/tests.rs";
        let text = std::fs::read_to_string(&file).unwrap();
        let is_reader = text.contains("NameBuffer") && text.contains(".raw(");
        assert!(is_known || !is_reader, "{short} takes a name from an image without looking at it");
    }
}
