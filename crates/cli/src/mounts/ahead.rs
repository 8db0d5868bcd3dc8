//! Lists directories ahead of programs that go through a tree for the first time.
//!
//! A program's first look at a directory brings its names, one look below for each, and it waits for every one of them.
//! While programs bring directories all the time, threads of the session list those that are still missing, from the end of
//! the tree, so that they meet. They stop as soon as programs do; where the image has become half full, since what nobody asks
//! for is to take nobody's room; and where nothing has to be waited for, since then they only take processors from programs.

use super::cache::own_cred;
use base::{Cx, Kind, Node, Thread};
use cache::Cache;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks whether anybody brings something, and while somebody does.
const LOOK: Duration = Duration::from_millis(20);
const NEXT: Duration = Duration::from_millis(3);
/// So many looks in a row must have found something new.
const TIMES: u32 = 3;
/// For so long nobody has brought anything: it is over.
const OVER: Duration = Duration::from_millis(40);
/// Threads that list.
const THREADS: usize = 3;
/// Of so many directories one is looked at for whether it has been waited for; so many in a row that were not: none is.
const SAMPLE: u32 = 4;
const QUIET: u32 = 4;
/// How long nothing is listed ahead then.
const REST: Duration = Duration::from_secs(1);

/// The thread that looks.
pub struct Ahead {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins, for a cache.
    pub fn start(cache: &'static Cache) -> Ahead {
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = ending.clone();
        let look = move || Looking { cache, ending: &is_ending, own: AtomicU64::new(0) }.run();
        Ahead { ending, thread: std::thread::Builder::new().name("ahead".into()).spawn(look).ok() }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A session that ends does not wait for the next look.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct Looking<'a> {
    cache: &'static Cache,
    ending: &'a AtomicBool,
    /// Directories that we have brought.
    own: AtomicU64,
}

/// What is still to be looked at, and what has been.
#[derive(Default)]
struct Left {
    dirs: Vec<Node>,
    seen: HashSet<u64>,
    at_work: usize,
}

impl Looking<'_> {
    /// Directories that others have brought.
    fn others(&self) -> u64 {
        self.cache.brought().wrapping_sub(self.own.load(Relaxed))
    }

    fn has_room(&self) -> bool {
        self.cache.fs().statfs().is_ok_and(|stat| stat.blocks_free > stat.blocks / 2)
    }

    fn run(&self) {
        let (mut last, mut times) = (self.others(), 0);
        while !self.ending.load(Relaxed) {
            std::thread::park_timeout(if times > 0 { NEXT } else { LOOK });
            let now = self.others();
            times = if now == last { 0 } else { times + 1 };
            last = now;
            if times >= TIMES && self.has_room() {
                if !self.list_all() {
                    self.rest();
                }
                (last, times) = (self.others(), 0);
            }
        }
    }

    fn rest(&self) {
        let begun = Instant::now();
        while begun.elapsed() < REST && !self.ending.load(Relaxed) {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Lists what is missing, as long as others go on; false if nothing of it had to be waited for.
    fn list_all(&self) -> bool {
        let left = Mutex::new(Left { dirs: vec![self.cache.tree()], ..Left::default() });
        let is_quiet = AtomicBool::new(false);
        let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(self.others()));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| self.list_some(&left, (&is_over, &is_quiet)));
            }
            let mut changed = Instant::now();
            while !is_over.load(Relaxed) {
                std::thread::sleep(NEXT);
                let now = self.others();
                if seen.swap(now, Relaxed) != now {
                    changed = Instant::now();
                }
                if changed.elapsed() > OVER || self.ending.load(Relaxed) || !self.has_room() {
                    is_over.store(true, Relaxed);
                }
            }
        });
        !is_quiet.load(Relaxed)
    }

    fn list_some(&self, left: &Mutex<Left>, (is_over, is_quiet): (&AtomicBool, &AtomicBool)) {
        let thread = Thread::new();
        let cx = Cx { cred: own_cred(), umask: 0, thread: &thread };
        let (mut count, mut quiet) = (0, 0);
        let lock = || left.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over.load(Relaxed) {
            let mut here = lock();
            let Some(dir) = here.dirs.pop() else {
                if here.at_work == 0 {
                    is_over.store(true, Relaxed);
                }
                drop(here);
                std::thread::sleep(NEXT / 10);
                continue;
            };
            here.at_work += 1;
            drop(here);
            let waits = if count % SAMPLE == 0 { waits() } else { None };
            let (is_new, inner) = self.one(&cx, dir);
            if is_new {
                count += 1;
                if waits.is_some() {
                    quiet = if waits == self::waits() { quiet + 1 } else { 0 };
                }
                if quiet >= QUIET {
                    is_quiet.store(true, Relaxed);
                    is_over.store(true, Relaxed);
                }
            }
            let mut here = lock();
            here.at_work -= 1;
            for child in inner {
                if here.seen.insert(child.id) {
                    here.dirs.push(child);
                }
            }
        }
        self.cache.give_lane_back(&thread);
    }

    /// Lists a directory, if it is not: whether it was not; the directories in it.
    fn one(&self, cx: &Cx, dir: Node) -> (bool, Vec<Node>) {
        // What may not be read, or has gone, is for whoever asks.
        let Ok(is_new) = self.cache.list_ahead(cx, dir) else { return (false, Vec::new()) };
        let mut names = Vec::new();
        let _ = self.cache.fs().readdir(cx, dir, 0, &mut |entry| {
            if entry.kind == Kind::Directory && !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            true
        });
        if is_new {
            self.own.fetch_add(names.len() as u64, Relaxed);
        }
        (is_new, names.iter().filter_map(|name| self.cache.fs().lookup(cx, dir, name).ok()).collect())
    }
}

/// How often this thread has had to wait for something: a disk, or whoever answers for a file system.
fn waits() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}
