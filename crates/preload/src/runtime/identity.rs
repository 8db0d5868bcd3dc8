//! Who this process is.

use crate::runtime::front_end::PROCESS;
use crate::runtime::{kernel_root, phase, tls};

/// Who we are is asked anew; not by a child of `vfork`, as its parent would be told.
pub fn ask_again() {
    if phase::is_mounted() && !tls::get().is_vfork_child() {
        PROCESS.credentials_changed();
        kernel_root::forget();
    }
}
