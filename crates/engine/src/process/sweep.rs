//! Segments that nobody needs any more: their image is gone, or has another.
//!
//! A segment stays when its last user leaves. Whoever makes a new one looks
//! through the directory, for a short time, and removes those of his own whose image does
//! not name them (or is not there) and that nobody has mapped; and the mirrors (`crate::watch`) of those that are gone.
//!
//! What others have laid there is not opened, whatever its name: it could be a FIFO, or name a path that only we may open.

use super::join::{IMAGE_PATH, IMAGE_PATH_MAX, PREFIX};
use super::owner;
use crate::fs::Fs;
use crate::segment::{Header, MAGIC};
use crate::watch::mirror;
use core::mem::offset_of;
use format::Volatile;
use format::layout;
use pm::Errno;
use pm::file::{self, File, Stat};
use pm::sys::abi;

/// How long a sweep may take, nanoseconds.
const TIME: i64 = 1_000_000;
/// Seconds after which one that others may write goes, if nobody uses it.
const OLD: i64 = 86_400;
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
        while let Ok(Some(listed)) = list.listed(&mut entries) {
            if pm::clock::monotonic() > end {
                return;
            }
            for name in listed.flatten().map(|entry| entry.name.to_bytes()) {
                path[directory.len()] = b'/';
                let from = directory.len() + 1;
                let Some((name, mirrors)) = name.split_at_checked(NAME).filter(|(name, _)| is_segment(name)) else { continue };
                path[from..from + NAME].copy_from_slice(name);
                path[from + NAME..].fill(0);
                if mirrors.starts_with(mirror::SUFFIX) {
                    let is_gone = file::lstat(&path[..from + NAME + 1]).err() == Some(Errno::ENOENT);
                    let end = from + NAME + mirrors.len();
                    if (is_gone || mirrors.len() > mirror::SUFFIX.len()) && end < path.len() {
                        path[from + NAME..end].copy_from_slice(mirrors);
                        mirror::remove_at(&path[..end]);
                    }
                } else if mirrors.is_empty() && path != self.segment_path && self.is_needless(&path) {
                    let _ = file::unlink(&path[..from + NAME + 1]);
                }
            }
        }
    }

    /// Whether the segment at a path is ours and belongs to no image and to no living process.
    fn is_needless(&self, path: &[u8]) -> bool {
        let own = file::own_user();
        let is_ours = |stat: &Stat| stat.uid == own && stat.links == 1;
        let Ok((segment, stat)) = File::open_checked(path, abi::O_RDWR, is_ours) else { return false };
        if owner::word(&segment, 0) != Some(MAGIC) {
            return false;
        }
        let is_unwanted = if stat.mode & 0o022 == 0 {
            is_image_gone(&segment)
        } else {
            // Others have written what it says of its image, and could have us look at any path.
            pm::clock::now() / 1_000_000_000 - stat.modified > OLD
        };
        is_unwanted && segment.is_alone()
    }
}

/// Whether the image of a segment that only we have written is not there any more, or names another segment.
fn is_image_gone(segment: &File) -> bool {
    let mut path = [0u8; IMAGE_PATH_MAX + 1];
    match segment.read_at(&mut path[..IMAGE_PATH_MAX], IMAGE_PATH) {
        Ok(IMAGE_PATH_MAX) if path[0] == b'/' => {}
        _ => return false,
    }
    let Some([served, _]) = owner::served(segment) else { return false };
    let path = path.split_inclusive(|byte| *byte == 0).next().unwrap_or(b"\0");
    match File::open_known(path, abi::O_RDONLY, served) {
        Ok(image) => {
            let named = owner::word(&image, layout::VOLATILE + offset_of!(Volatile, token) as u64);
            named != owner::word(segment, offset_of!(Header, token) as u64)
        }
        // It may well be there, if it is another error.
        Err(errno) => errno == Errno::ENOENT || errno == Errno::ESTALE,
    }
}

fn is_segment(name: &[u8]) -> bool {
    name.len() == NAME && name.starts_with(&PREFIX[1..]) && name[PREFIX.len() - 1..].iter().all(u8::is_ascii_hexdigit)
}
