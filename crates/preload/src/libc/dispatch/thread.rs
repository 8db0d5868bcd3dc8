//! `pthread_create`, `thrd_create`: each thread asks the kernel anew for its calls ([`crate::runtime::dispatch`]).

use crate::next;
use crate::runtime::{alloc, dispatch};
use core::ffi::{c_int, c_void};

/// `thrd_error`.
const THREAD_ERROR: c_int = 2;

type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut usize, *const c_void, Routine, *mut c_void) -> c_int;
type CreateC11 = unsafe extern "C" fn(*mut usize, Routine, *mut c_void) -> c_int;

/// What a thread begins with.
struct Begin {
    routine: Routine,
    argument: *mut c_void,
}

unsafe extern "C" fn begin(at: *mut c_void) -> *mut c_void {
    // SAFETY: `create` made it for this thread alone.
    let Begin { routine, argument } = unsafe { at.cast::<Begin>().read() };
    // SAFETY: not used any more.
    unsafe { alloc::free(at.cast()) };
    dispatch::set_here();
    // SAFETY: as the program asked.
    unsafe { routine(argument) }
}

/// Makes a thread by `make`, which is told where it begins and with what.
fn create(routine: Routine, argument: *mut c_void, no_memory: c_int, make: impl FnOnce(Routine, *mut c_void) -> c_int) -> c_int {
    if !dispatch::is_on() {
        return make(routine, argument);
    }
    let at = alloc::alloc(size_of::<Begin>()).cast::<Begin>();
    if at.is_null() {
        return no_memory;
    }
    // SAFETY: the block is large enough and aligned to 16.
    unsafe { at.write(Begin { routine, argument }) };
    let result = make(begin, at.cast());
    if result != 0 {
        // SAFETY: there is no thread that has it.
        unsafe { alloc::free(at.cast()) };
    }
    result
}

export! {
    fn pthread_create(thread: *mut usize, attributes: *const c_void, routine: Routine, argument: *mut c_void) -> c_int {
        let Some(next) = next!(Create, "pthread_create") else { return pm::Errno::ENOSYS.0 };
        create(routine, argument, pm::Errno::EAGAIN.0, |routine, argument| next(thread, attributes, routine, argument))
    }
    // The routine returns an `int`, in a part of the same register.
    fn thrd_create(thread: *mut usize, routine: Routine, argument: *mut c_void) -> c_int {
        let Some(next) = next!(CreateC11, "thrd_create") else { return THREAD_ERROR };
        create(routine, argument, THREAD_ERROR, |routine, argument| next(thread, routine, argument))
    }
}
