//! Handles of open files through which a lower file system that keeps locks itself is asked for them.
//!
//! What is read and written of a file goes by handles that all its open files share; a lock belongs to one open file, and
//! many file systems know that only by its handle. So an open file that locks gets a handle of its own, at its first lock.

use super::{DESCRIPTIONS, LOCK_HANDLES_AT, SessionCache};
use base::{DescriptionId, Errno, Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
pub use openfiles::owner_word;
use zerocopy::{FromBytes, KnownLayout};

/// There is a handle.
const PRESENT: u32 = 1;
/// The lower file system wants no opening: there is nothing to release.
pub const NOT_OPENED: u32 = 2;
/// `flock` was asked for.
pub const FLOCK: u32 = 4;
/// OFD locks were.
pub const OFD: u32 = 8;

/// Processes that share an open file may all have locked records by it.
const SEVERAL: u32 = u32::MAX;
/// Open files that get memory for a handle at a time.
const STEP: u32 = 128;

/// The place of an open file's handle.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Place {
    handle: AtomicU64,
    incarnation: AtomicU32,
    bits: AtomicU32,
    /// Slot + 1 of the process that has locked records by it; [`SEVERAL`].
    process: AtomicU32,
    reserved: AtomicU32,
}

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHandle {
    /// As the lower file system has it.
    pub handle: u64,
    /// Incarnation of the daemon in which it holds.
    pub incarnation: u32,
    /// [`NOT_OPENED`], [`FLOCK`], [`OFD`].
    pub bits: u32,
}

impl Place {
    fn read(&self) -> Option<LockHandle> {
        let bits = self.bits.load(Acquire);
        let handle = LockHandle { handle: self.handle.load(Relaxed), incarnation: self.incarnation.load(Relaxed), bits };
        (bits & PRESENT != 0).then_some(handle)
    }
}

impl SessionCache {
    fn lock_handles_high(&self) -> u32 {
        self.header().lock_handles_high.load(Acquire).min(DESCRIPTIONS)
    }

    /// Whether any open file ever had one.
    pub fn has_lock_handles(&self) -> bool {
        self.lock_handles_high() != 0
    }

    fn lock_place(&self, id: DescriptionId) -> Option<&Place> {
        if id >= self.lock_handles_high() {
            return None;
        }
        self.region.at(LOCK_HANDLES_AT + u64::from(id) * size_of::<Place>() as u64)
    }

    /// The handle of an open file.
    pub fn lock_handle(&self, id: DescriptionId) -> Option<LockHandle> {
        self.lock_place(id)?.read()
    }

    /// Keeps a new one, in place of one of an earlier incarnation; `false`: another thread was quicker. `ENOLCK` without memory.
    pub fn put_lock_handle(&self, id: DescriptionId, new: &LockHandle) -> Result<bool> {
        let _guard = self.lock();
        let size = size_of::<Place>() as u64;
        let high = self.lock_handles_high();
        if id >= high {
            let end = (id / STEP + 1) * STEP;
            let space = self.space(LOCK_HANDLES_AT + u64::from(high) * size, u64::from(end - high) * size);
            space.map_err(|_| Errno::ENOLCK)?;
            self.header().lock_handles_high.store(end, Release);
        }
        let place = self.lock_place(id).ok_or(Errno::ENOLCK)?;
        if place.read().is_some_and(|there| there.incarnation == new.incarnation) {
            return Ok(false);
        }
        place.bits.store(0, Release);
        place.handle.store(new.handle, Relaxed);
        place.incarnation.store(new.incarnation, Relaxed);
        place.process.store(0, Relaxed);
        place.bits.store(new.bits | PRESENT, Release);
        Ok(true)
    }

    /// A lock of a kind is about to be asked for: [`FLOCK`], [`OFD`].
    pub fn note_lock(&self, id: DescriptionId, kind: u32) {
        if let Some(place) = self.lock_place(id) {
            place.bits.fetch_or(kind, AcqRel);
        }
    }

    /// The process in this slot is about to lock records by the handle.
    pub fn note_records(&self, id: DescriptionId, process: u32) {
        if let Some(place) = self.lock_place(id)
            && let Err(other) = place.process.compare_exchange(0, process + 1, AcqRel, Acquire)
            && other != process + 1
        {
            place.process.store(SEVERAL, Release);
        }
    }

    /// Whether a process has locked records by an open file's handle.
    pub fn has_records(&self, id: DescriptionId, process: u32) -> bool {
        let Some(place) = self.lock_place(id).filter(|place| place.read().is_some()) else { return false };
        let by = place.process.load(Acquire);
        by == SEVERAL || by == process + 1
    }

    /// Takes the handle away from an open file that ends.
    pub fn take_lock_handle(&self, id: DescriptionId) -> Option<LockHandle> {
        let place = self.lock_place(id)?;
        let handle = place.read()?;
        place.bits.store(0, Release);
        place.process.store(0, Release);
        Some(handle)
    }

    /// Open files of a node's file by whose handle a process has locked records.
    pub fn with_records(&self, node: Node, process: u32) -> impl Iterator<Item = DescriptionId> {
        let key = |id: u64| self.get(Node { id, hint: 0 }).map(|record| record.key.load(Relaxed)).ok();
        let wanted = key(node.id);
        (0..self.lock_handles_high())
            .filter(move |id| self.has_records(*id, process))
            .filter(move |id| wanted.is_some() && key(self.description(*id).node.load(Relaxed)) == wanted)
    }
}
