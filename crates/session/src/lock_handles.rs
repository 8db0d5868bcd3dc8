//! Handles of open files through which a lower file system that keeps locks itself is asked for them.
//!
//! What is read and written of a file goes by handles that all its open files share; a lock belongs to one open file, and
//! many file systems know that only by its handle. So an open file that locks gets a handle of its own, at its first lock.

use super::{DESCRIPTIONS, LOCK_HANDLES_AT, SessionCache, take_word};
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
/// `flock` was had, and not given up since.
const HAS_FLOCK: u32 = 16;
/// `flock`, or record or OFD locks, were had of an earlier incarnation of the daemon, and not given up since.
pub const LOST_FLOCK: u32 = 32;
/// See [`LOST_FLOCK`].
pub const LOST_RECORDS: u32 = 64;

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
    /// Of a lease: what the cache image calls the file, its key and its node here.
    file: AtomicU64,
    key: AtomicU64,
    node: AtomicU64,
}

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHandle {
    /// As the lower file system has it.
    pub handle: u64,
    /// Incarnation of the daemon in which it holds.
    pub incarnation: u32,
    /// [`NOT_OPENED`], [`FLOCK`], [`OFD`], [`LOST_FLOCK`], [`LOST_RECORDS`].
    pub bits: u32,
}

/// What the session as a whole has locked of a file by one handle, where a cache image keeps its programs apart. Nobody opens
/// files of such a lower file system: the places of their handles are the leases'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What the image calls the file.
    pub file: u64,
    /// Its key here; it was looked up once for the lease.
    pub key: u64,
    /// Its node here, as long as that has the key.
    pub node: u64,
    /// By which it is locked.
    pub handle: LockHandle,
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

    /// The place of a handle, which has memory then. The lock is held.
    fn place_with_memory(&self, id: DescriptionId) -> Result<&Place> {
        let size = size_of::<Place>() as u64;
        let high = self.lock_handles_high();
        if id >= DESCRIPTIONS {
            return Err(Errno::ENOLCK.into());
        }
        if id >= high {
            let end = (id / STEP + 1) * STEP;
            let space = self.space(LOCK_HANDLES_AT + u64::from(high) * size, u64::from(end - high) * size);
            space.map_err(|_| Errno::ENOLCK)?;
            self.header().lock_handles_high.store(end, Release);
        }
        Ok(self.lock_place(id).ok_or(Errno::ENOLCK)?)
    }

    /// Keeps a new one, in place of one of an earlier incarnation; `false`: another thread was quicker. `ENOLCK` without memory.
    pub fn put_lock_handle(&self, id: DescriptionId, new: &LockHandle) -> Result<bool> {
        let _guard = self.lock();
        let place = self.place_with_memory(id)?;
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

    /// `flock` was had, or is about to be given up.
    pub fn note_flock(&self, id: DescriptionId, is_had: bool) {
        let Some(place) = self.lock_place(id) else { return };
        match is_had {
            true => place.bits.fetch_or(HAS_FLOCK, AcqRel),
            false => place.bits.fetch_and(!HAS_FLOCK, AcqRel),
        };
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

    fn places_of(&self, node: Node) -> impl Iterator<Item = &Place> {
        let of_file = move |id: &DescriptionId| self.description(*id).node.load(Relaxed) == node.id;
        let places = (0..self.lock_handles_high()).filter(of_file).filter_map(|id| self.lock_place(id));
        places.filter(|place| place.read().is_some())
    }

    /// The daemon has ended by which a node's file was locked: those locks are nobody's from now on. Its key is still the one of
    /// that daemon's, unless another thread has been here and has called it anew for this `incarnation`.
    pub fn lose_locks(&self, node: Node, incarnation: u32) {
        let is_past = self.get(node).is_ok_and(|record| record.incarnation.load(Acquire) != incarnation);
        if !self.has_lock_handles() || !is_past {
            return;
        }
        let had_records = self.drop_all_locks_of(node);
        for place in self.places_of(node) {
            let bits = place.bits.load(Acquire);
            let is_flock = bits & HAS_FLOCK != 0;
            let is_records = had_records && (bits & OFD != 0 || place.process.load(Acquire) != 0);
            let lost = if is_flock { LOST_FLOCK } else { 0 } | if is_records { LOST_RECORDS } else { 0 };
            place.bits.fetch_or(lost, AcqRel);
        }
    }

    /// Whether locks of a node's file are lost, and not given up yet.
    pub fn has_lost_locks(&self, node: Node) -> bool {
        self.has_lock_handles() && self.places_of(node).any(|place| place.bits.load(Acquire) & (LOST_FLOCK | LOST_RECORDS) != 0)
    }

    /// An open file gives up locks that are lost.
    pub fn give_up_lost(&self, id: DescriptionId, what: u32) {
        if let Some(place) = self.lock_place(id) {
            place.bits.fetch_and(!(what | HAS_FLOCK), AcqRel);
        }
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

    // ---- leases ----

    /// Runs with the leases to itself: what is locked in the session and what is locked below are changed together.
    pub fn alone_with_leases<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let word = &self.header().leases_owner;
        let own = pm::host::own_mark();
        take_word(word, own);
        let result = run();
        // A daemon may have been slow: whoever could not ask whether this process lives has it then.
        let _ = word.compare_exchange(own, 0, Release, Relaxed);
        result
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = Lease> {
        let places = (0..self.lock_handles_high()).filter_map(|id| self.lock_place(id));
        places.filter_map(|place| {
            let handle = place.read()?;
            let [file, key, node] = [&place.file, &place.key, &place.node].map(|word| word.load(Relaxed));
            let lease = Lease { file, key, node, handle };
            (lease.file != 0).then_some(lease)
        })
    }

    /// Whether a node's file has a lease.
    pub fn is_leased(&self, node: Node) -> bool {
        self.has_lock_handles() && {
            let key = self.get(node).map(|record| record.key.load(Relaxed));
            self.leases().any(|lease| key == Ok(lease.key))
        }
    }

    /// The lease of a file.
    pub fn lease(&self, file: u64) -> Option<Lease> {
        self.leases().find(|lease| lease.file == file)
    }

    /// Keeps a new lease. Its file has none, and the leases are the caller's alone. `ENOLCK`: there are too many.
    pub fn put_lease(&self, new: &Lease) -> Result<()> {
        let _guard = self.lock();
        for id in 0..=self.lock_handles_high() {
            let place = self.place_with_memory(id)?;
            if place.read().is_none() {
                place.handle.store(new.handle.handle, Relaxed);
                place.incarnation.store(new.handle.incarnation, Relaxed);
                place.file.store(new.file, Relaxed);
                place.key.store(new.key, Relaxed);
                place.node.store(new.node, Relaxed);
                place.bits.store(new.handle.bits | PRESENT, Release);
                return Ok(());
            }
        }
        Err(Errno::ENOLCK.into())
    }

    /// Takes the lease of a file away, if it has one.
    pub fn take_lease(&self, file: u64) -> Option<Lease> {
        let lease = self.lease(file)?;
        let places = (0..self.lock_handles_high()).filter_map(|id| self.lock_place(id));
        for place in places.filter(|place| place.file.load(Relaxed) == file) {
            place.bits.store(0, Release);
            place.file.store(0, Relaxed);
        }
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Goal: a lease is found by its file until it is taken, and its place is used again.
    #[test]
    fn leases() {
        let path = std::env::temp_dir().join(std::format!("bypath-leases-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(SessionCache::bytes()).unwrap();
        let session = SessionCache::open(CString::new(path.to_str().unwrap()).unwrap().as_bytes_with_nul()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lease =
            |file| Lease { file, key: file + 100, node: 0, handle: LockHandle { handle: file, incarnation: 3, bits: PRESENT } };
        for file in 1..=200 {
            session.put_lease(&lease(file)).unwrap();
        }
        assert_eq!((session.lease(7), session.leases().count()), (Some(lease(7)), 200));
        assert_eq!((session.take_lease(7), session.take_lease(7)), (Some(lease(7)), None));
        session.put_lease(&lease(201)).unwrap();
        assert_eq!((session.lease(201), session.leases().count()), (Some(lease(201)), 200));
        assert_eq!(session.lock_handles_high(), 256);
    }
}
