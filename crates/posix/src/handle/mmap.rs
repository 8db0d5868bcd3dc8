//! Mapping files into memory, from the backend's own pages.
//!
//! A shared mapping that may be stored into duplicates the backend's mapping of its image, piece by
//! piece, without a descriptor (`mremap` with old size 0). One that may not, and a private one, map
//! the image file at the pieces' places; where there is no such file, the one is as the other, and a private one copies.
//! What lies past the end of the file is inaccessible until somebody touches it
//! after the file has grown ([`fault`]); what stands for holes says [`fill`].
//!
//! Invariants: every entry of the table holds its file by the pseudo
//! descriptor of the same index; ranges do not overlap; table and address
//! space change together, under the lock.

mod change;
mod fault;
mod fill;
mod lock;
mod stores;
mod view;

pub use fault::MapFault;
use fill::Filled;
use stores::{UNSTORED, UNWATCHED};

use super::attr::{readable, writable};
use super::{done, err, fail};
use crate::descriptors::{MAP_FD, MAPS_MAX};
use crate::lock::Lock;
use crate::path::OpenFile;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, DescriptionId, Error, Kind, MapFor};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use pm::sys::abi;
use pm::{Errno, UserSlice};

const PAGE: usize = 4096;
const MAP_TYPE: usize = 0xf;
const SHARED: usize = abi::MAP_SHARED as usize;
const PRIVATE: usize = abi::MAP_PRIVATE as usize;
const SHARED_VALIDATE: usize = 3;
const FIXED: usize = abi::MAP_FIXED as usize;
const FIXED_NOREPLACE: usize = 0x10_0000;
const ANONYMOUS: usize = abi::MAP_ANONYMOUS as usize;
const NORESERVE: usize = 0x4000;
const LOCKED: usize = 0x2000;
const POPULATE: usize = 0x8000;
const NON_BLOCKING: usize = 0x1_0000;
/// `MAP_32BIT` of x86-64.
const LOW: usize = if cfg!(target_arch = "x86_64") { 0x40 } else { 0 };
const GROWS_DOWN: usize = 0x100;
const DENY_WRITE: usize = 0x800;
const EXECUTABLE: usize = 0x1000;
const STACK: usize = 0x2_0000;
const HUGE_TLB: usize = 0x4_0000;
const UNINITIALIZED: usize = 0x400_0000;
const ABOVE_4G: usize = if cfg!(target_arch = "x86_64") { 0x80 } else { 0 };
/// `MAP_HUGE_2MB` and `MAP_HUGE_1GB`.
const HUGE_SIZES: usize = (21 | 30) << 26;
/// The flags that `MAP_SHARED_VALIDATE` takes: the kernel's `LEGACY_MAP_MASK`.
const VALIDATED: usize = SHARED_VALIDATE
    | FIXED
    | ANONYMOUS
    | DENY_WRITE
    | EXECUTABLE
    | LOCKED
    | GROWS_DOWN
    | NORESERVE
    | POPULATE
    | NON_BLOCKING
    | STACK
    | HUGE_TLB
    | LOW
    | ABOVE_4G
    | UNINITIALIZED
    | HUGE_SIZES;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;

/// One mapping of ours.
#[derive(Clone, Copy)]
struct Mapping {
    /// First address, and one past the last; both 0 in a free entry.
    start: usize,
    end: usize,
    /// The file's pages are in place below this address; what follows was past
    /// its end when last looked at.
    filled: usize,
    /// File offset at `start`.
    offset: u64,
    description: DescriptionId,
    slot: u8,
    shared: bool,
    /// As the program has asked; [`stores::WATCHED`] too.
    prot: u8,
    /// When the file was last stamped for a store here ([`stores`]).
    stored: i64,
    /// Something stands for holes below `filled`.
    holes: bool,
    /// Page of zeroes that was last touched in vain, and where they came from.
    tried: (usize, u64),
}

const FREE: Mapping = Mapping {
    start: 0,
    end: 0,
    filled: 0,
    offset: 0,
    description: 0,
    slot: 0,
    shared: false,
    prot: 0,
    stored: UNSTORED,
    holes: false,
    tried: (0, 0),
};

impl Mapping {
    /// Whether `next` follows it in memory and in the file, with the same rights. One that is free goes on in none.
    fn goes_on_in(&self, next: &Mapping) -> bool {
        let is_file = (self.slot, self.description) == (next.slot, next.description);
        let follows = self.end != 0 && self.end == next.start && self.offset + (self.end - self.start) as u64 == next.offset;
        // What is in place has no gap.
        let is_filled = self.filled == self.end || next.filled == next.start;
        let is_stored = (self.stored == UNSTORED) == (next.stored == UNSTORED);
        is_file && follows && is_filled && is_stored && (self.shared, self.prot) == (next.shared, next.prot)
    }
}

/// All mappings of our files in this process.
pub(crate) struct Mappings {
    lock: Lock,
    /// How many there are; 0 lets `munmap` pass at once.
    used: AtomicU32,
    /// The flags with which `mlockall` was asked to lock what comes; 0: it was not.
    future: AtomicU32,
    /// Stores into what is mapped from now on are not watched: the kernel makes some for the program, at any time.
    unwatched: AtomicU32,
    /// Entries of the table from here on were never used.
    high: AtomicU32,
    table: UnsafeCell<[Mapping; MAPS_MAX]>,
}

// SAFETY: the table is only touched under the lock.
unsafe impl Sync for Mappings {}

impl Mappings {
    pub(crate) const fn new() -> Self {
        Mappings {
            lock: Lock::new(),
            used: AtomicU32::new(0),
            future: AtomicU32::new(0),
            unwatched: AtomicU32::new(0),
            high: AtomicU32::new(0),
            table: UnsafeCell::new([FREE; MAPS_MAX]),
        }
    }

    /// In a forked child: whoever held the lock is not here.
    pub(crate) fn fork_child(&self) {
        self.lock.fork_child();
        // Locks on memory are not inherited.
        self.future.store(0, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.used.load(Ordering::Acquire) == 0
    }

    /// `with`, unless a thread is at it.
    fn try_with(&self, work: impl FnOnce(&mut [Mapping; MAPS_MAX])) {
        // SAFETY: the lock is held.
        self.lock.try_with(|| work(unsafe { &mut *self.table.get() }));
    }

    fn with<T>(&self, work: impl FnOnce(&mut [Mapping; MAPS_MAX]) -> T) -> T {
        // SAFETY: the lock is held.
        self.lock.with(|| work(unsafe { &mut *self.table.get() }))
    }
}

fn pages(len: usize) -> Option<usize> {
    Some(len.checked_add(PAGE - 1)? & !(PAGE - 1))
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mmap(address, len, prot, flags, fd, offset)`.
    pub unsafe fn mmap(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let (fd, flags) = (args[4], args[3]);
        let file = if flags & ANONYMOUS == 0 { self.file(fd) } else { None };
        let Some(file) = file else {
            if flags & FIXED == 0 || self.mappings.is_empty() {
                return Outcome::Kernel;
            }
            return self.mappings.with(|table| {
                // SAFETY: the program's own call.
                let result = unsafe { self.door.kernel(abi::__NR_mmap as usize, args) };
                if pm::sys::check(result).is_ok() {
                    self.forget(&self.cx(thread), table, args[0], args[0].saturating_add(args[1]));
                }
                Outcome::Done(result)
            });
        };
        if file.entry.path_only() {
            return fail(if args[5].is_multiple_of(PAGE) { Errno::EBADF } else { Errno::EINVAL });
        }
        done(self.map_file(&self.cx(thread), &file, args))
    }

    fn map_file(&self, cx: &Cx, file: &OpenFile, args: [usize; 6]) -> base::Result<usize> {
        let [address, len, prot, flags, _, offset] = args;
        if len == 0 || !offset.is_multiple_of(PAGE) {
            return err(Errno::EINVAL);
        }
        let len = pages(len).ok_or(Error::Posix(Errno::ENOMEM))?;
        if (offset as u64).checked_add(len as u64).is_none() {
            return err(Errno::EOVERFLOW);
        }
        if flags & (HUGE_TLB | GROWS_DOWN) != 0 {
            return err(Errno::EINVAL);
        }
        let shared = match flags & MAP_TYPE {
            // Among them `MAP_SYNC`.
            SHARED_VALIDATE if flags & !VALIDATED != 0 => return err(Errno::EOPNOTSUPP),
            SHARED | SHARED_VALIDATE => true,
            PRIVATE => false,
            _ => return err(Errno::EINVAL),
        };
        if !readable(file.flags()) || shared && prot & PROT_WRITE != 0 && !writable(file.flags()) {
            return err(Errno::EACCES);
        }
        if file.entry.kind() != Kind::Regular {
            return err(Errno::ENODEV);
        }
        let prot = self.watched(shared, prot & 0x7f);
        self.mappings.with(|table| {
            let index = table.iter().position(|m| m.end == 0).ok_or(Error::Posix(Errno::ENOMEM))?;
            self.mappings.high.fetch_max(index as u32 + 1, Ordering::Relaxed);
            let hold = MAP_FD + index as u32;
            let kept = flags & (FIXED | FIXED_NOREPLACE | LOW | LOCKED);
            // SAFETY: a fresh reservation, or one that the program asked to put there.
            let base =
                unsafe { pm::call!(abi::__NR_mmap, address, len, 0, PRIVATE | ANONYMOUS | NORESERVE | kept, usize::MAX, 0) }?;
            self.forget(cx, table, base, base + len);
            let backend = file.mount.backend;
            let filled = backend.dup(file.entry.description(), hold).and_then(|()| {
                let filled = self.fill(cx, file, base, len, prot, shared, offset as u64);
                filled.inspect_err(|_| backend.close(cx, hold))
            });
            let Filled { present, holes } = self.settle(base, len, filled)?;
            table[index] = Mapping {
                start: base,
                end: base + len,
                filled: base + present,
                offset: offset as u64,
                description: file.entry.description(),
                slot: file.slot as u8,
                shared,
                prot: prot as u8,
                stored: if prot & stores::WATCHED == 0 { UNWATCHED } else { UNSTORED },
                holes,
                tried: (0, 0),
            };
            self.mappings.used.fetch_add(1, Ordering::AcqRel);
            self.settle_memory(base, present, prot, flags);
            Ok(base)
        })
    }

    /// There is a mapping now whose pages are put in place when they are touched.
    fn watch_partial(&self) {
        self.maps_partially.store(true, Ordering::Relaxed);
        self.door.watch_faults();
    }

    /// A reservation whose pages are in place, as far as there are any, stays; otherwise it is given back.
    fn settle(&self, base: usize, len: usize, filled: base::Result<Filled>) -> base::Result<Filled> {
        match filled {
            Ok(Filled { present, holes }) if present < len || holes => self.watch_partial(),
            Ok(_) => {}
            Err(_) => {
                // SAFETY: the reservation just made.
                let _ = unsafe { pm::call!(abi::__NR_munmap, base, len) };
            }
        }
        filled
    }

    /// `munmap(address, len)`.
    pub unsafe fn munmap(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if self.mappings.is_empty() {
            return Outcome::Kernel;
        }
        self.mappings.with(|table| {
            // SAFETY: the program's own call.
            let result = unsafe { self.door.kernel(abi::__NR_munmap as usize, args) };
            if result == 0 {
                let end = args[0].saturating_add(pages(args[1]).unwrap_or(args[1]));
                self.forget(&self.cx(thread), table, args[0], end);
            }
            Outcome::Done(result)
        })
    }

    /// `start..end` is no longer ours: drops, cuts or splits what lies in it.
    fn forget(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], start: usize, end: usize) {
        if self.mappings.is_empty() {
            return;
        }
        for index in 0..self.known(table).len() {
            let old = table[index];
            if old.end <= start || end <= old.start {
                continue;
            }
            let Some(mount) = self.mounts.get(old.slot as usize) else { continue };
            self.stamp_again(cx, &mut table[index]);
            let old = table[index];
            let offset = old.offset + (end.max(old.start) - old.start) as u64;
            let tail = Mapping { start: end, filled: old.filled.max(end), offset, ..old };
            let head = Mapping { end: start, filled: old.filled.min(start), ..old };
            match (old.start < start, end < old.end) {
                (false, false) => {
                    table[index] = FREE;
                    self.mappings.used.fetch_sub(1, Ordering::AcqRel);
                    mount.backend.close(cx, MAP_FD + index as u32);
                }
                (true, false) => table[index] = head,
                (false, true) => table[index] = tail,
                (true, true) => {
                    // A tail that finds no place stays mapped, held by its head.
                    let _ = self.split(table, index, end);
                    table[index] = head;
                }
            }
        }
    }

    /// `mremap(address, old len, new len, flags, new address)`. The kernel may
    /// move and shrink a mapping of ours; to grow one, its file's next pages
    /// must be found, which lie elsewhere in the image.
    pub unsafe fn mremap(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if self.mappings.is_empty() {
            return Outcome::Kernel;
        }
        let [address, old_len, new_len, flags, target, _] = args;
        let (old_len, new_len) = (pages(old_len).unwrap_or(0), pages(new_len).unwrap_or(0));
        let cx = self.cx(thread);
        self.mappings.with(|table| {
            let mine = self.known(table).iter().position(|m| m.start <= address && address < m.end);
            if let Some(index) = mine
                && new_len > old_len
            {
                return done(self.grow(&cx, table, index, address, old_len, new_len, flags, target));
            }
            // SAFETY: the program's own call.
            let result = unsafe { self.door.kernel(abi::__NR_mremap as usize, args) };
            if let Ok(moved) = pm::sys::check(result) {
                let old = mine.map(|index| table[index]);
                if moved != address {
                    self.forget(&cx, table, moved, moved + new_len);
                }
                if let Some(old) = old {
                    self.moved(&cx, table, old, address, old_len, moved, new_len);
                }
            }
            Outcome::Done(result)
        })
    }

    /// The kernel has moved part of a mapping of ours.
    #[allow(clippy::too_many_arguments)]
    fn moved(
        &self,
        cx: &Cx,
        table: &mut [Mapping; MAPS_MAX],
        old: Mapping,
        address: usize,
        old_len: usize,
        moved: usize,
        new_len: usize,
    ) {
        let Some(mount) = self.mounts.get(old.slot as usize) else { return };
        if moved == address {
            self.forget(cx, table, address + new_len, address + old_len);
            return;
        }
        let Some(free) = table.iter().position(|m| m.end == 0) else { return };
        if mount.backend.dup(old.description, MAP_FD + free as u32).is_ok() {
            let offset = old.offset + (address - old.start) as u64;
            let filled = moved + (old.filled.clamp(address, address + new_len) - address);
            self.mappings.high.fetch_max(free as u32 + 1, Ordering::Relaxed);
            table[free] = Mapping { start: moved, end: moved + new_len, filled, offset, ..old };
            self.mappings.used.fetch_add(1, Ordering::AcqRel);
        }
        self.forget(cx, table, address, address + old_len);
    }

    #[allow(clippy::too_many_arguments)]
    fn grow(
        &self,
        cx: &Cx,
        table: &mut [Mapping; MAPS_MAX],
        index: usize,
        address: usize,
        old_len: usize,
        new_len: usize,
        flags: usize,
        target: usize,
    ) -> base::Result<usize> {
        let old = table[index];
        let whole = old.start == address && old.end == address + old_len;
        if flags & MREMAP_MAYMOVE == 0 || !old.shared || !whole {
            return err(Errno::ENOMEM);
        }
        let entry = crate::descriptors::Entry::new(old.slot as usize, old.description, Kind::Regular, false, false);
        let file = self.open_file(entry).ok_or(Error::Posix(Errno::ENOMEM))?;
        let fixed = if flags & MREMAP_FIXED != 0 { FIXED } else { 0 };
        let place = if fixed != 0 { target } else { 0 };
        // SAFETY: a fresh reservation, or one that the program asked to put there.
        let base =
            unsafe { pm::call!(abi::__NR_mmap, place, new_len, 0, PRIVATE | ANONYMOUS | NORESERVE | fixed, usize::MAX, 0) }?;
        let filled = self.fill(cx, &file, base, new_len, old.prot as usize, true, old.offset);
        let Filled { present, holes } = self.settle(base, new_len, filled)?;
        // SAFETY: the mapping that the program gave up.
        let _ = unsafe { pm::call!(abi::__NR_munmap, address, old_len) };
        table[index] = FREE;
        self.forget(cx, table, base, base + new_len);
        table[index] = Mapping { start: base, end: base + new_len, filled: base + present, holes, ..old };
        Ok(base)
    }

    /// `msync(address, len, flags)`: ours are made durable, then the kernel has its turn.
    pub unsafe fn msync(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const MS_SYNC: usize = 4;
        let kernel = self.mapping_left_out(args).unwrap_or(Outcome::Kernel);
        if self.mappings.is_empty() {
            return kernel;
        }
        let cx = self.cx(thread);
        let end = args[0].saturating_add(args[1]);
        let result = self.mappings.with(|table| {
            for one in table.iter_mut().filter(|m| m.shared && m.start < end && args[0] < m.end) {
                self.stamp_again(&cx, one);
                if args[2] & MS_SYNC == 0 {
                    continue;
                }
                let entry = crate::descriptors::Entry::new(one.slot as usize, one.description, Kind::Regular, false, false);
                if let Some(file) = self.open_file(entry) {
                    file.mount.backend.sync(&cx, Some(file.node), true)?;
                }
            }
            Ok(0)
        });
        match result {
            Ok(_) => kernel,
            result => done(result),
        }
    }
}
