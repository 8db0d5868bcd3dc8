//! Instructions a call, by callgrind.

use super::Scratch;
use super::call::{CALLS, FLAT, caller, nothing_in};
use std::collections::BTreeMap;
use std::path::Path;

/// Calls of the first count; the second has twice as many.
const N: usize = 200;

/// Every call, in the order of [`CALLS`], without its caller.
pub fn measure(scratch: &Scratch, image: &Path) -> Result<Vec<(&'static str, f64)>, String> {
    let totals = run(scratch, &["callgrind", &N.to_string()], image)?;
    let costs = pair(CALLS.iter().map(|(name, _)| *name).collect(), &totals)?;
    let all: BTreeMap<_, _> = costs.iter().copied().collect();
    let callers = |name| all.get(caller(name)).copied().unwrap_or_default() - nothing_in(caller(name)).instructions;
    let own = |(name, cost)| (name, cost - callers(name));
    Ok(costs.into_iter().map(own).collect())
}

/// The calls of [`FLAT`] in a directory.
pub fn measure_in(scratch: &Scratch, image: &Path, directory: &str) -> Result<Vec<(&'static str, f64)>, String> {
    measure_some(scratch, &["in", directory], image)
}

/// The calls of [`FLAT`] by absolute paths, in one of the [`SETTINGS`](super::call::SETTINGS).
pub fn measure_among(scratch: &Scratch, image: &Path, setting: &str) -> Result<Vec<(&'static str, f64)>, String> {
    measure_some(scratch, &["among", setting], image)
}

fn measure_some(scratch: &Scratch, worker: &[&str], image: &Path) -> Result<Vec<(&'static str, f64)>, String> {
    let totals = run(scratch, &[worker, &[&N.to_string()]].concat(), image)?;
    pair(CALLS.iter().map(|(name, _)| *name).filter(|name| FLAT.contains(name)).collect(), &totals)
}

fn pair(names: Vec<&'static str>, totals: &[u64]) -> Result<Vec<(&'static str, f64)>, String> {
    if totals.len() != names.len() * 2 {
        return Err(format!("callgrind gave {} counts for {} calls", totals.len(), names.len()));
    }
    let each = |pair: &[u64]| (pair[1].saturating_sub(pair[0])) as f64 / N as f64;
    Ok(names.into_iter().zip(totals.chunks(2).map(each)).collect())
}

/// Runs the worker; instructions of each pass through the counted function.
fn run(scratch: &Scratch, worker: &[&str], image: &Path) -> Result<Vec<u64>, String> {
    let prefix = scratch.0.join("callgrind.out");
    for old in std::fs::read_dir(&scratch.0).map_err(|e| e.to_string())?.flatten() {
        if old.file_name().to_string_lossy().starts_with("callgrind.out") {
            let _ = std::fs::remove_file(old.path());
        }
    }
    let tool = [
        "--tool=callgrind".to_string(),
        "--collect-atstart=no".into(),
        "--toggle-collect=bypath_measured".into(),
        "--dump-after=bypath_measured".into(),
        format!("--callgrind-out-file={}", prefix.display()),
    ];
    let output = scratch.valgrind(&tool, worker, image)?.output().map_err(|e| format!("valgrind: {e}"))?;
    if !output.status.success() {
        return Err(format!("valgrind: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let mut totals = Vec::new();
    for part in 1.. {
        let path = scratch.0.join(format!("callgrind.out.{part}"));
        let Ok(text) = std::fs::read_to_string(&path) else { break };
        // The last dump is made at the end of the program, and is empty.
        let trigger = text.lines().any(|line| line.starts_with("desc: Trigger: --dump-after="));
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")));
        if trigger {
            totals.push(total.and_then(|t| t.trim().parse().ok()).unwrap_or(0));
        }
    }
    Ok(totals)
}
