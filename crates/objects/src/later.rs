//! `close=later`: small files go to the store behind the program's back, several at a time.
//!
//! A file that was closed waits in the spool, a moment at least: programs give it its name, mode and times just after, and
//! what is renamed or removed meanwhile costs the store nothing. The window is bounded; when it is full, a close uploads
//! itself, as without. What fails stays and is tried again; `fsync` of the file, and `syncfs` of all, tell of it.

use crate::contents::Contents;
use crate::nodes::{Node, lock};
use crate::tree::Tree;
use crate::upload::SMALL;
use pm::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files uploaded at a time.
pub const UPLOADS: usize = 16;
/// Most files and bytes that wait.
const FILES: usize = 512;
const BYTES: u64 = 256 << 20;
/// So long a file waits at least.
const LINGER: Duration = Duration::from_millis(20);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// So many files are named that could not be stored.
const NAMED: usize = 20;

/// Files that wait, and what has become of others.
#[derive(Default)]
pub struct Later {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Uploads under way.
    busy: usize,
    bytes: u64,
    /// Who waits for all of it.
    hurried: u32,
    has_ended: bool,
    /// How often one has failed, and how the last time.
    failures: u64,
    errno: Option<Errno>,
    /// A lost race that nobody was told of by a call.
    lost: Option<Errno>,
}

struct Waiting {
    ready: Instant,
    node: Arc<Node>,
    len: u64,
}

impl Later {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file of this length may wait.
    pub fn has_room(&self, len: u64) -> bool {
        let state = self.state();
        len <= SMALL && state.waiting.len() + state.busy < FILES && state.bytes + len <= BYTES
    }

    fn push(&self, node: Arc<Node>, len: u64, wait: Duration) {
        let mut state = self.state();
        state.bytes += len;
        let wait = if state.hurried > 0 && wait == LINGER { Duration::ZERO } else { wait };
        state.waiting.push_back(Waiting { ready: Instant::now() + wait, node, len });
        drop(state);
        self.changed.notify_all();
    }

    /// The next that is ready; `None`: it is over.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let first = (0..state.waiting.len()).min_by_key(|&at| state.waiting[at].ready);
            match first.map(|at| (at, state.waiting[at].ready)) {
                Some((at, ready)) if ready <= now => {
                    state.busy += 1;
                    return state.waiting.remove(at);
                }
                _ if state.has_ended => return None,
                Some((_, ready)) => {
                    let waited = self.changed.wait_timeout(state, ready - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn came_to(&self, len: u64, result: Result<(), Errno>) {
        let mut state = self.state();
        state.busy -= 1;
        state.bytes -= len;
        if let Err(errno) = result {
            state.failures += 1;
            state.errno = Some(errno);
            if errno == Errno::ESTALE {
                state.lost = Some(errno);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until nothing waits any more, or something fails; a lost race of before is told once.
    fn drain(&self) -> Result<(), Errno> {
        let mut state = self.state();
        let now = Instant::now();
        state.waiting.iter_mut().for_each(|waiting| waiting.ready = now);
        state.hurried += 1;
        let before = state.failures;
        self.changed.notify_all();
        while state.waiting.len() + state.busy > 0 && state.failures == before {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hurried -= 1;
        let failed = if state.failures == before { None } else { state.errno };
        match state.lost.take().or(failed) {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    /// Nothing comes any more, and what waits stays.
    pub fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }
}

impl Tree {
    /// Puts a file that was closed where it waits, unless it does already.
    pub fn put_off(&self, node: &Arc<Node>, contents: &mut Contents) {
        if let Some(later) = &self.later
            && !std::mem::replace(&mut contents.is_put_off, true)
        {
            later.push(Arc::clone(node), contents.len, LINGER);
        }
    }

    /// Whether a file that was written may go to the store later.
    pub fn may_wait(&self, contents: &Contents) -> bool {
        self.later.as_ref().is_some_and(|later| contents.is_put_off || later.has_room(contents.len))
    }

    /// Uploads what waits, until it is over.
    pub fn store_later(&self) {
        let Some(later) = &self.later else { return };
        while let Some(Waiting { node, len, .. }) = later.next() {
            let result = self.store_one(later, &node);
            later.came_to(len, result);
        }
    }

    fn store_one(&self, later: &Later, node: &Arc<Node>) -> Result<(), Errno> {
        {
            let mut contents = lock(&node.contents);
            contents.is_put_off = false;
            if contents.opens > 0 {
                // Whoever has it open closes it.
                return Ok(());
            }
        }
        match self.store_closed(node) {
            Ok(()) => Ok(()),
            Err(Errno::ESTALE) => {
                let path = lock(&node.place).path.clone();
                self.store.say(&format!("{path}: not stored: somebody else was quicker; what was written to it here is lost"));
                self.let_go(node);
                Err(Errno::ESTALE)
            }
            Err(errno) => {
                let mut contents = lock(&node.contents);
                if !std::mem::replace(&mut contents.is_put_off, true) {
                    later.push(Arc::clone(node), contents.len, AGAIN);
                }
                Err(errno)
            }
        }
    }

    fn store_closed(&self, node: &Arc<Node>) -> Result<(), Errno> {
        self.flush(node)?;
        let contents = lock(&node.contents);
        let is_done = contents.opens == 0 && !contents.is_dirty;
        drop(contents);
        if is_done {
            self.let_go(node);
        }
        Ok(())
    }

    /// All that was written is in the store, or an error says that it is not.
    pub fn sync_all(&self) -> Result<(), Errno> {
        let mut result = self.later.as_ref().map_or(Ok(()), Later::drain);
        let nodes = lock(&self.table).all();
        for node in nodes.iter().filter(|node| !node.is_dir) {
            if lock(&node.contents).is_put_off {
                // It has failed just now.
                continue;
            }
            result = result.and(self.flush(node));
        }
        result
    }

    /// The session ends: what is still being written goes to the store.
    pub fn end(&self) {
        let _ = self.sync_all();
        let mut lost = Vec::new();
        for node in lock(&self.table).all() {
            let is_gone = lock(&node.place).is_gone;
            if !is_gone && lock(&node.contents).is_dirty {
                lost.push(lock(&node.place).path.clone());
            }
        }
        for path in lost.iter().take(NAMED) {
            self.store.say(&format!("{path}: not stored"));
        }
        if lost.len() > NAMED {
            self.store.say(&format!("{} more files were not stored", lost.len() - NAMED));
        }
        if let Some(later) = &self.later {
            later.end();
        }
    }
}
