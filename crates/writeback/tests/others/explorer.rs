//! Cases one after the other: both sides work, rounds run until all is below, and what is there is compared with what the
//! oracle wants.

use super::operations::{self, Edit, Theirs};
use super::oracle::{BESIDE, Merged, Policy, Sides};
use super::twin::{Snap, Thing, Twin, age, paths_of};
use crate::bench::{Bench, How, Op, Shown, tree};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use writeback::{Conflict, Writer};

/// Trees of a cache.
const TREES: usize = 24;
/// Rounds and looks until all has to be below.
const ROUNDS: usize = 6;
/// Steps of a round at most.
pub const STEPS: usize = 60;

/// When the other program does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the session does, which does not know of it.
    First,
    /// Before the last operation of the session.
    Amid,
    /// Before the round.
    Between,
    /// Before this step of the round.
    Step(usize),
    /// After a round that was cut off at this step.
    Cut(usize),
    /// After the round.
    After,
}

/// What both sides come to alone, and one after the other.
pub struct Model {
    base: Snap,
    ours: Snap,
    theirs: Snap,
    our_edits: HashMap<String, Vec<Edit>>,
    their_edits: HashMap<String, Vec<Edit>>,
    /// Ours first.
    ours_theirs: BTreeMap<String, Thing>,
    theirs_ours: BTreeMap<String, Thing>,
}

impl Model {
    /// `None`: one of them can't be done at all.
    pub fn of(top: &Path, ours: &[Op], theirs: &[Theirs]) -> Option<Model> {
        let twin = |name: &str| Twin::new(top.join(name));
        let (mut here, mut there, mut first, mut last) = (twin("ours"), twin("theirs"), twin("first"), twin("last"));
        let base = here.snap("base");
        if !ours.iter().all(|op| here.ours(*op)) || !theirs.iter().all(|op| there.theirs(*op)) {
            return None;
        }
        for (twin, starts) in [(&mut first, true), (&mut last, false)] {
            for is_ours in [starts, !starts] {
                if is_ours {
                    ours.iter().for_each(|op| _ = twin.ours(*op));
                } else {
                    _ = theirs.iter().all(|op| twin.theirs(*op));
                }
            }
        }
        Some(Model {
            base,
            ours: here.snap("ours"),
            theirs: there.snap("theirs"),
            our_edits: here.edits,
            their_edits: there.edits,
            ours_theirs: paths_of(&first.top),
            theirs_ours: paths_of(&last.top),
        })
    }

    fn sides(&self) -> Sides<'_> {
        let (our_edits, their_edits) = (&self.our_edits, &self.their_edits);
        Sides { base: &self.base, ours: &self.ours, theirs: &self.theirs, our_edits, their_edits }
    }

    fn merges(&self) -> Vec<Merged> {
        let choices = |number: u8| [number & 1 == 0, number & 2 == 0, number & 4 == 0];
        let all = (0..8).map(choices).map(|[is_found, ours_stay, theirs_stay]| Policy { ours_stay, theirs_stay, is_found });
        all.map(|policy| self.sides().merge(policy)).collect()
    }

    /// Whether both have changed the same, whatever is found.
    fn must_stop(&self) -> bool {
        self.merges().iter().all(|merged| !merged.is_loose && merged.is_conflict(&self.sides()))
    }

    /// Whether both have changed the same file or name in some way.
    fn may_stop(&self) -> bool {
        let sides = self.sides();
        self.merges().iter().any(|merged| merged.is_conflict(&sides))
            || self.base.things.keys().any(|label| sides.both_touch(label))
    }

    /// What holds however it comes out: nothing that a side wrote is missing, and no name is nobody's.
    fn loosely(&self, there: &BTreeMap<String, Thing>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (snap, edits, who) in [(&self.ours, &self.our_edits, "ours"), (&self.theirs, &self.their_edits, "theirs")] {
            for (label, edits) in edits {
                let Some(thing) = snap.things.get(label) else { continue };
                for edit in edits {
                    if let Edit::Put(_, bytes) | Edit::Append(bytes) = edit
                        && contains(&thing.bytes, bytes)
                        && !there.values().any(|thing| contains(&thing.bytes, bytes))
                    {
                        wrong.push(format!("lost: {} bytes of {who}: {label}", bytes.len()));
                    }
                }
            }
        }
        for ((_, name), label) in &self.ours.names {
            let is_it = |path: &String| path.ends_with(&format!("/{name}"));
            if !self.base.things.contains_key(label) && !there.keys().any(is_it) {
                wrong.push(format!("lost: a name of ours: {name}"));
            }
        }
        let names: BTreeSet<&String> =
            [&self.base, &self.ours, &self.theirs].iter().flat_map(|snap| snap.names.keys().map(|(_, name)| name)).collect();
        for path in there.keys() {
            let name = path.rsplit('/').next().unwrap();
            let name = name.find(BESIDE).map_or(name, |at| &name[..at]).to_owned();
            if !names.contains(&name) {
                wrong.push(format!("nobody's: {path}"));
            }
        }
        wrong
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    part.is_empty() || all.windows(part.len()).any(|window| window == part)
}

/// As without times.
fn exactly(wanted: &BTreeMap<String, Thing>, there: &BTreeMap<String, Thing>) -> Vec<String> {
    let untimed = |thing: Option<&Thing>| thing.map(|thing| Thing { mtime: 0, ..thing.clone() });
    let paths: BTreeSet<&String> = wanted.keys().chain(there.keys()).collect();
    let differ = paths.into_iter().filter(|path| untimed(wanted.get(*path)) != untimed(there.get(*path)));
    differ.map(|path| format!("not one after the other: {path}: {:?}, not {:?}", there.get(path), wanted.get(path))).collect()
}

/// A cache with trees that nobody has touched yet.
struct Lab {
    bench: Bench,
    next: usize,
}

pub struct Explorer {
    name: String,
    mode: Conflict,
    lab: Option<Lab>,
    /// Caches so far.
    labs: usize,
    pub cases: usize,
    /// What was wrong, by case.
    pub wrong: Vec<(String, Vec<String>)>,
}

impl Explorer {
    pub fn new(name: &str, mode: Conflict) -> Explorer {
        Explorer { name: name.to_owned(), mode, lab: None, labs: 0, cases: 0, wrong: Vec::new() }
    }

    /// A tree of its own for the next case.
    fn tree(&mut self) -> (&Bench, usize) {
        if self.lab.as_ref().is_some_and(|lab| lab.next == TREES) {
            self.leave(true);
        }
        let (name, labs, mode) = (&self.name, &mut self.labs, self.mode);
        let lab = self.lab.get_or_insert_with(|| {
            *labs += 1;
            let bench = Bench::new(&format!("{name}-{labs}"), TREES, How::Directory);
            *bench.writer.lock().unwrap() = Writer::new(bench.cache).unwrap().deciding(mode);
            (0..TREES).for_each(|run| age(&bench.low.join(run.to_string())));
            bench.warm();
            Lab { bench, next: 0 }
        });
        lab.next += 1;
        (&lab.bench, lab.next - 1)
    }

    /// Lets the cache go. Its image stays in memory as long as this process.
    fn leave(&mut self, is_well: bool) {
        let Some(lab) = self.lab.take() else { return };
        if is_well {
            lab.bench.end();
        } else {
            let top = lab.bench.image.parent().unwrap().to_owned();
            lab.bench.let_go();
            let _ = std::fs::remove_dir_all(top);
        }
    }

    /// Where twins may be made.
    pub fn twins(&self) -> std::path::PathBuf {
        format!("/dev/shm/bypath-others-{}-{}", std::process::id(), self.name).into()
    }

    /// One case; whether the other program's turn has come.
    pub fn case(&mut self, model: &Model, ours: &[Op], theirs: &[Theirs], point: Point) -> bool {
        let mode = self.mode;
        let (bench, run) = self.tree();
        let is_long = theirs.len() > 1;
        let mut done = Done { rounds: Vec::new(), ours: true, theirs: None, is_long, step: String::new() };
        done.work(bench, run, (ours, theirs), point);
        // A directory that is removed here is left alone while there is something of theirs in it.
        let removes = || ours.iter().any(|op| matches!(op, Op::Rmdir(_)));
        let may_stop = model.must_stop() || model.may_stop() || removes();
        let is_stopped = mode == Conflict::Stop && may_stop && done.stops(bench);
        let mut wrong = if is_stopped { done.stopped(bench, run, model) } else { done.judged(bench, run, model, (point, mode)) };
        if mode == Conflict::Stop && model.must_stop() && !is_stopped {
            wrong.push("stop: all rounds say that all is well".into());
        }
        let is_stuck = !done.rounds.is_empty() || is_stopped || wrong.iter().any(|what| what.starts_with("cache"));
        let came = done.theirs.is_some();
        if came && !wrong.is_empty() {
            wrong.insert(0, format!("ours {}, theirs {:?} {}", done.ours, done.theirs, done.step));
            self.wrong.push((format!("{ours:?} x {theirs:?}, {point:?}"), wrong));
        }
        self.cases += usize::from(came);
        if is_stuck {
            self.leave(false);
        }
        came
    }

    /// Ends, and says what was wrong; whether nothing was.
    pub fn end(mut self, shown_max: usize) -> bool {
        self.leave(self.wrong.is_empty());
        let _ = std::fs::remove_dir_all(self.twins());
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for (_, wrong) in &self.wrong {
            let first = wrong[1].split(':').next().unwrap().to_owned();
            *kinds.entry(first).or_default() += 1;
        }
        for (case, wrong) in self.wrong.iter().take(shown_max) {
            println!("FAULT {case}: {}", wrong.join("; "));
        }
        println!("{}: {} cases, {} wrong: {kinds:?}", self.name, self.cases, self.wrong.len());
        self.wrong.is_empty()
    }
}

/// What has come of a case so far.
struct Done {
    /// Rounds that failed.
    rounds: Vec<String>,
    ours: bool,
    /// `None`: the other program's turn has not come.
    theirs: Option<bool>,
    /// It does several things, of which some may be done.
    is_long: bool,
    /// The step of the round before which it came.
    step: String,
}

/// Between these steps and the next a round has looked at a file and has not written yet: as with any two programs that write
/// without a lock, the later one stands.
const UNLOCKED: &[&str] = &["begin", "contents"];

impl Done {
    fn ours(&mut self, bench: &Bench, run: usize, ops: &[Op]) {
        for op in ops {
            self.ours &= bench.with(|cx| bench.by_cache(cx, run, *op)).is_ok();
        }
    }

    fn theirs(&mut self, bench: &Bench, run: usize, ops: &[Theirs]) {
        let top = bench.low.join(run.to_string());
        let all = ops.iter().all(|op| operations::act(&top, *op));
        self.theirs = Some(all);
    }

    fn round(&mut self, bench: &Bench) {
        let done = bench.writer.lock().unwrap().round(false);
        self.rounds.extend(done.err().map(|failure| format!("round: {failure}")));
    }

    fn work(&mut self, bench: &Bench, run: usize, (ours, theirs): (&[Op], &[Theirs]), point: Point) {
        let (last, first) = ours.split_last().unwrap();
        match point {
            Point::First => {
                self.theirs(bench, run, theirs);
                self.ours(bench, run, ours);
            }
            Point::Amid => {
                self.ours(bench, run, first);
                self.theirs(bench, run, theirs);
                self.ours(bench, run, &[*last]);
            }
            Point::Between => {
                self.ours(bench, run, ours);
                self.theirs(bench, run, theirs);
            }
            Point::Step(at) => {
                self.ours(bench, run, ours);
                let mut step = 0;
                let mut hook = |what: &str| {
                    step += 1;
                    if step == at {
                        self.step = what.to_owned();
                        self.theirs(bench, run, theirs);
                    }
                    Ok(())
                };
                let done = bench.writer.lock().unwrap().round_with(false, &mut hook);
                self.rounds.extend(done.err().map(|failure| format!("round: in its midst: {failure}")));
            }
            Point::Cut(at) => {
                self.ours(bench, run, ours);
                bench.cut(at);
                self.theirs(bench, run, theirs);
            }
            Point::After => {
                self.ours(bench, run, ours);
                self.round(bench);
                self.theirs(bench, run, theirs);
            }
        }
    }

    /// Rounds until all is below, and looks.
    fn settle(&mut self, bench: &Bench) -> bool {
        for _ in 0..ROUNDS {
            let looked = bench.with(|cx| bench.cache.refresh(cx, &mut || true));
            if let Err(error) = looked {
                self.rounds.push(format!("look: {error:?}"));
            }
            if bench.writer.lock().unwrap().is_clean() == Ok(true) {
                return true;
            }
            self.round(bench);
        }
        false
    }

    fn judged(&mut self, bench: &Bench, run: usize, model: &Model, (point, mode): (Point, Conflict)) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.settle(bench) {
            wrong.push(format!("round: never all below: {:?}", self.rounds.last()));
            return wrong;
        }
        let low = bench.low.join(run.to_string());
        let there = paths_of(&low);
        wrong.extend(self.compared(model, &there, point, mode));
        if mode != Conflict::Stop {
            wrong.extend(self.rounds.first().cloned());
        }
        let park = bench.low.join(writeback::PARK);
        if park.exists() {
            wrong.push(format!("cache: left in the park: {:?}", paths_of(&park).keys()));
        }
        let shown = catch_unwind(AssertUnwindSafe(|| bench.with(|cx| bench.show_run(cx, run))));
        match shown {
            Err(_) => wrong.push("cache: what it has cannot be read".into()),
            Ok(here) => {
                let below = tree(&low);
                let paths: BTreeSet<&String> = here.keys().chain(below.keys()).collect();
                let differ = paths.into_iter().filter(|path| here.get(*path) != below.get(*path));
                let short = |shown: Option<&Shown>| shown.map(|shown| (shown.0, shown.1, shown.2, shown.3.len()));
                let differ: Vec<_> = differ.map(|path| (path, short(here.get(path)), short(below.get(path)))).collect();
                if !differ.is_empty() {
                    wrong.push(format!("cache: it shows something else (path, here, below): {differ:?}"));
                }
            }
        }
        wrong
    }

    /// With whatever it is nearest to.
    fn compared(&self, model: &Model, there: &BTreeMap<String, Thing>, point: Point, mode: Conflict) -> Vec<String> {
        let (sides, mut ways) = (model.sides(), Vec::new());
        let has_worked = self.theirs == Some(true);
        match point {
            Point::After => ways.push(exactly(&model.ours_theirs, there)),
            // Nothing could be done, or not all of it.
            _ if !has_worked && self.ours => {
                ways.push(exactly(&model.ours.paths(), there));
                if self.is_long {
                    ways.push(model.loosely(there));
                }
            }
            _ if !self.ours => ways.extend([exactly(&model.theirs.paths(), there), exactly(&model.theirs_ours, there)]),
            _ => {
                for merged in model.merges() {
                    let way = if merged.is_loose { model.loosely(there) } else { merged.compare(&sides, there, mode) };
                    ways.push(way);
                }
                if sides.is_in_moved() {
                    ways.push(model.loosely(there));
                }
                if let Point::Cut(_) = point {
                    // What they move then is not found, and made again.
                    ways.push(model.loosely(there));
                }
                match point {
                    Point::Step(_) | Point::Cut(_) => {
                        ways.push(exactly(&model.ours_theirs, there));
                        if UNLOCKED.contains(&&self.step[..]) {
                            let kept = there.iter().filter(|(path, _)| !path.contains(BESIDE));
                            ways.push(exactly(
                                &model.theirs_ours,
                                &kept.map(|(path, thing)| (path.clone(), thing.clone())).collect(),
                            ));
                        }
                    }
                    // It may have seen theirs, but then what they wrote is there.
                    Point::First => {
                        let way = exactly(&model.theirs_ours, there);
                        ways.push(way.into_iter().chain(model.loosely(there)).collect());
                    }
                    _ => {}
                }
            }
        }
        ways.into_iter().min_by_key(Vec::len).unwrap()
    }

    /// With `conflict=stop`: a round says so, and theirs stays.
    fn stopped(&self, bench: &Bench, run: usize, model: &Model) -> Vec<String> {
        let there = paths_of(&bench.low.join(run.to_string()));
        let (was, theirs) = (model.base.paths(), model.theirs.paths());
        let mut wrong = Vec::new();
        for (path, thing) in theirs.iter().filter(|(path, thing)| was.get(*path).map(|was| &was.bytes) != Some(&thing.bytes)) {
            if !there.values().any(|there| (there.kind, &there.bytes) == (thing.kind, &thing.bytes)) {
                wrong.push(format!("stop: not theirs any more: {path}: {:?}, not {thing:?}", there.get(path)));
            }
        }
        wrong
    }

    /// Whether rounds say for good that not all is below.
    fn stops(&mut self, bench: &Bench) -> bool {
        !self.settle(bench)
    }
}
