//! The explorer is itself tested: the code without one of its flushes or fences,
//! or with two ordered stores the other way round, must be caught.
//!
//! A mutant changes what was recorded, which is the same as changing the code: a
//! flush or a fence has no other effect than the order it makes.

use super::explore::{self, Effort, Explorer, Media, Recorded};
use super::known::Known;
use super::order::{self, By};
use super::record::{Event, What};
use super::workload::{self, Start};
use pm::record::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// What is different.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// The flush is missing.
    NoFlush,
    /// The fence is missing.
    NoFence,
    /// What is stored first behind the fence is stored before all that it is behind (media that keep the order).
    Hastened,
    /// What is stored there, one stretch later, is stored before.
    Swapped(Site, By),
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
        match self.change {
            Change::NoFlush => write!(f, "without the flush at {}", self.site),
            Change::NoFence => write!(f, "without the fence at {}", self.site),
            Change::Hastened => write!(f, "swapped at the fence at {}", self.site),
            Change::Swapped(later, _) => write!(f, "the store at {later} before that at {}", self.site),
        }
    }
}

impl Mutant {
    /// The events of the code so changed.
    pub fn applied(&self, events: &[Event]) -> Vec<Event> {
        let here = |event: &Event| event.site == self.site;
        match self.change {
            Change::NoFlush => events.iter().filter(|e| !(matches!(e.what, What::Flush { .. }) && here(e))).copied().collect(),
            Change::NoFence => events.iter().filter(|e| !(matches!(e.what, What::Fence) && here(e))).copied().collect(),
            Change::Hastened => order::hastened(events, self.site),
            Change::Swapped(later, by) => order::swapped(events, (self.site, later), by),
        }
    }

    /// How many of these events there are fewer.
    pub fn gone(&self, events: &[Event]) -> usize {
        events.len() - self.applied(events).len()
    }
}

/// What can be changed, and whether of a pair the second one's stores are aside wherever the two meet.
pub type Found = BTreeMap<Mutant, bool>;

/// What can be changed in events of one operation or recovery. `before`: what a word held before these.
pub fn found(media: Media, events: &[Event], before: &dyn Fn(u64) -> u64) -> Found {
    let single = |change, event: &Event| Some((Mutant { change, site: event.site }, false));
    let by = if media == Media::Kill { By::Record } else { By::Fence };
    let ordered = order::pairs(events, by, before).into_iter();
    let mut found: Found =
        ordered.map(|((site, later), aside)| (Mutant { change: Change::Swapped(later, by), site }, aside)).collect();
    found.extend(events.iter().filter_map(|event| match (media, event.what) {
        (Media::Power, What::Flush { .. }) => single(Change::NoFlush, event),
        (Media::Power, What::Fence) => single(Change::NoFence, event),
        (_, What::Fence) => single(Change::Hastened, event),
        _ => None,
    }));
    found
}

/// Adds what was found elsewhere.
pub fn add(all: &mut Found, more: Found) {
    more.into_iter().for_each(|(mutant, aside)| *all.entry(mutant).or_insert(true) &= aside);
}

/// The word that these bytes begin with.
pub fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Workloads that a mutant must get past, if it touches so many, ...
const WORKLOADS_MAX: usize = 40;
/// ... and such as it touches only the recovery of.
const RECOVERIES_MAX: usize = 20;

/// A workload, ready to be explored.
struct Ready {
    name: String,
    recorded: Recorded,
    /// What can be changed in it, and in recoveries from it.
    touched: [BTreeSet<Mutant>; 2],
}

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A state was not as it must be.
    Caught,
    /// None was; what it stores earlier is aside, in each instance.
    Aside,
    /// None was.
    Alive,
}

/// One in `every` of the mutants of one medium, of pairs one in `every_pair`, and what became of each; all that there are.
pub fn run(
    media: Media,
    effort: Effort,
    (every, every_pair): (usize, usize),
    out: &mut dyn FnMut(&Mutant, Fate),
) -> Result<Vec<Mutant>, String> {
    let mut explorers = Vec::new();
    let mut all = Found::new();
    for start in [Start::Some, Start::Empty] {
        let mut explorer = Explorer::new(media, start, effort);
        (explorer.known, explorer.strict) = (Some(Known::default()), true);
        let mut ready = recorded(&mut explorer, &mut all)?;
        // What is found in the code as it is would be taken for a mutant's.
        for Ready { name, recorded, touched } in &mut ready {
            explorer.explore(name, recorded);
            touched[1] = explorer.known.as_mut().map(|known| std::mem::take(&mut known.lately)).unwrap_or_default();
        }
        if let Some(failure) = explorer.failures.first() {
            return Err(format!("without a mutant: {} ({})", failure.problem, failure.replay));
        }
        explorer.mutate(None);
        add(&mut all, explorer.known.as_ref().map(|known| known.found.clone()).unwrap_or_default());
        explorers.push((explorer, ready));
    }
    let (pairs, single): (Vec<_>, Vec<_>) = all.iter().partition(|(mutant, _)| matches!(mutant.change, Change::Swapped(..)));
    for (mutant, aside) in single.into_iter().step_by(every.max(1)).chain(pairs.into_iter().step_by(every_pair.max(1))) {
        let caught = explorers.iter_mut().any(|(explorer, ready)| is_caught(explorer, ready, *mutant));
        let missed = if *aside { Fate::Aside } else { Fate::Alive };
        out(mutant, if caught { Fate::Caught } else { missed });
    }
    Ok(all.into_keys().collect())
}

/// The workloads, the shortest first.
fn recorded(explorer: &mut Explorer, all: &mut Found) -> Result<Vec<Ready>, String> {
    let tree = explorer.first_tree();
    let mut ready: Vec<Ready> = Vec::new();
    for ops in workloads(explorer.start) {
        explorer.alternate = ops.len() > 1;
        let before = prefix_tree(explorer, &ops, &tree)?;
        let recorded = explorer.run(&ops, &before)?;
        if recorded.done {
            let (history, rest) = recorded.events.split_at(recorded.window);
            let mut words = BTreeMap::new();
            for event in history {
                if let What::Store { offset, len: 8, value, .. } = event.what {
                    words.insert(u64::from(offset), value);
                }
            }
            let base = |offset: u64| words.get(&offset).copied().unwrap_or_else(|| u64::from_le_bytes(explorer.base.get(offset)));
            let found = found(explorer.media, &rest[..recorded.end - recorded.window], &base);
            let touched = [found.keys().copied().collect(), BTreeSet::new()];
            add(all, found);
            ready.push(Ready { name: explore::shown(&ops), recorded, touched });
        }
    }
    ready.sort_by_key(|ready| ready.recorded.end - ready.recorded.window);
    Ok(ready)
}

/// Whether a mutant is caught: where it changes what is explored, then where it changes recovery.
fn is_caught(explorer: &mut Explorer, ready: &[Ready], mutant: Mutant) -> bool {
    explorer.mutate(Some(mutant));
    for (place, most) in [WORKLOADS_MAX, RECOVERIES_MAX].into_iter().enumerate() {
        let there: Vec<&Ready> = ready.iter().filter(|ready| ready.touched[place].contains(&mutant)).collect();
        for Ready { name, recorded, .. } in there.iter().step_by(there.len().div_ceil(most).max(1)) {
            explorer.explore(name, recorded);
            if explorer.caught() {
                return true;
            }
        }
    }
    false
}

/// All single operations, and a few pairs for what needs a history.
fn workloads(start: Start) -> Vec<Vec<workload::Op>> {
    // Ranges that are shared have flushes and fences for what other writers have left behind, which no single operation notices.
    let shares =
        |op: &workload::Op| matches!(op, workload::Op::Clone(..) | workload::Op::CloneBlock(..) | workload::Op::Same(..));
    let mut lists: Vec<Vec<workload::Op>> = workload::all().into_iter().filter(|op| !shares(op)).map(|op| vec![op]).collect();
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
            // What the first has put aside is gone by the third, of the same process, which puts its own there.
            "undo(foo,100,1000) chmod(foo) undo(foo,500,1500)",
            "replay(foo,100,1000) chmod(foo) replay(foo,500,1500)",
            "write(foo,20480,10) undo(foo,4700,4000)",
            // The second attribute begins at the end of a line; behind several lines.
            "setxattr(A/foo,40) setxattr(A/foo,7)",
            "setxattr(A/foo,5000) setxattr(A/foo,7)",
            // The first one, of several lines, is copied.
            "setxattr(A/foo,5000) setxattr(A/foo,7) setxattr(A/foo,7)",
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
