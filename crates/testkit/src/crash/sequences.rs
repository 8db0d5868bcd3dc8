//! Which sequences of operations are tried, and by which share of a run.
//!
//! A sequence has a number that follows from its operations alone. So a share knows which are its own without
//! trying the others, and the shares of a run, tried one by one or beside each other, are the whole of it.

use super::command::Plan;
use super::explore::{Explorer, shown};
use super::model::mix;
use super::tree::Tree;
use super::workload::{self, Op};
use crate::rng::Rng;
use std::rc::Rc;

/// One of the equal shares of a run: the sequences whose numbers leave `number` when divided by `of`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which, from 0 on, ...
    pub number: u64,
    /// ... of how many.
    pub of: u64,
}

impl Share {
    /// From `K/N`, the `K`th of `N`, counted from one.
    pub fn parse(text: &str) -> Option<Share> {
        let (which, of) = text.split_once('/')?;
        let (which, of): (u64, u64) = (which.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&which).then(|| Share { number: which - 1, of })
    }

    /// The share of one of `jobs` processes; those of all are this share, however many they are.
    pub const fn of_job(self, job: u64, jobs: u64) -> Share {
        Share { number: self.number + job * self.of, of: self.of * jobs }
    }
}

/// The sequences of a share.
pub struct Sequences<'a> {
    plan: &'a Plan,
    share: Share,
    /// The operations, and whether they are of the core set.
    all: Vec<(Op, bool)>,
}

/// Length from which on the core set is what is complete.
const CORE_FROM: usize = 3;

/// All operations, in an order drawn from the seed: where time is short, something of each kind is tried.
fn shuffled(seed: u64) -> Vec<(Op, bool)> {
    let mut rng = Rng::new(seed);
    let mut all: Vec<(Op, bool)> = workload::all().into_iter().map(|op| (op, workload::is_core(&op))).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all
}

/// Operations that come before others.
#[derive(Clone, Copy)]
struct Before {
    /// Their number; 0 is none.
    number: u64,
    /// How many.
    len: usize,
    /// Whether all are of the core set.
    core: bool,
}

impl<'a> Sequences<'a> {
    /// Those of `share`.
    pub fn new(plan: &'a Plan, share: Share) -> Sequences<'a> {
        Sequences { plan, share, all: shuffled(plan.seed) }
    }

    /// Tries all of a length; the crash is in the last operation. `tree` is what they begin with.
    pub fn of_length(&self, explorer: &mut Explorer, tree: &Rc<Tree>, len: usize) {
        self.after(Before { number: 0, len: 0, core: true }, explorer, &mut Vec::new(), tree, len);
    }

    /// Those before, with the operation `at` behind them.
    fn with(&self, before: Before, at: usize) -> Before {
        Before {
            number: before.number * (self.all.len() as u64 + 1) + at as u64 + 1,
            len: before.len + 1,
            core: before.core && self.all[at].1,
        }
    }

    /// Whether this sequence is tried, by whichever share.
    fn is_chosen(&self, sequence: Before) -> bool {
        sequence.len < self.plan.depth
            || sequence.len < 2
            || sequence.len >= CORE_FROM && sequence.core
            || mix(sequence.number ^ self.plan.seed << 40).is_multiple_of(self.plan.every)
    }

    /// Whether the sequences of one more than these are ours: all, for they have the way to there in common.
    /// Single operations have nothing in common.
    fn is_ours(&self, before: Before) -> bool {
        mix(before.number) % self.share.of == self.share.number
    }

    /// Goes through all sequences of `more` operations behind `before`, which have led to `tree`.
    fn after(&self, before: Before, explorer: &mut Explorer, ops: &mut Vec<Op>, tree: &Rc<Tree>, more: usize) {
        for at in 0..self.all.len() {
            let now = self.with(before, at);
            if more == 1 && (!self.is_chosen(now) || now.len == 1 && !self.is_ours(now)) {
                continue;
            }
            let is_last_but_one = more == 2;
            if is_last_but_one && !(self.is_ours(now) && (0..self.all.len()).any(|at| self.is_chosen(self.with(now, at)))) {
                continue;
            }
            ops.push(self.all[at].0);
            match more {
                1 => self.last(explorer, ops, tree),
                // Only counted.
                _ if explorer.late() => self.after(now, explorer, ops, tree, more - 1),
                _ => match explorer.run(ops, tree) {
                    // One that fails changes nothing: shorter sequences have it all.
                    Ok(recorded) if recorded.done => {
                        if let Some(after) = recorded.after() {
                            self.after(now, explorer, ops, &after.clone(), more - 1);
                        }
                    }
                    Ok(_) => {}
                    Err(problem) => explorer.fail(&shown(ops), problem),
                },
            }
            ops.pop();
        }
    }

    /// Tries one sequence.
    fn last(&self, explorer: &mut Explorer, ops: &[Op], tree: &Rc<Tree>) {
        if explorer.late() {
            explorer.counts.left += 1;
            return;
        }
        // Every store must be one that was recorded.
        let recorded = if ops.len() == 1 { explorer.run_watched(ops, tree) } else { explorer.run(ops, tree) };
        match recorded {
            Ok(recorded) => explorer.explore(&shown(ops), &recorded),
            Err(problem) => explorer.fail(&shown(ops), problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::super::explore::{Effort, Media};
    use super::super::workload::Start;
    use super::*;

    const PLAN: Plan = Plan { depth: 3, shortest: 3, every: 500, jobs: 1, seed: 1, pairs: 0, alike: 0, seconds: 0 };

    /// Without crashes inside recovery: a share tries those of each state that it meets, whoever else does.
    const EFFORT: Effort = Effort { cap: 4, cap_inside: 1, inside_every: u64::MAX, alike_every: 0 };

    /// Goal: the shares of a run are the whole of it, each sequence in one of them.
    /// Method: a few operations, in sequences of one and of two, tried by three shares and by one.
    #[test]
    fn shares_add_up() {
        let _clock = super::super::clock_is_ours();
        let plan = Plan { depth: 2, every: 2, ..PLAN };
        let counted = |share: Share, len: usize| {
            let mut sequences = Sequences::new(&plan, share);
            let few = ["create(bar)", "rename(foo,bar)", "unlink(A/foo)", "rmdir(foo)", "chmod(foo)", "mkdir(bar)"];
            sequences.all = few.iter().filter_map(|text| Some((workload::parse(text)?, true))).collect();
            let mut explorer = Explorer::new(Media::Power, Start::Some, EFFORT);
            let tree = explorer.first_tree();
            sequences.of_length(&mut explorer, &tree, len);
            assert_eq!((explorer.counts.violations, explorer.counts.left), (0, 0));
            explorer.counts
        };
        for len in [1, 2] {
            let whole = counted(Share { number: 0, of: 1 }, len);
            let mut sum = Counts::default();
            let parts: Vec<Counts> = (0..3).map(|number| counted(Share { number, of: 3 }, len)).collect();
            parts.iter().for_each(|part| sum += *part);
            assert_eq!((sum.workloads, sum.points, sum.met), (whole.workloads, whole.points, whole.met));
            assert!(whole.workloads > 5 && parts.iter().all(|part| part.workloads < whole.workloads));
            // What two shares meet both try.
            assert!(sum.tried >= whole.tried);
        }
    }

    /// Goal: a part is the same whoever runs it. Method: each number is in one job of the part that it is in alone.
    #[test]
    fn a_part_does_not_depend_on_jobs() {
        assert_eq!(Share::parse("3/7"), Some(Share { number: 2, of: 7 }));
        for text in ["0/7", "8/7", "7", "/", "a/b", "1/0"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        for (jobs, number) in (1..5).flat_map(|jobs| (0..100).map(move |number| (jobs, number))) {
            let is_in = |share: Share| number % share.of == share.number;
            for part in 0..7 {
                let part = Share { number: part, of: 7 };
                let in_jobs = (0..jobs).filter(|job| is_in(part.of_job(*job, jobs))).count();
                assert_eq!(in_jobs, usize::from(is_in(part)));
            }
        }
    }

    /// Goal: no two sequences have the same number, and the core set of three is complete.
    /// Method: all of three are numbered; of a core prefix all core sequences are chosen.
    #[test]
    fn numbers_are_sequences() {
        let sequences = Sequences::new(&PLAN, Share { number: 0, of: 1 });
        let n = sequences.all.len();
        let none = Before { number: 0, len: 0, core: true };
        let mut core = 0;
        let mut last = 0;
        for first in 0..n {
            let one = sequences.with(none, first);
            for second in 0..n {
                let two = sequences.with(one, second);
                for third in 0..n {
                    let three = sequences.with(two, third);
                    assert!(three.number > last, "in order, so never twice");
                    last = three.number;
                    core += usize::from(three.core && sequences.is_chosen(three));
                }
            }
        }
        assert_eq!(core, 43 * 43 * 43);
    }
}
