//! Signal handlers never run inside an operation of ours.
//!
//! `open`, `read`, `write`, `close` are async-signal-safe, so a handler may call
//! them at any moment; if it interrupted an operation of its own thread, it
//! would wait for itself. So the program's handlers are installed behind
//! [`trampoline`]: if the thread is inside an operation, the signal is noted,
//! left blocked, and raised again ([`deliver`]) as soon as the operation ends.
//!
//! Signals that an instruction causes (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`,
//! `SIGTRAP`) are noted likewise where somebody has sent them, but never blocked: a blocked one ends the
//! program at the next fault. Where an instruction has caused them, see [`crate::faults`].

use crate::faults::{self, Fault};
use crate::tls::{self, TOLD_MAX, Tls};
use crate::{errno, guest, masks, next};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use pm::sys::{self, abi::*};

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
    /// What its mask has that the kernel has not been told of.
    hidden: AtomicU64,
}

static SLOTS: [Slot; SIGNALS] =
    [const { Slot { handler: AtomicUsize::new(DEFAULT), flags: AtomicU32::new(0), hidden: AtomicU64::new(0) } }; SIGNALS];

type Handler = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void);
type SigAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

fn is_synchronous(signal: c_int) -> bool {
    // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV
    matches!(signal, 4 | 5 | 7 | 8 | 11)
}

/// What the kernel calls for every handler of the program.
unsafe extern "C" fn trampoline(signal: c_int, info: *mut c_void, context: *mut c_void) {
    let tls = tls::get();
    let mut told = [0u64; 16];
    let (mut signal, mut info) = (signal, info);
    let came = signal;
    // Of another process's making, or of another thread's: it can wait.
    // SAFETY: the kernel's `siginfo_t`.
    let sent = !is_synchronous(signal) || unsafe { faults::told(info) }.0 <= 0;
    if tls.depth.get() > 0 && (sent || signal == SIGTRAP) {
        // SAFETY: the kernel's own frame.
        unsafe { put_off(tls, signal, info, context) };
        return;
    }
    if !sent {
        // SAFETY: the kernel's own frame.
        match unsafe { faults::mend(tls, signal, info, context) } {
            Fault::Mended => return,
            Fault::PastEnd(address) => {
                // As the kernel tells it.
                told[0] = SIGBUS as u64;
                (told[1], told[2]) = (BUS_ADRERR, address as u64);
                (signal, info) = (SIGBUS, told.as_mut_ptr().cast());
            }
            Fault::Program => {}
        }
    } else if masks::is_hidden(tls, signal) {
        // SAFETY: the kernel's own frame.
        return unsafe { masks::hold(signal, info, context) };
    }
    let Some(slot) = SLOTS.get(signal as usize) else { return };
    let handler = slot.handler.load(Acquire);
    let flags = slot.flags.load(Acquire);
    if handler == DEFAULT || handler == IGNORE {
        if told[0] != 0 {
            // What caused it is done again, unless that would be another signal.
            set_default(came);
            if came != signal {
                set_default(signal);
                raise(signal as u32, None);
            }
            return;
        }
        // SAFETY: the kernel's own frame.
        return unsafe { without_handler(signal, handler, sent, info) };
    }
    if flags & SA_RESETHAND_BIT != 0 {
        slot.handler.store(DEFAULT, Release);
        slot.flags.store(0, Release);
        if !is_watched(signal, DEFAULT) {
            set_default(signal);
        }
    }
    // SAFETY: the kernel's own frame.
    let counter = (tls.depth.get() > 0).then(|| unsafe { *faults::counter(context) });
    if counter.is_some() {
        faults::break_off(tls);
    }
    // SAFETY: the program installed it as a handler; one that takes only the
    // signal number ignores the other arguments.
    let handler: Handler = unsafe { core::mem::transmute(handler) };
    let hidden = tls.hidden.get();
    // SAFETY: as the kernel would call it.
    unsafe { handler(signal, info, context) };
    // What the handler has blocked ends with it: the kernel gives the mask back from its frame.
    tls.hidden.set(hidden);
    // There is no operation to return to any more.
    // SAFETY: the kernel's own frame.
    if counter.is_some_and(|counter| counter == unsafe { *faults::counter(context) }) {
        set_default(signal);
        raise(signal as u32, None);
    }
}

/// Whether our handler is in place for faults whatever the program does.
static GUARDED: AtomicBool = AtomicBool::new(false);
/// Whether it is for what stops the program.
static STOPPING: AtomicBool = AtomicBool::new(false);
const SIGTRAP: c_int = 5;
/// Bus error.
pub const SIGBUS: c_int = 7;
/// Segmentation fault.
pub const SIGSEGV: c_int = 11;
/// `SIGTSTP`, `SIGTTIN`, `SIGTTOU`: what stops a program that has no handler. `SIGSTOP` cannot wait.
const STOPS: [c_int; 3] = [20, 21, 22];
const BUS_ADRERR: u64 = 2;
const SA_ONSTACK_BIT: u32 = 0x0800_0000;

fn is_stop(signal: c_int) -> bool {
    STOPS.contains(&signal)
}

/// Installs what must be there whatever the program does, and takes over what is there.
pub fn start(tls: &Tls) {
    masks::start(tls);
    [SIGSEGV, SIGBUS].into_iter().for_each(watch);
    GUARDED.store(true, Release);
}

/// From the first call on that is ours: the keys of a terminal stop this process between two operations, and not with
/// others waiting for what it holds.
pub fn watch_stops() {
    STOPS.into_iter().for_each(watch);
    STOPPING.store(true, Release);
}

/// Puts our handler in the place of what there is for a signal, and keeps that as the program's. Who ignores a stop keeps
/// that: the kernel asks.
fn watch(signal: c_int) {
    let (Some(slot), Some(mut old)) = (SLOTS.get(signal as usize), installed(signal)) else { return };
    let is_handler = |handler| handler != DEFAULT && handler != IGNORE;
    if old.handler == trampoline as *const () as usize || is_stop(signal) && old.handler == IGNORE {
        return;
    }
    if is_handler(old.handler) && is_handler(slot.handler.load(Acquire)) {
        // Ours is in place already, behind a handler of a sanitizer.
        return;
    }
    slot.flags.store(old.flags as u32, Release);
    slot.handler.store(old.handler, Release);
    let mut action = watching();
    if is_handler(old.handler) {
        // Installed behind our back: as `change` would have done it.
        old.handler = action.handler;
        old.flags = (old.flags | SA_SIGINFO_BIT as usize) & !(SA_RESETHAND_BIT as usize);
        action = old;
    }
    install(signal, &action);
}

/// The kernel's own `struct sigaction`.
///
/// What we install for ourselves goes to the kernel: libc's function may be a sanitizer's, which falls over before its
/// runtime is up, and the first call of ours may be that runtime's.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    const fn plain(handler: usize) -> Self {
        KernelAction { handler, flags: 0, restorer: 0, mask: 0 }
    }
}

/// What the kernel has for a signal.
fn installed(signal: c_int) -> Option<KernelAction> {
    let mut old = KernelAction::plain(DEFAULT);
    // SAFETY: the action outlives the call.
    unsafe { pm::call!(__NR_rt_sigaction, signal, 0, &raw mut old, 8) }.ok().map(|_| old)
}

/// Tells the kernel what there is for a signal.
fn install(signal: c_int, action: &KernelAction) {
    // SAFETY: the action outlives the call; its handler is ours or the program's.
    let _ = unsafe { pm::call!(__NR_rt_sigaction, signal, core::ptr::from_ref(action), 0, 8) };
}

// Where a handler returns to; on other processors the kernel has its own. Debuggers and unwinders know it by these very
// bytes, and by no function's description that covers the byte before.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.bypath_restore, \"ax\", @progbits",
    ".balign 16",
    "nop",
    ".hidden bypath_restore",
    ".globl bypath_restore",
    ".type bypath_restore, @function",
    "bypath_restore:",
    // mov rax, 15 (rt_sigreturn), in its long form
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0",
    "syscall",
    ".size bypath_restore, . - bypath_restore",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn bypath_restore();
}

/// The flags of our handler where the program has none.
const WATCHING_FLAGS: u32 = SA_SIGINFO_BIT | SA_ONSTACK_BIT | SA_RESTART_BIT;

/// The action for a signal for which the program has none, as the kernel takes it.
fn watching() -> KernelAction {
    let mut action = KernelAction::plain(trampoline as *const () as usize);
    action.flags = WATCHING_FLAGS as usize;
    #[cfg(target_arch = "x86_64")]
    {
        const SA_RESTORER_BIT: usize = 0x0400_0000;
        action.flags |= SA_RESTORER_BIT;
        action.restorer = bypath_restore as *const () as usize;
    }
    action
}

/// Whether our handler stays in place when the program has none.
fn is_watched(signal: c_int, handler: usize) -> bool {
    match signal {
        SIGSEGV | SIGBUS => GUARDED.load(Acquire),
        _ => is_stop(signal) && handler == DEFAULT && STOPPING.load(Acquire),
    }
}

/// Whether this signal ends or stops the program for want of a handler, though the kernel has given it to ours.
///
/// # Safety
/// `info` is the kernel's.
#[cold]
unsafe fn without_handler(signal: c_int, handler: usize, sent: bool, info: *mut c_void) {
    if is_stop(signal) && handler == DEFAULT {
        return stop(signal);
    }
    if !is_synchronous(signal) || sent && handler == IGNORE {
        return;
    }
    set_default(signal);
    // What caused it is done again, and has its way; else it comes once more.
    if sent {
        // SAFETY: a `siginfo_t` is 128 bytes.
        let info = unsafe { core::ptr::read_unaligned(info.cast()) };
        raise(signal as u32, Some(&info));
    }
}

/// Stops this process, as it would have been without our handler.
fn stop(signal: c_int) {
    let saved = errno::get();
    set_default(signal);
    raise(signal as u32, None);
    let bit = 1u64 << (signal - 1);
    // Here it stops.
    // SAFETY: the mask outlives the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 1, &raw const bit, 0, 8) };
    // Unless somebody has set something else meanwhile.
    if SLOTS[signal as usize].handler.load(Acquire) == DEFAULT && !guest::is_here() {
        install(signal, &watching());
    }
    errno::set(saved);
}

/// The five that an instruction may cause.
const SYNCHRONOUS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;

/// Notes the signal and leaves it blocked in the interrupted context, if it may be.
///
/// # Safety
/// `info` and `context` are the kernel's frame.
unsafe fn put_off(tls: &Tls, signal: c_int, info: *mut c_void, context: *mut c_void) {
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

/// Whether signals were put off and all their handlers ask for calls to be restarted.
pub fn all_restart(tls: &Tls) -> bool {
    let mut left = tls.pending.get();
    let any = left != 0;
    while left != 0 {
        let signal = left.trailing_zeros() as usize + 1;
        left &= left - 1;
        let is_handled = SLOTS[signal].handler.load(Acquire) != DEFAULT;
        if is_handled && SLOTS[signal].flags.load(Acquire) & SA_RESTART_BIT == 0 {
            return false;
        }
    }
    any
}

/// Raises again what was put off. The operation has ended.
#[cold]
pub fn deliver(tls: &Tls) {
    let pending = tls.pending.replace(0);
    let unblocked = pending & SYNCHRONOUS;
    if unblocked != 0 {
        // SIG_BLOCK is 0.
        // SAFETY: the mask outlives the call.
        let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 0, &raw const unblocked, 0, 8) };
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
    // SIG_UNBLOCK is 1: they arrive now, at depth 0.
    // SAFETY: the mask outlives the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 1, &raw const pending, 0, 8) };
}

/// Sends this thread a signal, as the kernel has told it.
pub fn raise(signal: u32, info: Option<&[u64; 16]>) {
    // SAFETY: takes no arguments.
    let pid = unsafe { sys::raw(__NR_getpid as usize, [0; 6]) };
    // SAFETY: takes no arguments.
    let tid = unsafe { sys::raw(__NR_gettid as usize, [0; 6]) };
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

/// The next program gets what this one believes to have: what it ignores, and its mask; `undo` if there is none.
pub fn pass_on(undo: bool) {
    if !GUARDED.load(Acquire) {
        return;
    }
    masks::pass_on(tls::get(), undo);
    for signal in [SIGSEGV, SIGBUS].into_iter().filter(|signal| ignores(*signal)) {
        // A child that is about to execute may have given the signal its default.
        let own = if undo { IGNORE } else { trampoline as *const () as usize };
        if installed(signal).is_some_and(|action| action.handler == own) {
            install(signal, &if undo { watching() } else { KernelAction::plain(IGNORE) });
        }
    }
}

/// Whether the program ignores a signal, whatever the kernel has been told.
fn ignores(signal: c_int) -> bool {
    SLOTS[signal as usize].handler.load(Acquire) == IGNORE
}

/// Whether a child that libc makes by itself would begin with another mask, or ignore other signals, than this thread
/// believes to.
pub fn libc_would_pass_others(tls: &Tls) -> bool {
    GUARDED.load(Acquire) && (tls.hidden.get() != 0 || ignores(SIGSEGV) || ignores(SIGBUS))
}

/// In a child that is about to execute: no handler of its parent's runs there. What is ignored stays so, unless it is
/// one of `defaults`. Changes no memory, which may be the parent's.
pub fn reset_handlers(defaults: u64) {
    for signal in 1..SIGNALS as c_int {
        let Some(KernelAction { handler, .. }) = installed(signal) else { continue };
        let is_ignored = handler == IGNORE || handler == trampoline as *const () as usize && ignores(signal);
        let wanted = if is_ignored && defaults & 1 << (signal - 1) == 0 { IGNORE } else { DEFAULT };
        if handler != wanted {
            install(signal, &KernelAction::plain(wanted));
        }
    }
}

fn set_default(signal: c_int) {
    install(signal, &KernelAction::plain(DEFAULT));
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
    let before = (slot.handler.load(Acquire), slot.flags.load(Acquire), slot.hidden.load(Acquire));
    let mut wanted = None;
    if !new.is_null() {
        // SAFETY: by contract.
        match unsafe { pm::faults::read(new) } {
            Ok(action) => wanted = Some(action),
            Err(errno) => {
                errno::set(errno.0);
                return -1;
            }
        }
    }
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
        if GUARDED.load(Acquire) {
            slot.hidden.store(action.mask[0] & masks::FAULTS, Release);
            action.mask[0] &= !masks::FAULTS;
        }
    } else if let Some(action) = wanted
        && is_watched(signal, action.handler)
    {
        slot.handler.store(action.handler, Release);
        let handler = trampoline as *const () as usize;
        installed = Some(Action { handler, mask: [0; 16], flags: WATCHING_FLAGS as c_int, restorer: 0 });
    }
    let given = installed.as_ref().map_or(core::ptr::null(), |a| a as *const Action);
    // SAFETY: by contract.
    let result = unsafe { next(signal, given, old) };
    if result != 0 {
        slot.handler.store(before.0, Release);
        slot.flags.store(before.1, Release);
        slot.hidden.store(before.2, Release);
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
unsafe fn show_own(old: *mut Action, (handler, flags, hidden): (usize, u32, u64)) {
    // SAFETY: by contract.
    if let Some(old) = unsafe { old.as_mut() }
        && old.handler == trampoline as *const () as usize
    {
        (old.handler, old.flags) = (handler, flags as c_int);
        old.mask[0] |= hidden;
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
        let how = if disposition == 2 { 0 } else { 1 };
        let mut old = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
        if change(signal, core::ptr::null(), &mut old) != 0 {
            return FAILED;
        }
        let handler = if disposition == 2 { old.handler } else { simple(signal, disposition, 0) };
        if handler == FAILED {
            return FAILED;
        }
        let before = masks::change_older(how, mask).unwrap_or(0);
        if before & mask != 0 { 2 } else { handler }
    }
}
