//! Reports of sanitizers on a standard error that is ours.
//!
//! A sanitizer's runtime writes its report to descriptor 2 by a system call of its own, which passes this library by. Where
//! that descriptor is ours, the runtime is given the null device for its reports (`__sanitizer_set_report_fd`), and the hook
//! that it calls with each part of a report (`__sanitizer_on_print`) writes the part to descriptor 2.

use crate::next;
use crate::runtime::imports;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use pm::sys::abi::*;

type SetDescriptor = unsafe extern "C" fn(*mut c_void);
type Print = unsafe extern "C" fn(*const c_char);

/// Where the runtimes' options are.
const OPTIONS: [&CStr; 5] = [c"ASAN_OPTIONS", c"UBSAN_OPTIONS", c"TSAN_OPTIONS", c"LSAN_OPTIONS", c"MSAN_OPTIONS"];
/// The null device's number is at least that, so that the program gets the numbers that it expects.
const NUMBER_MIN: usize = 200;

/// The null device, where it takes a runtime's reports; else −1.
static NULL_DEVICE: AtomicI32 = AtomicI32::new(-1);

/// The hook is ours only if a shared runtime comes after this library: a program that has one inside calls its own.
#[cold]
pub fn begin() {
    if OPTIONS.iter().any(|name| names_a_path(name)) {
        return;
    }
    if next!(SetDescriptor, "__sanitizer_set_report_fd").is_none() || next!(Print, "__sanitizer_on_print").is_none() {
        return;
    }
    // SAFETY: a string.
    let Ok(opened) = (unsafe { pm::call!(__NR_openat, AT_FDCWD, c"/dev/null".as_ptr(), O_WRONLY | O_CLOEXEC, 0) }) else {
        return;
    };
    // SAFETY: plain numbers.
    let moved = unsafe { pm::call!(__NR_fcntl, opened, F_DUPFD_CLOEXEC, NUMBER_MIN) };
    if let Ok(number) = moved {
        // SAFETY: plain numbers.
        let _ = unsafe { pm::call!(__NR_close, opened) };
        NULL_DEVICE.store(number as i32, Relaxed);
    } else {
        NULL_DEVICE.store(opened as i32, Relaxed);
    }
    again();
}

/// Whether options in the environment say where reports go.
fn names_a_path(options: &CStr) -> bool {
    // SAFETY: a string.
    let value = unsafe { imports::secure_getenv(options.as_ptr()) };
    // SAFETY: the environment's text, which is NUL-terminated.
    !value.is_null() && unsafe { CStr::from_ptr(value) }.to_bytes().windows(8).any(|part| part == b"log_path")
}

/// A runtime believes that only the process that has set the descriptor has it: a child sets it for itself.
pub fn again() {
    let number = NULL_DEVICE.load(Relaxed);
    if number >= 0
        && let Some(set) = next!(SetDescriptor, "__sanitizer_set_report_fd")
    {
        // SAFETY: takes the number of a descriptor as a pointer.
        unsafe { set(number as usize as *mut c_void) };
    }
}

/// Whether reports go to the null device, so that the hook has to write them.
pub fn is_used() -> bool {
    NULL_DEVICE.load(Relaxed) >= 0
}
