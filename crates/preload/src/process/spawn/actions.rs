//! File actions of posix_spawn.
//!
//! libc's file-action objects are opaque, so the `…_add*` functions also note
//! each action in a list of ours, by the object's address.

use crate::runtime::{alloc, operation, tls};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// What a child does before it execs.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub enum Step {
    Close(c_int),
    Dup2(c_int, c_int),
    Open { fd: c_int, path: *mut u8, flags: c_int, mode: u32 },
    Chdir(*mut u8),
    Fchdir(c_int),
    CloseFrom(c_int),
    TcSetPgrp(c_int),
}

/// An action noted; a list in the order they were added.
struct Node {
    owner: *const c_void,
    step: Step,
    next: *mut Node,
}

struct List(UnsafeCell<*mut Node>);
// SAFETY: used under `LOCK` only.
unsafe impl Sync for List {}
static LIST: List = List(UnsafeCell::new(core::ptr::null_mut()));
static LOCK: AtomicU32 = AtomicU32::new(0);

fn locked<T>(run: impl FnOnce(&mut *mut Node) -> T) -> T {
    let tls = tls::get();
    operation::enter(tls);
    while LOCK.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        core::hint::spin_loop();
    }
    // SAFETY: under the lock.
    let result = run(unsafe { &mut *LIST.0.get() });
    LOCK.store(0, Release);
    operation::leave(tls);
    result
}

/// Notes `step` for the object at `owner`; whether there was memory.
pub fn note(owner: *const c_void, step: Step) -> bool {
    let node = alloc::alloc(size_of::<Node>()).cast::<Node>();
    if node.is_null() {
        return false;
    }
    // SAFETY: large enough, aligned to 16.
    unsafe { node.write(Node { owner, step, next: core::ptr::null_mut() }) };
    locked(|head| {
        let mut at: *mut *mut Node = head;
        // SAFETY: nodes of the list live until they are unlinked under the lock.
        while !unsafe { *at }.is_null() {
            // SAFETY: as above.
            at = unsafe { &raw mut (**at).next };
        }
        // SAFETY: the last link.
        unsafe { *at = node };
    });
    true
}

/// Forgets all actions of `owner`.
pub fn forget(owner: *const c_void) {
    locked(|head| {
        let mut at: *mut *mut Node = head;
        loop {
            // SAFETY: nodes of the list live until they are unlinked here.
            let node = unsafe { *at };
            if node.is_null() {
                break;
            }
            // SAFETY: as above.
            if unsafe { (*node).owner } != owner {
                // SAFETY: as above.
                at = unsafe { &raw mut (*node).next };
                continue;
            }
            // SAFETY: as above.
            unsafe { *at = (*node).next };
            // SAFETY: as above.
            if let Step::Open { path, .. } | Step::Chdir(path) = unsafe { (*node).step } {
                // SAFETY: our copy of the path.
                unsafe { alloc::free(path) };
            }
            // SAFETY: unlinked.
            unsafe { alloc::free(node.cast()) };
        }
    });
}

/// The actions of one object in order, in memory of ours: nobody else's are looked at, nor
/// any lock taken, while they are carried out. Their paths are the object's.
pub struct Steps {
    at: *mut Step,
    len: usize,
}

impl Steps {
    /// Those noted for the object at `owner`, which the program must not change or destroy
    /// while it spawns with it; `None` without memory.
    pub fn of(owner: *const c_void) -> Option<Steps> {
        locked(|head| {
            // SAFETY: nodes of the list live until they are unlinked under the lock.
            let all = || core::iter::successors(unsafe { head.as_ref() }, |node| unsafe { node.next.as_ref() });
            let own = || all().filter(|node| !owner.is_null() && node.owner == owner);
            let len = own().count();
            let at = alloc::alloc(len.max(1) * size_of::<Step>()).cast::<Step>();
            if at.is_null() {
                return None;
            }
            for (index, node) in own().enumerate() {
                // SAFETY: room for as many as were counted, aligned to 16.
                unsafe { at.add(index).write(node.step) };
            }
            Some(Steps { at, len })
        })
    }

    /// The actions.
    pub fn each(&self) -> impl Iterator<Item = Step> {
        // SAFETY: as many were written, and nobody changes them.
        unsafe { core::slice::from_raw_parts(self.at, self.len) }.iter().copied()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        // SAFETY: from our allocator; not used any more.
        unsafe { alloc::free(self.at.cast()) };
    }
}

/// A copy of a path in our memory; null without memory.
///
/// # Safety
/// `path` is NUL-terminated.
pub unsafe fn copy(path: *const c_char) -> *mut u8 {
    // SAFETY: by contract.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let at = alloc::alloc(bytes.len());
    if !at.is_null() {
        // SAFETY: the block has that many bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }
    at
}
