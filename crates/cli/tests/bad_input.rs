//! Whatever a person gets wrong: one clear line, an exit code that is not 0,
//! and nothing changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fresh directory, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let path = base.join(format!("bypath-bad-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// A fresh image.
    fn image(&self, name: &str) -> String {
        let path = self.path(name);
        let output = bypath(&["mkfs", &path, "--size", "16M"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        path
    }

    /// Names, lengths and contents of everything here.
    fn listing(&self) -> Vec<(String, u64, u64)> {
        let mut all: Vec<_> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                (entry.file_name().into_string().unwrap(), bytes.len() as u64, sum)
            })
            .collect();
        all.sort();
        all
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bypath(args: &[&str]) -> Output {
    // Any file will do where nothing is started; `run` itself is tested with real programs elsewhere.
    Command::new(env!("CARGO_BIN_EXE_bypath"))
        .args(args)
        .env("BYPATH_PRELOAD", env!("CARGO_BIN_EXE_bypath"))
        .env_remove("BYPATH_MOUNTS")
        .output()
        .unwrap()
}

/// Runs it, and checks: exit code, one line that holds each of `words`, nothing changed.
#[track_caller]
fn refused(scratch: &Scratch, args: &[&str], code: i32, words: &[&str]) {
    let before = scratch.listing();
    complains(args, code, words);
    assert_eq!(before, scratch.listing(), "{args:?} changed something");
}

/// The same where a good image was in use: then what is volatile in it may change, but not its files.
#[track_caller]
fn refused_inside(image: &str, args: &[&str], code: i32, words: &[&str]) {
    let files = || bypath(&["ls", "-laR", &format!("{image}:/")]).stdout;
    let before = files();
    complains(args, code, words);
    assert_eq!(before, files(), "{args:?} changed something");
}

#[track_caller]
fn complains(args: &[&str], code: i32, words: &[&str]) {
    let output = bypath(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", String::from_utf8_lossy(&output.stdout));
    for word in words {
        assert!(text.contains(word), "{args:?}: {word:?} is not in {text:?}");
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    // clap adds a hint where to find help; ours is one line.
    if text.starts_with("bypath: ") {
        assert_eq!(lines.count(), 1, "{args:?}: {text}");
    } else {
        assert!(text.starts_with("error: "), "{args:?}: {text}");
    }
}

/// All verbs that read an image refuse what is not one, each with the same line.
#[track_caller]
fn refused_by_all(scratch: &Scratch, image: &str, words: &[&str]) {
    let place = format!("{image}:/x");
    let mount = format!("{image}:/bp");
    let source = scratch.path("");
    for args in [
        &["run", "--mount", &mount, "--", "true"][..],
        &["import", &source, &place],
        &["export", &place, "/nonexistent/target"],
        &["ls", &place],
        &["cat", &place],
        &["stat", &place],
        &["info", image],
    ] {
        refused(scratch, args, 1, words);
    }
    refused(scratch, &["check", image], 2, words);
}

#[test]
fn not_an_image() {
    let scratch = Scratch::new("not");
    std::fs::write(scratch.path("text"), "just text\n".repeat(10_000)).unwrap();
    std::fs::write(scratch.path("empty"), "").unwrap();
    refused_by_all(&scratch, &scratch.path("text"), &["text", "not a Bypath image", "mkfs"]);
    refused_by_all(&scratch, &scratch.path("empty"), &["empty", "not a Bypath image"]);
    refused_by_all(&scratch, &scratch.path("none"), &["none", "no such file"]);
    refused(&scratch, &["info", &scratch.path("")], 1, &["not a Bypath image"]);
    refused(&scratch, &["info", "/dev/null"], 1, &["/dev/null", "not a Bypath image"]);
}

#[test]
fn truncated_image() {
    let scratch = Scratch::new("truncated");
    let image = scratch.image("i");
    for len in [1 << 20, 4096, 8192] {
        let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(len).unwrap();
        refused_by_all(&scratch, &image, &["truncated", "has", "needs"]);
    }
}

#[test]
fn wrong_version() {
    let scratch = Scratch::new("version");
    let image = scratch.image("i");
    let mut bytes = std::fs::read(&image).unwrap();
    for copy in [0, 4096] {
        bytes[copy + 8] = 99;
    }
    std::fs::write(&image, bytes).unwrap();
    refused_by_all(&scratch, &image, &["version 99"]);
}

#[test]
fn damaged_superblock() {
    let scratch = Scratch::new("damaged");
    let image = scratch.image("i");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[20] ^= 1;
    bytes[4096 + 20] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    refused_by_all(&scratch, &image, &["damaged"]);
    // One good copy is enough.
    bytes[20] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    assert!(bypath(&["info", &image]).status.success());
}

#[test]
fn unwritable_targets() {
    let scratch = Scratch::new("targets");
    refused(&scratch, &["mkfs", "/proc/nothing"], 1, &["/proc/nothing"]);
    refused(&scratch, &["mkfs", "/nonexistent/i"], 1, &["/nonexistent/i", "no such"]);
}

#[test]
fn mkfs_keeps_what_is_there() {
    let scratch = Scratch::new("mkfs");
    std::fs::write(scratch.path("precious"), "data").unwrap();
    refused(&scratch, &["mkfs", &scratch.path("precious")], 1, &["precious", "--force"]);
    refused(&scratch, &["mkfs", &scratch.path("")], 1, &[]);
    refused(&scratch, &["mkfs", "/dev/null"], 1, &["/dev/null", "regular file"]);
    assert!(bypath(&["mkfs", &scratch.path("precious"), "--size", "16M", "--force"]).status.success());
}

#[test]
fn nonsense_sizes() {
    let scratch = Scratch::new("size");
    let image = scratch.path("i");
    for size in ["", "0", "-5", "1.5G", "12Q", "G", "1M", "17T", "99999999999999999999", "20000000T"] {
        refused(&scratch, &["mkfs", &image, &format!("--size={size}")], 2, &["--size"]);
    }
}

#[test]
fn no_space() {
    let scratch = Scratch::new("space");
    let image = scratch.image("i");
    let source = scratch.path("large");
    std::fs::write(&source, vec![7u8; 20 << 20]).unwrap();
    let output = bypath(&["import", "-q", &source, &format!("{image}:/large")]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no space") && text.contains("--size") && text.lines().count() == 1, "{text}");
    assert!(bypath(&["check", &image]).status.success());
}

#[test]
fn places() {
    let scratch = Scratch::new("places");
    let image = scratch.image("i");
    let mount = |point: &str| format!("{image}:{point}");
    refused_inside(&image, &["ls", "/bp/file"], 1, &["/bp/file", "IMG:/path"]);
    refused_inside(&image, &["cat", &image], 1, &["is a directory"]);
    refused_inside(&image, &["ls", &mount("/../etc")], 1, &["out of the image"]);
    refused_inside(&image, &["ls", &mount("/none")], 1, &["/none", "no such file"]);
    refused_inside(&image, &["cat", &mount("/")], 1, &["is a directory"]);
    refused_inside(&image, &["import", "/nonexistent", &mount("/x")], 1, &["/nonexistent", "no such file"]);
    refused_inside(&image, &["import", &image, &mount("/x")], 1, &["into itself"]);
    std::fs::write(scratch.path("file"), "x").unwrap();
    let on_file = mount(&scratch.path("file"));
    for (point, word) in [("bp", "absolute"), ("/", "root"), ("/a/../b", ".."), ("", "IMG:/dir")] {
        refused_inside(&image, &["run", "--mount", &mount(point), "--", "true"], 1, &[word]);
    }
    refused_inside(&image, &["run", "--mount", &on_file, "--", "true"], 1, &["mount point", "is a file"]);
    refused_inside(&image, &["run", "--mount", &mount("/bp"), "--mount", &mount("/bp"), "--", "true"], 1, &["two mounts at /bp"]);
    refused_inside(&image, &["run", "--mount", &mount("/bp")], 2, &["CMD"]);
    refused_inside(&image, &["mount", &image, "/no/such"], 1, &["/no/such", "no such directory"]);
    refused_inside(&image, &["mount", &image, &scratch.path("file")], 1, &["not a directory"]);
    refused_inside(&image, &["mount", &image, "/proc"], 1, &["/proc", "busy"]);
    refused_inside(&image, &["mount", &scratch.path("none"), "/proc"], 1, &["no such file"]);
    let inside = format!("{image}:/agents/7");
    refused_inside(&image, &["mount", &inside, "/work"], 1, &["a directory inside an image", "use /work/agents/7"]);
    refused_inside(&image, &["run", "--mount", &format!("{inside}:/work"), "--", "true"], 1, &["use /work/agents/7"]);
    refused_inside(&image, &["run", "--mount", &format!("{image}:/work:ro"), "--", "true"], 1, &["/work,ro"]);
    refused_inside(&image, &["mount", &scratch.path("file"), "/proc"], 1, &["not a Bypath image"]);
    refused_inside(&image, &["umount", "/usr"], 1, &["/usr", "no image is mounted"]);
}
