//! `fts_open` … `fts_close`: the BSD way to walk a tree, as libc does it.
//!
//! `Fts` and `Entry` are libc's structures: programs read their fields. All memory
//! is the program's `malloc`'s. Levels: −1 the parent of the roots, 0 the roots.
//!
//! Invariants
//! - `path` has room for every path an entry can have (its length is 16 bits).
//! - Without `NOCHDIR` the working directory is the one that holds `current`, but
//!   for roots, which are named from where the walk began.

use crate::runtime::imports::{free, malloc, qsort};
use crate::runtime::{call, errno, imports};
use core::ffi::{c_char, c_int, c_long, c_void};

use pm::Errno;
use pm::sys::abi;

use super::dir::{self, Dirent};
use crate::serve;

mod walk;

const FOLLOW_ROOTS: c_int = 1;
const LOGICAL: c_int = 2;
const NOCHDIR: c_int = 4;
const NOSTAT: c_int = 8;
const PHYSICAL: c_int = 16;
const SEE_DOTS: c_int = 32;
const ONE_DEVICE: c_int = 64;
const OPTIONS: c_int = 0xff;
const NAMES_ONLY: c_int = 0x100;
const STOP: c_int = 0x200;

const D: u16 = 1;
const DC: u16 = 2;
const DEFAULT: u16 = 3;
const DNR: u16 = 4;
const DOT: u16 = 5;
const DP: u16 = 6;
const ERR: u16 = 7;
const F: u16 = 8;
const INIT: u16 = 9;
const NS: u16 = 10;
const NSOK: u16 = 11;
const SL: u16 = 12;
const SLNONE: u16 = 13;

const DONT_CHDIR: u16 = 1;
const SYMLINK_FOLLOWED: u16 = 2;

const AGAIN: u16 = 1;
const FOLLOW: u16 = 2;
const NOTHING: u16 = 3;
const SKIP: u16 = 4;

/// Longest path an entry can have.
const PATH_BYTES: usize = u16::MAX as usize;

type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// `FTS`.
#[repr(C)]
pub struct Fts {
    current: *mut Entry,
    children: *mut Entry,
    sorted: *mut *mut Entry,
    device: u64,
    path: *mut u8,
    home: c_int,
    path_bytes: c_int,
    items: c_int,
    compare: Option<Compare>,
    options: c_int,
}

/// `FTSENT`.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    access: *mut u8,
    path: *mut u8,
    errno: c_int,
    symlink_fd: c_int,
    path_len: u16,
    name_len: u16,
    ino: u64,
    device: u64,
    links: u64,
    level: i16,
    info: u16,
    flags: u16,
    instruction: u16,
    stat: *mut abi::stat,
    name: [u8; 1],
}

const _: () = assert!(core::mem::offset_of!(Entry, name) == 112);
const _: () = assert!(core::mem::offset_of!(Fts, options) == 64);

/// Which part of a directory is read, and for whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// For `fts_read`.
    Read,
    /// For `fts_children`.
    Children,
    /// For `fts_children(FTS_NAMEONLY)`.
    Names,
}

/// A new entry with a name and room for its attributes; null with `ENOMEM`.
fn new_entry(name: &[u8], path: *mut u8) -> *mut Entry {
    let head = (core::mem::offset_of!(Entry, name) + name.len() + 1).next_multiple_of(16);
    // SAFETY: plain allocation.
    let at = unsafe { malloc(head + size_of::<abi::stat>()) }.cast::<u8>();
    if at.is_null() {
        errno::set(Errno::ENOMEM.0);
        return core::ptr::null_mut();
    }
    // SAFETY: the whole block.
    unsafe { core::ptr::write_bytes(at, 0, head + size_of::<abi::stat>()) };
    let entry = at.cast::<Entry>();
    // SAFETY: zeroed, which is a valid entry; nobody else has it.
    let fields = unsafe { &mut *entry };
    fields.path = path;
    fields.name_len = name.len() as u16;
    fields.instruction = NOTHING;
    fields.symlink_fd = -1;
    // SAFETY: `head` bytes lie before the attributes.
    fields.stat = unsafe { at.add(head) }.cast();
    // SAFETY: room for the name and a NUL (zero already).
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), name_of(entry), name.len()) };
    entry
}

fn name_of(entry: *mut Entry) -> *mut u8 {
    // SAFETY: an address inside the block.
    unsafe { (&raw mut (*entry).name).cast() }
}

/// Frees a list of entries.
fn free_list(mut entry: *mut Entry) {
    while !entry.is_null() {
        // SAFETY: a live entry of a list.
        let next = unsafe { (*entry).link };
        // SAFETY: malloc's.
        unsafe { free(entry.cast()) };
        entry = next;
    }
}

fn open_here() -> c_int {
    let flags = abi::O_RDONLY | abi::O_CLOEXEC;
    // SAFETY: a string.
    errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, c".".as_ptr(), flags, 0) })
}

fn close(fd: c_int) {
    call::close(fd);
}

/// Where the `/` after an entry's path goes.
fn append_at(entry: &Entry) -> usize {
    let len = entry.path_len as usize;
    // SAFETY: the path holds `path_len` bytes.
    if len > 0 && unsafe { *entry.path.add(len - 1) } == b'/' { len - 1 } else { len }
}

/// `fts_open(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_open(roots: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut Fts {
    if options & !OPTIONS != 0 {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    // SAFETY: plain allocation.
    let stream = unsafe { malloc(size_of::<Fts>()) }.cast::<Fts>();
    // SAFETY: plain allocation; pages that no path reaches are never touched.
    let path = unsafe { malloc(PATH_BYTES + 1) }.cast::<u8>();
    if stream.is_null() || path.is_null() {
        // SAFETY: null or malloc's.
        unsafe { free(stream.cast()) };
        // SAFETY: null or malloc's.
        unsafe { free(path.cast()) };
        errno::set(Errno::ENOMEM.0);
        return core::ptr::null_mut();
    }
    let fts = Fts {
        current: core::ptr::null_mut(),
        children: core::ptr::null_mut(),
        sorted: core::ptr::null_mut(),
        device: 0,
        path,
        home: -1,
        path_bytes: PATH_BYTES as c_int,
        items: 0,
        compare,
        options: if options & LOGICAL != 0 { options | NOCHDIR } else { options },
    };
    // SAFETY: a fresh block.
    unsafe { stream.write(fts) };
    // SAFETY: as above.
    let fts = unsafe { &mut *stream };
    // SAFETY: the program's list.
    if !unsafe { open_roots(fts, roots) } {
        let saved = errno::get();
        // SAFETY: malloc's.
        unsafe { free(path.cast()) };
        // SAFETY: malloc's.
        unsafe { free(stream.cast()) };
        errno::set(saved);
        return core::ptr::null_mut();
    }
    if !fts.has(NOCHDIR) {
        fts.home = open_here();
        if fts.home < 0 {
            fts.options |= NOCHDIR;
        }
    }
    stream
}

/// Makes the roots and the entry before them; `false` with `errno`.
unsafe fn open_roots(fts: &mut Fts, roots: *const *mut c_char) -> bool {
    let parent = new_entry(b"", fts.path);
    let before = new_entry(b"", fts.path);
    let mut list = core::ptr::null_mut::<Entry>();
    let mut last = list;
    let mut failed = if parent.is_null() || before.is_null() { Errno::ENOMEM.0 } else { 0 };
    let mut len = 0;
    while failed == 0 {
        // SAFETY: the program's list ends with null.
        let root = unsafe { *roots.add(len) };
        if root.is_null() {
            break;
        }
        // SAFETY: the program's string.
        let name = unsafe { imports::bytes(root) };
        let entry = if name.is_empty() || name.len() >= PATH_BYTES { core::ptr::null_mut() } else { new_entry(name, fts.path) };
        // SAFETY: null or a fresh entry.
        let Some(fields) = (unsafe { entry.as_mut() }) else {
            failed = if name.is_empty() { Errno::ENOENT.0 } else { Errno::ENAMETOOLONG.0 };
            break;
        };
        fields.level = 0;
        fields.parent = parent;
        fields.access = name_of(entry);
        fields.info = fts.look(entry, fts.has(FOLLOW_ROOTS));
        if fields.info == DOT {
            fields.info = D;
        }
        if last.is_null() {
            list = entry;
        } else {
            // SAFETY: the last of the list.
            unsafe { (*last).link = entry };
        }
        last = entry;
        len += 1;
    }
    if failed != 0 {
        free_list(list);
        // SAFETY: null or malloc's.
        unsafe { free(parent.cast()) };
        // SAFETY: null or malloc's.
        unsafe { free(before.cast()) };
        errno::set(failed);
        return false;
    }
    // SAFETY: a fresh entry.
    unsafe { (*parent).level = -1 };
    // SAFETY: as above.
    let first = unsafe { &mut *before };
    first.link = fts.sort(list, len);
    first.parent = parent;
    first.info = INIT;
    fts.current = before;
    true
}

/// `fts_read(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_read(stream: *mut Fts) -> *mut Entry {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    let entry = fts.current;
    if entry.is_null() || fts.has(STOP) {
        return core::ptr::null_mut();
    }
    // SAFETY: the live current entry.
    let fields = unsafe { &mut *entry };
    let instruction = core::mem::replace(&mut fields.instruction, NOTHING);
    if instruction == AGAIN {
        fields.info = fts.look(entry, false);
        return entry;
    }
    if instruction == FOLLOW && matches!(fields.info, SL | SLNONE) {
        fts.follow(entry);
        return entry;
    }
    if fields.info == D {
        let elsewhere = fts.has(ONE_DEVICE) && fields.device != fts.device;
        if instruction != SKIP && !elsewhere {
            return fts.descend(entry);
        }
        if fields.flags & SYMLINK_FOLLOWED != 0 {
            close(fields.symlink_fd);
        }
        free_list(core::mem::replace(&mut fts.children, core::ptr::null_mut()));
        fields.info = DP;
        return entry;
    }
    fts.advance(entry)
}

/// `fts_children(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_children(stream: *mut Fts, instruction: c_int) -> *mut Entry {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    if instruction != 0 && instruction != NAMES_ONLY {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    errno::set(0);
    // SAFETY: null or the live current entry.
    let Some(fields) = (unsafe { fts.current.as_ref() }) else { return core::ptr::null_mut() };
    if fts.has(STOP) {
        return core::ptr::null_mut();
    }
    if fields.info == INIT {
        return fields.link;
    }
    if fields.info != D {
        return core::ptr::null_mut();
    }
    free_list(core::mem::replace(&mut fts.children, core::ptr::null_mut()));
    let kind = if instruction == NAMES_ONLY {
        fts.options |= NAMES_ONLY;
        Build::Names
    } else {
        Build::Children
    };
    // A root with a relative path: its parent is not where the walk began.
    // SAFETY: a string.
    let relative_root = fields.level == 0 && unsafe { *fields.access } != b'/' && !fts.has(NOCHDIR);
    let here = if relative_root { open_here() } else { -1 };
    if relative_root && here < 0 {
        return core::ptr::null_mut();
    }
    fts.children = fts.build(kind);
    if here >= 0 {
        let back = fts.chdir_to(here);
        close(here);
        if !back {
            return core::ptr::null_mut();
        }
    }
    fts.children
}

/// `fts_set(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_set(_stream: *mut Fts, entry: *mut Entry, instruction: c_int) -> c_int {
    if !(0..=SKIP as c_int).contains(&instruction) {
        errno::set(Errno::EINVAL.0);
        return 1;
    }
    // SAFETY: a live entry.
    unsafe { (*entry).instruction = instruction as u16 };
    0
}

/// `fts_close(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_close(stream: *mut Fts) -> c_int {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    let mut entry = fts.current;
    // SAFETY: entries from the current one along links, then up to the roots' parent.
    while let Some(fields) = unsafe { entry.as_ref() } {
        let next = match fields.level {
            -1 => core::ptr::null_mut(),
            _ if fields.link.is_null() => fields.parent,
            _ => fields.link,
        };
        // SAFETY: malloc's, each met once.
        unsafe { free(entry.cast()) };
        entry = next;
    }
    free_list(fts.children);
    let mut result = 0;
    if !fts.has(NOCHDIR) {
        result = errno::ret_int(call::fchdir(fts.home));
        let saved = errno::get();
        close(fts.home);
        errno::set(saved);
    }
    // SAFETY: malloc's.
    unsafe { free(fts.path.cast()) };
    // SAFETY: malloc's.
    unsafe { free(stream.cast()) };
    result
}

export! {
    fn fts64_open(roots: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut Fts {
        fts_open(roots, options, compare)
    }
    fn fts64_read(stream: *mut Fts) -> *mut Entry {
        fts_read(stream)
    }
    fn fts64_children(stream: *mut Fts, instruction: c_int) -> *mut Entry {
        fts_children(stream, instruction)
    }
    fn fts64_set(stream: *mut Fts, entry: *mut Entry, instruction: c_int) -> c_int {
        fts_set(stream, entry, instruction)
    }
    fn fts64_close(stream: *mut Fts) -> c_int {
        fts_close(stream)
    }
}
