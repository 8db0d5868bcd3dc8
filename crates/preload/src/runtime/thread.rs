//! The state of each thread that `posix` asks for.
//!
//! The first thread's is a static (pages appear as they are touched); the others
//! get a mapping of their own, given back by a key destructor when they end.

use crate::runtime::tls::Tls;
use crate::runtime::{alloc, count, dispatch, panic, tls};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use posix::{Room, ThreadState};

#[link(name = "c")]
unsafe extern "C" {
    fn pthread_key_create(key: *mut c_int, destructor: unsafe extern "C" fn(*mut c_void)) -> c_int;
    fn pthread_setspecific(key: c_int, value: *const c_void) -> c_int;
}

/// A state and its room; all zeroes is a fresh pair, which has not met.
#[repr(C)]
struct Pair(ThreadState, Room);

struct First(UnsafeCell<Pair>);
// SAFETY: only the thread that set `FIRST_TAKEN` uses it.
unsafe impl Sync for First {}
static FIRST: First = First(UnsafeCell::new(Pair(ThreadState::new(), Room::new())));
static FIRST_TAKEN: AtomicU32 = AtomicU32::new(0);

/// 0: not made, 1: being made, 2 + key: made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The calling thread's state. Must be called with `depth` > 0, so that no
/// signal handler comes between.
#[inline]
pub fn state(tls: &Tls) -> &'static ThreadState {
    let at = tls.state.get();
    // SAFETY: the pointer leads to this thread's own state, which lives until the thread ends.
    if at.is_null() { make(tls) } else { unsafe { &*at.cast() } }
}

#[cold]
fn make(tls: &Tls) -> &'static ThreadState {
    let first = FIRST.0.get();
    let at: *mut Pair = if FIRST_TAKEN.swap(1, AcqRel) == 0 {
        first
    } else {
        let at = alloc::alloc_pages(size_of::<Pair>()).cast::<Pair>();
        if at.is_null() {
            crate::complain!("no memory for a thread's state");
            panic::abort();
        }
        at
    };
    // SAFETY: zeroed memory of the right size and alignment, this thread's alone.
    let (state, room) = unsafe { (&(*at).0, &mut (*at).1) };
    state.begin(room);
    tls.state.set(at.cast());
    if at != first {
        give_back_at_end(at.cast());
        // It may be one of libc's own, which begins without us.
        dispatch::set_here();
    }
    state
}

fn give_back_at_end(at: *mut u8) {
    let key = KEY.load(Acquire);
    if key >= 2 {
        // SAFETY: the key was made below.
        unsafe { pthread_setspecific((key - 2) as c_int, at.cast()) };
    } else if KEY.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
        let mut made: c_int = 0;
        // SAFETY: `made` outlives the call; the destructor has the right shape.
        if unsafe { pthread_key_create(&mut made, end) } == 0 {
            KEY.store(made as u32 + 2, Release);
            // SAFETY: the key was just made.
            unsafe { pthread_setspecific(made, at.cast()) };
        }
    }
    // A thread that meets the key half made keeps its state for good: a few pages.
}

/// The thread ends. Its lanes go back with its robust mutexes.
unsafe extern "C" fn end(at: *mut c_void) {
    let tls = tls::get();
    dispatch::give_stack_back(tls);
    if tls.state.get() == at.cast() {
        count::add(tls);
        tls.state.set(core::ptr::null_mut());
        // SAFETY: made by `alloc_pages`; nobody refers to it any more.
        unsafe { alloc::free(at.cast()) };
    }
}

/// In a forked child: this thread holds nothing any more.
pub fn reset(tls: &Tls) {
    let at = tls.state.get();
    if !at.is_null() {
        // SAFETY: this thread's own state.
        let state = unsafe { &*at.cast::<ThreadState>() };
        state.thread.lanes.iter().for_each(|lane| lane.set(0));
    }
}
