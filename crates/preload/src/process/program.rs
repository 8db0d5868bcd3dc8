//! What a program that runs as a copy in memory says of itself: its path in the mount, as it would in any other.
//!
//! The copy is named after that path, and was written when the program was, so that any process of the session that asks
//! for `/proc/PID/exe` can be told ([`posix`]); the kernel's command name and `AT_EXECFN`, which it takes from the copy, are
//! set when the program starts.

use crate::process::copy::copy_out;
use crate::process::shared_copies::{Use, Wanted};
use crate::runtime::{alloc, kernel, placeholders};
use crate::serve;
use core::mem::MaybeUninit;
use pm::sys::abi::*;
use posix::COPY_NAME_MAX;

/// How the kernel calls a program that was executed by its descriptor alone.
const BY_NUMBER: &[u8] = b"/dev/fd/";
/// How the kernel names what has its contents in memory, and copies among that.
const MEMORY: &[u8] = b"/memfd:";
const COPY: &[u8] = b"/memfd:/";
const GONE: &[u8] = b" (deleted)";
const AT_EXECFN: usize = 31;
/// How far behind the environment's end the auxiliary vector may begin, in words.
const VECTOR_MAX: usize = 1024;
const PAGE: usize = 4096;
const MEMORY_FLAGS: usize = (MFD_CLOEXEC | MFD_ALLOW_SEALING) as usize;
const PR_SET_NAME: usize = 15;

#[link(name = "c")]
unsafe extern "C" {
    /// Where the kernel has put what the program was started with: the number of arguments, the arguments, null, the
    /// environment, null, the auxiliary vector.
    static __libc_stack_end: *mut usize;
}

/// A copy of `file`, which the program called `path`: the session's, or a new one, which becomes the session's. Its
/// descriptor, or a negated error number.
pub fn copy_of(file: i32, path: &[u8]) -> isize {
    let name = name_of(file, path);
    let text = name.split(|&b| b == 0).next().unwrap_or(&name);
    let mut wanted = Wanted::of(file, Use::Program, text);
    if let Some(copy) = wanted.as_mut().and_then(Wanted::ask) {
        return copy as isize;
    }
    // SAFETY: a NUL-terminated name.
    let copy = unsafe { placeholders::creating(__NR_memfd_create, [name.as_ptr() as usize, MEMORY_FLAGS, 0, 0, 0, 0]) };
    if copy < 0 {
        return copy;
    }
    if let Err(error) = copy_out(file, copy as i32) {
        kernel::close(copy);
        return error;
    }
    date_copy(file, copy as i32);
    wanted.map_or(copy, |wanted| wanted.offer(copy as i32) as isize)
}

/// How a copy of `file` is called, NUL-terminated.
fn name_of(file: i32, path: &[u8]) -> [u8; COPY_NAME_MAX + 1] {
    let mut name = [0u8; COPY_NAME_MAX + 1];
    let mut link = [0u8; 32];
    posix::proc_fd(file as u32, &mut link);
    // SAFETY: a NUL-terminated name, and a buffer as long as we say.
    let len = unsafe { serve!(__NR_readlinkat, AT_FDCWD, link.as_ptr(), name.as_mut_ptr(), name.len()) };
    if !(1..=COPY_NAME_MAX as isize).contains(&len) {
        // Too long, or gone: the last part of what it was called.
        let part = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let len = part.len().min(COPY_NAME_MAX);
        name.fill(0);
        name[..len].copy_from_slice(&part[..len]);
    }
    name
}

/// The copy was written when `file` was.
fn date_copy(file: i32, copy: i32) {
    let mut stat = MaybeUninit::<stat>::zeroed();
    // SAFETY: room for the answer.
    if unsafe { serve!(__NR_fstat, file, stat.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: filled in.
    let stat = unsafe { stat.assume_init() };
    let times: [[u64; 2]; 2] = [[stat.st_atime as _, stat.st_atime_nsec as _], [stat.st_mtime as _, stat.st_mtime_nsec as _]];
    // SAFETY: two times; null is the descriptor itself.
    let _ = unsafe { pm::call!(__NR_utimensat, copy, 0, times.as_ptr(), 0) };
}

/// At the start of a program, which has this one thread.
pub fn settle() {
    // SAFETY: where the loader has put it.
    let Some(entry) = (unsafe { execfn(__libc_stack_end) }) else { return };
    // A byte at a time: a shorter text may end where the stack does, as in gVisor.
    // SAFETY: the kernel's entry: a NUL-terminated text, which is not read beyond a byte that differs.
    let is_by_number = || unsafe { BY_NUMBER.iter().enumerate().all(|(at, byte)| *(*entry as *const u8).add(at) == *byte) };
    if !is_by_number() {
        return;
    }
    const ROOM: usize = COPY.len() + COPY_NAME_MAX + GONE.len();
    let text = alloc::alloc(ROOM + 1);
    if text.is_null() {
        return;
    }
    // SAFETY: a NUL-terminated name and a block of that size, ours alone.
    let got = unsafe { pm::call!(__NR_readlinkat, AT_FDCWD, c"/proc/self/exe".as_ptr(), text, ROOM) }.unwrap_or(0);
    // SAFETY: as above, and so many bytes are written.
    let link = unsafe { core::slice::from_raw_parts_mut(text, ROOM + 1) };
    // A copy, or a file of the kernel's that a mount shows.
    let range = match link[..got].strip_prefix(COPY).and_then(|rest| rest.strip_suffix(GONE)) {
        Some(rest) => COPY.len() - 1..COPY.len() + rest.len(),
        None if link[0] == b'/' && !link.starts_with(MEMORY) => 0..got,
        None => {
            // SAFETY: not used any more.
            unsafe { alloc::free(text) };
            return;
        }
    };
    link[range.end] = 0;
    let path = &link[range.start..=range.end];
    // SAFETY: the kernel's entry, which only libc's `getauxval` reads; the text is there for good.
    unsafe { *entry = path.as_ptr() as usize };
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    // SAFETY: a NUL-terminated text.
    let _ = unsafe { pm::call!(__NR_prctl, PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// The value of `AT_EXECFN` in the auxiliary vector.
///
/// # Safety
/// `start` is null or where the kernel has put what the program was started with.
unsafe fn execfn(start: *mut usize) -> Option<*mut usize> {
    if start.is_null() {
        return None;
    }
    // SAFETY: by contract, the number of arguments; behind them a null and the environment, which others may have made
    // shorter, but never longer.
    let mut at = unsafe { start.add(2 + *start) };
    // SAFETY: the environment ends with a null.
    while unsafe { *at } != 0 {
        // SAFETY: not yet at its end.
        at = unsafe { at.add(1) };
    }
    // Behind it may lie more of it, pointers and nulls; the vector begins with a small number.
    for _ in 0..VECTOR_MAX {
        // SAFETY: the vector is not empty.
        match unsafe { *at } {
            0 | PAGE.. => at = at.wrapping_add(1),
            _ => break,
        }
    }
    loop {
        // SAFETY: inside the vector, which ends with a pair of nulls.
        match unsafe { *at } {
            0 => return None,
            AT_EXECFN => return Some(at.wrapping_add(1)),
            _ => at = at.wrapping_add(2),
        }
    }
}
