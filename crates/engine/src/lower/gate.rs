//! Changes of a cached directory, and the moments at which there are none.
//!
//! Who changes something notes first what (the log of `cache::touch`), then changes it. Who writes back reads the tree at
//! a moment at which nobody is between the two: it closes the gate, waits until every lane is outside, reads, and opens it
//! again. A note that was read is of a change that has happened; one made later stands under the next number.
//!
//! - A lane says that it is inside *before* it looks whether the gate is closed; who closes it does so *before* it looks at
//!   the lanes. So one of the two sees the other.
//! - The gate is closed until a time, not by somebody: whoever closed it and died, or was stopped, keeps nobody out for
//!   longer. Who opens it is told whether it was closed all the time; if not, what it has read means nothing.
//! - Nobody inside waits for the kernel mount to be told of the change ([`Fs::tell_changed`]): that may have to wait for a
//!   request that waits for a round. It is waited for outside, before the call returns.
//! - Who dies inside is outside once its lane is adopted, which makes its record happen or not.

use crate::fs::Fs;
use base::{Cred, Cx, Result, Thread};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::cache::Writer;
use pm::Errno;
use pm::clock::monotonic;
use pm::file::{nap, wait, wake};
use pm::life::{Look, Who};

/// Longest time for which the gate is closed, nanoseconds. A word that says more is of another boot.
const CLOSED_MAX: u64 = 10_000_000_000;
/// Between two looks, nanoseconds.
const NAP: i64 = 20_000;
/// Looks until a lane that stays inside is looked at for its owner's death.
const LOOKS: u32 = 20;
/// How long one sleeps for an answer before one looks for a failure, nanoseconds.
const DURABLE_LOOK: i64 = 2_000_000;
/// How long somebody waits for a writer where there is none, nanoseconds.
const NO_WRITER: i64 = 5_000_000_000;

/// In the words of those who wait the low half counts who wants what was changed to be durable, the high half who wants it
/// below: a journal answers the one, a round both.
const BELOW: u64 = 1 << 32;

/// Whether a half of a counter has come so far; it wraps.
fn is_reached(now: u64, mine: u64) -> bool {
    (now as u32).wrapping_sub(mine as u32) as i32 >= 0
}

/// Raises both halves of a counter.
fn raise(word: &AtomicU64, to: u64) {
    let further = |now: u64, to: u64| if is_reached(now, to) { now as u32 } else { to as u32 };
    let both = |now: u64| Some(u64::from(further(now >> 32, to >> 32)) << 32 | u64::from(further(now, to)));
    let _ = word.fetch_update(SeqCst, SeqCst, both);
}

/// A change under way; it is over when this is dropped.
#[derive(Debug)]
pub struct Changing<'a> {
    fs: &'a Fs,
    thread: &'a Thread,
    depth: &'a AtomicU64,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Adopted meanwhile (a call that was broken off): nothing is left to give back.
        let before = self.depth.fetch_update(SeqCst, SeqCst, |depth| depth.checked_sub(1));
        if before != Ok(1) {
            return;
        }
        let owed = self.thread.owed.take();
        if owed != 0 {
            self.fs.wait_for_owed(&Cx { cred: Cred::ROOT, umask: 0, thread: self.thread }, owed);
        }
    }
}

/// The gate is closed.
#[derive(Debug)]
pub struct Closed<'a> {
    fs: &'a Fs,
    until: u64,
}

impl Closed<'_> {
    /// Opens the gate; whether it was closed all the time.
    pub fn open(self) -> bool {
        let Ok(state) = self.fs.cache_state() else { return false };
        let ours = state.writer.closed.compare_exchange(self.until, 0, SeqCst, SeqCst).is_ok();
        ours && now() < self.until
    }
}

/// Number of the process that writes back, if it lives, as far as can be told.
fn living(writer: &Writer) -> u32 {
    let pid = writer.process.load(SeqCst) as u32;
    let [namespace, since] = [0, 1].map(|word: usize| writer.who[word].load(SeqCst));
    let lives = pid != 0 && Who { pid, namespace, since }.lives(Look::Thorough) != Some(false);
    if lives { pid } else { 0 }
}

fn now() -> u64 {
    monotonic() as u64
}

impl Fs {
    /// Whether this thread is inside a change of a cached directory.
    pub(crate) fn is_inside(&self, cx: &Cx) -> bool {
        self.is_cache() && self.lane_of(cx).is_ok_and(|lane| self.lane_state(lane).changing.load(Relaxed) != 0)
    }

    /// Begins a change of a cached directory; waits while the gate is closed.
    pub fn begin_change<'a>(&'a self, cx: &Cx<'a>) -> Result<Changing<'a>> {
        let state = self.cache_state()?;
        let lane = &self.lane_state(self.lane_of(cx)?).changing;
        let changing = || Changing { fs: self, thread: cx.thread, depth: lane };
        if lane.fetch_add(1, SeqCst) > 0 {
            return Ok(changing());
        }
        cx.thread.owed.set(0);
        loop {
            let until = state.writer.closed.load(SeqCst);
            let left = until.wrapping_sub(now());
            if until == 0 || left == 0 || left > CLOSED_MAX {
                if until != 0 {
                    let _ = state.writer.closed.compare_exchange(until, 0, SeqCst, SeqCst);
                }
                return Ok(changing());
            }
            lane.store(0, SeqCst);
            nap(NAP);
            lane.store(1, SeqCst);
        }
    }

    /// Closes the gate for a time and waits until nobody is inside; `None` if somebody stays there for half of it.
    pub fn close_changes(&self, nanoseconds: u64) -> Result<Option<Closed<'_>>> {
        let state = self.cache_state()?;
        let begun = now();
        let until = begun + nanoseconds.min(CLOSED_MAX);
        state.writer.closed.store(until, SeqCst);
        let closed = Closed { fs: self, until };
        let mut looks = 0;
        for number in 0..self.header().lanes_high.get() {
            while self.lane_state(number).changing.load(SeqCst) != 0 {
                looks += 1;
                if looks % LOOKS == 0 {
                    self.adopt_if_proven(number);
                }
                if now() > begun + nanoseconds / 2 {
                    closed.open();
                    return Ok(None);
                }
                nap(NAP);
            }
        }
        Ok(Some(closed))
    }

    /// Wants a round, and waits for it: what has been changed before is below then, and synced. The error of what could
    /// not be written; `EIO` if nobody writes back.
    pub fn want_round(&self) -> Result<()> {
        let state = self.cache_state()?;
        let writer = &state.writer;
        let mine = (writer.wanted.fetch_add(BELOW, SeqCst) >> 32) + 1;
        self.call_writer()?;
        let (mut seen, mut looks) = (monotonic(), 0u32);
        loop {
            if is_reached(writer.done.load(SeqCst) >> 32, mine) {
                return Ok(());
            }
            if is_reached(writer.failed.load(SeqCst) >> 32, mine) {
                let errno = state.error.load(SeqCst) as i32;
                return Err(if errno == 0 { Errno::EIO } else { Errno(errno) }.into());
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                if living(writer) != 0 {
                    seen = monotonic();
                } else if monotonic() - seen > NO_WRITER {
                    return Err(Errno::EIO.into());
                }
            }
            nap(if looks < 64 { NAP } else { 1_000_000 });
        }
    }

    /// Waits until what has been changed before is durable, in the journal of who writes back, or below. The error of why
    /// it is not; `EIO` if nobody writes back.
    pub fn want_durable(&self) -> Result<()> {
        let state = self.cache_state()?;
        let writer = &state.writer;
        let mine = writer.wanted.fetch_add(1, SeqCst) + 1;
        self.call_writer()?;
        let word = self.answer_word()?;
        let (mut alive, mut looks) = (monotonic(), 0u32);
        loop {
            let seen = word.load(SeqCst);
            if is_reached(seen.into(), mine) {
                return Ok(());
            }
            if is_reached(writer.failed.load(SeqCst), mine) {
                let errno = state.error.load(SeqCst) as i32;
                return Err(if errno == 0 { Errno::EIO } else { Errno(errno) }.into());
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                if living(writer) != 0 {
                    alive = monotonic();
                } else if monotonic() - alive > NO_WRITER {
                    return Err(Errno::EIO.into());
                }
            }
            wait(word, seen, DURABLE_LOOK);
        }
    }

    /// Wakes who writes back.
    pub fn call_writer(&self) -> Result<()> {
        self.cache_state()?.writer.call.fetch_add(1, SeqCst);
        wake(self.call_word()?);
        Ok(())
    }

    /// The half of the answers that those wait at who want something to be durable.
    fn answer_word(&self) -> Result<&AtomicU32> {
        let at = self.image.offset_of(&self.cache_state()?.writer.done);
        self.at(at, "answers of the writer")
    }

    fn call_word(&self) -> Result<&AtomicU32> {
        let at = self.image.offset_of(&self.cache_state()?.writer.call);
        self.at(at, "word of the writer")
    }

    /// Of who writes back: sleeps until somebody wants a round, at most so long. How many are wanted, and how many were
    /// answered.
    pub fn await_call(&self, seen: u32, nanoseconds: i64) -> Result<()> {
        wait(self.call_word()?, seen, nanoseconds);
        Ok(())
    }

    /// What [`Fs::await_call`] compares with; and the rounds that are wanted and have no answer.
    pub fn rounds_wanted(&self) -> Result<(u32, Option<u64>)> {
        let state = self.cache_state()?;
        let seen = self.call_word()?.load(SeqCst);
        let wanted = state.writer.wanted.load(SeqCst);
        let answered = [&state.writer.done, &state.writer.failed].map(|word| word.load(SeqCst));
        let is_answered = |half: u32| answered.iter().any(|answered| is_reached(answered >> half, wanted >> half));
        Ok((seen, (!(is_answered(0) && is_answered(32))).then_some(wanted)))
    }

    /// Whether one of those wants all to be below.
    pub fn is_below_wanted(&self, wanted: u64) -> Result<bool> {
        let writer = &self.cache_state()?.writer;
        let is_answered = |word: &AtomicU64| is_reached(word.load(SeqCst) >> 32, wanted >> 32);
        Ok(!(is_answered(&writer.done) || is_answered(&writer.failed)))
    }

    /// Whether one of those wants it to be durable, and no more.
    pub fn is_durable_wanted(&self, wanted: u64) -> Result<bool> {
        let writer = &self.cache_state()?.writer;
        let is_answered = |word: &AtomicU64| is_reached(word.load(SeqCst), wanted);
        Ok(!(is_answered(&writer.done) || is_answered(&writer.failed)))
    }

    /// Answers those who want it to be durable, as many as `wanted` says.
    pub fn answer_durable(&self, wanted: u64, result: core::result::Result<(), Errno>) -> Result<()> {
        let state = self.cache_state()?;
        let word = if result.is_ok() { &state.writer.done } else { &state.writer.failed };
        if let Err(errno) = result {
            self.image.store(&state.error, errno.0 as u64);
        }
        raise(word, word.load(SeqCst) & !u64::from(u32::MAX) | wanted & u64::from(u32::MAX));
        wake(self.answer_word()?);
        Ok(())
    }

    /// Answers those who want a round, as many as `wanted` says; and keeps the error for who asks later.
    pub fn answer(&self, wanted: u64, result: core::result::Result<(), Errno>) -> Result<()> {
        let state = self.cache_state()?;
        self.image.store(&state.error, result.err().map_or(0, |errno| errno.0 as u64));
        let word = if result.is_ok() { &state.writer.done } else { &state.writer.failed };
        if wanted != 0 {
            raise(word, wanted);
        }
        wake(self.answer_word()?);
        Ok(())
    }

    /// Says whether this process writes back.
    pub fn writes_back(&self, does: bool) -> Result<()> {
        let (writer, own) = (&self.cache_state()?.writer, pm::life::own());
        writer.process.store(0, SeqCst);
        if does {
            writer.who[0].store(own.namespace, SeqCst);
            writer.who[1].store(own.since, SeqCst);
            writer.process.store(own.pid.into(), SeqCst);
        }
        Ok(())
    }

    /// Process that writes back and lives, or 0; the error that is not solved; rounds ever.
    pub fn writer(&self) -> Result<(u32, i32, u64)> {
        let state = self.cache_state()?;
        Ok((living(&state.writer), state.error.load(SeqCst) as i32, state.rounds.load(SeqCst)))
    }

    /// The number under which changes are noted now.
    pub fn round(&self) -> Result<u64> {
        Ok(self.cache_state()?.rounds.load(SeqCst))
    }

    /// From now on they are noted under this one.
    pub fn begin_round(&self, number: u64) -> Result<()> {
        let state = self.cache_state()?;
        self.image.store(&state.rounds, number);
        self.image.flush(self.image.offset_of(&state.rounds), 8);
        self.image.fence();
        Ok(())
    }

    /// A directory is about to move here.
    pub fn note_move(&self) -> Result<()> {
        let state = self.cache_state()?;
        self.image.add(&state.moved, 1);
        self.image.flush(self.image.offset_of(&state.moved), 8);
        self.image.fence();
        Ok(())
    }

    /// How many have moved; and whether all of those are where they belong below.
    pub fn directory_moves(&self) -> Result<(u64, bool)> {
        let state = self.cache_state()?;
        let moved = state.moved.load(SeqCst);
        Ok((moved, state.moves_written.load(SeqCst) == moved))
    }

    /// So many moves have reached the lower file system.
    pub fn moves_are_written(&self, moved: u64) -> Result<()> {
        self.image.store(&self.cache_state()?.moves_written, moved);
        Ok(())
    }

    /// Bytes written back, ever, and so many more.
    pub fn count_written(&self, more: u64) -> Result<u64> {
        let state = self.cache_state()?;
        let all = state.written.load(Relaxed).wrapping_add(more);
        self.image.store(&state.written, all);
        Ok(all)
    }
}
