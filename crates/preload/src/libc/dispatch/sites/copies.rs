//! What the compiler calls to copy, fill and compare leaves wide registers alone.
//!
//! libc's functions have all that the processor has, which would have to be kept with each call from a site: 0.14 µs. Where
//! sites have jumps, the words of this library that name libc's are made to name [`pm::narrow`]'s. Nothing else that serves
//! a call by its number has wide registers: our code is compiled for the baseline. A library of somebody's as a lower file
//! system may have: then all are kept.

use crate::runtime::objects;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use pm::narrow::instead;
use pm::sys::abi::*;

const PAGE: usize = 4096;

/// From now on this library calls these; whether it does.
pub fn start() -> bool {
    let mut done = false;
    objects::each(|object| {
        let is_own = object.text().is_some_and(|code| code.contains(&(start as *const () as usize)));
        if is_own {
            let pages = object.made_read_only().map(|range| range.start & !(PAGE - 1)..range.end & !(PAGE - 1));
            let pages = pages.filter(|pages| !pages.is_empty());
            let protect = |how: u32| {
                let Some(pages) = &pages else { return true };
                // SAFETY: whole pages of this library's data, as the loader does it.
                unsafe { pm::call!(__NR_mprotect, pages.start, pages.len(), how) }.is_ok()
            };
            done = protect(PROT_READ | PROT_WRITE);
            if done {
                for relocation in object.relocations() {
                    if let Some(function) = instead(relocation.name.to_bytes()) {
                        // SAFETY: a word of this library's, which the loader binds to a function of this shape.
                        unsafe { &*(relocation.word as *const AtomicUsize) }.store(function, Release);
                    }
                }
                done = protect(PROT_READ);
            }
        }
        is_own
    });
    done
}
