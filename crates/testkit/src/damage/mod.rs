//! Damaged images: [`damage`] repairs them and looks whether anything is lost
//! that was not hit; [`flips()`] turns single bits and looks whether that shows.
//!
//! Both write a fresh copy of one sample for each try, so a seed and a number
//! repeat it: `--seed S --from N --images 1`.

mod flips;
mod hurt;
mod reader;
mod tree;

pub use flips::flips;

use crate::image::fresh_path;
use crate::rng::Rng;
use engine::process::AttachError;
use engine::repair::{Repair, RepairError};
use reader::{Bytes, File};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tree::Sample;

/// What stops a program that hangs: seconds for one image.
const HANG_S: u64 = 60;

/// A copy of the sample that is written again for each try.
struct Copy {
    path: PathBuf,
    text: Vec<u8>,
    file: fs::File,
}

impl Copy {
    fn new(name: &str) -> Result<Copy, String> {
        let path = fresh_path(name);
        let shown = path.display().to_string();
        let options = &mut fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).map_err(|e| format!("{shown}: {e}"))?;
        let mut text = path.as_os_str().as_encoded_bytes().to_vec();
        text.push(0);
        Ok(Copy { path, text, file })
    }

    fn write(&self, image: &[u8], limit: u64, cut: Option<u64>) -> Result<(), String> {
        let written = self
            .file
            .set_len(image.len() as u64)
            .and_then(|()| self.file.write_all_at(image, 0))
            .and_then(|()| self.file.set_len(cut.unwrap_or(limit)));
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How the tries ended.
#[derive(Default)]
struct Tally {
    repaired: u64,
    clean: u64,
    dropped: u64,
    refused: BTreeMap<String, u64>,
}

/// Repairs `images` damaged images, number `from` first, for at most `seconds` if that is not 0.
///
/// # Errors
/// The first image that was not clean afterwards, or that lost what was not hit.
pub fn damage(seed: u64, from: u64, images: u64, seconds: u64) -> Result<String, String> {
    let sample = tree::sample(seed)?;
    let goal = reader::read(&sample.now).ok_or("the sample cannot be read")?;
    let copy = Copy::new("damaged")?;
    let mut tally = Tally::default();
    let begun = Instant::now();
    let progress = watch("damage", seed);
    let mut done = 0;
    for number in from..from + images {
        if seconds > 0 && begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        progress.store(number + 1, Relaxed);
        one(&sample, &goal, &copy, seed, number, &mut tally).map_err(|text| format!("seed {seed}, image {number}: {text}"))?;
        done += 1;
    }
    progress.store(0, Relaxed);
    let refused: Vec<String> = tally.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let (Tally { repaired, clean, dropped, .. }, refused) = (tally, refused.join(", "));
    Ok(format!(
        "damage: {done} images (seed {seed}): {repaired} repaired and clean ({dropped} of them gave something up), \
         {clean} needed no repair, refused: {refused}"
    ))
}

/// A thread that ends the program if one try takes too long; the try's number + 1 goes into the result.
fn watch(what: &'static str, seed: u64) -> &'static AtomicU64 {
    let now: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    std::thread::spawn(move || {
        let mut seen = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let number = now.load(Relaxed);
            if number != seen.0 {
                seen = (number, Instant::now());
            } else if number != 0 && seen.1.elapsed().as_secs() > HANG_S {
                println!("FAILED: {what}: seed {seed}, number {}: hangs", number - 1);
                std::process::exit(1);
            }
        }
    });
    now
}

fn one(
    sample: &Sample,
    goal: &BTreeMap<String, File>,
    copy: &Copy,
    seed: u64,
    number: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut image = sample.now.clone();
    let (hit, cut) = hurt::hurt(sample, &mut image, &mut rng);
    copy.write(&image, sample.limit, cut)?;
    let planned = std::panic::catch_unwind(|| Repair::plan(&copy.text, &mut |_| {})).map_err(|_| "the repair panics")?;
    let repair = match planned {
        Ok(repair) => repair,
        Err(RepairError::Open(AttachError::Truncated { .. } | AttachError::NotAnImage)) if cut.is_some() => {
            *tally.refused.entry("truncated".into()).or_default() += 1;
            return Ok(());
        }
        Err(RepairError::Open(error)) if hit.iter().any(|bytes| bytes.start < 0x3000) => {
            *tally.refused.entry(format!("({error})")).or_default() += 1;
            return Ok(());
        }
        Err(RepairError::NoSpace) => {
            *tally.refused.entry("full".into()).or_default() += 1;
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    if repair.is_needed() {
        tally.repaired += 1;
        tally.dropped += u64::from(repair.drops > 0);
    } else {
        tally.clean += 1;
    }
    repair.apply().map_err(|error| error.to_string())?;
    let actions: Vec<String> = repair.actions.iter().take(20).map(|action| format!("    {action}")).collect();
    drop(repair);
    let report = engine::check::run(&copy.text, &mut |_| {}).map_err(|error| error.to_string())?;
    if let Some(issue) = report.issues.first() {
        return Err(format!("not clean after the repair: {issue}\n{}", actions.join("\n")));
    }
    let after = fs::read(&copy.path).map_err(|error| error.to_string())?;
    compare(goal, &hit, &after).map_err(|text| format!("{text}\n  hit: {hit:x?}\n{}", actions.join("\n")))
}

/// What was not hit must be there: at its place if the way to it was not hit either.
fn compare(goal: &BTreeMap<String, File>, hit: &[Bytes], after: &[u8]) -> Result<(), String> {
    let found = reader::read(after).ok_or("the repaired image cannot be read")?;
    let somewhere: BTreeSet<(u8, u64)> = found.values().map(|file| (file.kind, file.sum)).collect();
    let is_hit = |all: &[Bytes]| all.iter().any(|own| hit.iter().any(|hit| own.start < hit.end && hit.start < own.end));
    for (path, file) in goal {
        if is_hit(&file.own) {
            continue;
        }
        let same = found.get(path).is_some_and(|now| now.kind == file.kind && now.sum == file.sum);
        if !same && !is_hit(&file.way) {
            return Err(format!("{path} was not hit, and is not what it was"));
        }
        if !same && !file.empty && !somewhere.contains(&(file.kind, file.sum)) {
            return Err(format!("the contents of {path}, which were not hit, are lost"));
        }
    }
    Ok(())
}
