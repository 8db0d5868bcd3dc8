//! `sigaction`, `signal` and their kin: the program's handlers are installed behind ours ([`crate::runtime::signals`]), and
//! the program sees its own.

use super::masks;
use crate::next;
use crate::runtime::masks::kept;
use crate::runtime::signals::{
    DEFAULT, IGNORE, KernelAction, SA_RESETHAND_BIT, SA_RESTART_BIT, SA_SIGINFO_BIT, SIGNALS, WATCHING_FLAGS, is_guarded,
    is_watched, slot, trampoline_address, with_restorer,
};
use crate::runtime::{dispatch, errno, phase, swap, tls, vfork_child};
use core::ffi::c_int;
use core::sync::atomic::Ordering::*;
use pm::sys::abi::__NR_rt_sigaction;

const FAILED: usize = usize::MAX;
const SA_NODEFER_BIT: u32 = 0x4000_0000;

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

type SigAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

/// `sigaction` with the program's handler behind the trampoline.
///
/// # Safety
/// As for `sigaction`.
unsafe fn change(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let Some(next) = (if swap::is_on() { Some(by_kernel as SigAction) } else { next!(SigAction, "sigaction") }) else {
        errno::set(pm::Errno::ENOSYS.0);
        return -1;
    };
    let Some(slot) = slot(signal) else {
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
    if signal == dispatch::SIGSYS && dispatch::is_on() {
        // Ours stays in place, and calls the program's for what is none of our calls. A child by vfork has its parent's.
        if let Some(action) = wanted.filter(|_| !tls::get().is_vfork_child()) {
            slot.flags.store(action.flags as u32, Release);
            slot.hidden.store(action.mask[0], Release);
            slot.handler.store(action.handler, Release);
        }
        let mut mask = [0; 16];
        mask[0] = before.2;
        let shown = Action { handler: before.0, mask, flags: before.1 as c_int, restorer: 0 };
        // SAFETY: by contract.
        if !old.is_null() && unsafe { pm::faults::write(old, &shown) }.is_err() {
            errno::set(pm::Errno::EFAULT.0);
            return -1;
        }
        return 0;
    }
    if tls::get().is_vfork_child() {
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
        if let Err(errno) = vfork_child::settle(tls::get()) {
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
        action.handler = trampoline_address();
        action.flags = ((action.flags as u32 | SA_SIGINFO_BIT) & !SA_RESETHAND_BIT) as c_int;
        if is_guarded() {
            slot.hidden.store(action.mask[0] & kept(), Release);
            action.mask[0] &= !kept();
        }
    } else if let Some(action) = wanted
        && is_watched(signal, action.handler)
    {
        slot.handler.store(action.handler, Release);
        let handler = trampoline_address();
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

/// What libc's function does, for signals that libc keeps for itself too: those of a program with a libc of its own.
///
/// # Safety
/// As for `sigaction`.
unsafe extern "C" fn by_kernel(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: by contract.
    let given = unsafe { new.as_ref() }.map(|new| with_restorer(new.handler, new.flags as u32 as usize, new.mask[0]));
    let mut before = KernelAction { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
    let place = given.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both outlive the call; the handler is ours, or none.
    if let Err(errno) = unsafe { pm::call!(__NR_rt_sigaction, signal, place, &raw mut before, 8) } {
        errno::set(errno.0);
        return -1;
    }
    // SAFETY: by contract.
    if let Some(old) = unsafe { old.as_mut() } {
        let mut mask = [0; 16];
        mask[0] = before.mask;
        *old = Action { handler: before.handler, mask, flags: before.flags as c_int, restorer: 0 };
    }
    0
}

/// The program sees its own handler.
///
/// # Safety
/// `old` is null or an action.
unsafe fn show_own(old: *mut Action, (handler, flags, hidden): (usize, u32, u64)) {
    // SAFETY: by contract.
    if let Some(old) = unsafe { old.as_mut() }
        && old.handler == trampoline_address()
    {
        (old.handler, old.flags) = (handler, flags as c_int);
        old.mask[0] |= hidden;
    }
}

/// The same by its number; the kernel-style result.
///
/// # Safety
/// As for `rt_sigaction`.
pub unsafe fn by_number(args: [usize; 6]) -> isize {
    let [number, new, old, bytes, ..] = args;
    let (signal, new, old) = (number as c_int, new as *const KernelAction, old as *mut KernelAction);
    let bad_address = -(pm::Errno::EFAULT.0 as isize);
    let mut wanted = None;
    if !new.is_null() {
        // SAFETY: by contract.
        match unsafe { pm::faults::read(new) } {
            Ok(action) => wanted = Some(action),
            Err(_) => return bad_address,
        }
    }
    // libc keeps two signals for itself, and does not let them be changed by its function.
    if bytes != 8 || !phase::is_mounted() || matches!(signal, 32 | 33) && !swap::is_on() {
        let kept_out = wanted.map(|action| KernelAction { mask: action.mask & !kept(), ..action });
        let place = kept_out.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: by contract.
        return unsafe { pm::sys::raw(__NR_rt_sigaction as usize, [number, place as usize, old as usize, bytes, 0, 0]) };
    }
    let long = |mask: u64| core::array::from_fn(|at| if at == 0 { mask } else { 0 });
    let given = wanted.map(|action| Action {
        handler: action.handler,
        mask: long(action.mask),
        flags: action.flags as c_int,
        restorer: action.restorer,
    });
    let mut before = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };
    let place = given.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: actions of ours, with the program's handler.
    if unsafe { change(signal, place, &mut before) } != 0 {
        return -(errno::get() as isize);
    }
    let Action { handler, mask, flags, restorer } = before;
    let before = KernelAction { handler, flags: flags as u32 as usize, restorer, mask: mask[0] };
    // SAFETY: by contract.
    if !old.is_null() && unsafe { pm::faults::write(old, &before) }.is_err() { bad_address } else { 0 }
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
