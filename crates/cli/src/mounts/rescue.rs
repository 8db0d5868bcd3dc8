//! An image whose file may not be written, and that cannot be read in place (`in_place`), since it is damaged or was not
//! closed cleanly: the programs of a session share a copy of it, for as long as the session lives (decision 0067).
//!
//! The original is read twice where it tells whether it is in use and which
//! generation it has, before the copy and after: so the copy is a picture of
//! one instant, or it is refused.

use super::shared_file::{SharedFile, Whose};
use crate::attach;
use crate::failure::{Failure, Result};
use format::layout::{BLOCK, ROOT, VOLATILE};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes copied at a time; where all of them are zero nothing is written.
const STEP: u64 = 64 << 10;

/// Copies the image at `path`, which nobody may be using.
pub fn copy(path: &Path) -> Result<SharedFile> {
    attach::copied(path)?.leave();
    let shown = |error: &std::io::Error| Failure::io(path.display(), error);
    // Whatever lies there by now, nobody waits for it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let original = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(|error| shown(&error))?;
    let before = heads(&original).map_err(|error| shown(&error))?;
    let len = original.metadata().map_err(|error| shown(&error))?.len();
    let copy = SharedFile::make("rescue", len, Whose::Ours)?;
    let to = OpenOptions::new().write(true).open(copy.path()).map_err(|error| Failure::io(copy.path().display(), &error))?;
    let mut buffer = vec![0; STEP as usize];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..STEP.min(len - at) as usize];
        original.read_exact_at(part, at).map_err(|error| shown(&error))?;
        if part.iter().any(|byte| *byte != 0) {
            to.write_all_at(part, at).map_err(|error| no_room(path, copy.path(), &error))?;
        }
        at += part.len() as u64;
    }
    attach::copied(path)?.leave();
    if heads(&original).map_err(|error| shown(&error))? != before {
        return Err(Failure::new(format!("{}: it has been used while it was copied; try again", path.display())));
    }
    Ok(copy)
}

/// The root with its generation, and the volatile header.
pub fn heads(image: &File) -> std::io::Result<Vec<u8>> {
    let mut heads = vec![0; (VOLATILE + BLOCK - ROOT) as usize];
    image.read_exact_at(&mut heads, ROOT)?;
    Ok(heads)
}

pub fn no_room(path: &Path, copy: &Path, error: &std::io::Error) -> Failure {
    let directory = copy.parent().unwrap_or(copy).display();
    Failure::new(format!(
        "{}: its file is not writable, and what a session needs of it does not fit into {directory} ({error}); name another directory in BYPATH_SEGMENT_DIR",
        path.display()
    ))
}
