//! An image whose file may not be written: what reads works, what writes says
//! so in one line, and not a byte changes.
//!
//! Root may write anything, so root's `bypath` is started here as user 65534,
//! from a copy that this user can reach.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NOBODY: u32 = 65534;

/// A directory that everybody may look into, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bypath-unwritable-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("tree/below")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_bypath"), path.join("bypath")).unwrap();
        std::fs::write(path.join("tree/file"), "contents\n").unwrap();
        std::fs::write(path.join("tree/below/other"), "x".repeat(10_000)).unwrap();
        std::os::unix::fs::symlink("file", path.join("tree/link")).unwrap();
        let scratch = Scratch(path);
        for (name, mode) in [
            ("", 0o755),
            ("bypath", 0o755),
            ("tree", 0o755),
            ("tree/below", 0o755),
            ("tree/file", 0o644),
            ("tree/below/other", 0o644),
        ] {
            std::fs::set_permissions(scratch.0.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let image = scratch.path("i");
        for args in [&["mkfs", &image, "--size", "16M"][..], &["import", "-q", &scratch.path("tree"), &format!("{image}:/tree")]]
        {
            let output = Command::new(env!("CARGO_BIN_EXE_bypath")).args(args).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        scratch.allow(0o444);
        scratch
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    fn allow(&self, mode: u32) {
        std::fs::set_permissions(self.path("i"), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs `bypath` as somebody whom modes mean something to.
    fn bypath(&self, args: &[&str]) -> Output {
        let mut command = Command::new(self.0.join("bypath"));
        command.args(args).current_dir("/").env("BYPATH_PRELOAD", self.0.join("bypath")).env_remove("BYPATH_MOUNTS");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let output = self.bypath(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, args: &[&str], code: i32, words: &[&str]) {
        let output = self.bypath(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.starts_with("bypath: ") && text.lines().count() == 1, "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: {word:?} is not in {text:?}");
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path("i")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_reads_works() {
    let scratch = Scratch::new("reads");
    let image = scratch.path("i");
    let before = scratch.bytes();
    let place = |path: &str| format!("{image}:{path}");
    assert_eq!(scratch.good(&["ls", &place("/tree")]), "below\nfile\nlink\n");
    assert!(scratch.good(&["ls", "-laR", &place("/")]).contains("10000"));
    assert_eq!(scratch.good(&["cat", &place("/tree/link")]), "contents\n");
    assert!(scratch.good(&["stat", &place("/tree/below/other")]).contains("Size: 10000"));
    let info = scratch.good(&["info", &image]);
    assert!(info.contains("(read-only)") && info.contains("a private copy"), "{info}");
    assert!(scratch.good(&["check", &image]).contains("clean"));
    let out = scratch.0.join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o777)).unwrap();
    scratch.good(&["export", "-q", &place("/tree"), &scratch.path("out/tree")]);
    for name in ["file", "below/other"] {
        let read = |dir: &str| std::fs::read(scratch.0.join(dir).join(name)).unwrap();
        assert!(read("tree") == read("out/tree"), "{name} was exported as something else");
    }
    assert_eq!(std::fs::read_link(scratch.0.join("out/tree/link")).unwrap(), Path::new("file"));
    assert!(scratch.bytes() == before, "reading has changed the file");
}

#[test]
fn what_writes_says_so() {
    let scratch = Scratch::new("writes");
    let image = scratch.path("i");
    let before = scratch.bytes();
    scratch.refused(&["run", "--mount", &format!("{image}:/bp"), "--", "true"], 1, &["not writable", "ro"]);
    scratch.refused(&["import", &scratch.path("tree"), &format!("{image}:/more")], 1, &["not writable"]);
    assert!(scratch.bytes() == before, "something has changed the file");
    // What is clean needs no repair, so a fault: the copy of the superblock.
    scratch.allow(0o644);
    let mut bytes = before;
    bytes[4096 + 64] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    scratch.allow(0o444);
    scratch.refused(&["check", &image, "--repair"], 2, &["not writable"]);
    assert!(scratch.bytes() == bytes, "the repair has changed the file");
}

/// Goal: an import leaves out what its user may not read, names it, and fails at the end; all else comes in, and an older
/// file in the image stays where the new one cannot be read.
#[test]
fn unread_sources_are_left_out() {
    let scratch = Scratch::new("unread");
    let allow = |name: &str, mode| {
        std::fs::set_permissions(scratch.0.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // An image of that user's own.
    allow("", 0o777);
    let image = scratch.path("j");
    scratch.good(&["mkfs", &image, "--size", "16M"]);
    scratch.good(&["import", "-q", &scratch.path("tree"), &format!("{image}:/tree")]);
    for name in ["tree/file", "tree/below"] {
        allow(name, 0);
    }
    std::fs::write(scratch.path("tree/last"), "last\n").unwrap();
    let output = scratch.bypath(&["import", "-q", &scratch.path("tree"), &format!("{image}:/tree")]);
    let fresh = scratch.bypath(&["import", "-q", &scratch.path("tree"), &format!("{image}:/fresh")]);
    for name in ["tree/file", "tree/below"] {
        allow(name, 0o755);
    }
    for output in [output, fresh] {
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.lines().all(|line| line.starts_with("bypath: ")) && text.lines().count() == 3, "{text}");
        for part in ["tree/file: permission denied", "tree/below: permission denied", "2 names could not be read"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
    assert_eq!(scratch.good(&["cat", &format!("{image}:/tree/file")]), "contents\n");
    assert_eq!(scratch.good(&["ls", &format!("{image}:/tree")]), "below\nfile\nlast\nlink\n");
    assert_eq!(scratch.good(&["ls", &format!("{image}:/fresh")]), "below\nlast\nlink\n");
    assert_eq!(scratch.good(&["cat", &format!("{image}:/fresh/last")]), "last\n");
    assert!(scratch.good(&["check", &image]).contains("clean"));
}

/// What may not even be read is refused, like what is no image.
#[test]
fn what_is_none() {
    let scratch = Scratch::new("none");
    let image = scratch.path("i");
    let place = format!("{image}:/tree");
    scratch.allow(0);
    scratch.refused(&["ls", &place], 1, &["cannot be opened"]);
    scratch.allow(0o644);
    std::fs::write(&image, "just text\n".repeat(10_000)).unwrap();
    scratch.allow(0o444);
    scratch.refused(&["ls", &place], 1, &["not a Bypath image"]);
}
