//! Whether a signal waits for this thread's call to end. The front end that puts signals off says how to tell.

use core::sync::atomic::{AtomicPtr, Ordering::*};

static IS_PUT_OFF: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// `is_put_off` tells whether a signal with a handler has come to this thread during its call, and waits for its end.
pub fn on_look(is_put_off: fn() -> bool) {
    IS_PUT_OFF.store(is_put_off as *mut (), Release);
}

/// Whether one does; never, where handlers run in the middle of calls.
pub fn is_put_off() -> bool {
    let ask = IS_PUT_OFF.load(Acquire);
    // SAFETY: the only other value ever stored is a `fn() -> bool`.
    !ask.is_null() && unsafe { core::mem::transmute::<*mut (), fn() -> bool>(ask)() }
}
