//! Where process slots and descriptor tables lie ([`openfiles::Processes`]).
//!
//! A descriptor table has a word for each number: description + 1, or 0. It
//! gets real space a page (1,024 numbers) at a time; which pages a process has
//! used is noted in its slot, so that fork and death need not look at all of it.

use crate::fs::{Fs, NOWHERE};
use crate::segment::{DESCRIPTORS, Descriptor};
use base::{Cx, DescriptionId, Result, Thread};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use format::layout::{self, PROCESSES};
use openfiles::{Forks, ProcessSlot, Processes, state};
use pm::Errno;
use pm::mutex::RobustMutex;

/// Numbers in a page of a descriptor table.
pub(crate) const PAGE_DESCRIPTORS: u64 = base::NUMBERS_FAST as u64;
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

    /// Space for a page of a table, noted in its slot.
    pub(super) fn ready_descriptor_page(&self, process: u32, page: u64) -> Result<()> {
        let slot = self.process_slot(process).ok_or(Errno::ENXIO)?;
        self.descriptor_space(process, page)?;
        slot.table_pages.fetch_or(1 << page, AcqRel);
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

    /// Takes a slot for this process. `EAGAIN` if there is none, `ENOSPC`.
    pub(super) fn take_process(&self, cx: &Cx) -> Result<()> {
        let number = self.claim_slot(cx)?;
        let Some(slot) = self.process_slot(number) else { return Err(Errno::EAGAIN.into()) };
        self.become_process(number);
        slot.state.store(state::USED, Release);
        Ok(())
    }
}

impl Processes for Fs {
    const SLOTS: u32 = PROCESSES;
    const DESCRIPTORS: u32 = DESCRIPTORS as u32;

    fn slot(&self, number: u32) -> Option<&ProcessSlot> {
        self.process_slot(number)
    }

    fn slot_mutex(&self, number: u32) -> Option<&RobustMutex> {
        self.process_mutex(number)
    }

    fn slots_high(&self) -> u32 {
        self.header().processes_high.get()
    }

    fn give_slot_memory(&self, number: u32) -> Result<()> {
        let header = self.header();
        if !header.processes_high.has(number) {
            self.segment_space(self.areas.processes + u64::from(number) * 64, 64)?;
            header.processes_high.raise(number + 1);
        }
        Ok(())
    }

    fn give_page_memory(&self, number: u32, page: u32) -> Result<()> {
        self.ready_descriptor_page(number, u64::from(page))
    }

    fn process_word(&self) -> &AtomicU32 {
        &self.process
    }

    fn set_process(&self, process: u32, pages: u32) {
        self.descriptor_pages.store(pages, Relaxed);
        // Where descriptors are is known while there is a process only, for another thread that opens something meanwhile.
        self.opens.own.store(NOWHERE, Release);
        self.process.store(process, Release);
        self.opens.own.store(own_descriptors(process, pages), Release);
        if let Some(number) = process.checked_sub(1) {
            // Processes start to look for descriptions in different places.
            self.description_hint.store(number * 61 % 4096, Relaxed);
        }
    }

    fn forks(&self) -> Forks<'_> {
        Forks { robust_list: &self.robust_list, thread: &self.forking_thread, parent: &self.forked_from }
    }

    fn count_look(&self) -> u32 {
        self.header().looks.fetch_add(1, Relaxed)
    }

    fn end_open_file(&self, cx: &Cx, id: DescriptionId) {
        self.end_description(cx, id, self.description(id));
    }

    fn end_half_made(&self, cx: &Cx, number: u32) -> bool {
        self.end_half_made_of(cx, number)
    }

    fn process_died(&self, number: u32) {
        self.note_leftovers();
        self.adopt_lanes_of(number);
    }

    fn process_adopted(&self) {
        self.header().served.deaths.fetch_add(1, Release);
    }

    fn process_ends(&self, cx: &Cx, number: u32) {
        self.drop_locks_of_process(cx, number);
        // Before the number is somebody else's.
        self.server_ends(number);
        self.end_notices_of(number);
        self.watcher_ends(number);
    }

    fn finish_of_the_dead(&self, cx: &Cx) {
        self.finish_beside_others(cx);
    }

    fn give_back_thread(&self, thread: &Thread) {
        self.give_lane_back(thread);
    }
}

/// Where in the tables that of number `process - 1` begins, if these pages of it have space and the first is one of them.
fn own_descriptors(process: u32, pages: u32) -> u32 {
    match process.checked_sub(1) {
        Some(number) if number < PROCESSES && pages & 1 != 0 => number * DESCRIPTORS as u32,
        _ => NOWHERE,
    }
}
