//! The golden images, one a version: made once, opened by every later version of the program.
//!
//! `crates/format/golden/v<version>.hex` holds the lines that are not zero
//! (offset, 64 bytes), `v<version>.dump` what the dump says of it. A change of
//! the format needs a new version and new files (`make_golden`), and the old
//! ones stay: they are used as they are, or upgraded (`crate::upgrade`).

use super::run;
use crate::dump;
use crate::inspect::Inspected;
use crate::testing::{TestFs, TestImage};
use crate::{Cx, Fallocate, Kind, NewNode, Node, SetAttr, SetTime};
use format::layout::{LANE_AREA, LINE, VOLATILE};
use format::{VERSION, VERSION_OLD};
use pm::UserSlice;
use std::format;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::string::String;
use std::vec::Vec;

const LIMIT: u64 = 16 << 20;

fn golden(version: u32, extension: &str) -> String {
    format!("{}/../format/golden/v{version}.{extension}", env!("CARGO_MANIFEST_DIR"))
}

/// A tree with one of each thing that the format knows.
fn populate(test: &TestFs, cx: &Cx) {
    let make = |dir: Node, name: &[u8], kind, mode, rdev, target: &[u8]| {
        test.create(cx, dir, name, &NewNode { kind, mode, rdev, target }).unwrap()
    };
    let write = |node: Node, at: u64, text: &[u8]| {
        test.write(cx, node, Some(at), &[UserSlice::from_ref(text)]).unwrap();
    };
    let root = test.root_node();
    let dir = make(root, b"directory", Kind::Directory, 0o750, 0, b"");
    let deep = make(dir, b"deeper", Kind::Directory, 0o1777, 0, b"");
    let file = make(dir, b"file", Kind::Regular, 0o644, 0, b"");
    write(file, 0, b"The quick brown fox jumps over the lazy dog.\n");
    test.link(cx, file, deep, b"another name of the file").unwrap();
    let holes = make(root, b"holes", Kind::Regular, 0o600, 0, b"");
    for i in 0..6 {
        write(holes, i * 40_960 + 17, b"data between holes");
    }
    let ahead = make(root, b"allocated", Kind::Regular, 0o644, 0, b"");
    test.fallocate(cx, ahead, Fallocate::KeepSize, 0, 10_000).unwrap();
    make(root, b"short symlink", Kind::Symlink, 0o777, 0, b"directory/file");
    make(root, b"long symlink", Kind::Symlink, 0o777, 0, &[b'x'; 700]);
    make(root, b"fifo", Kind::Fifo, 0o622, 0, b"");
    make(root, b"device", Kind::CharDevice, 0o666, 0x103, b"");
    make(root, b"socket", Kind::Socket, 0o755, 0, b"");
    make(root, &[b'n'; 255], Kind::Regular, 0o400, 0, b"");
    test.set_xattr(cx, file, b"user.colour", UserSlice::from_ref(b"green"), 0).unwrap();
    test.set_xattr(cx, dir, b"user.of a directory", UserSlice::from_ref(b"yes"), 0).unwrap();
    let times =
        SetAttr { atime: Some(SetTime::At(1)), mtime: Some(SetTime::At(1_234_567_890_123_456_789)), ..Default::default() };
    test.set_attr(cx, holes, &times).unwrap();
    test.set_attr(cx, ahead, &SetAttr { uid: Some(1000), gid: Some(100), mode: Some(0o4755), ..Default::default() }).unwrap();
    // Enough names to fill buckets, and some that come and go.
    let many = make(root, b"many", Kind::Directory, 0o755, 0, b"");
    for i in 0..60 {
        make(many, format!("name {i}").as_bytes(), Kind::Regular, 0o644, 0, b"");
    }
    for i in (0..60).step_by(3) {
        test.unlink(cx, many, format!("name {i}").as_bytes()).unwrap();
    }
    test.rename(cx, many, b"name 1", deep, b"moved", crate::RenameMode::Replace).unwrap();
    // An inode without a name.
    let orphan = make(root, b"open", Kind::Regular, 0o644, 0, b"");
    test.open(cx, orphan, 2, 3).unwrap();
    test.unlink(cx, root, b"open").unwrap();
}

/// Makes the golden files anew. To be run by hand, after the version was raised:
/// `cargo test -p bypath-engine make_golden -- --ignored`.
#[test]
#[ignore = "makes the golden image anew"]
fn make_golden() {
    let test = TestFs::new(LIMIT);
    populate(&test, &test.cx());
    let bytes = std::fs::read(test.image.file()).unwrap();
    let mut text = String::new();
    for (i, line) in bytes.chunks(LINE as usize).enumerate() {
        let at = i as u64 * LINE;
        if (VOLATILE..LANE_AREA).contains(&at) || line.iter().all(|byte| *byte == 0) {
            continue;
        }
        text += &format!("{at:08x} ");
        for byte in line {
            text += &format!("{byte:02x}");
        }
        text += "\n";
    }
    std::fs::write(golden(VERSION, "hex"), text).unwrap();
    let image = restore(VERSION);
    std::fs::write(golden(VERSION, "dump"), dumped(&image)).unwrap();
}

/// The golden image of a version, as a file.
pub(crate) fn restore(version: u32) -> TestImage {
    let image = TestImage::new(LIMIT);
    std::fs::remove_file(image.file()).unwrap();
    let file = File::create(image.file()).unwrap();
    file.set_len(LIMIT).unwrap();
    for line in std::fs::read_to_string(golden(version, "hex")).unwrap().lines() {
        let (at, hex) = line.split_once(' ').unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        file.write_all_at(&bytes, u64::from_str_radix(at, 16).unwrap()).unwrap();
    }
    image
}

fn dumped(image: &TestImage) -> String {
    let mut text = String::new();
    let options = dump::Options { tree: true, volatile: false };
    dump::print(&Inspected::open(&image.path()).unwrap(), &options, &mut text).unwrap();
    text
}

/// Goal: today's program reads yesterday's images. Method: each golden image is
/// clean, dumps as it did, and can be attached and used.
#[test]
fn golden_images() {
    for version in [VERSION_OLD, VERSION] {
        is_read(version);
    }
}

fn is_read(version: u32) {
    let image = restore(version);
    let report = run(&image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
    assert_eq!((report.files, report.directories, report.orphans), (54, 4, 1));
    let dump = std::fs::read_to_string(golden(version, "dump")).unwrap();
    assert!(dumped(&image) == dump, "the dump of the golden image of version {version} has changed");

    let test = TestFs::from_image(image).unwrap();
    let cx = test.cx();
    assert_eq!((test.format_version(), test.has_short_numbers()), (version, version == VERSION));
    let dir = test.lookup(&cx, test.root_node(), b"directory").unwrap();
    let file = test.lookup(&cx, dir, b"file").unwrap();
    let mut text = [0u8; 64];
    let len = test.read(&cx, file, 0, &[UserSlice::from_mut(&mut text)]).unwrap();
    assert_eq!(&text[..len], b"The quick brown fox jumps over the lazy dog.\n");
    test.unlink(&cx, dir, b"file").unwrap();
    test.create(&cx, dir, b"new", &NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" }).unwrap();
    let report = run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
    // Attaching has freed the orphan.
    assert_eq!((report.files, report.orphans), (54, 0));
}
