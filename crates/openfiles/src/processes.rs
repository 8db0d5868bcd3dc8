//! Process slots: taken, looked at, adopted.

use crate::handover::Forks;
use crate::refcount::{self, Holders, Settled};
use crate::slot::{ProcessSlot, YOUNG, state};
use base::{Cx, DescriptionId, Result, Thread};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use pm::Errno;
use pm::life::Look;
use pm::mutex::{Attempt, RobustMutex, Whose};

/// Descriptors in a page of a table: tables get memory so many at a time.
pub const PAGE: u32 = 1024;

/// How often an entry may change while it is emptied.
const CHANGES: u32 = 1 << 16;

/// A table of processes with their descriptor tables, in shared memory.
///
/// A slot's mutex is held for as long as the process lives; whoever gets it from
/// a dead process adopts what that has left.
pub trait Processes: Holders + Sized {
    /// How many slots there are.
    const SLOTS: u32;
    /// How many descriptors each has.
    const DESCRIPTORS: u32;

    /// A slot; `None` past the end.
    fn slot(&self, number: u32) -> Option<&ProcessSlot>;

    /// Its mutex. Of a slot that nobody had yet it is there, too.
    fn slot_mutex(&self, number: u32) -> Option<&RobustMutex>;

    /// Every slot that was ever used lies below.
    fn slots_high(&self) -> u32;

    /// Gives a slot memory, whose mutex the caller holds.
    fn give_slot_memory(&self, number: u32) -> Result<()>;

    /// Gives memory to a page of a descriptor table, and notes that in the slot. `ENFILE`.
    fn give_page_memory(&self, number: u32, page: u32) -> Result<()>;

    /// This process's slot + 1; 0: it has none.
    fn process_word(&self) -> &AtomicU32;

    /// This process is in slot `process - 1` (0: in none), and these pages of its table have memory.
    fn set_process(&self, process: u32, pages: u32);

    /// What this process notes of forks.
    fn forks(&self) -> Forks<'_>;

    /// Quick looks for the dead so far, this one counted.
    fn count_look(&self) -> u32;

    /// Ends an open file that is marked as being ended.
    fn end_open_file(&self, cx: &Cx, id: DescriptionId);

    /// Ends the open files that a process was making or ending. False if some are left, for the next who looks.
    fn end_half_made(&self, cx: &Cx, number: u32) -> bool;

    /// A process was found dead; what it had open is about to go.
    fn process_died(&self, _number: u32) {}

    /// What a process has open is about to go, since it ends or was found dead.
    fn process_goes(&self, _cx: &Cx, _number: u32) {}

    /// It has gone.
    fn process_adopted(&self) {}

    /// What a process had open is gone: so is all else that is its own, before the number is another's.
    fn process_ends(&self, cx: &Cx, number: u32);

    /// A thread needs nothing that it holds in shared memory any more.
    fn give_back_thread(&self, _thread: &Thread) {}

    /// The dead have been adopted: what they left half done can be finished.
    fn finish_of_the_dead(&self, _cx: &Cx) {}

    // ---- what follows from that ----

    /// This process's slot. `ENXIO`: it has none.
    fn own_slot(&self) -> Result<u32> {
        self.process_word().load(Relaxed).checked_sub(1).ok_or(Errno::ENXIO.into())
    }

    /// Entries in use of a process's table: descriptor, and open file if it is certain.
    fn descriptors_of(&self, number: u32) -> impl Iterator<Item = (u32, Option<DescriptionId>)> {
        let pages = self.slot(number).map_or(0, |slot| slot.table_pages.load(Acquire));
        let used = (0..Self::DESCRIPTORS.div_ceil(PAGE)).filter(move |page| pages & 1 << page != 0);
        let numbers = used.flat_map(|page| page * PAGE..((page + 1) * PAGE).min(Self::DESCRIPTORS));
        numbers.filter_map(move |fd| {
            let entry = self.entry(number, fd)?.load(Acquire);
            (entry != 0).then(|| (fd, refcount::held(entry)))
        })
    }

    /// Empties an entry of a process that is dead or leaves, whatever it was about.
    fn empty_entry(&self, cx: &Cx, number: u32, fd: u32) {
        for _ in 0..CHANGES {
            match refcount::settle(self, number, fd) {
                Settled::Empty => return,
                Settled::Last(id) => return self.end_open_file(cx, id),
                Settled::Again => {}
            }
        }
    }

    /// A free slot whose mutex this thread now holds, its table empty; that of a
    /// dead process that is met on the way is made so. `EAGAIN` if there is none.
    fn claim_slot(&self, cx: &Cx) -> Result<u32> {
        self.try_claim_slot(cx).or_else(|error| {
            // Who starts looks quickly: some of them may be dead nevertheless.
            if error == Errno::EAGAIN.into() {
                self.adopt_all(cx, Look::Thorough);
            }
            self.try_claim_slot(cx)
        })
    }

    /// As [`Processes::claim_slot`], with a quick look at each.
    fn try_claim_slot(&self, cx: &Cx) -> Result<u32> {
        for number in 0..Self::SLOTS {
            let Some(mutex) = self.slot_mutex(number) else { continue };
            // A slot beyond has no memory yet.
            let is_wanted = number < self.slots_high() && self.slot(number).is_some_and(|slot| slot.is_between_steps(YOUNG));
            if is_wanted || !matches!(mutex.try_take(), Attempt::Taken | Attempt::Inherited) {
                continue;
            }
            match self.give_slot_memory(number) {
                Ok(()) if self.is_freed(cx, number) => return Ok(number),
                Ok(()) => self.give_back_looked_at(mutex, number),
                Err(error) => {
                    mutex.give_back();
                    return Err(error);
                }
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// Whether a slot whose mutex this thread holds is free now: that of a dead process is made so.
    fn is_freed(&self, cx: &Cx, number: u32) -> bool {
        self.empty_if_dead(cx, number) && self.slot(number).is_some_and(|slot| !slot.is_used())
    }

    /// Makes this process the one of a slot whose mutex this thread holds.
    fn become_process(&self, number: u32) {
        let mut pages = 0;
        if let Some(slot) = self.slot(number) {
            slot.note_own();
            pages = slot.table_pages.load(Acquire) as u32;
        }
        self.set_process(number + 1, pages);
    }

    /// Adopts every dead process and finishes what they have left; returns how many others live.
    fn adopt_dead_processes(&self, cx: &Cx) -> u32 {
        let living = self.adopt_all(cx, Look::Thorough);
        self.finish_of_the_dead(cx);
        living
    }

    /// The same for who comes here often: what it takes `/proc` to prove is found in one of the next looks.
    fn adopt_those_gone(&self, cx: &Cx) -> u32 {
        let living = self.adopt_all(cx, Look::Quick);
        self.finish_of_the_dead(cx);
        living
    }

    /// Adopts every dead process; returns how many others live. Each eighth quick look is a thorough one
    /// at one slot, another one each time.
    fn adopt_all(&self, cx: &Cx, look: Look) -> u32 {
        let high = self.slots_high();
        let own = self.process_word().load(Relaxed);
        let looks = self.count_look();
        let turn = looks.is_multiple_of(8).then_some(looks / 8 % high.max(1));
        let look_at = |number| if turn == Some(number) { Look::Thorough } else { look };
        (0..high).filter(|number| number + 1 != own && self.adopt_process_if_dead(cx, *number, look_at(*number))).count() as u32
    }

    /// Adopts the process of a slot if it is dead; whether it lives.
    fn adopt_process_if_dead(&self, cx: &Cx, number: u32, look: Look) -> bool {
        let Some(mutex) = self.slot_mutex(number) else { return false };
        if self.slot(number).is_some_and(|slot| slot.is_between_steps(0)) {
            return true;
        }
        match mutex.try_take_from(Whose::Process, look) {
            Attempt::Busy => return true,
            Attempt::Broken => return false,
            Attempt::Taken | Attempt::Inherited => {}
        }
        let lives = !self.empty_if_dead(cx, number);
        self.give_back_looked_at(mutex, number);
        lives
    }

    /// Gives back the mutex of a slot that has been looked at. Whoever asks for its holder must find the process if that
    /// lives, whose thread had it: our taking it has overwritten the note.
    fn give_back_looked_at(&self, mutex: &RobustMutex, number: u32) {
        match self.slot(number).filter(|slot| slot.state.load(Acquire) == state::USED && slot.lives()) {
            Some(slot) => mutex.give_back_of(slot.who()),
            None => mutex.give_back(),
        }
    }

    /// Empties a slot whose mutex the caller holds, unless its process lives
    /// nevertheless; whether it is nobody's who lives.
    fn empty_if_dead(&self, cx: &Cx, number: u32) -> bool {
        let Some(slot) = self.slot(number).filter(|slot| slot.is_used()) else { return true };
        if slot.lives() {
            return false;
        }
        self.process_died(number);
        self.empty_process(cx, number);
        self.process_adopted();
        true
    }

    /// Gives up all that the process of a slot has, and frees the slot; not yet if somebody who lives keeps
    /// some of it in doubt: then the next who looks goes on. The caller holds its mutex.
    fn empty_process(&self, cx: &Cx, number: u32) {
        self.process_goes(cx, number);
        for (fd, _) in self.descriptors_of(number) {
            self.empty_entry(cx, number, fd);
        }
        let ended = self.end_half_made(cx, number);
        self.process_ends(cx, number);
        if let (true, Some(slot)) = (ended, self.slot(number)) {
            slot.table_pages.store(0, Relaxed);
            slot.nonce.store(0, Relaxed);
            slot.forget_calls();
            slot.state.store(state::FREE, Release);
        }
    }

    /// Frees a slot whose mutex this thread holds and whose table is empty.
    fn free_slot(&self, number: u32) {
        if let Some(slot) = self.slot(number) {
            slot.forget_calls();
            slot.state.store(state::FREE, Release);
        }
        if let Some(mutex) = self.slot_mutex(number) {
            mutex.give_back();
        }
    }
}
