//! What a recorder of stores sees (crash explorer), and the other hooks that
//! make a run the same each time: turns and time.

use core::panic::Location;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Where in the code a store, flush or fence is.
pub type Site = &'static Location<'static>;

/// How something was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// An atomic word.
    Word,
    /// An atomic word that nothing depends on after a crash.
    Volatile,
    /// Part of a copy: the order within the copy is nobody's promise.
    Bulk,
}

/// Gets every store, flush and fence of a region, in the order of one thread;
/// the implementation tells threads apart itself.
pub trait Recorder: Sync {
    /// Up to eight bytes were stored at `offset`, not crossing an 8-byte boundary.
    fn store(&self, offset: u64, bytes: &[u8], how: Stored, site: Site);
    /// A copy was stored. True if that is all it wants to know; else it is told of each word.
    fn copied(&self, offset: u64, len: u64) -> bool;
    /// The write-back of the lines holding this range was started.
    fn flush(&self, offset: u64, len: u64, site: Site);
    /// A fence.
    fn fence(&self, site: Site);
    /// Whether this range is known to hold zeros.
    fn known_zero(&self, offset: u64, len: u64) -> bool;
}

impl core::fmt::Debug for dyn Recorder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Recorder")
    }
}

static TURN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `turn` called whenever a thread waits for another ([`give_way`](crate::file::give_way)).
pub fn on_give_way(turn: fn()) {
    TURN.store(turn as *mut (), Ordering::Release);
}

/// Calls what [`on_give_way`] was told; false if nothing.
pub(crate) fn gave_way() -> bool {
    let turn = TURN.load(Ordering::Acquire);
    if turn.is_null() {
        return false;
    }
    // SAFETY: the only other value ever stored is a `fn()`.
    unsafe { core::mem::transmute::<*mut (), fn()>(turn)() };
    true
}

static TOUCH: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `touch` called before each access to a region and after each store: who runs when is then drawn by it.
pub fn on_touch(touch: fn()) {
    TOUCH.store(touch as *mut (), Ordering::Release);
}

/// Calls what [`on_touch`] was told.
#[inline]
pub(crate) fn touched() {
    let touch = TOUCH.load(Ordering::Relaxed);
    if !touch.is_null() {
        // SAFETY: the only other value ever stored is a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(touch)() };
    }
}
