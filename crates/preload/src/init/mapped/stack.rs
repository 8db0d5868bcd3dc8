//! What a program begins with on its stack.
//!
//! ```text
//! number of arguments │ arguments │ 0 │ environment │ 0 │ auxiliary vector │ 0 0
//! ```
//! The kernel has written one for our loader: the program's is made from that, and lies below it. The texts stay where they are.

use super::image::Image;
use core::ffi::{CStr, c_char};

const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const AT_BASE: usize = 7;
const AT_ENTRY: usize = 9;
const AT_EXECFN: usize = 31;
/// `Elf64_Phdr`.
const SEGMENT_BYTES: usize = 56;
/// Arguments that are ours: this library, and what it is to start.
const OURS: usize = 2;
/// Behind the environment's end, in words, the auxiliary vector may begin: who makes it shorter leaves nulls.
const VECTOR_MAX: usize = 1024;
const PAGE: usize = 4096;

/// What we were started with.
pub struct Given {
    arguments: *const *const c_char,
    count: usize,
    vector: *const [usize; 2],
    words: usize,
}

impl Given {
    /// What lies at `at`.
    ///
    /// # Safety
    /// That is such a block, which stays.
    pub unsafe fn at(at: *const usize) -> Given {
        // SAFETY: by contract.
        let count = unsafe { *at };
        let mut end = at.wrapping_add(count + 2);
        // SAFETY: the environment ends with a null.
        while unsafe { *end } != 0 {
            end = end.wrapping_add(1);
        }
        for _ in 0..VECTOR_MAX {
            // SAFETY: behind it comes the vector, which is not empty and begins with a small number.
            match unsafe { *end } {
                0 | PAGE.. => end = end.wrapping_add(1),
                _ => break,
            }
        }
        let vector: *const [usize; 2] = end.cast();
        let mut last = vector;
        // SAFETY: it ends with a pair of nulls.
        while unsafe { (*last)[0] } != 0 {
            last = last.wrapping_add(1);
        }
        let words = (last as usize - at as usize) / size_of::<usize>() + 2;
        Given { arguments: at.wrapping_add(1).cast(), count, vector, words }
    }

    /// As much as the program's block takes.
    pub fn bytes(&self) -> usize {
        self.words * size_of::<usize>()
    }

    /// An argument.
    pub fn argument(&self, index: usize) -> Option<&'static CStr> {
        // SAFETY: there are so many, NUL-terminated texts.
        (index < self.count).then(|| unsafe { CStr::from_ptr(*self.arguments.add(index)) })
    }

    /// Writes the program's block.
    ///
    /// # Safety
    /// `block` has room for as much as [`Given::bytes`] says; `environment` is ours, as it was or shorter.
    pub unsafe fn write(
        &self,
        block: *mut usize,
        environment: *const *mut c_char,
        program: &Image,
        loader: Option<&Image>,
        name: &CStr,
    ) {
        let mut at = block;
        let mut put = |word: usize| {
            // SAFETY: by contract.
            unsafe { at.write(word) };
            at = at.wrapping_add(1);
        };
        put(self.count.saturating_sub(OURS));
        for index in OURS..self.count {
            // SAFETY: there are so many.
            put(unsafe { *self.arguments.add(index) } as usize);
        }
        put(0);
        let mut entry = environment;
        // SAFETY: an array that ends with null, or null.
        while !entry.is_null() && unsafe { !(*entry).is_null() } {
            // SAFETY: as above.
            put(unsafe { *entry } as usize);
            entry = entry.wrapping_add(1);
        }
        put(0);
        let mut pair = self.vector;
        loop {
            // SAFETY: inside the vector, whose end is not passed.
            let [kind, value] = unsafe { *pair };
            put(kind);
            put(match kind {
                AT_PHDR => program.headers(),
                AT_PHENT => SEGMENT_BYTES,
                AT_PHNUM => program.header_count(),
                AT_BASE => loader.map_or(0, Image::base),
                AT_ENTRY => program.entry(),
                AT_EXECFN => name.as_ptr() as usize,
                _ => value,
            });
            if kind == 0 {
                break;
            }
            pair = pair.wrapping_add(1);
        }
    }
}
