//! The golden image of the version before, upgraded, and stopped at each step of it.

use super::*;
use crate::check::golden::restore;
use crate::testing::{TestFs, TestImage};
use crate::{Cx, Fs, Kind, Node};
use base::{Cred, Thread};
use format::layout::ROOT;
use format::{VERSION, VERSION_OLD};
use pm::UserSlice;
use std::boxed::Box;
use std::format;
use std::fs::File as StdFile;
use std::os::unix::fs::FileExt;
use std::string::String;

const KEEP: Options = Options { renumber: false };
const RENUMBER: Options = Options { renumber: true };

fn upgraded(image: &TestImage, options: Options) -> Result<Done, UpgradeError> {
    run(&image.path(), options, &mut |_| {})
}

/// All that a program can see of an image, a line a name, and its inode numbers; no byte of the file is changed.
fn tree(image: &TestImage) -> (Vec<String>, Vec<u64>, u32) {
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let fs = Fs::attach_copy_at(Box::leak(Box::new_uninit()), &cx, &image.path(), 0, false).unwrap();
    let (mut lines, mut numbers) = (Vec::new(), Vec::new());
    list(fs, &cx, fs.root_node(), "", &mut lines, &mut numbers);
    let version = fs.format_version();
    fs.end_session(&cx);
    (lines, numbers, version)
}

fn list(fs: &Fs, cx: &Cx, dir: Node, path: &str, lines: &mut Vec<String>, numbers: &mut Vec<u64>) {
    let mut names = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    })
    .unwrap();
    for (name, ino) in names.into_iter().filter(|(name, _)| !name.starts_with(b".")) {
        let node = fs.lookup(cx, dir, &name).unwrap();
        let attr = fs.attr(cx, node).unwrap();
        assert_eq!((ino, fs.node_by_number(ino, (node.id >> 40) as u32).map(|node| node.id)), (attr.ino, Some(node.id)));
        let mut contents = [0u8; 8192];
        let room = UserSlice::from_mut(&mut contents);
        let len = match attr.kind {
            Kind::Regular => fs.read(cx, node, 0, &[room]).unwrap(),
            Kind::Symlink => fs.readlink(cx, node, room).unwrap(),
            _ => 0,
        };
        let mut attributes = [0u8; 512];
        let listed = fs.list_xattr(cx, node, UserSlice::from_mut(&mut attributes)).unwrap();
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        let sum = contents[..len].iter().fold(len as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        lines.push(format!("{path} {:?} {sum:x} {:?}", base::Attr { ino: 0, ..attr }, &attributes[..listed]));
        numbers.push(ino);
        if attr.kind == Kind::Directory {
            list(fs, cx, node, &path, lines, numbers);
        }
    }
}

/// Goal: whatever stops an upgrade, all files are there with the numbers they had, and the next one finishes it.
/// Method: the image before the first store, after each, and, where power fails before what was stored of a copy is
/// durable, with one line of it and not the other.
#[test]
fn stopped_at_each_step() {
    let image = restore(VERSION_OLD);
    let before = tree(&image);
    assert_eq!((before.0.len() > 50, before.2), (true, VERSION_OLD));
    let file = StdFile::options().read(true).write(true).open(image.file()).unwrap();
    let mut old = [0u8; ROOT as usize];
    file.read_exact_at(&mut old, 0).unwrap();

    let (superblock, _) = attach::superblock(&File::open(&image.path(), pm::sys::abi::O_RDONLY, 0).unwrap()).unwrap();
    let steps: Vec<Step> = steps(&superblock.upgraded(false)).collect();
    let mut now = old;
    let mut states = Vec::from([now]);
    let mut durable = now;
    for step in &steps {
        match *step {
            Step::Store { at, value } => now[at as usize..][..8].copy_from_slice(&value.to_le_bytes()),
            Step::Persist { at } => {
                for line in [at as usize, at as usize + LINE as usize] {
                    let mut torn = durable;
                    torn[line..][..LINE as usize].copy_from_slice(&now[line..][..LINE as usize]);
                    states.push(torn);
                }
                durable = now;
            }
        }
        states.push(now);
    }
    assert_eq!((steps.len(), states.len()), (2 * 17, 1 + 2 * 17 + 4));

    let mut versions = Vec::new();
    for state in &states {
        file.write_all_at(state, 0).unwrap();
        let between = tree(&image);
        assert_eq!((&between.0, &between.1), (&before.0, &before.1));
        versions.push(between.2);
        let done = upgraded(&image, KEEP).unwrap();
        assert_eq!((done.to, done.changed, done.short_numbers), (VERSION, *state != now, false));
        let after = tree(&image);
        assert_eq!((&after.0, &after.1, after.2), (&before.0, &before.1, VERSION));
        assert_eq!(check::run(&image.path(), &mut |_| {}).unwrap().issues, []);
    }
    assert_eq!((versions[0], versions.last()), (VERSION_OLD, Some(&VERSION)));
}

/// Goal: what an upgrade has begun, a repair takes back; whichever was last, the image is whole.
#[test]
fn begun_and_taken_back() {
    let image = restore(VERSION_OLD);
    let before = tree(&image);
    let file = StdFile::options().read(true).write(true).open(image.file()).unwrap();
    let (superblock, _) = attach::superblock(&File::open(&image.path(), pm::sys::abi::O_RDONLY, 0).unwrap()).unwrap();
    file.write_all_at(superblock.upgraded(false).as_bytes(), SUPERBLOCK_COPY).unwrap();
    let kinds: Vec<IssueKind> = check::run(&image.path(), &mut |_| {}).unwrap().issues.iter().map(|issue| issue.kind).collect();
    assert_eq!(kinds, [IssueKind::Superblock]);
    repair::Repair::plan(&image.path(), &mut |_| {}).unwrap().apply().unwrap();
    assert_eq!(check::run(&image.path(), &mut |_| {}).unwrap().issues, []);
    let after = tree(&image);
    assert_eq!((after.1, after.2), (before.1, VERSION_OLD));
}

/// Goal: numbers that fit 32 bits are had for the asking, at once or later, and stay.
#[test]
fn new_numbers() {
    let image = restore(VERSION_OLD);
    let before = tree(&image);
    let short = |numbers: &[u64]| numbers.iter().all(|ino| *ino < 1 << 32);
    assert!(!short(&before.1));
    assert!(!upgraded(&image, KEEP).unwrap().short_numbers);
    let done = upgraded(&image, RENUMBER).unwrap();
    assert_eq!((done.from, done.changed, done.short_numbers), (VERSION, true, true));
    let after = tree(&image);
    assert!(short(&after.1) && after.0 == before.0);
    assert!(!upgraded(&image, KEEP).unwrap().changed && !upgraded(&image, RENUMBER).unwrap().changed);
    assert_eq!(tree(&image), after);
}

/// Goal: an image in use, one that is damaged and what is no image are left alone, and the message says so.
#[test]
fn refused() {
    let image = restore(VERSION_OLD);
    let thread = Thread::new();
    let fs = image.attach(&thread).unwrap();
    assert_eq!(upgraded(&image, KEEP), Err(UpgradeError::Open(RepairError::InUse)));
    fs.end_session(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    let file = StdFile::options().read(true).write(true).open(image.file()).unwrap();
    let at = format::layout::LANE_AREA + 5 * format::layout::LANE_BYTES + format::lane::word::RESERVED;
    file.write_all_at(&[1], at).unwrap();
    let error = upgraded(&image, KEEP).unwrap_err();
    assert!(matches!(error, UpgradeError::Damaged(1, Issue { kind: IssueKind::Record, .. })), "{error}");
    assert!(format!("{error}").contains("check --repair"));
    file.write_all_at(&[0; 4096], 0).unwrap();
    file.write_all_at(&[0; 4096], SUPERBLOCK_COPY).unwrap();
    assert_eq!(upgraded(&image, KEEP), Err(AttachError::NotAnImage.into()));
}

/// Goal: an image with something that this program does not know is refused by all, and named.
#[test]
fn unknown_features() {
    let test = TestFs::new(16 << 20);
    test.fs.detach(&test.cx());
    let file = StdFile::options().read(true).write(true).open(test.image.file()).unwrap();
    for at in [SUPERBLOCK_COPY, 0] {
        let (mut superblock, _) =
            attach::superblock(&File::open(&test.image.path(), pm::sys::abi::O_RDONLY, 0).unwrap()).unwrap();
        superblock.features = format::Features::RETURNED.0 | 1 << 40;
        file.write_all_at(superblock.upgraded(false).as_bytes(), at).unwrap();
    }
    let features = format::Features(format::Features::RETURNED.0 | 1 << 40);
    let refused = AttachError::Features(features);
    assert_eq!(test.image.attach(&Thread::new()).map(drop), Err(refused));
    assert_eq!(check::run(&test.image.path(), &mut |_| {}).map(drop), Err(refused));
    assert_eq!(upgraded(&test.image, KEEP), Err(refused.into()));
    let text = format!("{refused}");
    assert!(text.contains("the image has returned space, feature 0x10000000000, which"), "{text}");
}
