//! One request to the store: its time-out, its error as an errno, and a word to people about what no errno tells.

use crate::attempts::{Ask, Attempts};
use crate::kept::Kept;
use crate::keys::marker;
use crate::nodes::Set;
use futures::TryStreamExt;
use opendal::layers::{RetryEvent, RetryLayer, TimeoutLayer};
use opendal::{Buffer, Capability, Entry, ErrorKind, Metadata, Operator};
use pm::Errno;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// How often the same kind of failure is told of.
const QUIET: Duration = Duration::from_secs(10);
/// Objects asked at a time for their metadata.
const HEADS: usize = 32;
/// Keys copied at a time when a directory is moved.
const COPIES: usize = 16;

/// What the store says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// A directory: the rest means nothing.
    pub is_dir: bool,
    /// Bytes.
    pub size: u64,
    /// Last changed, nanoseconds since 1970, in whole seconds: what all of a store's answers have.
    pub mtime: i64,
    /// Changes with the contents.
    pub etag: Option<String>,
}

impl Meta {
    /// A directory.
    pub const DIR: Meta = Meta { is_dir: true, size: 0, mtime: 0, etag: None };

    fn of(meta: &Metadata) -> Meta {
        if meta.is_dir() {
            return Meta::DIR;
        }
        let mtime = meta.last_modified().map(SystemTime::from);
        let since = mtime.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let mtime = since.as_secs() as i64 * 1_000_000_000;
        Meta { is_dir: false, size: meta.content_length(), mtime, etag: meta.etag().map(str::to_string) }
    }

    /// Whether it is the same contents, as far as the store can tell.
    pub fn is_same(&self, other: &Meta) -> bool {
        match (&self.etag, &other.etag) {
            (Some(one), Some(two)) => one == two,
            _ => (self.size, self.mtime) == (other.size, other.mtime),
        }
    }
}

/// What has to be there for an upload to take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No such object.
    Nothing,
    /// This one.
    This(Meta),
    /// Whatever.
    Anything,
}

/// Why a store cannot be used, in a line.
pub enum Unusable {
    /// It does not answer.
    Away(String),
    /// It does not want to.
    Refused(String),
}

/// The store.
pub struct Store {
    operator: Operator,
    /// The same, of which each request is made once.
    once: Operator,
    runtime: Runtime,
    timeout: Duration,
    shown: String,
    can: Capability,
    attempts: Arc<Attempts>,
    said: Mutex<Option<(ErrorKind, Instant)>>,
}

/// Most entries of one list: what a program asks for with fewer is answered, and no store fills the memory.
const LIST_MAX: usize = 5_000_000;

/// Finds a list that begins anew: a store names each key once. One path is remembered, and another after twice as many.
#[derive(Debug, Default)]
struct Circle {
    remembered: String,
    count: u64,
}

impl Circle {
    fn comes_again(&mut self, path: &str) -> bool {
        self.count += 1;
        if self.count > 1 && self.remembered == path {
            return true;
        }
        if self.count.is_power_of_two() {
            path.clone_into(&mut self.remembered);
        }
        false
    }
}

impl Store {
    /// Opens what `address` names; nothing is asked yet.
    pub fn open(address: &str, timeout: Duration) -> Result<Store, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("threads: {error}"))?;
        let operator = crate::address::operator(address)?;
        // An answer that got lost is asked for again; all attempts together have the time-out.
        let attempt = (timeout / 3).max(Duration::from_secs(1));
        let attempts = TimeoutLayer::new().with_timeout(attempt).with_io_timeout(attempt);
        let retry = RetryLayer::new().with_jitter().with_max_times(usize::MAX >> 1);
        let retry = retry.with_min_delay(Duration::from_millis(50)).with_max_delay(Duration::from_secs(2));
        let attempts_of_all = Arc::<Attempts>::default();
        let noted = Arc::clone(&attempts_of_all);
        let retry = retry.with_notify(move |event: RetryEvent<'_>| noted.note(event.err));
        let once = operator.layer(attempts);
        let operator = once.clone().layer(retry);
        let can = operator.info().capability();
        let (attempts, said) = (attempts_of_all, Mutex::new(None));
        Ok(Store { operator, once, runtime, timeout, shown: address.to_string(), can, attempts, said })
    }

    /// Whether it can be asked at all: said before anything is mounted.
    pub fn check(&self) -> Result<(), Unusable> {
        let first = async {
            let mut lister = self.operator.lister_with("/").limit(1).await?;
            lister.try_next().await
        };
        let asked = self.attempts.ask(Ask::First, first);
        let answer = self.runtime.block_on(async { tokio::time::timeout(self.timeout, asked).await });
        match answer {
            Ok(Some(Ok(_))) => Ok(()),
            Ok(Some(Err(error))) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(Some(Err(error))) => Err(Unusable::Refused(format!("{}: {}", self.shown, shown(&error)))),
            Ok(None) => Err(self.away(format!("cannot be reached{}; check the address and the network", self.attempts.why()))),
            Err(_) => Err(self.away(self.overdue())),
        }
    }

    fn away(&self, why: String) -> Unusable {
        self.attempts.overdue();
        Unusable::Away(format!("{}: {why}", self.shown))
    }

    /// What is said when the time of a request is over.
    fn overdue(&self) -> String {
        format!("no answer within {} s{}", self.timeout.as_secs(), self.attempts.why())
    }

    /// Waits for an answer, no longer than the time-out; `None` says why there is none.
    async fn answer<T>(&self, how: Ask, (what, key): (&str, &str), request: impl Future<Output = T>) -> Option<T> {
        let answer = tokio::time::timeout(self.timeout, self.attempts.ask(how, request)).await;
        let why = match answer {
            Ok(Some(answer)) => return Some(answer),
            Ok(None) => format!("the store is out of reach{}", self.attempts.why()),
            Err(_) => self.overdue(),
        };
        self.attempts.overdue();
        self.say_once(ErrorKind::Unexpected, || format!("{what} {key}: {why}"));
        None
    }

    /// Whether a PUT that expects something is refused by the store itself.
    pub fn is_conditional(&self) -> bool {
        self.can.write_with_if_match && self.can.write_with_if_not_exists
    }

    /// Whether it copies parts of objects into an upload, of a version that is named.
    pub fn copies_parts(&self) -> bool {
        self.can.write_can_copy_from && self.can.read_with_if_match
    }

    /// The threads on which the store is asked.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A person is told why a call fails where the errno does not say it.
    pub fn say(&self, what: &str) {
        eprintln!("bypath: {}: {what}", self.shown);
    }

    fn failed(&self, what: &str, key: &str, error: &opendal::Error) -> Errno {
        let kind = error.kind();
        let errno = match kind {
            ErrorKind::NotFound => Errno::ENOENT,
            ErrorKind::ConditionNotMatch | ErrorKind::Conflict => Errno::ESTALE,
            ErrorKind::PermissionDenied => Errno::EACCES,
            ErrorKind::AlreadyExists => Errno::EEXIST,
            ErrorKind::IsADirectory => Errno::EISDIR,
            ErrorKind::NotADirectory => Errno::ENOTDIR,
            ErrorKind::Unsupported => Errno::EOPNOTSUPP,
            _ => Errno::EIO,
        };
        if errno == Errno::EIO || errno == Errno::EACCES {
            self.say_once(kind, || format!("{what} {key}: {}", shown(error)));
        }
        errno
    }

    fn say_once(&self, kind: ErrorKind, what: impl FnOnce() -> String) {
        let Ok(mut said) = self.said.lock() else { return };
        if said.is_none_or(|(last, when)| last != kind || when.elapsed() > QUIET) {
            *said = Some((kind, Instant::now()));
            self.say(&what());
        }
    }

    /// Waits for an answer, no longer than the time-out.
    pub fn wait<T>(&self, what: &str, key: &str, answer: impl Future<Output = opendal::Result<T>>) -> Result<T, Errno> {
        self.wait_as(Ask::Again, what, key, answer)
    }

    /// As `wait`, for what begins a request and may be answered without the store.
    pub fn prepare<T>(&self, what: &str, key: &str, answer: impl Future<Output = opendal::Result<T>>) -> Result<T, Errno> {
        self.wait_as(Ask::Prepare, what, key, answer)
    }

    fn wait_as<T>(&self, how: Ask, what: &str, key: &str, answer: impl Future<Output = opendal::Result<T>>) -> Result<T, Errno> {
        match self.runtime.block_on(self.answer(how, (what, key), answer)) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(self.failed(what, key, &error)),
            None => Err(Errno::EIO),
        }
    }

    /// The object at `path`.
    pub fn stat(&self, path: &str) -> Result<Meta, Errno> {
        self.wait("HEAD", path, self.operator.stat(path)).map(|meta| Meta::of(&meta))
    }

    /// Whether metadata of one's own can be sent with an object.
    pub fn keeps_metadata(&self) -> bool {
        self.can.write_with_user_metadata
    }

    /// The object at `path`, and what its metadata says.
    pub fn kept(&self, path: &str) -> Result<(Meta, Set), Errno> {
        self.wait("HEAD", path, self.operator.stat(path)).map(|meta| kept_in(&meta))
    }

    /// The same of many, of those that are there.
    pub fn kept_of_all(&self, paths: Vec<String>) -> Result<Vec<(String, Meta, Set)>, Errno> {
        let mut all = Vec::with_capacity(paths.len());
        for some in paths.chunks(HEADS) {
            let asked = some.iter().map(|path| async move { Ok((path, self.operator.stat(path).await)) });
            for (path, found) in self.wait("HEAD", &some[0], futures::future::try_join_all(asked))? {
                match found {
                    Ok(meta) => {
                        let (meta, set) = kept_in(&meta);
                        all.push((path.clone(), meta, set));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(self.failed("HEAD", path, &error)),
                }
            }
        }
        Ok(all)
    }

    /// The object at `path`, or else the directory.
    pub fn find(&self, path: &str) -> Result<Meta, Errno> {
        let marker = marker(path);
        let asked = async { futures::join!(self.operator.stat(path), self.first(&marker)) };
        let asked = async { Ok(asked.await) };
        let (object, below) = self.wait("HEAD", path, asked)?;
        if below.map_err(|error| self.failed("LIST", path, &error))?.is_some() {
            return Ok(Meta::DIR);
        }
        object.map(|meta| Meta::of(&meta)).map_err(|error| self.failed("HEAD", path, &error))
    }

    async fn first(&self, prefix: &str) -> opendal::Result<Option<Entry>> {
        let mut lister = match self.operator.lister_with(prefix).limit(1).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            lister => lister?,
        };
        match lister.try_next().await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            first => first,
        }
    }

    /// What lies in a directory, of which `most` entries are asked for; with `recursive`, all below it.
    pub fn list(&self, directory: &str, most: usize, recursive: bool) -> Result<(Vec<(String, Meta)>, bool), Errno> {
        const PAGE: usize = 1000;
        let prefix = marker(directory);
        let limit = most.min(PAGE);
        let lister = self.operator.lister_with(&prefix).limit(limit).recursive(recursive);
        let mut lister = match self.prepare("LIST", &prefix, async { lister.await }) {
            Err(Errno::ENOENT) => return Ok((Vec::new(), true)),
            lister => lister?,
        };
        let mut entries = Vec::new();
        let mut circle = Circle::default();
        loop {
            // A page at most, so the time-out is that of a page.
            let next = match self.wait("LIST", &prefix, lister.try_next()) {
                Err(Errno::ENOENT) => None,
                next => next?,
            };
            let Some(entry) = next else { return Ok((entries, true)) };
            let (path, meta) = entry.into_parts();
            if circle.comes_again(&path) || entries.len() >= LIST_MAX {
                self.say_once(ErrorKind::Unexpected, || format!("LIST {prefix}: the list has no end"));
                return Err(Errno::EIO);
            }
            entries.push((path, Meta::of(&meta)));
            if entries.len() > most {
                return Ok((entries, false));
            }
        }
    }

    /// A range, asked for until it comes. Anew each time: the layer that asks again goes on where an answer was broken off,
    /// and ends the process where a store has sent more than was asked for.
    async fn read_again(&self, path: &str, range: std::ops::Range<u64>, etag: Option<&str>) -> opendal::Result<Buffer> {
        let mut pause = Duration::from_millis(50);
        loop {
            let read = self.once.read_with(path).range(range.clone());
            let read = if let Some(etag) = etag { read.if_match(etag) } else { read };
            match read.await {
                Err(error) if error.is_temporary() => {
                    self.attempts.note(&error);
                    tokio::time::sleep(pause).await;
                }
                read => return read,
            }
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// `len` bytes from `from` on, of the version that `meta` tells of: all of them, or an error.
    pub async fn read(&self, path: &str, meta: &Meta, from: u64, len: u64) -> Result<Buffer, Errno> {
        let etag = meta.etag.as_deref().filter(|_| self.can.read_with_if_match);
        let read = self.read_again(path, from..from + len, etag);
        let buffer = match self.answer(Ask::Again, ("GET", path), read).await {
            Some(Ok(buffer)) => buffer,
            // Gone, or no longer so long: not the file that was opened.
            Some(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::RangeNotSatisfied) => {
                return Err(Errno::ESTALE);
            }
            Some(Err(error)) => return Err(self.failed("GET", path, &error)),
            None => return Err(Errno::EIO),
        };
        if buffer.len() as u64 != len {
            self.say_once(ErrorKind::Unexpected, || format!("GET {path}: {} bytes instead of {len}", buffer.len()));
            return Err(Errno::EIO);
        }
        Ok(buffer)
    }

    /// Options of an upload that expects something, and has metadata with it.
    pub fn expecting(&self, expected: &Expected, kept: Option<Kept>) -> opendal::options::WriteOptions {
        let mut options = opendal::options::WriteOptions { user_metadata: kept, ..Default::default() };
        match expected {
            Expected::Nothing => options.if_not_exists = self.can.write_with_if_not_exists,
            Expected::This(meta) if self.can.write_with_if_match => options.if_match.clone_from(&meta.etag),
            _ => {}
        }
        options
    }

    /// The operator, for uploads.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// What an upload's answer says, with what it leaves out.
    pub fn stored(&self, path: &str, answer: &Metadata, size: u64) -> Result<Meta, Errno> {
        if answer.etag().is_none() {
            return self.stat(path);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Meta { is_dir: false, size, mtime: now.as_secs() as i64 * 1_000_000_000, etag: answer.etag().map(str::to_string) })
    }

    /// Makes a directory's marker.
    pub fn mark(&self, directory: &str) -> Result<(), Errno> {
        let key = marker(directory);
        self.wait("PUT", &key, self.operator.create_dir(&key))
    }

    /// Removes an object or a marker.
    pub fn delete(&self, key: &str) -> Result<(), Errno> {
        self.wait("DELETE", key, self.operator.delete(key))
    }

    /// Copies an object within the store.
    pub fn copy(&self, from: &str, to: &str, only_new: bool) -> Result<(), Errno> {
        if !self.can.copy {
            return self.wait("COPY", from, self.copy_through(from, to));
        }
        let if_not_exists = only_new && self.can.copy_with_if_not_exists;
        let options = opendal::options::CopyOptions { if_not_exists, ..Default::default() };
        self.wait("COPY", from, self.operator.copy_options(from, to, options)).map(drop)
    }

    /// A copy by way of this process, where the store makes none.
    async fn copy_through(&self, from: &str, to: &str) -> opendal::Result<()> {
        let bytes = self.operator.read(from).await?;
        self.operator.write(to, bytes).await.map(drop)
    }

    /// Copies many, markers too; the first failure ends it.
    pub fn copy_all(&self, pairs: Vec<(String, String)>) -> Result<(), Errno> {
        for some in pairs.chunks(COPIES) {
            let copies = some.iter().map(|(from, to)| async move {
                match to.ends_with('/') {
                    true => self.operator.create_dir(to).await,
                    false if self.can.copy => self.operator.copy(from, to).await.map(drop),
                    false => self.copy_through(from, to).await,
                }
            });
            self.wait("COPY", &some[0].0, futures::future::try_join_all(copies))?;
        }
        Ok(())
    }

    /// Deletes many.
    pub fn delete_all(&self, keys: Vec<String>) -> Result<(), Errno> {
        const AT_ONCE: usize = 1000;
        for some in keys.chunks(AT_ONCE) {
            self.wait("DELETE", &some[0], self.operator.delete_iter(some.iter().cloned()))?;
        }
        Ok(())
    }
}

fn kept_in(meta: &Metadata) -> (Meta, Set) {
    let set = meta.user_metadata().map(|all| crate::kept::read(all.into_iter())).unwrap_or_default();
    (Meta::of(meta), set)
}

/// An error in one line.
pub fn shown(error: &opendal::Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => format!("{}: {source}", error.message()),
        None => error.message().to_string(),
    };
    let mut text = text.replace('\n', " ");
    if text.len() > 300 {
        let end = (0..=300).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    if text.is_empty() { error.kind().to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: contents are told apart by their tag, and by size and time where there is none.
    #[test]
    fn versions() {
        let meta = |size, etag: Option<&str>| Meta { is_dir: false, size, mtime: 7, etag: etag.map(str::to_string) };
        assert!(meta(1, Some("a")).is_same(&meta(2, Some("a"))));
        assert!(!meta(1, Some("a")).is_same(&meta(1, Some("b"))));
        assert!(meta(1, None).is_same(&meta(1, Some("b"))));
        assert!(!meta(1, None).is_same(&meta(2, None)));
    }

    /// Goal: a list that begins anew is found, wherever it does and however long the circle is, and any other is none.
    #[test]
    fn circles() {
        for (before, len) in [(0, 1), (0, 7), (5, 1), (13, 100), (1000, 3)] {
            let mut circle = Circle::default();
            let path = |at: usize| format!("{}", if at < before { at } else { before + (at - before) % len });
            let found = (0..10_000).find(|at| circle.comes_again(&path(*at)));
            assert!(found.is_some_and(|at| at >= before + len && at <= 4 * (before + len) + 2), "{before} {len}: {found:?}");
        }
        let mut circle = Circle::default();
        assert!(!(0..10_000).any(|at| circle.comes_again(&at.to_string())));
    }
}
