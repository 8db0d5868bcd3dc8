//! Who writes back, and who waits for it.
//!
//! Who wants what it has changed to be durable, or below, counts itself, wakes who writes back, and sleeps until its number
//! is answered: as done, or as failed. The gate before changes ([`gate`]) is passed and closed here.

use super::gate::{self, Gate};
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

/// Between two looks, nanoseconds.
const NAP: i64 = 20_000;
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

/// The gate of an image's cache.
struct OfImage<'a> {
    fs: &'a Fs,
    writer: &'a Writer,
}

impl Gate for OfImage<'_> {
    fn closed(&self) -> &AtomicU64 {
        &self.writer.closed
    }

    fn lanes(&self) -> u32 {
        self.fs.header().lanes_high.get()
    }

    fn inside(&self, lane: u32) -> &AtomicU64 {
        &self.fs.lane_state(lane).changing
    }

    fn adopt_if_dead(&self, lane: u32) {
        self.fs.adopt_if_proven(lane);
    }

    fn now(&self) -> u64 {
        monotonic() as u64
    }

    fn nap(&self) {
        nap(NAP);
    }
}

/// A change under way; it is over when this is dropped.
#[derive(Debug)]
pub struct Changing<'a> {
    fs: &'a Fs,
    thread: &'a Thread,
    inside: &'a AtomicU64,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Taken before: a signal handler may make a change of its own as soon as this one is over.
        let owed = if self.inside.load(Relaxed) == 1 { self.thread.owed.take() } else { 0 };
        gate::leave(self.inside);
        if owed != 0 {
            self.fs.wait_for_owed(&Cx { cred: Cred::ROOT, umask: 0, thread: self.thread }, owed);
        }
    }
}

/// What comes of a round that was waited for.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All is below.
    Done,
    /// Something is not, for this reason; the rest is.
    Failed(Errno),
}

impl Answer {
    fn failed(error: u64) -> Answer {
        Answer::Failed(if error == 0 { Errno::EIO } else { Errno(error as i32) })
    }

    /// Whether all is below.
    pub fn all(self) -> Result<()> {
        match self {
            Answer::Done => Ok(()),
            Answer::Failed(errno) => Err(errno.into()),
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
        self.fs.gate().is_ok_and(|gate| gate::open(&gate, self.until))
    }
}

/// Number of the process that writes back, if it lives, as far as can be told.
fn living(writer: &Writer) -> u32 {
    let pid = writer.process.load(SeqCst) as u32;
    let [namespace, since] = [0, 1].map(|word: usize| writer.who[word].load(SeqCst));
    let lives = pid != 0 && Who { pid, namespace, since }.lives(Look::Thorough) != Some(false);
    if lives { pid } else { 0 }
}

impl Fs {
    fn gate(&self) -> Result<OfImage<'_>> {
        Ok(OfImage { fs: self, writer: &self.cache_state()?.writer })
    }

    /// Whether this thread is inside a change of a cached directory.
    pub(crate) fn is_inside(&self, cx: &Cx) -> bool {
        self.is_cache() && self.lane_of(cx).is_ok_and(|lane| self.lane_state(lane).changing.load(Relaxed) != 0)
    }

    /// Begins a change of a cached directory; waits while the gate is closed.
    pub fn begin_change<'a>(&'a self, cx: &Cx<'a>) -> Result<Changing<'a>> {
        let gate = self.gate()?;
        let inside = &self.lane_state(self.lane_of(cx)?).changing;
        if inside.load(Relaxed) == 0 {
            cx.thread.owed.set(0);
        }
        gate::enter(&gate, inside);
        Ok(Changing { fs: self, thread: cx.thread, inside })
    }

    /// Closes the gate for a time and waits until nobody is inside; `None` if somebody stays there for half of it.
    pub fn close_changes(&self, nanoseconds: u64) -> Result<Option<Closed<'_>>> {
        let until = gate::close(&self.gate()?, nanoseconds);
        Ok(until.map(|until| Closed { fs: self, until }))
    }

    /// Wants a round, and waits for it: what has been changed before is below then, and synced. The error of what could
    /// not be written, whatever that is; `EIO` if nobody writes back.
    pub fn want_round(&self) -> Result<()> {
        self.ask_round()?.all()
    }

    /// The same; whether what could not be written matters is the caller's to find out.
    pub fn ask_round(&self) -> Result<Answer> {
        self.ask_round_within(NO_WRITER)
    }

    /// The same, for so long only where nobody writes back, nanoseconds.
    pub fn ask_round_within(&self, patience: i64) -> Result<Answer> {
        let state = self.cache_state()?;
        let writer = &state.writer;
        let mine = (writer.wanted.fetch_add(BELOW, SeqCst) >> 32) + 1;
        self.call_writer()?;
        let (mut seen, mut looks) = (monotonic(), 0u32);
        loop {
            if is_reached(writer.done.load(SeqCst) >> 32, mine) {
                return Ok(Answer::Done);
            }
            if is_reached(writer.failed.load(SeqCst) >> 32, mine) {
                return Ok(Answer::failed(state.error.load(SeqCst)));
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                if living(writer) != 0 {
                    seen = monotonic();
                } else if monotonic() - seen > patience {
                    return Err(Errno::EIO.into());
                }
            }
            nap(if looks < 64 { NAP } else { 1_000_000 });
        }
    }

    /// Waits until what has been changed before is durable, in the journal of who writes back, or below. `EIO` if nobody
    /// writes back.
    pub fn ask_durable(&self) -> Result<Answer> {
        let state = self.cache_state()?;
        let writer = &state.writer;
        let mine = writer.wanted.fetch_add(1, SeqCst) + 1;
        self.call_writer()?;
        let word = self.answer_word()?;
        let (mut alive, mut looks) = (monotonic(), 0u32);
        loop {
            let seen = word.load(SeqCst);
            if is_reached(seen.into(), mine) {
                return Ok(Answer::Done);
            }
            if is_reached(writer.failed.load(SeqCst), mine) {
                return Ok(Answer::failed(state.error.load(SeqCst)));
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
