//! `bypath cache`: what a cache holds that the directory behind it has not got, and what becomes of it.

use crate::args::CacheWhat;
use crate::attach::{self, Attached};
use crate::cmd::{print, print_json};
use crate::failure::{Failure, Result};
use crate::mounts::{linger, over, own_cache, replay as mounts_replay, unwritten, writer};
use crate::size;
use base::{Cred, Cx, Thread};
use cache::{Cache, Changes, Origin, is_of_daemon, prepare};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use writeback::{PARK, Status, Waiting, marker};

/// As JSON.
#[derive(Serialize)]
struct Shown {
    image: PathBuf,
    directory: PathBuf,
    journal: Option<PathBuf>,
    names: u64,
    files: u64,
    bytes: u64,
    lag_ms: u64,
    writer: Option<u32>,
    error: Option<String>,
    /// What the last round could not write, why, and what to do.
    unwritten: Vec<String>,
    rounds: u64,
    written: u64,
}

/// Does what is asked for.
pub fn cache(what: &CacheWhat) -> Result<u8> {
    match what {
        CacheWhat::Status { place, json } => status(&image_of(place)?, *json),
        CacheWhat::Drain { place } => {
            let image = image_of(place)?;
            let image = std::path::absolute(&image).unwrap_or(image);
            let code = drain(&image)?;
            linger::end(&image)?;
            own_cache::remove_if_over(&image);
            Ok(code)
        }
        CacheWhat::Skip { place, path } => skip(&image_of(place)?, path),
        CacheWhat::Export { place, target } => export(&image_of(place)?, target),
        CacheWhat::Replay { directory, skip_missing } => replay(directory, *skip_missing),
        CacheWhat::Discard { place, yes } => match lost(place) {
            true => discard_lost(place, *yes),
            false => discard(&image_of(place)?, *yes),
        },
    }
}

/// What a cache does, and how far behind the directory is.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Figures {
    /// Names and files whose changes the directory has not, bytes that a round would write, and how long ago the oldest of
    /// them was made, milliseconds.
    pub dirty_names: u64,
    pub dirty_files: u64,
    pub dirty_bytes: u64,
    pub lag_ms: u64,
    /// Rounds and bytes written back, ever.
    pub rounds: u64,
    pub written_bytes: u64,
    /// Calls of programs since the first of them came, and how often what they wanted, or what was fetched ahead of them,
    /// was asked for below; names and bytes that came.
    pub calls: u64,
    pub fetches: u64,
    pub fetched_names: u64,
    pub fetched_bytes: u64,
}

impl Figures {
    /// For people.
    pub fn shown(&self, there: &str) -> String {
        let behind = match self.lag_ms {
            0 => String::new(),
            lag => format!(" ({}, for {}.{} s)", size::show(self.dirty_bytes), lag / 1000, lag % 1000 / 100),
        };
        format!(
            "{} names and {} files not {there} yet{behind}, {} written back in {} rounds; {} calls, {} times asked {there} for {} \
             names and {}",
            self.dirty_names,
            self.dirty_files,
            size::show(self.written_bytes),
            self.rounds,
            self.calls,
            self.fetches,
            self.fetched_names,
            size::show(self.fetched_bytes)
        )
    }
}

/// Those of a cache image; nothing where that can't be told.
pub fn figures(image: &Path) -> Option<Figures> {
    let open = open(image).ok()?;
    let figures = open.status(image).and_then(|status| open.figures(image, &status)).ok();
    open.attached.leave();
    figures
}

/// Whether a cache is needed no more: nobody uses it, and the directory lacks nothing of it.
pub fn is_over(image: &Path) -> bool {
    let Ok(open) = open(image) else { return false };
    let is_over = !over::is_used(&open.attached, None) && open.status(image).is_ok_and(|left| left.names + left.files == 0);
    open.attached.leave();
    is_over
}

/// The cache image: itself, or what the directory's marker names.
fn image_of(place: &Path) -> Result<PathBuf> {
    if !place.is_dir() {
        return Ok(place.to_path_buf());
    }
    // A session has it mounted over the directory: the marker is below that.
    if let Some(image) = over::image_at(place) {
        return Ok(image);
    }
    let image = marker::of(place).map_err(|error| Failure::new(error.to_string()))?.ok_or_else(|| {
        Failure::new(format!("{}: no cache holds changes of this directory ({} is not there)", place.display(), marker::NAME))
    })?;
    Ok(image.into())
}

/// The cache, attached, and the directory behind it.
struct Open {
    attached: Attached,
    cache: &'static Cache,
    directory: PathBuf,
    /// How the daemon is started that is behind it, if it is one.
    daemon: Option<String>,
}

fn open(image: &Path) -> Result<Open> {
    open_as(image, Changes::Refused, false)
}

/// The cache of a directory, to change what it shows: a session that has it writes back.
pub fn open_to_change(image: &Path) -> Result<(Attached, &'static Cache)> {
    let open = open_as(image, Changes::Image, false)?;
    if let Some(command) = &open.daemon {
        open.attached.leave();
        let shown = image.display();
        return Err(Failure::new(format!(
            "{shown}: it is the cache of a daemon ({command}), whom only programs of its session reach; there `cp -r --reflink` clones"
        )));
    }
    Ok((open.attached, open.cache))
}

/// `alone`: also where the directory is not there, or another one.
fn open_as(image: &Path, changes: Changes, alone: bool) -> Result<Open> {
    let shown = image.display();
    let attached = attach::attach(image)?;
    let not_one = || Failure::new(format!("{shown}: it is not the cache of a directory"));
    if !attached.fs.is_cache() {
        return Err(not_one());
    }
    let identity = attached.fs.cache_of().map_err(|_| not_one())?;
    let directory = marker::path(identity.place()).to_path_buf();
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let refused = |_| Failure::new(format!("{}: it is not the directory that {shown} is the cache of", directory.display()));
    let daemon = is_of_daemon(&identity).then(|| String::from_utf8_lossy(identity.place()).into_owned());
    let cache = if daemon.is_some() {
        Cache::alone(&cx, attached.fs)
    } else {
        let through = over::below(attached.fs, image, &directory);
        let place = directory.as_os_str().as_bytes();
        let origin = through.as_ref().map_or(Origin::Directory(place), |through| Origin::Through(place, through));
        match prepare(&cx, attached.fs, &origin) {
            Err(_) if alone => Cache::alone(&cx, attached.fs),
            prepared => {
                prepared.map_err(refused)?;
                Cache::new(&cx, attached.fs, &origin, changes)
            }
        }
    };
    let cache = cache.map_err(|error| Failure::errno(shown, error.errno()))?;
    cache.give_lane_back(&thread);
    Ok(Open { attached, cache: Box::leak(Box::new(cache)), directory, daemon })
}

impl Open {
    fn status(&self, image: &Path) -> Result<Status> {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let status = Status::of(self.cache, &cx).map_err(|error| Failure::new(format!("{}: {error}", image.display())));
        self.cache.give_lane_back(&thread);
        status
    }

    fn figures(&self, image: &Path, status: &Status) -> Result<Figures> {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let waiting = Waiting::of(self.cache, &cx).map_err(|error| Failure::new(format!("{}: {error}", image.display())));
        self.cache.give_lane_back(&thread);
        let waiting = waiting?;
        let (calls, fetched) = (self.attached.fs.calls(), self.attached.fs.fetched());
        let lag = waiting.since.map_or(0, |since| (pm::clock::now() - since).max(1_000_000) / 1_000_000);
        Ok(Figures {
            dirty_names: status.names,
            dirty_files: status.files,
            dirty_bytes: waiting.bytes,
            lag_ms: lag as u64,
            rounds: status.rounds,
            written_bytes: status.written,
            calls: calls.symbols + calls.patched + calls.mount,
            fetches: fetched.questions,
            fetched_names: fetched.names,
            fetched_bytes: fetched.bytes,
        })
    }
}

fn status(image: &Path, json: bool) -> Result<u8> {
    let open = open(image)?;
    let status = open.status(image)?;
    let figures = open.figures(image, &status)?;
    let unwritten = unwritten::of(open.cache);
    open.attached.leave();
    let error = (status.error != 0).then(|| std::io::Error::from_raw_os_error(status.error).to_string());
    let shown = Shown {
        image: image.to_path_buf(),
        journal: open.daemon.is_none().then(|| journal_of(&open.directory)).flatten(),
        directory: open.directory,
        names: status.names,
        files: status.files,
        bytes: figures.dirty_bytes,
        lag_ms: figures.lag_ms,
        writer: (status.writer != 0).then_some(status.writer),
        error,
        unwritten: unwritten.iter().map(ToString::to_string).collect(),
        rounds: status.rounds,
        written: status.written,
    };
    if json {
        print_json(&shown)?;
        return Ok(0);
    }
    let mut text = format!("{} in front of {}\n", shown.image.display(), shown.directory.display());
    text += &match (shown.names, shown.files) {
        (0, 0) => "  all changes are in the directory\n".to_owned(),
        (names, files) => {
            let (bytes, seconds) = (size::show(shown.bytes), shown.lag_ms / 1000);
            format!("  not in the directory yet: {names} names, {files} files, {bytes}; the oldest change {seconds} s ago\n")
        }
    };
    text += &match shown.writer {
        Some(process) => format!("  process {process} writes back\n"),
        None => "  nobody writes back at the moment\n".to_owned(),
    };
    if let Some(error) = &shown.error {
        match &unwritten::lines(&unwritten)[..] {
            "" => text += &format!("  what was tried last failed: {error}\n"),
            lines => text += &format!("  could not be written back:{}\n", lines.replace("\n  ", "\n    ")),
        }
    }
    text += &format!("  {} rounds, {} bytes written back since it was made\n", shown.rounds, shown.written);
    print(text.as_bytes())?;
    Ok(0)
}

/// Gives up the changes of one name.
fn skip(image: &Path, path: &Path) -> Result<u8> {
    let open = open(image)?;
    let path = path.strip_prefix(&open.directory).unwrap_or(path);
    let skipped = writer::skip(open.cache, path.as_os_str().as_bytes());
    open.attached.leave();
    let shown = image.display();
    let kept = skipped.map_err(|failure| Failure::new(format!("{}: {failure}", path.display())))?;
    print(format!("{}: as the directory has it; what it was here is {shown}:{kept}\n", path.display()).as_bytes())?;
    Ok(0)
}

/// Copies what is not below to another directory.
fn export(image: &Path, target: &Path) -> Result<u8> {
    let open = open_as(image, Changes::Refused, true)?;
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let exported = writeback::export(open.cache, &cx, target).map_err(|error| Failure::new(error.to_string()));
    let removed = writeback::removed(open.cache, &cx);
    open.cache.give_lane_back(&thread);
    open.attached.leave();
    let exported = exported?;
    let mut text = format!("{}: {} files\n", target.display(), exported.written);
    for path in removed.unwrap_or_default() {
        text += &format!("  removed: {}\n", String::from_utf8_lossy(&path));
    }
    print(text.as_bytes())?;
    for path in &exported.incomplete {
        eprintln!("bypath: {}: a part of it is only in the directory, which does not give it: zeros there", path.display());
    }
    Ok(u8::from(!exported.incomplete.is_empty()))
}

fn drain(image: &Path) -> Result<u8> {
    let open = open(image)?;
    if let Some(command) = &open.daemon {
        open.attached.leave();
        return drain_by_session(image, command);
    }
    let drained = writer::drain(open.cache, image);
    open.attached.leave();
    drained.map(|()| 0)
}

/// What a cache remembers of a store that keeps attributes, behind its address.
pub const POSIX: &str = " posix";

/// How one writes what a cache is in front of, if that is no directory.
pub fn source_of(command: &str) -> String {
    let is_store = ["s3:", "objects:"].iter().any(|scheme| command.starts_with(scheme));
    if is_store { command.to_owned() } else { format!("fuse:{command}") }
}

/// What is behind a daemon is written by a session with it, which writes back as soon as it begins, and until it ends.
fn drain_by_session(image: &Path, command: &str) -> Result<u8> {
    let image = std::fs::canonicalize(image).map_err(|error| Failure::io(image.display(), &error))?;
    let source = source_of(command);
    let (source, option) = source.strip_suffix(POSIX).map_or((&source[..], ""), |source| (source.trim_end(), ",posix"));
    let mount = format!("{source}:/.bypath-drain,cache={}{option}", image.display());
    let mut session = std::process::Command::new("/proc/self/exe");
    session.args(["run", "--no-fuse", "--mount", &mount, "--", "true"]);
    let ended = session.status().map_err(|error| Failure::io("bypath run", &error))?;
    let open = open(&image)?;
    let status = open.status(&image)?;
    open.attached.leave();
    match (ended.success(), status.names + status.files) {
        (true, 0) => Ok(0),
        _ => Err(Failure::new(format!(
            "{}: {} names and {} files are not written back yet, by `bypath run --mount '{mount}'`",
            image.display(),
            status.names,
            status.files
        ))),
    }
}

/// Makes what a journal says in its directory, where the cache image is gone.
fn replay(directory: &Path, skip: bool) -> Result<u8> {
    let directory = std::fs::canonicalize(directory).map_err(|error| Failure::io(directory.display(), &error))?;
    let Some(done) = mounts_replay::replay(&directory, skip)? else {
        let what = match journal_of(&directory) {
            Some(_) => "its cache image is there: `bypath cache drain` writes it back",
            None => "no journal has changes of it",
        };
        return Err(Failure::new(format!("{}: nothing to replay: {what}", directory.display())));
    };
    for name in &done.missing {
        eprintln!("bypath: {name}: not there any more; left out");
    }
    print(format!("{}: {} names, {} bytes\n", directory.display(), done.names, done.bytes).as_bytes())?;
    Ok(0)
}

/// The journal that a trusted marker names.
fn journal_of(directory: &Path) -> Option<PathBuf> {
    marker::journal_of(directory).ok().flatten()
}

/// Whether this is a directory whose cache image is gone.
fn lost(place: &Path) -> bool {
    place.is_dir() && marker::of(place).is_ok_and(|image| image.is_some_and(|image| !Path::new(&image).exists()))
}

/// Gives up what a journal says, where the cache image is gone.
fn discard_lost(directory: &Path, yes: bool) -> Result<u8> {
    let shown = directory.display();
    if !yes {
        return Err(Failure::new(format!("{shown}: what its journal holds would be lost; with --yes it is given up")));
    }
    if let Some(journal) = journal_of(directory) {
        let _ = std::fs::remove_file(journal);
    }
    std::fs::remove_file(directory.join(marker::NAME)).map_err(|error| Failure::io(shown, &error))?;
    Ok(0)
}

/// Gives up what is not written back: the cache goes.
fn discard(image: &Path, yes: bool) -> Result<u8> {
    let open = open(image)?;
    let status = open.status(image)?;
    let shown = image.display();
    if status.writer != 0 {
        return Err(Failure::new(format!("{shown}: process {} is using it", status.writer)));
    }
    let left = status.names + status.files;
    if left != 0 && !yes {
        let (names, files) = (status.names, status.files);
        return Err(Failure::new(format!(
            "{shown}: changes of {names} names and {files} files would be lost; with --yes they are given up"
        )));
    }
    open.attached.leave();
    std::fs::remove_file(image).map_err(|error| Failure::io(shown, &error))?;
    if open.daemon.is_some() {
        let _ = std::fs::remove_file(marker::beside(image));
        return Ok(0);
    }
    let journal = journal_of(&open.directory);
    let _ = std::fs::remove_file(open.directory.join(marker::NAME));
    if let Some(journal) = journal {
        let _ = std::fs::remove_file(journal);
    }
    let park = open.directory.join(PARK);
    if park.exists() {
        eprintln!("bypath: {}: files that were on their way are left there", park.display());
    }
    Ok(0)
}
