//! What is done when the process ends by `exit`.

use crate::runtime::{count, stores, tls};

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    let tls = tls::get();
    count::add(tls);
    stores::at_end(tls);
}
