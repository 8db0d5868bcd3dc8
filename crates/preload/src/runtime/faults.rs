//! Faults come to us before they come to the program.
//!
//! `SIGSEGV` and `SIGBUS` have our handler from the first mount on, whatever the program does
//! ([`crate::runtime::signals`] shows it what it has set, [`crate::runtime::masks`] keeps the two deliverable). A fault is then
//!
//! - of an instruction of ours on the program's memory ([`pm::faults`]): it goes on at its landing, and the
//!   call answers as the kernel would;
//! - of a call that has a jump in its place ([`crate::runtime::dispatch`]);
//! - of a mapped file, a page of which is not in place yet: it is put there;
//! - of an operation that is in progress on this thread, but none of the above (its stack has come to its end, the
//!   image's file was cut, a defect of ours): the operation is broken off before the program's handler is called, which may
//!   work with files or never return. The lane is left as if its thread had died.
//! - the program's.

use crate::runtime::front_end::PROCESS;
use crate::runtime::operation::{SIGBUS, SIGSEGV};
use crate::runtime::tls::Tls;
use crate::runtime::{dispatch, errno, front_end, operation, phase, thread};
use core::ffi::{c_int, c_void};
use posix::MapFault;

/// `si_code`: the page is there, but may not be touched so.
const SEGV_ACCERR: c_int = 2;
/// `si_code`: there is no page.
const BUS_ADRERR: c_int = 2;

/// Offset of the program counter in `ucontext_t`.
#[cfg(target_arch = "x86_64")]
const COUNTER_OFFSET: usize = 168;
#[cfg(target_arch = "aarch64")]
const COUNTER_OFFSET: usize = 440;

/// What became of a fault.
pub enum Fault {
    /// It is dealt with: the instruction goes on, or is done again.
    Done,
    /// It was beyond the end of a mapped file, at this address.
    PastEnd(usize),
    /// It is the program's.
    Program,
}

/// What the kernel tells of a signal: why it came, and of a fault the address.
///
/// # Safety
/// `info` is the kernel's `siginfo_t`.
pub unsafe fn told(info: *const c_void) -> (c_int, usize) {
    // SAFETY: by contract; both lie there.
    unsafe { (*info.cast::<c_int>().add(2), *info.cast::<usize>().add(2)) }
}

/// Where a thread goes on when its handler returns.
///
/// # Safety
/// `context` is the kernel's `ucontext_t`, which nobody else uses.
pub unsafe fn counter<'a>(context: *mut c_void) -> &'a mut usize {
    // SAFETY: the word lies there in this architecture's `ucontext_t`.
    unsafe { &mut *context.byte_add(COUNTER_OFFSET).cast::<usize>() }
}

/// Does what is to be done about a fault, unless the program must hear of it.
///
/// # Safety
/// `info` and `context` are the kernel's frame of `signal`, which an instruction has caused.
pub unsafe fn handle(tls: &Tls, signal: c_int, info: *mut c_void, context: *mut c_void) -> Fault {
    if !matches!(signal, SIGSEGV | SIGBUS) {
        return Fault::Program;
    }
    // SAFETY: by contract.
    let ((code, address), counter) = unsafe { (told(info), counter(context)) };
    // SAFETY: by contract.
    if tls.depth.get() == 0 && unsafe { dispatch::at_fault(code, context) } {
        return Fault::Done;
    }
    if let Some(landing) = pm::faults::landing(*counter)
        && !PROCESS.is_mapped(address)
    {
        *counter = landing;
        return Fault::Done;
    }
    let missed = if signal == SIGBUS { BUS_ADRERR } else { SEGV_ACCERR };
    if code == missed && tls.depth.get() == 0 && front_end::watches_mappings() {
        return map_fault(tls, address, signal == SIGBUS);
    }
    Fault::Program
}

/// Faults at one address that follow one another within this time are one attempt's, nanoseconds.
const IN_A_ROW: i64 = 10_000_000;
/// After so many of them the page is there and may not be touched so. Fewer may be another thread's doing, which has put the
/// page in place between the fault and our look, and somebody has taken it away again.
const TOUCHES_MAX: u32 = 8;

/// How many faults at this address this thread has had just before.
fn in_a_row(tls: &Tls, address: usize) -> u32 {
    let now = pm::clock::monotonic();
    let is_next = tls.touched.replace(address) == address && now - tls.touched_at.replace(now) < IN_A_ROW;
    let before = if is_next { tls.touches.get() } else { 0 };
    tls.touches.set(before + 1);
    before
}

/// Puts a page of a mapped file in place, if that is what is missing.
fn map_fault(tls: &Tls, address: usize, bus: bool) -> Fault {
    if !phase::is_active(tls) {
        return Fault::Program;
    }
    let saved = errno::get();
    operation::enter(tls);
    let before = in_a_row(tls, address);
    let found = PROCESS.map_fault(thread::state(tls), address, bus, before);
    operation::leave(tls);
    errno::set(saved);
    match found {
        MapFault::Filled => Fault::Done,
        MapFault::Perhaps if before < TOUCHES_MAX => Fault::Done,
        MapFault::Perhaps => Fault::Program,
        MapFault::PastEnd => Fault::PastEnd(address),
        MapFault::NotOurs => Fault::Program,
    }
}

/// Breaks off the operation that is in progress on this thread: what it has recorded happens, all else does not.
#[cold]
pub fn break_off(tls: &Tls) {
    let at = tls.state.get();
    if !at.is_null() {
        // SAFETY: this thread's own state, which lives until the thread ends.
        PROCESS.break_off(unsafe { &*at.cast() });
    }
    tls.depth.set(0);
    if tls.pending.get() != 0 {
        operation::deliver(tls);
    }
}
