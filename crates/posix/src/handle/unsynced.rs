//! Mounts with `sync=none`: a call that waits for the medium checks what it names and returns.
//!
//! Files of such a mount are the kernel's own descriptors, which `dup`, `fork`, `exec` and sockets hand on. So whose a
//! descriptor is, is asked when somebody wants to sync it: where `/proc` says that it lies, below the mount's lower
//! directory or not. That is two or three microseconds in place of a wait for a disk, and nothing is kept that could be
//! wrong. Where `/proc` does not tell, the kernel syncs.
//!
//! A lower directory is meant with all that is in it: who opened the file by which path makes no difference, but for
//! `O_SYNC` and `O_DSYNC`, which an open through the mount leaves out.

use super::fail;
use crate::{Outcome, Process};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;

/// Flags of `msync`.
const MS_ASYNC: usize = 1;
const MS_SYNC: usize = 4;
/// Where in a line of `/proc/self/maps` the path begins at the earliest: after addresses, rights, offset, device, inode.
const FIELDS_BEFORE_PATH: usize = 5;
/// Longest line of `/proc/self/maps`.
const LINE_MAX: usize = 4096 + 128;

impl Process {
    /// Takes note of whether what is mounted includes such a mount.
    pub(crate) fn note_unsynced(&self) {
        let any = self.mounts.iter().any(|(_, mount)| mount.backend.unsynced().is_some());
        self.unsynced.store(any, Relaxed);
    }

    /// Whether there is such a mount.
    #[inline]
    pub fn leaves_out_syncs(&self) -> bool {
        self.unsynced.load(Relaxed)
    }

    /// Whether a descriptor of the kernel's is one that needs no sync.
    #[inline]
    pub fn is_unsynced(&self, fd: usize) -> bool {
        self.leaves_out_syncs() && self.is_unsynced_file(fd)
    }

    #[cold]
    #[inline(never)]
    fn is_unsynced_file(&self, fd: usize) -> bool {
        // What the kernel would refuse it refuses.
        // SAFETY: no pointers.
        let flags = unsafe { pm::call!(abi::__NR_fcntl, fd, abi::F_GETFL, 0) };
        let is_sync_made = flags.is_ok_and(|flags| flags as u32 & abi::O_PATH == 0) && is_file(fd);
        let mut link = [0u8; 4096];
        is_sync_made && pm::host::place_of(fd as i32, &mut link).is_ok_and(|len| self.is_unsynced_path(&link[..len]))
    }

    /// Whether a path of the kernel's leads into such a mount's lower directory.
    fn is_unsynced_path(&self, path: &[u8]) -> bool {
        let is_inside = |root: &[u8]| path.strip_prefix(root).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
        self.mounts.iter().filter_map(|(_, mount)| mount.backend.unsynced()).any(is_inside)
    }

    /// The answer to `fsync`, `fdatasync` and `syncfs`, which would be `outcome`.
    #[inline]
    pub(super) fn unless_left_out(&self, fd: usize, outcome: Outcome) -> Outcome {
        if outcome == Outcome::Kernel && self.is_unsynced(fd) { Outcome::Done(0) } else { outcome }
    }

    /// The answer to `sync_file_range` of such a descriptor: its arguments are looked at.
    pub(super) fn range_left_out(&self, args: [usize; 6]) -> Option<Outcome> {
        if !self.is_unsynced(args[0]) {
            return None;
        }
        let (offset, len) = (args[1] as i64, args[2] as i64);
        let is_wrong = args[3] as u32 & !7 != 0 || offset < 0 || offset.checked_add(len).is_none_or(|end| end < offset);
        Some(if is_wrong { fail(Errno::EINVAL) } else { Outcome::Done(0) })
    }

    /// What `pwritev2` with `RWF_SYNC` or `RWF_DSYNC` becomes.
    pub(super) fn write_left_out(&self, args: [usize; 6], flags: usize) -> Option<Outcome> {
        if args[5] & flags == 0 || !self.is_unsynced(args[0]) {
            return None;
        }
        let [fd, vector, count, offset, unused, all] = args;
        let args = [fd, vector, count, offset, unused, all & !flags];
        Some(Outcome::KernelWith { nr: abi::__NR_pwritev2 as usize, args })
    }

    /// What `msync` with `MS_SYNC` becomes where all the shared mappings in its range are of such files: the kernel
    /// looks at the range, as with `MS_ASYNC`, and does nothing.
    pub(super) fn mapping_left_out(&self, args: [usize; 6]) -> Option<Outcome> {
        if args[2] & (MS_SYNC | MS_ASYNC) != MS_SYNC || !self.leaves_out_syncs() {
            return None;
        }
        if !self.are_unsynced_mappings(args[0], args[0].saturating_add(args[1])).unwrap_or(false) {
            return None;
        }
        let args = [args[0], args[1], args[2] & !MS_SYNC | MS_ASYNC, 0, 0, 0];
        Some(Outcome::KernelWith { nr: abi::__NR_msync as usize, args })
    }

    #[cold]
    #[inline(never)]
    fn are_unsynced_mappings(&self, start: usize, end: usize) -> Option<bool> {
        let maps = pm::file::File::open(b"/proc/self/maps\0", abi::O_RDONLY, 0).ok()?;
        let (mut buffer, mut len, mut any) = ([0u8; 2 * LINE_MAX], 0, false);
        loop {
            let came = maps.read_on(&mut buffer[len..]).ok()?;
            len += came;
            while let Some(at) = buffer[..len].iter().position(|&byte| byte == b'\n') {
                let line = Line::parse(&buffer[..at])?;
                if line.start >= end {
                    return Some(any);
                }
                if line.end > start && line.shared {
                    if !self.is_unsynced_path(line.path) {
                        return Some(false);
                    }
                    any = true;
                }
                buffer.copy_within(at + 1..len, 0);
                len -= at + 1;
            }
            if came == 0 {
                return Some(any);
            }
        }
    }
}

/// Whether a descriptor is a file's or a directory's: others cannot be synced, which the kernel says.
fn is_file(fd: usize) -> bool {
    let kind = pm::host::kind_of(fd as i32).map(|mode| u32::from(mode) & abi::S_IFMT);
    matches!(kind, Ok(abi::S_IFREG | abi::S_IFDIR))
}

/// A mapping, as `/proc/self/maps` has it.
struct Line<'a> {
    start: usize,
    end: usize,
    shared: bool,
    path: &'a [u8],
}

impl<'a> Line<'a> {
    /// `start-end rwxs offset device inode    path`
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut fields = line.splitn(FIELDS_BEFORE_PATH + 1, |&byte| byte == b' ');
        let mut range = fields.next()?.splitn(2, |&byte| byte == b'-').map(hexadecimal);
        let (start, end) = (range.next()??, range.next()??);
        let shared = fields.next()?.get(3) == Some(&b's');
        let path = fields.nth(FIELDS_BEFORE_PATH - 2).unwrap_or(b"").trim_ascii_start();
        Some(Line { start, end, shared, path })
    }
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of `/proc/self/maps` are understood, with blanks in a path and without a path.
    #[test]
    fn lines() {
        let line = Line::parse(b"7f00-8f00 rw-s 00000000 fe:01 1234                       /srv/a b").unwrap();
        assert_eq!((line.start, line.end, line.shared, line.path), (0x7f00, 0x8f00, true, &b"/srv/a b"[..]));
        let line = Line::parse(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((line.shared, line.path), (false, &b""[..]));
        assert!(Line::parse(b"nonsense").is_none());
    }
}
