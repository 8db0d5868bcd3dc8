//! A lock between the threads of a process, for what is rare. No signal handler of the program's runs while it is held.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How long somebody sleeps before he looks again, nanoseconds.
const AT_MOST: i64 = 1_000_000_000;

/// 0 free, 1 held, 2 held and waited for.
pub(crate) struct Lock(AtomicU32);

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(AtomicU32::new(0))
    }

    /// Does `work` alone.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while self.0.swap(2, Acquire) != 0 {
                pm::file::wait(&self.0, 2, AT_MOST);
            }
        }
        let result = work();
        if self.0.swap(0, Release) == 2 {
            pm::file::wake_one(&self.0);
        }
        result
    }

    /// Does `work` alone, or not at all where the lock is held.
    pub(crate) fn try_with(&self, work: impl FnOnce()) {
        if self.0.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return;
        }
        work();
        if self.0.swap(0, Release) == 2 {
            pm::file::wake_one(&self.0);
        }
    }

    /// In a forked child: whoever held the lock is not here.
    pub(crate) fn fork_child(&self) {
        self.0.store(0, Release);
    }
}
