//! Who writes back what was changed in a cache: a thread of `bypath run`, and of `bypath cache drain`.
//!
//! One process at a time, that which has the directory's marker locked; another session stands by, and takes over when that
//! ends, however it ends.

use crate::failure::{Failure, Result};
use cache::Cache;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writeback::marker::{self, Claim};
use writeback::{Marker, Writer};

/// How long after the first change a round begins.
const LAG: Duration = Duration::from_secs(1);
/// Longest time between two attempts that fail.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// How long the end of a session waits for a directory that can't be written.
const GIVE_UP: Duration = Duration::from_secs(15);
/// From then on the end of a session says what it waits for.
const QUIET: Duration = Duration::from_secs(2);

/// The thread, and what it is to do at its end.
pub struct Writing {
    cache: &'static Cache,
    shown: String,
    image: PathBuf,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// What is not written stays in the image.
    pub leave: bool,
}

/// Locks the marker of the directory; refused if it is another image's.
fn claim(cache: &Cache, image: &Path) -> Result<Option<Marker>> {
    let directory = marker::path(cache.place());
    match Marker::claim(directory, image, cache.fs().identity()) {
        Ok(Claim::Ours(marker)) => Ok(Some(marker)),
        Ok(Claim::Served) => Ok(None),
        Ok(Claim::Another(other)) => Err(Failure::new(format!(
            "{}: {other} holds changes of this directory: see `bypath cache status {other}`, `bypath cache drain {other}`",
            directory.display()
        ))),
        Err(errno) => Err(Failure::errno(directory.join(marker::NAME).display(), errno)),
    }
}

fn failure(shown: &str, failure: &writeback::Failure) -> Failure {
    Failure::new(format!("{shown}: {failure}"))
}

impl Writing {
    /// Begins, for the directory behind a cache.
    pub fn start(cache: &'static Cache, image: &Path, shown: &str) -> Result<Writing> {
        let marker = claim(cache, image)?;
        let ending = Arc::new(AtomicBool::new(false));
        let mut served =
            Serving { cache, shown: shown.to_owned(), image: image.to_path_buf(), said: false, marker, writer: None };
        // Failures that show at once are the session's.
        served.open()?;
        if served.marker.is_some() {
            served.finish_left()?;
        }
        let ended = ending.clone();
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || served.serve(&ended));
        let thread = thread.map_err(|error| Failure::io("a thread", &error))?;
        Ok(Writing { cache, shown: shown.to_owned(), image: image.to_path_buf(), ending, thread: Some(thread), leave: false })
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
                eprintln!("bypath: {shown}: programs that go on have {} files mapped: bypath cache drain {image}", left.files);
                return;
            }
            rounds += 1;
            if begun.elapsed() > QUIET {
                let end = if std::io::stderr().is_terminal() { '\r' } else { '\n' };
                eprint!("bypath: {}: writing back {} names, {} files{end}", self.shown, left.names, left.files);
            }
            if self.cache.fs().want_round().is_err() && begun.elapsed() > GIVE_UP {
                let (shown, image) = (&self.shown, self.image.display());
                eprintln!("bypath: {shown}: not all could be written back; it is kept: bypath cache drain {image}");
                return;
            }
            match Status::of(self.cache) {
                Ok(status) => left = status,
                Err(_) => return,
            }
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
    names: u64,
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
            is_but_mapped: status.names == 0 && status.files == status.mapped,
            names: status.names,
            files: status.files,
        })
    }
}

/// The thread's own.
struct Serving {
    cache: &'static Cache,
    shown: String,
    image: PathBuf,
    /// It has been said that something can't be written.
    said: bool,
    marker: Option<Marker>,
    writer: Option<Writer>,
}

impl Serving {
    fn open(&mut self) -> Result<()> {
        let writer = Writer::new(self.cache).map_err(|error| failure(&self.shown, &error))?;
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
        while !ended.load(SeqCst) {
            if self.marker.is_none() {
                self.marker = claim(self.cache, &self.image).unwrap_or(None);
                if self.marker.is_none() {
                    std::thread::sleep(Duration::from_millis(200));
                    continue;
                }
                let _ = self.cache.fs().writes_back(true);
            }
            again = if self.turn(again, ended) { LAG } else { (again * 2).min(AGAIN_MAX) };
        }
        self.end();
    }

    /// One round if there is something to do, at once if somebody waits for it; whether all went well.
    fn turn(&mut self, lag: Duration, ended: &AtomicBool) -> bool {
        let (Some(writer), fs) = (&self.writer, self.cache.fs()) else { return true };
        let Ok((seen, mut wanted)) = fs.rounds_wanted() else { return true };
        // After the word was read: whoever ends this changes it.
        if wanted.is_none() && !ended.load(SeqCst) {
            let _ = fs.await_call(seen, lag.as_nanos() as i64);
            wanted = fs.rounds_wanted().map_or(None, |(_, wanted)| wanted);
        }
        if wanted.is_none() && (ended.load(SeqCst) || writer.is_clean().unwrap_or(false)) {
            writer.rest();
            return true;
        }
        let result = writer.round(wanted.is_some());
        let errno = result.as_ref().map(drop).map_err(|failure| failure.errno);
        let _ = fs.answer(wanted.unwrap_or(0), errno);
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
        let Some(writer) = self.writer else { return };
        if let Some(marker) = self.marker {
            let _ = self.cache.fs().writes_back(false);
            if writer.is_clean().unwrap_or(false) {
                marker.remove();
            }
        }
        writer.rest();
    }
}

/// Writes all back that a cache holds, without a session.
pub fn drain(cache: &'static Cache, image: &Path) -> Result<()> {
    let shown = image.display().to_string();
    let Some(marker) = claim(cache, image)? else {
        // Whoever writes back does it.
        return cache.fs().want_round().map_err(|error| Failure::errno(&shown, error.errno()));
    };
    let writer = Writer::new(cache).map_err(|error| failure(&shown, &error))?;
    let _ = cache.fs().writes_back(true);
    let mut result = Ok(());
    while !writer.is_clean().map_err(|error| failure(&shown, &error))? {
        if let Err(error) = writer.round(true) {
            result = Err(failure(&shown, &error));
            break;
        }
        let left = Status::of(cache).map_err(|error| failure(&shown, &error))?;
        if left.is_but_mapped {
            result = Err(Failure::new(format!("{shown}: {} files are mapped by programs that go on", left.files)));
            break;
        }
    }
    let _ = cache.fs().answer(0, if result.is_ok() { Ok(()) } else { Err(pm::Errno::EIO) });
    let _ = cache.fs().writes_back(false);
    if result.is_ok() {
        marker.remove();
    }
    writer.rest();
    result
}
