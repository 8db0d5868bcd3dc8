//! What a door keeps for each thread.

use base::{PATH_MAX, Scratch, Thread};
use core::cell::{Cell, UnsafeCell};

/// State of one thread of the program: lanes, room for symlink texts and for
/// path names that are rewritten for the kernel. About 36 KiB; all zeroes is a
/// valid fresh one. A forked child and a new thread start with a fresh one.
#[repr(C)]
pub struct ThreadState {
    /// Lanes held; handed down to the backends.
    pub thread: Thread,
    /// Symlink expansions, one for each of the (at most two) paths of a call.
    pub(crate) scratch: [UnsafeCell<Scratch>; 2],
    /// Texts that outlive a walk: paths to start again with, or for the kernel
    /// (referred to by [`Outcome::KernelWith`](crate::Outcome) until the next call).
    pub(crate) text: [UnsafeCell<[u8; PATH_MAX]>; 2],
    /// For walks through the kernel's namespace.
    pub(crate) outside: UnsafeCell<[[u8; PATH_MAX]; 3]>,
    /// Second attempt at a call that failed in the kernel.
    pub(crate) retry: Cell<bool>,
}

impl ThreadState {
    /// A fresh one.
    pub const fn new() -> Self {
        ThreadState {
            thread: Thread::new(),
            scratch: [const { UnsafeCell::new(Scratch::new()) }; 2],
            text: [const { UnsafeCell::new([0; PATH_MAX]) }; 2],
            outside: UnsafeCell::new([[0; PATH_MAX]; 3]),
            retry: Cell::new(false),
        }
    }
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}
