//! What a module above asks to be called for by one below.

use core::sync::atomic::{AtomicUsize, Ordering::*};

/// A function of a module above; none at first.
pub struct Hook(AtomicUsize);

impl Hook {
    /// None yet.
    pub const fn none() -> Hook {
        Hook(AtomicUsize::new(0))
    }

    /// From now on it is this one.
    pub fn set(&self, function: fn()) {
        self.0.store(function as usize, Release);
    }

    /// Calls it, if there is one.
    pub fn call(&self) {
        let function = self.0.load(Acquire);
        if function != 0 {
            // SAFETY: `set` has it from such a function.
            unsafe { core::mem::transmute::<usize, fn()>(function)() };
        }
    }
}
