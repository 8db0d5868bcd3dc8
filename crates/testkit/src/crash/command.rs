//! `testkit crash`: sequences of operations, shared out among processes.

use super::counts::Counts;
use super::equivalent::{self, Arguments};
use super::explore::{Effort, Explorer, Failure, Media, shown};
use super::mutate::{self, Change, Fate};
use super::pairs;
use super::sequences::{Sequences, Share};
use super::workload::{self, Start};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What to explore.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Longest sequence.
    pub depth: usize,
    /// Shortest sequence; single operations are always tried.
    pub shortest: usize,
    /// Of the sequences of the greatest length one in how many; of three, besides, all of the core set.
    pub every: u64,
    /// Processes.
    pub jobs: u64,
    /// Seed of everything that is chosen.
    pub seed: u64,
    /// Runs of two threads or processes.
    pub pairs: u64,
    /// Of states alike to one found right, one in how many is tried all the same; 0: each.
    pub alike: u64,
    /// Begins nothing more after so many seconds; 0: goes on to the end.
    pub seconds: u64,
}

impl Plan {
    /// The numbers that tell a process what is its own.
    fn numbers(&self, share: Share) -> [u64; 9] {
        let (depth, shortest) = (self.depth as u64, self.shortest as u64);
        [depth, shortest, self.every, self.seed, self.pairs, self.alike, self.seconds, share.number, share.of]
    }
}

/// Effort for sequences of a length.
fn effort(len: usize, alike_every: u64) -> Effort {
    match len {
        1 => Effort { cap: 64, cap_inside: 6, inside_every: 8, alike_every },
        2 => Effort { cap: 16, cap_inside: 4, inside_every: 32, alike_every },
        _ => Effort { cap: 12, cap_inside: 4, inside_every: 64, alike_every },
    }
}

/// What came of a run, or of a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// What was done, stage by stage.
    pub totals: Vec<(String, Counts)>,
    /// How long it took.
    pub seconds: u64,
    /// Whether nothing was found.
    pub fine: bool,
}

impl Done {
    fn stage(&mut self, name: &str, counts: Counts) {
        match self.totals.iter_mut().find(|(other, _)| other == name) {
            Some((_, total)) => *total += counts,
            None => self.totals.push((name.into(), counts)),
        }
    }

    /// With another part.
    pub fn add(&mut self, part: &Done) {
        part.totals.iter().for_each(|(name, counts)| self.stage(name, *counts));
        self.seconds += part.seconds;
        self.fine &= part.fine;
    }

    /// All stages.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.totals.iter().for_each(|(_, counts)| sum += *counts);
        sum
    }
}

/// Explores `part` of what is planned; prints what was found. True if that is nothing.
pub fn run(plan: &Plan, part: Share) -> bool {
    let done = run_part(plan, part);
    done.as_ref().is_some_and(|done| {
        report(done);
        done.fine
    })
}

/// Explores one of the parts of what is planned. Nothing if it was not explored to its end.
pub fn run_part(plan: &Plan, part: Share) -> Option<Done> {
    let begun = Instant::now();
    println!("sequences of up to {} operations out of {}, seed {}", plan.depth, workload::all().len(), plan.seed);
    let program = std::env::current_exe().ok()?;
    let mut children = Vec::new();
    for job in 0..plan.jobs {
        let numbers = plan.numbers(part.of_job(job, plan.jobs)).map(|number| number.to_string());
        let child = Command::new(&program).args(["crash", "--worker"]).args(numbers).stdout(Stdio::piped()).spawn();
        match child {
            Ok(child) => children.push(child),
            Err(error) => println!("FAILED: no process: {error}"),
        }
    }
    let mut done = Done { totals: Vec::new(), seconds: 0, fine: true };
    let mut ended = children.len() as u64 == plan.jobs;
    for (job, mut child) in children.into_iter().enumerate() {
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            let Some((name, counts)) = line.strip_prefix("counts ").and_then(parsed) else {
                println!("{line}");
                continue;
            };
            if job == 0 {
                // The others are about as far. Long runs show where they are, and leave something if they are ended.
                let (spent, jobs) = (begun.elapsed().as_secs(), plan.jobs);
                eprintln!(
                    "{spent} s: {name}: {} workloads, {} states, {} violations (one of {jobs} shares)",
                    counts.workloads, counts.tried, counts.violations
                );
            }
            done.stage(&name, counts);
        }
        // Not one that was killed, nor one that met a panic.
        let code = child.wait().ok().and_then(|status| status.code());
        ended &= matches!(code, Some(0 | 1));
        done.fine &= code == Some(0);
    }
    done.seconds = begun.elapsed().as_secs();
    done.fine &= done.sum().violations == 0;
    if !ended {
        println!("FAILED: a process ended before it was through");
    }
    ended.then_some(done)
}

/// Prints what was done.
pub fn report(done: &Done) {
    println!(
        "| | workloads | crash points | states met | different states tried | of these inside recovery | different images after \
         recovery | alike, not recovered again | violations | left out, time was up |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let sum = done.sum();
    let line = |name: &str, c: &Counts| println!("| {name} | {} |", c.numbers().map(|number| number.to_string()).join(" | "));
    done.totals.iter().for_each(|(name, counts)| line(name, counts));
    line("all", &sum);
    println!("{} different states in {} s, {} violations", sum.tried, done.seconds, sum.violations);
    if sum.left > 0 {
        println!("NOT ALL: time was up, {} workloads of {} were left out", sum.left, sum.workloads + sum.left);
    }
}

fn said(name: &str, c: &Counts) {
    println!("counts {name}|{c}");
}

/// A stage's name and what was done in it.
pub fn parsed(text: &str) -> Option<(String, Counts)> {
    let (name, counts) = text.split_once('|')?;
    Some((name.into(), counts.parse().ok()?))
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

/// Of a medium's and a start's time: single operations may have half, two at a time and two in turn an eighth each.
const STAGES: [f64; 4] = [0.5, 0.625, 0.75, 1.0];

/// Twelfths of the time by which a medium and a start must be through. What one leaves the next has.
const fn twelfths(media: Media, start: Start) -> u32 {
    match (media, start) {
        (Media::Power, Start::Some) => 3,
        (Media::Power, Start::Shared) => 5,
        (Media::Power, Start::Empty) => 6,
        (Media::Whole, Start::Some) => 7,
        (Media::Whole, Start::Shared) => 8,
        (Media::Whole, Start::Empty) => 9,
        (Media::Kill, Start::Some) => 10,
        (Media::Kill, Start::Shared) => 11,
        (Media::Kill, Start::Empty) => 12,
    }
}

/// One process's share, as [`Plan::numbers`] says it. True if nothing was found.
pub fn worker(numbers: &[u64]) -> bool {
    let [depth, shortest, every, seed, pairs, alike, seconds, number, of] = *numbers else { return false };
    let plan = Plan { depth: depth as usize, shortest: shortest as usize, every, jobs: 1, seed, pairs, alike, seconds };
    let share = Share { number, of };
    let begun = Instant::now();
    tell_of_panics();
    let mut fine = true;
    for media in Media::ALL {
        for start in Start::ALL {
            let mut explorer = Explorer::new(media, start, effort(1, alike));
            let here = Instant::now();
            let end = begun + Duration::from_secs(seconds) * twelfths(media, start) / 12;
            let until = |stage: usize| (seconds > 0).then(|| here + end.saturating_duration_since(here).mul_f64(STAGES[stage]));
            let tree = explorer.first_tree();
            let sequences = Sequences::new(&plan, share);
            let in_a_row = |explorer: &mut Explorer, len| {
                let before = explorer.counts;
                explorer.effort = effort(len, alike);
                sequences.of_length(explorer, &tree, len);
                said(&format!("{}, from {}, {len} in a row", media.name(), start.name()), &(explorer.counts - before));
            };
            explorer.until = until(0);
            in_a_row(&mut explorer, 1);
            explorer.until = until(1);
            explorer.effort = effort(2, alike);
            if start != Start::Empty && plan.pairs > 0 {
                let before = explorer.counts;
                pairs::run(&mut explorer, &tree, plan.pairs, plan.seed, share);
                said(&format!("{}, from {}, two at a time", media.name(), start.name()), &(explorer.counts - before));
            }
            explorer.until = until(2);
            // Two processes that take turns, in one of eight sequences: what one leaves, the other must not stumble over.
            if start != Start::Empty && plan.depth > 1 && plan.shortest < 3 {
                let before = explorer.counts;
                explorer.alternate = true;
                let plan = Plan { every: plan.every * 8, depth: 2, ..plan };
                Sequences::new(&plan, share).of_length(&mut explorer, &tree, 2);
                explorer.alternate = false;
                said(&format!("{}, from {}, two processes in turn", media.name(), start.name()), &(explorer.counts - before));
            }
            explorer.until = until(3);
            for len in plan.shortest.max(2)..=plan.depth {
                in_a_row(&mut explorer, len);
            }
            explorer.must_fit();
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

/// Tries what `replay` says: a medium, a start, operations, and perhaps one crash point and state.
pub fn replay(text: &str) -> bool {
    let mut words = text.split(' ');
    let media = words.next().and_then(|name| Media::ALL.into_iter().find(|media| media.name() == name));
    let start = words.next().and_then(|name| Start::ALL.into_iter().find(|start| start.name() == name));
    let (Some(media), Some(start)) = (media, start) else {
        println!("FAILED: not a medium and a start: {text}");
        return false;
    };
    let mut explorer = Explorer::new(media, start, Effort { cap: 1000, cap_inside: 32, inside_every: 1, alike_every: 0 });
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

/// The explorer's own test, with one in `every` mutants, and of pairs one in `every_pair`, perhaps of `only` one medium: true if each is caught,
/// or argued to be the same, and no argument is for nothing.
pub fn mutants((every, every_pair): (usize, usize), alike_every: u64, only: Option<&str>) -> bool {
    let effort = Effort { cap: 32, cap_inside: 6, inside_every: 2, alike_every };
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(problem) => {
            println!("FAILED: {problem}");
            return false;
        }
    };
    // Of flushes and fences, and of pairs: caught, aside, argued, neither.
    let mut counts = [[0; 4]; 2];
    let mut vain = 0;
    for media in Media::ALL.into_iter().filter(|media| only.is_none_or(|only| only == media.name())) {
        let result = mutate::run(media, effort, (every, every_pair), &mut |mutant, fate| {
            let argument = arguments.of(media, mutant);
            let which = match (fate, argument) {
                (Fate::Caught, _) => 0,
                (Fate::Aside, _) => 1,
                (Fate::Alive, Some(reason)) => {
                    println!("{}, {mutant}: the same, because {reason}", media.name());
                    2
                }
                (Fate::Alive, None) => {
                    println!("NOT CAUGHT {}", equivalent::named(media, mutant));
                    3
                }
            };
            counts[usize::from(matches!(mutant.change, Change::Swapped(..)))][which] += 1;
            if fate != Fate::Alive && argument.is_some() {
                vain += 1;
                println!("FAILED: argued to be the same, but {fate:?}: {}", equivalent::named(media, mutant));
            }
        });
        match result {
            Ok(all) => {
                let stale = arguments.stale(media, &all);
                vain += stale.len();
                stale.iter().for_each(|name| println!("FAILED: argued to be the same, but not there: {name}"));
            }
            Err(problem) => {
                println!("FAILED: {problem}");
                return false;
            }
        }
    }
    for (name, [caught, aside, argued, alive]) in ["flushes and fences", "ordered pairs"].into_iter().zip(counts) {
        let all = caught + aside + argued + alive;
        println!(
            "{all} {name}: {caught} caught, {aside} where nothing refers to what is stored earlier, {argued} argued to be the \
             same, {alive} not caught; kill rate: {caught} of the {} that are not the same",
            caught + alive
        );
    }
    vain == 0 && counts.iter().all(|counts| counts[3] == 0)
}
