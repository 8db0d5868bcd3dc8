//! While a FUSE library runs on a thread: its file calls are the kernel's, and
//! `fuse_get_context` tells whom it works for.

use crate::next;
use crate::runtime::tls;
use core::ptr::null_mut;
use plugin::Aside;
use plugin::abi::Context;

/// See [`plugin::Here`].
pub fn here() -> &'static Aside {
    &tls::get().aside
}

/// `fuse_get_context(3)` of libfuse: of the call that this thread is in, else libfuse's own
/// (a daemon that runs as a program here).
#[unsafe(no_mangle)]
pub extern "C" fn fuse_get_context() -> *mut Context {
    type Get = unsafe extern "C" fn() -> *mut Context;
    let context = here().context.get();
    if !context.is_null() {
        return context;
    }
    match next!(Get, "fuse_get_context") {
        // SAFETY: libfuse's function of that name.
        Some(get) => unsafe { get() },
        None => null_mut(),
    }
}
