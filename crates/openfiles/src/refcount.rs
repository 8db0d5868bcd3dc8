//! Who holds an open file description: entries of descriptor tables and the
//! description's count change together, whoever dies between.
//!
//! ```text
//! entry   0                          holds nothing
//!         id + 1                     holds that description, and is counted
//!         doubt | sequence | id + 1  is being taken or given: counted, or not
//! refs    0                          free
//!         1 | entry                  held by the entry that opened it, and never by another
//!         MAKING | process + 1       being made or ended by that process
//!         sequence | gave | count | last   held by so many entries
//! ```
//! The word `refs` says, beside the count, which entry changed it last (an entry's number
//! is `fd << 10 | process`, plus one). So an
//! entry in doubt is decided by looking: it is the last one, then it is counted
//! (or no longer); it is not, then nothing happened, because whoever changes the
//! count next first ends the doubt of the last one. There is no step between
//! counting and noting it that death could fall into.
//!
//! Invariants
//! - An entry is in doubt before the count changes for it, and until after that.
//! - Nobody overwrites `last` before that entry's doubt has ended.
//! - Only the entry's own process, or whoever adopts it when it is dead, changes
//!   an entry, but for the end of a doubt.
//! - The sequence tells a change from an older one by the same entry. It begins
//!   anew with each life of a description.
//! - `gave` tells giving from taking: a thread that closes a number may have read the
//!   sequence long before, while others closed it and took it again. What an entry about
//!   to be given was counted for last is its taking, and the other way round.
//! - The one holder of a description that never had a second marks it before its
//!   entry goes: the adopter ends whatever a dead process has marked.
//! - That mark is only set where the word names the very entry. So a thread that closes what
//!   others have closed and opened again meanwhile never marks another entry's description, and
//!   whoever has set a mark ends the description, whatever became of the entry.

use crate::DescriptionId;
use crate::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::atomic::{AtomicU32, AtomicU64};

/// In `refs`: being made or ended by the process whose number + 1 stands in the place of `last`.
pub const MAKING: u64 = 1 << LAST_BITS;
const PROCESS_BITS: u32 = 10;
const LAST_BITS: u32 = 25;
const LAST: u64 = MAKING - 1;
const COUNT_AT: u32 = 26;
/// One holder. The count stands where one addition adds it to an entry's number.
const ONE: u64 = 1 << COUNT_AT;
const COUNT: u64 = (1 << (GAVE_AT - COUNT_AT)) - 1;
const GAVE_AT: u32 = 51;
const SEQUENCE_AT: u32 = 52;
/// Fits both words.
const SEQUENCE: u32 = (1 << 12) - 1;

/// In an entry: being given up, being taken.
const GIVING: u32 = 1 << 30;
const TAKING: u32 = 1 << 31;
const ENTRY_SEQUENCE_AT: u32 = 17;
const ID: u32 = (1 << ENTRY_SEQUENCE_AT) - 1;

/// How often a word may change while it is looked at: who means well is done long before.
const CHANGES: u32 = 1 << 20;
/// How often an entry is emptied for something else.
const PUTS: u32 = 4;

/// Numbers that fit: of processes, of entries in a table, of descriptions.
pub const PROCESSES_MAX: u64 = 1 << PROCESS_BITS;
#[allow(missing_docs)]
pub const ENTRIES_MAX: u64 = (1 << (LAST_BITS - PROCESS_BITS)) - 1;
#[allow(missing_docs)]
pub const DESCRIPTIONS_MAX: u64 = ID as u64;

/// The tables.
pub trait Holders {
    /// The entry of a number of a process; `None` past the end.
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32>;
    /// A description's word; of one that does not exist a word that is 0.
    fn refs(&self, id: DescriptionId) -> &AtomicU64;
    /// Lets another thread run, the longer the more `turns` were waited before; false, at once, when that was
    /// long enough: the word waited for may be a hostile peer's.
    fn pause(&self, turns: u32) -> bool;
}

/// `refs` of a description that a process is making or ending.
pub const fn making(process: u32) -> u64 {
    MAKING | (process as u64 + 1)
}

/// `refs` of a description held by the entry that opened it, and never by another.
#[inline(always)]
pub const fn opened(process: u32, fd: u32) -> u64 {
    number(process, fd) as u64 + ONE
}

/// What names an entry in `refs`; 0 names none.
#[inline(always)]
const fn number(process: u32, fd: u32) -> u32 {
    (fd << PROCESS_BITS).wrapping_add(process.wrapping_add(1))
}

/// What an entry holds for certain.
pub const fn held(entry: u32) -> Option<DescriptionId> {
    if entry & (GIVING | TAKING) != 0 { None } else { id_of(entry) }
}

/// How many hold a description, by its word.
pub const fn count(refs: u64) -> u64 {
    if refs & MAKING != 0 { 0 } else { refs >> COUNT_AT & COUNT }
}

const fn id_of(entry: u32) -> Option<DescriptionId> {
    (entry & ID).checked_sub(1)
}

/// Which entry has opened a description that no other ever held.
const fn opener(refs: u64) -> Option<u32> {
    // What was taken later than by its opener was held by two then.
    if refs & MAKING == 0 && refs >> GAVE_AT & 1 == 0 && count(refs) == 1 { Some((refs & LAST) as u32) } else { None }
}

const fn sequence(refs: u64) -> u32 {
    (refs >> SEQUENCE_AT) as u32
}

/// What came of an intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It has happened.
    Done,
    /// It has happened, and nobody holds the description now: the caller ends it.
    Last,
    /// There is nothing that could be taken, or given: the description is marked, or free.
    Refused,
}

/// An entry in doubt.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    process: u32,
    fd: u32,
    id: DescriptionId,
    entry: u32,
}

impl Intent {
    /// Puts an entry in doubt: if it holds a description, that is about to be
    /// given up; if nothing, `id` is about to be taken. `before` is what the entry was.
    pub fn announce(h: &impl Holders, process: u32, fd: u32, id: DescriptionId, before: u32) -> Option<Intent> {
        if u64::from(id) >= DESCRIPTIONS_MAX {
            return None;
        }
        let kind = if before == 0 { TAKING } else { GIVING };
        let entry = kind | (sequence(h.refs(id).load(Acquire)) & SEQUENCE) << ENTRY_SEQUENCE_AT | (id + 1);
        h.entry(process, fd)?.compare_exchange(before, entry, AcqRel, Acquire).ok()?;
        Some(Intent { process, fd, id, entry })
    }

    /// Counts. Does no harm twice.
    pub fn apply(&mut self, h: &impl Holders) -> Outcome {
        let refs = h.refs(self.id);
        let Some(place) = h.entry(self.process, self.fd) else { return Outcome::Refused };
        let giving = self.entry & GIVING != 0;
        for _ in 0..CHANGES {
            let now = refs.load(Acquire);
            if self.is_last(now) {
                return Outcome::Done;
            }
            if place.load(Acquire) != self.entry {
                // Somebody came after it, and ended the doubt.
                return Outcome::Done;
            }
            if count(now) == 0 {
                // Nobody gets there while one that gives is counted: it is being made, or was marked.
                return Outcome::Refused;
            }
            if giving && opener(now).is_some_and(|opener| opener != number(self.process, self.fd)) {
                // Another entry's alone: this one was never counted.
                return Outcome::Done;
            }
            end_doubt(h, self.id, now);
            if !self.renew(place, now) {
                continue;
            }
            let last = giving && count(now) == 1;
            let next = if last { making(self.process) } else { self.counted(now, giving) };
            if refs.compare_exchange(now, next, AcqRel, Acquire).is_ok() {
                return if last { Outcome::Last } else { Outcome::Done };
            }
        }
        if giving { Outcome::Done } else { Outcome::Refused }
    }

    /// Ends the doubt: it has happened.
    pub fn complete(&self, h: &impl Holders) {
        if let Some(place) = h.entry(self.process, self.fd) {
            let _ = place.compare_exchange(self.entry, ended(self.entry), AcqRel, Acquire);
        }
    }

    /// Ends the doubt: it has not.
    fn cancel(&self, h: &impl Holders) {
        if let Some(place) = h.entry(self.process, self.fd) {
            let _ = place.compare_exchange(self.entry, 0, AcqRel, Acquire);
        }
    }

    /// Whether the count was last changed for this.
    fn is_last(&self, refs: u64) -> bool {
        last_of(refs) == Some((self.process, self.fd)) && follows(refs, self.entry)
    }

    /// The entry has the sequence that the count has; false if it is no longer ours.
    fn renew(&mut self, place: &AtomicU32, refs: u64) -> bool {
        let entry = self.entry & !(SEQUENCE << ENTRY_SEQUENCE_AT) | (sequence(refs) & SEQUENCE) << ENTRY_SEQUENCE_AT;
        if entry != self.entry && place.compare_exchange(self.entry, entry, AcqRel, Acquire).is_err() {
            return false;
        }
        self.entry = entry;
        true
    }

    /// The word with one holder more or less, changed last for this.
    fn counted(&self, refs: u64, giving: bool) -> u64 {
        let count = if giving { count(refs) - 1 } else { (count(refs) + 1).min(COUNT) };
        let last = u64::from(number(self.process, self.fd)) & LAST;
        let gave = u64::from(giving) << GAVE_AT;
        u64::from((sequence(refs) + 1) & SEQUENCE) << SEQUENCE_AT | gave | count << COUNT_AT | last
    }
}

/// Which entry of which process changed the count last. Who opened it changed nothing.
const fn last_of(refs: u64) -> Option<(u32, u32)> {
    if refs & MAKING != 0 || opener(refs).is_some() {
        return None;
    }
    match ((refs & LAST) as u32).checked_sub(1) {
        Some(last) => Some((last & (PROCESSES_MAX as u32 - 1), last >> PROCESS_BITS)),
        None => None,
    }
}

/// Whether a count is what a change for this entry makes of it.
const fn follows(refs: u64, entry: u32) -> bool {
    (refs >> GAVE_AT & 1 != 0) == (entry & GIVING != 0)
        && sequence(refs) & SEQUENCE == ((entry >> ENTRY_SEQUENCE_AT & SEQUENCE) + 1) & SEQUENCE
}

/// An entry in doubt when what it is about has happened.
const fn ended(entry: u32) -> u32 {
    if entry & TAKING != 0 { entry & ID } else { 0 }
}

/// Ends the doubt of the entry for which a count was changed last.
fn end_doubt(h: &impl Holders, id: DescriptionId, refs: u64) {
    let Some(place) = last_of(refs).and_then(|(process, fd)| h.entry(process, fd)) else { return };
    let entry = place.load(Acquire);
    if entry & (GIVING | TAKING) != 0 && id_of(entry) == Some(id) && follows(refs, entry) {
        let _ = place.compare_exchange(entry, ended(entry), AcqRel, Acquire);
    }
}

/// An entry that holds nothing holds `id` too; false if nobody holds that, or the entry is not empty.
pub fn get(h: &impl Holders, process: u32, fd: u32, id: DescriptionId) -> bool {
    let Some(mut intent) = Intent::announce(h, process, fd, id, 0) else { return false };
    let taken = intent.apply(h) != Outcome::Refused;
    if taken {
        intent.complete(h)
    } else {
        intent.cancel(h)
    }
    taken
}

/// An entry of the caller's process lets go of what it holds; if that was the last one, the
/// description is marked as being ended, and the caller ends it.
pub fn put(h: &impl Holders, process: u32, fd: u32) -> Option<DescriptionId> {
    let mut turns = 0;
    for _ in 0..CHANGES {
        let entry = h.entry(process, fd)?.load(Acquire);
        let id = id_of(entry)?;
        let is_certain = held(entry).is_some();
        let refs = h.refs(id).load(Acquire);
        let half_way = !is_certain || refs & MAKING != 0;
        if half_way && h.pause(turns) {
            // Another thread is at it.
            turns += 1;
            continue;
        }
        if is_certain && refs == making(process) {
            // And will be: who ends it empties the entry, who opens it needs it.
            return None;
        }
        // Of the entry as it was seen: by now another thread may be taking this number for something else,
        // and what a living one is about is not to be settled.
        match settle_seen(h, process, fd, entry, !half_way) {
            Settled::Empty => return None,
            Settled::Last(id) => return Some(id),
            Settled::Again => {}
        }
    }
    None
}

/// The entry holds nothing, for the caller has marked what it held ([`opened`]), and ends that now: another
/// thread may be giving it up, or have given up waiting, but the description is nobody else's.
#[cold]
pub fn leave(place: &AtomicU32, id: DescriptionId) {
    for _ in 0..CHANGES {
        let entry = place.load(Acquire);
        let is_its = id_of(entry) == Some(id) && entry & TAKING == 0;
        if !is_its || place.compare_exchange(entry, 0, AcqRel, Acquire).is_ok() {
            return;
        }
    }
}

/// An entry of the caller's process holds `id`, which he is making. What it held before it lets go of, even if
/// another thread keeps putting something there: what is overwritten would stay counted. `end` ends a description.
pub fn install(h: &impl Holders, process: u32, fd: u32, id: DescriptionId, mut end: impl FnMut(DescriptionId)) {
    let Some(place) = h.entry(process, fd) else { return };
    for _ in 0..PUTS {
        if place.compare_exchange(0, id + 1, AcqRel, Acquire).is_ok() {
            return;
        }
        if let Some(last) = put(h, process, fd) {
            end(last);
        }
    }
    // A thread that does not get on, or a hostile peer.
    place.store(id + 1, Release);
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It holds nothing.
    Empty,
    /// It holds nothing, and it was the last one: the caller ends the description.
    Last(DescriptionId),
    /// It changed meanwhile.
    Again,
}

/// One step towards an entry that holds nothing, whatever it was about: its process is dead, or
/// waited for in vain.
pub fn settle(h: &impl Holders, process: u32, fd: u32) -> Settled {
    match h.entry(process, fd) {
        Some(place) => settle_seen(h, process, fd, place.load(Acquire), false),
        None => Settled::Empty,
    }
}

/// [`settle`], if the entry still is what was seen. `lives`: another thread may be making
/// just this description for just this number, or be ending it, which is to be waited for.
fn settle_seen(h: &impl Holders, process: u32, fd: u32, entry: u32, lives: bool) -> Settled {
    let Some(place) = h.entry(process, fd) else { return Settled::Empty };
    let Some(id) = id_of(entry) else {
        return if entry == 0 || place.compare_exchange(entry, 0, AcqRel, Acquire).is_ok() {
            Settled::Empty
        } else {
            Settled::Again
        };
    };
    let refs = h.refs(id).load(Acquire);
    let mut intent = Intent { process, fd, id, entry };
    if entry & TAKING != 0 {
        // What was not counted then is not counted now.
        if intent.is_last(refs) {
            intent.complete(h)
        } else {
            intent.cancel(h)
        }
        return Settled::Again;
    }
    if entry & GIVING == 0 {
        if lives && refs & MAKING != 0 {
            return Settled::Again;
        }
        if count(refs) == 0 && !lives {
            // Marked, and ended with its mark. (Where others are at work it may be opened again for
            // this very number by now; so the doubt comes first.)
            return if place.compare_exchange(entry, 0, AcqRel, Acquire).is_ok() { Settled::Empty } else { Settled::Again };
        }
        match Intent::announce(h, process, fd, id, entry) {
            Some(announced) => intent = announced,
            None => return Settled::Again,
        }
        if lives && h.refs(id).load(Acquire) & MAKING != 0 {
            // The number was given back and taken again since it was looked at.
            let _ = place.compare_exchange(intent.entry, entry, AcqRel, Acquire);
            return Settled::Again;
        }
    }
    let outcome = intent.apply(h);
    if lives && outcome == Outcome::Refused && h.refs(id).load(Acquire) & MAKING != 0 {
        // Marked just now.
        let _ = place.compare_exchange(intent.entry, entry, AcqRel, Acquire);
        return Settled::Again;
    }
    if outcome == Outcome::Last {
        leave(place, id);
        return Settled::Last(id);
    }
    intent.complete(h);
    Settled::Empty
}
