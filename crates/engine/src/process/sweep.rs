//! Segments that nobody needs any more: their image is gone, or has another.
//!
//! A segment stays when its last user leaves. Whoever makes a new one looks
//! through the directory, for a short time, and removes those whose image does
//! not name them (or is not there) and whose users are all known to be dead.

use super::join::{IMAGE_PATH, PREFIX};
use super::kernel;
use crate::fs::Fs;
use crate::segment::{Header, MAGIC, ProcessSlot};
use core::mem::offset_of;
use format::Volatile;
use format::layout::{self, PROCESSES};
use pm::Errno;
use pm::file::{self, File};
use pm::sys::abi;

/// How long a sweep may take, nanoseconds.
const TIME: i64 = 1_000_000;
/// Length of a segment's file name.
const NAME: usize = PREFIX.len() - 1 + 16;

impl Fs {
    /// Removes segments in `directory` that nobody needs.
    pub(super) fn sweep(&self, directory: &[u8]) {
        let mut path = [0u8; 256];
        path[..directory.len()].copy_from_slice(directory);
        let Ok(list) = File::open(&path, abi::O_RDONLY | abi::O_DIRECTORY, 0) else { return };
        let end = pm::clock::monotonic().saturating_add(TIME);
        let mut entries = [0u8; 2048];
        while let Ok(len) = list.entries(&mut entries) {
            if len == 0 || pm::clock::monotonic() > end {
                return;
            }
            for name in names(&entries[..len]).filter(|name| is_segment(name)) {
                path[directory.len()] = b'/';
                let from = directory.len() + 1;
                path[from..from + NAME].copy_from_slice(name);
                path[from + NAME] = 0;
                if path != self.segment_path && self.is_needless(&path) {
                    let _ = file::unlink(&path[..from + NAME + 1]);
                }
            }
        }
    }

    /// Whether the segment at a path belongs to no image and to no living process.
    fn is_needless(&self, path: &[u8]) -> bool {
        let Ok(segment) = File::open(path, abi::O_RDONLY | abi::O_NOFOLLOW, 0) else { return false };
        if word(&segment, 0) != Some(MAGIC) {
            return false;
        }
        let mut image = [0u8; 2048];
        match segment.read_at(&mut image[..2047], IMAGE_PATH) {
            Ok(2047) if image[0] == b'/' => {}
            _ => return false,
        }
        let token = word(&segment, offset_of!(Header, token) as u64);
        let named = match File::open(&image, abi::O_RDONLY, 0) {
            Ok(image) => word(&image, layout::VOLATILE + offset_of!(Volatile, token) as u64),
            Err(Errno::ENOENT) => None,
            // It may well be there.
            Err(_) => return false,
        };
        named != token && self.has_no_users(&segment)
    }

    /// Whether every process in the table of a segment is known to be dead.
    fn has_no_users(&self, segment: &File) -> bool {
        let Some(high) = word(segment, offset_of!(Header, processes_high) as u64 & !7) else { return false };
        // Two half-words: which one is a matter of alignment.
        let high = (high >> (offset_of!(Header, processes_high) % 8 * 8)) as u32;
        (0..high.min(PROCESSES)).all(|number| {
            // The place of the table does not depend on the image's size.
            let at = self.areas.processes + u64::from(number) * size_of::<ProcessSlot>() as u64;
            let field = |offset: usize| word(segment, at + offset as u64);
            let Some(head) = field(offset_of!(ProcessSlot, state)) else { return false };
            let (Some(namespace), Some(started)) =
                (field(offset_of!(ProcessSlot, pid_namespace)), field(offset_of!(ProcessSlot, started)))
            else {
                return false;
            };
            head as u32 == 0 || kernel::lives((head >> 32) as u32, namespace, started) == Some(false)
        })
    }
}

fn word(file: &File, at: u64) -> Option<u64> {
    let mut bytes = [0u8; 8];
    file.read_at(&mut bytes, at).ok().filter(|len| *len == 8)?;
    Some(u64::from_ne_bytes(bytes))
}

fn is_segment(name: &[u8]) -> bool {
    name.len() == NAME && name.starts_with(&PREFIX[1..]) && name[PREFIX.len() - 1..].iter().all(u8::is_ascii_hexdigit)
}

/// The names in what the kernel's `getdents64` has returned.
fn names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes([*entries.get(16)?, *entries.get(17)?]));
        let entry = entries.get(..len).filter(|entry| entry.len() > 19)?;
        entries = &entries[len..];
        entry[19..].split(|byte| *byte == 0).next()
    })
}
