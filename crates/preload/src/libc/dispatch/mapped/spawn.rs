//! Children as `posix_spawn` makes them: on their parent's memory, with a stack of their own, until they execute (`CLONE_VM |
//! CLONE_VFORK`).
//!
//! They open, move and close descriptors, which may be ours: so such a child gets memory of its own, and is served on stacks of
//! ours, as its own is small. Its parent stands still meanwhile, as it would. glibc's child writes into its parent's frame why it
//! could not execute: so the words that a child that ends without has changed there are brought back, by memory that both have.

use super::{Frame, thread};
use crate::libc::misc;
use crate::runtime::{swap, tls};
use pm::mutex;
use pm::sys::abi::*;

/// As much of the parent's stack as may be written, in words.
const WORDS: usize = 256;

/// What both have.
#[repr(C)]
struct Shared {
    /// Where the parent's stack is.
    stack: usize,
    /// How many words there the child has told; what they were, and are.
    len: usize,
    before: [u64; WORDS],
    after: [u64; WORDS],
}

impl Shared {
    /// Reads what is there now.
    ///
    /// # Safety
    /// The words are the program's, or not there.
    unsafe fn read(stack: usize, words: &mut [u64; WORDS]) -> usize {
        // SAFETY: by contract; what is not there is not read.
        unsafe { pm::faults::transfer(stack as *const u8, words.as_mut_ptr().cast(), size_of_val(words)) / size_of::<u64>() }
    }
}

/// Makes such a child.
///
/// # Safety
/// As for `clone`; `frame` is the entry's.
pub unsafe fn begin(args: [usize; 6], frame: *mut Frame) -> isize {
    let [flags, stack, parents_number, own_number, base, _] = args;
    let kind = MAP_SHARED | MAP_ANONYMOUS;
    // SAFETY: new memory.
    let page = unsafe { pm::call!(__NR_mmap, 0, size_of::<Shared>(), PROT_READ | PROT_WRITE, kind, -1isize, 0) };
    let page = match page {
        Ok(page) => page,
        Err(errno) => return super::failed(errno),
    };
    let (list, number) = (mutex::robust_list(), mutex::thread_number());
    // SAFETY: zeroes are a value; the child's copy of this memory is at the same place.
    let shared = unsafe { &mut *(page as *mut Shared) };
    // SAFETY: by contract.
    shared.stack = unsafe { (*frame).stack };
    // SAFETY: the program's own frames.
    unsafe { Shared::read(shared.stack, &mut shared.before) };
    let left = flags & !(CLONE_VM | CLONE_SETTLS) as usize;
    // SAFETY: by contract; the child goes on here, on a copy of this stack.
    let made = unsafe { misc::by_number(__NR_clone as usize, [left, 0, parents_number, own_number, 0, 0]) };
    if made == 0 {
        mutex::renew_robust_list(list, number);
        let tls = tls::get();
        tls.shared.set(page);
        if flags & CLONE_SETTLS as usize != 0 {
            swap::set_program(base);
        }
        // SAFETY: by contract, and this process's own copy.
        unsafe { (*frame).stack = stack };
        thread::leave_stack();
        return 0;
    }
    // SAFETY: a word that the child may have written.
    let len = unsafe { (&raw const shared.len).read_volatile() }.min(WORDS);
    for (index, (before, after)) in shared.before.iter().zip(&shared.after).take(len).enumerate() {
        if before != after {
            // SAFETY: the program's own frames, as the child would have left them.
            let _ = unsafe { pm::faults::write((shared.stack as *mut u64).wrapping_add(index), after) };
        }
    }
    // SAFETY: nobody here uses it any more.
    let _ = unsafe { pm::call!(__NR_munmap, page, size_of::<Shared>()) };
    made
}

/// Such a child ends, and has not executed.
pub fn tell_parent(page: usize) {
    // SAFETY: it was mapped for this.
    let shared = unsafe { &mut *(page as *mut Shared) };
    // SAFETY: the child's copy of its parent's frames, as far as they go.
    shared.len = unsafe { Shared::read(shared.stack, &mut shared.after) };
}
