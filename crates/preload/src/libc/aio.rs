//! POSIX asynchronous I/O on our files: done at once, in the caller's thread, and
//! reported as finished. libc's own would make the calls in threads of its own,
//! past all symbols. `aio_error`, `aio_return` and `aio_suspend` are libc's: they look
//! into the control block, where the result is.

use crate::runtime::call::is_ours;
use crate::runtime::front_end::PROCESS;
use crate::runtime::kernel::Who;
use crate::runtime::{call, errno, kernel};
use core::ffi::{c_int, c_void};

use pm::Errno;
use pm::sys::abi;

use crate::{next, serve};

/// `struct sigevent`, as far as it is used.
#[repr(C)]
pub struct Notice {
    value: usize,
    signal: c_int,
    how: c_int,
    function: Option<extern "C" fn(usize)>,
    attributes: *const c_void,
    rest: [u64; 4],
}

/// `struct aiocb`.
#[repr(C)]
pub struct Control {
    fd: c_int,
    opcode: c_int,
    priority: c_int,
    buffer: *mut c_void,
    bytes: usize,
    notice: Notice,
    link: *mut c_void,
    internal: [c_int; 2],
    error: c_int,
    result: isize,
    offset: i64,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Control>() == 168 && core::mem::offset_of!(Control, error) == 112);

const READ: c_int = 0;
const WRITE: c_int = 1;
const NO_OPERATION: c_int = 2;
const WAIT: c_int = 0;
const ALL_DONE: c_int = 2;
const BY_SIGNAL: c_int = 0;
const BY_THREAD: c_int = 2;
const SI_ASYNCIO: c_int = -4;

type OnControl = unsafe extern "C" fn(*mut Control) -> c_int;
type Sync = unsafe extern "C" fn(c_int, *mut Control) -> c_int;
type Cancel = unsafe extern "C" fn(c_int, *mut Control) -> c_int;
type List = unsafe extern "C" fn(c_int, *const *mut Control, c_int, *mut Notice) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut usize, *const c_void, Start, *mut c_void) -> c_int;

/// Tells the program that an operation is done, as it asked to be told.
unsafe fn notify(notice: *const Notice) {
    // SAFETY: the program's structure.
    let notice = unsafe { &*notice };
    if notice.how == BY_SIGNAL && notice.signal != 0 {
        let (pid, uid) = (kernel::own(Who::Process), kernel::own(Who::User));
        let mut info = [0u32; 32];
        info[0] = notice.signal as u32;
        info[2] = SI_ASYNCIO as u32;
        info[4] = pid;
        info[5] = uid;
        info[6] = notice.value as u32;
        info[7] = (notice.value >> 32) as u32;
        // SAFETY: 128 bytes, a whole `siginfo_t`.
        let _ = unsafe { pm::call!(abi::__NR_rt_sigqueueinfo, pid, notice.signal, info.as_ptr()) };
    } else if notice.how == BY_THREAD
        && let Some(create) = next!(Create, "pthread_create")
        && let Some(function) = notice.function
    {
        // The function returns nothing and takes a word: callable as a thread's start
        // in both calling conventions; nobody reads the thread's result.
        let start = function as *const ();
        let mut thread = 0;
        // SAFETY: as said.
        let start = unsafe { core::mem::transmute::<*const (), Start>(start) };
        // SAFETY: the program's function, attributes and value.
        let made = unsafe { create(&raw mut thread, notice.attributes, start, notice.value as *mut c_void) };
        if made == 0
            && let Some(detach) = next!(unsafe extern "C" fn(usize) -> c_int, "pthread_detach")
        {
            // SAFETY: a thread just made; detached already by its attributes, perhaps.
            unsafe { detach(thread) };
        }
    }
}

/// Does what `opcode` says and puts the result where libc looks for it.
unsafe fn perform(control: *mut Control, opcode: c_int) {
    // SAFETY: the program's control block.
    let (fd, buffer, bytes, offset) = unsafe { ((*control).fd, (*control).buffer, (*control).bytes, (*control).offset) };
    let result = match opcode {
        // SAFETY: the program's buffer.
        READ => unsafe { serve!(abi::__NR_pread64, fd, buffer, bytes, offset) },
        WRITE if call::fcntl(fd, abi::F_GETFL, 0) & abi::O_APPEND as isize != 0 => {
            // SAFETY: the program's buffer.
            unsafe { serve!(abi::__NR_write, fd, buffer, bytes) }
        }
        // SAFETY: the program's buffer.
        WRITE => unsafe { serve!(abi::__NR_pwrite64, fd, buffer, bytes, offset) },
        _ => -(Errno::EINVAL.0 as isize),
    };
    // SAFETY: the program's control block.
    unsafe { finish(control, result) };
}

unsafe fn finish(control: *mut Control, result: isize) {
    let failed = (-4095..0).contains(&result);
    // SAFETY: the program's control block.
    unsafe { (*control).result = if failed { -1 } else { result } };
    // SAFETY: as above.
    unsafe { (*control).error = if failed { -result as c_int } else { 0 } };
}

/// `aio_read` and `aio_write`.
unsafe fn one(control: *mut Control, opcode: c_int, libc: Option<OnControl>) -> c_int {
    // SAFETY: the program's control block.
    if is_ours(unsafe { (*control).fd }) {
        // SAFETY: as above.
        unsafe { perform(control, opcode) };
        // SAFETY: as above.
        unsafe { notify(&raw const (*control).notice) };
        return 0;
    }
    match libc {
        // SAFETY: the program's control block.
        Some(libc) => unsafe { libc(control) },
        None => fail(Errno::ENOSYS),
    }
}

fn fail(errno: Errno) -> c_int {
    errno::set(errno.0);
    -1
}

/// `aio_read(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_read(control: *mut Control) -> c_int {
    let libc = next!(OnControl, "aio_read");
    // SAFETY: by contract.
    unsafe { one(control, READ, libc) }
}

/// `aio_write(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_write(control: *mut Control) -> c_int {
    let libc = next!(OnControl, "aio_write");
    // SAFETY: by contract.
    unsafe { one(control, WRITE, libc) }
}

/// `aio_fsync(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(how: c_int, control: *mut Control) -> c_int {
    // SAFETY: the program's control block.
    let fd = unsafe { (*control).fd };
    if !is_ours(fd) && !PROCESS.is_unsynced(fd as usize) {
        return match next!(Sync, "aio_fsync") {
            // SAFETY: the program's arguments.
            Some(libc) => unsafe { libc(how, control) },
            None => fail(Errno::ENOSYS),
        };
    }
    let call = match how as u32 {
        abi::O_SYNC => abi::__NR_fsync,
        abi::O_DSYNC => abi::__NR_fdatasync,
        _ => return fail(Errno::EINVAL),
    };
    // SAFETY: no pointers.
    let result = unsafe { serve!(call, fd) };
    // SAFETY: the program's control block.
    unsafe { finish(control, result) };
    // SAFETY: as above.
    unsafe { notify(&raw const (*control).notice) };
    0
}

/// `aio_cancel(3)`: nothing of ours is ever under way.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_cancel(fd: c_int, control: *mut Control) -> c_int {
    if is_ours(fd) {
        return ALL_DONE;
    }
    match next!(Cancel, "aio_cancel") {
        // SAFETY: the program's arguments.
        Some(libc) => unsafe { libc(fd, control) },
        None => fail(Errno::ENOSYS),
    }
}

/// `lio_listio(3)`: ours at once; if there are others, libc does them one after
/// the other (for `LIO_WAIT` in one call that waits).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(mode: c_int, list: *const *mut Control, len: c_int, notice: *mut Notice) -> c_int {
    let Some(libc) = next!(List, "lio_listio") else { return fail(Errno::ENOSYS) };
    // SAFETY: the program's list.
    let at = |i: c_int| unsafe { *list.add(i as usize) };
    // SAFETY: control blocks, where not null.
    let here = |control: *mut Control| !control.is_null() && is_ours(unsafe { (*control).fd });
    let ours = (0..len.max(0)).filter(|&i| here(at(i))).count();
    if ours == 0 || !(0..=1).contains(&mode) {
        // SAFETY: the program's arguments.
        return unsafe { libc(mode, list, len, notice) };
    }
    let mut failed = false;
    for control in (0..len).map(at).filter(|&control| here(control)) {
        // SAFETY: the program's control block.
        let opcode = unsafe { (*control).opcode };
        if opcode != NO_OPERATION {
            // SAFETY: as above.
            unsafe { perform(control, opcode) };
            // SAFETY: as above.
            failed |= unsafe { (*control).error } != 0;
            // SAFETY: as above.
            unsafe { notify(&raw const (*control).notice) };
        }
    }
    for control in (0..len).map(at).filter(|&control| !control.is_null() && !here(control)) {
        let single = [control];
        // SAFETY: one of the program's control blocks; the notice for the whole list is given below.
        failed |= unsafe { libc(mode, single.as_ptr(), 1, core::ptr::null_mut()) } != 0;
    }
    if failed {
        return fail(Errno::EIO);
    }
    // With others still under way the notice comes early; they are then looked at one by one.
    if mode != WAIT && !notice.is_null() {
        // SAFETY: the program's structure.
        unsafe { notify(notice) };
    }
    0
}

export! {
    fn aio_read64(control: *mut Control) -> c_int {
        aio_read(control)
    }
    fn aio_write64(control: *mut Control) -> c_int {
        aio_write(control)
    }
    fn aio_fsync64(how: c_int, control: *mut Control) -> c_int {
        aio_fsync(how, control)
    }
    fn aio_cancel64(fd: c_int, control: *mut Control) -> c_int {
        aio_cancel(fd, control)
    }
    fn lio_listio64(mode: c_int, list: *const *mut Control, len: c_int, notice: *mut Notice) -> c_int {
        lio_listio(mode, list, len, notice)
    }
}
