//! Goal: an image behind caches caches what it says it does, forgets it at the
//! programs' own changes, whichever makes them, and answers as the kernel does.
//! Method: two programs are two backends on the same cache; changes by nobody of
//! them are made by the engine itself, past both. Then random calls beside tmpfs.

use base::{Cred, Cx, Errno, Error, Kind, NewNode, Node, RenameMode, SetAttr, Thread};
use bypath_bench::byvfs::{AGE_NS, Cache, CachedImage, Caching};
use std::process::ExitCode;
use testkit::differential::run::Limits;
use testkit::differential::{self, Ours, Plan};
use testkit::image;
use vfs::Backend;
use vfs::native::Native;

const FOR_EVER: u64 = u64::MAX;

/// In turn and on one thread: segments lie where this process says, and the comparison forks.
fn main() -> ExitCode {
    let _segments = image::Segments::new();
    for part in [what_is_cached, age, several_programs, death_in_a_change, changes_that_meet] {
        part();
    }
    if answers_as_the_kernel(conventional) && answers_as_the_kernel(byvfs) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Random calls have the results that they have on tmpfs.
fn answers_as_the_kernel(make: fn() -> &'static dyn Backend) -> bool {
    let limits = Limits { space_ahead: true, no_parent_of_removed: true, ..Limits::default() };
    let plan = Plan { ours: Ours::Alone(make), nested: false, limits, ops: 10_000, len: 100, seed: 1, jobs: 2 };
    differential::run(&plan)
}

fn conventional() -> &'static dyn Backend {
    fresh(Caching::Conventional)
}

fn byvfs() -> &'static dyn Backend {
    fresh(Caching::Byvfs)
}

fn fresh(caching: Caching) -> &'static dyn Backend {
    Box::leak(Box::new(Stage::new("differential").program(caching, AGE_NS)))
}

struct Stage {
    native: &'static Native,
    cache: std::path::PathBuf,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let path = image::fresh_path(name);
        image::make(&path, 64 << 20);
        let native = image::attach(&path);
        let _ = std::fs::remove_file(&path);
        let cache = image::fresh_path(&format!("{name}-cache"));
        std::fs::File::create(&cache).and_then(|file| file.set_len(Cache::bytes())).expect("a file");
        Stage { native, cache }
    }

    fn cache(&self, age_ns: u64) -> Cache {
        Cache::open(&[self.cache.as_os_str().as_encoded_bytes(), b"\0"].concat(), age_ns).expect("a cache")
    }

    fn program(&self, caching: Caching, age_ns: u64) -> CachedImage {
        CachedImage::new(*self.native, self.cache(age_ns), caching)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.cache);
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

/// What the engine does past the cache is not seen as long as entries last: so there
/// are some. `byvfs` has none of names.
fn what_is_cached() {
    let stage = Stage::new("what-is-cached");
    root(|cx| {
        for caching in [Caching::Conventional, Caching::Byvfs] {
            let program = stage.program(caching, FOR_EVER);
            let file = make(&program, cx, b"file");
            assert!(!is_absent(&program, cx, b"file") && is_absent(&program, cx, b"none"));
            assert_eq!(mode(&program, cx, file), 0o644);
            chmod(stage.native, cx, file, 0o600);
            assert_eq!(mode(&program, cx, file), 0o644, "{caching:?}: attributes are cached");
            make(stage.native, cx, b"none");
            assert_eq!(
                is_absent(&program, cx, b"none"),
                caching == Caching::Conventional,
                "{caching:?}: so is what is not there"
            );
            stage.native.unlink(cx, program.root(), b"file").expect("unlink");
            assert_eq!(is_absent(&program, cx, b"file"), caching == Caching::Byvfs, "{caching:?}: and what is there");
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
        let program = stage.program(Caching::Conventional, 0);
        let file = make(&program, cx, b"file");
        assert_eq!((is_absent(&program, cx, b"file"), mode(&program, cx, file)), (false, 0o644));
        chmod(stage.native, cx, file, 0o600);
        stage.native.unlink(cx, program.root(), b"file").expect("unlink");
        assert!(is_absent(&program, cx, b"file"));
    });
}

/// Changes by one program are seen by the others at once.
fn several_programs() {
    let stage = Stage::new("several-programs");
    root(|cx| {
        let (one, other) = (stage.program(Caching::Conventional, FOR_EVER), stage.program(Caching::Conventional, FOR_EVER));
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
        let program = stage.program(Caching::Conventional, FOR_EVER);
        let file = make(&program, cx, b"file");
        assert_eq!((is_absent(&program, cx, b"file"), mode(&program, cx, file)), (false, 0o644));
        let dead = stage.cache(FOR_EVER);
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
/// so no attributes are believed that were cached before.
fn changes_that_meet() {
    let stage = Stage::new("changes-that-meet");
    root(|cx| {
        let program = stage.program(Caching::Byvfs, FOR_EVER);
        let file = make(&program, cx, b"unconcerned");
        assert_eq!(mode(&program, cx, file), 0o644);
        chmod(stage.native, cx, file, 0o600);
        let cache = stage.cache(FOR_EVER);
        let alone = |name: &[u8]| {
            let mut change = cache.change();
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
