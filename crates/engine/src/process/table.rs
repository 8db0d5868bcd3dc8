//! Process slots and descriptor tables.
//!
//! A descriptor table has a word for each number: description + 1, or 0. It
//! gets real space a page (1,024 numbers) at a time; which pages a process has
//! used is noted in its slot, so that fork and death need not look at all of it.

use super::adopt;
use crate::fs::{Fs, NOWHERE};
use crate::segment::{DESCRIPTIONS, DESCRIPTORS, Descriptor, ProcessSlot};
use base::{Cx, DescriptionId, Result};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use format::layout::{self, PROCESSES};
use pm::Errno;
use pm::life::Look;
use pm::mutex::{Attempt, RobustMutex};

/// States of a slot.
pub(super) mod state {
    pub const FREE: u32 = 0;
    pub const USED: u32 = 1;
    pub const FORKING: u32 = 2;
    pub const EXECUTING: u32 = 3;
}

/// A fork or exec begun less than that many nanoseconds ago is not looked into by who seeks a free slot.
const YOUNG: i64 = 20_000_000;
/// Numbers in a page of a descriptor table.
pub(super) const PAGE_DESCRIPTORS: u64 = base::NUMBERS_AT_HAND as u64;
const _: () = assert!(DESCRIPTORS.div_ceil(PAGE_DESCRIPTORS) <= 32);
const _: () = assert!((PROCESSES as u64) * DESCRIPTORS <= u32::MAX as u64);

impl Fs {
    /// The slot of a process.
    pub(crate) fn process_slot(&self, number: u32) -> Option<&ProcessSlot> {
        if number >= PROCESSES {
            return None;
        }
        self.segment.at(self.areas.processes + u64::from(number) * size_of::<ProcessSlot>() as u64)
    }

    /// The mutex whose holder is the process of a slot.
    pub(super) fn process_mutex(&self, number: u32) -> Option<&RobustMutex> {
        RobustMutex::at(&self.image, layout::PROCESS_MUTEXES + u64::from(number % PROCESSES) * layout::LINE)
    }

    /// Number of this process's slot. `ENXIO` after `detach`.
    #[inline]
    pub(crate) fn own_process(&self) -> Result<u32> {
        self.process.load(Relaxed).checked_sub(1).ok_or(Errno::ENXIO.into())
    }

    /// Pages of a process's descriptor table that are in use, a bit each.
    pub(super) fn table_pages(slot: &ProcessSlot) -> &core::sync::atomic::AtomicU64 {
        &slot.table_pages
    }

    /// The table entry of a number of this process; its page gets space at first use. `EBADF` past the end.
    #[inline]
    pub(super) fn own_descriptor(&self, fd: u32) -> Result<&AtomicU32> {
        let process = self.own_process()?;
        let page = 1u32.checked_shl(fd / PAGE_DESCRIPTORS as u32).unwrap_or(0);
        if self.descriptor_pages.load(Relaxed) & page == 0 {
            self.ready_descriptors(process, fd)?;
        }
        self.descriptor(process, fd).ok_or(Errno::EBADF.into())
    }

    #[cold]
    #[inline(never)]
    fn ready_descriptors(&self, process: u32, fd: u32) -> Result<()> {
        if u64::from(fd) >= DESCRIPTORS {
            return Err(Errno::EBADF.into());
        }
        let page = u64::from(fd) / PAGE_DESCRIPTORS;
        self.ready_descriptor_page(process, page)?;
        let pages = self.descriptor_pages.fetch_or(1 << page, Relaxed) | 1 << page;
        self.opens.own.store(own_descriptors(process + 1, pages), Relaxed);
        if self.process.load(Acquire) != process + 1 {
            // Detached meanwhile.
            self.opens.own.store(NOWHERE, Relaxed);
        }
        Ok(())
    }

    /// This process is number `process - 1` of the table (0: none), and these pages of its descriptors have space.
    pub(super) fn set_process(&self, process: u32, pages: u32) {
        self.descriptor_pages.store(pages, Relaxed);
        // Where descriptors are is known while there is a process only, for another thread that opens something meanwhile.
        self.opens.own.store(NOWHERE, Release);
        self.process.store(process, Release);
        self.opens.own.store(own_descriptors(process, pages), Release);
    }

    /// Space for a page of a table, noted in its slot.
    pub(super) fn ready_descriptor_page(&self, process: u32, page: u64) -> Result<()> {
        let slot = self.process_slot(process).ok_or(Errno::ENXIO)?;
        self.descriptor_space(process, page)?;
        Self::table_pages(slot).fetch_or(1 << page, AcqRel);
        Ok(())
    }

    /// Memory for a page of a table. `ENFILE` where there is none.
    pub(super) fn descriptor_space(&self, process: u32, page: u64) -> Result<()> {
        let first = u64::from(process) * DESCRIPTORS + page * PAGE_DESCRIPTORS;
        let size = size_of::<Descriptor>() as u64;
        let space = self.segment_space(self.areas.descriptors + first * size, PAGE_DESCRIPTORS * size);
        Ok(space.map_err(|_| Errno::ENFILE)?)
    }

    /// The table entry of a number of any process.
    #[inline]
    pub(super) fn descriptor(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        if u64::from(fd) >= DESCRIPTORS || process >= PROCESSES {
            return None;
        }
        self.opens.descriptors.get(process * DESCRIPTORS as u32 + fd).map(|descriptor| &descriptor.word)
    }

    /// Entries in use of a process's table: number, and description if it is certain (`base::hold`).
    pub(super) fn descriptors_of(&self, process: u32) -> impl Iterator<Item = (u32, Option<DescriptionId>)> {
        let pages = self.process_slot(process).map_or(0, |slot| Self::table_pages(slot).load(Acquire));
        let numbers = (0..DESCRIPTORS.div_ceil(PAGE_DESCRIPTORS))
            .filter(move |page| pages & 1 << page != 0)
            .flat_map(|page| page * PAGE_DESCRIPTORS..((page + 1) * PAGE_DESCRIPTORS).min(DESCRIPTORS));
        numbers.filter_map(move |fd| {
            let entry = self.descriptor(process, fd as u32)?.load(Acquire);
            (entry != 0).then(|| (fd as u32, base::hold::held(entry).filter(|id| *id < DESCRIPTIONS)))
        })
    }

    /// Takes a slot for this process. `EAGAIN` if there is none, `ENOSPC`.
    pub(super) fn take_process(&self, cx: &Cx) -> Result<()> {
        let number = self.claim_slot(cx)?;
        let Some(slot) = self.process_slot(number) else { return Err(Errno::EAGAIN.into()) };
        self.become_process(number);
        slot.state.store(state::USED, Release);
        Ok(())
    }

    /// A free slot whose mutex this thread now holds, its table empty; that of a
    /// dead process that is met on the way is made so.
    pub(super) fn claim_slot(&self, cx: &Cx) -> Result<u32> {
        self.try_claim_slot(cx).or_else(|error| {
            // Who starts looks quickly: some of them may be dead nevertheless.
            if error == Errno::EAGAIN.into() {
                self.adopt_all(cx, Look::Thorough);
            }
            self.try_claim_slot(cx)
        })
    }

    fn try_claim_slot(&self, cx: &Cx) -> Result<u32> {
        for number in 0..PROCESSES {
            let Some(mutex) = self.process_mutex(number) else { continue };
            if self.is_in_use_between_steps(number) || !matches!(mutex.try_take(), Attempt::Taken | Attempt::Inherited) {
                continue;
            }
            match self.ready_slot(number).map(|free| free || self.is_freed(cx, number)) {
                Ok(true) => return Ok(number),
                Ok(false) => self.give_back_looked_at(mutex, number),
                Err(error) => {
                    mutex.give_back();
                    return Err(error);
                }
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// Whether the slot of a process that is dead, and whose mutex this thread holds, is free now.
    fn is_freed(&self, cx: &Cx, number: u32) -> bool {
        self.empty_if_dead(cx, number) && self.process_slot(number).is_none_or(|slot| slot.state.load(Acquire) == state::FREE)
    }

    /// Whether a slot belongs to a living process in the middle of a fork or exec.
    fn is_in_use_between_steps(&self, number: u32) -> bool {
        // A slot beyond has no space yet.
        self.header().processes_high.has(number)
            && self.process_slot(number).is_some_and(|slot| adopt::is_between_steps(slot, YOUNG))
    }

    /// Gives a slot space, and tells whether it is free.
    pub(super) fn ready_slot(&self, number: u32) -> Result<bool> {
        let header = self.header();
        if !header.processes_high.has(number) {
            self.segment_space(self.areas.processes + u64::from(number) * 64, 64)?;
            header.processes_high.raise(number + 1);
        }
        Ok(self.process_slot(number).is_some_and(|slot| slot.state.load(Acquire) == state::FREE))
    }

    /// Makes this process the one of slot `number`.
    pub(super) fn become_process(&self, number: u32) {
        let mut pages = 0;
        if let Some(slot) = self.process_slot(number) {
            let own = pm::life::own();
            slot.pid_namespace.store(own.namespace, Relaxed);
            slot.since.store(own.since, Relaxed);
            slot.pid.store(own.pid, Relaxed);
            pages = Self::table_pages(slot).load(Acquire) as u32;
        }
        self.set_process(number + 1, pages);
        // Processes start to look for descriptions in different places.
        self.description_hint.store(number * 61 % 4096, Relaxed);
    }
}

/// Where in the tables that of number `process - 1` begins, if these pages of it have space and the first is one of them.
fn own_descriptors(process: u32, pages: u32) -> u32 {
    match process.checked_sub(1) {
        Some(number) if number < PROCESSES && pages & 1 != 0 => number * DESCRIPTORS as u32,
        _ => NOWHERE,
    }
}
