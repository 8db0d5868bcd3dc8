//! A workload is run and recorded; then every crash in its last operation is tried.

use super::check::{Bench, Expect};
use super::enumerate::{State, states};
use super::memory::{LIMIT, Machine, Memory};
use super::model::{Choices, Line, Medium};
use super::record::{Event, What};
use super::tree::Tree;
use super::workload::{Op, Start};
use engine::mkfs;
use pm::Domain;
use std::collections::HashSet;
use std::rc::Rc;

/// What a medium does to stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Media {
    /// DAX: each line holds any prefix of its stores since its last fenced write-back.
    Power,
    /// Caches survive: all stores up to some instant.
    Whole,
    /// The process dies: likewise, and records carry no checksum.
    Kill,
}

impl Media {
    /// All of them.
    pub const ALL: [Media; 3] = [Media::Power, Media::Whole, Media::Kill];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Media::Power => "power",
            Media::Whole => "whole",
            Media::Kill => "kill",
        }
    }

    const fn domain(self) -> Domain {
        match self {
            Media::Power => Domain::Sim,
            Media::Whole => Domain::Whole,
            Media::Kill => Domain::Process,
        }
    }
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States at one crash point.
    pub cap: usize,
    /// States at one crash point inside recovery.
    pub cap_inside: usize,
}

/// Counts.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct Counts {
    pub workloads: u64,
    pub points: u64,
    /// States met, again and again.
    pub met: u64,
    /// Different states tried.
    pub tried: u64,
    /// Of these, crashes inside recovery.
    pub inside: u64,
    pub violations: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.workloads += other.workloads;
        self.points += other.points;
        self.met += other.met;
        self.tried += other.tried;
        self.inside += other.inside;
        self.violations += other.violations;
    }
}

/// A state that is not as it must be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Medium, start, operations, crash point, and what of each line: replays it.
    pub replay: String,
    /// What is wrong.
    pub problem: String,
}

/// A workload that was run.
pub struct Recorded {
    /// All that happened.
    pub events: Vec<Event>,
    /// Where the last operation begins.
    pub window: usize,
    /// Where it ends.
    pub end: usize,
    /// What it may look like while it is under way; the last is that afterwards.
    pub expect: Expect,
    /// Whether the last operation succeeded.
    pub done: bool,
}

/// What tries the workloads of one medium from one start.
pub struct Explorer {
    /// The medium.
    pub media: Media,
    /// The start.
    pub start: Start,
    /// How much.
    pub effort: Effort,
    live: Machine,
    bench: Bench,
    base: Memory,
    medium: Medium,
    seen: HashSet<u64>,
    /// So far.
    pub counts: Counts,
    /// The first ones.
    pub failures: Vec<Failure>,
}

/// Failures that are kept.
const FAILURES_MAX: usize = 20;
/// Where the made-up clock starts.
const CLOCK: i64 = 1_700_000_100_000_000_000;

/// Fixed, so that images are the same each time.
const SEEDS: mkfs::Seeds = mkfs::Seeds {
    uuid: [0x1111_2222_3333_4444, 0x5555_6666_7777_8888],
    ino_key: 0x0123_4567_89ab_cdef,
    hash_seed: 0xfeed_beef,
    made: 1_700_000_000_000_000_000,
};

impl Explorer {
    /// Makes the image that all workloads start from.
    ///
    /// # Panics
    /// If that does not work.
    pub fn new(media: Media, start: Start, effort: Effort) -> Explorer {
        pm::clock::make_up(CLOCK);
        let live = Machine::new(media.domain());
        let options = mkfs::Options { limit: LIMIT, seeds: Some(SEEDS), mode: 0o777, ..Default::default() };
        mkfs::make_in_memory(&live.region(), &options).expect("mkfs in memory");
        live.cut();
        let fs = live.attach(0).expect("attach a fresh image");
        start.make(&live, fs).expect("a tree to start from");
        fs.detach(&live.cx(0));
        live.cut();
        live.log.take();
        let base = Memory::new(LIMIT);
        base.put(0, live.image.bytes());
        let bench = Bench { machine: Machine::new(media.domain()) };
        bench.machine.image.put(0, base.bytes());
        let medium = Medium::new(&base);
        Explorer {
            media,
            start,
            effort,
            live,
            bench,
            base,
            medium,
            seen: HashSet::new(),
            counts: Counts::default(),
            failures: Vec::new(),
        }
    }

    /// The tree that workloads start from.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn first_tree(&mut self) -> Rc<Tree> {
        self.live.cut();
        let fs = self.live.attach(0).expect("attach");
        let tree = Tree::read(fs, &self.live.cx(0)).expect("a tree");
        self.reset();
        Rc::new(tree)
    }

    /// The live image is as in the beginning.
    fn reset(&mut self) -> Vec<Event> {
        let events = self.live.log.take();
        for event in &events {
            if let What::Store { offset, .. } = event.what {
                let at = u64::from(offset) & !7;
                self.live.image.put(at, &self.base.get::<8>(at));
            }
        }
        self.live.cut();
        events
    }

    /// Runs a workload whose last operation begins with the tree `before`.
    ///
    /// # Errors
    /// A step before the last fails, or the live tree cannot be read.
    pub fn run(&mut self, ops: &[Op], before: &Rc<Tree>) -> Result<Recorded, String> {
        let recorded = self.run_once(ops, before);
        let events = self.reset();
        recorded.map(|recorded| Recorded { events, ..recorded })
    }

    fn run_once(&mut self, ops: &[Op], before: &Rc<Tree>) -> Result<Recorded, String> {
        pm::clock::make_up(CLOCK);
        let live = &self.live;
        let fs = live.attach(0).map_err(|error| error.to_string())?;
        let cx = live.cx(0);
        let (last, first) = ops.split_last().ok_or("no operation")?;
        for op in first {
            op.perform(live, fs, 0).map_err(|error| format!("{op}: {error:?}"))?;
        }
        let window = live.log.len();
        let mut trees = vec![Rc::clone(before)];
        let done = last.perform_in_steps(live, fs, 0, &mut || trees.extend(Tree::read(fs, &cx).map(Rc::new)));
        let end = live.log.len();
        let after = Tree::read(fs, &cx)?;
        if done.is_err() && after != **before && trees.len() == 1 {
            return Err(format!("{last} fails ({done:?}) and changes the tree: {}", before.difference(&after)));
        }
        trees.push(Rc::new(after));
        let expect = Expect { trees, in_place: last.in_place() };
        Ok(Recorded { events: Vec::new(), window, end, expect, done: done.is_ok() })
    }

    /// Tries every crash in the last operation of a recorded workload.
    pub fn explore(&mut self, ops: &[Op], recorded: &Recorded) {
        self.counts.workloads += 1;
        self.share_pages(&recorded.events);
        let outer = self.medium.nest();
        for event in &recorded.events[..recorded.window] {
            self.take_in(event);
        }
        let name = format!("{} {} {}", self.media.name(), self.start.name(), shown(ops));
        let events = &recorded.events[recorded.window..recorded.end];
        self.crashes(&name, events, &recorded.expect, true);
        let mirror = &self.bench.machine.image;
        self.medium.unnest(outer, mirror);
        assert!(!self.live.outgrown() && !self.bench.machine.outgrown(), "{name}: a larger part of the segment is in use");
    }

    fn share_pages(&self, events: &[Event]) {
        let mut held = self.bench.machine.log.held();
        for event in events {
            if let What::Store { offset, .. } = event.what {
                held.used.add(u64::from(offset));
            }
        }
    }

    fn take_in(&mut self, event: &Event) -> bool {
        let mirror = &self.bench.machine.image;
        match self.media {
            Media::Power => {
                self.medium.event(event, mirror);
                false
            }
            Media::Whole | Media::Kill => self.medium.store_now(event, mirror),
        }
    }

    /// Crashes at every point of `events`. `outside`: of a workload, at whose end
    /// the last tree must be there, and inside the recovery from which crashes are
    /// tried too; else they are those of a recovery.
    fn crashes(&mut self, name: &str, events: &[Event], expect: &Expect, outside: bool) {
        let id = expect.id();
        for (point, event) in events.iter().enumerate() {
            if self.media == Media::Power {
                if matches!(event.what, What::Fence) {
                    self.point(&format!("{name} @{point}"), expect, id, outside);
                }
                self.take_in(event);
            } else if self.take_in(event) {
                self.point(&format!("{name} @{point}"), expect, id, outside);
            }
        }
        let end = if outside { expect.trees.last().map_or_else(|| expect.clone(), Expect::exactly) } else { expect.clone() };
        let id = end.id();
        self.point(&format!("{name} @{}", events.len()), &end, id, outside);
    }

    /// A crash here.
    fn point(&mut self, name: &str, expect: &Expect, id: u64, outside: bool) {
        self.counts.points += 1;
        let choices = if self.media == Media::Power { self.medium.choices() } else { Vec::new() };
        let cap = if outside { self.effort.cap } else { self.effort.cap_inside };
        for state in states(&choices, cap, id) {
            self.state(name, &choices, &state, expect, id, outside);
        }
    }

    fn state(&mut self, name: &str, choices: &[Choices], state: &State, expect: &Expect, id: u64, outside: bool) {
        self.counts.met += 1;
        let mut hash = self.medium.hash;
        let mut overlay: Vec<(u32, Line)> = Vec::new();
        for (c, chosen) in choices.iter().zip(state) {
            if *chosen != 0 {
                let choice = &c.of[usize::from(*chosen)];
                hash ^= c.of[0].hash ^ choice.hash;
                overlay.push((c.line, choice.line));
            }
        }
        if !self.seen.insert(super::model::mix(hash ^ id.rotate_left(7))) {
            return;
        }
        self.counts.tried += 1;
        self.counts.inside += u64::from(!outside);
        let tried = self.bench.attempt(&self.medium.certain, &overlay, expect);
        if let Some(problem) = tried.problem {
            self.counts.violations += 1;
            if self.failures.len() < FAILURES_MAX {
                let of: Vec<String> = choices.iter().zip(state).map(|(c, s)| format!("{:x}:{s}", c.line)).collect();
                self.failures.push(Failure { replay: format!("{name} {}", of.join(",")), problem });
            }
        } else if outside {
            self.inside(name, &overlay, &tried.recovery, expect);
        }
    }

    /// Crashes inside the recovery from a state.
    fn inside(&mut self, name: &str, overlay: &[(u32, Line)], recovery: &[Event], expect: &Expect) {
        let outer = self.medium.nest();
        for (number, line) in overlay {
            self.medium.set_line(*number, line, &self.bench.machine.image);
        }
        self.crashes(&format!("{name} inside"), recovery, expect, false);
        self.medium.unnest(outer, &self.bench.machine.image);
    }
}

/// Operations as text.
pub fn shown(ops: &[Op]) -> String {
    ops.iter().map(Op::to_string).collect::<Vec<_>>().join(" ")
}
