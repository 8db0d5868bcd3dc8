//! Functions of libc that have nothing to do with files, for our versions of
//! library functions whose results belong to the program (and so come from its
//! `malloc`). Nothing on the way of a system call uses them.

use core::ffi::{c_char, c_int, c_void};

#[allow(missing_docs)]
#[link(name = "c")]
unsafe extern "C" {
    pub fn malloc(bytes: usize) -> *mut c_void;
    pub fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void;
    pub fn free(at: *mut c_void);
    pub fn qsort(
        base: *mut c_void,
        len: usize,
        bytes: usize,
        compare: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
    );
    pub fn strlen(text: *const c_char) -> usize;
    pub fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// The bytes of a C string, without the NUL.
///
/// # Safety
/// `text` is a NUL-terminated string that outlives the result.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: by contract.
    let len = unsafe { strlen(text) };
    // SAFETY: by contract.
    unsafe { core::slice::from_raw_parts(text.cast(), len) }
}

/// A copy of `text` with a NUL, from the program's `malloc`; null with `ENOMEM`.
pub fn duplicate(text: &[u8]) -> *mut c_char {
    // SAFETY: plain allocation.
    let copy = unsafe { malloc(text.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        crate::errno::set(pm::Errno::ENOMEM.0);
        return copy.cast();
    }
    // SAFETY: the copy has room for the text and a NUL.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len()) };
    // SAFETY: as above.
    unsafe { copy.add(text.len()).write(0) };
    copy.cast()
}
