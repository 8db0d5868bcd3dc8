//! The few libc functions we use (none of them about files), and the way to
//! libc's own version of a function that we export.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

#[link(name = "c")]
unsafe extern "C" {
    /// Address of the calling thread's `errno`.
    pub safe fn __errno_location() -> *mut c_int;
    /// Finds a symbol.
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// The program's environment; null before libc is initialised.
    pub static mut environ: *mut *mut c_char;
}

/// A function that we export, in the version of the libraries after us.
///
/// Resolved at first use, never earlier: `dlsym` must not run in the loader's
/// early phase. `name` ends with a NUL.
pub struct Next {
    name: &'static core::ffi::CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The next definition of `name`.
    pub const fn new(name: &'static core::ffi::CStr) -> Self {
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
    ($kind:ty, $name:literal) => {{
        static NEXT: $crate::libc::Next =
            $crate::libc::Next::new(match core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
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

/// The value of `name` in an environment array.
///
/// # Safety
/// `list` is null or an array of NUL-terminated strings that ends with null.
pub unsafe fn get_variable<'a>(list: *const *mut c_char, name: &[u8]) -> Option<&'a core::ffi::CStr> {
    let mut at = list;
    while !at.is_null() {
        // SAFETY: by contract, inside the array.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: by contract.
        let text = unsafe { core::ffi::CStr::from_ptr(entry) };
        if let Some([b'=', ..]) = text.to_bytes().strip_prefix(name) {
            // SAFETY: the value is the rest of the same string.
            return Some(unsafe { core::ffi::CStr::from_ptr(entry.add(name.len() + 1)) });
        }
        // SAFETY: not yet at the end of the array.
        at = unsafe { at.add(1) };
    }
    None
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
        let text = unsafe { core::ffi::CStr::from_ptr(entry) }.to_bytes();
        if !matches!(text.strip_prefix(name), Some([b'=', ..])) {
            // SAFETY: at most as far as `from`.
            to = unsafe { to.add(1) };
        }
        // SAFETY: not yet at the end.
        from = unsafe { from.add(1) };
    }
}
