//! The jump tables of libc's streams, and our five entries in them.
//!
//! Invariants
//! - Nothing is stored unless the two tables hold libc's own five functions, in
//!   this order, one after the other; else `fopen` on our paths refuses.
//! - The tables stay what they were for streams whose descriptor is not ours: the
//!   entries go on to libc's functions.
//! - Each entry is one word, stored whole: another thread in the middle of a call
//!   sees the old or the new one, and both are right for a kernel descriptor.
//! - The entries are ours before the program has its first descriptor of ours ([`crate::runtime::placeholders`]): a program
//!   without one does not pay for the pages.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use pm::sys::abi;

use crate::direct;
use crate::runtime::call::is_ours;
use crate::runtime::child::IN_CHILD;
use crate::runtime::placeholders::BEFORE_FIRST;
use crate::runtime::{errno, operation, stores, tls};

/// `FILE`, as far as we look at it. The layout is part of glibc's ABI.
#[repr(C)]
pub struct File {
    /// [`NO_READS`] … and libc's own.
    pub flags: c_int,
    buffers: [*mut c_void; 13],
    /// The descriptor.
    pub fileno: c_int,
    /// [`CLOSE_ON_EXEC`] … and libc's own.
    pub flags2: c_int,
    old_offset: isize,
    column: u16,
    vtable_offset: i8,
    short: [u8; 1],
    lock: *mut c_void,
    /// Where the descriptor stands, or −1 if libc does not know.
    pub offset: i64,
}

const _: () = assert!(core::mem::offset_of!(File, fileno) == 112);
const _: () = assert!(core::mem::offset_of!(File, offset) == 144);

/// Not open for reading (`_IO_NO_READS`).
pub const NO_READS: c_int = 4;
/// Not open for writing (`_IO_NO_WRITES`).
pub const NO_WRITES: c_int = 8;
/// An error was seen (`_IO_ERR_SEEN`).
pub const ERROR_SEEN: c_int = 0x20;
/// Opened to append (`_IO_IS_APPENDING`).
pub const APPENDING: c_int = 0x1000;
/// A stream on a descriptor (`_IO_IS_FILEBUF`).
pub const IS_FILE: c_int = 0x2000;
/// Opened with `e` (`_IO_FLAGS2_CLOEXEC`).
pub const CLOSE_ON_EXEC: c_int = 64;

/// Words of a jump table.
const TABLE_WORDS: usize = 21;
const ENTRIES: usize = 5;

/// What the loader found: two tables and five functions of libc, 0 where it has none.
#[repr(C)]
struct Symbols {
    tables: [usize; 2],
    functions: [usize; ENTRIES],
}

// Weak references, so that the library also loads beside a libc without them; and
// resolved by the loader, so that no `dlsym` is needed at start.
core::arch::global_asm!(
    ".weak _IO_file_jumps",
    ".weak _IO_wfile_jumps",
    ".weak _IO_file_read",
    ".weak _IO_file_write",
    ".weak _IO_file_seek",
    ".weak _IO_file_close",
    ".weak _IO_file_stat",
    ".pushsection .data.rel.ro.bypath_stdio,\"aw\"",
    ".p2align 3",
    ".globl bypath_stdio_symbols",
    ".hidden bypath_stdio_symbols",
    ".type bypath_stdio_symbols,%object",
    ".size bypath_stdio_symbols,56",
    "bypath_stdio_symbols:",
    ".8byte _IO_file_jumps",
    ".8byte _IO_wfile_jumps",
    ".8byte _IO_file_read",
    ".8byte _IO_file_write",
    ".8byte _IO_file_seek",
    ".8byte _IO_file_close",
    ".8byte _IO_file_stat",
    ".popsection",
);

unsafe extern "C" {
    static bypath_stdio_symbols: Symbols;
}

const UNTRIED: u32 = 0;
const DONE: u32 = 1;
const REFUSED: u32 = 2;
const BUSY: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(UNTRIED);

/// From now on they do so before the program has its first descriptor of ours.
pub fn start() {
    BEFORE_FIRST.set(|| {
        prepare();
    });
    IN_CHILD.set(fork_child);
}

/// Makes libc's streams work on our descriptors; `false` if this libc's tables
/// are not the ones we know. Cheap after the first call.
#[inline]
pub fn prepare() -> bool {
    match STATE.load(Acquire) {
        DONE => true,
        REFUSED => false,
        _ => prepare_once(),
    }
}

#[cold]
fn prepare_once() -> bool {
    let tls = tls::get();
    // A handler of this thread's that wants the same would wait for ever.
    operation::enter(tls);
    let done = loop {
        match STATE.compare_exchange(UNTRIED, BUSY, AcqRel, Acquire) {
            Ok(_) => break prepare_alone(),
            Err(BUSY) => core::hint::spin_loop(),
            Err(state) => break state == DONE,
        }
    };
    operation::leave(tls);
    done
}

/// In a forked child: the thread that was at it is not here. It may have got to any entry.
fn fork_child() {
    let _ = STATE.compare_exchange(BUSY, UNTRIED, AcqRel, Relaxed);
}

fn prepare_alone() -> bool {
    // SAFETY: written by the loader before any code of ours runs, and never again.
    let symbols = unsafe { (&raw const bypath_stdio_symbols).read_volatile() };
    let places = symbols.tables.map(|table| find(table, &symbols.functions));
    let done = match places {
        // Usually one page has both.
        [Some(narrow), Some(wide)] if narrow.abs_diff(wide) < 4096 => set(&[narrow.min(wide), narrow.max(wide)]),
        [Some(narrow), Some(wide)] => set(&[narrow]) && set(&[wide]),
        _ => false,
    };
    STATE.store(if done { DONE } else { REFUSED }, Release);
    done
}

/// Our functions, in the order of the entries.
fn ours() -> [usize; ENTRIES] {
    [
        read as *const () as usize,
        write as *const () as usize,
        seek as *const () as usize,
        close as *const () as usize,
        stat as *const () as usize,
    ]
}

/// Address of the five entries in the table, if they are there: libc's, or ours.
fn find(table: usize, functions: &[usize; ENTRIES]) -> Option<usize> {
    if table == 0 || functions.contains(&0) {
        return None;
    }
    let ours = ours();
    (0..=TABLE_WORDS - ENTRIES).map(|i| table + i * 8).find(|&at| {
        (0..ENTRIES).all(|k| {
            // SAFETY: the table of this libc has TABLE_WORDS words.
            let word = unsafe { ((at + k * 8) as *const usize).read() };
            word == functions[k] || word == ours[k]
        })
    })
}

/// Stores our functions at each of `places` (ascending, near each other); their
/// pages are read-only before and after.
fn set(places: &[usize]) -> bool {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return true };
    let start = first & !4095;
    let len = ((last + ENTRIES * 8 + 4095) & !4095) - start;
    // SAFETY: pages of libc's relocated data; they stay readable.
    if unsafe { pm::call!(abi::__NR_mprotect, start, len, abi::PROT_READ | abi::PROT_WRITE) }.is_err() {
        return false;
    }
    for at in places {
        for (k, function) in ours().into_iter().enumerate() {
            // SAFETY: aligned words of the table, writable now; readers load whole words.
            unsafe { &*((at + k * 8) as *const AtomicUsize) }.store(function, Release);
        }
    }
    // SAFETY: as it was: the loader had made them read-only.
    let _ = unsafe { pm::call!(abi::__NR_mprotect, start, len, abi::PROT_READ) };
    true
}

/// libc's own function behind entry `k`.
#[inline]
fn libc_entry(k: usize) -> usize {
    // SAFETY: written by the loader; a table with our entries has all of them.
    unsafe { (&raw const bypath_stdio_symbols.functions[k]).read() }
}

unsafe extern "C" fn read(file: *mut File, buffer: *mut c_void, bytes: isize) -> isize {
    // SAFETY: a live stream of libc's.
    let fd = unsafe { (*file).fileno };
    if is_ours(fd) {
        // SAFETY: libc's buffer.
        return errno::ret(unsafe { direct!(read, abi::__NR_read, fd, buffer, bytes) });
    }
    type Libc = unsafe extern "C" fn(*mut File, *mut c_void, isize) -> isize;
    // SAFETY: `_IO_file_read` has this type.
    let libc = unsafe { core::mem::transmute::<usize, Libc>(libc_entry(0)) };
    stores::ahead(buffer as usize, bytes as usize);
    // SAFETY: the arguments we were given.
    unsafe { libc(file, buffer, bytes) }
}

/// Writes all of it, as libc's entry does: short only after an error.
unsafe extern "C" fn write(file: *mut File, buffer: *const c_void, bytes: isize) -> isize {
    // SAFETY: a live stream of libc's.
    let fd = unsafe { (*file).fileno };
    if !is_ours(fd) {
        type Libc = unsafe extern "C" fn(*mut File, *const c_void, isize) -> isize;
        // SAFETY: `_IO_file_write` has this type.
        let libc = unsafe { core::mem::transmute::<usize, Libc>(libc_entry(1)) };
        // SAFETY: the arguments we were given.
        return unsafe { libc(file, buffer, bytes) };
    }
    let mut done = 0;
    while done < bytes {
        // SAFETY: libc's buffer, past what is written.
        let count = errno::ret(unsafe { direct!(write, abi::__NR_write, fd, buffer.byte_offset(done), bytes - done) });
        if count < 0 {
            // SAFETY: the stream is locked by the caller.
            unsafe { (*file).flags |= ERROR_SEEN };
            break;
        }
        done += count;
    }
    // SAFETY: the stream is locked by the caller.
    if unsafe { (*file).offset } >= 0 {
        // SAFETY: as above.
        unsafe { (*file).offset += done as i64 };
    }
    done
}

unsafe extern "C" fn seek(file: *mut File, offset: i64, whence: c_int) -> i64 {
    // SAFETY: a live stream of libc's.
    let fd = unsafe { (*file).fileno };
    if is_ours(fd) {
        // SAFETY: no pointers.
        return errno::ret(unsafe { direct!(lseek, abi::__NR_lseek, fd, offset, whence) }) as i64;
    }
    type Libc = unsafe extern "C" fn(*mut File, i64, c_int) -> i64;
    // SAFETY: `_IO_file_seek` has this type.
    let libc = unsafe { core::mem::transmute::<usize, Libc>(libc_entry(2)) };
    // SAFETY: the arguments we were given.
    unsafe { libc(file, offset, whence) }
}

/// Always our `close`, which knows what a number that the program has closed behind
/// the stream's back may carry by now.
unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: a live stream of libc's.
    let fd = unsafe { (*file).fileno };
    // SAFETY: no pointers.
    errno::ret_int(unsafe { direct!(close, abi::__NR_close, fd) })
}

unsafe extern "C" fn stat(file: *mut File, out: *mut c_void) -> c_int {
    // SAFETY: a live stream of libc's.
    let fd = unsafe { (*file).fileno };
    if is_ours(fd) {
        // SAFETY: libc's `struct stat`.
        return errno::ret_int(unsafe { direct!(fstat, abi::__NR_fstat, fd, out) });
    }
    type Libc = unsafe extern "C" fn(*mut File, *mut c_void) -> c_int;
    // SAFETY: `_IO_file_stat` has this type.
    let libc = unsafe { core::mem::transmute::<usize, Libc>(libc_entry(4)) };
    // SAFETY: the arguments we were given.
    unsafe { libc(file, out) }
}
