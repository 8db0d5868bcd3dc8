//! Signal handlers never run inside an operation of ours.
//!
//! `open`, `read`, `write`, `close` are async-signal-safe, so a handler may call
//! them at any moment; if it interrupted an operation of its own thread, it
//! would wait for itself. So the program's handlers are installed behind
//! [`trampoline`]: if the thread is inside an operation, the signal is noted,
//! left blocked, and raised again ([`operation::deliver`]) as soon as the operation ends.
//!
//! Signals that an instruction causes (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`,
//! `SIGTRAP`) are noted likewise where somebody has sent them, but never blocked: a blocked one ends the
//! program at the next fault. Where an instruction has caused them, see [`crate::runtime::faults`].

use crate::runtime::faults::Fault;
use crate::runtime::operation::{SIG_UNBLOCK, SIGBUS, SIGSEGV, SIGTRAP};
use crate::runtime::tls::Tls;
use crate::runtime::{dispatch, errno, faults, masks, operation, swap, tls};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use pm::sys::abi::*;

pub const SIGNALS: usize = 65;
pub const DEFAULT: usize = 0;
pub const IGNORE: usize = 1;
pub const SA_SIGINFO_BIT: u32 = 4;
pub const SA_RESETHAND_BIT: u32 = 0x8000_0000;
pub const SA_RESTART_BIT: u32 = 0x1000_0000;
/// What the program has set for a signal.
pub struct Slot {
    /// Its handler.
    pub handler: AtomicUsize,
    /// Its flags.
    pub flags: AtomicU32,
    /// What its mask has that the kernel has not been told of.
    pub hidden: AtomicU64,
}

static SLOTS: [Slot; SIGNALS] =
    [const { Slot { handler: AtomicUsize::new(DEFAULT), flags: AtomicU32::new(0), hidden: AtomicU64::new(0) } }; SIGNALS];

/// Of a signal; `None`: there is no such signal.
pub fn slot(signal: c_int) -> Option<&'static Slot> {
    usize::try_from(signal).ok().and_then(|signal| SLOTS.get(signal))
}

/// Our handler, as a word.
pub fn trampoline_address() -> usize {
    #[cfg(target_arch = "x86_64")]
    if swap::is_on() {
        return from_kernel as *const () as usize;
    }
    trampoline as *const () as usize
}

#[cfg(target_arch = "x86_64")]
crate::from_kernel!(from_kernel, trampoline, trampoline);

/// What the kernel calls for every handler of the program.
pub unsafe extern "C" fn trampoline(signal: c_int, info: *mut c_void, context: *mut c_void) {
    let tls = tls::get();
    let mut told = [0u64; 16];
    let (mut signal, mut info) = (signal, info);
    let came = signal;
    // Of another process's making, or of another thread's: it can wait.
    // SAFETY: the kernel's `siginfo_t`.
    let sent = !operation::is_synchronous(signal) || unsafe { faults::told(info) }.0 <= 0;
    if tls.depth.get() > 0 && (sent || signal == SIGTRAP) {
        // SAFETY: the kernel's own frame.
        unsafe { operation::put_off(tls, signal, info, context) };
        return;
    }
    if !sent {
        // SAFETY: the kernel's own frame.
        match unsafe { faults::handle(tls, signal, info, context) } {
            Fault::Done => return,
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
                operation::raise(signal as u32, None);
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
    let hidden = tls.hidden.get();
    // SAFETY: the program installed it as a handler, and it is called as the kernel would.
    unsafe { swap::call_handler(handler, signal, info, context) };
    // What the handler has blocked ends with it: the kernel gives the mask back from its frame.
    tls.hidden.set(hidden);
    // There is no operation to return to any more.
    // SAFETY: the kernel's own frame.
    if counter.is_some_and(|counter| counter == unsafe { *faults::counter(context) }) {
        set_default(signal);
        operation::raise(signal as u32, None);
    }
}

/// Whether our handler is in place for faults whatever the program does.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// See [`GUARDED`].
pub fn is_guarded() -> bool {
    GUARDED.load(Acquire)
}

/// Whether it is for what stops the program.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// `SIGTSTP`, `SIGTTIN`, `SIGTTOU`: what stops a program that has no handler. `SIGSTOP` cannot wait.
const STOPS: [c_int; 3] = [20, 21, 22];
const BUS_ADRERR: u64 = 2;
const SA_ONSTACK_BIT: u32 = 0x0800_0000;
const SA_NODEFER_BIT: usize = 0x4000_0000;

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

/// From now on `SIGSYS` goes to `handler`, at any time, on an alternate stack where there is one. What the program has
/// for it is kept as its own.
pub fn watch_calls(handler: usize) {
    let Some(slot) = slot(dispatch::SIGSYS) else { return };
    if let Some(old) = installed(dispatch::SIGSYS).filter(|old| old.handler != trampoline_address()) {
        slot.flags.store(old.flags as u32, Release);
        slot.handler.store(old.handler, Release);
    }
    CALLS_HANDLER.store(handler, Release);
    install_for_calls();
}

/// What `SIGSYS` goes to; 0: it is as any signal.
static CALLS_HANDLER: AtomicUsize = AtomicUsize::new(0);

fn install_for_calls() {
    let mut action = watching();
    action.handler = CALLS_HANDLER.load(Acquire);
    // What it leaves on the stack is not to be written over before it has returned.
    action.mask = !(1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1));
    action.flags |= SA_NODEFER_BIT;
    install(dispatch::SIGSYS, &action);
}

/// Puts our handler in the place of what there is for a signal, and keeps that as the program's. Who ignores a stop keeps
/// that: the kernel asks.
fn watch(signal: c_int) {
    let (Some(slot), Some(mut old)) = (SLOTS.get(signal as usize), installed(signal)) else { return };
    let is_handler = |handler| handler != DEFAULT && handler != IGNORE;
    if old.handler == trampoline_address() || is_stop(signal) && old.handler == IGNORE {
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
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelAction {
    /// The handler.
    pub handler: usize,
    /// Its flags.
    pub flags: usize,
    /// Where it returns to.
    pub restorer: usize,
    /// What is blocked meanwhile.
    pub mask: u64,
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
    /// Where a handler returns to: makes the call that ends it.
    pub fn bypath_restore();
}

/// The flags of our handler where the program has none.
pub const WATCHING_FLAGS: u32 = SA_SIGINFO_BIT | SA_ONSTACK_BIT | SA_RESTART_BIT;

/// The action for a signal for which the program has none, as the kernel takes it.
fn watching() -> KernelAction {
    with_restorer(trampoline_address(), WATCHING_FLAGS as usize, 0)
}

/// An action as the kernel takes it, which returns by ours.
pub fn with_restorer(handler: usize, flags: usize, mask: u64) -> KernelAction {
    #[cfg(target_arch = "x86_64")]
    let (flags, restorer) = {
        const SA_RESTORER_BIT: usize = 0x0400_0000;
        (flags | SA_RESTORER_BIT, bypath_restore as *const () as usize)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let restorer = 0;
    KernelAction { handler, flags, restorer, mask }
}

/// Whether our handler stays in place when the program has none.
pub fn is_watched(signal: c_int, handler: usize) -> bool {
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
    if !operation::is_synchronous(signal) || sent && handler == IGNORE {
        return;
    }
    set_default(signal);
    // What caused it is done again, and has its way; else it comes once more.
    if sent {
        // SAFETY: a `siginfo_t` is 128 bytes.
        let info = unsafe { core::ptr::read_unaligned(info.cast()) };
        operation::raise(signal as u32, Some(&info));
    }
}

/// Stops this process, as it would have been without our handler.
fn stop(signal: c_int) {
    let saved = errno::get();
    set_default(signal);
    operation::raise(signal as u32, None);
    // Here it stops.
    operation::change_mask(SIG_UNBLOCK, 1 << (signal - 1));
    // Unless somebody has set something else meanwhile.
    if SLOTS[signal as usize].handler.load(Acquire) == DEFAULT && !tls::get().is_vfork_child() {
        install(signal, &watching());
    }
    errno::set(saved);
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

/// The next program gets what this one believes to have: what it ignores, and its mask; `undo` if there is none.
pub fn pass_on(undo: bool) {
    if !GUARDED.load(Acquire) {
        return;
    }
    masks::pass_on(tls::get(), undo);
    for signal in [SIGSEGV, SIGBUS].into_iter().filter(|signal| ignores(*signal)) {
        // A child that is about to execute may have given the signal its default.
        let own = if undo { IGNORE } else { trampoline_address() };
        if installed(signal).is_some_and(|action| action.handler == own) {
            install(signal, &if undo { watching() } else { KernelAction::plain(IGNORE) });
        }
    }
    if CALLS_HANDLER.load(Acquire) != 0 && ignores(dispatch::SIGSYS) {
        // The program makes no calls between the two.
        if undo { install_for_calls() } else { install(dispatch::SIGSYS, &KernelAction::plain(IGNORE)) }
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
        let is_ignored = handler == IGNORE || handler == trampoline_address() && ignores(signal);
        let wanted = if is_ignored && defaults & 1 << (signal - 1) == 0 { IGNORE } else { DEFAULT };
        if handler != wanted {
            install(signal, &KernelAction::plain(wanted));
        }
    }
}

fn set_default(signal: c_int) {
    install(signal, &KernelAction::plain(DEFAULT));
}
