//! `scandir` and its brothers, on our own directory streams.
//!
//! The list and its entries are the program's to free, so they come from its
//! `malloc`, as libc's do.

use core::ffi::{c_char, c_int, c_void};

use pm::sys::abi;

use super::dir::{self, Dir, Dirent};
use crate::runtime::errno;
use crate::runtime::imports::{free, malloc, qsort, realloc};

type Select = unsafe extern "C" fn(*const Dirent) -> c_int;
type Compare = unsafe extern "C" fn(*mut *const Dirent, *mut *const Dirent) -> c_int;

/// The entries gathered so far.
struct List {
    at: *mut *mut Dirent,
    len: usize,
    room: usize,
}

impl List {
    /// Adds a copy of `entry`; `false` when there is no memory.
    ///
    /// # Safety
    /// `entry` is a whole record.
    unsafe fn push(&mut self, entry: *const Dirent) -> bool {
        if self.len == self.room {
            let room = if self.room == 0 { 16 } else { self.room * 2 };
            // SAFETY: `at` is null or a block of malloc's.
            let grown = unsafe { realloc(self.at.cast(), room * size_of::<*mut Dirent>()) };
            if grown.is_null() {
                return false;
            }
            self.at = grown.cast();
            self.room = room;
        }
        // SAFETY: by contract.
        let bytes = unsafe { (*entry).reclen } as usize;
        // SAFETY: plain allocation.
        let copy = unsafe { malloc(bytes) };
        if copy.is_null() {
            return false;
        }
        // SAFETY: the record and the copy are `bytes` long.
        unsafe { core::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), bytes) };
        // SAFETY: there is room.
        unsafe { self.at.add(self.len).write(copy.cast()) };
        self.len += 1;
        true
    }

    /// Frees everything.
    fn drop_all(&mut self) {
        for i in 0..self.len {
            // SAFETY: entries below `len` are malloc's.
            unsafe { free((*self.at.add(i)).cast()) };
        }
        // SAFETY: null or malloc's.
        unsafe { free(self.at.cast()) };
    }
}

/// Reads all of `stream` into `list`: 0 or an error number.
unsafe fn gather(stream: *mut Dir, select: Option<Select>, list: &mut List) -> i32 {
    loop {
        errno::set(0);
        // SAFETY: a live stream.
        let entry = unsafe { dir::readdir64(stream) };
        if entry.is_null() {
            return errno::get();
        }
        // SAFETY: the program's function on a whole record.
        if select.is_some_and(|select| unsafe { select(entry) } == 0) {
            continue;
        }
        // SAFETY: a whole record.
        if !unsafe { list.push(entry) } {
            return pm::Errno::ENOMEM.0;
        }
    }
}

/// `scandirat(3)`: number of entries in `*out`, or −1.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandirat64(
    dirfd: c_int,
    path: *const c_char,
    out: *mut *mut *mut Dirent,
    select: Option<Select>,
    compare: Option<Compare>,
) -> c_int {
    // SAFETY: the program's string.
    let stream = unsafe { dir::open_at(dirfd, path) };
    if stream.is_null() {
        return -1;
    }
    let saved = errno::get();
    let mut list = List { at: core::ptr::null_mut(), len: 0, room: 0 };
    // SAFETY: a live stream.
    let failed = unsafe { gather(stream, select, &mut list) };
    // SAFETY: the stream is ours.
    unsafe { dir::closedir(stream) };
    if failed != 0 {
        list.drop_all();
        errno::set(failed);
        return -1;
    }
    errno::set(saved);
    if let Some(compare) = compare {
        // SAFETY: the program's comparison of two entry pointers, `len` of them.
        unsafe {
            qsort(
                list.at.cast(),
                list.len,
                size_of::<*mut Dirent>(),
                core::mem::transmute::<Compare, unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>(compare),
            )
        };
    }
    // SAFETY: the program's pointer.
    unsafe { *out = list.at };
    list.len as c_int
}

export! {
    fn scandirat(dirfd: c_int, path: *const c_char, out: *mut *mut *mut Dirent, select: Option<Select>, compare: Option<Compare>) -> c_int {
        scandirat64(dirfd, path, out, select, compare)
    }
    fn scandir(path: *const c_char, out: *mut *mut *mut Dirent, select: Option<Select>, compare: Option<Compare>) -> c_int {
        scandirat64(abi::AT_FDCWD, path, out, select, compare)
    }
    fn scandir64(path: *const c_char, out: *mut *mut *mut Dirent, select: Option<Select>, compare: Option<Compare>) -> c_int {
        scandirat64(abi::AT_FDCWD, path, out, select, compare)
    }
}
