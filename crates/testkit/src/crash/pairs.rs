//! Two threads, or two processes, at a time: every crash while both are in an
//! operation must leave what some order of the two leaves.
//!
//! A schedule is drawn from a seed: after every store, flush and fence, and
//! whenever one waits, it says who goes on. So a run is the same each time.

use super::check::{Expect, Times};
use super::explore::{Explorer, Recorded};
use super::record;
use super::sequences::Share;
use super::tree::Tree;
use super::workload::{self, Op};
use crate::rng::Rng;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct Schedule {
    rng: Option<Rng>,
    /// Whose turn it is.
    turn: usize,
    done: [bool; 2],
}

static SCHEDULE: Mutex<Schedule> = Mutex::new(Schedule { rng: None, turn: 0, done: [false; 2] });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Which of the two this thread is.
    static WHO: Cell<Option<usize>> = const { Cell::new(None) };
}

fn schedule() -> MutexGuard<'static, Schedule> {
    SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until it is this thread's turn.
fn wait(mut schedule: MutexGuard<'static, Schedule>, me: usize) {
    while schedule.turn != me {
        schedule = CHANGED.wait(schedule).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Lets the schedule say who goes on. `always`: the other one, if it can.
fn next(always: bool) {
    let Some(me) = WHO.get() else { return };
    let mut schedule = schedule();
    let change = always || schedule.rng.as_mut().is_some_and(|rng| rng.one_in(6));
    if change && !schedule.done[1 - me] {
        schedule.turn = 1 - me;
        CHANGED.notify_all();
    }
    wait(schedule, me);
}

fn after_event() {
    next(false);
}

fn while_waiting() {
    if WHO.get().is_none() {
        // Nobody else is there who could let go of anything.
        panic!("an operation waits for a lock that nobody holds");
    }
    next(true);
}

/// This thread is through.
fn finished(me: usize) {
    let mut schedule = schedule();
    schedule.done[me] = true;
    schedule.turn = 1 - me;
    CHANGED.notify_all();
}

/// An operation that does one thing, all or nothing.
fn is_plain(op: &Op) -> bool {
    // A clone that has the same bytes already: what is replaced extent by extent looks the same.
    let is_again = *op == workload::CLONE_AGAIN;
    (op.in_place().is_none() || is_again) && !matches!(op, Op::Tmpfile(_) | Op::OpenUnlink(_) | Op::OpenUnlinkClose(_))
}

/// Whether one of two does not do one thing beside the other, but several: it finds two names one after the other, and the other
/// moves a directory on the way to them, or takes away what it has found.
fn is_torn(op: &Op, other: &Op) -> bool {
    let moves = |name: &usize| workload::is_directory(*name);
    match (op, other) {
        (
            Op::Link(..) | Op::CopyWhole(..) | Op::Clone(..) | Op::Twin(..) | Op::Same(..),
            Op::Rename(a, b) | Op::Exchange(a, b),
        ) if moves(a) || moves(b) => true,
        (Op::CopyWhole(..) | Op::Clone(..) | Op::Twin(..) | Op::Same(..), Op::Rename(..) | Op::Exchange(..) | Op::Unlink(_)) => {
            true
        }
        _ => false,
    }
}

/// Tries `count` runs; of these one `share` is ours.
pub fn run(explorer: &mut Explorer, tree: &Rc<Tree>, count: u64, seed: u64, share: Share) {
    let plain: Vec<Op> = workload::all().into_iter().filter(is_plain).collect();
    for number in (0..count).filter(|number| number % share.of == share.number) {
        if explorer.late() {
            explorer.counts.left += 1;
            continue;
        }
        let mut rng = Rng::new(seed ^ number << 20);
        let (mut a, mut b) = (rng.pick(&plain), rng.pick(&plain));
        // Those that fail before they change anything have no schedule to speak of.
        for _ in 0..8 {
            let succeeds = |op: Op, explorer: &mut Explorer| explorer.run(&[op], tree).is_ok_and(|recorded| recorded.done);
            if !succeeds(a, explorer) {
                a = rng.pick(&plain);
            }
            if !succeeds(b, explorer) {
                b = rng.pick(&plain);
            }
        }
        if is_torn(&a, &b) || is_torn(&b, &a) {
            continue;
        }
        try_pair(explorer, tree, a, b, rng.draw() >> 16, number % 2 == 0);
    }
}

/// Tries a run again: `medium start pair a b seed processes|threads …`.
pub fn replay(explorer: &mut Explorer, tree: &Rc<Tree>, text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    let [_, _, "pair", a, b, seed, how, ..] = words.as_slice() else { return false };
    let (Some(a), Some(b), Ok(seed)) = (workload::parse(a), workload::parse(b), seed.parse()) else { return false };
    explorer.target = text.contains('@').then(|| text.to_string());
    try_pair(explorer, tree, a, b, seed, *how == "processes");
    println!("{text}: {} states, {} violations", explorer.counts.tried, explorer.counts.violations);
    explorer.counts.tried > 0
}

fn try_pair(explorer: &mut Explorer, tree: &Rc<Tree>, a: Op, b: Op, seed: u64, processes: bool) {
    let name = format!("pair {a} {b} {seed} {}", if processes { "processes" } else { "threads" });
    match record_pair(explorer, tree, a, b, seed, processes) {
        Ok(recorded) => explorer.explore(&name, &recorded),
        Err(problem) => explorer.fail(&name, problem),
    }
}

/// The trees that the orders of the two leave: neither, `a`, `b`, both.
fn orders(explorer: &mut Explorer, tree: &Rc<Tree>, a: Op, b: Op) -> Result<[Vec<Rc<Tree>>; 4], String> {
    let (one, other) = (explorer.tree_after(&[a])?, explorer.tree_after(&[b])?);
    let both = vec![explorer.tree_after(&[a, b])?, explorer.tree_after(&[b, a])?];
    Ok([vec![Rc::clone(tree)], vec![one], vec![other], both])
}

/// Whether an operation has failed, in either order, for what happened between its look-up and its locks; the kernel's does
/// too. A link's file was renamed or removed; a rename's directory has become the one that is renamed, by another rename.
fn has_missed(op: Op, beside: Op, error: Option<base::Error>) -> bool {
    use base::{Errno, Error::Posix};
    match error {
        Some(Posix(Errno::ENOENT)) => matches!(op, Op::Link(..)),
        Some(Posix(Errno::EINVAL)) => matches!((op, beside), (Op::Rename(..), Op::Rename(..) | Op::Exchange(..))),
        _ => false,
    }
}

fn record_pair(explorer: &mut Explorer, tree: &Rc<Tree>, a: Op, b: Op, seed: u64, processes: bool) -> Result<Recorded, String> {
    let [neither, one, other, both] = orders(explorer, tree, a, b)?;
    let ((window, ends, after), events) = explorer.run_with(|machine| {
        let first = machine.attach(0).map_err(|error| error.to_string())?;
        let second = if processes { machine.attach(1).map_err(|error| error.to_string())? } else { first };
        let fs = [first, second];
        let window = machine.log.len();
        *schedule() = Schedule { rng: Some(Rng::new(seed)), turn: 0, done: [false; 2] };
        record::after_each(Some(after_event));
        pm::record::on_give_way(while_waiting);
        let ends = std::thread::scope(|scope| {
            let threads = [(0, a), (1, b)].map(|(me, op)| {
                let fs = fs[me];
                scope.spawn(move || {
                    record::i_am(me as u8);
                    WHO.set(Some(me));
                    wait(schedule(), me);
                    // Whether it fails is a matter of the order, but for this.
                    let missed = has_missed(op, [b, a][me], op.perform(machine, fs, me).err());
                    let end = machine.log.len();
                    finished(me);
                    (end, missed)
                })
            });
            threads.map(|thread| thread.join().map_err(|_| "a thread has panicked".to_string()))
        });
        record::after_each(None);
        let [first, second] = ends;
        let after = Tree::read(fs[0], &machine.cx(0))?.kept(false);
        Ok((window, [first?, second?], Rc::new(after)))
    })?;
    let (missed, ends) = (ends.map(|(_, missed)| missed), ends.map(|(end, _)| end));
    let explained = both.contains(&after) || missed[0] && other.contains(&after) || missed[1] && one.contains(&after);
    if !explained {
        return Err(format!("no order of the two leaves this tree: {}", both[0].difference(&after)));
    }
    let of = |lists: &[&Vec<Rc<Tree>>]| Expect {
        trees: lists.iter().flat_map(|list| list.iter().cloned()).collect(),
        in_place: None,
        times: Times::None,
    };
    let (first, last) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    let returned = if ends[0] < ends[1] { &one } else { &other };
    // One that missed has changed nothing.
    let all = [&neither, &one, &other].into_iter().flatten().cloned().collect::<Vec<_>>();
    let phases = vec![
        (0, of(&[&neither, &one, &other, &both])),
        (first - window, of(&[returned, &both, if missed[0] || missed[1] { &all } else { &both }])),
        (last - window, Expect::exactly(&after, false)),
    ];
    Ok(Recorded { events, window, end: last, phases, done: true })
}
