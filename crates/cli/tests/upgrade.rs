//! `bypath upgrade` as a person meets it, with the golden image of the format before.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory with an image of format 3.
struct Old(PathBuf);

impl Drop for Old {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Old {
    fn new(name: &str) -> Old {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let directory = base.join(format!("bypath-upgrade-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let old = Old(directory);
        let file = std::fs::File::create(old.image()).unwrap();
        file.set_len(16 << 20).unwrap();
        let golden = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../format/golden/v3.hex")).unwrap();
        for line in golden.lines() {
            let (at, hex) = line.split_once(' ').unwrap();
            let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
            file.write_all_at(&bytes, u64::from_str_radix(at, 16).unwrap()).unwrap();
        }
        old
    }

    fn image(&self) -> String {
        self.0.join("image").to_str().unwrap().to_string()
    }

    /// Everything in the image, as `ls` tells it.
    fn listing(&self) -> serde_json::Value {
        json(&["ls", "-aR", "--json", &format!("{}:/", self.image())])
    }
}

fn bypath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bypath")).args(args).stdin(Stdio::null()).env_remove("BYPATH_MOUNTS").output().unwrap()
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = bypath(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn numbers(listing: &serde_json::Value) -> Vec<u64> {
    listing.as_array().unwrap().iter().map(|entry| entry["ino"].as_u64().unwrap()).collect()
}

/// Goal: an image of before is used as it is, becomes one of today's with the same files and numbers, and says so; the
/// second time there is nothing to do.
#[test]
fn upgrades() {
    let old = Old::new("plain");
    let image = old.image();
    let info = |key: &str| json(&["info", "--json", &image])[key].clone();
    let before = old.listing();
    assert!(numbers(&before).len() > 50);
    assert_eq!(info("format_version"), 3);
    let output = bypath(&["upgrade", &image]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("format 4 now, 3 before; all"), "{said}");
    assert_eq!((info("format_version"), old.listing() == before), (4.into(), true));
    let again = json(&["upgrade", "--json", &image]);
    assert_eq!((&again["from"], &again["changed"], &again["inode_bits"]), (&4.into(), &false.into(), &48.into()));
    assert!(bypath(&["check", &image]).status.success());
}

/// Goal: numbers of 32 bits are had for the asking, and a new image has them.
#[test]
fn short_numbers() {
    let old = Old::new("numbers");
    let image = old.image();
    assert!(numbers(&old.listing()).iter().any(|ino| *ino > u64::from(u32::MAX)));
    let done = json(&["upgrade", "--inode32", "--json", &image]);
    assert_eq!(
        (&done["from"], &done["to"], &done["changed"], &done["inode_bits"]),
        (&3.into(), &4.into(), &true.into(), &32.into())
    );
    assert!(numbers(&old.listing()).iter().all(|ino| *ino <= u64::from(u32::MAX)));

    let new = format!("{image}.new");
    assert!(bypath(&["mkfs", &new, "--size", "256G"]).status.success());
    assert!(bypath(&["import", "-q", env!("CARGO_MANIFEST_DIR"), &format!("{new}:/tree")]).status.success());
    let listing = json(&["ls", "-aR", "--json", &format!("{new}:/")]);
    assert!(numbers(&listing).len() > 20 && numbers(&listing).iter().all(|ino| *ino <= u64::from(u32::MAX)));
}

/// Goal: what is no image, what is missing and what may not be written is refused by name.
#[test]
fn refused() {
    let old = Old::new("refused");
    let missing = format!("{}.none", old.image());
    let output = bypath(&["upgrade", &missing]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("image.none: no such file"), "{said}");
    let text = old.0.join("text");
    std::fs::write(&text, "just text\n".repeat(10_000)).unwrap();
    let output = bypath(&["upgrade", text.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("not a Bypath image"), "{said}");
}
