//! Writing the stubs and the jumps to them.

use super::table::Table;
use super::{Library, entry, is_wanted};
use pm::sys::abi::*;

const PAGE: usize = 4096;
/// Room for all stubs: some 40 bytes each, and [`super::entry::address`] in front.
const STUBS_BYTES: usize = 8 * PAGE;
/// How far from libc the stubs may be, both ends included.
const NEAR: usize = 1 << 30;
const STEP: usize = 1 << 24;
/// Longest stub: the window without its `syscall`, 18 bytes around the call, the jump back.
const STUB_MAX: usize = 14 + 18 + 5;
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
const NOP: u8 = 0x90;

/// Most sites that are redirected; libc has some 150 that are wanted.
const SITES_MAX: usize = 256;

/// A site whose stub is written: its window, and where it shall lead.
#[derive(Clone, Copy)]
struct Jump {
    at: usize,
    end: usize,
    stub: usize,
}

/// Redirects the wanted sites.
///
/// # Errors
/// What could not be done, in words; nothing is redirected then.
pub fn write(library: &Library, table: &Table) -> Result<(), &'static str> {
    let stubs = map_near(library).ok_or("no room for code near it")?;
    let mut jumps = [Jump { at: 0, end: 0, stub: 0 }; SITES_MAX];
    let count = write_stubs(library, table, stubs, &mut jumps);
    if count == 0 {
        return Err("its code is not what the table says");
    }
    protect(&(stubs..stubs + STUBS_BYTES), PROT_READ | PROT_EXEC).map_err(|_| "new code is not allowed here")?;
    let pages = library.text.start & !(PAGE - 1)..library.text.end.next_multiple_of(PAGE);
    protect(&pages, PROT_READ | PROT_WRITE).map_err(|_| "its code can't be written")?;
    // From here on nothing of libc can be called, `memcpy` and its kin neither.
    jumps[..count].iter().for_each(write_jump);
    if protect(&pages, PROT_READ | PROT_EXEC).is_err() {
        crate::runtime::panic::abort();
    }
    Ok(())
}

/// Writes the stubs of the sites that are what the table says; how many.
fn write_stubs(library: &Library, table: &Table, stubs: usize, jumps: &mut [Jump; SITES_MAX]) -> usize {
    let mut out = Writer { at: stubs, end: stubs + STUBS_BYTES };
    out.bytes(&entry::address().to_le_bytes());
    let mut count = 0;
    for site in table.sites().filter(|site| is_wanted(site.number)) {
        let at = library.base + site.offset as usize;
        let end = at + site.bytes.len();
        if at < library.text.start || end > library.text.end || out.end - out.at < STUB_MAX || count == SITES_MAX {
            continue;
        }
        // SAFETY: inside the library's code.
        if unsafe { core::slice::from_raw_parts(at as *const u8, site.bytes.len()) } != site.bytes {
            continue;
        }
        jumps[count] = Jump { at, end, stub: out.at };
        count += 1;
        out.bytes(&site.bytes[..site.at]);
        out.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea -128(%rsp),%rsp
        out.bytes(&[0xff, 0x15]); // call *(%rip + …)
        out.distance(stubs);
        out.bytes(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea 128(%rsp),%rsp
        out.bytes(&site.bytes[site.at + 2..]);
        out.bytes(&[JUMP]);
        out.distance(end);
    }
    count
}

/// Writes the jump over a site, byte by byte: a loop that the compiler must not
/// turn into a call of libc's `memcpy`.
#[inline(always)]
fn write_jump(jump: &Jump) {
    let distance = jump.stub.wrapping_sub(jump.at + JUMP_BYTES) as u32;
    for at in 0..jump.end - jump.at {
        let byte = match at {
            0 => JUMP,
            1..JUMP_BYTES => (distance >> (8 * (at - 1))) as u8,
            _ => NOP,
        };
        // SAFETY: inside libc's code, writable now, which nobody runs in.
        unsafe { ((jump.at + at) as *mut u8).write_volatile(byte) };
    }
}

fn protect(range: &core::ops::Range<usize>, how: u32) -> Result<usize, pm::Errno> {
    // SAFETY: whole pages of libc's code or of our stubs; nobody runs in them meanwhile: the
    // program has one thread, which is here and makes raw system calls only.
    unsafe { pm::call!(__NR_mprotect, range.start, range.len(), how) }
}

/// Fresh memory within reach of a jump from libc.
fn map_near(library: &Library) -> Option<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    let below = (1..NEAR / STEP).filter_map(|n| (library.base & !(STEP - 1)).checked_sub(n * STEP));
    let above = (1..NEAR / STEP).map(|n| library.text.end.next_multiple_of(STEP) + n * STEP);
    below.chain(above).find(|at| {
        // SAFETY: a new mapping that replaces nothing.
        let got = unsafe { pm::call!(__NR_mmap, *at, STUBS_BYTES, PROT_READ | PROT_WRITE, flags, -1isize, 0) };
        match got {
            Ok(got) if got == *at => true,
            Ok(elsewhere) => {
                // A kernel without NOREPLACE took it for a hint.
                // SAFETY: mapped just now.
                let _ = unsafe { pm::call!(__NR_munmap, elsewhere, STUBS_BYTES) };
                false
            }
            Err(_) => false,
        }
    })
}

/// Writes code from `at` on, never past `end`.
struct Writer {
    at: usize,
    end: usize,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.end - self.at {
            // SAFETY: inside memory that was made writable, which nobody runs in now.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at as *mut u8, bytes.len()) };
            self.at += bytes.len();
        }
    }

    /// The distance from behind these four bytes to `target`; [`map_near`] keeps it small.
    fn distance(&mut self, target: usize) {
        let distance = target.wrapping_sub(self.at + 4) as i32;
        self.bytes(&distance.to_le_bytes());
    }
}
