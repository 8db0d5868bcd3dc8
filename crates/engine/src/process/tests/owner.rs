//! Which file is the segment of an image, and which is not, whatever the image and the directory say.

use super::*;
use crate::process::{Options, machine};
use core::mem::offset_of;
use format::layout::{ROOT, VOLATILE};
use format::{Root, Volatile};
use std::boxed::Box;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::vec::Vec;

const NOBODY: u32 = 65534;

fn attach(path: &str, directory: &str, thread: &Thread) -> &'static crate::Fs {
    let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread };
    let options = Options { segment_dir: Some(directory.as_bytes()), ..Default::default() };
    crate::Fs::attach_at(Box::leak(Box::new_uninit()), &cx, format!("{path}\0").as_bytes(), &options).unwrap()
}

fn segment_of(fs: &crate::Fs) -> String {
    String::from_utf8(fs.segment_path().to_vec()).unwrap()
}

fn leave(fs: &crate::Fs, thread: &Thread) {
    fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread });
}

fn set_mode(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn is_root() -> bool {
    pm::file::own_user() == 0
}

fn make_fifo(path: &str) {
    assert!(std::process::Command::new("mkfifo").args(["-m", "666", path]).status().unwrap().success());
}

/// Goal: an image that names the segment of another one is not joined to it, and does not take it away. Method: token,
/// inode number and generations of a victim that is in use are written into an image of the same owner.
#[test]
fn another_image_is_not_believed() {
    let victim = TestFs::new(16 << 20);
    let seen = victim.create(&victim.cx(), victim.root_node(), b"secret", &FILE).unwrap();
    let evil = TestImage::new(16 << 20);
    let thread = Thread::new();
    leave(attach(&evil.file(), victim.image.directory(), &thread), &thread);

    let file = std::fs::File::options().read(true).write(true).open(evil.file()).unwrap();
    let from = std::fs::File::open(victim.image.file()).unwrap();
    let mut word = [0; 8];
    for at in [
        VOLATILE + offset_of!(Volatile, token) as u64,
        VOLATILE + offset_of!(Volatile, generation) as u64,
        VOLATILE + offset_of!(Volatile, segment) as u64,
        ROOT + offset_of!(Root, generation) as u64,
    ] {
        from.read_exact_at(&mut word, at).unwrap();
        file.write_all_at(&word, at).unwrap();
    }
    let fs = attach(&evil.file(), victim.image.directory(), &thread);
    assert_ne!(segment_of(fs), segment_of(&victim));
    assert_eq!(fs.users().count(), 1);
    fs.end_session(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });

    // The victim's is where it was, and joined as ever.
    let second = victim.image.attach(&thread).unwrap();
    assert_eq!((second.segment_path(), second.users().count()), (victim.segment_path(), 2));
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    assert_eq!(second.lookup(&cx, second.root_node(), b"secret").unwrap(), seen);
    second.detach(&cx);
}

/// Goal: what lies at the segment's name and is not the segment is neither opened for good, nor waited for, nor taken
/// away. Method: a FIFO, a symlink to the segment, a copy of it, another name of it, and, for root, another owner's.
#[test]
fn what_lies_at_the_name() {
    let image = TestImage::new(16 << 20);
    set_mode(&image.file(), 0o600);
    let thread = Thread::new();
    let aside = format!("{}/aside", image.directory());
    let lay = |what: u32, name: &str| match what {
        0 => make_fifo(name),
        1 => std::os::unix::fs::symlink(&aside, name).unwrap(),
        2 => drop(std::fs::copy(&aside, name).unwrap()),
        3 => std::fs::hard_link(&aside, name).unwrap(),
        _ => {
            std::fs::rename(&aside, name).unwrap();
            chown(name, Some(NOBODY), None).unwrap();
        }
    };
    for what in 0..4 + u32::from(is_root()) {
        let fs = attach(&image.file(), image.directory(), &thread);
        let name = segment_of(fs);
        leave(fs, &thread);
        std::fs::rename(&name, &aside).unwrap();
        lay(what, &name);
        let fs = attach(&image.file(), image.directory(), &thread);
        assert_ne!(segment_of(fs), name, "{what}");
        // A copy is ours, and of no image: it may be swept.
        assert!(what == 2 || std::fs::symlink_metadata(&name).is_ok(), "{what}");
        fs.end_session(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        let _ = (std::fs::remove_file(&name), std::fs::remove_file(&aside));
    }
}

/// Goal: who else may write the image may have made its segment, and nobody else. Method: as root, the segment is
/// given to another user; the image's mode says whether he may.
#[test]
fn makers_who_may_write_the_image() {
    if !is_root() {
        return;
    }
    let image = TestImage::new(16 << 20);
    let thread = Thread::new();
    let joins = |image_mode: u32, group: u32| {
        set_mode(&image.file(), image_mode);
        let fs = attach(&image.file(), image.directory(), &thread);
        let name = segment_of(fs);
        leave(fs, &thread);
        chown(&name, Some(NOBODY), Some(group)).unwrap();
        let fs = attach(&image.file(), image.directory(), &thread);
        let joined = segment_of(fs) == name;
        fs.end_session(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        let _ = std::fs::remove_file(&name);
        joined
    };
    let own = std::fs::metadata(image.file()).unwrap().gid();
    assert!(joins(0o666, own) && joins(0o660, own));
    assert!(joins(0o666, NOBODY));
    assert!(!joins(0o660, NOBODY) && !joins(0o600, own) && !joins(0o644, own));
}

/// Goal: the segment is never wider than the image, also when the image's mode changes; a group that is not the
/// image's has what others have.
#[test]
fn no_wider_than_the_image() {
    let image = TestImage::new(16 << 20);
    let thread = Thread::new();
    let mut name = String::new();
    for wanted in [0o660, 0o600, 0o644, 0o666] {
        set_mode(&image.file(), wanted);
        let fs = attach(&image.file(), image.directory(), &thread);
        assert!(name.is_empty() || name == segment_of(fs));
        name = segment_of(fs);
        assert_eq!(mode(&name), wanted);
        leave(fs, &thread);
    }
    if is_root() {
        chown(&name, None, Some(NOBODY)).unwrap();
        set_mode(&image.file(), 0o664);
        let fs = attach(&image.file(), image.directory(), &thread);
        assert_eq!((segment_of(fs), mode(&name)), (name.clone(), 0o644));
        leave(fs, &thread);
    }
}

/// Goal: a copy of an image in use has a segment of its own, and both go on. Method: `cp`, as the file stands.
#[test]
fn a_copy_has_its_own() {
    let test = TestFs::new(16 << 20);
    let copy = format!("{}/copy", test.image.directory());
    std::fs::copy(test.image.file(), &copy).unwrap();
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let other = attach(&copy, test.image.directory(), &thread);
    assert_ne!(other.segment_path(), test.segment_path());
    other.create(&cx, other.root_node(), b"there", &FILE).unwrap();
    test.create(&test.cx(), test.root_node(), b"here", &FILE).unwrap();
    assert!(test.lookup(&test.cx(), test.root_node(), b"there").is_err());
    assert!(other.lookup(&cx, other.root_node(), b"here").is_err());
    // Under the same inode number on another device it would be so too; nothing says that it is another view.
    assert_eq!(other.users().count(), 1);
    other.end_session(&cx);
    test.detach(&test.cx());
    for path in [test.image.file(), copy] {
        assert_eq!(crate::check::run(format!("{path}\0").as_bytes(), &mut |_| {}).unwrap().issues, []);
    }
}

/// Goal: whoever makes a segment opens nothing that others have laid in the directory, and takes nothing of theirs
/// away. Method: a FIFO with a segment's name, and one of another owner's that says a FIFO was its image.
#[test]
fn others_leavings_are_not_opened() {
    let test = TestFs::new(16 << 20);
    let directory = test.image.directory();
    let fifo = format!("{directory}/bypath-0123456789abcdef");
    let image = format!("{directory}/image-fifo");
    make_fifo(&fifo);
    make_fifo(&image);
    let fake = format!("{directory}/bypath-00000000000000aa");
    let mut bytes = std::fs::read(segment_of(&test)).unwrap();
    bytes[2048..2048 + image.len() + 1].copy_from_slice(format!("{image}\0").as_bytes());
    std::fs::write(&fake, &bytes[..1 << 20]).unwrap();
    if is_root() {
        chown(&fake, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let shared = format!("{directory}/bypath-00000000000000ab");
    std::fs::write(&shared, &bytes[..1 << 20]).unwrap();
    set_mode(&shared, 0o666);

    let second = TestImage::new(16 << 20);
    let thread = Thread::new();
    let fs = attach(&second.file(), directory, &thread);
    assert!(std::fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(std::fs::metadata(&fake).is_ok(), is_root());
    // Its owner is ours, but others may have written what it says.
    assert!(std::fs::metadata(&shared).is_ok());
    leave(fs, &thread);
}

/// Goal: at a local file, a boot id that is not ours is a restart; and `take_over` does nothing where nothing is
/// refused. Method: the boot id in the file, of an image in use and of one that was left with its mutexes held.
#[test]
fn another_boot_id() {
    let test = TestFs::new(16 << 20);
    machine::take_over(&test.image.path()).unwrap();
    let thread = Thread::new();
    let second = test.image.attach(&thread).unwrap();
    assert_eq!(second.users().count(), 2);
    leave(second, &thread);

    let there: Vec<u8> = std::fs::read(test.image.file()).unwrap();
    test.detach(&test.cx());
    let file = std::fs::File::options().write(true).open(test.image.file()).unwrap();
    file.write_all_at(&there, 0).unwrap();
    file.write_all_at(&[7; 16], VOLATILE).unwrap();
    let (host, elsewhere) = machine::look(&test.image.path()).unwrap();
    assert_eq!((host.unwrap().boot, elsewhere), ([0x0707_0707_0707_0707; 2], false));
    let again = test.image.attach(&thread).unwrap();
    assert_eq!(again.users().count(), 1);
    assert!(machine::look(&test.image.path()).unwrap().0.is_some_and(|host| host == again.host()));
    leave(again, &thread);
}
