//! `bypath check --repair` as a person meets it: lines, exit codes, agreement, JSON.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory with an image in which a name's edentry is zeroed.
struct Damaged(PathBuf);

impl Drop for Damaged {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bypath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bypath")).args(args).stdin(Stdio::null()).env_remove("BYPATH_MOUNTS").output().unwrap()
}

impl Damaged {
    fn new(name: &str) -> Damaged {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let directory = base.join(format!("bypath-repair-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(directory.join("tree/below")).unwrap();
        std::fs::write(directory.join("tree/a lonely name"), b"its contents").unwrap();
        std::fs::write(directory.join("tree/below/other"), b"more").unwrap();
        let damaged = Damaged(directory);
        let image = damaged.image();
        assert!(bypath(&["mkfs", &image, "--size", "16M"]).status.success());
        let tree = damaged.0.join("tree");
        assert!(bypath(&["import", "-q", tree.to_str().unwrap(), &format!("{image}:/tree")]).status.success());
        let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
        let bytes = std::fs::read(&image).unwrap();
        let at = bytes.windows(13).position(|window| window == b"a lonely name").unwrap();
        file.write_all_at(&[0; 64], at as u64 & !63).unwrap();
        damaged
    }

    fn image(&self) -> String {
        self.0.join("image").to_str().unwrap().to_string()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Goal: without agreement nothing is dropped and nothing changes; with it the
/// image is clean and what had a name has one again.
#[test]
fn asks_before_it_drops() {
    let damaged = Damaged::new("asks");
    let image = damaged.image();
    let before = std::fs::read(&image).unwrap();
    let refused = bypath(&["check", &image, "--repair"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("[gives up]") && text(&refused).contains("--yes"), "{}", text(&refused));
    assert!(before == std::fs::read(&image).unwrap(), "the image has changed");
    let repaired = bypath(&["check", &image, "--repair", "--yes"]);
    assert_eq!(repaired.status.code(), Some(0), "{}", text(&repaired));
    assert!(text(&repaired).lines().last().unwrap().contains("repaired; now clean"), "{}", text(&repaired));
    assert!(bypath(&["check", &image]).status.success());
    let found = text(&bypath(&["ls", &format!("{image}:/lost+found")]));
    let name = found.trim();
    assert!(name.starts_with('#'), "{found}");
    assert_eq!(text(&bypath(&["cat", &format!("{image}:/lost+found/{name}")])), "its contents");
    assert_eq!(text(&bypath(&["cat", &format!("{image}:/tree/below/other")])), "more");
    let again = bypath(&["check", &image, "--repair"]);
    assert_eq!((again.status.code(), text(&again).lines().count()), (Some(0), 1), "{}", text(&again));
}

/// Goal: `--json` is one value, and says what was done.
#[test]
fn json() {
    let damaged = Damaged::new("json");
    let image = damaged.image();
    let refused = bypath(&["check", &image, "--repair", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((refused.status.code(), &value["clean"], &value["repaired"]), (Some(1), &false.into(), &false.into()));
    let repaired = bypath(&["check", &image, "--repair", "--yes", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&repaired.stdout).unwrap();
    assert_eq!((repaired.status.code(), &value["clean"], &value["repaired"]), (Some(0), &true.into(), &true.into()));
    assert!(value["actions"].as_array().unwrap().iter().any(|action| action["drops"] == true), "{value}");
}
