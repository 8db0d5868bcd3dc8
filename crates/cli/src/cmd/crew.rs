//! A second thread that clones parts of a tree.

use base::{Cred, Cx, Thread};
use engine::Fs;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use vfs::Backend;
use vfs::tree::crew::{Crew, Part, Share};
use vfs::tree::{Failed, Tally, Trees};

/// So many parts wait for somebody: enough that nobody is without, and few, so that what is offered is large.
const WAITING: usize = 8;

/// Two who clone a tree together.
#[derive(Default)]
pub struct Pair {
    state: Mutex<State>,
    changed: Condvar,
    failed: AtomicBool,
    /// What the second one has done so far: names, and bytes.
    pub names: AtomicU64,
    pub bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    /// The second one is at work.
    is_busy: bool,
    has_ended: bool,
    share: Share,
    failure: Option<Failed>,
}

impl Pair {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills what is offered until the end, in the name of `cred`.
    pub fn work(&self, (backend, fs): (&dyn Backend, &Fs), cred: Cred, stop: &AtomicBool) {
        let thread = Thread::new();
        let cx = Cx { cred, umask: 0, thread: &thread };
        let mut state = self.state();
        while !state.has_ended {
            let Some(part) = state.parts.pop_front() else {
                state = self.wait(state);
                continue;
            };
            state.is_busy = true;
            drop(state);
            let filled = self.fill(backend, &cx, part, stop);
            state = self.state();
            state.is_busy = false;
            match filled {
                Ok(share) => state.share.add(share),
                Err(failed) => {
                    state.failure.get_or_insert(failed);
                    self.failed.store(true, Relaxed);
                }
            }
            self.changed.notify_all();
        }
        drop(state);
        fs.give_lane_back(&thread);
    }

    fn fill(&self, backend: &dyn Backend, cx: &Cx, part: Part, stop: &AtomicBool) -> Result<Share, Failed> {
        let mut before = 0;
        let mut each = |tally: &Tally| {
            let bytes = tally.shared + tally.copied;
            self.names.fetch_add(1, Relaxed);
            self.bytes.fetch_add(bytes - before, Relaxed);
            before = bytes;
            !stop.load(Relaxed) && !self.failed.load(Relaxed)
        };
        Trees { backend, cx, each: &mut each }.fill_part(part, self)
    }
}

impl Crew for Pair {
    fn offer(&self, part: Part) -> Result<(), Part> {
        let mut state = self.state();
        if state.has_ended || state.parts.len() >= WAITING {
            return Err(part);
        }
        state.parts.push_back(part);
        self.changed.notify_all();
        Ok(())
    }

    fn next(&self) -> Option<Part> {
        let mut state = self.state();
        loop {
            if self.has_failed() || state.has_ended {
                return None;
            }
            match state.parts.pop_front() {
                None if state.is_busy => state = self.wait(state),
                part => return part,
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    fn end(&self) -> Result<Share, Failed> {
        let mut state = self.state();
        state.has_ended = true;
        state.parts.clear();
        self.changed.notify_all();
        // If it is at work the first one has failed: it sees that at its next name.
        self.failed.fetch_or(state.is_busy, Relaxed);
        while state.is_busy {
            state = self.wait(state);
        }
        match state.failure.take() {
            Some(failed) => Err(failed),
            None => Ok(std::mem::take(&mut state.share)),
        }
    }
}
