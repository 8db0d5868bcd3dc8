//! From frames into an image.

use super::{FRAME_HIGH, PART, PART_HEAD, SKIPPED, number32, number64, on_all_processors};
use crate::size;
use indicatif::ProgressBar;
use std::fs::{File, OpenOptions};
use std::io::{Cursor, Error, ErrorKind, Read, Result, copy, sink};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zstd::bulk::Decompressor;
use zstd::zstd_safe::{compress_bound, get_frame_content_size};

/// As long as a frame gets when it is plain: between holes parts may be short.
const PLAIN_MAX: usize = FRAME_HIGH + FRAME_HIGH / 512 * PART_HEAD;

/// Writes what has been packed into a new file at `path`; how many bytes.
pub fn parts(mut input: Box<dyn Read + Send>, length: u64, path: &Path, bar: &ProgressBar) -> Result<u64> {
    let image = OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(path)?;
    image.set_len(length)?;
    let target = Target { image, length, written: AtomicU64::new(0), bar };
    let mut first = [0; SKIPPED.len()];
    input.read_exact(&mut first)?;
    let input = Cursor::new(first).chain(input);
    if first == SKIPPED {
        frames(input, &target)?;
    } else {
        stream(zstd::Decoder::new(input)?, &target)?;
    }
    Ok(target.written.into_inner())
}

/// Restores what is in frames.
fn frames(input: impl Read + Send, target: &Target) -> Result<()> {
    let source = Mutex::new(Source { input, frames: 0, end: None, failed: false });
    on_all_processors(|| restore(&source, target).inspect_err(|_| lock(&source).failed = true))?;
    let source = source.into_inner().unwrap_or_else(PoisonError::into_inner);
    if source.end.is_some_and(|end| end + 1 == source.frames) { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// Restores a frame after another, while other threads do so with those between.
fn restore(source: &Mutex<Source<impl Read>>, target: &Target) -> Result<()> {
    let (mut packed, mut plain) = (Vec::new(), Vec::new());
    let mut decompressor = Decompressor::new()?;
    loop {
        let Some(number) = lock(source).take(&mut packed)? else { return Ok(()) };
        let len = get_frame_content_size(&packed).ok().flatten().unwrap_or(u64::MAX);
        if len > PLAIN_MAX as u64 {
            return Err(Error::other("a frame is too long"));
        }
        plain.clear();
        plain.reserve(len as usize);
        decompressor.decompress_to_buffer(&packed, &mut plain)?;
        if target.write_all(&plain)? {
            lock(source).end = Some(number);
        }
    }
}

/// What is to be restored.
struct Source<R> {
    input: R,
    /// Given out.
    frames: u64,
    /// The frame that says that it is the last one.
    end: Option<u64>,
    /// Another thread has failed.
    failed: bool,
}

fn lock<R>(source: &Mutex<Source<R>>) -> MutexGuard<'_, Source<R>> {
    source.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Read> Source<R> {
    /// Reads the next frame: its number. `None` after the last one.
    fn take(&mut self, packed: &mut Vec<u8>) -> Result<Option<u64>> {
        let mut head = Vec::with_capacity(SKIPPED.len() + 4);
        if self.failed || self.input.by_ref().take(SKIPPED.len() as u64 + 4).read_to_end(&mut head)? == 0 {
            return Ok(None);
        }
        let Some(len) = head.strip_prefix(&SKIPPED).map(|len| number32(len) as usize) else {
            return Err(Error::other("no frame where one begins"));
        };
        if len > compress_bound(PLAIN_MAX) {
            return Err(Error::other("a frame is too long"));
        }
        packed.resize(len, 0);
        self.input.read_exact(packed)?;
        self.frames += 1;
        Ok(Some(self.frames - 1))
    }
}

/// Restores what is one stream.
fn stream(mut packed: impl Read, target: &Target) -> Result<()> {
    let (mut buffer, mut head) = (vec![0; PART], [0; PART_HEAD]);
    loop {
        packed.read_exact(&mut head)?;
        let (at, len) = part_head(&head);
        if len == 0 {
            break;
        }
        let part = buffer.get_mut(..len).ok_or_else(outside)?;
        packed.read_exact(part)?;
        target.write(at, part)?;
    }
    // To the end, where the checksum is.
    copy(&mut packed, &mut sink()).map(drop)
}

/// The new image.
struct Target<'a> {
    image: File,
    length: u64,
    written: AtomicU64,
    bar: &'a ProgressBar,
}

impl Target<'_> {
    /// Writes the parts of a frame; whether the end stands in it.
    fn write_all(&self, mut plain: &[u8]) -> Result<bool> {
        while let Some((head, rest)) = plain.split_at_checked(PART_HEAD) {
            let (at, len) = part_head(head);
            if len == 0 {
                return Ok(true);
            }
            let (part, rest) = rest.split_at_checked(len).ok_or_else(outside)?;
            self.write(at, part)?;
            plain = rest;
        }
        if plain.is_empty() { Ok(false) } else { Err(outside()) }
    }

    fn write(&self, at: u64, part: &[u8]) -> Result<()> {
        if at.checked_add(part.len() as u64).is_none_or(|end| end > self.length) {
            return Err(outside());
        }
        self.image.write_all_at(part, at)?;
        let written = self.written.fetch_add(part.len() as u64, Relaxed) + part.len() as u64;
        if !self.bar.is_hidden() {
            self.bar.set_message(size::show(written));
        }
        Ok(())
    }
}

fn part_head(head: &[u8]) -> (u64, usize) {
    (number64(&head[..8]), number32(&head[8..]) as usize)
}

fn outside() -> Error {
    Error::other("a part lies outside")
}
