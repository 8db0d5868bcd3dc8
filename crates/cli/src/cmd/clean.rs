//! `bypath clean`: takes away what sessions that were killed have left.
//!
//! Each of these is also taken away by whoever makes the next of its kind; this is for when nobody does.

use crate::attach;
use crate::cmd::{mkfs, print, print_json};
use crate::failure::Result;
use crate::mounts::shared_file::{SharedFile, Whose};
use crate::mounts::{leavings, linger, own_cache};
use serde::Serialize;
use server::device;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs' tables and daemons' directories lie where other containers' may, whose process numbers are not ours.
const DAY: Duration = Duration::from_secs(86_400);
/// For a moment, so that a shared cache is made.
const SMALLEST: u64 = 16 << 20;

/// What was taken away.
#[derive(Serialize)]
struct Gone {
    what: &'static str,
    path: PathBuf,
}

/// Takes it away, and says what it was.
pub fn clean(json: bool) -> Result<u8> {
    let mut gone = Vec::new();
    unmount_stale(&mut gone);
    for one in linger::all() {
        one.end()?;
        gone.push(Gone { what: "cache kept fresh", path: one.image });
    }
    let directory = attach::segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let before = caches(&directory);
    leavings::remove_from(&directory, leavings::AGE);
    sweep()?;
    let after = caches(&directory);
    gone.extend(before.difference(&after).map(|path| Gone { what: "shared file", path: path.clone() }));
    remove_caches(&mut gone);
    remove_temporary(&mut gone);
    if json {
        return print_json(&gone).map(|()| 0);
    }
    let mut text: String = gone.iter().map(|gone| format!("{}: {}\n", gone.what, gone.path.display())).collect();
    if gone.is_empty() {
        text = "nothing was left behind (what is less than a minute old is not looked at)\n".to_string();
    }
    print(text.as_bytes()).map(|()| 0)
}

/// Files of ours in the directory of the shared caches.
fn caches(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(leavings::PREFIX.as_bytes()))
        .map(|entry| entry.path())
        .collect()
}

/// Whoever makes a shared cache takes those away whose image is gone, or has another: so one is made.
fn sweep() -> Result<()> {
    let image = SharedFile::make("new", 0, Whose::Ours)?;
    mkfs::make(image.path(), SMALLEST, true)?;
    attach::attach(image.path())?.leave();
    Ok(())
}

/// Mounts of the kernel's whose server has died.
fn unmount_stale(gone: &mut Vec<Gone>) {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for point in table.split(|byte| *byte == b'\n').filter_map(stale_point) {
        if device::is_stale(&point) && device::unmount(&point, true).is_ok() {
            gone.push(Gone { what: "mount without a server", path: point });
        }
    }
}

/// The directory of a line of the kernel's table, if it is a mount of ours.
fn stale_point(line: &[u8]) -> Option<PathBuf> {
    let line = std::str::from_utf8(line).ok()?;
    let (mount, kind) = line.split_once(" - ")?;
    kind.starts_with("fuse.bypath ").then(|| {
        let point = device::unescape(mount.split(' ').nth(4).unwrap_or("").as_bytes());
        PathBuf::from(OsString::from_vec(point))
    })
}

/// Caches that sessions made for themselves. One that may hold what is nowhere else is named, and stays.
fn remove_caches(gone: &mut Vec<Gone>) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let Some(image) = own_cache::image_in(&entry.path()) else { continue };
        let is_left = entry.metadata().is_ok_and(|meta| meta.is_dir() && is_left(&meta, own_cache::maker(&image), leavings::AGE));
        if !is_left {
            continue;
        }
        if own_cache::remove_if_over(&image) {
            gone.push(Gone { what: "cache of a session", path: image });
        } else {
            let shown = image.display();
            eprintln!("bypath: {shown} stays: it is in use, or holds what is written nowhere else (bypath cache drain {shown})");
        }
    }
}

/// Tables of system calls and directories of FUSE daemons, of processes that are gone.
fn remove_temporary(gone: &mut Vec<Gone>) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        if !is_left(&meta, maker(&entry.file_name()), DAY) {
            continue;
        }
        // A directory only if it is empty, and nothing is mounted there.
        let removed = if meta.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
        if removed.is_ok() {
            gone.push(Gone { what: "temporary file", path });
        }
    }
}

/// Whether a file is this user's, its maker is known and dead, and nobody has changed it for so long.
fn is_left(meta: &Metadata, maker: Option<u32>, age: Duration) -> bool {
    let is_old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|past| past >= age));
    let is_dead = maker.is_some_and(|pid| !pm::host::is_alive(pid));
    meta.uid() == rustix::process::geteuid().as_raw() && is_old && is_dead
}

/// The process that made a temporary file of this name.
fn maker(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    let table = name.strip_prefix("bypath-").and_then(|rest| rest.strip_suffix(".sites"));
    let (pid, count) = table.or(name.strip_prefix("bypath-fuse-"))?.split_once('-')?;
    count.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is ours is known by its name; a table of mounts is read as the kernel writes it.
    #[test]
    fn names() {
        assert_eq!(maker(OsStr::new("bypath-12-0.sites")), Some(12));
        assert_eq!(maker(OsStr::new("bypath-fuse-13-1")), Some(13));
        for other in ["bypath-x-0.sites", "bypath-12.sites", "bypath-fuse-1", "a-fuse-1-1", "bypath-1-0"] {
            assert_eq!(maker(OsStr::new(other)), None, "{other}");
        }
        let line = b"36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuse.bypath /i.img rw";
        assert_eq!(stale_point(line), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(stale_point(b"36 35 98:0 / /mnt rw - ext4 /dev/sda rw"), None);
    }
}
