//! An image whose file may not be written, in a session: its programs read it where it lies. What the engine stores to is
//! in a file of the session's: everything but the contents of files (decision 0067, `engine::process::in_place`).

use super::rescue::{heads, no_room};
use super::shared_file::{SharedFile, Whose};
use crate::attach::{self, Attached, How};
use crate::check;
use crate::failure::{Failure, Result};
use engine::check::Contents;
use engine::process::in_place::{SUPERBLOCK, TAIL, tail};
use format::layout::{BITMAP, BLOCK, Layout, ROOT};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes copied at a time; where all of them are zero nothing is written.
const STEP: u64 = 256 << 10;

/// Attaches the image at `path` for as long as the second value lives: where its file may not be written, and it is only to
/// be read, by a file of this process's before it.
pub fn attach(path: &Path, how: How) -> Result<(Attached, Option<SharedFile>)> {
    if how.read_only
        && let Some(attached) = attach::attach_if_writable(path, how)?
    {
        return Ok((attached, None));
    }
    let before = if how.read_only { make(path)? } else { None };
    match before {
        Some(file) => Ok((attach::attach_as(file.path(), How { in_place: true, ..how })?, Some(file))),
        None => Ok((attach::attach_as(path, how)?, None)),
    }
}

/// Makes the session's file before the image at `path`, which nobody may be using; `None` if it has to be copied whole.
pub fn make(path: &Path) -> Result<Option<SharedFile>> {
    attach::copied(path)?.leave();
    let shown = |errno| Failure::errno(path.display(), errno);
    let whole = std::fs::canonicalize(path).map_err(|error| Failure::io(path.display(), &error))?;
    let text = [whole.as_os_str().as_bytes(), b"\0"].concat();
    let image = pm::file::File::open(&text, pm::sys::abi::O_RDONLY | pm::sys::abi::O_NONBLOCK, 0).map_err(shown)?;
    // Nobody begins to change it meanwhile; later its programs have this lock themselves.
    if image.lock_shared() == Err(pm::Errno::EAGAIN) {
        return Err(attach::refused(path, engine::process::AttachError::Locked));
    }
    let made = before(path, &whole, &image);
    image.unlock();
    made
}

fn before(path: &Path, whole: &Path, image: &pm::file::File) -> Result<Option<SharedFile>> {
    let stat = image.stat().map_err(|errno| Failure::errno(path.display(), errno))?;
    let read = |error: &std::io::Error| Failure::io(path.display(), error);
    let original = File::open(whole).map_err(|error| read(&error))?;
    let before = heads(&original).map_err(|error| read(&error))?;
    let Some(contents) = check::contents(whole)? else { return Ok(None) };
    let Contents { layout, grown, runs, others } = contents;
    let name = [whole.as_os_str().as_bytes(), b"\0"].concat();
    let file = SharedFile::make("rescue", layout.limit + TAIL, Whose::Ours)?;
    let to = OpenOptions::new().write(true).open(file.path()).map_err(|error| Failure::io(file.path().display(), &error))?;
    let write = |error: &std::io::Error| no_room(path, file.path(), error);
    let meta = to.metadata().map_err(|error| write(&error))?;
    let Some(tail) = tail([meta.dev(), meta.ino()], &stat, &name, &runs) else { return Ok(None) };
    let mut superblock = vec![0; size_of::<format::Superblock>()];
    original.read_exact_at(&mut superblock, first_whole(&original)).map_err(|error| read(&error))?;
    to.write_all_at(&superblock, SUPERBLOCK).map_err(|error| write(&error))?;
    to.write_all_at(&tail, layout.limit).map_err(|error| write(&error))?;
    let bitmap = Layout::bitmap_word(layout.first_block()) / BLOCK * BLOCK..Layout::bitmap_word(grown).next_multiple_of(BLOCK);
    let heads_and_tables = [ROOT..BITMAP, bitmap.start..bitmap.end.min(layout.blocks)];
    let blocks = others.iter().map(|run| run.block * BLOCK..(run.block + run.len) * BLOCK);
    for range in heads_and_tables.into_iter().chain(blocks) {
        copy(&original, &to, range).map_err(|error| match error {
            Stopped::Reading(error) => read(&error),
            Stopped::Writing(error) => write(&error),
        })?;
    }
    // Where no lock keeps others out.
    if heads(&original).map_err(|error| read(&error))? != before {
        return Err(Failure::new(format!("{}: it has been used while it was read; try again", path.display())));
    }
    Ok(Some(file))
}

/// Where the superblock's first whole copy is.
fn first_whole(original: &File) -> u64 {
    let mut magic = [0; 8];
    let is_whole = original.read_exact_at(&mut magic, 0).is_ok() && u64::from_le_bytes(magic) == format::superblock::MAGIC;
    if is_whole { 0 } else { format::layout::SUPERBLOCK_COPY }
}

enum Stopped {
    Reading(std::io::Error),
    Writing(std::io::Error),
}

fn copy(from: &File, to: &File, range: Range<u64>) -> std::result::Result<(), Stopped> {
    let mut buffer = vec![0; STEP.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let part = &mut buffer[..STEP.min(range.end - at) as usize];
        from.read_exact_at(part, at).map_err(Stopped::Reading)?;
        if part.iter().any(|byte| *byte != 0) {
            to.write_all_at(part, at).map_err(Stopped::Writing)?;
        }
        at += part.len() as u64;
    }
    Ok(())
}
