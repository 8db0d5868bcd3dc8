//! `libbypath_daemon.so`: loaded into an unmodified FUSE daemon, it puts a ring
//! of shared memory in the place of `/dev/fuse`.
//!
//! libfuse, old and new, opens the device, mounts it, then reads requests and
//! writes replies. Here the device is a descriptor that is only good for being
//! held (the end of a pipe, by whose other end the supervisor sees the daemon die),
//! the mount succeeds without one, and reading and writing that descriptor are the
//! ring's. Everything else passes.
//!
//! The daemon's children get neither the library nor the descriptor.

mod number;
mod symbols;

use core::ffi::{CStr, c_char, c_int};
use fuse_client::ring::Ring;
use pm::sys::abi;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::*};

/// Path of the ring.
const VARIABLE: &CStr = c"BYPATH_CHANNEL";

static RING: OnceLock<Ring> = OnceLock::new();
/// The pipe by which the supervisor sees us live.
static LIFE: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *mut c_char;
    fn unsetenv(name: *const c_char) -> c_int;
    fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

extern "C" fn start() {
    // SAFETY: a NUL-terminated name; nothing else runs yet.
    let path = unsafe { getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: libc's own text, which ends with NUL.
    let path = unsafe { CStr::from_ptr(path) };
    if let Ok(ring) = Ring::open(path.to_bytes_with_nul()) {
        let _ = RING.set(ring);
        keep_life();
    }
    // SAFETY: a NUL-terminated name.
    unsafe { unsetenv(VARIABLE.as_ptr()) };
    leave_environment();
}

/// Our standard input is the pipe: it gets a number of its own, and what reads
/// standard input finds nothing.
fn keep_life() {
    const LOWEST: usize = 64;
    // SAFETY: no pointers.
    if let Ok(life) = unsafe { pm::call!(abi::__NR_fcntl, 0, abi::F_DUPFD_CLOEXEC, LOWEST) } {
        LIFE.store(life as i32, Release);
    }
    // SAFETY: a NUL-terminated path.
    if let Ok(null) = unsafe { pm::call!(abi::__NR_openat, abi::AT_FDCWD, c"/dev/null".as_ptr(), abi::O_RDWR | abi::O_CLOEXEC) } {
        // SAFETY: no pointers.
        let _ = unsafe { pm::call!(abi::__NR_dup3, null, 0, 0) };
        // SAFETY: our own descriptor.
        let _ = unsafe { pm::call!(abi::__NR_close, null) };
    }
}

/// Takes this library, which stands first, off the list for the daemon's children.
fn leave_environment() {
    const PRELOAD: &CStr = c"LD_PRELOAD";
    // SAFETY: a NUL-terminated name.
    let list = unsafe { getenv(PRELOAD.as_ptr()) };
    if list.is_null() {
        return;
    }
    // SAFETY: libc's own text, which ends with NUL.
    let text = unsafe { CStr::from_ptr(list) }.to_bytes_with_nul().to_vec();
    match text.iter().position(|&b| b == b':') {
        // SAFETY: NUL-terminated texts.
        Some(colon) => unsafe { setenv(PRELOAD.as_ptr(), text[colon + 1..].as_ptr().cast(), 1) },
        // SAFETY: a NUL-terminated name.
        None => unsafe { unsetenv(PRELOAD.as_ptr()) },
    };
}
