//! What GCC's sanitizers ask of whoever is there before them.

use core::ffi::c_char;

export! {
    // AddressSanitizer's shared runtime refuses to start behind any other library: what that one exports might hide what
    // the runtime wants to see. Ours comes first and hands all that is not its own to the next definition, the
    // runtime's. A program with options of its own in this place keeps them: it comes before us.
    fn __asan_default_options() -> *const c_char {
        c"verify_asan_link_order=0".as_ptr()
    }
    // Called with each part of a report: see [`crate::runtime::sanitizers`].
    fn __sanitizer_on_print(text: *const c_char) -> () {
        crate::runtime::sanitizers::print(text)
    }
}
