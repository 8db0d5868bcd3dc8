//! Single bits of metadata turned: does it show?

use super::reader::{self, File};
use super::{Copy, tree, watch};
use crate::rng::Rng;
use format::layout::{BITMAP, BLOCK, LANE_AREA, LINE, ORPHAN_TABLE, PERMISSION_TABLE, ROOT};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What became of flips in one area.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// The check finds it, or the image is refused.
    detected: u64,
    /// Everything reads as before.
    harmless: u64,
    /// Something that no checksum covers reads differently: a time, a length, an owner, a text.
    silent: u64,
}

/// Turns `count` bits of metadata, one at a time, for at most `seconds` if that is not 0.
///
/// # Errors
/// A flip that panics, hangs, or changes names or contents of files unnoticed.
pub fn flips(seed: u64, count: u64, seconds: u64) -> Result<String, String> {
    let sample = tree::sample(seed)?;
    let goal = reader::read(&sample.now).ok_or("the sample cannot be read")?;
    let copy = Copy::new("flipped")?;
    copy.write(&sample.now, sample.limit, None)?;
    let mut image = sample.now.clone();
    let mut rng = Rng::new(seed);
    let mut outcomes: BTreeMap<&str, Outcome> = BTreeMap::new();
    let mut differences: BTreeMap<&str, u64> = BTreeMap::new();
    let begun = Instant::now();
    let progress = watch("flips", seed);
    let mut done = 0;
    for number in 0..count {
        if seconds > 0 && begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        progress.store(number + 1, Relaxed);
        let at = rng.pick(&sample.lines) + rng.below(LINE);
        let bit = 1u8 << rng.below(8);
        let put = |byte: u8| copy.file.write_all_at(&[byte], at).map_err(|error| error.to_string());
        put(image[at as usize] ^ bit)?;
        let checked = std::panic::catch_unwind(|| engine::check::run(&copy.text, &mut |_| {}))
            .map_err(|_| format!("seed {seed}, flip {number}: bit {bit:#x} of byte {at:#x}: the check panics"))?;
        let outcome = outcomes.entry(area(at)).or_default();
        match checked {
            Ok(report) if report.issues.is_empty() => {
                image[at as usize] ^= bit;
                let found = unnoticed(&goal, &image);
                image[at as usize] ^= bit;
                match found.map_err(|text| format!("seed {seed}, flip {number}: bit {bit:#x} of byte {at:#x}: {text}"))? {
                    None => outcome.harmless += 1,
                    Some(what) => {
                        outcome.silent += 1;
                        *differences.entry(what).or_default() += 1;
                    }
                }
            }
            _ => outcome.detected += 1,
        }
        put(image[at as usize])?;
        done += 1;
    }
    progress.store(0, Relaxed);
    let lines: Vec<String> = outcomes
        .iter()
        .map(|(area, o)| format!("\n    {area}: {} detected, {} harmless, {} silent", o.detected, o.harmless, o.silent))
        .collect();
    let silent: Vec<String> = differences.iter().map(|(what, count)| format!("\n    silent: {count} of {what}")).collect();
    Ok(format!(
        "flips: {done} single bits of metadata (seed {seed}), no panic, no name or map changed unnoticed:{}{}",
        lines.concat(),
        silent.concat()
    ))
}

/// After a flip that the check does not see: `None` if everything reads as
/// before, else what differs, which no checksum covers.
fn unnoticed(goal: &BTreeMap<String, File>, image: &[u8]) -> Result<Option<&'static str>, String> {
    let found = reader::read(image).ok_or("the check sees nothing, and the image cannot be read")?;
    if !goal.keys().eq(found.keys()) {
        return Err("names differ, and the check sees nothing".into());
    }
    let mut difference = None;
    for (was, is) in goal.values().zip(found.values()) {
        if was.kind != is.kind {
            return Err("a kind differs, and the check sees nothing".into());
        }
        difference = difference.or(match was.words.iter().zip(&is.words).position(|(was, is)| was != is) {
            Some(0) => Some("owners and modes"),
            Some(1) => Some("lengths"),
            Some(2 | 3) => Some("times"),
            Some(_) => Some("what few files have: a time of access or birth, a device number"),
            None if was.words.len() != is.words.len() => Some("whether there is a cold line"),
            None if was.sum != is.sum => Some("texts of symbolic links"),
            None => None,
        });
    }
    Ok(difference)
}

fn area(at: u64) -> &'static str {
    match at {
        0..ROOT => "superblocks",
        ROOT..LANE_AREA => "root",
        LANE_AREA..PERMISSION_TABLE => "lanes",
        PERMISSION_TABLE..ORPHAN_TABLE => "permission table",
        ORPHAN_TABLE..BITMAP => "orphan table",
        at if at < BITMAP + (16 << 20) / BLOCK * 8 => "bitmap",
        _ => "index, inodes, edentries, slots, nodes, texts",
    }
}
