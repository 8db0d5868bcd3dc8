//! What keeps a cache fresh: a thread of the session that looks at what others change behind it, or a process that goes on when
//! the session has ended.

use super::cache::own_cred;
use super::spec::Actimeo;
use super::watch::{TURN, Watch};
use crate::failure::{Failure, Result};
use base::{Cx, Errno, Error, Thread};
use cache::Cache;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};
use rustix::pipe::PipeFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
/// How long a session that begins waits for the process that keeps the cache fresh.
const ANSWERED: Duration = Duration::from_millis(50);
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
    pub fn start(mut keeper: Keeper) -> Server {
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
        Links { count: cache.fs().linked_count(), last: Instant::now(), took: Duration::ZERO }
    }

    /// Looks for them if there are new ones.
    fn join(&mut self, cache: &Cache, cx: &Cx, goes_on: &dyn Fn() -> bool) {
        let count = cache.fs().linked_count();
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
    image: PathBuf,
    watch: Option<Watch>,
    actimeo: Actimeo,
    /// Whether it is the one that keeps it fresh, from the start.
    is_one: bool,
    /// Whether the session that it was for has been killed.
    is_left: bool,
    /// Whether others reach the directory through this process.
    holds: bool,
    /// How long it goes on when nobody uses the image.
    lingers: Option<Duration>,
}

impl Keeper {
    /// For the cache of the directory at `place`.
    pub fn of_directory(cache: &'static Cache, image: &Path, place: &Path, actimeo: Actimeo) -> Keeper {
        let (place, image) = (Some(place.to_path_buf()), image.to_path_buf());
        Keeper { place, image, ..Keeper::of_daemon(cache, actimeo) }
    }

    /// For the cache of a daemon.
    pub fn of_daemon(cache: &'static Cache, actimeo: Actimeo) -> Keeper {
        Keeper {
            cache,
            place: None,
            image: PathBuf::new(),
            watch: None,
            actimeo,
            is_one: false,
            is_left: false,
            holds: false,
            lingers: None,
        }
    }

    /// Goes on until nobody else uses the image, or another does the same, unless others reach the directory through this
    /// process; with `lingers` until nobody has used it for so long, or a signal ends that.
    pub fn run_until_alone(&mut self, holds: bool, lingers: Option<Duration>) {
        (self.is_left, self.holds, self.lingers) = (true, holds, lingers);
        let Ok((ended, end)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else { return };
        if lingers.is_some() {
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                let Ok(end) = end.try_clone() else { return };
                let _ = signal_hook::low_level::pipe::register(signal, end);
            }
        }
        self.run(&ended, &AtomicBool::new(false));
    }

    /// Waits for an event below, at most so long; false if the session has ended.
    fn wait(&self, ended: &OwnedFd, is_one: bool) -> bool {
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
        !poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&time(UNWATCHED))).is_ok_and(|came| came > 0)
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
            self.watch = Watch::make(self.cache, &place, &self.image);
        }
        let (mut last, mut took, mut told) = (Instant::now(), Duration::ZERO, self.cache.told());
        let goes_on = || !is_ending.load(Relaxed);
        let mut links = Links::new(self.cache);
        // Another one may keep it fresh: then this one waits until that has ended.
        let mut was_one = self.is_one;
        // Since when nobody uses the image.
        let mut alone = None;
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
                self.cache.fs().set_none_compared();
            }
            let mut is_due = std::mem::take(&mut is_again);
            was_one = is_one;
            if self.is_left && (!is_one && !self.holds || self.has_lingered(&cx, &mut alone)) {
                break;
            }
            if !is_one {
                continue;
            }
            if let Some(watch) = &mut self.watch {
                is_due |= watch.look(self.cache, &cx);
                watch.cover(self.cache, &cx, &goes_on);
            }
            if !self.cache.fs().are_all_compared() && goes_on() {
                match self.watch.as_ref() {
                    Some(watch) if watch.is_behind() => {}
                    Some(watch) if watch.is_whole() => self.cache.fs().set_all_compared(),
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
                    cache.fs().set_all_compared();
                }
                if let Some(watch) = watch {
                    watch.walk_again(cache);
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

    /// Whether nobody else has used the image for as long as it is kept fresh without users; `alone`: since when.
    fn has_lingered(&self, cx: &Cx, alone: &mut Option<Instant>) -> bool {
        if !self.is_alone(cx, std::process::id()) {
            *alone = None;
            return false;
        }
        let since = *alone.get_or_insert_with(Instant::now);
        self.lingers.is_none_or(|time| since.elapsed() >= time)
    }

    /// Between rounds over all that is here.
    fn pause(&self) -> Duration {
        match self.actimeo {
            Actimeo::Seconds(seconds) => Duration::from_secs(seconds.into()),
            _ if self.watch.as_ref().is_some_and(Watch::is_whole) => TOLD_PAUSE,
            _ => PAUSE,
        }
    }

    /// Has the process that keeps the cache fresh look at all that was reported until now; where it does not answer, each node is
    /// compared when it is used first.
    fn ask(&self) {
        let (fs, begun) = (self.cache.fs(), Instant::now());
        if self.place.is_none() || !fs.are_all_compared() {
            return;
        }
        let before = fs.answers();
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let is_asked = rustix::fs::utimensat(CWD, &self.image, &times, AtFlags::empty()).is_ok();
        while is_asked && begun.elapsed() < ANSWERED {
            if fs.answers() != before {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        fs.set_none_compared();
    }

    /// Before the session's program starts: nobody has looked since the last session, unless another keeps it fresh. A node of
    /// a directory is compared when it is used first; what a daemon has is looked at now, because each look asks it. With
    /// `is_away` there is nothing to look at: the rounds to come do that.
    pub fn begin(&mut self, cx: &Cx, (was_one, is_away): (bool, bool), shown: &str) -> Result<()> {
        if self.actimeo == Actimeo::Never {
            return Ok(());
        }
        self.is_one = self.cache.serve(std::process::id());
        if !self.is_one {
            self.ask();
            return Ok(());
        }
        match was_one {
            true if self.cache.daemon().is_none() => self.cache.fs().set_none_compared(),
            true if !is_away => {
                refresh_first(self.cache, cx, shown)?;
                self.cache.fs().set_all_compared();
            }
            _ => self.cache.fs().set_all_compared(),
        }
        Ok(())
    }
}

/// Less than a second.
fn time(time: Duration) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() }
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
