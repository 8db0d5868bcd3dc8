//! How many calls were served, by interposition and by syscall patching: counted by each thread for itself, and
//! added to the images' counts now and then.

use crate::runtime::front_end::PROCESS;
use crate::runtime::phase;
use crate::runtime::tls::Tls;
use base::Calls;

/// So many calls of a thread are added at once.
const PORTION: u32 = 4096;

/// A call has been served.
#[inline(always)]
pub fn served(tls: &Tls) {
    let calls = tls.calls.get().wrapping_add(1);
    tls.calls.set(calls);
    if calls >= PORTION {
        add(tls);
    }
}

/// Adds what this thread has counted: at `exec`, at the ends of threads and of
/// the process, and when there is a portion. All images of a program get the same.
#[cold]
#[inline(never)]
pub fn add(tls: &Tls) {
    let (all, patched) = (tls.calls.take(), tls.patched.take());
    if all == 0 || !phase::is_mounted() {
        return;
    }
    let more = Calls { symbols: all.saturating_sub(patched).into(), patched: patched.into(), ..Calls::default() };
    PROCESS.mounts.iter().for_each(|(_, mount)| mount.backend.count_calls(&more));
}

/// In a forked child: what is counted so far is its parent's.
pub fn forget(tls: &Tls) {
    tls.calls.set(0);
    tls.patched.set(0);
}
