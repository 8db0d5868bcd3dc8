//! Pages of mappings that are put in place when they are touched.
//!
//! - **Past the end of the file** is a reservation that nobody may touch. Whoever touches it raises `SIGSEGV`, of
//!   which the door tells us first: if the file has grown since, by whomever, its new pages are put in place and the
//!   program goes on; if not, it gets the kernel's `SIGBUS`. So growing costs nothing, and nobody need tell those
//!   who have mapped a file that it grew.
//! - **Holes** of a file that is mapped to be read are zeroes, which are taken away (`SIGBUS`) when somebody fills a
//!   hole; those of one that is mapped to be written are reservations, where there was no space for pages at first.
//!
//! A file that this process cuts loses its mapped pages past the new end at
//! once; one that another process cuts keeps them, as zeroes, until they are
//! mapped anew.

use super::fill::{Hole, Place, duplicate, reserve};
use super::*;
use base::{Node, ZEROS};
use pm::file::File;

/// Pages of a file to be written are made so many bytes at a time where one is touched.
const STEP: usize = 64 << 10;

/// A page that one thread has touched so often in a row is touched in vain, whatever others do.
const IN_VAIN: u32 = 4;

/// What touching a page that is not accessible was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapFault {
    /// No matter of ours.
    NotOurs,
    /// The file has grown, or there was a hole: its page is in place now.
    Filled,
    /// A page of a file, which another thread has perhaps put in place just now.
    Perhaps,
    /// Past the end of the file, or no space for the page.
    PastEnd,
}

/// What [`Process::touch`] did, and where it ended.
pub(super) struct Touch {
    pub next: usize,
    pub touched: bool,
}

/// Whether nothing of a file is at a page: only memory of the process's own can be freed so.
pub(super) fn is_absent(page: usize) -> bool {
    const MADV_FREE: u32 = 8;
    // SAFETY: a page of ours; where it can be freed there is nothing in it.
    unsafe { pm::call!(abi::__NR_madvise, page, PAGE, MADV_FREE) }.is_ok()
}

impl Process {
    /// The program touched `address`, which was not accessible; `bus`: by `SIGBUS`; `before`: so many faults there this
    /// thread has had just before. Not within an operation of this thread; may be asked in a signal handler.
    pub fn map_fault(&self, thread: &ThreadState, address: usize, bus: bool, before: u32) -> MapFault {
        if self.mappings.is_empty() {
            return MapFault::NotOurs;
        }
        let cx = self.cx(thread);
        self.mappings.with(|table| {
            let Some(index) = self.known(table).iter().position(|m| m.start <= address && address < m.end) else {
                return MapFault::NotOurs;
            };
            if !bus && self.is_first_store(&table[index], address & !(PAGE - 1)) {
                return if self.first_store(&cx, table, index) { MapFault::Filled } else { MapFault::NotOurs };
            }
            let one = &mut table[index];
            // Who maps without any right gets what he asked for.
            if one.prot == 0 {
                return MapFault::NotOurs;
            }
            if address < one.filled {
                return if one.holes { self.hole_fault(&cx, one, address & !(PAGE - 1), bus, before) } else { MapFault::Perhaps };
            }
            let Some(file) = self.mapped_file(one) else { return MapFault::NotOurs };
            let offset = one.offset + (one.filled - one.start) as u64;
            let filled = self.fill(&cx, &file, one.filled, one.end - one.filled, one.prot as usize, one.shared, offset);
            // What can't be read is no different from what is not there, as in the kernel.
            if let Ok(filled) = filled {
                one.filled += filled.present;
                one.holes |= filled.holes;
            }
            if address < one.filled { MapFault::Filled } else { MapFault::PastEnd }
        })
    }

    /// A page was touched in a mapping in which something stands for holes.
    fn hole_fault(&self, cx: &Cx, one: &mut Mapping, page: usize, bus: bool, before: u32) -> MapFault {
        let Some(file) = self.mapped_file(one) else { return MapFault::NotOurs };
        // Parts may have fewer rights than the whole: what `SIGBUS` tells of were zeroes.
        if (bus || one.prot as usize & PROT_WRITE == 0)
            && let Some((zeros, window)) = file.mount.backend.zeros()
        {
            return self.zeros_fault(cx, one, &file, page, (bus, before), (zeros, window));
        }
        if bus || !is_absent(page) {
            return MapFault::Perhaps;
        }
        match self.touch(cx, one, page, page + 1).touched && !is_absent(page) {
            true => MapFault::Filled,
            false => MapFault::PastEnd,
        }
    }

    /// The zeroes at a page have been taken away, or were not there yet.
    fn zeros_fault(
        &self,
        cx: &Cx,
        one: &mut Mapping,
        file: &OpenFile,
        page: usize,
        (bus, before): (bool, u32),
        (zeros, window): (File, u64),
    ) -> MapFault {
        if core::mem::replace(&mut one.tried, (page, window)) != (page, window) {
            return match self.place_anew(cx, one, file, page, Hole::Zeros(zeros, window)) {
                Ok(_) => MapFault::Filled,
                Err(_) => MapFault::NotOurs,
            };
        }
        // Put in place just now, perhaps by another thread.
        if before < IN_VAIN {
            return MapFault::Perhaps;
        }
        let mut hole = true;
        let offset = one.offset + (page - one.start) as u64;
        let looked = file.mount.backend.map(cx, file.node, offset, PAGE as u64, MapFor::Reading, &mut |_| hole = false);
        if !bus || looked.is_err() || !hole {
            return MapFault::NotOurs;
        }
        // There is no memory for the zeroes.
        let flags = PRIVATE | ANONYMOUS | NORESERVE | FIXED;
        // SAFETY: replaces a page of a mapping of ours.
        match unsafe { pm::call!(abi::__NR_mmap, page, PAGE, one.prot, flags, usize::MAX, 0) } {
            Ok(_) => MapFault::Filled,
            Err(_) => MapFault::NotOurs,
        }
    }

    /// Puts the part of a mapping around a page that is shown by one piece of zeroes in place; returns its end.
    fn place_anew(&self, cx: &Cx, one: &Mapping, file: &OpenFile, page: usize, hole: Hole) -> base::Result<usize> {
        let at = one.offset + (page - one.start) as u64;
        let from = (at - at % ZEROS).max(one.offset);
        let to = (at - at % ZEROS + ZEROS).min(one.offset + (one.filled - one.start) as u64);
        let base = one.start + (from - one.offset) as usize;
        let place = Place { base, present: (to - from) as usize, prot: one.prot as usize, offset: from };
        self.place(cx, file, &place, MapFor::Reading, hole)?;
        Ok(base + place.present)
    }

    /// Puts in place what stands for holes at a page below `one.filled`, and around it, as far as `end` if that is more.
    pub(super) fn touch(&self, cx: &Cx, one: &Mapping, page: usize, end: usize) -> Touch {
        let nothing = Touch { next: one.filled, touched: false };
        let Some(file) = self.mapped_file(one) else { return nothing };
        if one.prot as usize & PROT_WRITE == 0
            && let Some((zeros, window)) = file.mount.backend.zeros()
        {
            let placed = self.place_anew(cx, one, &file, page, Hole::Zeros(zeros, window));
            return placed.map_or(nothing, |next| Touch { next, touched: true });
        }
        // Aligned to the step, so that pieces meet.
        let to = (end.max(page + 1)).next_multiple_of(STEP).min(one.filled);
        for (from, to) in [((page & !(STEP - 1)).max(one.start), to), (page, page + PAGE)] {
            match self.make_pages(cx, one, &file, from, to) {
                Ok(touched) => return Touch { next: to, touched },
                Err(Error::Posix(Errno::ENOSPC)) => {}
                Err(_) => break,
            }
        }
        nothing
    }

    /// Makes the pages of a file that are not in place at `from..to`, and puts them there. Whether there were any.
    fn make_pages(&self, cx: &Cx, one: &Mapping, file: &OpenFile, from: usize, to: usize) -> base::Result<bool> {
        let offset = one.offset + (from - one.start) as u64;
        let (mut touched, mut failed) = (false, None);
        let prot = one.prot as usize;
        file.mount.backend.map(cx, file.node, offset, (to - from) as u64, MapFor::Touching, &mut |range| {
            let target = from + (range.file - offset) as usize;
            let mut at = 0;
            while at < range.len as usize {
                let run = (at..range.len as usize).step_by(PAGE).take_while(|page| is_absent(target + page)).count() * PAGE;
                if run != 0 {
                    touched = true;
                    failed = failed.or(duplicate(range.address + at, target + at, run, prot).err());
                }
                at += run + PAGE;
            }
        })?;
        failed.map_or(Ok(touched), err)
    }

    /// This process has cut a file to `len` bytes: what is mapped of it past the end goes.
    pub(crate) fn cut_mappings(&self, slot: usize, node: Node, len: u64) {
        if self.mappings.is_empty() {
            return;
        }
        self.mappings.with(|table| {
            for one in table.iter_mut().filter(|m| m.end != 0 && m.slot as usize == slot) {
                let left = pages(len.saturating_sub(one.offset).min((one.end - one.start) as u64) as usize).unwrap_or(0);
                let end = one.start + left;
                if end >= one.filled || self.mapped_file(one).is_none_or(|file| file.node.id != node.id) {
                    continue;
                }
                self.watch_partial();
                if reserve(end, one.filled - end).is_ok() {
                    one.filled = end;
                }
            }
        });
    }

    pub(super) fn mapped_file(&self, one: &Mapping) -> Option<OpenFile<'_>> {
        self.open_file(crate::descriptors::Entry::new(one.slot as usize, one.description, Kind::Regular, false, false))
    }
}
