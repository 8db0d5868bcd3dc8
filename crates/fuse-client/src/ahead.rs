//! Reading ahead: of a file that is read in order the next part is asked for before anybody wants it, so that the
//! daemon reads it while the program works on what it has.
//!
//! A process has a few such requests under way, one a file. What comes back counts if nothing of the file has changed
//! since it was asked for; else it is asked for again. None is under way whose handle this process has let go of: a
//! descriptor's close, `exec` and the process's own end wait for it first.

use super::call::ASYNC_READ;
use super::handles::READ;
use super::lower::piece;
use super::protocol::{NOTHING, READ_FILE};
use super::ring::Posted;
use super::{FuseClient, Key, request};
use base::{Cx, Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::{UserSlice, host};
use session::{FRAME_BYTES, SessionCache};

/// In how many files a process reads ahead at a time.
const FILES: usize = 4;

/// A thread is at it.
const BUSY: u64 = 1;
/// There is a request.
const UNDER_WAY: u64 = 2;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The daemon's id of the file.
    pub key: u64,
    /// The daemon's handle.
    pub handle: u64,
    /// incarnation of the daemon, and what it has told of changes: a page's.
    pub version: u64,
    /// Where in the file.
    pub offset: u64,
    /// The number of the last change when it was asked for.
    pub asked: u64,
}

/// One request, or none. What a process has under way is nothing to the child that it forks.
#[derive(Debug)]
struct Place {
    /// PID of the process `<< 32`, and [`BUSY`] or [`UNDER_WAY`]; 0.
    state: AtomicU64,
    words: [AtomicU64; 6],
    slot: AtomicU32,
}

/// The requests of a process.
#[derive(Debug)]
pub(super) struct Ahead {
    places: [Place; FILES],
}

fn own(stage: u64) -> u64 {
    u64::from(host::own_pid_cached()) << 32 | stage
}

impl Place {
    const fn new() -> Place {
        Place { state: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 6], slot: AtomicU32::new(0) }
    }

    /// Makes it this thread's alone; `false`: its state is not `from`.
    fn enter(&self, from: u64) -> bool {
        self.state.compare_exchange(from, own(BUSY), AcqRel, Relaxed).is_ok()
    }

    fn get(&self) -> (Part, Posted) {
        let [key, handle, version, offset, asked, unique] = [0, 1, 2, 3, 4, 5].map(|at| self.words[at].load(Relaxed));
        let posted = Posted { index: self.slot.load(Relaxed), unique, incarnation: (version >> 32) as u32, operation: READ_FILE };
        (Part { key, handle, version, offset, asked }, posted)
    }

    fn put(&self, part: &Part, posted: &Posted) {
        let words = [part.key, part.handle, part.version, part.offset, part.asked, posted.unique];
        self.words.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        self.slot.store(posted.index, Relaxed);
    }
}

impl Ahead {
    pub const fn new() -> Ahead {
        Ahead { places: [const { Place::new() }; FILES] }
    }

    /// Takes out a request that `is_it`.
    pub fn take(&self, is_it: impl Fn(&Part) -> bool) -> Option<(Part, Posted)> {
        for place in &self.places {
            let state = place.state.load(Acquire);
            // Most often there is none at all.
            if state == 0 || state != own(UNDER_WAY) || !is_it(&place.get().0) || !place.enter(state) {
                continue;
            }
            let found = place.get();
            // Another one by now, perhaps.
            let is_taken = is_it(&found.0);
            place.state.store(if is_taken { 0 } else { state }, Release);
            if is_taken {
                return Some(found);
            }
        }
        None
    }

    /// Makes a request and keeps it, if there is room for one.
    pub fn post(&self, part: &Part, post: impl FnOnce() -> Option<Posted>) {
        let is_free = |state: u64| state == 0 || state >> 32 != own(0) >> 32;
        for place in &self.places {
            let state = place.state.load(Relaxed);
            if is_free(state) && place.enter(state) {
                let posted = post();
                if let Some(posted) = &posted {
                    place.put(part, posted);
                }
                return place.state.store(if posted.is_some() { own(UNDER_WAY) } else { 0 }, Release);
            }
        }
    }
}

impl FuseClient {
    /// The incarnation of the daemon, and how many notices of its nobody has obeyed.
    pub(super) fn version(&self, incarnation: u32) -> Result<u64> {
        Ok(u64::from(incarnation) << 32 | u64::from(self.ring.header()?.unheeded.load(Relaxed)))
    }

    /// Asks for a frame's length at `offset`.
    pub(super) fn expect(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64) -> Result<()> {
        if self.ring.header()?.agreed.load(Relaxed) & ASYNC_READ == 0 {
            return Ok(());
        }
        let key = self.key(s, cx, node)?;
        let handle = self.handle(s, cx, node, key, READ)?;
        // The reader has gone elsewhere meanwhile.
        self.settle(s, node);
        let part = Part { key: key.id, handle, version: self.version(key.incarnation)?, offset, asked: s.moment().nodes };
        let message = piece(handle, offset, FRAME_BYTES as usize);
        self.ahead.post(&part, || self.ring.post(cx, &request(READ_FILE, key, [message.bytes(), b"", b""], NOTHING)));
        Ok(())
    }

    /// What was asked for ahead, if that is `into.len` bytes at `offset`, and they are still what the file holds.
    pub(super) fn expected(&self, s: &SessionCache, key: Key, handle: u64, offset: u64, into: UserSlice) -> Option<usize> {
        let (part, posted) = self.ahead.take(|part| part.key == key.id && part.offset == offset && part.handle == handle)?;
        let is_wanted =
            into.len as u64 == FRAME_BYTES && self.version(key.incarnation).is_ok_and(|version| version == part.version);
        if !is_wanted || !s.is_as_it_was(key.id, offset, part.asked) {
            self.ring.withdraw(&posted);
            return None;
        }
        self.ring.fetch(&posted, into).ok()
    }

    /// Of this file nothing is under way any more, nor of an earlier incarnation of the daemon.
    pub(super) fn settle(&self, s: &SessionCache, node: Node) {
        let Ok(record) = s.get(node) else { return };
        let (id, incarnation) = (record.key.load(Relaxed), u64::from(self.ring.incarnation()));
        self.withdraw(|part| part.key == id || part.version >> 32 != incarnation);
    }

    /// Nothing that `is_it` is under way any more.
    pub(super) fn withdraw(&self, is_it: impl Fn(&Part) -> bool) {
        while let Some((_, posted)) = self.ahead.take(&is_it) {
            self.ring.withdraw(&posted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { key: 7, handle: 8, version: 9 << 32, offset: 65536, asked: 3 };
    const POSTED: Posted = Posted { index: 5, unique: 6, incarnation: 9, operation: READ_FILE };

    /// Goal: what was asked for is had once, by who knows it; there are so many and no more; a parent's are not its child's.
    #[test]
    fn once_each() {
        let ahead = Ahead::new();
        assert_eq!(ahead.take(|_| true), None);
        for key in 0..FILES as u64 + 2 {
            ahead.post(&Part { key, ..PART }, || Some(POSTED));
        }
        assert_eq!(ahead.take(|part| part.key == FILES as u64), None, "no room");
        assert_eq!(ahead.take(|part| part.key == 1), Some((Part { key: 1, ..PART }, POSTED)));
        assert_eq!(ahead.take(|part| part.key == 1), None, "once");
        ahead.post(&PART, || None);
        assert_eq!(ahead.take(|part| *part == PART), None, "not made");
        ahead.post(&PART, || Some(POSTED));
        assert_eq!(ahead.take(|part| *part == PART), Some((PART, POSTED)));
        // As in a child: the words are the parent's.
        for place in &ahead.places {
            place.state.store(1 << 32 | UNDER_WAY, Relaxed);
        }
        assert_eq!(ahead.take(|_| true), None, "another process's");
        ahead.post(&PART, || Some(POSTED));
        assert_eq!(ahead.take(|_| true), Some((PART, POSTED)));
    }
}
