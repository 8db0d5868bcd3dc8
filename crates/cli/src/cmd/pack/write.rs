//! From an image into frames.

use super::{FRAME, FRAME_HIGH, MAGIC, PART, PART_HEAD, SKIPPED, VERSION, on_all_processors};
use indicatif::ProgressBar;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io::{Error, Result, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

/// The level from which on frames are large: the windows of those are larger than the small ones.
const HIGH: i32 = 6;

/// Writes the parts of the image that are not zero; how many bytes those are.
pub fn parts(image: &File, length: u64, out: &mut (dyn Write + Send), level: i32, bar: &ProgressBar) -> Result<u64> {
    out.write_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4], &length.to_le_bytes()].concat())?;
    let source = Mutex::new(Source { image, length, at: 0, data_end: 0, frames: 0 });
    let target = Target { state: Mutex::new(State { out, frames: 0, bytes: 0, failed: false }), moved_on: Condvar::new() };
    on_all_processors(|| pack(&source, &target, level, bar).inspect_err(|_| target.fail()))?;
    let (mut frame, frames) = (Frame::new(level)?, source.into_inner().unwrap_or_else(PoisonError::into_inner).frames);
    frame.plain.extend_from_slice(&length.to_le_bytes());
    frame.plain.extend_from_slice(&[0; 4]);
    frame.pack()?;
    target.write(frames, &frame)?;
    let state = target.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.out.flush()?;
    Ok(state.bytes)
}

/// Packs what there is to pack, a frame at a time.
fn pack(source: &Mutex<Source>, target: &Target, level: i32, bar: &ProgressBar) -> Result<()> {
    let (mut frame, mut ranges) = (Frame::new(level)?, Vec::new());
    let size = if level < HIGH { FRAME } else { FRAME_HIGH };
    loop {
        let (image, number) = {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(number) = source.take(size, &mut ranges)? else { return Ok(()) };
            (source.image, number)
        };
        frame.plain.clear();
        frame.bytes = 0;
        for &(at, len) in &ranges {
            frame.add(image, at, len)?;
        }
        frame.pack()?;
        if !target.write(number, &frame)? {
            return Ok(());
        }
        bar.inc(ranges.iter().map(|&(_, len)| len as u64).sum());
    }
}

/// The image, and how far its data have been given out.
struct Source<'a> {
    image: &'a File,
    length: u64,
    at: u64,
    /// Where the data end that `at` lies in.
    data_end: u64,
    /// Frames given out.
    frames: u64,
}

impl Source<'_> {
    /// Gives out the next parts, `size` bytes of them: offsets and lengths, and the frame's number. `None` at the end.
    fn take(&mut self, size: usize, ranges: &mut Vec<(u64, usize)>) -> Result<Option<u64>> {
        ranges.clear();
        let mut room = size;
        while room != 0 {
            if self.at >= self.data_end {
                let Ok(data) = seek(self.image, SeekFrom::Data(self.at)) else { break };
                if data >= self.length {
                    break;
                }
                self.data_end = seek(self.image, SeekFrom::Hole(data))?.min(self.length);
                self.at = data;
            }
            let len = (self.data_end - self.at).min(PART.min(room) as u64) as usize;
            ranges.push((self.at, len));
            self.at += len as u64;
            room -= len;
        }
        if ranges.is_empty() {
            return Ok(None);
        }
        self.frames += 1;
        Ok(Some(self.frames - 1))
    }
}

/// A frame under way; its memory serves the next one.
struct Frame {
    compressor: Compressor<'static>,
    plain: Vec<u8>,
    packed: Vec<u8>,
    /// Of the image, in it.
    bytes: u64,
}

impl Frame {
    fn new(level: i32) -> Result<Frame> {
        let mut compressor = Compressor::new(level)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Frame { compressor, plain: Vec::new(), packed: Vec::new(), bytes: 0 })
    }

    /// Adds a part of the image, unless all of it is zero.
    fn add(&mut self, image: &File, at: u64, len: usize) -> Result<()> {
        let head = self.plain.len();
        self.plain.extend_from_slice(&at.to_le_bytes());
        self.plain.extend_from_slice(&(len as u32).to_le_bytes());
        self.plain.resize(head + PART_HEAD + len, 0);
        let part = &mut self.plain[head + PART_HEAD..];
        image.read_exact_at(part, at)?;
        if part[0] == 0 && part[1..] == part[..len - 1] {
            self.plain.truncate(head);
        } else {
            self.bytes += len as u64;
        }
        Ok(())
    }

    fn pack(&mut self) -> Result<()> {
        self.packed.clear();
        self.packed.reserve(compress_bound(self.plain.len()));
        self.compressor.compress_to_buffer(&self.plain, &mut self.packed)?;
        Ok(())
    }
}

/// Where frames go, in their order.
struct Target<'a> {
    state: Mutex<State<'a>>,
    moved_on: Condvar,
}

struct State<'a> {
    out: &'a mut (dyn Write + Send),
    /// Written.
    frames: u64,
    bytes: u64,
    failed: bool,
}

impl Target<'_> {
    /// Writes a frame when those before it have been; whether it was, which it is not where another thread has failed.
    fn write(&self, number: u64, frame: &Frame) -> Result<bool> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut State| state.frames != number && !state.failed;
        let mut state = self.moved_on.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.failed {
            return Ok(false);
        }
        if !frame.plain.is_empty() {
            let len = u32::try_from(frame.packed.len()).map_err(Error::other)?;
            state.out.write_all(&SKIPPED)?;
            state.out.write_all(&len.to_le_bytes())?;
            state.out.write_all(&frame.packed)?;
        }
        state.frames += 1;
        state.bytes += frame.bytes;
        self.moved_on.notify_all();
        Ok(true)
    }

    fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.moved_on.notify_all();
    }
}
