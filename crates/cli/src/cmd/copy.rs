//! `bypath copy IMG NEW`: an image as it is at one instant, while it is in use.
//!
//! Nobody is held up: the file is copied (by the file system below, where that can share), then looked at again and again, and
//! what has changed is copied once more. When two looks at all of it have found it as it was, and no lane has made a record from the
//! beginning of the one to the end of the other, the copy is the image as it was between the two. What was under way
//! then is finished or forgotten when the copy is attached, as after a death.

use super::print_json;
use crate::attach;
use crate::failure::{Failure, Result};
use crate::mounts::cache::refuse_alone;
use crate::progress;
use crate::size;
use format::layout::{LANE_AREA, LANE_BYTES, LANES};
use indicatif::ProgressBar;
use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Parts of an image that are read at a time, and those of them that are written alone.
const PART: usize = 256 << 10;
const PAGE: usize = 4096;

/// How it is copied, and what is said.
#[derive(Clone, Copy)]
pub struct Options {
    /// Replace the file that is there.
    pub force: bool,
    /// Seconds that it may take until the image has been at rest.
    pub wait: u64,
    /// As JSON.
    pub json: bool,
    /// Nothing.
    pub quiet: bool,
}

#[derive(Serialize)]
struct Copied {
    image: String,
    copy: String,
    /// Bytes in use of the copy, and whether the file system below shares them.
    bytes: u64,
    shared: bool,
    /// Looks at all of the image.
    looks: u32,
    seconds: f64,
}

/// Copies an image.
pub fn copy(image: &Path, target: &Path, options: Options) -> Result<u8> {
    if !options.force && target.exists() {
        return Err(Failure::new(format!("{}: is there already; --force replaces it", target.display())));
    }
    if let (Some(host), true) = attach::host(image)? {
        return Err(Failure::new(format!("{}: another machine uses it, {}; copy it there", image.display(), host.name())));
    }
    let looked = attach::copied_beside(image)?;
    let refused = refuse_alone(looked.fs, image);
    looked.leave();
    refused?;
    let begun = Instant::now();
    let part = PathBuf::from(format!("{}.part", target.display()));
    let bar = progress::bar(options.quiet || options.json, "copying", 0);
    let made = make(image, &part, options.wait, &bar).and_then(|made| {
        // Whatever it is, it must be an image.
        attach::copied(&part)?.leave();
        std::fs::rename(&part, target).map_err(|error| Failure::io(target.display(), &error))?;
        Ok(made)
    });
    bar.finish_and_clear();
    let Made { shared, looks, bytes } = made.inspect_err(|_| drop(std::fs::remove_file(&part)))?;
    let seconds = begun.elapsed().as_secs_f64();
    if options.json {
        let (image, copy) = (image.display().to_string(), target.display().to_string());
        print_json(&Copied { image, copy, bytes, shared, looks, seconds })?;
    } else if !options.quiet {
        let how = if shared { ", shared below" } else { "" };
        eprintln!("copied {}{how} in {seconds:.2} s", size::show(bytes));
    }
    Ok(0)
}

struct Made {
    shared: bool,
    looks: u32,
    bytes: u64,
}

fn make(image: &Path, part: &Path, wait: u64, bar: &ProgressBar) -> Result<Made> {
    let from_failed = |error: io::Error| Failure::io(image.display(), &error);
    let to_failed = |error: io::Error| Failure::io(part.display(), &error);
    let from = File::open(image).map_err(from_failed)?;
    let mode = from.metadata().map_err(from_failed)?.mode() & 0o777;
    let mut new = OpenOptions::new();
    let to = new.read(true).write(true).create(true).truncate(true).mode(mode).open(part).map_err(to_failed)?;
    let shared = ioctl_ficlone(&to, &from).is_ok();
    let (end, mut looks) = (Instant::now() + Duration::from_secs(wait), 0);
    // Since when nothing has changed: what the lanes said then.
    let mut since = None;
    loop {
        let lanes = sequences(&from).map_err(from_failed)?;
        let changed = look(&from, &to, bar).map_err(to_failed)?;
        looks += 1;
        if changed == 0 && since.as_ref() == Some(&sequences(&from).map_err(from_failed)?) {
            break;
        }
        // What this look has left is as it was at some time during it.
        since = Some(lanes);
        if Instant::now() > end && looks > 2 {
            return Err(Failure::new(format!(
                "{}: was never at rest for as long as two looks at it take; try again when less is written to it, or give --wait more \
                 seconds",
                image.display()
            )));
        }
    }
    to.sync_data().map_err(to_failed)?;
    let bytes = to.metadata().map_err(to_failed)?.blocks() * 512;
    Ok(Made { shared, looks, bytes })
}

/// What the lanes say: each record of anybody's changes one of these words.
fn sequences(image: &File) -> io::Result<Vec<u64>> {
    let mut words = Vec::new();
    let mut word = [0; 8];
    for lane in 0..u64::from(LANES) {
        image.read_exact_at(&mut word, LANE_AREA + lane * LANE_BYTES)?;
        words.push(u64::from_ne_bytes(word));
    }
    Ok(words)
}

/// Copies what is not the same in the copy; how many pages that were.
fn look(from: &File, to: &File, bar: &ProgressBar) -> io::Result<u64> {
    let length = from.metadata()?.len();
    if to.metadata()?.len() != length {
        to.set_len(length)?;
    }
    let (mut at, mut changed) = (0, 0);
    let (mut new, mut old) = (vec![0; PART], vec![0; PART]);
    while at < length {
        let data = [from, to].map(|file| seek(file, SeekFrom::Data(at)).unwrap_or(length));
        at = data[0].min(data[1]) / PAGE as u64 * PAGE as u64;
        if at >= length {
            break;
        }
        let len = (PART as u64).min(length - at) as usize;
        from.read_exact_at(&mut new[..len], at)?;
        to.read_exact_at(&mut old[..len], at)?;
        if new[..len] != old[..len] {
            for page in (0..len).step_by(PAGE) {
                let range = page..(page + PAGE).min(len);
                if new[range.clone()] != old[range.clone()] {
                    to.write_all_at(&new[range], at + page as u64)?;
                    changed += 1;
                }
            }
        }
        at += len as u64;
        if !bar.is_hidden() {
            bar.set_message(format!("{} of {} looked at", size::show(at), size::show(length)));
        }
    }
    Ok(changed)
}
