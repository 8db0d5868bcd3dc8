//! Goal: wherever the process dies that takes or gives up a description, the
//! count is what the tables say once it is adopted, and the last one is told so
//! exactly once. Method: death after each step, with and without another
//! process's change in between, and the adopter dying too.

use bypath_openfiles::refcount::{self, Holders, Intent, Outcome, Settled};
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
    fn pause(&self, _turns: u32) -> bool {
        false
    }
}

impl Tables {
    /// Open file 0, opened by process 0 at number 0 and held by process 1 at number 0 as well if `shared`.
    fn new(shared: bool) -> Tables {
        let tables = Tables::default();
        tables.entries[0][0].store(1, SeqCst);
        tables.refs[0].store(refcount::opened(0, 0), SeqCst);
        assert!(!shared || refcount::get(&tables, 1, 0, 0));
        tables
    }

    /// Entries that hold description 0; none may be in doubt.
    fn held(&self) -> u64 {
        let words = self.entries.iter().flatten().map(|entry| entry.load(SeqCst));
        words.filter(|word| *word != 0).map(|word| u64::from(refcount::held(word).expect("no doubt is left") == 0)).sum()
    }

    fn count(&self) -> u64 {
        refcount::count(self.refs[0].load(SeqCst))
    }

    /// What the adopter of a process does; how many descriptions he ends.
    fn adopt(&self, process: u32) -> u32 {
        let mut ends = 0;
        for fd in 0..2 {
            loop {
                match refcount::settle(self, process, fd) {
                    Settled::Empty => break,
                    Settled::Last(_) => ends += 1,
                    Settled::Again => {}
                }
            }
        }
        // As `end_half_made` does: what the dead was ending.
        if self.refs[0].load(SeqCst) == refcount::making(process) {
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
            assert!(refcount::get(&tables, 2, 0, 0));
        }
        if others & 2 != 0 {
            assert_eq!(refcount::put(&tables, 2, 0), None);
        }
        // An adopter that dies in the middle, and the next.
        for _ in 0..adopters {
            refcount::settle(&tables, 1, u32::from(takes));
        }
        assert_eq!(tables.adopt(1), 0, "{takes} {steps} {others}: process 0 holds it");
        assert_eq!(tables.count(), tables.held(), "takes {takes}, dead after {steps}, others {others}");
        assert_eq!(tables.entries[1][0].load(SeqCst) | tables.entries[1][1].load(SeqCst), 0);
        // Whoever is left is the last, and is told.
        let mut ends = u32::from(refcount::put(&tables, 2, 0).is_some());
        ends += u32::from(refcount::put(&tables, 0, 0).is_some());
        assert_eq!(ends, 1);
    }
}

/// The same, the dead one being the last holder.
#[test]
fn death_of_the_last() {
    for steps in 0..4 {
        let tables = Tables::new(true);
        assert_eq!(refcount::put(&tables, 0, 0), None);
        dies(&tables, false, steps);
        assert_eq!(tables.adopt(1), 1, "dead after {steps}");
        assert_eq!((tables.refs[0].load(SeqCst), tables.held()), (0, 0));
    }
}

/// What nobody holds, or what is being ended, cannot be taken; a number past the end neither takes nor gives.
#[test]
fn nothing_to_take() {
    let tables = Tables::new(false);
    assert!(!refcount::get(&tables, 1, 0, 1));
    assert!(!refcount::get(&tables, 1, 5, 0));
    assert_eq!(refcount::put(&tables, 7, 0), None);
    tables.refs[0].store(refcount::making(0), SeqCst);
    assert!(!refcount::get(&tables, 1, 0, 0));
    assert_eq!(tables.entries[1][0].load(SeqCst), 0);
}

/// The sequence comes round without harm.
#[test]
fn many_changes() {
    let tables = Tables::new(true);
    for _ in 0..20_000 {
        assert!(refcount::get(&tables, 2, 1, 0));
        assert_eq!(refcount::put(&tables, 2, 1), None);
    }
    assert_eq!(tables.count(), 2);
}

/// Tables where something happens while a thread waits, so often at most.
struct Waited {
    tables: Tables,
    happens: fn(&Tables),
    most: u32,
    turns: AtomicU32,
}

impl Holders for Waited {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.tables.entry(process, fd)
    }
    fn refs(&self, id: u32) -> &AtomicU64 {
        self.tables.refs(id)
    }
    fn pause(&self, turns: u32) -> bool {
        assert_eq!(turns, self.turns.load(SeqCst).min(self.most));
        self.turns.fetch_add(1, SeqCst);
        if turns == 2 {
            (self.happens)(&self.tables);
        }
        turns < self.most
    }
}

/// Open file 0, opened by process 0 at number 0, which another thread of that process has marked.
fn marked(happens: fn(&Tables)) -> Waited {
    let waited = Waited { tables: Tables::new(false), happens, most: 20, turns: AtomicU32::new(0) };
    waited.tables.refs[0].store(refcount::making(0), SeqCst);
    waited
}

/// Who closes what another thread is opening waits until it is open; what another is closing, until that is done.
#[test]
fn another_thread_is_at_it() {
    let opening = marked(|tables| tables.refs[0].store(refcount::opened(0, 0), SeqCst));
    assert_eq!(refcount::put(&opening, 0, 0), Some(0));
    assert_eq!((opening.tables.held(), opening.tables.refs[0].load(SeqCst)), (0, refcount::making(0)));
    let closing = marked(|tables| refcount::leave(&tables.entries[0][0], 0));
    assert_eq!(refcount::put(&closing, 0, 0), None);
    assert_eq!((closing.tables.held(), closing.tables.refs[0].load(SeqCst)), (0, refcount::making(0)));
}

/// Nobody waits for ever for a mark that nobody takes back. If it is of the caller's process, it stays with
/// the entry that its thread may be about to need; if it is another's, the entry holds nothing.
#[test]
fn marked_for_good() {
    for (process, left) in [(0, 1), (1, 0)] {
        let waited = marked(|_| ());
        waited.tables.refs[0].store(refcount::making(process), SeqCst);
        assert_eq!(refcount::put(&waited, 0, 0), None);
        assert_eq!((waited.turns.load(SeqCst), waited.tables.held()), (21, left));
        assert_eq!(waited.tables.refs[0].load(SeqCst), refcount::making(process));
        // What the adopter of process 0 finds he empties.
        assert_eq!(waited.tables.adopt(0), u32::from(process == 0));
        assert_eq!(waited.tables.held(), 0);
    }
}

/// A description that one entry has opened and no other ever held is that entry's: whatever another says
/// that was left over from an earlier one, nothing is given up through it.
#[test]
fn another_entrys_alone() {
    assert_ne!(refcount::opened(0, 0), refcount::opened(0, 1));
    assert_ne!(refcount::opened(0, 0), refcount::opened(1, 0));
    for (process, fd) in [(0, 1), (1, 0), (2, 1)] {
        let tables = Tables::new(false);
        tables.entries[process as usize][fd as usize].store(1, SeqCst);
        assert_eq!(refcount::put(&tables, process, fd), None);
        assert_eq!((tables.held(), tables.refs[0].load(SeqCst)), (1, refcount::opened(0, 0)));
        tables.entries[process as usize][fd as usize].store(1, SeqCst);
        // As its adopter does.
        assert_eq!(refcount::settle(&tables, process, fd), Settled::Empty);
        assert_eq!((tables.held(), tables.refs[0].load(SeqCst)), (1, refcount::opened(0, 0)));
    }
}

/// What is opened over a number that another thread has just duplicated something to does not leave that counted.
#[test]
fn opened_over_what_another_thread_puts_there() {
    let tables = Tables::new(false);
    tables.entries[2][0].store(2, SeqCst);
    tables.refs[1].store(refcount::opened(2, 0), SeqCst);
    refcount::install(&tables, 0, 0, 5, |last| {
        assert_eq!(last, 0);
        // The number holds nothing at this moment.
        assert!(refcount::get(&tables, 0, 0, 1));
    });
    assert_eq!(tables.entries[0][0].load(SeqCst), 6);
    assert_eq!(refcount::count(tables.refs[1].load(SeqCst)), 1, "the other's");
}

/// The largest numbers fit beside each other.
#[test]
fn the_largest_numbers() {
    let (process, fd) = (refcount::PROCESSES_MAX as u32 - 1, refcount::ENTRIES_MAX as u32 - 1);
    let refs = refcount::opened(process, fd);
    assert_eq!((refcount::count(refs), refs & refcount::MAKING), (1, 0));
    assert_eq!(refcount::count(refcount::making(process)), 0);
    assert_ne!(refcount::making(process), 0);
}

/// The mark's owner empties the entry whatever another thread is doing with it, but not another description's.
#[test]
fn the_marks_owner_empties_the_entry() {
    for (word, left) in [(1, 0), (1 | 1 << 30, 0), (1 | 1 << 31, 1 | 1 << 31), (2, 2), (0, 0)] {
        let place = AtomicU32::new(word);
        refcount::leave(&place, 0);
        assert_eq!(place.load(SeqCst), left);
    }
}

/// Goal: words that a hostile peer has written harm nobody else. Method: one count and one entry hold every pattern of
/// bits; after all steps that meet them, the other description is held as often as before, by the same entries, and the
/// entry that was nonsense can be emptied and used again.
#[test]
fn a_hostile_peers_words_harm_nobody_else() {
    let patterns = (0..64).flat_map(|bits| [1u64 << bits, u64::MAX >> bits, u64::MAX << bits]);
    for word in patterns {
        let tables = Tables::new(true);
        tables.entries[0][1].store(2, SeqCst);
        tables.refs[1].store(refcount::opened(0, 1), SeqCst);
        let names_the_other = word as u32 & refcount::DESCRIPTIONS_MAX as u32 == 2;
        tables.refs[0].store(word, SeqCst);
        tables.entries[2][0].store(word as u32, SeqCst);
        for _ in 0..10 {
            refcount::settle(&tables, 1, 0);
            refcount::settle(&tables, 2, 0);
        }
        refcount::get(&tables, 2, 1, 0);
        refcount::put(&tables, 0, 0);
        assert_eq!(tables.entries[0][1].load(SeqCst), 2, "{word:x}");
        if !names_the_other {
            assert_eq!(refcount::count(tables.refs[1].load(SeqCst)), 1, "{word:x}");
        }
        refcount::install(&tables, 2, 0, 1, |_| ());
        assert_eq!(refcount::held(tables.entries[2][0].load(SeqCst)), Some(1), "{word:x}");
    }
}
