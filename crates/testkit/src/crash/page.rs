//! A crash of the system where the image is a file in the page cache: the kernel
//! writes pages back whole, in any order, whenever it likes, until `fsync`.
//!
//! So each page may hold any prefix of the stores made to it since the image was
//! last synced, whatever the other pages hold. Fences mean nothing here, and
//! nothing is promised but this: recovery and the check end, a repair makes the
//! image clean, and a clean image can be used. What a crash does to the tree is
//! counted, not judged.

use super::explore::{Effort, Explorer, Media, shown};
use super::memory::Memory;
use super::record::{Event, What};
use super::tree::Tree;
use super::workload::{self, Start};
use crate::image::fresh_path;
use crate::rng::Rng;
use engine::repair::Repair;
use format::layout::BLOCK;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

/// How many states were left in which way.
#[derive(Default)]
struct Counts {
    workloads: u64,
    tried: u64,
    /// The tree before the operation, or the one after it.
    whole: u64,
    /// Clean, with another tree.
    mixed: u64,
    /// The check finds something, or the image cannot be opened.
    damaged: u64,
    /// Of these, the repair gives something up.
    dropped: u64,
    /// Something the operation has nothing to do with is not as it was; in mixed ones, and after a repair.
    lost: u64,
}

/// A file for the repair, which works on files.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A page, and what it holds after each of the stores to it; the last is the newest.
type Versions = Vec<(u64, Vec<[u8; BLOCK as usize]>)>;

/// Tries up to `cap` states of one in `every` single operation from each start.
///
/// # Errors
/// States that cannot be made clean.
pub fn run(every: usize, cap: usize, seed: u64) -> Result<String, String> {
    let mut text = String::from(
        "| from | operations | different states | tree before or after | clean, another tree | damaged, repaired | gave something up | lost more than the operation's own |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut failures = Vec::new();
    for start in [Start::Some, Start::Empty] {
        let mut explorer = Explorer::new(Media::Kill, start, Effort::default());
        let before = explorer.first_tree();
        let copy = Copy(fresh_path("pages"));
        let mut counts = Counts::default();
        for op in workload::all().into_iter().step_by(every) {
            let recorded = explorer.run(&[op], &before)?;
            if let (true, Some(after)) = (recorded.done, recorded.after()) {
                counts.workloads += 1;
                let all = [Rc::clone(&before), Rc::clone(after)];
                let events = &recorded.events[..recorded.end];
                let name = format!("page {} {}", start.name(), shown(&[op]));
                let tried = states(&explorer, events, &all, &copy, (cap, seed), &mut counts);
                // One of each operation tells enough.
                failures.extend(tried.err().map(|problem| format!("VIOLATION {name}: {problem}")));
            }
        }
        let c = counts;
        let numbers = [c.workloads, c.tried, c.whole, c.mixed, c.damaged, c.dropped, c.lost].map(|number| number.to_string());
        _ = writeln!(text, "| {} | {} |", start.name(), numbers.join(" | "));
    }
    if failures.is_empty() { Ok(text) } else { Err(text + &failures.join("\n")) }
}

/// What each page may hold, given what was stored.
fn versions(base: &Memory, events: &[Event]) -> Versions {
    let mut pages: BTreeMap<u64, Vec<[u8; BLOCK as usize]>> = BTreeMap::new();
    for event in events {
        if let What::Store { offset, len, value, .. } = event.what {
            let (page, at) = (u64::from(offset) / BLOCK, (u64::from(offset) % BLOCK) as usize);
            let of = pages.entry(page).or_insert_with(|| vec![base.get(page * BLOCK)]);
            let mut next = of[of.len() - 1];
            next[at..at + usize::from(len)].copy_from_slice(&value.to_le_bytes()[..usize::from(len)]);
            if next != of[of.len() - 1] {
                of.push(next);
            }
        }
    }
    pages.into_iter().filter(|(_, of)| of.len() > 1).collect()
}

/// Tries the states that these events may leave: each page old or new, as far as that goes; then any of its versions.
fn states(
    explorer: &Explorer,
    events: &[Event],
    trees: &[Rc<Tree>; 2],
    copy: &Copy,
    (cap, seed): (usize, u64),
    counts: &mut Counts,
) -> Result<(), String> {
    let pages = versions(&explorer.base, events);
    explorer.bench.machine.log.uses(events);
    let (mut rng, mut seen) = (Rng::new(seed), HashSet::new());
    let ends = 1u64 << pages.len().min(63);
    for number in 0..cap as u64 {
        // The first half: old or new. All subsets if they are few, else drawn.
        let subset = if ends <= cap as u64 / 2 { number % ends } else { rng.draw() };
        let coarse = number < cap as u64 / 2;
        let mut chosen = |(at, (_, of)): (usize, &(u64, Vec<_>))| match coarse {
            true => (subset >> (at % 64) & 1) as usize * (of.len() - 1),
            false => rng.below(of.len() as u64) as usize,
        };
        let state: Vec<usize> = pages.iter().enumerate().map(&mut chosen).collect();
        if seen.insert(state.clone()) {
            counts.tried += 1;
            one(explorer, &pages, &state, trees, copy, counts).map_err(|problem| format!("versions {state:?}: {problem}"))?;
        }
    }
    Ok(())
}

/// Tries one state, and puts the image back.
fn one(
    explorer: &Explorer,
    pages: &Versions,
    state: &[usize],
    trees: &[Rc<Tree>; 2],
    copy: &Copy,
    counts: &mut Counts,
) -> Result<(), String> {
    let machine = &explorer.bench.machine;
    let put = || pages.iter().zip(state).for_each(|((page, of), chosen)| machine.image.put(page * BLOCK, &of[*chosen]));
    put();
    let found = look(explorer);
    undo(explorer, pages);
    let (tree, repaired) = match found {
        Ok(tree) => (tree, false),
        Err(_) => {
            counts.damaged += 1;
            put();
            fs::write(&copy.0, machine.image.bytes()).map_err(|error| error.to_string())?;
            undo(explorer, pages);
            let bytes = repair(copy, counts)?;
            machine.image.put(0, &bytes);
            let tree = look(explorer);
            machine.image.put(0, explorer.base.bytes());
            explorer.bench.machine.log.touched(|_| ());
            (tree.map_err(|problem| format!("after the repair: {problem}"))?, true)
        }
    };
    let whole = trees.iter().any(|expected| **expected == tree);
    counts.whole += u64::from(whole && !repaired);
    counts.mixed += u64::from(!whole && !repaired);
    let untouched = trees[0].0.iter().filter(|entry| trees[1].0.contains(entry));
    // Where the same inode stands in the list is no matter of its own.
    let same = |entry: &super::tree::Entry| tree.0.iter().any(|e| super::tree::Entry { same: entry.same, ..e.clone() } == *entry);
    counts.lost += u64::from(untouched.into_iter().any(|entry| !same(entry)));
    Ok(())
}

/// Recovers and checks what is in the image, and reads its tree, but for times.
fn look(explorer: &Explorer) -> Result<Tree, String> {
    let machine = &explorer.bench.machine;
    machine.log.brief(true);
    machine.cut();
    let seen =
        machine.attach(0).map_err(|error| error.to_string()).and_then(|fs| match engine::check::examine(fs).issues.first() {
            Some(issue) => Err(issue.to_string()),
            None => Tree::read(fs, &machine.cx(0)).map(|tree| tree.kept(false)),
        });
    machine.log.brief(false);
    machine.cut();
    seen
}

/// The image is as in the beginning.
fn undo(explorer: &Explorer, pages: &Versions) {
    let (machine, base) = (&explorer.bench.machine, &explorer.base);
    machine.log.touched(|line| machine.image.put(u64::from(line) * 64, &base.get::<64>(u64::from(line) * 64)));
    pages.iter().for_each(|(page, _)| machine.image.put(page * BLOCK, &base.get::<{ BLOCK as usize }>(page * BLOCK)));
}

/// Has the file repaired; what it holds then.
fn repair(copy: &Copy, counts: &mut Counts) -> Result<Vec<u8>, String> {
    let mut path = copy.0.as_os_str().as_encoded_bytes().to_vec();
    path.push(0);
    let repair = Repair::plan(&path, &mut |_| {}).map_err(|error| format!("the repair fails: {error}"))?;
    counts.dropped += u64::from(repair.drops > 0);
    repair.apply().map_err(|error| format!("the repair cannot be written: {error}"))?;
    drop(repair);
    let report = engine::check::run(&path, &mut |_| {}).map_err(|error| error.to_string())?;
    match report.issues.first() {
        Some(issue) => Err(format!("not clean after the repair: {issue}")),
        None => fs::read(&copy.0).map_err(|error| error.to_string()),
    }
}
