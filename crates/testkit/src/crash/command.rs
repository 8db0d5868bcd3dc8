//! `testkit crash`: sequences of operations, shared out among processes.

use super::explore::{Counts, Effort, Explorer, Failure, Media, shown};
use super::mutate::{self, Change};
use super::tree::Tree;
use super::workload::{self, Op, Start};
use super::{equivalent, pairs};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What to explore.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Longest sequence.
    pub depth: usize,
    /// Of the sequences of this length one in how many.
    pub every: u64,
    /// Processes.
    pub jobs: u64,
    /// Seed of everything that is chosen.
    pub seed: u64,
    /// Runs of two threads or processes.
    pub pairs: u64,
}

/// Effort for sequences of a length.
fn effort(len: usize) -> Effort {
    match len {
        1 => Effort { cap: 64, cap_inside: 6, inside_every: 8 },
        2 => Effort { cap: 16, cap_inside: 4, inside_every: 32 },
        _ => Effort { cap: 12, cap_inside: 4, inside_every: 64 },
    }
}

/// Explores; prints what was found. True if that is nothing.
pub fn run(plan: &Plan) -> bool {
    let begun = Instant::now();
    println!("sequences of up to {} operations out of {}, seed {}", plan.depth, workload::all().len(), plan.seed);
    let Ok(program) = std::env::current_exe() else { return false };
    let mut children = Vec::new();
    for share in 0..plan.jobs {
        let numbers = [plan.depth as u64, plan.every, plan.jobs, plan.seed, plan.pairs, share].map(|number| number.to_string());
        let child = Command::new(&program).args(["crash", "--worker"]).args(numbers).stdout(Stdio::piped()).spawn();
        match child {
            Ok(child) => children.push(child),
            Err(error) => println!("FAILED: no process: {error}"),
        }
    }
    let mut totals: Vec<(String, Counts)> = Vec::new();
    let mut fine = children.len() as u64 == plan.jobs;
    for mut child in children {
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            let Some((name, counts)) = line.strip_prefix("counts ").and_then(parsed) else {
                println!("{line}");
                continue;
            };
            match totals.iter_mut().find(|(n, _)| *n == name) {
                Some((_, total)) => *total += counts,
                None => totals.push((name, counts)),
            }
        }
        fine &= child.wait().is_ok_and(|status| status.success());
    }
    report(&totals, begun.elapsed().as_secs());
    fine && totals.iter().all(|(_, counts)| counts.violations == 0)
}

fn report(totals: &[(String, Counts)], seconds: u64) {
    println!("| | workloads | crash points | states met | different states tried | of these inside recovery | violations |");
    println!("|---|---|---|---|---|---|---|");
    let mut sum = Counts::default();
    let line = |name: &str, c: &Counts| {
        println!("| {name} | {} | {} | {} | {} | {} | {} |", c.workloads, c.points, c.met, c.tried, c.inside, c.violations);
    };
    for (name, counts) in totals {
        line(name, counts);
        sum += *counts;
    }
    line("all", &sum);
    println!("{} different states in {seconds} s, {} violations", sum.tried, sum.violations);
}

fn said(name: &str, c: &Counts) {
    println!("counts {name}|{}|{}|{}|{}|{}|{}", c.workloads, c.points, c.met, c.tried, c.inside, c.violations);
}

fn parsed(text: &str) -> Option<(String, Counts)> {
    let mut parts = text.split('|');
    let name = parts.next()?.to_string();
    let mut number = || parts.next()?.parse().ok();
    let counts = Counts {
        workloads: number()?,
        points: number()?,
        met: number()?,
        tried: number()?,
        inside: number()?,
        violations: number()?,
    };
    Some((name, counts))
}

static NOW: Mutex<String> = Mutex::new(String::new());

/// Notes which workload is explored, for whoever reads of a panic.
pub fn now(name: &str) {
    let mut now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    name.clone_into(&mut now);
}

fn tell_of_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let now = NOW.try_lock().map_or_else(|_| String::new(), |now| now.clone());
        println!("VIOLATION a panic\n    testkit crash --replay '{now}'");
        before(info);
    }));
}

/// One process's share: `depth every jobs seed pairs share`.
pub fn worker(numbers: &[u64]) -> bool {
    let [depth, every, jobs, seed, pairs, share] = *numbers else { return false };
    let plan = Plan { depth: depth as usize, every, jobs, seed, pairs };
    tell_of_panics();
    let mut fine = true;
    for media in Media::ALL {
        for start in [Start::Some, Start::Empty] {
            let mut explorer = Explorer::new(media, start, effort(1));
            let tree = explorer.first_tree();
            let mut sequences = Sequences { plan: &plan, share, number: 0, all: workload::all() };
            for len in 1..=plan.depth {
                let before = explorer.counts;
                explorer.effort = effort(len);
                sequences.number = 0;
                sequences.of_length(&mut explorer, &mut Vec::new(), &tree, len);
                said(&format!("{}, from {}, {len} in a row", media.name(), start.name()), &(explorer.counts - before));
            }
            // Two processes that take turns: what one leaves, the other must not stumble over.
            if start == Start::Some && plan.depth > 1 {
                let before = explorer.counts;
                explorer.alternate = true;
                sequences.alternate(&mut explorer, &tree);
                explorer.alternate = false;
                said(&format!("{}, two processes in turn", media.name()), &(explorer.counts - before));
            }
            if start == Start::Some && plan.pairs > 0 {
                let before = explorer.counts;
                explorer.effort = effort(2);
                pairs::run(&mut explorer, &tree, plan.pairs, plan.seed, (share, jobs));
                said(&format!("{}, two at a time", media.name()), &(explorer.counts - before));
            }
            fine &= tell(&explorer.failures);
        }
    }
    fine
}

fn tell(failures: &[Failure]) -> bool {
    for failure in failures {
        println!("VIOLATION {}\n    testkit crash --replay '{}'", failure.problem, failure.replay);
    }
    failures.is_empty()
}

struct Sequences<'a> {
    plan: &'a Plan,
    share: u64,
    number: u64,
    all: Vec<Op>,
}

impl Sequences<'_> {
    /// Whether the next sequence is ours.
    fn ours(&mut self, len: usize) -> bool {
        self.number += 1;
        let chosen = len < self.plan.depth
            || len < 2
            || super::model::mix(self.number ^ self.plan.seed << 40).is_multiple_of(self.plan.every);
        chosen && self.number % self.plan.jobs == self.share
    }

    /// One in eight of the sequences of two, done by two processes.
    fn alternate(&mut self, explorer: &mut Explorer, tree: &Rc<Tree>) {
        let every = self.plan.every;
        let plan = Plan { every: every * 8, depth: 2, ..*self.plan };
        let mut some = Sequences { plan: &plan, share: self.share, number: 0, all: self.all.clone() };
        some.of_length(explorer, &mut Vec::new(), tree, 2);
    }

    /// Goes through all sequences of `len` more operations; the crash is in the last one.
    fn of_length(&mut self, explorer: &mut Explorer, ops: &mut Vec<Op>, before: &Rc<Tree>, len: usize) {
        for at in 0..self.all.len() {
            ops.push(self.all[at]);
            if len > 1 {
                match explorer.run(ops, before) {
                    // One that fails changes nothing: shorter sequences have it all.
                    Ok(recorded) if recorded.done => {
                        if let Some(after) = recorded.after() {
                            self.of_length(explorer, ops, &after.clone(), len - 1);
                        }
                    }
                    Ok(_) => {}
                    Err(problem) => explorer.fail(&shown(ops), problem),
                }
            } else if self.ours(ops.len()) {
                // Every store must be one that was recorded.
                let recorded = if ops.len() == 1 { explorer.run_watched(ops, before) } else { explorer.run(ops, before) };
                match recorded {
                    Ok(recorded) => explorer.explore(&shown(ops), &recorded),
                    Err(problem) => explorer.fail(&shown(ops), problem),
                }
            }
            ops.pop();
        }
    }
}

/// Tries what `replay` says: a medium, a start, operations, and perhaps one crash point and state.
pub fn replay(text: &str) -> bool {
    let mut words = text.split(' ');
    let media = words.next().and_then(|name| Media::ALL.into_iter().find(|media| media.name() == name));
    let start = words.next().and_then(|name| [Start::Empty, Start::Some].into_iter().find(|start| start.name() == name));
    let (Some(media), Some(start)) = (media, start) else {
        println!("FAILED: not a medium and a start: {text}");
        return false;
    };
    let mut explorer = Explorer::new(media, start, Effort { cap: 1000, cap_inside: 32, inside_every: 1 });
    let mut tree = explorer.first_tree();
    if text.contains(" pair ") {
        return pairs::replay(&mut explorer, &tree, text) && tell(&explorer.failures);
    }
    let mut ops = Vec::new();
    for word in words.take_while(|word| !word.starts_with('@')) {
        let Some(op) = workload::parse(word) else {
            println!("FAILED: no operation {word}");
            return false;
        };
        if !ops.is_empty()
            && let Ok(recorded) = explorer.run(&ops, &tree)
            && let Some(after) = recorded.after()
        {
            tree = after.clone();
        }
        ops.push(op);
    }
    explorer.target = text.contains('@').then(|| text.to_string());
    match explorer.run_watched(&ops, &tree) {
        Ok(recorded) => explorer.explore(&shown(&ops), &recorded),
        Err(problem) => explorer.fail(&shown(&ops), problem),
    }
    println!("{text}: {} states, {} violations", explorer.counts.tried, explorer.counts.violations);
    tell(&explorer.failures) && explorer.counts.tried > 0
}

/// Replays what once failed: a file with a workload a line.
pub fn regressions(path: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("FAILED: {path} cannot be read");
        return false;
    };
    let mut fine = true;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        fine &= replay(line);
    }
    fine
}

/// The explorer's own test: true if every mutant is caught, or argued to be equivalent.
pub fn mutants() -> bool {
    let effort = Effort { cap: 32, cap_inside: 6, inside_every: 2 };
    let (mut caught, mut equivalent, mut alive) = (0, 0, 0);
    for media in Media::ALL {
        let result = mutate::run(media, effort, &mut |mutant, found| {
            let code = mutate::code(mutant.site);
            if found {
                caught += 1;
            } else if let Some(argument) = equivalent::argument(media, mutant.change, mutant.site.file(), &code) {
                equivalent += 1;
                println!("{}, {mutant}: `{code}`: the same, because {argument}", media.name());
            } else {
                alive += 1;
                println!("NOT CAUGHT {}, {mutant}: `{code}`", media.name());
            }
        });
        if let Err(problem) = result {
            println!("FAILED: {problem}");
            return false;
        }
    }
    println!("{} mutants: {caught} caught, {equivalent} argued to be the same, {alive} not caught", caught + equivalent + alive);
    alive == 0
}

/// Kinds of mutants, for the list of those that change nothing.
pub const fn kind(change: Change) -> &'static str {
    match change {
        Change::NoFlush => "flush",
        Change::NoFence => "fence",
        Change::Swapped => "swap",
    }
}
