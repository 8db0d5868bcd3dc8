//! Whether the namespace is up.

use crate::runtime::tls::Tls;
use core::sync::atomic::{AtomicU32, Ordering::*};

const NEW: u32 = 0;
const BUSY: u32 = 1;
const ACTIVE: u32 = 2;
const IDLE: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(NEW);

/// Whether calls of this thread go through `posix`; starts up if nobody has.
#[inline(always)]
pub fn is_active(tls: &Tls) -> bool {
    match PHASE.load(Acquire) {
        ACTIVE => tls.aside.raw.get() == 0,
        NEW => crate::start(tls) && tls.aside.raw.get() == 0,
        _ => false,
    }
}

/// Whether anything is mounted (after the start).
pub fn is_mounted() -> bool {
    PHASE.load(Acquire) == ACTIVE
}

/// Starts by `run`, which says whether anything is mounted, unless somebody has started or is about to. Whether anything
/// is mounted.
#[inline(always)]
pub fn start_once(run: impl FnOnce() -> bool) -> bool {
    if PHASE.compare_exchange(NEW, BUSY, AcqRel, Acquire).is_err() {
        return is_mounted();
    }
    let active = run();
    PHASE.store(if active { ACTIVE } else { IDLE }, Release);
    active
}
