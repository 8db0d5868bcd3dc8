//! FUSE file systems in libraries, as mounts of a namespace.

use crate::sources::{Attached, errno};
use libc::c_void;
use plugin::abi::Context;
use plugin::{Aside, Plugin};
use session::SessionCache;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use vfs::cached::Cached;

thread_local! {
    static ASIDE: Aside = const { Aside::new() };
}

/// The library's calls are the kernel's in any case: only the context is asked for.
fn here() -> &'static Aside {
    // SAFETY: it has no destructor, so it lives as long as the thread, which alone can use it.
    ASIDE.with(|aside| unsafe { &*std::ptr::from_ref(aside) })
}

/// Attaches the library that `text` (`LIB.so,args`) names. `ENOENT` if there is none,
/// `ENOEXEC` if it is no plugin.
pub fn attach(text: &[u8], session: SessionCache, read_only: bool) -> Attached {
    let comma = text.iter().position(|&b| b == b',').unwrap_or(text.len());
    let path = std::fs::canonicalize(OsStr::from_bytes(&text[..comma])).map_err(|e| errno(&e))?;
    let whole = [path.as_os_str().as_bytes(), &text[comma..]].concat();
    let plugin = Plugin::new(&whole, session.device(), read_only, here).map_err(|errno| errno.0)?;
    if plugin.find_entry().is_none() {
        return Err(libc::ENOEXEC);
    }
    Ok(Box::leak(Box::new(Cached::new(plugin, session))))
}

/// `fuse_get_context(3)` of libfuse: of the call that this thread is in, else libfuse's own.
#[unsafe(no_mangle)]
pub extern "C" fn fuse_get_context() -> *mut Context {
    let context = here().context.get();
    if !context.is_null() {
        return context;
    }
    // SAFETY: a NUL-terminated name; the next definition after ours.
    let next: *mut c_void = unsafe { libc::dlsym(libc::RTLD_NEXT, c"fuse_get_context".as_ptr()) };
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: libfuse's function of that name.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut Context>(next)() }
}
