//! Goal: wherever the process dies that takes or gives up a description, the
//! count is what the tables say once it is adopted, and the last one is told so
//! exactly once. Method: death after each step, with and without another
//! process's change in between, and the adopter dying too.

use bypath_base::hold::{self, Holders, Intent, Outcome, Settled};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Three processes with two numbers each, and two descriptions.
#[derive(Default)]
struct Tables {
    entries: [[AtomicU32; 2]; 3],
    refs: [AtomicU64; 2],
}

static NOTHING: AtomicU64 = AtomicU64::new(0);

impl Holders for Tables {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.entries.get(process as usize)?.get(fd as usize)
    }
    fn refs(&self, id: u32) -> &AtomicU64 {
        self.refs.get(id as usize).unwrap_or(&NOTHING)
    }
    fn pause(&self) {}
}

impl Tables {
    /// Description 0, opened by process 0 at number 0 and held by process 1 at number 0 as well if `shared`.
    fn new(shared: bool) -> Tables {
        let tables = Tables::default();
        tables.entries[0][0].store(1, SeqCst);
        tables.refs[0].store(hold::ONE, SeqCst);
        assert!(!shared || hold::take(&tables, 1, 0, 0));
        tables
    }

    /// Entries that hold description 0; none may be in doubt.
    fn held(&self) -> u64 {
        let words = self.entries.iter().flatten().map(|entry| entry.load(SeqCst));
        words.filter(|word| *word != 0).map(|word| u64::from(hold::held(word).expect("no doubt is left") == 0)).sum()
    }

    fn count(&self) -> u64 {
        hold::count(self.refs[0].load(SeqCst))
    }

    /// What the adopter of a process does; how many descriptions he ends.
    fn adopt(&self, process: u32) -> u32 {
        let mut ends = 0;
        for fd in 0..2 {
            loop {
                match hold::settle(self, process, fd) {
                    Settled::Empty => break,
                    Settled::Last(_) => ends += 1,
                    Settled::Again => {}
                }
            }
        }
        // As `end_half_made` does: what the dead was ending.
        if self.refs[0].load(SeqCst) == hold::making(process) {
            ends += u32::from(ends == 0);
            self.refs[0].store(0, SeqCst);
        }
        ends
    }
}

/// Process 1 begins to give up (number 0) or to take (number 1), and dies after so many steps.
fn dies(tables: &Tables, takes: bool, steps: u32) {
    let (fd, before) = if takes { (1, 0) } else { (0, 1) };
    if steps == 0 {
        return;
    }
    let mut intent = Intent::announce(tables, 1, fd, 0, before).expect("nobody else changes it");
    if steps > 1 {
        assert_ne!(intent.apply(tables), Outcome::Refused);
    }
    if steps > 2 {
        intent.complete(tables);
    }
}

#[test]
fn death_at_every_step() {
    for (takes, steps, others, adopters) in
        (0..96).map(|n| (n & 1 != 0, n >> 1 & 3, n >> 3 & 3, n >> 5)).filter(|case| case.3 < 3)
    {
        let tables = Tables::new(true);
        dies(&tables, takes, steps);
        // Meanwhile the count changes for others.
        if others & 1 != 0 {
            assert!(hold::take(&tables, 2, 0, 0));
        }
        if others & 2 != 0 {
            assert_eq!(hold::give(&tables, 2, 0), None);
        }
        // An adopter that dies in the middle, and the next.
        for _ in 0..adopters {
            hold::settle(&tables, 1, u32::from(takes));
        }
        assert_eq!(tables.adopt(1), 0, "{takes} {steps} {others}: process 0 holds it");
        assert_eq!(tables.count(), tables.held(), "takes {takes}, dead after {steps}, others {others}");
        assert_eq!(tables.entries[1][0].load(SeqCst) | tables.entries[1][1].load(SeqCst), 0);
        // Whoever is left is the last, and is told.
        let mut ends = u32::from(hold::give(&tables, 2, 0).is_some());
        ends += u32::from(hold::give(&tables, 0, 0).is_some());
        assert_eq!(ends, 1);
    }
}

/// The same, the dead one being the last holder.
#[test]
fn death_of_the_last() {
    for steps in 0..4 {
        let tables = Tables::new(true);
        assert_eq!(hold::give(&tables, 0, 0), None);
        dies(&tables, false, steps);
        assert_eq!(tables.adopt(1), 1, "dead after {steps}");
        assert_eq!((tables.refs[0].load(SeqCst), tables.held()), (0, 0));
    }
}

/// What nobody holds, or what is being ended, cannot be taken; a number past the end neither takes nor gives.
#[test]
fn nothing_to_take() {
    let tables = Tables::new(false);
    assert!(!hold::take(&tables, 1, 0, 1));
    assert!(!hold::take(&tables, 1, 5, 0));
    assert_eq!(hold::give(&tables, 7, 0), None);
    tables.refs[0].store(hold::making(0), SeqCst);
    assert!(!hold::take(&tables, 1, 0, 0));
    assert_eq!(tables.entries[1][0].load(SeqCst), 0);
}

/// The sequence comes round without harm.
#[test]
fn many_changes() {
    let tables = Tables::new(true);
    for _ in 0..20_000 {
        assert!(hold::take(&tables, 2, 1, 0));
        assert_eq!(hold::give(&tables, 2, 1), None);
    }
    assert_eq!(tables.count(), 2);
}

/// A mark that a thread of another process set by mistake, and is about to take back, is no end: who closes
/// the number meanwhile waits, and is told that it was the last one.
#[test]
fn marked_by_mistake() {
    struct Marked(Tables, u64);
    impl Holders for Marked {
        fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
            self.0.entry(process, fd)
        }
        fn refs(&self, id: u32) -> &AtomicU64 {
            self.0.refs(id)
        }
        fn pause(&self) {
            let _ = self.0.refs[0].compare_exchange(self.1, hold::ONE, SeqCst, SeqCst);
        }
    }
    let marked = Marked(Tables::new(false), hold::making(2));
    marked.0.refs[0].store(marked.1, SeqCst);
    assert_eq!(hold::give(&marked, 0, 0), Some(0));
    assert_eq!((marked.0.held(), marked.0.refs[0].load(SeqCst)), (0, hold::making(0)));
}

/// Words that a hostile peer may write lead nowhere.
#[test]
fn nonsense() {
    for bits in 0..64 {
        for word in [1u64 << bits, u64::MAX >> bits, u64::MAX << bits] {
            let tables = Tables::new(true);
            tables.refs[0].store(word, SeqCst);
            tables.entries[2][0].store(word as u32, SeqCst);
            for _ in 0..10 {
                hold::settle(&tables, 1, 0);
                hold::settle(&tables, 2, 0);
            }
            hold::take(&tables, 2, 1, 0);
            hold::give(&tables, 0, 0);
        }
    }
}
