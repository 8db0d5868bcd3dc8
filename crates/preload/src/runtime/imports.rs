//! The few libc functions we use (none of them about files), and the way to
//! libc's own version of a function that we export.
//!
//! Memory from the program's `malloc` is for results that belong to the program. Nothing on the way of a system call uses
//! it.

use crate::runtime::errno;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

#[link(name = "c")]
unsafe extern "C" {
    /// Finds a symbol.
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// The program's environment; null before libc is initialised.
    pub static mut environ: *mut *mut c_char;
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

/// A function that we export, in the version of the libraries after us.
///
/// Resolved at first use, never earlier: `dlsym` must not run in the loader's
/// early phase. `name` ends with a NUL.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The next definition of `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Next { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; null if there is none.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: RTLD_NEXT is −1; the name is NUL-terminated.
        let found = unsafe { dlsym(-1isize as *mut c_void, self.name.as_ptr()) };
        self.address.store(found, Relaxed);
        found
    }
}

/// `next!(fn_type, "name")`: libc's own version as `Option<fn_type>`.
/// The type must be an `unsafe extern "C" fn` of that symbol's signature.
#[macro_export]
macro_rules! next {
    ($kind:ty, $($name:tt)+) => {{
        static NEXT: $crate::runtime::imports::Next =
            $crate::runtime::imports::Next::new(match core::ffi::CStr::from_bytes_with_nul(concat!($($name)+, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("name with a NUL"),
            });
        let address = NEXT.get();
        if address.is_null() {
            None
        } else {
            // SAFETY: the symbol has this type in libc's ABI.
            Some(unsafe { core::mem::transmute::<*mut core::ffi::c_void, $kind>(address) })
        }
    }};
}

/// The strings of a list.
///
/// # Safety
/// `list` is null or an array that ends with null, and outlives the result.
pub unsafe fn strings(list: *const *mut c_char) -> impl Iterator<Item = *mut c_char> + Clone {
    let mut at = list;
    core::iter::from_fn(move || {
        // SAFETY: inside the array, whose end is not passed.
        let text = if at.is_null() { core::ptr::null_mut() } else { unsafe { *at } };
        if text.is_null() {
            return None;
        }
        at = at.wrapping_add(1);
        Some(text)
    })
}

/// The value of `name` in an environment array.
///
/// # Safety
/// `list` is null or an array of NUL-terminated strings that ends with null.
pub unsafe fn get_variable<'a>(list: *const *mut c_char, name: &[u8]) -> Option<&'a CStr> {
    // SAFETY: by contract.
    unsafe { strings(list) }.find_map(|entry| {
        // SAFETY: by contract.
        let text = unsafe { CStr::from_ptr(entry) };
        let [b'=', ..] = text.to_bytes().strip_prefix(name)? else { return None };
        // SAFETY: the value is the rest of the same string.
        Some(unsafe { CStr::from_ptr(entry.add(name.len() + 1)) })
    })
}

/// Takes `name` out of an environment array, in place.
///
/// # Safety
/// As for [`get_variable`]; nobody else changes the array meanwhile.
pub unsafe fn remove_variable(list: *mut *mut c_char, name: &[u8]) {
    let (mut from, mut to) = (list, list);
    while !list.is_null() {
        // SAFETY: by contract, inside the array.
        let entry = unsafe { *from };
        // SAFETY: `to` is never behind the end; by contract.
        unsafe { *to = entry };
        if entry.is_null() {
            break;
        }
        // SAFETY: by contract.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if !matches!(text.strip_prefix(name), Some([b'=', ..])) {
            // SAFETY: at most as far as `from`.
            to = unsafe { to.add(1) };
        }
        // SAFETY: not yet at the end.
        from = unsafe { from.add(1) };
    }
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
        errno::set(pm::Errno::ENOMEM.0);
        return copy.cast();
    }
    // SAFETY: the copy has room for the text and a NUL.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len()) };
    // SAFETY: as above.
    unsafe { copy.add(text.len()).write(0) };
    copy.cast()
}
