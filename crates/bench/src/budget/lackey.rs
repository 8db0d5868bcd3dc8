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

/// What an access is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An instruction.
    Code,
    /// A load, or one and a store.
    Load,
    /// A store, or one and a load.
    Store,
}

/// One access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// What it is.
    pub kind: Kind,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u8,
}

impl Access {
    /// That of a line of the trace, if it is one.
    pub fn of_line(line: &[u8]) -> Option<Access> {
        let (kind, rest) = match line {
            [b'I', b' ', b' ', rest @ ..] => (Kind::Code, rest),
            [b' ', b'L', b' ', rest @ ..] => (Kind::Load, rest),
            [b' ', b'S' | b'M', b' ', rest @ ..] => (Kind::Store, rest),
            _ => return None,
        };
        let (address, size) = std::str::from_utf8(rest).ok()?.trim_end().split_once(',')?;
        Some(Access { kind, address: u64::from_str_radix(address, 16).ok()?, size: size.parse().ok()? })
    }
}

/// All accesses between two marks, in order.
#[derive(Clone, Default, Debug)]
pub struct Look(pub Vec<Access>);

impl Look {
    /// The distinct lines that some of them touch.
    pub fn lines(&self, of: impl Fn(Kind) -> bool) -> HashSet<u64> {
        let touched = self.0.iter().filter(|access| of(access.kind));
        touched.map(|access| access.address >> 6).collect()
    }

    /// Lines of code and of data.
    pub fn both(&self) -> [u64; 2] {
        [self.lines(|kind| kind == Kind::Code), self.lines(|kind| kind != Kind::Code)].map(|lines| lines.len() as u64)
    }
}

/// Runs a worker under lackey; `each` is given what it looks at. What the worker prints, which is a few lines.
pub fn looks(scratch: &Scratch, worker: &[&str], image: &Path, each: &mut dyn FnMut(Look)) -> Result<String, String> {
    let tool = ["--tool=lackey".to_string(), "--trace-mem=yes".into(), "--basic-counts=no".into()];
    let mut command = scratch.valgrind(&tool, worker, image)?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("valgrind: {e}"))?;
    let Some(trace) = child.stderr.take() else { return Err("valgrind: no pipe".into()) };
    let mut looks = Looks::default();
    let mut reader = BufReader::with_capacity(1 << 20, trace);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(|e| e.to_string())? > 0 {
        looks.line(&line, each);
        line.clear();
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(printed) } else { Err(format!("lackey: {}", output.status)) }
}

/// Code and data lines of every call: the median of its looks, without what its
/// caller touches.
pub fn measure(scratch: &Scratch, image: &Path) -> Result<BTreeMap<&'static str, [u64; 2]>, String> {
    let mut found = Vec::new();
    looks(scratch, &["lackey"], image, &mut |look| found.push(look.both()))?;
    own_lines(&found)
}

/// The same of what was looked at already.
pub fn own_lines(found: &[[u64; 2]]) -> Result<BTreeMap<&'static str, [u64; 2]>, String> {
    if found.len() != CALLS.len() * LOOKS {
        return Err(format!("lackey: {} looks at {} calls", found.len(), CALLS.len()));
    }
    let all: BTreeMap<_, _> = CALLS.iter().zip(found.chunks(LOOKS)).map(|((name, _), looks)| (*name, median(looks))).collect();
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

/// What lies between one mark and the next: four stores to one place, with
/// no other access to data between them.
#[derive(Default)]
struct Looks {
    look: Look,
    /// Address of the last access if it was a store, and how often in a row.
    stored: (u64, u32),
    inside: bool,
}

impl Looks {
    fn line(&mut self, line: &[u8], each: &mut dyn FnMut(Look)) {
        let Some(access) = Access::of_line(line) else { return };
        let address = access.address;
        if access.kind == Kind::Code {
            if self.inside {
                self.look.0.push(access);
            }
            return;
        }
        self.stored = match (line[1], self.stored) {
            (b'S', (last, times)) if last == address => (address, times + 1),
            (b'S', _) => (address, 1),
            _ => (0, 0),
        };
        if self.stored.1 == 4 {
            let look = std::mem::take(&mut self.look);
            if self.inside {
                each(look);
            }
            self.inside = !self.inside;
        } else if self.inside {
            self.look.0.push(access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what lies between two marks is found, and nothing else. Method: a trace of lackey's by hand.
    #[test]
    fn what_lies_between_marks() {
        let mark = " S 1000,8\nI  04000000,3\n S 1000,8\n S 1000,8\n S 1000,8\n";
        let inside = "I  04000040,3\n L 2000,8\nI  04000043,4\n M 2008,8\n S 2040,4\n";
        let trace = format!("==1== lackey\n L 9,1\n{mark}{inside}{mark} S 7000,8\n{mark} L 9,1\n{mark}");
        let (mut looks, mut found) = (Looks::default(), Vec::new());
        trace.split_inclusive('\n').for_each(|line| looks.line(line.as_bytes(), &mut |look| found.push(look)));
        // The first three stores of the mark at the end are looked at too, as ever.
        assert_eq!(found.iter().map(Look::both).collect::<Vec<_>>(), [[2, 3], [1, 2]]);
        assert_eq!(found[0].lines(|kind| kind == Kind::Store), HashSet::from([0x2000 >> 6, 0x2040 >> 6, 0x1000 >> 6]));
    }
}
