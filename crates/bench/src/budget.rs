//! Budgets: instructions and distinct cache lines of single calls, which are
//! the same at every run where times are not.
//!
//! `budgets` starts itself under valgrind as a worker. Instructions: callgrind
//! counts inside one function that makes a call N times, then 2 N times; the
//! difference is what N calls cost. Lines: lackey prints every access; between
//! two stores to a known word lies one warm call.
//!
//! The budgets themselves are in `budgets.toml`.

pub(crate) mod call;
mod callgrind;
pub(crate) mod lackey;

pub use call::serve;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `budgets.toml`.
#[derive(Deserialize)]
struct File {
    call: Vec<Budget>,
}

/// What one call may cost.
#[derive(Deserialize)]
struct Budget {
    name: String,
    /// Instructions.
    instructions: u64,
    /// Distinct 64-byte lines of code and of data.
    lines: Option<[u64; 2]>,
    /// Bytes copied, whose cost comes on top.
    copy: Option<u64>,
    /// Of a call that is over its budget, and known to be: what it costs, so that it does not get worse unseen.
    known: Option<u64>,
    /// The same of its lines.
    known_lines: Option<[u64; 2]>,
}

/// Lines of code that depend on where the linker lays functions, which a path or a change elsewhere moves:
/// the same instructions of a rename took 153 to 161 in four builds.
const LAYOUT: u64 = 4;

/// A figure within this factor of its budget is met.
const SLACK: f64 = 1.15;

/// What is known to be over its budget may differ by this factor from one build to another.
const KNOWN: f64 = 1.05;

impl Budget {
    /// Whether a cost is within the budget; `copy`: what the copy that is part of the call costs by itself.
    fn allows(&self, cost: &Cost, copy: f64) -> bool {
        cost.is_within(self.instructions, self.lines, SLACK, copy)
    }

    /// Whether it is over the budget no further than is known.
    fn knows(&self, cost: &Cost, copy: f64) -> bool {
        self.known.is_some_and(|known| cost.is_within(known, self.known_lines.or(self.lines), KNOWN, copy))
    }
}

/// What one call does cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    instructions: f64,
    lines: [u64; 2],
}

impl Cost {
    fn is_within(&self, instructions: u64, lines: Option<[u64; 2]>, slack: f64, copy: f64) -> bool {
        let lines = lines.is_none_or(|[code, data]| {
            self.lines[0] as f64 <= code as f64 * slack + LAYOUT as f64 && self.lines[1] as f64 <= data as f64 * slack
        });
        lines && self.instructions <= instructions as f64 * slack + copy
    }
}

/// The workspace's `budgets.toml`, or the one named.
fn load(path: Option<&Path>) -> Result<File, String> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../budgets.toml");
    let path = path.unwrap_or(&default);
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Files of a run, removed in the end.
pub(crate) struct Scratch(PathBuf, Vec<String>);

impl Scratch {
    /// For this program, whose words `words` lead to its workers.
    pub(crate) fn new(words: &[&str]) -> Result<Scratch, String> {
        let path = PathBuf::from(format!("/dev/shm/bypath-budgets-{}", std::process::id()));
        std::fs::create_dir_all(path.join("segments")).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path, words.iter().map(|word| word.to_string()).collect()))
    }

    /// A fresh image, whose names fall on the same buckets each time.
    pub(crate) fn image(&self, name: &str, bytes: u64) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        let text = format!("{}\0", path.display());
        let seeds = engine::mkfs::Seeds { uuid: [1, 2], ino_key: 3, hash_seed: 4, made: 1_700_000_000_000_000_000 };
        let options = engine::mkfs::Options { limit: bytes, force: true, seeds: Some(seeds), ..Default::default() };
        engine::mkfs::make(text.as_bytes(), &options).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    /// This program as a worker under valgrind.
    fn valgrind(&self, tool: &[String], worker: &[&str], image: &Path) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("valgrind");
        command.args(tool).arg("-q").arg(program).args(&self.1).arg("--worker").args(worker).arg(image);
        command.env("BYPATH_SEGMENT_DIR", self.0.join("segments"));
        Ok(command)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn have_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

/// Measures every call; by name.
fn measure(scratch: &Scratch) -> Result<BTreeMap<String, Cost>, String> {
    let instructions = callgrind::measure(scratch, &scratch.image("callgrind.image", 1 << 30)?)?;
    let lines = lackey::measure(scratch, &scratch.image("lackey.image", 1 << 30)?)?;
    let mut costs = BTreeMap::new();
    for (name, instructions) in instructions {
        costs.insert(name.to_string(), Cost { instructions, lines: lines.get(name).copied().unwrap_or_default() });
    }
    // Seven more components.
    if let (Some(one), Some(eight)) = (costs.get("stat").copied(), costs.get("stat depth 8").copied()) {
        let each = |one: u64, eight: u64| eight.saturating_sub(one).div_ceil(7);
        let cost = Cost {
            instructions: (eight.instructions - one.instructions) / 7.0,
            lines: [each(one.lines[0], eight.lines[0]), each(one.lines[1], eight.lines[1])],
        };
        costs.insert("each further component".into(), cost);
    }
    Ok(costs)
}

/// Compares with the budgets and prints the table; whether each call is within its budget.
pub fn check(path: Option<&Path>) -> Result<bool, String> {
    let file = load(path)?;
    if !have_valgrind() {
        return Err("NOT CHECKED: valgrind is not installed (apt-get install valgrind)".into());
    }
    let scratch = Scratch::new(&[])?;
    let costs = measure(&scratch)?;
    println!("{:<26}{:>22}{:>16}{:>16}", "", "instructions", "code lines", "data lines");
    let copies: BTreeMap<u64, f64> = [(64, "copy 64 B"), (4096, "copy 4 KiB")]
        .map(|(bytes, name)| (bytes, costs.get(name).map_or(0.0, |c| c.instructions)))
        .into();
    let (mut within, mut worse) = (0, 0);
    for budget in &file.call {
        let Some(cost) = costs.get(&budget.name) else { return Err(format!("budgets.toml: nobody measures {:?}", budget.name)) };
        let copy = budget.copy.and_then(|bytes| copies.get(&bytes).copied()).unwrap_or(0.0);
        let mut line = format!("{:<26}{:>13.0} /{:>7.0}", budget.name, cost.instructions, budget.instructions as f64 + copy);
        for at in 0..2 {
            match budget.lines {
                Some(lines) => line += &format!("{:>10} /{:>4}", cost.lines[at], lines[at]),
                None => line += &format!("{:>10}      ", cost.lines[at]),
            }
        }
        let (fine, known) = (budget.allows(cost, copy), budget.knows(cost, copy));
        within += usize::from(fine);
        worse += usize::from(!fine && !known);
        let verdict = match (fine, known) {
            (true, _) => "",
            (false, true) => "   over, as known",
            (false, false) => "   OVER",
        };
        println!("{line}{verdict}");
    }
    println!("{within} of {} calls are within their budget (a figure within 15 % of it is)", file.call.len());
    println!("(measured / budget, one warm call through the C API, process domain; a copy's own cost is part of its budget)");
    Ok(worse == 0)
}

/// Instructions that a path may cost more with two file systems mounted beside, and with one inside:
/// a look at each mount point, and at each component whether that is what is covered.
const AMONG: [f64; 2] = [55.0, 150.0];

/// Compares calls on an image alone with those on one beside others, and with another inside.
pub fn check_among() -> Result<bool, String> {
    if !have_valgrind() {
        return Err("NOT CHECKED: valgrind is not installed (apt-get install valgrind)".into());
    }
    let scratch = Scratch::new(&[])?;
    let mut columns = Vec::new();
    for (setting, _) in call::SETTINGS {
        let image = scratch.image(&format!("{setting}.image"), 1 << 30)?;
        columns.push(callgrind::measure_among(&scratch, &image, setting)?);
    }
    let [alone, beside, inside] = &columns[..] else { return Err("three settings".into()) };
    print!("{:<26}", "instructions, mounted");
    call::SETTINGS.iter().for_each(|(setting, _)| print!("{setting:>14}"));
    println!();
    let mut kept = true;
    for ((name, alone), others) in alone.iter().zip(beside.iter().zip(inside)) {
        let more = [others.0.1, others.1.1].map(|cost| cost - alone);
        // Both names of a rename are asked for themselves too.
        let paths = if name == &"rename" { 4.0 } else { 1.0 };
        let fine = more.iter().zip(AMONG).all(|(more, may)| *more <= may * paths);
        println!("{name:<26}{alone:>14.0}{:>+14.0}{:>+14.0}{}", more[0], more[1], if fine { "" } else { "   OVER" });
        kept &= fine;
    }
    println!(
        "(by absolute paths, through the C API; each path may cost {:.0} and {:.0} more, a rename has four)",
        AMONG[0], AMONG[1]
    );
    Ok(kept)
}

/// Compares calls in a directory of `entries` with those in one of a thousand:
/// at most 1.2 times the instructions.
pub fn check_flat(entries: u64) -> Result<bool, String> {
    if !have_valgrind() {
        return Err("NOT CHECKED: valgrind is not installed (apt-get install valgrind)".into());
    }
    let scratch = Scratch::new(&[])?;
    let image = scratch.image("flat.image", 8 << 30)?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut fill = Command::new(program);
    fill.args(["--worker", "fill", &entries.to_string()]).arg(&image).env("BYPATH_SEGMENT_DIR", scratch.0.join("segments"));
    if !fill.status().map_err(|e| e.to_string())?.success() {
        return Err("filling the directory failed".into());
    }
    let few = callgrind::measure_in(&scratch, &image, "few")?;
    let many = callgrind::measure_in(&scratch, &image, "many")?;
    println!("{:<20}{:>14}{:>14}", "instructions", "1000 entries", format!("{entries}"));
    let mut kept = true;
    for ((name, few), (_, many)) in few.iter().zip(&many) {
        let ratio = many / few.max(1.0);
        let fine = ratio <= 1.2;
        println!("{name:<20}{few:>14.0}{many:>14.0}{ratio:>8.2} ×{}", if fine { "" } else { "   OVER" });
        kept &= fine;
    }
    Ok(kept)
}
