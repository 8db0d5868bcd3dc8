//! Which programs make system calls of their own ([`posix::own_calls`]).
//!
//! What was found is kept for the session ([`known`]).

mod known;
mod loaded;

pub use loaded::{Found, loaded, loader, opened, outside, own};
pub use posix::own_calls::is_musls;

use crate::runtime::objects::Object;
use crate::runtime::{alloc, dispatch};
use core::ffi::CStr;
use known::{Entry, TEXT_MAX};
use pm::sys::abi::*;
use posix::own_calls::{BEFORE, KNOWN, calls_with_paths, find, is_elf, is_go, segments};

/// Read at a time.
const PIECE: usize = 256 << 10;
/// Who makes a program's system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// The C library.
    None = b'0' as isize,
    /// The program too, on the stacks that it has from the C library.
    Own = b'1' as isize,
    /// Go's runtime, which calls on stacks that have no room for us.
    Go = b'2' as isize,
    /// The program too, about files that are not the session's.
    Aside = b'3' as isize,
}

impl Calls {
    /// Whether they can be served, where the kernel hands them back.
    pub fn can_be_served(self) -> bool {
        matches!(self, Calls::Own | Calls::Go)
    }

    fn from_text(text: u8) -> Self {
        match text {
            b'1' => Calls::Own,
            b'2' => Calls::Go,
            b'3' => Calls::Aside,
            _ => Calls::None,
        }
    }
}

/// Whether a program that begins with `head` can be mapped by us, and its calls handed back.
pub fn can_be_mapped(head: &[u8]) -> bool {
    let comes = || dispatch::is_possible() || pm::dispatch::can_trap();
    posix::own_calls::can_be_mapped(head) && comes() && pm::dispatch::bases() != pm::dispatch::Bases::Never
}

/// Who makes the calls of the program open at `fd`, which begins with `head`.
pub fn makes(fd: usize, program: &stat, head: &[u8]) -> Calls {
    if cfg!(not(target_arch = "x86_64")) || program.st_mode & S_IFMT != S_IFREG {
        return Calls::None;
    }
    let number = program.st_ino ^ program.st_dev.rotate_left(32) ^ program.st_ctime_nsec << 8;
    let (dev, ino, size) = (program.st_dev, program.st_ino, program.st_size);
    let (seconds, nanos) = (program.st_ctime, program.st_ctime_nsec);
    let Some(entry) = Entry::new(number, format_args!("{dev}.{ino}.{size}.{seconds}.{nanos}.")) else { return look(fd, head) };
    let mut room = [0; TEXT_MAX];
    if let Some([verdict]) = entry.known(&mut room) {
        return Calls::from_text(*verdict);
    }
    let found = look(fd, head);
    entry.keep(&[found as u8]);
    found
}

/// Who makes the calls of the file at a path of the kernel's; `None`: it can't be read.
pub fn of_file(path: &CStr) -> Option<Calls> {
    let mut head = [0u8; 1024];
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { pm::call!(__NR_openat, AT_FDCWD, path.as_ptr(), O_RDONLY | O_CLOEXEC) }.ok()?;
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
    Some(calls)
}

/// The same of an object in memory.
fn of_object(object: &Object) -> Calls {
    let holds = |is_code: bool, is: &dyn Fn(&[u8]) -> bool| object.segments(is_code).any(is);
    match () {
        () if !holds(true, &calls_with_paths) => Calls::None,
        () if holds(false, &is_known) => Calls::Aside,
        () if holds(false, &is_go) => Calls::Go,
        () => Calls::Own,
    }
}

/// Whether that is of what makes such calls about other files.
fn is_known(text: &[u8]) -> bool {
    KNOWN.iter().any(|name| find(text, name).is_some())
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
    let found = match () {
        () if !found => Calls::None,
        () if any_piece(fd, buffer, 0, u64::MAX, is_known) => Calls::Aside,
        () if any_piece(fd, buffer, 0, u64::MAX, is_go) => Calls::Go,
        () => Calls::Own,
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
