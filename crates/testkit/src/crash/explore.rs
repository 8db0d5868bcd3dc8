//! A workload is run and recorded; then every crash in its last operation is tried ([`crashes`]).

mod crashes;

use super::check::{Bench, Expect, Times};
use super::counts::Counts;
use super::known::Known;
use super::memory::{LIMIT, Machine, Memory};
use super::model::{Medium, Numbers};
use super::mutate::Mutant;
use super::record::{self, Event, What};
use super::tree::Tree;
use super::workload::{Op, Start};
use engine::mkfs;
use pm::Domain;
use std::rc::Rc;
use std::time::Instant;

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
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// States at one crash point.
    pub cap: usize,
    /// States at one crash point inside recovery.
    pub cap_inside: usize,
    /// Of how many states one is tried with crashes inside its recovery.
    pub inside_every: u64,
    /// Of how many states that are alike to one found right one is tried all the same; 0: each, and nothing is taken for alike.
    pub alike_every: u64,
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
    /// Where what is to be explored begins, ...
    pub window: usize,
    /// ... and ends.
    pub end: usize,
    /// From which event of the window on what is expected; the last from its end on.
    pub phases: Vec<(usize, Expect)>,
    /// Whether the last operation succeeded.
    pub done: bool,
}

impl Recorded {
    /// The tree afterwards.
    pub fn after(&self) -> Option<&Rc<Tree>> {
        self.phases.last()?.1.trees.last()
    }
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
    pub(super) bench: Bench,
    pub(super) base: Memory,
    medium: Medium,
    seen: Numbers,
    /// Times are compared too, and whether recovery leaves all on the medium.
    pub strict: bool,
    /// Two processes take turns.
    pub alternate: bool,
    /// The code is changed so.
    pub mutant: Option<Mutant>,
    /// What has been found of the code as it is, for those who change it.
    pub known: Option<Known>,
    /// Only this state is tried.
    pub target: Option<String>,
    /// No workload is begun after that.
    pub until: Option<Instant>,
    /// So far.
    pub counts: Counts,
    /// The first ones.
    pub failures: Vec<Failure>,
}

/// Fills what is free with something: nothing may rely on its being zero.
fn soil(image: &Memory) {
    let layout = format::Layout::new(LIMIT).expect("a possible image");
    let grown = u64::from_le_bytes(image.get(format::layout::ROOT + std::mem::offset_of!(format::Root, grown) as u64));
    for block in layout.first_block()..grown {
        let used = u64::from_le_bytes(image.get(format::Layout::bitmap_word(block)));
        for line in (0..64).filter(|line| used >> line & 1 == 0) {
            // With the lowest bit set and without: in some words it is a mark.
            image.put(block * format::BLOCK + line * 64, if line % 2 == 0 { &[0x5a; 64] } else { &[0xa5; 64] });
        }
    }
}

/// Has the image grown by blocks that are free again: what takes them meets what was in them.
fn leave_free_blocks(machine: &Machine, fs: &engine::Fs) -> Result<(), base::Error> {
    let cx = &machine.cx(0);
    let node = fs.tmpfile(cx, fs.root_node(), 0o666, 0)?;
    fs.open(cx, node, 2, 3)?;
    let written = fs.write(cx, node, None, &[pm::UserSlice::from_ref(&[1; 64 << 10])]);
    fs.close(cx, 3);
    written.map(drop)
}

/// Where the made-up clock starts.
pub(super) const CLOCK: i64 = 1_700_000_100_000_000_000;

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
        if start == Start::Empty {
            leave_free_blocks(&live, fs).expect("room");
        }
        start.make(&live, fs).expect("a tree to start from");
        fs.detach(&live.cx(0));
        live.cut();
        soil(&live.image);
        live.log.take();
        let base = Memory::new(LIMIT);
        base.put(0, live.image.bytes());
        let bench = Bench::new(Machine::new(media.domain()));
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
            seen: Numbers::default(),
            strict: false,
            alternate: false,
            mutant: None,
            known: None,
            target: None,
            until: None,
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
        Rc::new(tree.kept(self.strict))
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

    /// Who does operation `number` of a workload.
    fn user(&self, number: usize) -> usize {
        if self.alternate { number % 2 } else { 0 }
    }

    /// Notes that a workload itself went wrong.
    pub fn fail(&mut self, name: &str, problem: String) {
        self.counts.violations += 1;
        let replay = format!("{} {} {name}", self.media.name(), self.start.name());
        self.failures.push(Failure { replay, problem });
    }

    /// The tree after operations of which some may fail.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn tree_after(&mut self, ops: &[Op]) -> Result<Rc<Tree>, String> {
        let (tree, _) = self.run_with(|live| {
            let fs = live.attach(0).map_err(|error| error.to_string())?;
            for op in ops {
                // What fails leaves the tree as it was.
                let _ = op.perform(live, fs, 0);
            }
            Tree::read(fs, &live.cx(0)).map(|tree| Rc::new(tree.kept(false)))
        })?;
        Ok(tree)
    }

    /// Runs something on the live machine; what it returns, and what was recorded.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run_with<T>(&mut self, work: impl FnOnce(&Machine) -> Result<T, String>) -> Result<(T, Vec<Event>), String> {
        pm::clock::make_up(CLOCK);
        let result = work(&self.live);
        let events = self.reset();
        result.map(|result| (result, events))
    }

    /// Begins afresh, with another mutant.
    pub fn mutate(&mut self, mutant: Option<Mutant>) {
        match (&mut self.known, &self.mutant) {
            // What was seen so far is of the code as it is.
            (Some(known), None) => known.settle(std::mem::take(&mut self.seen)),
            _ => self.seen.clear(),
        }
        self.counts = Counts::default();
        self.mutant = mutant;
    }

    /// As [`Explorer::run`], and at every fence the image must be what the recorded stores explain.
    ///
    /// # Errors
    /// As there, or a byte that nothing explains.
    pub fn run_watched(&mut self, ops: &[Op], before: &Rc<Tree>) -> Result<Recorded, String> {
        // SAFETY: the image stays as long as the machine, and `reset`, which
        // stores to it behind the log's back, comes after `watched`; nobody
        // stores to the base.
        unsafe { self.live.log.watch(&self.live.image, &self.base) };
        let recorded = self.run_once(ops, before);
        let found = self.live.log.watched();
        let events = self.reset();
        match found {
            Some(byte) => Err(format!("the byte at {byte:#x} was stored to without being recorded")),
            None => recorded.map(|recorded| Recorded { events, ..recorded }),
        }
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
        let (live, strict) = (&self.live, self.strict);
        let fs = live.attach(0).map_err(|error| error.to_string())?;
        let cx = live.cx(0);
        let (last, first) = ops.split_last().ok_or("no operation")?;
        let other = if self.alternate { live.attach(1).map_err(|error| error.to_string())? } else { fs };
        for (number, op) in first.iter().enumerate() {
            let user = self.user(number);
            record::i_am(user as u8);
            op.perform(live, if user == 0 { fs } else { other }, user).map_err(|error| format!("{op}: {error:?}"))?;
        }
        let user = self.user(first.len());
        record::i_am(user as u8);
        let window = live.log.len();
        // Where each of its calls began, and the tree then.
        let mut calls = vec![(0, Ok(Rc::clone(before)))];
        let by = if user == 0 { fs } else { other };
        let done = last.perform_in_calls(live, by, user, &mut || {
            calls.push((live.log.len() - window, Tree::read(fs, &cx).map(|tree| Rc::new(tree.kept(strict)))));
        });
        record::i_am(0);
        let end = live.log.len();
        let after = Tree::read(fs, &cx)?.kept(strict);
        if done.is_err() && after != **before && calls.len() == 1 {
            return Err(format!("{last} fails ({done:?}) and changes the tree: {}", before.difference(&after)));
        }
        calls.push((end - window, Ok(self.bench.one_of(after))));
        let phases = phases(calls, *last, strict)?;
        Ok(Recorded { events: Vec::new(), window, end, phases, done: done.is_ok() })
    }
}

/// What is expected in each of the calls that began where `calls` say, from the tree that is there with it;
/// the last is the end. Bytes that are written in place are the first call's.
fn phases(calls: Vec<(usize, Result<Rc<Tree>, String>)>, op: Op, strict: bool) -> Result<Vec<(usize, Expect)>, String> {
    let calls: Vec<(usize, Rc<Tree>)> = calls.into_iter().map(|(from, tree)| Ok((from, tree?))).collect::<Result<_, String>>()?;
    let during = calls.windows(2).enumerate().map(|(number, call)| {
        let trees = call.iter().map(|(_, tree)| Rc::clone(tree)).collect();
        (
            call[0].0,
            Expect {
                trees,
                in_place: op.in_place().filter(|_| number == 0),
                times: if strict { op.times() } else { Times::None },
            },
        )
    });
    Ok(during.chain(calls.last().map(|(end, tree)| (*end, Expect::exactly(tree, strict)))).collect())
}

/// Operations as text.
pub fn shown(ops: &[Op]) -> String {
    ops.iter().map(Op::to_string).collect::<Vec<_>>().join(" ")
}
