//! The explorer is itself tested: the code without one of its flushes or fences,
//! or with two ordered stores the other way round, must be caught.
//!
//! A mutant changes what was recorded, which is the same as changing the code: a
//! flush or a fence has no other effect than the order it makes.

use super::explore::{self, Effort, Explorer, Media, Recorded};
use super::record::{Event, What};
use super::workload::{self, Start};
use pm::record::{Site, Stored};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// What is different.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// The flush is missing.
    NoFlush,
    /// The fence is missing.
    NoFence,
    /// What is stored first after the fence is stored before all that it follows.
    Swapped,
}

/// A change at a place in the code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mutant {
    /// What.
    pub change: Change,
    /// Where.
    pub site: Site,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            Change::NoFlush => "without the flush",
            Change::NoFence => "without the fence",
            Change::Swapped => "swapped at the fence",
        };
        write!(f, "{change} at {}", self.site)
    }
}

impl Mutant {
    /// The events of the code so changed.
    pub fn applied(&self, events: &[Event]) -> Vec<Event> {
        let here = |event: &Event| event.site == self.site;
        match self.change {
            Change::NoFlush => events.iter().filter(|e| !(matches!(e.what, What::Flush { .. }) && here(e))).copied().collect(),
            Change::NoFence => events.iter().filter(|e| !(matches!(e.what, What::Fence) && here(e))).copied().collect(),
            Change::Swapped => swapped(events, self.site),
        }
    }

    /// How many of these events there are fewer.
    pub fn gone(&self, events: &[Event]) -> usize {
        events.len() - self.applied(events).len()
    }

    /// Whether these events change.
    pub fn touches(&self, events: &[Event]) -> bool {
        events.iter().any(|e| e.site == self.site && matches!(e.what, What::Fence) == (self.change != Change::NoFlush))
    }
}

fn swapped(events: &[Event], site: Site) -> Vec<Event> {
    let mut events = events.to_vec();
    let mut fence = 0;
    while fence < events.len() {
        let (thread, is) = (events[fence].thread, matches!(events[fence].what, What::Fence) && events[fence].site == site);
        let same = |e: &Event| e.thread == thread;
        let is_fence = |e: &Event| same(e) && matches!(e.what, What::Fence);
        let first = events[fence + 1..]
            .iter()
            .take_while(|e| !is_fence(e))
            .position(|e| same(e) && matches!(e.what, What::Store { how, .. } if how != Stored::Volatile));
        if let (true, Some(first)) = (is, first) {
            let from = events[..fence].iter().rposition(is_fence).map_or(0, |at| at + 1);
            let moved = events.remove(fence + 1 + first);
            events.insert(from, moved);
            fence += 1;
        }
        fence += 1;
    }
    events
}

/// The line of code of a site, with the line of code before it, if the source is there.
pub fn code(site: Site) -> String {
    let text = std::fs::read_to_string(site.file()).unwrap_or_default();
    let lines = text.lines().take(site.line() as usize).map(str::trim).filter(|line| !line.starts_with("//"));
    let [mut before, mut here] = [""; 2];
    for line in lines {
        (before, here) = (here, line);
    }
    format!("{before} {here}")
}

/// Workloads that a mutant must get past, if it touches so many, ...
const WORKLOADS_MAX: usize = 40;
/// ... and such as it does not touch.
const ELSEWHERE: usize = 6;

/// A workload, ready to be explored.
type Ready = (String, Recorded);

/// One in `every` of the mutants of one medium, and what became of each.
pub fn run(media: Media, effort: Effort, every: usize, out: &mut dyn FnMut(&Mutant, bool)) -> Result<(), String> {
    let mut explorers = Vec::new();
    let mut mutants: BTreeMap<Mutant, ()> = BTreeMap::new();
    for start in [Start::Some, Start::Empty] {
        let mut explorer = Explorer::new(media, start, effort);
        let tree = explorer.first_tree();
        let mut ready: Vec<Ready> = Vec::new();
        for ops in workloads(start) {
            explorer.alternate = ops.len() > 1;
            let before = prefix_tree(&mut explorer, &ops, &tree)?;
            let recorded = explorer.run(&ops, &before)?;
            if recorded.done {
                recorded.events.iter().for_each(|event| found(media, event, &mut mutants));
                ready.push((explore::shown(&ops), recorded));
            }
        }
        ready.sort_by_key(|(_, recorded)| recorded.end - recorded.window);
        // What is found in the code as it is would be taken for a mutant's.
        for (name, recorded) in &ready {
            explorer.explore(name, recorded);
        }
        if let Some(failure) = explorer.failures.first() {
            return Err(format!("without a mutant: {} ({})", failure.problem, failure.replay));
        }
        explorers.push((explorer, ready));
    }
    for mutant in mutants.into_keys().step_by(every.max(1)) {
        let mut caught = false;
        for (explorer, ready) in &mut explorers {
            explorer.mutate(Some(mutant));
            // Where the change is in what is explored; then some others: it may be in recovery.
            let touched = |recorded: &Recorded| mutant.touches(&recorded.events[recorded.window..recorded.end]);
            let there: Vec<&Ready> = ready.iter().filter(|(_, recorded)| touched(recorded)).collect();
            let step = there.len().div_ceil(WORKLOADS_MAX).max(1);
            let elsewhere = ready.iter().filter(|(_, recorded)| !touched(recorded)).take(ELSEWHERE);
            for (name, recorded) in there.into_iter().step_by(step).chain(elsewhere) {
                if !explorer.caught() {
                    explorer.explore(name, recorded);
                }
            }
            caught |= explorer.caught();
            if caught {
                break;
            }
        }
        out(&mutant, caught);
    }
    Ok(())
}

fn found(media: Media, event: &Event, mutants: &mut BTreeMap<Mutant, ()>) {
    let site = event.site;
    let change = match (event.what, media) {
        (What::Flush { .. }, Media::Power) => Change::NoFlush,
        (What::Fence, Media::Power) => Change::NoFence,
        (What::Fence, _) => Change::Swapped,
        _ => return,
    };
    mutants.insert(Mutant { change, site }, ());
}

/// All single operations, and a few pairs for what needs a history.
fn workloads(start: Start) -> Vec<Vec<workload::Op>> {
    let mut lists: Vec<Vec<workload::Op>> = workload::all().into_iter().map(|op| vec![op]).collect();
    if start == Start::Some {
        let pairs = [
            "openunlink(foo) create(bar)",
            "write(foo,20480,10) write(foo,4090,13)",
            "write(foo,20480,10) truncate(foo,0)",
            "write(foo,20480,10) unlink(foo)",
            "setxattr(foo,5) setxattr(foo,5000)",
            "fallocate(foo,PunchHole,0,4096) append(foo,100)",
            "truncate(foo,77) truncate(foo,9000)",
            "unlink(foo) create(bar)",
            "unlink(foo) fallocate(A/foo,Allocate,3000,10000)",
            "create(bar) create(A/bar)",
            "create(bar) unlink(bar)",
            "mkdir(bar) rmdir(bar)",
            "rename(foo,bar) rename(bar,foo)",
            "unlink(A/foo) create(A/foo)",
            "setxattr(A/foo,7) setxattr(A/foo,5000)",
            "link(foo,bar) unlink(foo)",
            // The second attribute begins at the end of a line; behind several lines.
            "setxattr(A/foo,40) setxattr(A/foo,7)",
            "setxattr(A/foo,5000) setxattr(A/foo,7)",
        ];
        lists.extend(pairs.iter().map(|pair| pair.split(' ').filter_map(workload::parse).collect()));
    }
    lists
}

/// The tree before the last operation.
fn prefix_tree(
    explorer: &mut Explorer,
    ops: &[workload::Op],
    first: &Rc<super::tree::Tree>,
) -> Result<Rc<super::tree::Tree>, String> {
    match ops.split_last() {
        Some((_, before)) if !before.is_empty() => {
            let above = prefix_tree(explorer, before, first)?;
            explorer.run(before, &above)?.after().cloned().ok_or_else(|| "no tree".into())
        }
        _ => Ok(Rc::clone(first)),
    }
}
