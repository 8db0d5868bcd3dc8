//! Which programs make system calls of their own ([`posix::own_calls`]).
//!
//! What was found is kept for the session, in links whose text is the verdict: one call to ask.

use crate::runtime::{alloc, session};
use core::ffi::CStr;
use core::fmt::Write;
use pm::file::File;
use pm::sys::abi::*;
use posix::own_calls::{BEFORE, KNOWN, calls_with_paths, find, is_elf, is_go, segments};

/// Read at a time.
const PIECE: usize = 256 << 10;
/// Verdicts kept.
const PLACES: u64 = 4096;

/// A text being put together, with a NUL behind.
struct Text<const N: usize>([u8; N], usize);

impl<const N: usize> Text<N> {
    fn new(parts: core::fmt::Arguments<'_>) -> Option<Self> {
        let mut text = Text([0; N], 0);
        text.write_fmt(parts).ok().map(|()| text)
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.1 + part.len();
        self.0[..N - 1].get_mut(self.1..end).ok_or(core::fmt::Error)?.copy_from_slice(part.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// Who makes a program's system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// The C library.
    None = b'0' as isize,
    /// The program too, on the stacks that it has from the C library.
    Own = b'1' as isize,
    /// Go's runtime, which calls on stacks of its own that have no room for us.
    Go = b'2' as isize,
}

impl Calls {
    fn from_text(text: u8) -> Self {
        match text {
            b'1' => Calls::Own,
            b'2' => Calls::Go,
            _ => Calls::None,
        }
    }
}

/// Who makes the calls of the program open at `fd`, which begins with `head`.
pub fn makes(fd: usize, program: &stat, head: &[u8]) -> Calls {
    if cfg!(not(target_arch = "x86_64")) || program.st_mode & S_IFMT != S_IFREG {
        return Calls::None;
    }
    let number = program.st_ino ^ program.st_dev.rotate_left(32) ^ program.st_ctime_nsec << 8;
    let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (PLACES - 1);
    let (dev, ino, size) = (program.st_dev, program.st_ino, program.st_size);
    let path = session::place().and_then(|session| Text::<320>::new(format_args!("{session}/scan/{place}")));
    let key = Text::<128>::new(format_args!("{dev}.{ino}.{size}.{}.{}.", program.st_ctime, program.st_ctime_nsec));
    let (Some(path), Some(mut key)) = (path, key) else { return look(fd, head) };
    let mut known = [0u8; 128];
    // SAFETY: a NUL-terminated path, and room for the answer.
    let len = unsafe { pm::call!(__NR_readlinkat, AT_FDCWD, path.0.as_ptr(), known.as_mut_ptr(), known.len()) }.unwrap_or(0);
    if let Some([verdict]) = known[..len].strip_prefix(&key.0[..key.1])
        && is_ours(&path.0[..=path.1])
    {
        return Calls::from_text(*verdict);
    }
    let found = look(fd, head);
    if write!(key, "{}", char::from(found as u8)).is_ok()
        && let (Some(place), Some(directory)) = (Text::<16>::new(format_args!("{place}")), own_directory())
    {
        if len != 0 {
            // SAFETY: a NUL-terminated name.
            let _ = unsafe { pm::call!(__NR_unlinkat, directory.number(), place.0.as_ptr(), 0) };
        }
        // SAFETY: NUL-terminated texts. It is of no account who was first, or that nobody may.
        let _ = unsafe { pm::call!(__NR_symlinkat, key.0.as_ptr(), directory.number(), place.0.as_ptr()) };
    }
    found
}

/// What the program that runs here does.
pub fn own() -> Calls {
    let mut head = [0u8; 1024];
    // SAFETY: a NUL-terminated path, which is the kernel's.
    let Ok(fd) = (unsafe { pm::call!(__NR_openat, AT_FDCWD, c"/proc/self/exe".as_ptr(), O_RDONLY | O_CLOEXEC) }) else {
        return Calls::None;
    };
    let mut stat = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: room for both answers.
    let len = unsafe {
        pm::call!(__NR_fstat, fd, stat.as_mut_ptr()).and_then(|_| pm::call!(__NR_pread64, fd, head.as_mut_ptr(), head.len(), 0))
    };
    // SAFETY: zeroed: a valid value, whether or not the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    let head = &head[..len.unwrap_or(0)];
    let calls = if is_elf(head) { makes(fd, &stat, head) } else { Calls::None };
    crate::runtime::kernel::close(fd);
    calls
}

/// Where the verdicts lie, if that is this user's directory: where a session has ended, anybody can make its path again, and
/// lead names in it elsewhere.
fn own_directory() -> Option<File> {
    let path = session::place().and_then(|session| Text::<320>::new(format_args!("{session}/scan")))?;
    let directory = File::directory(CStr::from_bytes_until_nul(&path.0).ok()?).ok()?;
    directory.stat().is_ok_and(|stat| stat.uid == pm::file::own_user()).then_some(directory)
}

/// Whether a link was made by this user or by root: where a session has ended, anybody can make its directory again.
fn is_ours(path: &[u8]) -> bool {
    pm::file::lstat(path).is_ok_and(|stat| stat.uid == 0 || stat.uid == pm::file::own_user())
}

/// Looks at the program's text.
#[cold]
fn look(fd: usize, head: &[u8]) -> Calls {
    const LOAD: u32 = 1;
    let room = alloc::alloc_pages(PIECE);
    if room.is_null() {
        return Calls::None;
    }
    // SAFETY: a block of that size, ours alone.
    let buffer = unsafe { core::slice::from_raw_parts_mut(room, PIECE) };
    let found = segments(head)
        .any(|(kind, at, len, is_text)| kind == LOAD && is_text && any_piece(fd, buffer, at, len, calls_with_paths));
    let is_known = |piece: &[u8]| KNOWN.iter().any(|name| find(piece, name).is_some());
    let found = match found && !any_piece(fd, buffer, 0, u64::MAX, is_known) {
        false => Calls::None,
        true if any_piece(fd, buffer, 0, u64::MAX, is_go) => Calls::Go,
        true => Calls::Own,
    };
    // SAFETY: not used any more.
    unsafe { alloc::free(room) };
    found
}

/// Whether `is` holds for any piece of `len` bytes of the file from `from` on; pieces overlap a little.
fn any_piece(fd: usize, buffer: &mut [u8], from: u64, len: u64, is: impl Fn(&[u8]) -> bool) -> bool {
    let (mut at, end) = (from, from.saturating_add(len));
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        // SAFETY: the buffer has that many bytes.
        let Ok(got) = (unsafe { pm::call!(__NR_pread64, fd, buffer.as_mut_ptr(), want, at) }) else { return false };
        if is(&buffer[..got]) {
            return true;
        }
        if got <= 2 * BEFORE {
            return false;
        }
        at += (got - 2 * BEFORE) as u64;
    }
    false
}
