//! Libraries opened with `RTLD_DEEPBIND` (PHP's extensions, Apache's modules): the loader binds their names to libc's functions
//! before it asks whether we have them. What was bound so is bound to ours, when the library has been loaded.
//!
//! A word is changed only if it leads to libc, or will (a function that is bound at its first call), and the program
//! itself has that name from us. So a name that the library, or one it needs, has in libc's place stays theirs.

use crate::runtime::imports;
use crate::runtime::objects::{self, Object, Relocation};
use core::ffi::{c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use pm::sys::abi::*;

/// Objects that one library brings; further ones stay as they are.
const OBJECTS_MAX: usize = 64;
const PAGE: usize = 4096;

#[link(name = "c")]
unsafe extern "C" {
    safe fn getpid() -> c_int;
    safe fn dlerror() -> *mut c_char;
}

/// Where code lies whose functions are told apart.
struct Places {
    libc: Range<usize>,
    ours: Range<usize>,
}

impl Places {
    fn find() -> Places {
        let mut places = Places { libc: 0..0, ours: 0..0 };
        objects::each(|object| {
            let Some(code) = object.text() else { return false };
            if code.contains(&(getpid as *const () as usize)) {
                places.libc = code;
            } else if code.contains(&(settle as *const () as usize)) {
                places.ours = code;
            }
            false
        });
        places
    }
}

/// Opens a library by `open` with that flag.
pub fn opening(open: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let before = objects::loads();
    let handle = open();
    let new = objects::loads().wrapping_sub(before);
    if !handle.is_null() && new > 0 {
        settle(handle, new);
    }
    handle
}

/// Binds anew what the last `new` objects have bound to libc.
fn settle(handle: *mut c_void, new: usize) {
    let mut list = [const { None }; OBJECTS_MAX];
    let mut index = 0usize;
    let first = objects::count().saturating_sub(new);
    // Not within the walk, during which the loader has a lock.
    objects::each(|object| {
        if let Some(place) = index.checked_sub(first).and_then(|at| list.get_mut(at)) {
            *place = Some(object.clone());
        }
        index += 1;
        false
    });
    let places = Places::find();
    for object in list.iter().flatten() {
        bind(handle, object, &places);
    }
    // A name that was not there is no news to the program.
    dlerror();
}

fn bind(handle: *mut c_void, object: &Object, places: &Places) {
    let code = object.text().unwrap_or(0..0);
    // The loader may have made the words read-only.
    let mut is_open = false;
    let is_aligned = |relocation: &Relocation| relocation.word.is_multiple_of(size_of::<usize>());
    for Relocation { word, name } in object.relocations().filter(is_aligned) {
        // SAFETY: a word of the object's, aligned, which the loader has written.
        let word = unsafe { &*(word as *const AtomicUsize) };
        let value = word.load(Acquire);
        let is_late = code.contains(&value);
        if !is_late && !places.libc.contains(&value) {
            continue;
        }
        // SAFETY: 0 is `RTLD_DEFAULT`; the name is NUL-terminated.
        let ours = unsafe { imports::dlsym(core::ptr::null_mut(), name.as_ptr()) } as usize;
        // SAFETY: the library's handle.
        let theirs = || unsafe { imports::dlsym(handle, name.as_ptr()) } as usize;
        if !places.ours.contains(&ours) || is_late && !places.libc.contains(&theirs()) {
            continue;
        }
        is_open = is_open || protect(object, PROT_READ | PROT_WRITE);
        if is_open {
            word.store(ours, Release);
        }
    }
    if is_open {
        protect(object, PROT_READ);
    }
}

/// Changes the rights of what the loader makes read-only; whether it can be written then, where that was asked for.
fn protect(object: &Object, how: u32) -> bool {
    let Some(range) = object.made_read_only() else { return true };
    let (begin, end) = (range.start & !(PAGE - 1), range.end & !(PAGE - 1));
    // SAFETY: whole pages of the object's data, as the loader does it.
    begin >= end || unsafe { pm::call!(__NR_mprotect, begin, end - begin, how) }.is_ok()
}
