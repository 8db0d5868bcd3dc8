//! What GCC's sanitizers ask of whoever is there before them.

use crate::runtime::{call, imports, phase, sanitizers, tls};
use core::ffi::{c_char, c_int};
use pm::sys::abi::__NR_write;

const STANDARD_ERROR: c_int = 2;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    if phase::is_active(tls::get()) && call::is_ours(STANDARD_ERROR) {
        sanitizers::begin();
    }
}

export! {
    // AddressSanitizer's shared runtime refuses to start behind any other library: what that one exports might hide what
    // the runtime wants to see. Ours comes first and hands all that is not its own to the next definition, the
    // runtime's. A program with options of its own in this place keeps them: it comes before us.
    fn __asan_default_options() -> *const c_char {
        c"verify_asan_link_order=0".as_ptr()
    }
    // Called with each part of a report: see [`crate::runtime::sanitizers`].
    fn __sanitizer_on_print(text: *const c_char) -> () {
        print(text)
    }
}

/// A part of a report.
///
/// # Safety
/// `text` is NUL-terminated.
unsafe fn print(text: *const c_char) {
    if !sanitizers::is_used() {
        return;
    }
    // SAFETY: by contract.
    let (mut at, mut left) = (text as usize, unsafe { imports::strlen(text) });
    while left > 0 {
        // SAFETY: the rest of the text.
        let written = unsafe { call::call(__NR_write as usize, [STANDARD_ERROR as usize, at, left, 0, 0, 0]) };
        if written <= 0 {
            return;
        }
        (at, left) = (at + written as usize, left - written as usize);
    }
}
