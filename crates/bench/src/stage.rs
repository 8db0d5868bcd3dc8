//! Directories of the kernel's for a benchmark, and its caches.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A fresh directory, removed at the end.
pub struct Directory(pub PathBuf);

impl Directory {
    /// In `dir`.
    pub fn new(dir: &Path, name: &str) -> Result<Directory, String> {
        let path = dir.join(format!("bypath-bench-{name}-kernel-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A fresh image.
pub fn make_image(path: &Path, limit: u64) -> Result<(), String> {
    let text = format!("{}\0", path.display());
    let options = engine::mkfs::Options { limit, force: true, ..Default::default() };
    engine::mkfs::make(text.as_bytes(), &options).map_err(|error| format!("{}: {error}", path.display()))
}

/// The kernel forgets the names and inodes that it has cached and can read again; for all programs of the machine.
pub fn drop_dentries() -> std::io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "2")
}

/// What the kernel calls the file system of a directory.
pub fn kind_of(dir: &Path) -> String {
    let out = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output();
    let name = out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string()).unwrap_or_default();
    match name.as_str() {
        "ext2/ext3" => "ext4".into(),
        "" => "directory".into(),
        _ => name,
    }
}
