//! An operation of ours in progress on a thread, and the signals that wait for its end.
//!
//! While `depth` is not 0 the program's handlers are put off: a signal that comes is noted, left blocked, and raised
//! again ([`deliver`]) as soon as the operation ends. Why: [`crate::runtime::signals`].

use crate::runtime::kernel;
use crate::runtime::kernel::Who;
use crate::runtime::tls::{TOLD_MAX, Tls};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
use pm::sys::abi::*;

pub const SIGTRAP: c_int = 5;
/// Bus error.
pub const SIGBUS: c_int = 7;
/// Segmentation fault.
pub const SIGSEGV: c_int = 11;
/// The five that an instruction may cause: `SIGILL`, `SIGTRAP`, `SIGBUS`, `SIGFPE`, `SIGSEGV`.
const SYNCHRONOUS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;

pub const SIG_BLOCK: u32 = 0;
pub const SIG_UNBLOCK: u32 = 1;
pub const SIG_SETMASK: u32 = 2;

/// Offset of `uc_sigmask` in `ucontext_t`.
#[cfg(target_arch = "x86_64")]
const MASK_OFFSET: usize = 296;
#[cfg(target_arch = "aarch64")]
const MASK_OFFSET: usize = 40;

/// An operation begins on this thread.
#[inline(always)]
pub fn enter(tls: &Tls) {
    tls.depth.set(tls.depth.get() + 1);
    // The handler of this thread must see it before anything the operation does.
    compiler_fence(SeqCst);
}

/// An operation ends; signals put off meanwhile are delivered if it was the outermost.
#[inline(always)]
pub fn leave(tls: &Tls) {
    compiler_fence(SeqCst);
    let depth = tls.depth.get() - 1;
    tls.depth.set(depth);
    compiler_fence(SeqCst);
    if depth == 0 && tls.pending.get() != 0 {
        deliver(tls);
    }
}

/// Whether an instruction may cause this signal.
pub fn is_synchronous(signal: c_int) -> bool {
    SYNCHRONOUS & 1 << (signal - 1) != 0
}

/// Notes the signal and leaves it blocked in the interrupted context, if it may be.
///
/// # Safety
/// `info` and `context` are the kernel's frame.
pub unsafe fn put_off(tls: &Tls, signal: c_int, info: *mut c_void, context: *mut c_void) {
    let bit = 1u64 << (signal - 1);
    if tls.pending.get() & bit & SYNCHRONOUS != 0 {
        // A standard signal is pending once.
        return;
    }
    if !info.is_null()
        && let Some(told) = tls.told.iter().find(|t| t.signal.get() == 0)
    {
        told.signal.set(signal as u32);
        // SAFETY: a `siginfo_t` is 128 bytes.
        told.info.set(unsafe { core::ptr::read_unaligned(info.cast()) });
    }
    tls.pending.set(tls.pending.get() | bit);
    // SAFETY: by contract.
    unsafe { block_in(context, bit & !SYNCHRONOUS) };
}

/// Blocks signals once the handler returns.
///
/// # Safety
/// `context` is the kernel's `ucontext_t`.
pub unsafe fn block_in(context: *mut c_void, bits: u64) {
    // SAFETY: `uc_sigmask` lies there in this architecture's `ucontext_t`.
    let mask = unsafe { context.cast::<u8>().add(MASK_OFFSET).cast::<u64>() };
    // SAFETY: as above.
    unsafe { *mask |= bits };
}

/// Raises again what was put off. The operation has ended.
#[cold]
pub fn deliver(tls: &Tls) {
    let pending = tls.pending.replace(0);
    let unblocked = pending & SYNCHRONOUS;
    if unblocked != 0 {
        change_mask(SIG_BLOCK, unblocked);
    }
    // All are blocked, so the list does not change meanwhile.
    for told in &tls.told[..TOLD_MAX] {
        let signal = told.signal.replace(0);
        if signal != 0 {
            let info = told.info.get();
            raise(signal, Some(&info));
        }
    }
    let mut left = pending;
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        left &= left - 1;
        // Harmless if it was queued above: a standard signal is pending once;
        // a real-time signal was queued with what the kernel told, if there was room.
        if signal < 32 {
            raise(signal, None);
        }
    }
    // They arrive now, at depth 0.
    change_mask(SIG_UNBLOCK, pending);
}

/// Sends this thread a signal, as the kernel has told it.
pub fn raise(signal: u32, info: Option<&[u64; 16]>) {
    let (pid, tid) = (kernel::own(Who::Process), kernel::own(Who::Thread));
    // SAFETY: the info outlives the call.
    let _ = match info {
        // SAFETY: as above.
        Some(info) => unsafe { pm::call!(__NR_rt_tgsigqueueinfo, pid, tid, signal, info.as_ptr()) },
        // SAFETY: no pointers.
        None => unsafe { pm::call!(__NR_tgkill, pid, tid, signal) },
    };
}

/// In a forked child: what was put off belongs to the parent.
pub fn forget(tls: &Tls) {
    let pending = tls.pending.replace(0);
    tls.told.iter().for_each(|t| t.signal.set(0));
    if pending != 0 {
        change_mask(SIG_UNBLOCK, pending);
    }
}

/// Changes this thread's signal mask by one of `SIG_BLOCK` and its kin; the mask before.
pub fn change_mask(how: u32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both masks outlive the call, and have the eight bytes that the kernel is told of.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, how, &raw const mask, &raw mut before, 8) };
    before
}

/// Blocks every signal; the mask before.
pub fn block_signals() -> u64 {
    change_mask(SIG_SETMASK, u64::MAX)
}

/// Sets the thread's signal mask.
pub fn set_signals(mask: u64) {
    change_mask(SIG_SETMASK, mask);
}
