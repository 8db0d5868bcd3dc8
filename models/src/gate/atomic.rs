//! Words with sequentially consistent accesses, for loom.
//!
//! loom takes such an access for acquire and release only, but a fence for what it is. So each has fences beside it, as
//! compilers make it where a processor has no such access: before a load, behind a store, around what does both.

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic as plain;
use loom::sync::atomic::fence;
pub use plain::Ordering;

/// Whose accesses are all sequentially consistent.
#[derive(Debug, Default)]
pub struct AtomicU64(plain::AtomicU64);

fn around<T>(access: impl FnOnce() -> T) -> T {
    fence(SeqCst);
    let result = access();
    fence(SeqCst);
    result
}

impl AtomicU64 {
    pub fn new(value: u64) -> AtomicU64 {
        AtomicU64(plain::AtomicU64::new(value))
    }

    pub fn load(&self, _: Ordering) -> u64 {
        fence(SeqCst);
        self.0.load(Acquire)
    }

    pub fn store(&self, value: u64, _: Ordering) {
        self.0.store(value, Release);
        fence(SeqCst);
    }

    pub fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        around(|| self.0.fetch_add(value, AcqRel))
    }

    pub fn compare_exchange(&self, from: u64, to: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        around(|| self.0.compare_exchange(from, to, AcqRel, Relaxed))
    }

    pub fn fetch_update(&self, _: Ordering, _: Ordering, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        around(|| self.0.fetch_update(AcqRel, Acquire, change))
    }
}
