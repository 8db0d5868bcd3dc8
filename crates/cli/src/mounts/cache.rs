//! A directory, or a daemon, behind a cache image.

use super::Session;
use super::ahead::Ahead;
use super::daemon::Daemon;
use super::over;
use super::point::Under;
use super::spare::Spare;
use super::spec::{Actimeo, CacheImage, JOURNAL_SIZE, Mount};
use super::watch::{TURN, Watch};
use super::writer::Writing;
use crate::attach::{self, How};
use crate::cmd::cache::figures;
use crate::cmd::cache::source_of;
use crate::cmd::mount::SessionMount;
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Errno, Error, Thread};
use cache::{Cache, Changes, Mismatch, Origin, is_of_daemon, prepare};
use engine::Fs;
use engine::mkfs::{self, MkfsError, Options};
use fuse_client::FuseClient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfs::Backend;
use vfs::cached::Cached;

/// How often the server looks whether a directory has come, and whether it is still the one.
const LOOK: Duration = Duration::from_millis(50);
/// The same while something waits for a round.
const ROUND_LOOK: Duration = Duration::from_millis(20);
/// How long after an event others are waited for, to be looked at together.
const BUNCH: Duration = Duration::from_millis(5);
/// The stack of the thread that goes through the tree, which has some kilobytes for each of up to 512 levels; bytes.
const STACK: usize = 16 << 20;
/// How long after a session has begun its server begins to watch: the kernel takes some 20 ms to end the watches of a process,
/// for which a session that is over by then would wait. Programs compare what they use themselves meanwhile.
const UNWATCHED: Duration = Duration::from_millis(40);
/// How often one looks whether another has ended that keeps the same cache fresh.
const AGAIN: Duration = Duration::from_millis(500);
/// Between rounds where nobody tells of changes.
const PAUSE: Duration = Duration::from_secs(5);
/// Between rounds where the kernel tells: of stores into mappings, and of changes by names elsewhere, it does not.
const TOLD_PAUSE: Duration = Duration::from_secs(60);
/// So many times as long as a round took the server rests at least.
const REST: u32 = 9;

/// Who keeps a cache fresh; ends when it is dropped.
pub struct Server {
    /// The other end of what the thread waits at: closed, it wakes the thread.
    end: Option<OwnedFd>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Server {
    fn start(mut keeper: Keeper) -> Server {
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = ending.clone();
        let Ok((ended, end)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else {
            return Server { end: None, ending, thread: None };
        };
        let run = move || keeper.run(&ended, &is_ending);
        Server {
            end: Some(end),
            ending,
            thread: std::thread::Builder::new().name("cache".into()).stack_size(STACK).spawn(run).ok(),
        }
    }
}

/// When files with several names have been looked for that are several nodes here.
struct Links {
    count: u32,
    last: Instant,
    took: Duration,
}

impl Links {
    fn new(cache: &Cache) -> Links {
        Links { count: cache.linked_count(), last: Instant::now(), took: Duration::ZERO }
    }

    /// Looks for them if there are new ones.
    fn join(&mut self, cache: &Cache, cx: &Cx, goes_on: &dyn Fn() -> bool) {
        let count = cache.linked_count();
        if count == self.count || self.last.elapsed() < self.took * REST {
            return;
        }
        let begun = Instant::now();
        if cache.join_all(cx, goes_on).unwrap_or(true) {
            self.count = count;
        }
        (self.last, self.took) = (Instant::now(), begun.elapsed());
    }
}

/// What the server works with.
pub struct Keeper {
    cache: &'static Cache,
    /// The directory whose changes the kernel may tell of.
    place: Option<PathBuf>,
    watch: Option<Watch>,
    actimeo: Actimeo,
    /// Whether it is the one that keeps it fresh, from the start.
    is_one: bool,
    /// Whether the session that it was for has been killed.
    is_left: bool,
    /// Whether others reach the directory through this process.
    holds: bool,
}

impl Keeper {
    /// For the cache of the directory at `place`.
    pub fn of_directory(cache: &'static Cache, place: &Path, actimeo: Actimeo) -> Keeper {
        Keeper { place: Some(place.to_path_buf()), ..Keeper::of_daemon(cache, actimeo) }
    }

    /// For the cache of a daemon.
    fn of_daemon(cache: &'static Cache, actimeo: Actimeo) -> Keeper {
        Keeper { cache, place: None, watch: None, actimeo, is_one: false, is_left: false, holds: false }
    }

    /// Goes on until nobody else uses the image, or another does the same, unless others reach the directory through this
    /// process.
    pub fn run_until_alone(&mut self, holds: bool) {
        (self.is_left, self.holds) = (true, holds);
        if let Ok((ended, _end)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
            self.run(&ended, &AtomicBool::new(false));
        }
    }

    /// Waits for an event below, at most so long; false if the session has ended.
    fn wait(&self, ended: &OwnedFd, is_one: bool) -> bool {
        let time = |time: Duration| Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let is_over = |fds: &[PollFd]| !fds[0].revents().is_empty();
        let mut fds = vec![PollFd::new(ended, PollFlags::IN)];
        if let Some(watch) = self.watch.as_ref().filter(|_| is_one) {
            fds.push(PollFd::from_borrowed_fd(watch.events(), PollFlags::IN));
        }
        let came = poll(&mut fds, Some(&time(self.limit(is_one))));
        // Events come in bunches.
        if came.is_ok_and(|came| came > 0) && !is_over(&fds) {
            fds.truncate(1);
            let _ = poll(&mut fds, Some(&time(BUNCH)));
        }
        !is_over(&fds)
    }

    /// Lets a session that is over soon end; false if it has.
    fn rest(&self, ended: &OwnedFd) -> bool {
        let time = Timespec { tv_sec: 0, tv_nsec: UNWATCHED.subsec_nanos().into() };
        !poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&time)).is_ok_and(|came| came > 0)
    }

    /// How long the server waits for an event before it looks at its other duties.
    fn limit(&self, is_one: bool) -> Duration {
        match &self.watch {
            Some(watch) if is_one && watch.is_behind() => Duration::ZERO,
            Some(watch) if is_one && watch.waits() => ROUND_LOOK,
            _ if is_one || self.cache.keeps_locks() => LOOK,
            _ => AGAIN,
        }
    }

    fn run(&mut self, ended: &OwnedFd, is_ending: &AtomicBool) {
        let (thread, pid) = (Thread::new(), std::process::id());
        let cx = Cx { cred: own_cred(), umask: 0, thread: &thread };
        if let Some(place) = self.place.take() {
            if !self.is_left && !self.rest(ended) {
                self.cache.end_service(pid);
                return;
            }
            self.watch = Watch::make(&place);
        }
        let (mut last, mut took, mut told) = (Instant::now(), Duration::ZERO, self.cache.told());
        let goes_on = || !is_ending.load(Relaxed);
        let mut links = Links::new(self.cache);
        // Another one may keep it fresh: then this one waits until that has ended.
        let mut was_one = self.is_one;
        // Events were lost while all was looked at.
        let mut is_again = false;
        while self.wait(ended, was_one) {
            self.cache.keep_leases(&cx);
            if self.actimeo == Actimeo::Never {
                continue;
            }
            let is_one = self.cache.serve(pid);
            if is_one && !was_one {
                // Since the last one has ended nobody has looked.
                self.cache.set_none_compared();
            }
            let mut is_due = std::mem::take(&mut is_again);
            was_one = is_one;
            if self.is_left && (!is_one && !self.holds || self.is_alone(&cx, pid)) {
                break;
            }
            if !is_one {
                continue;
            }
            if let Some(watch) = &mut self.watch {
                is_due |= watch.look(self.cache, &cx);
                watch.cover(self.cache, &cx, &goes_on);
            }
            if !self.cache.are_all_compared() && goes_on() {
                match self.watch.as_ref() {
                    Some(watch) if watch.is_behind() => {}
                    Some(watch) if watch.is_whole() => self.cache.set_all_compared(),
                    _ => is_due = true,
                }
            }
            links.join(self.cache, &cx, &goes_on);
            is_due |= last.elapsed() >= self.pause().max(took * REST) || self.cache.told() != told;
            if is_due {
                let begun = Instant::now();
                told = self.cache.told();
                let (cache, watch, mut looked) = (self.cache, &mut self.watch, begun);
                // What fails now is looked at again.
                let looked_at = cache.refresh(&cx, &mut || {
                    if let Some(watch) = watch.as_mut().filter(|_| looked.elapsed() > TURN) {
                        is_again |= watch.look(cache, &cx);
                        looked = Instant::now();
                    }
                    goes_on()
                });
                if looked_at.is_ok() && goes_on() {
                    cache.set_all_compared();
                }
                if let Some(watch) = watch {
                    watch.walk_again();
                }
                (last, took) = (Instant::now(), begun.elapsed());
            }
        }
        self.cache.end_service(pid);
        self.cache.give_lane_back(&thread);
    }

    /// Whether nobody else uses the image, but the server of its kernel mount, which waits for the same.
    fn is_alone(&self, cx: &Cx, pid: u32) -> bool {
        let fs = self.cache.fs();
        let is_left = |server: u32| fs.living().all(|user| user == pid || user == server);
        self.cache.is_alone(pid) || self.holds && fs.server(cx).is_some_and(is_left)
    }

    /// Between rounds over all that is here.
    fn pause(&self) -> Duration {
        match self.actimeo {
            Actimeo::Seconds(seconds) => Duration::from_secs(seconds.into()),
            _ if self.watch.as_ref().is_some_and(Watch::is_whole) => TOLD_PAUSE,
            _ => PAUSE,
        }
    }

    /// Before the session's program starts: nobody has looked since the last session, unless another keeps it fresh. A node of
    /// a directory is compared when it is used first; what a daemon has is looked at now, because each look asks it. With
    /// `is_away` there is nothing to look at: the rounds to come do that.
    fn begin(&mut self, cx: &Cx, (was_one, is_away): (bool, bool), shown: &str) -> Result<()> {
        if self.actimeo == Actimeo::Never {
            return Ok(());
        }
        self.is_one = self.cache.serve(std::process::id());
        if !self.is_one {
            return Ok(());
        }
        match was_one {
            true if self.cache.daemon().is_none() => self.cache.set_none_compared(),
            true if !is_away => {
                refresh_first(self.cache, cx, shown)?;
                self.cache.set_all_compared();
            }
            _ => self.cache.set_all_compared(),
        }
        Ok(())
    }
}

/// Another cache of the directory is mounted over it: what is below can't be reached.
fn refuse_another(place: &Path) -> Result<()> {
    match over::image_at(place).filter(|there| figures(there).is_some()) {
        None => Ok(()),
        Some(there) => {
            let (place, there) = (place.display(), there.display());
            Err(Failure::new(format!(
                "{place}: a session, or a program that has gone on after one, has it behind the cache {there}: join with \
                 cache={there}, or wait until they have ended"
            )))
        }
    }
}

impl Session {
    /// Mounts the directory at `lower` behind its cache image; `shows`: the kernel is to show it too, and how the mount
    /// point is.
    pub(super) fn make_cache_of_directory(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        lower: &Path,
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let place = lower.as_os_str().as_bytes();
        self.make_cache(mount, image, (Origin::Directory(place), place), slot, shows)
    }

    /// Mounts a daemon behind its cache image: `started` are its command, and by what programs reach it, which the kernel's
    /// server is too.
    pub(super) fn make_cache_of_daemon(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        daemon: &'static Cached<FuseClient>,
        started: (&[OsString], &[u8]),
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let command = started.0.join(OsStr::new(" "));
        self.make_cache(mount, image, (Origin::Daemon(daemon, command.as_bytes()), started.1), slot, shows)
    }

    /// Mounts what is behind a cache image, which is made if it is missing.
    #[inline(never)]
    fn make_cache(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        (mut origin, mut source): (Origin, &[u8]),
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let shown = image.path.display().to_string();
        let thread = Thread::new();
        let cx = Cx { cred: own_cred(), umask: 0, thread: &thread };
        if let (Origin::Directory(place), false) = (&origin, mount.options.read_only) {
            super::replay::if_lost(Path::new(OsStr::from_bytes(place)))?;
        }
        let below = mount.source.shown();
        if let (Origin::Directory(place), false) = (&origin, image.path.exists()) {
            // Before an image is made that nobody could use.
            std::fs::read_dir(OsStr::from_bytes(place)).map_err(|error| Failure::io(&below, &error))?;
        }
        make_if_missing(image)?;
        let attached = attach::attach_as(&image.path, How { slot, ..How::default() })?;
        self.images.push(attached);
        if !attached.fs.is_cache() {
            return Err(Failure::new(format!(
                "{shown}: it is an image of its own, and no cache; choose a name that is not there yet: the cache is made"
            )));
        }
        // Where another session has it mounted over the directory, that is reached as that session does.
        let joined = match origin {
            Origin::Directory(place) => over::below(attached.fs, &image.path, over::path(place)),
            _ => None,
        };
        match (origin, &joined) {
            (Origin::Directory(place), Some(through)) => (origin, source) = (Origin::Through(place, through), through),
            (Origin::Directory(place), None) => refuse_another(over::path(place))?,
            _ => {}
        }
        let is_away = matches!(origin, Origin::Daemon(..)) && self.daemons.last().is_some_and(Daemon::is_away);
        if is_away && attached.fs.cache_of().is_err() {
            return Err(Failure::new(format!("{below}: it does not answer, and {shown} has nothing of it yet; try again later")));
        }
        let was_one = prepare(&cx, attached.fs, &origin).map_err(|mismatch| refused(&shown, &below, attached.fs, mismatch))?;
        let changes = changes(mount, &origin);
        let journal = journal(mount, &origin);
        let held = match (origin, shows) {
            (Origin::Directory(place), Some(Under::Same)) if over::is_free(over::path(place), &image.path, journal.as_ref()) => {
                let directory = over::open(over::path(place));
                directory.and_then(|it| Spare::hold(&image.path, it, mount.options.actimeo, changes != Changes::Refused))
            }
            _ => None,
        };
        let through = held.as_ref().map(Spare::through);
        if let (Origin::Directory(place), Some(through)) = (origin, &through) {
            (origin, source) = (Origin::Through(place, through), through);
        }
        let has_spare = held.is_some();
        self.spares.extend(held);
        let cache = Cache::new(&cx, attached.fs, &origin, changes).map_err(|error| Failure::errno(&shown, error.errno()))?;
        let cache: &'static Cache = Box::leak(Box::new(cache));
        let point = mount.shown_point();
        let is_directory = !matches!(origin, Origin::Daemon(..));
        if changes != Changes::Refused || is_directory && has_left(cache, &cx) {
            self.writers.push(Writing::start(cache, &image.path, &point, (journal, mount.options.conflict))?);
        }
        self.ahead.push(Ahead::start(cache));
        if mount.options.actimeo != Actimeo::Never || cache.keeps_locks() {
            let actimeo = mount.options.actimeo;
            let mut keeper = match origin {
                Origin::Directory(place) | Origin::Through(_, place) => {
                    let place = over::path(place);
                    // Another session's holds it.
                    if !has_spare && joined.is_none() {
                        self.spares.extend(Spare::start(&image.path, place, actimeo, changes != Changes::Refused));
                    }
                    Keeper::of_directory(cache, place, actimeo)
                }
                // It ends with the session, however that ends.
                Origin::Daemon(..) => Keeper::of_daemon(cache, actimeo),
            };
            keeper.begin(&cx, (was_one, is_away), &shown)?;
            self.servers.push(Server::start(keeper));
        }
        if mount.options.actimeo == Actimeo::Never && cache.is_alone(std::process::id()) {
            // What is here is taken as it is.
            cache.set_all_compared();
        }
        cache.give_lane_back(&thread);
        let is_refused = changes == Changes::Refused && !mount.options.read_only;
        if is_refused {
            eprintln!("bypath: {point}: this directory can't be written: changes are refused (EROFS)");
        }
        let path = image.path.as_os_str().as_bytes();
        let whole = [format!("cache:{}:", path.len()).as_bytes(), path, b":", source].concat();
        let sync = match (mount.options.sync_image, mount.options.sync_journal) {
            (true, _) => "sync=image",
            (false, true) => "sync=journal",
            (false, false) => "",
        };
        let refused = if is_refused { "ro" } else { "" };
        self.tell(mount, &whole, &[&super::id(path), sync, refused]);
        if let (Some(there), None) = (shows, &joined) {
            self.show_cache(mount, image, (source, there), changes);
        }
        Ok(cache)
    }

    /// The kernel's way to a cache whose directory, or daemon, is reached at `below`; `there`: what is at the mount point.
    fn show_cache(&mut self, mount: &Mount, image: &CacheImage, (below, there): (&[u8], Under), changes: Changes) {
        let point = over::path(&mount.point);
        let may = match there {
            Under::Empty | Under::Stale => true,
            Under::Same => below.starts_with(b"/proc/"),
            Under::Nothing | Under::Shared => false,
        };
        let sync = match changes {
            Changes::Image => "image",
            Changes::Journal => "journal",
            Changes::Backend | Changes::Refused => "backend",
        };
        let (how, text) = (attach::How { read_only: changes == Changes::Refused, ..How::default() }, over::text(below));
        let shown = may.then(|| SessionMount::start_cache(&image.path, point, how, (&text, sync))).flatten();
        match shown {
            Some(kernel) => {
                if there == Under::Same {
                    over::say_who_is_inside(point, &mount.shown_point());
                    self.covered.push(point.to_path_buf());
                }
                self.over.push(kernel);
            }
            None if there == Under::Shared => {}
            None => {
                self.guard(mount, there);
                super::say_no_mount(mount, there, false);
            }
        }
    }
}

/// Where the journal of a mount lies, if it has one.
fn journal(mount: &Mount, origin: &Origin) -> Option<CacheImage> {
    let (Origin::Directory(place) | Origin::Through(place, _), true) = (origin, mount.options.sync_journal) else { return None };
    let beside = || writeback::journal::beside(Path::new(OsStr::from_bytes(place)));
    Some(mount.options.journal.clone().unwrap_or_else(|| CacheImage { path: beside(), size: JOURNAL_SIZE }))
}

/// What becomes of changes in a mount.
fn changes(mount: &Mount, origin: &Origin) -> Changes {
    let may_write = match *origin {
        Origin::Directory(place) | Origin::Through(_, place) => {
            let want = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            rustix::fs::access(OsStr::from_bytes(place), want).is_ok()
        }
        // What it refuses is told when it is written back.
        Origin::Daemon(..) => true,
    };
    match (mount.options.read_only || !may_write, mount.options.sync_image) {
        (true, _) => Changes::Refused,
        (false, true) => Changes::Image,
        (false, false) if mount.options.sync_journal => Changes::Journal,
        (false, false) => Changes::Backend,
    }
}

/// Whether a session before has left changes that are not below.
fn has_left(cache: &Cache, cx: &Cx) -> bool {
    writeback::Status::of(cache, cx).is_ok_and(|status| status.names + status.files != 0)
}

/// In whose name the session itself asks.
pub fn own_cred() -> Cred<'static> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, privileged: uid == 0, ..Cred::ROOT }
}

/// Refuses a cache that is to be used as an image with files of its own.
pub fn refuse_alone(fs: &Fs, path: &Path) -> Result<()> {
    if !fs.is_cache() {
        return Ok(());
    }
    let (shown, origin) = (path.display(), origin_of(fs));
    Err(Failure::new(format!("{shown}: it is a cache; mount it by `bypath run` as {origin}:/dir,cache={shown}")))
}

/// What an image is the cache of, as one writes it.
pub fn origin_of(fs: &Fs) -> String {
    match fs.cache_of() {
        Err(_) => "another directory".into(),
        Ok(of) => {
            let place = String::from_utf8_lossy(of.place()).into_owned();
            if is_of_daemon(&of) { format!("'{}'", source_of(&place)) } else { format!("host:{place}") }
        }
    }
}

fn refused(shown: &str, below: &str, fs: &Fs, mismatch: Mismatch) -> Failure {
    match mismatch {
        Mismatch::Another => Failure::new(format!(
            "{shown}: it is the cache of {} as that was when it was made; remove it, or choose another image",
            origin_of(fs)
        )),
        Mismatch::Files => Failure::new(format!("{shown}: image is not empty; remove it, or choose another name")),
        // What the image itself can fail with; everything else is of what it is to be the cache of.
        Mismatch::Failed(error @ Error::Corrupt { .. }) => Failure::engine(shown, error),
        Mismatch::Failed(Error::Posix(errno @ (Errno::ENOSPC | Errno::EROFS))) => Failure::errno(shown, errno),
        Mismatch::Failed(error) => Failure::errno(below, error.errno()),
    }
}

fn refresh_first(cache: &Cache, cx: &Cx, shown: &str) -> Result<()> {
    match cache.refresh(cx, &mut || true) {
        Err(Error::Posix(Errno::ENOSPC)) => {
            Err(Failure::new(format!("{shown}: the cache is full; remove it, or make a larger one")))
        }
        Err(error) => Err(Failure::errno(format!("{shown}: looking at what has changed"), error.errno())),
        Ok(_) => Ok(()),
    }
}

fn make_if_missing(image: &CacheImage) -> Result<()> {
    let shown = image.path.display();
    let text = [image.path.as_os_str().as_bytes(), b"\0"].concat();
    let options = Options { limit: image.size, features: format::Features::CACHE, mode: 0o700, ..Options::default() };
    match mkfs::make(&text, &options) {
        Ok(()) | Err(MkfsError::NotEmpty) => Ok(()),
        Err(MkfsError::File(errno)) => Err(Failure::errno(shown, errno)),
        Err(error) => Err(Failure::new(format!("{shown}: {error}"))),
    }
}
