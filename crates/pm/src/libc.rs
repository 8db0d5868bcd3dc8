//! Functions of libc's own.
//!
//! What the linker binds may be a sanitizer's function in front of libc's. That one falls over before the sanitizer has
//! started, and what a sanitizer does while it starts may be the first call that comes to us. Its functions carry no
//! version; libc's do.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The version that glibc's oldest functions have.
#[cfg(target_arch = "x86_64")]
const OLDEST: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const OLDEST: &CStr = c"GLIBC_2.17";

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// One of them, of type `F`: looked up when it is first called.
pub(crate) struct Own<F: Copy> {
    name: &'static CStr,
    linked: F,
    known: AtomicPtr<c_void>,
}

impl<F: Copy> Own<F> {
    /// The function `name`; `linked` is the one that the linker bound, for a libc that does not say its version.
    pub const fn new(name: &'static CStr, linked: F) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Own { name, linked, known: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The function.
    #[inline]
    pub fn get(&self) -> F {
        let known = self.known.load(Relaxed);
        let known = if known.is_null() { self.find() } else { known };
        // SAFETY: `linked`, or libc's function of the same name: of type `F`, which is a pointer to a function.
        unsafe { core::mem::transmute_copy(&known) }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: null is `RTLD_DEFAULT`; both texts end with NUL.
        let found = unsafe { dlvsym(core::ptr::null_mut(), self.name.as_ptr(), OLDEST.as_ptr()) };
        // SAFETY: `F` is as large as a pointer.
        let found = if found.is_null() { unsafe { core::mem::transmute_copy(&self.linked) } } else { found };
        self.known.store(found, Relaxed);
        found
    }
}
