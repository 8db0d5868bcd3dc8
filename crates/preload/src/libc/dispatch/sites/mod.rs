//! Sites in the program's own code whose calls come often get a jump to us: no way through the kernel.
//!
//! ```text
//! program:  syscall ; mov %rax,%rdi      becomes   jmp stub            (5 bytes or more)
//! stub:     lea moved(%rip),%rcx ; jmp entry ; hlt ; moved: mov %rax,%rdi ; jmp back
//! ```
//! Nothing is searched for: a site is known by a call that came from it ([`count`]), so that where its instructions begin is
//! certain. It is done while other threads run in it, and whatever leads into the middle of it is met:
//!
//! - A stub lies where the distance to it has a `hlt` in its second byte, which is where the second instruction was. Who comes
//!   there, from wherever, faults, and goes on with its copy in the stub ([`at_fault`]). No other instruction began under the jump.
//! - Only single bytes are changed where an instruction begins, to and from `hlt`, and all processors are made to look anew
//!   between two changes ([`mod@write`]).
//! - Calls that need the registers of a signal's frame, or must have no frame below them, come by the stub's own `hlt`.
//! - Where musl has no room behind its one call for all that can be cancelled, the jump is in the place of what is in front of it.
//! - What the copy does wrong it has done at its own place: a fault's counter is changed before the program hears of it.
//!
//! All but what [`posix::call_sites`] knows stays as it is, and its calls come as before. A child by `clone` that shares memory with a
//! program that the loader has loaded has no words of ours: before it begins, all sites are as they were ([`give_up`]).

mod copies;
mod entry;
mod write;

use super::{Frame, serve_call, take_call};
use crate::runtime::dispatch::is_code;
use crate::runtime::{dispatch, operation, swap, tls};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use pm::sys::abi::*;
use posix::call_sites::{CALL, JUMP_BYTES, TRAP};

/// The call of a site that makes it one with a jump: the first ones may be all.
const OFTEN: u32 = 4;
/// Sites that are counted; others stay as they are.
const PLACES: usize = 512;
/// How far a site may be from its place.
const NEAR: usize = 16;
/// Faults where something must not be done, or there is no such address.
const BY_KERNEL: i32 = 128;
/// What was where a jump is.
const BEGIN: u8 = CALL[0];
const BEGIN_BEFORE: u8 = 0x4c;

/// What is known of a site.
struct Place {
    /// Where it is; 0: free.
    site: AtomicUsize,
    /// Calls that came from it.
    calls: AtomicU32,
    /// Whether the jump is in the place of what was in front of it.
    is_before: AtomicBool,
    /// Its stub; 0: it has none.
    stub: AtomicUsize,
}

impl Place {
    const fn free() -> Place {
        Place {
            site: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            is_before: AtomicBool::new(false),
            stub: AtomicUsize::new(0),
        }
    }

    /// Its stub, if there is one.
    fn stub(&self) -> Option<usize> {
        Some(self.stub.load(Acquire)).filter(|stub| *stub != 0)
    }

    /// Where the jump is.
    fn jump(&self) -> usize {
        self.site.load(Acquire) - if self.is_before.load(Relaxed) { JUMP_BYTES } else { 0 }
    }

    /// Where the program goes on after a call.
    fn next(&self) -> Option<usize> {
        self.stub().map(|stub| stub + write::BEFORE + if self.is_before.load(Relaxed) { JUMP_BYTES } else { 0 })
    }

    /// Where somebody goes on who came to `counter`, where code was changed.
    fn instead(&self, counter: usize) -> Option<usize> {
        match counter.wrapping_sub(self.jump()) {
            0 => self.stub(),
            2 if !self.is_before.load(Relaxed) => self.next(),
            _ => None,
        }
    }

    /// Where the instruction was that now is at `counter`, in its stub.
    fn original(&self, counter: usize) -> Option<usize> {
        let is_before = self.is_before.load(Relaxed);
        let copy = if is_before { self.stub() } else { self.next() };
        (copy == Some(counter)).then(|| self.jump() + if is_before { 0 } else { CALL.len() })
    }
}

static KNOWN: [Place; PLACES] = [const { Place::free() }; PLACES];
/// Somebody changes sites.
static LOCKED: AtomicBool = AtomicBool::new(false);
/// Nobody may any more.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Where the jumps lead.
static ENTRY: AtomicUsize = AtomicUsize::new(0);

/// From now on sites get jumps, where this processor can.
pub fn start() {
    let all = dispatch::serves_with_libraries() || !copies::start();
    // The entry needs a register that leads to this thread's words, before it has a stack.
    if !swap::is_by_table() && entry::learn(all) {
        ENTRY.store(entry::address(swap::is_on(), all), Release);
        dispatch::set_traps(at_fault, give_up);
    } else {
        GIVEN_UP.store(true, Release);
    }
}

/// The place of a site, or a free one that becomes its own.
fn place(site: usize, is_new: bool) -> Option<&'static Place> {
    let first = site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    for step in 0..NEAR {
        let place = &KNOWN[(first + step) % PLACES];
        match place.site.load(Acquire) {
            0 if !is_new => return None,
            0 => match place.site.compare_exchange(0, site, AcqRel, Acquire) {
                Err(other) if other != site => {}
                _ => return Some(place),
            },
            other if other == site => return Some(place),
            _ => {}
        }
    }
    None
}

/// A call has come from before `counter` by the kernel; where it goes on instead, if its site has got a jump.
pub fn count(counter: usize) -> Option<usize> {
    let site = counter.wrapping_sub(CALL.len());
    if GIVEN_UP.load(Relaxed) || !is_code(site) {
        return None;
    }
    let place = place(site, true)?;
    let is_due = place.calls.fetch_add(1, Relaxed) == OFTEN - 1;
    if !is_due || place.stub().is_some() || tls::get().is_vfork_child() {
        return None;
    }
    alone(|| write::redirect(place, site, ENTRY.load(Acquire)))?
}

/// Runs `run` while nobody else changes sites and no handler runs; `None`: somebody does.
fn alone<R>(run: impl FnOnce() -> R) -> Option<R> {
    let mask = operation::block_signals();
    let result = (!LOCKED.swap(true, Acquire) && !GIVEN_UP.load(Acquire)).then(|| {
        let result = run();
        LOCKED.store(false, Release);
        result
    });
    operation::set_signals(mask);
    result
}

/// All sites are as they were, for good; threads that are in a stub go on.
fn give_up() {
    if swap::is_on() || GIVEN_UP.load(Acquire) {
        return;
    }
    let mask = operation::block_signals();
    // Whoever has it has no signals, and is about to be done.
    while LOCKED.swap(true, Acquire) {
        // SAFETY: takes no arguments.
        let _ = unsafe { pm::call!(__NR_sched_yield) };
    }
    GIVEN_UP.store(true, Release);
    KNOWN.iter().filter(|place| place.stub().is_some()).for_each(write::restore);
    LOCKED.store(false, Release);
    operation::set_signals(mask);
}

/// A fault with this reason: whether it is dealt with. One of a copy becomes one of the original.
///
/// # Safety
/// `context` is the kernel's `ucontext_t`.
unsafe fn at_fault(code: i32, context: *mut c_void) -> bool {
    // SAFETY: by contract.
    let registers = unsafe { super::registers(context) };
    let counter = registers[super::IP];
    if write::is_stub(counter) {
        // SAFETY: the instruction that faults.
        if code == BY_KERNEL && unsafe { *(counter as *const u8) } == TRAP {
            registers[super::IP] = counter + 1;
            // Until this handler has returned, as with the one for calls.
            operation::block_signals();
            // SAFETY: by contract.
            unsafe { take_call(registers) };
            return true;
        }
        if let Some(original) = KNOWN.iter().find_map(|place| place.original(counter)) {
            registers[super::IP] = original;
        }
        return false;
    }
    if code != BY_KERNEL || !is_code(counter) {
        return false;
    }
    // SAFETY: the instruction that has faulted, or what another thread has made of it since.
    if !matches!(unsafe { *(counter as *const u8) }, TRAP | write::JUMP | BEGIN | BEGIN_BEFORE) {
        return false;
    }
    let instead = KNOWN.iter().find_map(|place| place.instead(counter));
    if let Some(instead) = instead {
        registers[super::IP] = instead;
    }
    instead.is_some()
}

/// A call from a stub; the kernel-style result.
///
/// # Safety
/// As for the system call; `args` are six words, `frame` is the entry's.
unsafe extern "C" fn serve_site(nr: usize, args: *const [usize; 6], frame: *mut Frame) -> isize {
    let special = match nr as u32 {
        __NR_rt_sigreturn | __NR_exit | __NR_exit_group | __NR_clone | __NR_clone3 | __NR_fork | __NR_vfork => true,
        // A thread may give up the stack that it is on.
        __NR_munmap => swap::is_on(),
        _ => false,
    };
    if special {
        // SAFETY: by contract. In front of the copy is what faults.
        unsafe { (*frame).counter -= 1 };
        return nr as isize;
    }
    // SAFETY: by contract.
    unsafe { serve_call(nr, args, frame) }
}
