//! Distinct lines a call, from lackey's trace of all accesses.
//!
//! ```text
//! I  04025a10,3      an instruction
//!  L 1ffefff9a0,8    a load
//!  S 1ffefff998,8    a store
//!  M 0421d1f0,4      both
//! ```

use super::Scratch;
use super::call::{CALLS, LOOKS, caller, nothing_in};
use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Code and data lines of every call: the median of its looks, without what its
/// caller touches.
pub fn measure(scratch: &Scratch, image: &Path) -> Result<BTreeMap<&'static str, [u64; 2]>, String> {
    let tool = ["--tool=lackey".to_string(), "--trace-mem=yes".into(), "--basic-counts=no".into()];
    let mut command = scratch.valgrind(&tool, &["lackey"], image)?;
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|e| format!("valgrind: {e}"))?;
    let Some(trace) = child.stderr.take() else { return Err("valgrind: no pipe".into()) };
    let mut looks = Looks::default();
    let mut reader = BufReader::with_capacity(1 << 20, trace);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(|e| e.to_string())? > 0 {
        looks.line(&line);
        line.clear();
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() || looks.found.len() != CALLS.len() * LOOKS {
        return Err(format!("lackey: {status}, {} looks at {} calls", looks.found.len(), CALLS.len()));
    }
    let all: BTreeMap<_, _> =
        CALLS.iter().zip(looks.found.chunks(LOOKS)).map(|((name, _), looks)| (*name, median(looks))).collect();
    let own = |(name, lines): (&&'static str, &[u64; 2])| {
        let callers = all.get(caller(name)).copied().unwrap_or_default();
        let callers = [callers[0] - nothing_in(caller(name)).lines, callers[1]];
        (*name, [0, 1].map(|at| lines[at].saturating_sub(callers[at])))
    };
    Ok(all.iter().map(own).collect())
}

fn median(looks: &[[u64; 2]]) -> [u64; 2] {
    [0, 1].map(|at| {
        let mut values: Vec<u64> = looks.iter().map(|l| l[at]).collect();
        values.sort_unstable();
        values[values.len() / 2]
    })
}

/// Lines touched between one mark and the next: four stores to one place, with
/// no other access to data between them.
#[derive(Default)]
struct Looks {
    code: HashSet<u64>,
    data: HashSet<u64>,
    /// Address of the last access if it was a store, and how often in a row.
    stored: (u64, u32),
    inside: bool,
    found: Vec<[u64; 2]>,
}

impl Looks {
    fn line(&mut self, line: &[u8]) {
        let (kind, rest) = match line {
            [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
            _ => return,
        };
        let Some(comma) = rest.iter().position(|&b| b == b',') else { return };
        let Some(address) = std::str::from_utf8(&rest[..comma]).ok().and_then(|t| u64::from_str_radix(t, 16).ok()) else {
            return;
        };
        if kind == b'I' {
            if self.inside {
                self.code.insert(address >> 6);
            }
            return;
        }
        self.stored = match (kind, self.stored) {
            (b'S', (last, times)) if last == address => (address, times + 1),
            (b'S', _) => (address, 1),
            _ => (0, 0),
        };
        if self.stored.1 == 4 {
            if self.inside {
                self.found.push([self.code.len() as u64, self.data.len() as u64]);
            }
            self.inside = !self.inside;
            self.code.clear();
            self.data.clear();
        } else if self.inside {
            self.data.insert(address >> 6);
        }
    }
}
