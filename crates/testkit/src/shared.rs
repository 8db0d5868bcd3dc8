//! Words that processes of a test share: counters, turns, acknowledgments.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WORDS: usize = 512;

/// A page of words, shared with children.
#[derive(Clone, Copy)]
pub struct Words(&'static [AtomicU64; WORDS]);

impl Words {
    /// All zero. Stays for as long as the process.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new() -> Self {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WORDS * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "no memory");
        // SAFETY: as many zeroed words as the type has, never unmapped.
        Words(unsafe { &*at.cast() })
    }

    /// Word `at`.
    pub fn get(self, at: usize) -> u64 {
        self.0[at].load(SeqCst)
    }

    /// Sets it.
    pub fn set(self, at: usize, value: u64) {
        self.0[at].store(value, SeqCst);
    }

    /// Adds to it.
    pub fn add(self, at: usize, value: u64) -> u64 {
        self.0[at].fetch_add(value, SeqCst).wrapping_add(value)
    }

    /// Sets it; what it was.
    pub fn swap(self, at: usize, value: u64) -> u64 {
        self.0[at].swap(value, SeqCst)
    }

    /// Waits until it is at least `value`; false after `limit`.
    pub fn wait(self, at: usize, value: u64, limit: Duration) -> bool {
        let start = Instant::now();
        let mut turns = 0u32;
        while self.get(at) < value {
            turns += 1;
            if turns.is_multiple_of(64) {
                // On two processors the others need ours.
                std::thread::yield_now();
                if start.elapsed() > limit {
                    return false;
                }
            }
        }
        true
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}
