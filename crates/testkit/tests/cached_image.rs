//! Goal: an image through the cached way keeps what it says it keeps, and forgets
//! it at the session's own changes, whichever program makes them.
//! Method: two programs are two backends on the same file of kept things; changes
//! by nobody of the session are made by the engine itself, past both.

use base::{Cred, Cx, Errno, Error, Kind, NewNode, Node, RenameMode, SetAttr, Thread};
use bypath_testkit::image;
use vfs::Backend;
use vfs::native::Native;
use vfs::native::cached::{CachedNative, Way};
use vfs::native::kept::Kept;

const FOR_EVER: u64 = u64::MAX;

/// In turn: segments lie where this process says, and it says so once.
#[test]
fn cached_image() {
    let _segments = image::Segments::new();
    for part in [what_is_kept, age, several_programs, death_in_a_change, changes_that_meet] {
        part();
    }
}

struct Stage {
    native: &'static Native,
    kept: std::path::PathBuf,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let path = image::fresh_path(name);
        image::make(&path, 64 << 20);
        let native = image::attach(&path);
        let _ = std::fs::remove_file(&path);
        let kept = image::fresh_path(&format!("{name}-kept"));
        std::fs::File::create(&kept).and_then(|file| file.set_len(Kept::bytes())).expect("a file");
        Stage { native, kept }
    }

    fn kept(&self, age_ns: u64) -> Kept {
        Kept::open(&[self.kept.as_os_str().as_encoded_bytes(), b"\0"].concat(), age_ns).expect("what is kept")
    }

    fn program(&self, way: Way, age_ns: u64) -> CachedNative {
        CachedNative::new(*self.native, self.kept(age_ns), way)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kept);
    }
}

fn root<T>(work: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    work(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

fn make(backend: &dyn Backend, cx: &Cx, name: &[u8]) -> Node {
    let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
    backend.create(cx, backend.root(), name, &new).expect("a file")
}

fn mode(backend: &dyn Backend, cx: &Cx, node: Node) -> u16 {
    backend.attr(cx, node).expect("attributes").mode
}

fn chmod(backend: &dyn Backend, cx: &Cx, node: Node, mode: u16) {
    backend.set_attr(cx, node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("chmod");
}

fn is_absent(backend: &dyn Backend, cx: &Cx, name: &[u8]) -> bool {
    match backend.lookup(cx, backend.root(), name) {
        Ok(_) => false,
        Err(Error::Posix(Errno::ENOENT)) => true,
        Err(other) => panic!("{other:?}"),
    }
}

/// What the engine does past the cache is not seen while things are kept: so they
/// are. Byvfs keeps no names.
fn what_is_kept() {
    let stage = Stage::new("what-is-kept");
    root(|cx| {
        for way in [Way::Conventional, Way::Byvfs] {
            let program = stage.program(way, FOR_EVER);
            let file = make(&program, cx, b"file");
            assert!(!is_absent(&program, cx, b"file") && is_absent(&program, cx, b"none"));
            assert_eq!(mode(&program, cx, file), 0o644);
            chmod(stage.native, cx, file, 0o600);
            assert_eq!(mode(&program, cx, file), 0o644, "{way:?}: attributes are kept");
            make(stage.native, cx, b"none");
            assert_eq!(is_absent(&program, cx, b"none"), way == Way::Conventional, "{way:?}: so is what is not there");
            stage.native.unlink(cx, program.root(), b"file").expect("unlink");
            assert_eq!(is_absent(&program, cx, b"file"), way == Way::Byvfs, "{way:?}: and what is there");
            stage.native.unlink(cx, program.root(), b"none").expect("unlink");
            // Through the program, so that the next one knows.
            let forgotten = program.unlink(cx, program.root(), b"file").and(program.unlink(cx, program.root(), b"none"));
            assert!(forgotten.is_err());
        }
    });
}

/// What has reached its age is asked for again.
fn age() {
    let stage = Stage::new("age");
    root(|cx| {
        let program = stage.program(Way::Conventional, 0);
        let file = make(&program, cx, b"file");
        assert_eq!((is_absent(&program, cx, b"file"), mode(&program, cx, file)), (false, 0o644));
        chmod(stage.native, cx, file, 0o600);
        stage.native.unlink(cx, program.root(), b"file").expect("unlink");
        assert!(is_absent(&program, cx, b"file"));
    });
}

/// Changes by one program of the session are seen by the others at once.
fn several_programs() {
    let stage = Stage::new("several-programs");
    root(|cx| {
        let (one, other) = (stage.program(Way::Conventional, FOR_EVER), stage.program(Way::Conventional, FOR_EVER));
        assert!(is_absent(&other, cx, b"file") && is_absent(&other, cx, b"moved"));
        let file = make(&one, cx, b"file");
        assert!(!is_absent(&other, cx, b"file"));
        assert_eq!(mode(&other, cx, file), 0o644);
        chmod(&one, cx, file, 0o600);
        assert_eq!(mode(&other, cx, file), 0o600);
        one.link(cx, file, one.root(), b"second").expect("link");
        assert_eq!(other.attr(cx, file).expect("attributes").nlink, 2);
        one.rename(cx, one.root(), b"file", one.root(), b"moved", RenameMode::Replace).expect("rename");
        assert!(is_absent(&other, cx, b"file") && !is_absent(&other, cx, b"moved"));
        one.unlink(cx, one.root(), b"second").expect("unlink");
        assert!(is_absent(&other, cx, b"second"));
        assert_eq!(other.attr(cx, file).expect("attributes").nlink, 1);
        let replacement = make(&one, cx, b"replacement");
        other.attr(cx, replacement).expect("attributes");
        one.rename(cx, one.root(), b"replacement", one.root(), b"moved", RenameMode::Replace).expect("rename");
        assert_eq!(other.lookup(cx, other.root(), b"moved").expect("there").id, replacement.id);
    });
}

/// A program that died in a change leaves nothing that is believed.
fn death_in_a_change() {
    let stage = Stage::new("death-in-a-change");
    root(|cx| {
        let program = stage.program(Way::Conventional, FOR_EVER);
        let file = make(&program, cx, b"file");
        assert_eq!((is_absent(&program, cx, b"file"), mode(&program, cx, file)), (false, 0o644));
        let dead = stage.kept(FOR_EVER);
        let mut change = dead.change();
        change.name(program.root(), b"file");
        change.node(file);
        // It does what it was about to do, and never says that it has.
        chmod(stage.native, cx, file, 0o600);
        assert_eq!(mode(&program, cx, file), 0o600);
        stage.native.unlink(cx, program.root(), b"file").expect("unlink");
        assert!(is_absent(&program, cx, b"file"));
        make(stage.native, cx, b"file");
        assert!(!is_absent(&program, cx, b"file"));
    });
}

/// Two changes of one name at a time: who was behind it in between is not known,
/// so no attributes are believed that were kept before.
fn changes_that_meet() {
    let stage = Stage::new("changes-that-meet");
    root(|cx| {
        let program = stage.program(Way::Byvfs, FOR_EVER);
        let file = make(&program, cx, b"unconcerned");
        assert_eq!(mode(&program, cx, file), 0o644);
        chmod(stage.native, cx, file, 0o600);
        let kept = stage.kept(FOR_EVER);
        let alone = |name: &[u8]| {
            let mut change = kept.change();
            change.name(program.root(), name);
            change
        };
        alone(b"name").end();
        assert_eq!(mode(&program, cx, file), 0o644, "the change was alone");
        let (one, other) = (alone(b"name"), alone(b"name"));
        one.end();
        other.end();
        assert_eq!(mode(&program, cx, file), 0o600);
    });
}
