//! What this program has open in the library: `fi->fh` by node.
//!
//! A node's first description that reads or writes opens a handle, the last one to go
//! releases it. When that happens in another program, ours stays until its place is wanted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::{file, host};

/// How many nodes can be open in one program.
pub const PLACES: usize = 1024;
/// How far from its own place a node may lie.
const REACH: usize = 64;

/// Index of the handle for reading and of that for writing.
pub const READ: usize = 0;
/// See [`READ`].
pub const WRITE: usize = 1;
/// Bits: open for reading, for writing, both by one handle.
pub const FOR_READ: u32 = 1;
/// See [`FOR_READ`].
pub const FOR_WRITE: u32 = 2;
/// See [`FOR_READ`].
pub const SHARED: u32 = 4;

/// One node's.
pub struct Place {
    key: AtomicU64,
    pub(crate) bits: AtomicU32,
    pub(crate) handles: [AtomicU64; 2],
    /// Node (id, hint) whose handles these are, to see whether it is still held.
    pub(crate) node: [AtomicU64; 2],
}

impl Place {
    const fn new() -> Place {
        Place {
            key: AtomicU64::new(0),
            bits: AtomicU32::new(0),
            handles: [const { AtomicU64::new(0) }; 2],
            node: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// What it holds.
    pub fn contents(&self) -> Contents {
        let pair = |words: &[AtomicU64; 2]| [words[0].load(Relaxed), words[1].load(Relaxed)];
        Contents {
            key: self.key.load(Relaxed),
            bits: self.bits.load(Relaxed),
            handles: pair(&self.handles),
            node: pair(&self.node),
        }
    }
}

/// A copy of a [`Place`].
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// The node's key.
    pub key: u64,
    /// What is open.
    pub bits: u32,
    /// For reading, for writing.
    pub handles: [u64; 2],
    /// Node: id, hint.
    pub node: [u64; 2],
}

/// All of a mount, in this program.
pub struct Handles {
    lock: AtomicU32,
    places: [Place; PLACES],
}

impl Default for Handles {
    fn default() -> Self {
        Self::new()
    }
}

impl Handles {
    /// None.
    pub const fn new() -> Handles {
        Handles { lock: AtomicU32::new(0), places: [const { Place::new() }; PLACES] }
    }

    fn near(&self, key: u64) -> impl Iterator<Item = &Place> {
        (0..REACH).map(move |step| &self.places[(key as usize).wrapping_add(step) % PLACES])
    }

    /// The place of a node, if it has one.
    #[inline]
    pub fn find(&self, key: u64) -> Option<&Place> {
        self.near(key).find(|place| place.key.load(Acquire) == key)
    }

    /// A node's handle for reading or writing, if it has one.
    #[inline(always)]
    pub fn handle(&self, key: u64, want: usize) -> Option<u64> {
        // Nearly always the first place is its own.
        let first = &self.places[key as usize % PLACES];
        let place = if first.key.load(Acquire) == key { first } else { self.find_farther(key)? };
        (place.bits.load(Relaxed) & 1 << want != 0).then(|| place.handles[want].load(Relaxed))
    }

    #[inline(never)]
    fn find_farther(&self, key: u64) -> Option<&Place> {
        self.find(key)
    }

    /// Whether there is a free place near `key`.
    pub fn has_room(&self, key: u64) -> bool {
        self.near(key).any(|place| place.key.load(Relaxed) == 0)
    }

    fn locked<T>(&self, run: impl FnOnce() -> T) -> T {
        let own = host::own_pid_cached();
        while let Err(holder) = self.lock.compare_exchange_weak(0, own, Acquire, Relaxed) {
            // Held at a fork, by a thread that is not in the child.
            if holder != 0 && holder != own && self.lock.compare_exchange(holder, own, Acquire, Relaxed).is_ok() {
                break;
            }
            file::give_way();
        }
        let result = run();
        self.lock.store(0, Release);
        result
    }

    /// Keeps a handle for what `bits` say; false if somebody else's is there already,
    /// `None` if there is no place.
    pub fn put(&self, key: u64, node: [u64; 2], bits: u32, handle: u64) -> Option<bool> {
        self.locked(|| {
            let place = self.find(key).or_else(|| self.near(key).find(|place| place.key.load(Relaxed) == 0))?;
            if place.key.load(Relaxed) != key {
                place.bits.store(0, Relaxed);
                place.node.iter().zip(node).for_each(|(word, value)| word.store(value, Relaxed));
            }
            let present = place.bits.load(Relaxed);
            if present & bits & (FOR_READ | FOR_WRITE) != 0 {
                return Some(false);
            }
            for index in [READ, WRITE].into_iter().filter(|index| bits & 1 << index != 0) {
                place.handles[index].store(handle, Relaxed);
            }
            place.bits.store(present | bits, Release);
            place.key.store(key, Release);
            Some(true)
        })
    }

    /// Takes a node's handles away.
    pub fn take(&self, key: u64) -> Option<Contents> {
        self.locked(|| {
            let place = self.find(key)?;
            let contents = place.contents();
            place.bits.store(0, Relaxed);
            place.key.store(0, Release);
            Some(contents)
        })
    }

    /// The node is known now whose handle was kept when it was made.
    pub fn belongs(&self, key: u64, node: [u64; 2]) {
        if let Some(place) = self.find(key) {
            place.node.iter().zip(node).for_each(|(word, value)| word.store(value, Relaxed));
        }
    }

    /// Keys near `key` whose handles nobody needs any more, as `is_held` says of nodes.
    pub fn idle(&self, key: u64, mut is_held: impl FnMut([u64; 2]) -> bool) -> Option<u64> {
        let idle = self.near(key).map(Place::contents).find(|at| at.key != 0 && at.key != key && !is_held(at.node));
        idle.map(|at| at.key)
    }
}
