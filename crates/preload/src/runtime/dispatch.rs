//! System calls that the program makes by instructions of its own: the kernel hands them back to us ([`pm::dispatch`]), as
//! `SIGSYS`.
//!
//! Only calls from one range of addresses come, the program's code; libc, the loader, the vDSO and this library stand outside
//! and call as ever. Where the kernel knows no such range, all that stands below them is one.
//!
//! Invariants
//! - What the kernel keeps of it is a thread's, and children begin without: each thread, and each child of fork and vfork, sets
//!   it anew ([`set_here`]). `exec` ends it.
//! - `SIGSYS` is never blocked where code of the program runs: the kernel would end it
//!   ([`crate::runtime::masks`] keeps the signal out of what the program sets).

use crate::runtime::operation::SIG_UNBLOCK;
use crate::runtime::tls::Tls;
use crate::runtime::{alloc, operation, tls};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use pm::dispatch::{How, hand_back, hand_back_all_but, how};

/// The signal.
pub const SIGSYS: i32 = 31;
/// It, as a mask.
pub const MASK: u64 = 1 << (SIGSYS - 1);
/// `SYS_USER_DISPATCH`: `si_code` of what the kernel hands back.
pub const HANDED_BACK: i32 = 2;

/// Begin and end of the range; 0: there is none.
static RANGE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// Whether the range is that of the calls that do not come.
static ALL_BUT: AtomicBool = AtomicBool::new(false);

/// Whether the program calls on stacks that have no room for us.
static SWITCHES: AtomicBool = AtomicBool::new(false);
/// For what a call of ours needs, and more.
const STACK_BYTES: usize = 64 << 10;

/// Whether this kernel can.
pub fn is_possible() -> bool {
    is_on() || how() != How::Never
}

/// Whether calls of the program's own come to us.
#[inline]
pub fn is_on() -> bool {
    RANGE.1.load(Acquire) != 0
}

/// From now on the calls made in `range` come to our handler, which must be in place, beside those that come already; code of
/// libc, the loader and ours is in `outside`. Whether that can be had.
pub fn extend(range: &Range<usize>, outside: &[Range<usize>]) -> bool {
    let (begin, end) = (RANGE.0.load(Acquire), RANGE.1.load(Acquire));
    let range = if end == 0 { range.clone() } else { begin.min(range.start)..end.max(range.end) };
    let begin = match how() {
        How::Only => range.start,
        How::Below => 0,
        How::Never => return false,
    };
    if outside.iter().any(|other| begin < other.end && other.start < range.end) {
        return false;
    }
    RANGE.0.store(range.start, Release);
    RANGE.1.store(range.end, Release);
    set_here();
    true
}

/// From now on all calls come but those made in `own`, where all code of ours is. The handler must be in place.
pub fn all_but(own: &Range<usize>) -> bool {
    ALL_BUT.store(true, Release);
    RANGE.0.store(own.start, Release);
    RANGE.1.store(own.end, Release);
    set_here()
}

/// From now on calls are served on a stack of ours, in this thread and those that begin.
pub fn switch_stacks() {
    SWITCHES.store(true, Release);
}

/// Whether they are.
pub fn switches_stacks() -> bool {
    SWITCHES.load(Acquire)
}

/// The thread ends.
pub fn give_stack_back(tls: &Tls) {
    if let Some(begin) = tls.service_stack.replace(0).checked_sub(STACK_BYTES) {
        // SAFETY: made below; no call of this thread's is served any more.
        unsafe { alloc::free(begin as *mut u8) };
    }
}

/// From now on this thread's calls are served on a stack of ours.
pub fn ready_stack(tls: &Tls) {
    if tls.service_stack.get() == 0 {
        let begin = alloc::alloc_pages(STACK_BYTES);
        if !begin.is_null() {
            tls.service_stack.set(begin as usize + STACK_BYTES);
        }
    }
}

/// Code of the program's that may be changed: pairs of begin and end.
static CODE: [(AtomicUsize, AtomicUsize); CODES_MAX] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; CODES_MAX];
/// So many objects with such calls; the sites of others stay as they are.
const CODES_MAX: usize = 16;

/// Calls that often come from a site in `code`, which comes from a file and stays, may come another way.
pub fn note_code(code: &Range<usize>) {
    for (begin, end) in &CODE {
        match begin.compare_exchange(0, code.start, AcqRel, Acquire) {
            Ok(_) => return end.store(code.end, Release),
            Err(start) if start == code.start => return,
            Err(_) => {}
        }
    }
}

fn ends_of_code(at: usize) -> Option<usize> {
    let mut codes = CODE.iter().map(|(begin, end)| begin.load(Acquire)..end.load(Acquire));
    codes.find(|code| code.contains(&at)).map(|code| code.end)
}

/// Whether an address is in such code.
pub fn is_code(at: usize) -> bool {
    ends_of_code(at).is_some()
}

/// At most `len` bytes of such code.
pub fn code_from(at: usize, len: usize) -> Option<&'static [u8]> {
    let end = ends_of_code(at)?;
    // SAFETY: a call has come from there, so it is there; the rest of a segment lies behind it.
    Some(unsafe { core::slice::from_raw_parts(at as *const u8, len.min(end - at)) })
}

/// Whether libraries that are not ours serve calls.
static LIBRARIES: AtomicBool = AtomicBool::new(false);

/// From now on some do.
pub fn serve_with_libraries() {
    LIBRARIES.store(true, Release);
}

/// Whether some do: they may change registers that our code has no use for.
pub fn serves_with_libraries() -> bool {
    LIBRARIES.load(Acquire)
}

/// Looks at a fault by its reason and frame; whether it is dealt with.
pub type Look = unsafe fn(i32, *mut core::ffi::c_void) -> bool;
static LOOK: AtomicUsize = AtomicUsize::new(0);
static GIVE_UP: AtomicUsize = AtomicUsize::new(0);

/// From now on, as code of the program's may be changed: who looks at faults first, and who changes it back.
pub fn set_traps(look: Look, give_up: fn()) {
    GIVE_UP.store(give_up as *const () as usize, Release);
    LOOK.store(look as *const () as usize, Release);
}

/// A fault: whether it came from code that was changed, and is dealt with.
///
/// # Safety
/// `context` is the kernel's `ucontext_t`.
pub unsafe fn at_fault(code: i32, context: *mut core::ffi::c_void) -> bool {
    let look = LOOK.load(Acquire);
    // SAFETY: `set_traps` has it from such a function; the rest by contract.
    look != 0 && unsafe { core::mem::transmute::<usize, Look>(look)(code, context) }
}

/// Code that was changed is as it was, and stays so: somebody without words of ours is about to run in it.
pub fn give_sites_up() {
    let give_up = GIVE_UP.load(Acquire);
    if give_up != 0 {
        // SAFETY: as above.
        unsafe { core::mem::transmute::<usize, fn()>(give_up)() };
    }
}

/// In a thread or child that has just begun. Whether the calls come, where they shall.
pub fn set_here() -> bool {
    if !is_on() {
        return true;
    }
    if switches_stacks() {
        ready_stack(tls::get());
    }
    operation::change_mask(SIG_UNBLOCK, MASK);
    let range = RANGE.0.load(Acquire)..RANGE.1.load(Acquire);
    if ALL_BUT.load(Acquire) { hand_back_all_but(&range) } else { hand_back(&range) }
}
