//! Single calls, every access of each: an image's, by the workers of the budgets under lackey; the kernel's, as the virtual machine
//! of `demo/vm` has written them.

use super::names::Names;
use crate::budget::call::{CALLS, LOOKS, NOTHING, caller, measured, nothing_in};
use crate::budget::lackey::{Access, Kind, Look, looks};
use crate::budget::{Scratch, have_valgrind};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// One call.
#[derive(Clone)]
pub struct Traced {
    /// `image`, or the kernel's name of the file system.
    pub place: String,
    /// Which call.
    pub call: String,
    /// What the call cost by itself.
    pub cost: Cost,
    /// Its accesses.
    pub look: Look,
    /// Where the program lay: added to the addresses in its file.
    pub bias: u64,
}

/// Distinct lines of code and data, instructions.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// Code, data.
    pub lines: [u64; 2],
    /// Executed.
    pub instructions: u64,
}

impl Cost {
    fn of(look: &Look) -> Cost {
        let instructions = look.0.iter().filter(|access| access.kind == Kind::Code).count() as u64;
        Cost { lines: look.both(), instructions }
    }

    fn less(self, other: Cost) -> Cost {
        let lines = [0, 1].map(|at| self.lines[at].saturating_sub(other.lines[at]));
        Cost { lines, instructions: self.instructions.saturating_sub(other.instructions) }
    }
}

/// The look of the middle, by instructions: what an interrupt has prolonged is not it.
fn middle<'a>(traced: &'a [Traced], place: &str, call: &str) -> Option<&'a Traced> {
    let mut all: Vec<&Traced> = traced.iter().filter(|one| one.place == place && one.call == call).collect();
    all.sort_by_key(|one| (one.cost.instructions, one.cost.lines));
    all.get(all.len() / 2).copied()
}

/// What a call costs on a file system.
pub fn median(traced: &[Traced], place: &str, call: &str) -> Option<Cost> {
    middle(traced, place, call).map(|one| one.cost)
}

/// The accesses of that call.
pub fn chosen<'a>(traced: &'a [Traced], place: &str, call: &str) -> Option<&'a Traced> {
    middle(traced, place, call)
}

/// Calls that the tables leave out: what their callers cost, and copies.
fn is_call(name: &str) -> bool {
    !name.starts_with("copy") && !name.starts_with("a ") && !matches!(name, NOTHING | "two new names")
}

/// All calls of an image by the C API, each several times.
pub fn of_image(words: &[&str]) -> Result<Vec<Traced>, String> {
    if !have_valgrind() {
        return Err("valgrind is not installed".into());
    }
    let scratch = Scratch::new(words)?;
    let (image, mut found) = (scratch.image("densefs.image", 1 << 30)?, Vec::new());
    let printed = looks(&scratch, &["lackey", "few"], &image, &mut |look| found.push(look))?;
    if found.len() != CALLS.len() * LOOKS {
        return Err(format!("lackey: {} looks", found.len()));
    }
    let at = u64::from_str_radix(printed.trim(), 16).map_err(|e| format!("the worker says {printed:?}: {e}"))?;
    let bias = at.wrapping_sub(measured());
    let costs: BTreeMap<&str, Vec<Cost>> =
        CALLS.iter().zip(found.chunks(LOOKS)).map(|((name, _), looks)| (*name, looks.iter().map(Cost::of).collect())).collect();
    let mut traced = Vec::new();
    for ((name, _), looks) in CALLS.iter().zip(found.chunks(LOOKS)).filter(|((name, _), _)| is_call(name)) {
        let mut callers = costs[caller(name)].clone();
        callers.sort_by_key(|cost| cost.lines);
        let nothing = nothing_in(caller(name));
        let nothing = Cost { lines: [nothing.lines, 0], instructions: nothing.instructions as u64 };
        let callers = callers[callers.len() / 2].less(nothing);
        for look in looks {
            let cost = Cost::of(look).less(callers);
            traced.push(Traced { place: "image".into(), call: name.to_string(), cost, look: Look(look.0.clone()), bias });
        }
    }
    Ok(traced)
}

/// What a search of a tree missed in a first-level instruction cache.
pub struct Misses {
    /// The file system.
    pub place: String,
    /// Misses of the program's code, of the kernel's, lines fetched.
    pub counts: [f64; 3],
}

/// What a virtual machine has written.
pub struct Kernel {
    /// Its calls.
    pub calls: Vec<Traced>,
    /// Its searches.
    pub searches: Vec<Misses>,
    /// Its functions.
    pub names: Names,
}

/// Reads it.
pub fn read(dir: &Path) -> Result<Kernel, String> {
    let file = |name: &str| {
        let path = dir.join(name);
        std::fs::File::open(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut kernel = Kernel { calls: Vec::new(), searches: Vec::new(), names: Names::of_kernel(file("symbols")?)? };
    let (mut place, mut call, mut look) = (String::new(), None, Look::default());
    let mut reader = BufReader::with_capacity(1 << 20, file("trace")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(|e| e.to_string())? > 0 {
        let text = String::from_utf8_lossy(&line);
        match text.trim_end().split_once(' ').unwrap_or((text.trim_end(), "")) {
            ("F", name) => place = name.into(),
            ("B", name) => (call, look) = (Some(name.to_string()), Look::default()),
            ("G", rest) => kernel.searches.extend(searched(rest)),
            ("E", _) => {
                let look = of_kernel(&std::mem::take(&mut look));
                let Some(call) = call.take() else { continue };
                let cost = Cost::of(&look);
                kernel.calls.push(Traced { place: place.clone(), call, cost, look, bias: 0 });
            }
            _ => look.0.extend(Access::of_line(&line)),
        }
        line.clear();
    }
    if kernel.calls.is_empty() { Err(format!("{}: no calls traced", dir.display())) } else { Ok(kernel) }
}

fn searched(line: &str) -> Option<Misses> {
    let words: Vec<&str> = line.split(' ').collect();
    let [place, user, kernel, fetched] = words[..] else { return None };
    Some(Misses { place: place.into(), counts: [user.parse().ok()?, kernel.parse().ok()?, fetched.parse().ok()?] })
}

/// What the kernel's own instructions did: its addresses are the upper half.
fn of_kernel(look: &Look) -> Look {
    let mut inside = false;
    let kernels = look.0.iter().filter(|access| {
        if access.kind == Kind::Code {
            inside = access.address >> 63 == 1;
        }
        inside
    });
    Look(kernels.copied().collect())
}
