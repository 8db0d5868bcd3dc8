//! What two moments differ by: per second.

use super::sample::{Image, Process, Sample};
use std::collections::HashMap;

/// Counts as they were at a moment.
#[derive(Default)]
pub struct Rates {
    calls: HashMap<(String, Option<u32>), u64>,
    changes: HashMap<(String, Option<u32>), u64>,
    lanes: HashMap<(String, u32), u32>,
    seconds: f64,
    now: HashMap<(String, Option<u32>), (f64, f64)>,
}

impl Rates {
    /// Takes note of a moment, `seconds` after the one before.
    pub fn note(&mut self, sample: &Sample, seconds: f64) {
        self.seconds = seconds;
        self.now.clear();
        for image in &sample.images {
            let whole = (image.image.clone(), None);
            self.add(whole.clone(), image.calls.all(), Some(image.changes));
            for process in &image.processes {
                self.add((image.image.clone(), Some(process.pid)), process.calls, None);
            }
            self.note_lanes(image);
        }
    }

    fn add(&mut self, key: (String, Option<u32>), calls: u64, changes: Option<u64>) {
        let per_second = |before: Option<u64>, now: u64| match before {
            Some(before) if now >= before && self.seconds > 0.0 => (now - before) as f64 / self.seconds,
            // The first moment; or counts that have begun anew.
            _ => 0.0,
        };
        let calls_rate = per_second(self.calls.insert(key.clone(), calls), calls);
        let changes_rate = changes.map_or(0.0, |changes| per_second(self.changes.insert(key.clone(), changes), changes));
        self.now.insert(key, (calls_rate, changes_rate));
    }

    /// A lane's changes are those of the process that has it now.
    fn note_lanes(&mut self, image: &Image) {
        for &(lane, slot, count) in &image.lanes {
            let Some(before) = self.lanes.insert((image.image.clone(), lane), count) else { continue };
            let Some(process) = slot.and_then(|slot| image.processes.iter().find(|process| process.slots.contains(&slot))) else {
                continue;
            };
            if let Some((_, changes)) = self.now.get_mut(&(image.image.clone(), Some(process.pid)))
                && self.seconds > 0.0
            {
                *changes += f64::from(count.wrapping_sub(before)) / self.seconds;
            }
        }
    }

    /// Calls and changes of an image.
    pub fn of_image(&self, image: &Image) -> (f64, f64) {
        self.now.get(&(image.image.clone(), None)).copied().unwrap_or_default()
    }

    /// Calls and changes of a process.
    pub fn of_process(&self, image: &Image, process: &Process) -> (f64, f64) {
        self.now.get(&(image.image.clone(), Some(process.pid))).copied().unwrap_or_default()
    }
}

/// A rate in few letters.
pub fn short(rate: f64) -> String {
    match rate {
        rate if rate < 9.95 && rate > 0.0 => format!("{rate:.1}"),
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate if rate < 9_999_500.0 => format!("{:.0}k", rate / 1e3),
        rate => format!("{:.0}M", rate / 1e6),
    }
}
