//! Whether the program makes system calls of its own, and then that they come to us ([`crate::libc::dispatch`]).

use crate::libc::dispatch::start as serve;
use crate::process::own_calls::{self, Calls};
use crate::runtime::objects::{self, Object};
use core::ffi::c_int;
use core::ops::Range;

#[link(name = "c")]
unsafe extern "C" {
    safe fn getpid() -> c_int;
    safe fn getauxval(kind: usize) -> usize;
}

/// Where the loader is, and the vDSO.
const AT_BASE: usize = 7;
const AT_SYSINFO_EHDR: usize = 33;
/// libc, the loader, the vDSO, this library.
const OUTSIDE: usize = 4;

/// To be called where this thread is alone.
pub fn start() {
    if own_calls::own() != Calls::Own {
        return;
    }
    let (mut text, mut is_first) = (None, true);
    let mut outside: [Range<usize>; OUTSIDE] = [const { 0..0 }; OUTSIDE];
    let mut count = 0;
    objects::each(|object| {
        let range = object.text();
        if core::mem::replace(&mut is_first, false) {
            text = range;
        } else if let Some(range) = range.filter(|range| is_outside(object, range))
            && let Some(place) = outside.get_mut(count)
        {
            *place = range;
            count += 1;
        }
        false
    });
    if let Some(text) = text {
        serve(&text, outside[..count].iter().cloned());
    }
}

/// Whether calls made by this object must go to the kernel.
fn is_outside(object: &Object, text: &Range<usize>) -> bool {
    text.contains(&(getpid as *const () as usize))
        || text.contains(&(start as *const () as usize))
        || object.base() == getauxval(AT_BASE)
        || object.base() == getauxval(AT_SYSINFO_EHDR)
}
