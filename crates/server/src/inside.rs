//! What the kernel has mounted inside its mount of an image, by its table of mounts.

use crate::device::{device_in, unescape};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tells `changed` the paths, from the mount at `directory` with this `st_dev` on, of all mounts that lie directly in it, now
/// and whenever that changes, until the other end of `stop` is closed.
pub fn watch(directory: &Path, device: u64, stop: &OwnedFd, mut changed: impl FnMut(Vec<Vec<u8>>)) -> std::io::Result<()> {
    let mut table = File::open("/proc/self/mountinfo")?;
    let (mut bytes, mut before) = (Vec::new(), Vec::new());
    loop {
        bytes.clear();
        table.rewind()?;
        table.read_to_end(&mut bytes)?;
        let now = inside(&bytes, directory, device);
        if now != before {
            before.clone_from(&now);
            changed(now);
        }
        // The kernel compares with what there was at the last poll: what has changed since it was read is told at once.
        let mut waited = [PollFd::new(&table, PollFlags::PRI), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) if !waited[1].revents().is_empty() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// What this mount namespace calls the mount at `directory` with this `st_dev`.
pub fn number(directory: &Path, device: u64) -> Option<u64> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let lines: Vec<_> = table.split(|byte| *byte == b'\n').filter_map(line).collect();
    number_in(&lines, directory, device)
}

fn number_in(lines: &[Line], directory: &Path, device: u64) -> Option<u64> {
    // The last one covers those before it.
    lines.iter().rev().find(|line| line.device == device && line.at == directory.as_os_str().as_bytes()).map(|line| line.id)
}

/// The paths of what is mounted in the mount at `directory`, from there on, without leading slash.
fn inside(table: &[u8], directory: &Path, device: u64) -> Vec<Vec<u8>> {
    let lines: Vec<_> = table.split(|byte| *byte == b'\n').filter_map(line).collect();
    let own = number_in(&lines, directory, device);
    let directory = directory.as_os_str().as_bytes();
    let in_it = lines.iter().filter(|line| Some(line.parent) == own && line.id != line.parent);
    in_it.filter_map(|line| Some(line.at.strip_prefix(directory)?.strip_prefix(b"/")?.to_vec())).collect()
}

/// What is asked of a line of the table.
struct Line {
    id: u64,
    parent: u64,
    device: u64,
    at: Vec<u8>,
}

fn line(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = device_in(fields.next())?;
    Some(Line { id, parent, device, at: unescape(fields.nth(1)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what lies directly in the mount is found by its path there, and nothing else. Method: a table with mounts in
    /// it, in one of those, beside it, of the same file system elsewhere, and of a name with a space.
    #[test]
    fn children_alone() {
        let table = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 20 0:50 / /bp rw - fuse.bypath /i.img rw\n\
            31 30 0:51 / /bp/a rw shared:1 - tmpfs t rw\n\
            32 31 0:52 / /bp/a/b rw - tmpfs t rw\n\
            33 30 0:51 /x /bp/c\\040d/e rw - tmpfs t rw\n\
            34 20 0:50 /a /elsewhere rw - fuse.bypath /i.img rw\n\
            35 34 0:53 / /elsewhere/f rw - tmpfs t rw\n\
            36 20 0:54 / /bp2 rw - tmpfs t rw\n";
        let paths = |at: &str, device| inside(table, Path::new(at), device);
        assert_eq!(paths("/bp", rustix::fs::makedev(0, 50)), [b"a".to_vec(), b"c d/e".to_vec()]);
        assert!(paths("/bp", rustix::fs::makedev(0, 51)).is_empty());
        assert!(paths("/none", rustix::fs::makedev(0, 50)).is_empty());
    }
}
