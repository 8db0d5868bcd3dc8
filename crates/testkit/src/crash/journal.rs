//! A long run in parts, one after another, and a file that says which are done: a run that was cut off goes on
//! with the part it was in.
//!
//! The file is replaced as a whole after each part, so it never holds half of one. It begins with what was asked
//! for and a number of the program's bytes; a run of anything else does not touch it.

use super::command::{Done, Plan, parsed, report, run_part};
use super::model::mix;
use super::sequences::Share;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// A journal.
#[derive(Debug, PartialEq)]
struct Journal {
    path: PathBuf,
    /// What the run is.
    run: String,
    /// The parts that are done, by their numbers.
    parts: Vec<(u64, Done)>,
}

/// Runs `parts` parts of a plan, as far as they are not done yet; prints what all have found. True if that is nothing.
pub fn run(plan: &Plan, parts: u64, path: &str) -> bool {
    if plan.seconds > 0 {
        println!("FAILED: a journal is of parts that are done; --seconds ends them before");
        return false;
    }
    let opened = program().and_then(|program| Journal::open(Path::new(path), &named(plan, parts, program)));
    let result = opened.map_err(|error| error.to_string()).and_then(|mut journal| journal.go_on(plan, parts));
    result.unwrap_or_else(|problem| {
        println!("FAILED: {path}: {problem}");
        false
    })
}

/// What a run is: all that its figures depend on.
fn named(plan: &Plan, parts: u64, program: u64) -> String {
    let Plan { depth, shortest, every, seed, pairs, alike, .. } = plan;
    format!(
        "crash depth {depth} shortest {shortest} every {every} seed {seed} pairs {pairs} alike {alike} parts {parts} program {program:016x}"
    )
}

/// A number of the bytes of this program.
fn program() -> io::Result<u64> {
    let bytes = std::fs::read(std::env::current_exe()?)?;
    let word = |chunk: &[u8]| chunk.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    Ok(bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| mix(sum ^ word(chunk))))
}

impl Journal {
    /// Opens the journal of `run`, or begins it.
    fn open(path: &Path, run: &str) -> io::Result<Journal> {
        let empty = Journal { path: path.into(), run: run.into(), parts: Vec::new() };
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(empty),
            Err(error) => Err(error),
            Ok(text) => empty.with(&text).ok_or_else(|| {
                let first = text.lines().next().unwrap_or_default();
                io::Error::other(format!("is of another run ({first}), not of this one ({run}); remove it to begin anew"))
            }),
        }
    }

    /// With the parts that `text` has, if it is of the same run.
    fn with(mut self, text: &str) -> Option<Journal> {
        let mut lines = text.lines();
        (lines.next()? == self.run).then_some(())?;
        for line in lines {
            if let Some(counts) = line.strip_prefix("counts ") {
                self.parts.last_mut()?.1.totals.push(parsed(counts)?);
            } else {
                let words: Vec<&str> = line.split(' ').collect();
                let ["part", number, seconds, "s", how] = words.as_slice() else { return None };
                let done = Done { totals: Vec::new(), seconds: seconds.parse().ok()?, fine: *how == "fine" };
                self.parts.push((number.parse().ok()?, done));
            }
        }
        Some(self)
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.run);
        for (number, done) in &self.parts {
            let _ = writeln!(text, "part {number} {} s {}", done.seconds, if done.fine { "fine" } else { "failed" });
            for (name, counts) in &done.totals {
                let _ = writeln!(text, "counts {name}|{counts}");
            }
        }
        text
    }

    fn store(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, self.text())?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &self.path)
    }

    /// Runs what is left.
    fn go_on(&mut self, plan: &Plan, parts: u64) -> Result<bool, String> {
        for number in 1..=parts {
            if self.parts.iter().any(|(done, _)| *done == number) {
                continue;
            }
            println!("part {number} of {parts}");
            let done = run_part(plan, Share { number: number - 1, of: parts }).ok_or("a part could not be run to its end")?;
            self.parts.push((number, done));
            self.store().map_err(|error| error.to_string())?;
            self.tell(parts);
        }
        let mut all = Done { totals: Vec::new(), seconds: 0, fine: true };
        self.parts.iter().for_each(|(_, done)| all.add(done));
        report(&all);
        Ok(all.fine)
    }

    /// How far it is.
    fn tell(&self, parts: u64) {
        let (done, mut all) = (self.parts.len() as u64, Done { totals: Vec::new(), seconds: 0, fine: true });
        self.parts.iter().for_each(|(_, part)| all.add(part));
        let (sum, left) = (all.sum(), all.seconds * parts.saturating_sub(done) / done.max(1));
        eprintln!(
            "{} s: {done} parts of {parts}: {} workloads, {} states, {} violations; about {left} s more",
            all.seconds, sum.workloads, sum.tried, sum.violations
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::*;

    /// Goal: what was done is not done again, and nothing that was not done is taken for it.
    /// Method: a journal is written and read; then read by a run that is another, and by a run that is another.
    #[test]
    fn a_run_goes_on_where_it_was() {
        let folder = std::env::temp_dir().join(format!("bypath-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let path = folder.join("night");
        let mut journal = Journal::open(&path, "this run").expect("a new one");
        assert_eq!(journal.parts.len(), 0);
        for number in [1, 3] {
            let counts = Counts::of([number, 2, 3, 4, 5, 6, 7, 0, 8]);
            let totals = vec![("power, from some, 1 in a row".to_string(), counts), ("b".to_string(), counts)];
            journal.parts.push((number, Done { totals, seconds: 9, fine: number == 1 }));
            journal.store().expect("room");
        }
        assert_eq!(Journal::open(&path, "this run").expect("the same"), journal);
        assert!(Journal::open(&path, "another run").is_err());
        std::fs::remove_dir_all(&folder).expect("empty");
    }
}
