//! Which file each name below a daemon leads to: its numbers say nothing, many make them up anew each time.
//!
//! A file gets the number that its node has here. Where it stands is known from the notes of the round (what a name led to
//! when it was touched first), and from a log of what rounds have moved since, in the image:
//!
//! ```text
//! touched/moves   a record before each name that a round makes, moves or removes, and one behind it, whether it did
//! ```
//! Who was cut off between the two finds out by looking: a name that was to go is there or not. The log is thrown away when
//! a round is over, for then the tree is below as it is here.
//!
//! **What stands at a name is believed to be that file if it is of its type**, and, unless a round has written to it since,
//! has its time of change, where it is no directory. Otherwise it is somebody else's, as a file with another number is.

use crate::plan::{Plan, Spot, image};
use crate::{Failure, Id, Result};
use base::{Attr, Cx, Kind, NewNode, Node, RenameMode};
use cache::Cache;
use pm::{Errno, UserSlice};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of the park, which is no directory here.
pub const PARK_ID: u64 = 0;
/// What is nobody's that is known.
const FOREIGN: Id = (u64::MAX, 0);
/// Names of the log, and of one that is to take its place.
const LOG: &[u8] = b"moves";
const NEXT: &[u8] = b"moves+";

/// What changes about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is another name of the file from now on: the second name of the step.
    Move = b'm' as isize,
    /// The file has the second name too.
    Link = b'l' as isize,
    /// It goes.
    Remove = b'r' as isize,
    /// The file is made there.
    Make = b'c' as isize,
}

/// One thing that a round does to names.
#[derive(Clone, Debug)]
pub struct Step {
    pub what: What,
    /// Which file.
    pub file: u64,
    pub kind: Kind,
    /// Number and path of the directory, and the name; a [`What::Make`] has none.
    pub from: (u64, Vec<u8>),
    /// The same; a [`What::Remove`] has none.
    pub to: (u64, Vec<u8>),
}

/// What is known of a file.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its type.
    pub kind: u64,
    /// Times of change that it may have.
    pub mtimes: Vec<i64>,
}

/// What names below lead to; all directories that are open have a share in it.
#[derive(Clone)]
pub struct Names(Arc<Mutex<State>>);

struct State {
    cache: &'static Cache,
    thread: base::Thread,
    /// By the notes.
    noted: HashMap<Spot, u64>,
    /// By what rounds have done; `None`: nothing of ours.
    moved: HashMap<Spot, Option<u64>>,
    files: HashMap<u64, Facts>,
    /// Files that rounds have written to, this one and that before it.
    written: HashSet<u64>,
    before: HashSet<u64>,
    /// Names at which nothing stood in this round.
    absent: HashSet<Spot>,
    /// Length of the log.
    end: u64,
    /// What has begun, and nobody knows whether it is done.
    pending: Option<Step>,
}

/// The last name of a path.
fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Step {
    fn spot(&(dir, ref path): &(u64, Vec<u8>)) -> Spot {
        (dir, last(path).to_vec())
    }

    /// Whether it is done, as far as one can see.
    fn is_done(&self, is_there: &dyn Fn(&[u8]) -> Result<bool>) -> Result<bool> {
        match self.what {
            What::Move | What::Remove => is_there(&self.from.1).map(|there| !there),
            What::Link | What::Make => is_there(&self.to.1),
        }
    }

    fn record(&self) -> Vec<u8> {
        let mut record = vec![self.what as u8, self.kind as u8];
        for number in [self.file, self.from.0, self.to.0] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        for path in [&self.from.1, &self.to.1] {
            record.extend_from_slice(path);
            record.push(0);
        }
        record
    }

    /// The first of some records, and its length.
    fn parse(record: &[u8]) -> Option<(Step, usize)> {
        let what = match *record.first()? {
            b'm' => What::Move,
            b'l' => What::Link,
            b'r' => What::Remove,
            b'c' => What::Make,
            _ => return None,
        };
        let kind = Kind::from_dt(*record.get(1)?)?;
        let number = |at| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let mut paths = record.get(26..)?.splitn(3, |byte| *byte == 0);
        let (from, to) = (paths.next()?.to_vec(), paths.next()?.to_vec());
        paths.next()?;
        let len = 26 + from.len() + to.len() + 2;
        Some((Step { what, file: number(2)?, kind, from: (number(10)?, from), to: (number(18)?, to) }, len))
    }
}

impl Names {
    pub fn new(cache: &'static Cache) -> Names {
        Names(Arc::new(Mutex::new(State {
            cache,
            thread: base::Thread::new(),
            noted: HashMap::new(),
            moved: HashMap::new(),
            files: HashMap::new(),
            written: HashSet::new(),
            before: HashSet::new(),
            absent: HashSet::new(),
            end: 0,
            pending: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A round begins: what is known from its notes, and what rounds before it have done. `is_there`: whether a path leads
    /// to something.
    pub fn begin(&self, plan: &Plan, is_there: &dyn Fn(&[u8]) -> Result<bool>) -> Result<()> {
        let mut state = self.state();
        state.noted = plan.led.clone();
        state.files = plan.facts.clone();
        // Of some only a time of change is noted.
        state.files.retain(|_, facts| facts.kind != 0);
        state.read_log()?;
        state.settle(is_there)
    }

    /// Which file a name leads to, if what stands there is what is known; nobody is asked.
    pub fn led(&self, spot: &Spot) -> Option<u64> {
        self.state().led(spot)
    }

    /// Whether nothing stood at a name when it was looked at in this round; who gives it to something looks again.
    pub fn is_absent(&self, spot: &Spot) -> bool {
        self.state().absent.contains(spot)
    }

    /// Nothing stands there.
    pub fn note_absent(&self, spot: Spot) {
        self.state().absent.insert(spot);
    }

    /// A name that was found since, and the file that it leads to.
    pub fn know(&self, spot: Spot, file: u64) {
        self.state().noted.entry(spot).or_insert(file);
    }

    /// Does something to a name, and remembers it.
    pub fn act(&self, step: Step, is_there: &dyn Fn(&[u8]) -> Result<bool>, act: impl FnOnce() -> Result<()>) -> Result<()> {
        {
            let mut state = self.state();
            state.settle(is_there)?;
            state.append(&step.record())?;
            state.pending = Some(step);
        }
        let done = act();
        let mut state = self.state();
        match done {
            Ok(()) => state.came_to(true)?,
            // A daemon that has gone, or says that it could not, may have done it.
            Err(_) => drop(state.settle(is_there)),
        }
        done
    }

    /// A file is written to: its time of change says nothing from now on.
    pub fn write(&self, file: Id) -> Result<()> {
        let mut state = self.state();
        if file.0 == 0 && state.written.insert(file.1) {
            let record = [&b"w"[..], &file.1.to_le_bytes()].concat();
            return state.append(&record);
        }
        Ok(())
    }

    /// Which file something that stands at a name is.
    pub fn identify(&self, spot: &Spot, attr: &Attr) -> Id {
        let state = self.state();
        let Some(file) = state.led(spot) else { return FOREIGN };
        if state.written.contains(&file) || state.before.contains(&file) || attr.kind == Kind::Directory {
            let is_kind = state.files.get(&file).is_none_or(|facts| facts.kind == attr.kind as u64);
            return if is_kind { (0, file) } else { FOREIGN };
        }
        let is_same = |facts: &Facts| facts.kind == attr.kind as u64 && facts.mtimes.contains(&attr.mtime);
        if state.files.get(&file).is_some_and(is_same) { (0, file) } else { FOREIGN }
    }

    /// A round is over: all is below as it is here.
    pub fn end(&self) -> Result<()> {
        self.state().begin_log()
    }

    /// What it has of the image goes back.
    pub fn rest(&self) {
        let state = self.state();
        state.cache.give_lane_back(&state.thread);
    }
}

impl State {
    fn led(&self, spot: &Spot) -> Option<u64> {
        self.moved.get(spot).copied().unwrap_or_else(|| self.noted.get(spot).copied())
    }

    fn cx(&self) -> Cx<'_> {
        Cx { cred: base::Cred::ROOT, umask: 0, thread: &self.thread }
    }

    fn find(&self, name: &[u8]) -> Result<Option<Node>> {
        crate::plan::if_there(self.cache.fs().lookup(&self.cx(), self.cache.touched(), name))
    }

    fn log(&self, name: &[u8]) -> Result<Node> {
        match self.find(name)? {
            Some(log) => Ok(log),
            None => {
                let new = NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" };
                self.cache.fs().create(&self.cx(), self.cache.touched(), name, &new).map_err(image)
            }
        }
    }

    fn write_at(&self, log: Node, at: u64, record: &[u8]) -> Result<()> {
        let (done, _) = self.cache.fs().write(&self.cx(), log, Some(at), &[UserSlice::from_ref(record)]).map_err(image)?;
        if done == record.len() { Ok(()) } else { Err(Failure::new("the cache image", Errno::ENOSPC)) }
    }

    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.write_at(self.log(LOG)?, self.end, record)?;
        self.end += record.len() as u64;
        Ok(())
    }

    /// Whoever wrote back before may have been another process.
    fn read_log(&mut self) -> Result<()> {
        (self.end, self.pending) = (0, None);
        self.moved.clear();
        self.written.clear();
        self.before.clear();
        self.absent.clear();
        let Some(log) = self.find(LOG)? else { return Ok(()) };
        let fs = self.cache.fs();
        let mut bytes = vec![0u8; fs.attr(&self.cx(), log).map_err(image)?.size as usize];
        let came = fs.read(&self.cx(), log, 0, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
        let mut rest = &bytes[..came];
        while let Some(first) = rest.first() {
            let number = |rest: &[u8]| rest.get(1..9).and_then(|text| text.try_into().ok()).map(u64::from_le_bytes);
            let len = match (first, number(rest)) {
                (b'+' | b'-', _) => {
                    self.apply(*first == b'+');
                    1
                }
                (b'w', Some(file)) => {
                    self.written.insert(file);
                    9
                }
                (b'v', Some(file)) => {
                    self.before.insert(file);
                    9
                }
                _ => match Step::parse(rest) {
                    Some((step, len)) => {
                        self.pending = Some(step);
                        len
                    }
                    // Its writer died within it: nothing was done after.
                    None => break,
                },
            };
            rest = &rest[len..];
        }
        self.end = (came - rest.len()) as u64;
        Ok(())
    }

    /// Begins the log anew. What was written to is remembered for one more round: notes that have been made meanwhile may
    /// know it as it was before.
    fn begin_log(&mut self) -> Result<()> {
        let (fs, touched) = (self.cache.fs(), self.cache.touched());
        if self.find(NEXT)?.is_some() {
            crate::plan::if_there(fs.unlink(&self.cx(), touched, NEXT))?;
        }
        let records: Vec<u8> = self.written.iter().flat_map(|file| [&b"v"[..], &file.to_le_bytes()].concat()).collect();
        if records.is_empty() && self.end == 0 {
            return Ok(());
        }
        let next = self.log(NEXT)?;
        if !records.is_empty() {
            self.write_at(next, 0, &records)?;
        }
        let renamed = fs.rename(&self.cx(), touched, NEXT, touched, LOG, RenameMode::Replace);
        renamed.map_err(image)?;
        self.end = records.len() as u64;
        Ok(())
    }

    /// Finds out about what has begun.
    fn settle(&mut self, is_there: &dyn Fn(&[u8]) -> Result<bool>) -> Result<()> {
        let Some(step) = &self.pending else { return Ok(()) };
        let is_done = step.is_done(is_there)?;
        self.came_to(is_done)
    }

    fn came_to(&mut self, is_done: bool) -> Result<()> {
        self.append(if is_done { b"+" } else { b"-" })?;
        self.apply(is_done);
        Ok(())
    }

    fn apply(&mut self, is_done: bool) {
        let Some(step) = self.pending.take() else { return };
        if !is_done {
            return;
        }
        if matches!(step.what, What::Move | What::Remove) {
            self.moved.insert(Step::spot(&step.from), None);
        }
        if step.what != What::Remove {
            self.absent.remove(&Step::spot(&step.to));
            self.moved.insert(Step::spot(&step.to), Some(step.file));
        }
        if step.what == What::Make {
            // Nothing is known of it but what was asked for.
            self.written.insert(step.file);
            self.files.entry(step.file).or_default().kind = step.kind as u64;
        }
    }
}
