//! `bypath pack IMG FILE` and `bypath restore FILE IMG`: an image as one compressed file, for caches of CI.
//!
//! ```text
//! "BYPATHPK" version 32 | 0 32 | length of the image 64 | then, by zstd with its checksum:
//!     offset 64 | length 32 | bytes …       parts that are not all zeros, in order
//!     length of the image 64 | 0 32         the end
//! ```
//! Numbers are little-endian. What is copied is the image's blocks, not its files: restoring makes no names.

use crate::attach;
use crate::failure::{Failure, Result};
use crate::progress::{self, Tally};
use crate::size;
use indicatif::ProgressBar;
use rustix::fs::{SeekFrom, seek};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

const MAGIC: &[u8; 8] = b"BYPATHPK";
const VERSION: u32 = 1;
/// Parts of an image; where all of one is zero it is left out.
const PART: u64 = 64 << 10;
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
    let written = to(target, |out| write(&file, before.len(), out, level, &bar), |error| Failure::io(target.display(), &error))?;
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
    let mut input: Box<dyn Read> = if source == Path::new("-") {
        Box::new(std::io::stdin().lock())
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
    let written = zstd::Decoder::new(input).and_then(|input| read(input, length, &part, &bar));
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
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<u64>,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64> {
    if target == Path::new("-") {
        return write(&mut std::io::stdout().lock()).map_err(failed);
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

/// The parts of the image that are not zero; how many bytes those are.
fn write(image: &File, length: u64, out: &mut dyn Write, level: i32, bar: &ProgressBar) -> std::io::Result<u64> {
    out.write_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4], &length.to_le_bytes()].concat())?;
    let mut packed = zstd::Encoder::new(out, level)?;
    packed.include_checksum(true)?;
    packed.multithread(std::thread::available_parallelism().map_or(1, |count| count.get() as u32))?;
    let mut tally = Tally::default();
    let (mut at, mut buffer) = (0, vec![0; PART as usize]);
    while at < length {
        let Ok(data) = seek(image, SeekFrom::Data(at)) else { break };
        let end = seek(image, SeekFrom::Hole(data))?.min(length);
        at = data;
        while at < end {
            let part = &mut buffer[..PART.min(end - at) as usize];
            image.read_exact_at(part, at)?;
            if part.iter().any(|&byte| byte != 0) {
                packed.write_all(&at.to_le_bytes())?;
                packed.write_all(&(part.len() as u32).to_le_bytes())?;
                packed.write_all(part)?;
                tally.bytes += part.len() as u64;
            }
            at += part.len() as u64;
            bar.inc(part.len() as u64);
        }
    }
    packed.write_all(&length.to_le_bytes())?;
    packed.write_all(&[0; 4])?;
    packed.finish()?;
    Ok(tally.bytes)
}

/// The same the other way, into a new file at `path`.
fn read(mut packed: impl Read, length: u64, path: &Path, bar: &ProgressBar) -> std::io::Result<u64> {
    let image = OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(path)?;
    image.set_len(length)?;
    let wrong = || std::io::Error::other("a part lies outside the image");
    let (mut written, mut buffer, mut head) = (0, vec![0; PART as usize], [0; 12]);
    loop {
        packed.read_exact(&mut head)?;
        let (at, len) = (number64(&head[..8]), number32(&head[8..]) as usize);
        if len == 0 {
            break;
        }
        let part = buffer.get_mut(..len).ok_or_else(wrong)?;
        if at.checked_add(len as u64).is_none_or(|end| end > length) {
            return Err(wrong());
        }
        packed.read_exact(part)?;
        image.write_all_at(part, at)?;
        written += len as u64;
        bar.set_message(size::show(written));
    }
    // To the end, where the checksum is.
    std::io::copy(&mut packed, &mut std::io::sink())?;
    Ok(written)
}

fn number64(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn number32(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}
