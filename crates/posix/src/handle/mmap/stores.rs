//! Which mappings were stored into: such a store changes the file's times.
//!
//! A shared mapping that a program may store into begins without the right to do so ([`WATCHED`]). The first store is a fault:
//! the file is stamped, the mapping gets its rights, and the store is made. A mapping that is only read changes nothing, and no
//! page is read to find that out. Later stores cost nothing and are not seen: `msync`, `munmap` and the end of the process stamp
//! a file again that was stored into, unless a program has set its times back since.
//!
//! Stores by the kernel (`read` into a mapping) fail with `EFAULT` in place of a fault: [`Process::bring_buffers`] has the call
//! made again. Where faults do not come here first (the C API), or the kernel stores at any time (`io_uring`), a mapping
//! that may be stored into counts as stored into.

use super::fault::is_absent;
use super::*;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// In a mapping's rights: the right to store is held back until the first store.
pub(super) const WATCHED: usize = 0x80;
/// No store was seen.
pub(super) const UNSTORED: i64 = i64::MAX;
/// Stores are not seen: perhaps there were some.
pub(super) const UNWATCHED: i64 = i64::MIN;

/// The kernel's rights for these.
pub(super) fn rights(prot: usize) -> usize {
    if prot & WATCHED == 0 { prot } else { prot & !(WATCHED | PROT_WRITE) | PROT_READ }
}

impl Process {
    /// The rights of a mapping that a program wants to have these.
    pub(super) fn watched(&self, shared: bool, prot: usize) -> usize {
        let is_watched = shared && prot & PROT_WRITE != 0 && self.door.watches_faults();
        if !is_watched || self.mappings.unwatched.load(Relaxed) != 0 {
            return prot;
        }
        self.door.watch_faults();
        prot | WATCHED
    }

    /// Whether there may be a mapping whose first store is awaited.
    #[inline]
    pub fn watches_stores(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// Whether a fault at a page below `filled` is the first store into a mapping.
    pub(super) fn is_first_store(&self, one: &Mapping, page: usize) -> bool {
        one.prot as usize & WATCHED != 0 && page < one.filled && !(one.holes && is_absent(page))
    }

    /// A mapping is stored into for the first time. False if it can't be.
    pub(super) fn first_store(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], index: usize) -> bool {
        let Some(file) = self.mapped_file(&table[index]) else { return false };
        let stored = file.mount.backend.stored(cx, file.node).unwrap_or(UNWATCHED);
        self.let_store(cx, table, index, stored)
    }

    /// Gives the right to store that was held back.
    fn let_store(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], index: usize, stored: i64) -> bool {
        let one = table[index];
        let Some(file) = self.mapped_file(&one) else { return false };
        table[index].stored = stored;
        let prot = one.prot as usize & !WATCHED;
        self.set_rights(cx, table, index, one.start..one.end, prot, &file).is_ok()
    }

    /// The kernel is to store into a range: whether that is the first store into a mapping.
    pub(super) fn first_stores(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], range: Range<usize>) -> bool {
        let mut stored = false;
        for index in 0..self.mappings.high.load(Relaxed) as usize {
            let one = &table[index];
            if one.prot as usize & WATCHED != 0 && one.start < range.end && range.start < one.filled {
                stored |= self.first_store(cx, table, index);
            }
        }
        stored
    }

    /// Stamps a file once more that was stored into. Times that are older than those of the store were set by a program since.
    pub(super) fn stamp_again(&self, cx: &Cx, one: &mut Mapping) {
        if !one.shared || one.prot as usize & (PROT_WRITE | WATCHED) != PROT_WRITE || one.stored == UNSTORED {
            return;
        }
        let Some(file) = self.mapped_file(one) else { return };
        let backend = file.mount.backend;
        if backend.attr(cx, file.node).is_ok_and(|now| now.mtime >= one.stored) {
            one.stored = backend.stored(cx, file.node).unwrap_or(one.stored);
        }
    }

    /// The process ends: stamps what it has stored into. Leaves it where another thread is at work on mappings.
    pub fn stamp_mappings(&self, thread: &ThreadState) {
        if self.mappings.is_empty() {
            return;
        }
        let (cx, high) = (self.cx(thread), self.mappings.high.load(Relaxed) as usize);
        self.mappings.try_with(|table| table.iter_mut().take(high).for_each(|one| self.stamp_again(&cx, one)));
    }

    /// In a forked child: what its parent has stored is not the child's.
    pub(crate) fn watch_stores_again(&self) {
        if self.mappings.is_empty() || !self.door.watches_faults() || self.mappings.unwatched.load(Relaxed) != 0 {
            return;
        }
        let high = self.mappings.high.load(Relaxed) as usize;
        self.mappings.with(|table| {
            let stored = |one: &&mut Mapping| one.shared && one.prot as usize & (PROT_WRITE | WATCHED) == PROT_WRITE;
            // Where something stands for holes, that has rights of its own.
            for one in table.iter_mut().take(high).filter(stored).filter(|one| !one.holes && one.start < one.filled) {
                let prot = one.prot as usize | WATCHED;
                // SAFETY: takes a right away that is given back with the first store.
                if unsafe { pm::call!(abi::__NR_mprotect, one.start, one.filled - one.start, rights(prot)) }.is_ok() {
                    (one.prot, one.stored) = (prot as u8, UNSTORED);
                }
            }
        });
    }

    /// From now on the kernel may store into this process's memory at any time: nothing is watched, and all that may be stored
    /// into counts as stored into.
    pub fn stop_watching_stores(&self, thread: &ThreadState) {
        if self.mappings.unwatched.swap(1, Relaxed) != 0 || self.mappings.is_empty() {
            return;
        }
        let cx = self.cx(thread);
        let high = self.mappings.high.load(Relaxed) as usize;
        self.mappings.with(|table| {
            for index in 0..high {
                if table[index].prot as usize & WATCHED != 0 {
                    self.let_store(&cx, table, index, UNWATCHED);
                }
            }
        });
    }
}
