//! Stores into mapped files that the kernel makes for libc's functions, and the last stamp of mapped files.
//!
//! A mapping whose first store is awaited ([`posix`] says why) cannot be stored into by the kernel. A call that comes through
//! this library is made again then. A function of libc whose calls do not is preceded by [`ahead`].

use crate::runtime::front_end::PROCESS;
use crate::runtime::tls::{self, Tls};
use crate::runtime::{operation, phase, thread};

/// The kernel is to store into `len` bytes at `at`.
#[inline(always)]
pub fn ahead(at: usize, len: usize) {
    if PROCESS.watches_stores() {
        ahead_slow(&|state| _ = PROCESS.store_ahead(state, at, len));
    }
}

/// The kernel is to store into the buffers of call `nr`.
#[inline(always)]
pub fn ahead_of(nr: u32, args: [usize; 6]) {
    if PROCESS.watches_stores() {
        ahead_slow(&|state| _ = PROCESS.bring_buffers(state, nr as usize, &args));
    }
}

#[cold]
#[inline(never)]
fn ahead_slow(bring: &dyn Fn(&posix::ThreadState)) {
    let tls = tls::get();
    if phase::is_active(tls) && tls.depth.get() == 0 {
        operation::enter(tls);
        bring(thread::state(tls));
        operation::leave(tls);
    }
}

/// The process ends, or executes another program: files that it has stored into get their last stamp.
pub fn at_end(tls: &Tls) {
    if PROCESS.watches_stores() && phase::is_active(tls) && tls.depth.get() == 0 {
        operation::enter(tls);
        PROCESS.stamp_mappings(thread::state(tls));
        operation::leave(tls);
    }
}

/// From now on the kernel stores into the program's memory at any time.
pub fn not_seen() {
    let tls = tls::get();
    if phase::is_active(tls) && tls.depth.get() == 0 {
        operation::enter(tls);
        PROCESS.stop_watching_stores(thread::state(tls));
        operation::leave(tls);
    }
}
