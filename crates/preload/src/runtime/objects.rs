//! The program and the libraries that the loader has put into memory.

use core::ffi::{c_char, c_int, c_void};
use core::ops::Range;

/// The head of glibc's `struct dl_phdr_info`.
#[repr(C)]
pub struct Object {
    base: usize,
    _name: *const c_char,
    headers: *const Header,
    count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    bytes: u64,
    align: u64,
}

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EXECUTE: u32 = 1;

type Each = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

#[link(name = "c")]
unsafe extern "C" {
    fn dl_iterate_phdr(each: Each, data: *mut c_void) -> c_int;
}

/// Shows `look` each object, the program first, until it says that it has seen enough.
pub fn each(mut look: impl FnMut(&Object) -> bool) {
    unsafe extern "C" fn one<F: FnMut(&Object) -> bool>(object: *const Object, _bytes: usize, look: *mut c_void) -> c_int {
        // SAFETY: the loader's own structure, and the closure that `each` hands over.
        let (object, look) = unsafe { (&*object, &mut *look.cast::<F>()) };
        c_int::from(look(object))
    }
    fn shaped<F: FnMut(&Object) -> bool>(_: &F) -> Each {
        one::<F>
    }
    let each = shaped(&look);
    // SAFETY: `each` has the right shape, and gets the closure.
    unsafe { dl_iterate_phdr(each, (&raw mut look).cast()) };
}

impl Object {
    fn headers(&self) -> &[Header] {
        // SAFETY: the loader's array of so many headers.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }

    fn range(&self, header: &Header) -> Range<usize> {
        let begin = self.base.wrapping_add(header.address as usize);
        begin..begin + header.bytes as usize
    }

    /// Where it was loaded.
    pub fn base(&self) -> usize {
        self.base
    }

    /// What its code takes, from the first to the last.
    pub fn text(&self) -> Option<Range<usize>> {
        let code = self.headers().iter().filter(|header| header.kind == LOAD && header.flags & EXECUTE != 0);
        code.map(|header| self.range(header)).reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// The bytes of each of its segments of notes.
    pub fn notes(&self) -> impl Iterator<Item = &[u8]> {
        self.headers().iter().filter(|header| header.kind == NOTE).map(|header| {
            let range = self.range(header);
            // SAFETY: mapped readable for as long as the object is.
            unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
        })
    }
}
