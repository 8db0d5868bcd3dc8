//! Signal handlers never run inside an operation of ours.
//!
//! `open`, `read`, `write`, `close` are async-signal-safe, so a handler may call
//! them at any moment; if it interrupted an operation of its own thread, it
//! would wait for itself. So the program's handlers are installed behind
//! [`trampoline`]: if the thread is inside an operation, the signal is noted,
//! left blocked, and raised again ([`deliver`]) as soon as the operation ends.
//!
//! Signals that an instruction causes (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`,
//! `SIGTRAP`) are passed straight on, except for `SIGSEGV` and `SIGBUS` where a page of a mapped file
//! is put in place when it is touched ([`watch_faults`]); a handler that jumps out of one of them
//! out of an operation of ours leaves that operation half done.

use crate::tls::{self, TOLD_MAX, Tls};
use crate::{errno, guest, next};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use pm::sys::{self, abi::*};
use posix::MapFault;

/// glibc's `struct sigaction`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

const _: () = assert!(size_of::<Action>() == 152);

const SIGNALS: usize = 65;
const DEFAULT: usize = 0;
const IGNORE: usize = 1;
const FAILED: usize = usize::MAX;
const SA_SIGINFO_BIT: u32 = 4;
const SA_RESETHAND_BIT: u32 = 0x8000_0000;
const SA_RESTART_BIT: u32 = 0x1000_0000;
const SA_NODEFER_BIT: u32 = 0x4000_0000;
/// Offset of `uc_sigmask` in `ucontext_t`.
#[cfg(target_arch = "x86_64")]
const MASK_OFFSET: usize = 296;
#[cfg(target_arch = "aarch64")]
const MASK_OFFSET: usize = 40;

struct Slot {
    /// The program's handler.
    handler: AtomicUsize,
    /// The program's flags.
    flags: AtomicU32,
}

static SLOTS: [Slot; SIGNALS] = [const { Slot { handler: AtomicUsize::new(DEFAULT), flags: AtomicU32::new(0) } }; SIGNALS];

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);
type SigAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

fn is_synchronous(signal: c_int) -> bool {
    // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV
    matches!(signal, 4 | 5 | 7 | 8 | 11)
}

/// What the kernel calls for every handler of the program.
unsafe extern "C" fn trampoline(signal: c_int, info: *mut c_void, context: *mut c_void) {
    let tls = tls::get();
    if tls.depth.get() > 0 && !is_synchronous(signal) {
        // SAFETY: the kernel's own frame.
        unsafe { put_off(tls, signal, info, context) };
        return;
    }
    let mut told = [0u64; 16];
    let (mut signal, mut info) = (signal, info);
    let came = signal;
    if is_watched(signal) && WATCHING.load(Relaxed) && tls.depth.get() == 0 {
        // SAFETY: the kernel's `siginfo_t`.
        match unsafe { fault(tls, signal, info) } {
            Fault::Mended => return,
            Fault::PastEnd(address) => {
                // As the kernel tells it.
                told[0] = SIGBUS as u64;
                (told[1], told[2]) = (BUS_ADRERR, address as u64);
                (signal, info) = (SIGBUS, told.as_mut_ptr().cast());
            }
            Fault::Program => {}
        }
    }
    let Some(slot) = SLOTS.get(signal as usize) else { return };
    let handler = slot.handler.load(Acquire);
    let flags = slot.flags.load(Acquire);
    if handler == DEFAULT || handler == IGNORE {
        if is_synchronous(signal) {
            // What caused it is done again, and has its way.
            set_default(came);
            end_by(came, signal);
        }
        return;
    }
    if flags & SA_RESETHAND_BIT != 0 {
        slot.handler.store(DEFAULT, Release);
        slot.flags.store(0, Release);
        set_default(signal);
    }
    // SAFETY: the program installed it as a handler; one that takes only the
    // signal number ignores the other arguments.
    let handler: Handler = unsafe { core::mem::transmute(handler) };
    // SAFETY: as the kernel would call it.
    unsafe { handler(signal, info, context) };
}

/// Whether `SIGSEGV` and `SIGBUS` come to us even if the program has no handler.
static WATCHING: AtomicBool = AtomicBool::new(false);
const SIGBUS: c_int = 7;
const SIGSEGV: c_int = 11;
/// `si_code`: the page is there, but may not be touched so.
const SEGV_ACCERR: c_int = 2;
const BUS_ADRERR: u64 = 2;
const SA_ONSTACK_BIT: u32 = 0x0800_0000;

/// From now on mappings may have pages that are put in place when they are touched.
pub fn watch_faults() {
    if WATCHING.swap(true, AcqRel) {
        return;
    }
    let Some(next) = next!(SigAction, "sigaction") else { return };
    for signal in [SIGSEGV, SIGBUS] {
        let mut old = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
        // SAFETY: room for an action.
        if unsafe { next(signal, core::ptr::null(), &mut old) } != 0 || old.handler != DEFAULT {
            // The program's handler is behind the trampoline already.
            continue;
        }
        let action = watching();
        // SAFETY: a valid action.
        unsafe { next(signal, &action, core::ptr::null_mut()) };
    }
}

/// Signals by which pages are missed that are put in place when they are touched.
fn is_watched(signal: c_int) -> bool {
    matches!(signal, SIGSEGV | SIGBUS)
}

/// The action for a watched signal of a program that has none.
fn watching() -> Action {
    let handler = trampoline as *const () as usize;
    Action { handler, mask: [0; 16], flags: (SA_SIGINFO_BIT | SA_ONSTACK_BIT) as c_int, restorer: 0 }
}

/// What became of a fault.
enum Fault {
    Mended,
    PastEnd(usize),
    Program,
}

/// Puts a page of a mapped file in place, if that is what is missing.
///
/// # Safety
/// `info` is the kernel's `siginfo_t`.
unsafe fn fault(tls: &Tls, signal: c_int, info: *mut c_void) -> Fault {
    // SAFETY: by contract; code and address lie there for these signals.
    let (code, address) = unsafe { (*info.cast::<c_int>().add(2), *info.cast::<usize>().add(2)) };
    let missed = if signal == SIGBUS { BUS_ADRERR as c_int } else { SEGV_ACCERR };
    if code != missed || !crate::init::is_active(tls) {
        return Fault::Program;
    }
    let saved = errno::get();
    tls::enter(tls);
    let found = crate::door::PROCESS.map_fault(crate::thread::state(tls), address, signal == SIGBUS);
    tls::leave(tls);
    errno::set(saved);
    match found {
        MapFault::Filled => Fault::Mended,
        // Once more; if it was not another thread that put it in place, it comes back.
        MapFault::Perhaps if tls.touched.replace(address) != address => Fault::Mended,
        MapFault::Perhaps => {
            tls.touched.set(0);
            Fault::Program
        }
        MapFault::PastEnd => Fault::PastEnd(address),
        MapFault::NotOurs => Fault::Program,
    }
}

/// A signal without a handler ends the program when this handler returns.
fn end_by(came: c_int, signal: c_int) {
    if signal == came {
        return;
    }
    set_default(signal);
    // SAFETY: takes no arguments.
    let pid = unsafe { sys::raw(__NR_getpid as usize, [0; 6]) };
    // SAFETY: takes no arguments.
    let tid = unsafe { sys::raw(__NR_gettid as usize, [0; 6]) };
    queue(pid, tid, signal as u32, None);
}

/// Notes the signal and leaves it blocked in the interrupted context.
///
/// # Safety
/// `info` and `context` are the kernel's frame.
unsafe fn put_off(tls: &Tls, signal: c_int, info: *mut c_void, context: *mut c_void) {
    let bit = 1u64 << (signal - 1);
    if !info.is_null()
        && let Some(told) = tls.told.iter().find(|t| t.signal.get() == 0)
    {
        told.signal.set(signal as u32);
        // SAFETY: a `siginfo_t` is 128 bytes.
        told.info.set(unsafe { core::ptr::read_unaligned(info.cast()) });
    }
    tls.pending.set(tls.pending.get() | bit);
    // SAFETY: `uc_sigmask` lies there in this architecture's `ucontext_t`.
    let mask = unsafe { context.cast::<u8>().add(MASK_OFFSET).cast::<u64>() };
    // SAFETY: as above.
    unsafe { *mask |= bit };
}

/// Whether signals were put off and all their handlers ask for calls to be restarted.
pub fn all_restart(tls: &Tls) -> bool {
    let mut left = tls.pending.get();
    let any = left != 0;
    while left != 0 {
        let signal = left.trailing_zeros() as usize + 1;
        left &= left - 1;
        if SLOTS[signal].flags.load(Acquire) & SA_RESTART_BIT == 0 {
            return false;
        }
    }
    any
}

/// Raises again what was put off. The operation has ended.
#[cold]
pub fn deliver(tls: &Tls) {
    // SAFETY: takes no arguments.
    let pid = unsafe { sys::raw(__NR_getpid as usize, [0; 6]) };
    // SAFETY: takes no arguments.
    let tid = unsafe { sys::raw(__NR_gettid as usize, [0; 6]) };
    let pending = tls.pending.replace(0);
    // All are still blocked, so the list does not change meanwhile.
    for told in &tls.told[..TOLD_MAX] {
        let signal = told.signal.replace(0);
        if signal != 0 {
            let info = told.info.get();
            queue(pid, tid, signal, Some(&info));
        }
    }
    let mut left = pending;
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        left &= left - 1;
        // Harmless if it was queued above: a standard signal is pending once;
        // a real-time signal was queued with what the kernel told, if there was room.
        if signal < 32 {
            queue(pid, tid, signal, None);
        }
    }
    // SIG_UNBLOCK is 1: they arrive now, at depth 0.
    // SAFETY: the mask outlives the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 1, &raw const pending, 0, 8) };
}

fn queue(pid: isize, tid: isize, signal: u32, info: Option<&[u64; 16]>) {
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
        // SAFETY: the mask outlives the call.
        let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 1, &raw const pending, 0, 8) };
    }
}

fn set_default(signal: c_int) {
    let Some(next) = next!(SigAction, "sigaction") else { return };
    let action = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
    // SAFETY: a valid action.
    unsafe { next(signal, &action, core::ptr::null_mut()) };
}

/// `sigaction` with the program's handler behind the trampoline.
///
/// # Safety
/// As for `sigaction`.
unsafe fn change(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let Some(next) = next!(SigAction, "sigaction") else {
        errno::set(pm::Errno::ENOSYS.0);
        return -1;
    };
    let Some(slot) = usize::try_from(signal).ok().and_then(|s| SLOTS.get(s)) else {
        // SAFETY: by contract; libc refuses the number.
        return unsafe { next(signal, new, old) };
    };
    let before = (slot.handler.load(Acquire), slot.flags.load(Acquire));
    // SAFETY: by contract.
    let wanted = if new.is_null() { None } else { Some(unsafe { *new }) };
    if guest::is_here() {
        if !wanted.is_some_and(|action| action.handler != DEFAULT && action.handler != IGNORE) {
            // The slots are its parent's.
            // SAFETY: by contract.
            let result = unsafe { next(signal, new, old) };
            if result == 0 {
                // SAFETY: libc has just written it, if there is one.
                unsafe { show_own(old, before) };
            }
            return result;
        }
        if let Err(errno) = guest::settle(tls::get()) {
            errno::set(errno);
            return -1;
        }
    }
    let mut installed = wanted;
    if let Some(action) = &mut installed
        && action.handler != DEFAULT
        && action.handler != IGNORE
    {
        // First ours, so that a signal that comes at once finds its handler.
        slot.flags.store(action.flags as u32, Release);
        slot.handler.store(action.handler, Release);
        action.handler = trampoline as *const () as usize;
        action.flags = ((action.flags as u32 | SA_SIGINFO_BIT) & !SA_RESETHAND_BIT) as c_int;
    } else if let Some(action) = wanted
        && is_watched(signal)
        && WATCHING.load(Acquire)
    {
        slot.handler.store(action.handler, Release);
        installed = Some(watching());
    }
    let given = installed.as_ref().map_or(core::ptr::null(), |a| a as *const Action);
    // SAFETY: by contract.
    let result = unsafe { next(signal, given, old) };
    if result != 0 {
        slot.handler.store(before.0, Release);
        slot.flags.store(before.1, Release);
        return result;
    }
    // A fault may become another signal: who would handle that must be known.
    if let Some(action) = wanted {
        slot.flags.store(action.flags as u32, Release);
        slot.handler.store(action.handler, Release);
    }
    // SAFETY: libc has just written it, if there is one.
    unsafe { show_own(old, before) };
    0
}

/// The program sees its own handler.
///
/// # Safety
/// `old` is null or an action.
unsafe fn show_own(old: *mut Action, (handler, flags): (usize, u32)) {
    // SAFETY: by contract.
    if let Some(old) = unsafe { old.as_mut() }
        && old.handler == trampoline as *const () as usize
    {
        (old.handler, old.flags) = (handler, flags as c_int);
    }
}

/// The handler of `signal` is now `handler`; the one before.
///
/// # Safety
/// `handler` is a handler or `SIG_DFL`, `SIG_IGN`.
unsafe fn simple(signal: c_int, handler: usize, flags: u32) -> usize {
    if handler == FAILED || !(1..SIGNALS as c_int).contains(&signal) {
        errno::set(pm::Errno::EINVAL.0);
        return FAILED;
    }
    let mut mask = [0; 16];
    if flags & SA_RESTART_BIT != 0 {
        mask[0] = 1 << (signal - 1);
    }
    let new = Action { handler, mask, flags: flags as c_int, restorer: 0 };
    let mut old = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
    // SAFETY: valid actions.
    if unsafe { change(signal, &new, &mut old) } == 0 { old.handler } else { FAILED }
}

export! {
    fn [sigaction, __sigaction](signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        change(signal, new, old)
    }
    fn [signal, bsd_signal, ssignal](number: c_int, handler: usize) -> usize {
        simple(number, handler, SA_RESTART_BIT)
    }
    fn [sysv_signal, __sysv_signal](number: c_int, handler: usize) -> usize {
        simple(number, handler, SA_RESETHAND_BIT | SA_NODEFER_BIT)
    }
    fn sigset(signal: c_int, disposition: usize) -> usize {
        // SIG_HOLD is 2: block it and leave the handler.
        let mask = if (1..SIGNALS as c_int).contains(&signal) { 1u64 << (signal - 1) } else { 0 };
        let mut before = 0u64;
        let how = if disposition == 2 { 0 } else { 1 };
        let mut old = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
        if change(signal, core::ptr::null(), &mut old) != 0 {
            return FAILED;
        }
        let handler = if disposition == 2 { old.handler } else { simple(signal, disposition, 0) };
        if handler == FAILED {
            return FAILED;
        }
        let _ = pm::call!(__NR_rt_sigprocmask, how, &raw const mask, &raw mut before, 8);
        if before & mask != 0 { 2 } else { handler }
    }
}
