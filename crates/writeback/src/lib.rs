//! Makes the directory below a cache equal to the tree in the image, in rounds.
//!
//! | step | what | file |
//! |---|---|---|
//! | take | what has been noted so far is this round's, and the tree is read, with the gate closed | [`plan`] |
//! | park | what stands below at a name that leads elsewhere now goes into `.bypath-park`, by its number | [`park`] |
//! | make | parents first: what is to stand there is moved from the park, linked, or written in the park and moved | [`make`] |
//! | contents | bytes, attributes | [`contents`], [`attributes`] |
//! | remove | what is left in the park | [`remove`] |
//! | times | of directories; sync | [`finish`] |
//! | stamps | what all of it is like below now; the notes go | [`finish`] |
//!
//! **A round may be cut off anywhere, and runs again**: each step is found done or not by which file (device and number)
//! stands where, and notes go last. A round that comes after one that was cut off takes the notes of both. So recovery is
//! a round. Behind a daemon, whose numbers say nothing, files go by those of their nodes ([`names`]).
//!
//! **Other programs change the same files**: a round writes what was changed here and nothing else, and what both have
//! changed is kept twice ([`conflict`]). A file that the notes do not know goes aside, as `NAME.bypath-theirs`.
//!
//! **Each name and each file has an outcome of its own** ([`outcome`]): what fails costs only what depends on it. Its notes
//! are kept, and the next round tries again; the rest is done and over ([`partial`]).
#![forbid(unsafe_code)]

mod again;
mod attributes;
mod below;
mod conflict;
mod contents;
mod export;
pub mod failures;
mod finish;
pub mod journal;
mod make;
pub mod marker;
mod names;
mod notes;
mod outcome;
mod park;
mod partial;
mod place;
mod plan;
mod remove;
mod reserve;
mod search;
mod skip;
mod status;
mod trusted;

pub use conflict::Conflict;
pub use export::{Exported, export};
pub use journal::Journal;
pub use marker::Marker;
pub use status::{Status, Waiting, removed};

use base::{Cred, Cx, Thread};
use below::Below;
use cache::Cache;
use cache::failures::Failed;
use cache::mutant::{self, Mutant};
use failures::Unwritten;
use plan::{Plan, Spot};
use pm::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rounds made because programs move what the one before was to write. The first ones come at once, the others after a pause
/// that doubles, in which the server can follow a move below.
const ROUNDS_MAX: u32 = 20;
const AT_ONCE: u32 = 3;
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Name of the directory below for what is on its way.
pub const PARK: &str = ".bypath-park";

/// Which file below: device and number.
pub(crate) type Id = (u64, u64);

/// What could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// To what.
    pub what: String,
    /// Why.
    pub errno: Errno,
}

impl Failure {
    pub(crate) fn new(what: impl AsRef<[u8]>, errno: Errno) -> Failure {
        Failure { what: String::from_utf8_lossy(what.as_ref()).into_owned(), errno }
    }

    /// Whether it is one of the image, and not of what is below.
    pub(crate) fn is_of_image(&self) -> bool {
        self.what == plan::IMAGE
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = std::io::Error::from_raw_os_error(self.errno.0).to_string();
        write!(f, "{}: {}", self.what, why.split(" (os error").next().unwrap_or_default())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// What a round has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Names and files that had been noted.
    pub noted: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Names and files that programs have moved meanwhile, and that the next round is to write.
    pub later: u64,
    /// How often it has looked below for where something is.
    pub looks: u64,
}

/// With this error a hook cuts a round off; with others that step alone fails.
pub const CUT: Errno = Errno::EOWNERDEAD;

/// Asked before each thing that is done below or in the notes; a test makes it fail.
pub type Hook<'a> = dyn FnMut(&str) -> std::result::Result<(), Errno> + 'a;

/// How far a round is: things done, and things to do.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64, AtomicU64);

impl Progress {
    /// Both.
    pub fn get(&self) -> (u64, u64) {
        (self.0.load(Relaxed), self.1.load(Relaxed))
    }

    fn begin(&self, all: usize) {
        self.0.store(0, Relaxed);
        self.1.store(all as u64, Relaxed);
    }

    fn done(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Who writes back.
pub struct Writer {
    progress: Arc<Progress>,
    cache: &'static Cache,
    thread: Thread,
    below: Below,
    journal: Option<Arc<Journal>>,
    conflict: Conflict,
    /// What was done below before may not be durable: a round was cut off, or nobody knows.
    is_unsure: AtomicBool,
    kept: Mutex<Vec<String>>,
    /// What the round could not write is noted in the image.
    has_noted: AtomicBool,
    ballast: reserve::Ballast,
}

/// A round under way.
pub(crate) struct Work<'a> {
    pub progress: &'a Progress,
    pub cache: &'static Cache,
    pub cx: Cx<'a>,
    pub below: &'a Below,
    pub journal: Option<&'a Journal>,
    pub plan: Plan,
    pub conflict: Conflict,
    /// The image outlives the machine: what it knows of files below the power may take back.
    pub outlives: bool,
    pub hook: &'a mut Hook<'a>,
    /// Where directories and files were found.
    pub places: place::Places,
    /// Directories that others have changed too.
    pub theirs: HashSet<u64>,
    /// Files that another program has changed too, so that they are not below as they are here.
    pub merged: HashSet<u64>,
    /// Size, and times of contents and status, that this round has given to files; 0: the last is not known.
    pub written: HashMap<u64, (u64, i64, i64)>,
    /// Names that are left alone because another program has changed what they lead to.
    pub stuck: HashSet<Spot>,
    /// What is to be looked at below when the round is over; its size and time of change, where a round that was cut off had begun
    /// to write it and nobody else has.
    pub again: BTreeMap<u64, Option<(u64, i64)>>,
    /// Names that nobody has touched have been looked for.
    pub has_searched: bool,
    /// Names that files and directories of other programs were given.
    pub kept: Vec<Vec<u8>>,
    /// What could not be done.
    pub outcomes: outcome::Outcomes,
    /// What was removed below, and changed here in nothing but attributes.
    pub removed: Vec<(u64, plan::Spot)>,
    /// Directories that were made again; their attributes are set when they are filled.
    pub made_again: Vec<u64>,
    /// What is to be removed is, so that there is room below.
    pub has_made_room: bool,
    pub bytes: u64,
}

impl Writer {
    /// For the directory below this cache.
    pub fn new(cache: &'static Cache) -> std::result::Result<Writer, Failure> {
        Ok(Writer {
            progress: Arc::default(),
            cache,
            thread: Thread::new(),
            below: Below::of(cache)?,
            journal: None,
            conflict: Conflict::default(),
            is_unsure: AtomicBool::new(true),
            kept: Mutex::default(),
            has_noted: AtomicBool::new(false),
            ballast: reserve::Ballast::default(),
        })
    }

    /// What it does with a file that others have changed below.
    pub fn deciding(self, conflict: Conflict) -> Writer {
        Writer { conflict, ..self }
    }

    /// What it does below is in this journal before.
    pub fn journaled(self, journal: Arc<Journal>) -> Writer {
        Writer { journal: Some(journal), ..self }
    }

    /// What was changed before is in the journal, durable, when this returns `true`. `false`: it needs a round.
    pub fn commit(&self) -> std::result::Result<bool, Failure> {
        self.journal.as_ref().map_or(Ok(false), |journal| journal.commit(self.cache, &self.cx()))
    }

    /// Where it says how far it is.
    pub fn telling(self, progress: Arc<Progress>) -> Writer {
        Writer { progress, ..self }
    }

    /// Nobody has called for a while: the journal says that what it holds was whole.
    pub fn confirm(&self) -> std::result::Result<(), Failure> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.confirm())
    }

    fn cx(&self) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0, thread: &self.thread }
    }

    /// Whether all that was changed in the image is below.
    pub fn is_clean(&self) -> std::result::Result<bool, Failure> {
        status::is_clean(self.cache, &self.cx())
    }

    /// Empties the journal of a cache that is clean.
    pub fn empty_journal(&self) -> std::result::Result<(), Failure> {
        let Some(journal) = &self.journal else { return Ok(()) };
        self.below.sync()?;
        journal.empty()
    }

    /// One round. `sync`: what is below is synced before it is called done. What programs have moved while it was under way
    /// is written by another one at once.
    pub fn round(&self, sync: bool) -> std::result::Result<Round, Failure> {
        let mut all = Round::default();
        for number in 0..ROUNDS_MAX {
            if let Some(doubled) = number.checked_sub(AT_ONCE) {
                std::thread::sleep((PAUSE * (1 << doubled.min(8))).min(PAUSE_MAX));
            }
            let round = self.round_once(sync)?;
            all = Round {
                noted: all.noted + round.noted,
                bytes: all.bytes + round.bytes,
                later: round.later,
                looks: all.looks + round.looks,
            };
            if all.later == 0 {
                break;
            }
        }
        self.keep_room();
        // Its names and files have been noted as failed.
        if all.later == 0 { Ok(all) } else { Err(Failure::new("what programs move all the time", Errno::EBUSY)) }
    }

    fn round_once(&self, sync: bool) -> std::result::Result<Round, Failure> {
        self.has_noted.store(false, Relaxed);
        let mut result = self.round_with(sync, &mut |_| Ok(()));
        if result.as_ref().is_err_and(|failure| failure.errno == Errno::ENOSPC) {
            // Perhaps it is the image that is full, with notes that this round will give back.
            self.give_room();
            self.has_noted.store(false, Relaxed);
            result = self.round_with(sync, &mut |_| Ok(()));
        }
        if let (Err(failure), false) = (&result, self.has_noted.load(Relaxed)) {
            // Nothing of it may be below.
            let failed = Failed { errno: failure.errno, dir: 0, node: 0 };
            let all = Unwritten { failed, path: failure.what.clone().into_bytes() };
            let _ = failures::note(self.cache, &self.cx(), &[all]);
        }
        result
    }

    /// The same, asking before each step.
    pub fn round_with(&self, sync: bool, hook: &mut Hook<'_>) -> std::result::Result<Round, Failure> {
        let cx = self.cx();
        let mut ask = |step: &str| hook(step);
        ask("take").map_err(|errno| Failure::new("take", errno))?;
        let journal = self.journal.as_deref();
        let (plan, group) = match journal {
            Some(journal) => journal.cover(self.cache, &cx)?,
            None => (Plan::take(self.cache, &cx)?, 0),
        };
        let noted = plan.noted;
        // An image that outlives the machine has promised what it holds until that is safe below.
        let outlives = self.cache.fs().domain() != pm::Domain::Process;
        let plan = if outlives { self.after_power(plan)? } else { plan };
        self.is_unsure.store(true, Relaxed);
        self.below.begin(&plan)?;
        self.progress.begin(plan.names.len() + plan.nodes.len());
        let mut work = Work {
            progress: &self.progress,
            cache: self.cache,
            cx,
            below: &self.below,
            journal,
            plan,
            conflict: self.conflict,
            outlives,
            hook: &mut ask,
            places: place::Places::default(),
            theirs: HashSet::new(),
            merged: HashSet::new(),
            written: HashMap::new(),
            stuck: HashSet::new(),
            again: BTreeMap::new(),
            has_searched: false,
            kept: Vec::new(),
            outcomes: outcome::Outcomes::default(),
            removed: Vec::new(),
            made_again: Vec::new(),
            has_made_room: false,
            bytes: 0,
        };
        // The tail of a journal moves behind what is synced.
        let is_early = mutant::is(Mutant::TailBeforeSync);
        let done = work.all(!is_early && (sync || journal.is_some() || outlives));
        self.note_kept(&mut work.kept);
        // The server looks again at what was newer here.
        self.cache.fs().count_round_over();
        let failed = work.failed();
        if done.is_ok() {
            let noted = failures::note(work.cache, &work.cx, &failed);
            self.has_noted.store(noted.is_ok(), Relaxed);
        }
        let (later, first) = (work.outcomes.later(), work.outcomes.first().cloned());
        done?;
        if let Some(first) = first {
            return Err(first);
        }
        if later > 0 {
            return Ok(Round { noted, bytes: work.bytes, later, looks: work.places.looks });
        }
        self.is_unsure.store(false, Relaxed);
        if let Some(journal) = journal {
            work.before("tail")?;
            journal.is_below(work.cache, &work.cx, &work.plan, group)?;
        }
        if is_early {
            work.before("sync")?;
            work.below.sync()?;
        }
        Ok(Round { noted, bytes: work.bytes, later: 0, looks: work.places.looks })
    }

    /// The round before may have been cut off, by a power failure too. What it has removed is removed for good before a
    /// number of such a file is given to another; of what it has made a part may be missing, so all of it is written again.
    fn after_power(&self, mut plan: Plan) -> Result<Plan> {
        if self.is_unsure.load(Relaxed) && !plan.is_empty() && !mutant::is(Mutant::BelievedWhole) {
            self.below.sync()?;
            let ids = plan.unsure.iter().filter(|id| plan.ids.contains_key(*id));
            ids.for_each(|id| {
                let noted = plan.nodes.entry(*id).or_default();
                (noted.from, noted.is_new) = (Some(0), true);
            });
        } else {
            plan.unsure.clear();
        }
        Ok(plan)
    }

    /// Names under which a round has kept what another program had written, since this was asked last.
    pub fn kept(&self) -> Vec<String> {
        std::mem::take(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_kept(&self, names: &mut Vec<Vec<u8>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(names.drain(..).map(|name| String::from_utf8_lossy(&name).into_owned()));
    }

    /// What this thread has of the image goes back.
    pub fn rest(&self) {
        self.cache.give_lane_back(&self.thread);
        if let Some(names) = self.below.names() {
            names.rest();
        }
    }
}

impl Work<'_> {
    fn all(&mut self, sync: bool) -> Result<()> {
        if !self.plan.is_empty() {
            self.park()?;
            self.make()?;
            self.contents()?;
            self.remove()?;
            self.times()?;
        }
        if mutant::is(Mutant::FreedBeforeSync) && self.outcomes.is_good() {
            self.note_stamps()?;
            self.finish()?;
        }
        if sync || !self.plan.is_empty() && self.below.is_later() {
            self.before("sync")?;
            self.below.sync()?;
        }
        if self.outcomes.is_good() || !self.has_all_or_nothing() {
            self.note_stamps()?;
        }
        if self.outcomes.is_good() { self.finish() } else { self.finish_part() }
    }

    /// Asked before each step.
    pub(crate) fn before(&mut self, step: &str) -> Result<()> {
        (self.hook)(step).map_err(|errno| Failure::new(step, errno))
    }
}
