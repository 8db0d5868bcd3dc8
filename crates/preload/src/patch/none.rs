//! The patched way is for x86-64.

use core::ffi::CStr;

/// See the x86-64 version.
pub const WAYS: &[u8] = b"BYPATH_WAYS";
/// See the x86-64 version.
pub const SITES: &[u8] = b"BYPATH_SITES";

/// Never.
pub fn is_on() -> bool {
    false
}

/// Says that it can't.
pub fn start(_file: Option<&CStr>) {
    crate::complain!("the patched way is not available on this architecture; libc's own calls are not seen");
}

/// Runs `f`.
pub fn raw_during<R>(f: impl FnOnce() -> R) -> R {
    f()
}
