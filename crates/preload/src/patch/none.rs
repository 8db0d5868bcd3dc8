//! Syscall patching is for x86-64.

use core::ffi::CStr;

/// Says that it can't.
pub fn start(_file: Option<&CStr>) {
    crate::complain!("syscall patching is not available on this architecture; libc's own calls are not seen");
}
