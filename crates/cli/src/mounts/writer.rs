//! Who writes back what was changed in a cache: a thread of `bypath run`, and of `bypath cache drain`.
//!
//! With a journal a second thread answers `fsync` by cuts, while the first makes rounds.
//!
//! One process at a time, that which has the directory's marker locked; another session stands by, and takes over when that
//! ends, however it ends.

use super::spec::{CacheImage, JOURNAL_SIZE};
use super::unwritten;
use crate::failure::{Failure, Result};
use cache::Cache;
use engine::lower::Answer;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writeback::marker::{self, Claim};
use writeback::{Conflict, Journal, Marker, Progress, Writer};

/// How long after the first change a round begins.
const LAG: Duration = Duration::from_secs(1);
/// Longest time between two attempts that fail.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// How long the end of a session waits for a directory that can't be written.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Between two attempts to take over from the session that writes back.
const CLAIM_AGAIN: Duration = Duration::from_millis(200);
/// How often a round of a session with a journal is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// From then on the journal is marked: all in it was whole.
const CONFIRM: Duration = Duration::from_millis(20);
/// From then on a thread that nobody calls gives back what it has of the image.
const IDLE: Duration = Duration::from_millis(100);
/// How long a drain tries to write a file that is missing below: another program may just be moving it.
const MOVING: Duration = Duration::from_secs(1);
/// How long the end of a session, or a drain, rests after a round that failed.
const ROUND_AGAIN: Duration = Duration::from_millis(100);
/// How long a drain waits for a writer that does not live before it takes over: one that was killed just now may have ended
/// since it was asked.
const NOBODY: Duration = Duration::from_millis(200);
/// From then on the end of a session says what it waits for.
const QUIET: Duration = Duration::from_secs(2);
/// Most names of kept files in a message.
const KEPT_SAID: usize = 20;
/// Between two lines about a round that takes long.
const TELL: Duration = Duration::from_secs(2);

/// The thread, and what it is to do at its end.
pub struct Writing {
    cache: &'static Cache,
    shown: String,
    image: PathBuf,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    /// What is not written stays in the image.
    pub leave: bool,
}

/// Locks the marker of the directory; refused if it is another image's.
fn claim(cache: &Cache, image: &Path) -> Result<Option<Marker>> {
    let place = marker::path(cache.place());
    // A daemon may refuse such a name, or show it to others.
    let (directory, marker) = match cache.daemon() {
        None => (place, place.join(marker::NAME)),
        Some(_) => (image, marker::beside(image)),
    };
    match Marker::claim(&marker, image, cache.fs().identity()) {
        Ok(Claim::Ours(marker)) => Ok(Some(marker)),
        Ok(Claim::Served) => Ok(None),
        Ok(Claim::Another(other)) => Err(Failure::new(format!(
            "{}: {other} holds changes of this directory: see `bypath cache status {other}`, `bypath cache drain {other}`",
            directory.display()
        ))),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

fn failure(shown: &str, failure: &writeback::Failure) -> Failure {
    Failure::new(format!("{shown}: {failure}"))
}

impl Writing {
    /// Begins, for the directory behind a cache.
    pub fn start(
        cache: &'static Cache,
        image: &Path,
        shown: &str,
        (journal, conflict): (Option<CacheImage>, Option<Conflict>),
    ) -> Result<Writing> {
        let marker = claim(cache, image)?;
        if let (Some(marker), Some(conflict)) = (&marker, conflict) {
            marker.set_conflict(conflict).map_err(|error| Failure::new(error.to_string()))?;
        }
        let ending = Arc::new(AtomicBool::new(false));
        let progress: Arc<Progress> = Arc::default();
        let mut served = Serving {
            cache,
            shown: shown.to_owned(),
            image: image.to_path_buf(),
            said: false,
            kept: Vec::new(),
            marker,
            writer: None,
            wish: journal,
            progress: progress.clone(),
            journal: None,
            state: Arc::default(),
        };
        // Failures that show at once are the session's.
        if let Err(error) = served.open() {
            served.give_up();
            return Err(error);
        }
        if served.marker.is_some() {
            served.finish_left()?;
        }
        let ended = ending.clone();
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || served.serve(&ended));
        let thread = thread.map_err(|error| Failure::io("a thread", &error))?;
        Ok(Writing {
            cache,
            shown: shown.to_owned(),
            image: image.to_path_buf(),
            ending,
            thread: Some(thread),
            progress,
            leave: false,
        })
    }

    /// Waits for a round, and says how far it is.
    fn round_told(&self, begun: Instant) -> base::Result<()> {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let telling = scope.spawn(|| {
                while !ended.load(SeqCst) {
                    let rest = if begun.elapsed() < QUIET { QUIET - begun.elapsed() } else { TELL };
                    std::thread::park_timeout(rest);
                    if begun.elapsed() >= QUIET && !ended.load(SeqCst) {
                        let (done, all) = self.progress.get();
                        let end = if std::io::stderr().is_terminal() { '\r' } else { '\n' };
                        eprint!("bypath: {}: writing back: {done} of {all} names and files{end}", self.shown);
                    }
                }
            });
            let result = self.cache.fs().want_round();
            ended.store(true, SeqCst);
            telling.thread().unpark();
            result
        })
    }

    /// Waits until all is below, or says what is not.
    fn drain(&self) {
        let begun = Instant::now();
        let Ok(status) = Status::of(self.cache) else { return };
        let (mut left, mut rounds) = (status, 0);
        while !left.is_clean {
            if rounds > 0 && left.is_but_mapped {
                // Written as they are now; nobody knows when they are stored into again.
                let (shown, image) = (&self.shown, self.image.display());
                eprintln!(
                    "bypath: {shown}: programs that go on have {} files mapped, which are written once more when they end, or by \
                     bypath cache drain {image}",
                    left.files
                );
                return;
            }
            rounds += 1;
            if self.round_told(begun).is_err() {
                if begun.elapsed() > GIVE_UP {
                    let advice = unwritten::advice(self.cache, &self.image);
                    eprintln!("bypath: {}: not all could be written back{advice}", self.shown);
                    return;
                }
                std::thread::sleep(ROUND_AGAIN);
            }
            match Status::of(self.cache) {
                Ok(status) => left = status,
                Err(_) => return,
            }
        }
    }
}

impl Writing {
    /// Writes back what there is now, unless it is to be left.
    pub fn write_back(&self) {
        if !self.leave {
            self.drain();
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.leave {
            if Status::of(self.cache).is_ok_and(|status| !status.is_clean) {
                eprintln!("bypath: {}: changes are left in the cache: bypath cache drain {}", self.shown, self.image.display());
            }
        } else {
            self.drain();
        }
        self.ending.store(true, SeqCst);
        let _ = self.cache.fs().call_writer();
        if let Some(thread) = self.thread.take() {
            // While another session writes back, the thread is parked between two attempts to take over.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// How far behind the directory is.
#[derive(Clone, Copy)]
struct Status {
    is_clean: bool,
    /// Nothing but files that are mapped.
    is_but_mapped: bool,
    files: u64,
}

impl Status {
    fn of(cache: &'static Cache) -> std::result::Result<Status, writeback::Failure> {
        let thread = base::Thread::new();
        let cx = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread };
        let status = writeback::Status::of(cache, &cx);
        cache.give_lane_back(&thread);
        let status = status?;
        Ok(Status {
            is_clean: status.names + status.files == 0,
            is_but_mapped: status.names == 0 && status.mapped > 0 && status.files == status.mapped,
            files: status.files,
        })
    }

    /// What programs store into is never written for good.
    fn refuse_mapped(&self, shown: &str) -> Result<()> {
        match self.is_but_mapped && !self.is_clean {
            true => Err(Failure::new(format!("{shown}: {} files are mapped by programs that go on", self.files))),
            false => Ok(()),
        }
    }
}

/// Between the threads of a writer with a journal.
#[derive(Default)]
struct Shared {
    /// It is over.
    ended: AtomicBool,
    /// Somebody waits for a round who would be answered by a cut otherwise.
    due: AtomicBool,
    /// Why the last round failed; 0: it did not.
    failing: AtomicI32,
}

/// Opens the journal that the marker names, or the one that is wished for, and names it.
fn journal_of(cache: &Cache, image: &Path, marker: &Marker, wish: Option<&CacheImage>) -> Result<Option<Arc<Journal>>> {
    if cache.daemon().is_some() {
        return Ok(None);
    }
    let named = marker::journal_of(marker::path(cache.place())).map_err(|error| Failure::new(error.to_string()))?;
    let named = named.map(|path| CacheImage { path, size: JOURNAL_SIZE });
    let Some(CacheImage { path, size }) = named.as_ref().or(wish) else { return Ok(None) };
    let shown = path.display();
    if writeback::journal::is_in_memory(path) {
        return Err(Failure::new(format!("{shown}: a journal in memory keeps no promise; name a file on a disk: journal=PATH")));
    }
    let journal = Journal::open(cache, image, path, *size).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    marker.set_journal(path).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Some(Arc::new(journal)))
}

/// Whether a marker names a journal, or may name one.
fn is_journaled(cache: &Cache) -> bool {
    cache.daemon().is_none() && !matches!(marker::journal_of(marker::path(cache.place())), Ok(None))
}

/// What the marker of a directory says becomes of files that others have changed too.
fn conflict_of(cache: &Cache) -> Conflict {
    if cache.daemon().is_some() { Conflict::Ours } else { marker::conflict_of(marker::path(cache.place())) }
}

/// All is below: marker and journal go.
fn remove(writer: &Writer, marker: Marker, journal: Option<&Journal>) {
    match journal {
        None => marker.remove(),
        Some(journal) if writer.empty_journal().is_ok() => marker.remove_with(journal.path()),
        // It says what it said: the next session finds that it is below.
        Some(_) => {}
    }
}

/// Answers `fsync` by cuts, until it is over.
fn commit(cache: &'static Cache, journal: Arc<Journal>, shared: &Shared) {
    let Ok(writer) = Writer::new(cache).map(|writer| writer.journaled(journal)) else { return };
    let fs = cache.fs();
    while !shared.ended.load(SeqCst) {
        let Ok((seen, wanted)) = fs.rounds_wanted() else { return };
        match wanted.filter(|wanted| fs.is_durable_wanted(*wanted) == Ok(true)) {
            Some(_) if shared.due.load(SeqCst) => std::thread::sleep(Duration::from_millis(1)),
            Some(wanted) => match writer.commit() {
                Ok(true) => {
                    let errno = shared.failing.load(SeqCst);
                    let _ = fs.answer_durable(wanted, if errno == 0 { Ok(()) } else { Err(pm::Errno(errno)) });
                }
                Ok(false) => shared.due.store(true, SeqCst),
                Err(failure) => drop(fs.answer_durable(wanted, Err(failure.errno))),
            },
            None => {
                let begun = Instant::now();
                let _ = fs.await_call(seen, CONFIRM.as_nanos() as i64);
                if begun.elapsed() >= CONFIRM {
                    let _ = writer.confirm();
                    let _ = fs.await_call(seen, IDLE.as_nanos() as i64);
                }
                if begun.elapsed() >= IDLE {
                    writer.rest();
                }
            }
        }
    }
    writer.rest();
}

/// Lists the files of which both versions were kept.
fn say_kept(shown: &str, kept: &[String]) {
    if kept.is_empty() {
        return;
    }
    eprintln!("bypath: {shown}: another program changed these files too; its versions are kept beside them:");
    kept.iter().take(KEPT_SAID).for_each(|name| eprintln!("  {name}"));
    if kept.len() > KEPT_SAID {
        eprintln!("  and {} more: find DIR -name '*.bypath-theirs*'", kept.len() - KEPT_SAID);
    }
}

/// The thread's own.
struct Serving {
    cache: &'static Cache,
    shown: String,
    image: PathBuf,
    /// It has been said that something can't be written.
    said: bool,
    /// Names under which changes of other programs were kept.
    kept: Vec<String>,
    marker: Option<Marker>,
    writer: Option<Writer>,
    progress: Arc<Progress>,
    /// The journal that the session asks for.
    wish: Option<CacheImage>,
    /// The one that there is, while this process writes back.
    journal: Option<Arc<Journal>>,
    state: Arc<Shared>,
}

impl Serving {
    fn open(&mut self) -> Result<()> {
        let writer = Writer::new(self.cache).map_err(|error| failure(&self.shown, &error))?;
        let beneath = [
            self.image.parent().unwrap_or(Path::new(".")),
            &crate::attach::segment_directory().unwrap_or_else(|| "/dev/shm".into()),
        ];
        let writer = writer.keeping_room_in(&beneath);
        let mut writer = writer.telling(self.progress.clone()).deciding(conflict_of(self.cache));
        if let Some(marker) = &self.marker {
            self.journal = journal_of(self.cache, &self.image, marker, self.wish.as_ref())?;
            if let Some(journal) = &self.journal {
                writer = writer.journaled(journal.clone());
            }
        }
        self.writer = Some(writer);
        if self.marker.is_some() {
            let _ = self.cache.fs().writes_back(true);
            if let Some(writer) = &self.writer {
                writer.keep_room();
                writer.rest();
            }
        }
        Ok(())
    }

    /// A session that does not begin leaves no marker, unless there is something to be marked.
    fn give_up(self) {
        let is_journaled = is_journaled(self.cache);
        if let (Some(marker), Ok(writer), false) = (self.marker, Writer::new(self.cache), is_journaled) {
            if writer.is_clean().unwrap_or(false) {
                marker.remove();
            }
            writer.rest();
        }
    }

    /// What a session before has left is written before anything else is done.
    fn finish_left(&mut self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let is_clean = writer.is_clean().map_err(|error| failure(&self.shown, &error))?;
        let mut result = Ok(());
        if !is_clean {
            eprintln!("bypath: {}: writing back what an earlier session has left", self.shown);
            result = writer.round(true).map(drop);
        }
        writer.rest();
        if let Err(error) = result {
            self.say(&error);
        }
        Ok(())
    }

    fn say(&mut self, error: &writeback::Failure) {
        if !std::mem::replace(&mut self.said, true) {
            eprintln!("bypath: {}: can't be written back: {error}; it is kept, and tried again", self.shown);
        }
    }

    fn serve(mut self, ended: &AtomicBool) {
        let mut again = LAG;
        let mut committer = self.start_committer();
        while !ended.load(SeqCst) {
            if self.marker.is_none() {
                self.marker = claim(self.cache, &self.image).unwrap_or(None);
                if self.marker.is_none() {
                    std::thread::park_timeout(CLAIM_AGAIN);
                    continue;
                }
                if let Err(error) = self.open() {
                    // Without it nothing is written back: somebody else may.
                    eprintln!("bypath: {error}");
                    self.marker = None;
                    std::thread::park_timeout(AGAIN_MAX);
                    continue;
                }
                committer = self.start_committer();
            }
            again = if self.turn(again, ended) { LAG } else { (again * 2).min(AGAIN_MAX) };
        }
        self.state.ended.store(true, SeqCst);
        let _ = self.cache.fs().call_writer();
        if let Some(committer) = committer {
            let _ = committer.join();
        }
        self.end();
    }

    fn start_committer(&self) -> Option<JoinHandle<()>> {
        let (cache, journal, shared) = (self.cache, self.journal.clone()?, self.state.clone());
        std::thread::Builder::new().name("journal".into()).spawn(move || commit(cache, journal, &shared)).ok()
    }

    /// Sleeps until a round is due, at most so long. With a journal others answer who waits for that.
    fn sleep(&self, seen: u32, lag: Duration, ended: &AtomicBool) {
        let fs = self.cache.fs();
        let Some(journal) = &self.journal else {
            let _ = fs.await_call(seen, lag.as_nanos() as i64);
            return;
        };
        let begun = Instant::now();
        while begun.elapsed() < lag && !ended.load(SeqCst) && !self.state.due.load(SeqCst) && !journal.is_due() {
            let wanted = fs.rounds_wanted().map_or(None, |(_, wanted)| wanted);
            if wanted.is_some_and(|wanted| fs.is_below_wanted(wanted) == Ok(true)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The requests that a round is to answer.
    fn wanted(&self, wanted: Option<u64>) -> Option<u64> {
        let is_ours = |wanted: &u64| {
            self.journal.is_none() || self.state.due.load(SeqCst) || self.cache.fs().is_below_wanted(*wanted) == Ok(true)
        };
        wanted.filter(is_ours)
    }

    /// One round if there is something to do, at once if somebody waits for it; whether all went well.
    fn turn(&mut self, lag: Duration, ended: &AtomicBool) -> bool {
        let (Some(writer), fs) = (&self.writer, self.cache.fs()) else { return true };
        let Ok((seen, wanted)) = fs.rounds_wanted() else { return true };
        let mut wanted = self.wanted(wanted);
        // After the word was read: whoever ends this changes it.
        if wanted.is_none() && !ended.load(SeqCst) {
            self.sleep(seen, lag, ended);
            wanted = self.wanted(fs.rounds_wanted().map_or(None, |(_, wanted)| wanted));
        }
        if wanted.is_none() && (ended.load(SeqCst) || writer.is_clean().unwrap_or(false)) {
            writer.rest();
            return true;
        }
        let result = writer.round(wanted.is_some());
        self.kept.extend(writer.kept());
        let errno = result.as_ref().map(drop).map_err(|failure| failure.errno);
        self.state.failing.store(errno.err().map_or(0, |errno| errno.0), SeqCst);
        let _ = fs.answer(wanted.unwrap_or(0), errno);
        self.state.due.store(false, SeqCst);
        match result {
            Ok(_) => {
                if std::mem::take(&mut self.said) {
                    eprintln!("bypath: {}: all is written back", self.shown);
                }
                true
            }
            Err(error) => {
                self.say(&error);
                false
            }
        }
    }

    fn end(self) {
        say_kept(&self.shown, &self.kept);
        let Some(writer) = self.writer else { return };
        if let Some(marker) = self.marker {
            let _ = self.cache.fs().writes_back(false);
            if writer.is_clean().unwrap_or(false) {
                remove(&writer, marker, self.journal.as_deref());
            }
        }
        writer.rest();
    }
}

/// Gives up the changes of one name; what it is called in the image from now on.
pub fn skip(cache: &'static Cache, path: &[u8]) -> std::result::Result<String, writeback::Failure> {
    if is_journaled(cache) {
        return Err(writeback::Failure {
            what: "its journal promises an order, in which nothing can be left out".into(),
            errno: pm::Errno::EOPNOTSUPP,
        });
    }
    let writer = Writer::new(cache)?;
    let skipped = writer.skip(path);
    writer.rest();
    skipped
}

/// A drain that can't write all.
fn unfinished(cache: &Cache, image: &Path) -> Failure {
    Failure::new(format!("{}: not all could be written back{}", image.display(), unwritten::advice(cache, image)))
}

/// How often somebody who is dead is asked for a round.
const ASKED: u32 = 25;

/// Writes all back that a cache holds, without a session.
pub fn drain(cache: &'static Cache, image: &Path) -> Result<()> {
    let shown = image.display().to_string();
    let mut asked = 0;
    let marker = loop {
        if let Some(marker) = claim(cache, image)? {
            break marker;
        }
        // Whoever writes back does it.
        match cache.fs().ask_round_within(NOBODY.as_nanos() as i64).and_then(Answer::all) {
            // It has ended, or been killed, after all.
            Err(_) if asked < ASKED && cache.fs().writer().is_ok_and(|(writer, ..)| writer == 0) => asked += 1,
            round => {
                round.map_err(|_| unfinished(cache, image))?;
                return Status::of(cache).map_err(|error| failure(&shown, &error))?.refuse_mapped(&shown);
            }
        }
    };
    let writer = Writer::new(cache).map_err(|error| failure(&shown, &error))?;
    let mut writer = writer.deciding(conflict_of(cache));
    let journal = journal_of(cache, image, &marker, None)?;
    if let Some(journal) = &journal {
        writer = writer.journaled(journal.clone());
    }
    let _ = cache.fs().writes_back(true);
    let (mut result, mut kept, begun) = (Ok(()), Vec::new(), Instant::now());
    while !writer.is_clean().map_err(|error| failure(&shown, &error))? {
        let round = writer.round(true);
        kept.extend(writer.kept());
        if round.as_ref().is_err_and(|error| error.errno == pm::Errno::ESTALE) && begun.elapsed() < MOVING {
            std::thread::sleep(ROUND_AGAIN);
            continue;
        }
        if let Err(error) = round {
            let is_listed = !unwritten::of(cache).is_empty();
            result = Err(if is_listed { unfinished(cache, image) } else { failure(&shown, &error) });
            break;
        }
        result = Status::of(cache).map_err(|error| failure(&shown, &error))?.refuse_mapped(&shown);
        if result.is_err() {
            break;
        }
    }
    say_kept(&shown, &kept);
    let _ = cache.fs().answer(0, if result.is_ok() { Ok(()) } else { Err(pm::Errno::EIO) });
    let _ = cache.fs().writes_back(false);
    if result.is_ok() {
        remove(&writer, marker, journal.as_deref());
    }
    writer.rest();
    result
}
