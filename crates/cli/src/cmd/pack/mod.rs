//! `bypath pack IMG FILE` and `bypath restore FILE IMG`: an image as one compressed file, for caches of CI.
//!
//! ```text
//! "BYPATHPK" version 32 | 0 32 | length of the image 64 | then, by zstd with its checksum:
//!     offset 64 | length 32 | bytes …       parts that are not all zeros, in order
//!     length of the image 64 | 0 32         the end
//! ```
//! Numbers are little-endian. What is copied is the image's blocks, not its files: restoring makes no names.
//!
//! The parts lie in frames of zstd's, which need nothing of each other: all processors pack and restore at once. Before each
//! stands a frame to be skipped that says its length, as pzstd's do; so one stream of zstd's reads all of it, and one that is
//! without these, as older versions have made, is read as a stream.

mod read;
mod write;

use crate::attach;
use crate::failure::{Failure, Result};
use crate::progress;
use crate::size;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

const MAGIC: &[u8; 8] = b"BYPATHPK";
const VERSION: u32 = 1;
/// Parts of an image; where all of one is zero it is left out.
const PART: usize = 64 << 10;
/// What stands before a part.
const PART_HEAD: usize = 12;
/// What a frame holds of an image, and what one of high levels does, which find what is alike further away.
const FRAME: usize = 2 << 20;
const FRAME_HIGH: usize = 32 << 20;
/// Before a frame: one to be skipped, of four bytes, which are the frame's length.
const SKIPPED: [u8; 8] = *b"\x50\x2a\x4d\x18\x04\0\0\0";
/// More processors than this only wait for each other.
const THREADS_MAX: usize = 16;
/// As large as an image gets (`bypath mkfs`).
const LENGTH_MAX: u64 = 16 << 40;

/// Packs the image, which nobody may be using.
pub fn pack(image: &Path, target: &Path, level: i32, quiet: bool) -> Result<u8> {
    let begun = Instant::now();
    attach::copied(image)?.leave();
    let failed = |error: std::io::Error| Failure::io(image.display(), &error);
    let file = File::open(image).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    let bar = progress::bar(quiet, "packing", before.blocks() * 512);
    let written =
        to(target, |out| write::parts(&file, before.len(), out, level, &bar), |error| Failure::io(target.display(), &error))?;
    bar.finish_and_clear();
    // As in a session on an image that is only read: a picture of one instant, or none.
    let check = attach::copied(image).map(|copy| copy.leave());
    let after = file.metadata().map_err(failed)?;
    if check.is_err() || (before.mtime(), before.mtime_nsec()) != (after.mtime(), after.mtime_nsec()) {
        let _ = std::fs::remove_file(target);
        return Err(Failure::new(format!("{}: it has been used while it was packed; try again", image.display())));
    }
    report(quiet, "packed", written, begun);
    Ok(0)
}

/// Makes an image of what was packed.
pub fn restore(source: &Path, image: &Path, force: bool, quiet: bool) -> Result<u8> {
    let begun = Instant::now();
    if !force && image.exists() {
        return Err(Failure::new(format!("{}: is there already; --force replaces it", image.display())));
    }
    let failed = |error: std::io::Error| Failure::new(format!("{}: broken off, or damaged: {error}", source.display()));
    let mut input: Box<dyn Read + Send> = if source == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(source).map_err(|error| Failure::io(source.display(), &error))?)
    };
    let mut head = [0; 24];
    input.read_exact(&mut head).map_err(failed)?;
    let (version, length) = (number32(&head[8..12]), number64(&head[16..24]));
    if &head[..8] != MAGIC || version != VERSION || length > LENGTH_MAX {
        return Err(Failure::new(format!("{}: not what `bypath pack` of this version makes", source.display())));
    }
    let bar = progress::bar(quiet, "restoring", 0);
    let part = PathBuf::from(format!("{}.part", image.display()));
    let written = read::parts(input, length, &part, &bar);
    bar.finish_and_clear();
    let written = written.and_then(|written| std::fs::rename(&part, image).map(|()| written)).map_err(|error| {
        let _ = std::fs::remove_file(&part);
        if error.raw_os_error().is_some() { Failure::io(image.display(), &error) } else { failed(error) }
    })?;
    // Whatever it says, it must be an image.
    attach::copied(image)?.leave();
    report(quiet, "restored", written, begun);
    Ok(0)
}

fn report(quiet: bool, what: &str, bytes: u64, begun: Instant) {
    if !quiet {
        eprintln!("{what} {} in {:.2} s", size::show(bytes), begun.elapsed().as_secs_f64());
    }
}

/// Writes to a file, which is there whole or not at all, or to standard output (`-`).
fn to(
    target: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> std::io::Result<u64>,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64> {
    if target == Path::new("-") {
        return write(&mut std::io::stdout()).map_err(failed);
    }
    let part = PathBuf::from(format!("{}.part", target.display()));
    let written = File::create(&part)
        .and_then(|mut file| write(&mut file))
        .and_then(|written| std::fs::rename(&part, target).map(|()| written));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

/// Has all processors do `work`, which shares what there is to do; the first failure of any.
fn on_all_processors(work: impl Fn() -> std::io::Result<()> + Sync) -> std::io::Result<()> {
    let others = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX) - 1;
    thread::scope(|scope| {
        // Where no thread can be had, this one does it all.
        let others: Vec<_> = (0..others).filter_map(|_| thread::Builder::new().spawn_scoped(scope, &work).ok()).collect();
        let own = work();
        let join = |other: thread::ScopedJoinHandle<'_, _>| other.join().unwrap_or_else(|panic| resume_unwind(panic));
        others.into_iter().map(join).fold(own, std::io::Result::and)
    })
}

fn number64(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn number32(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}
