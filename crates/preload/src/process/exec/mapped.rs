//! Programs that no loader loads us into: ours starts this library, which maps them.
//!
//! ```text
//! execve(PROG, ARGS…) ─▶ execve(LOADER, [LOADER, this library, "FD:PROG", ARGS…]), with PROG open as FD
//! ```
//! What the kernel would have looked at is looked at here: the right to execute, a file system without programs.

use super::{Arguments, HERE, Ready, Strings, kernel_exec};
use crate::process::own_calls;
use crate::runtime::environ::{self, Environment};
use crate::runtime::{alloc, imports, kernel, placeholders};
use core::ffi::c_char;
use core::fmt::Write;
use pm::sys::{self, abi::*};

const EACCES: isize = -13;
const ENOMEM: isize = -12;
const HEAD_BYTES: usize = 256;
const PATH_MAX: usize = 4096;
/// Where `struct statfs` has the flags of the mount, as words; and that it has no programs.
const STATFS_FLAGS: usize = 10;
const NO_PROGRAMS: u64 = 8;

/// A file of the kernel's that is closed in the end.
struct Opened(usize);

impl Drop for Opened {
    fn drop(&mut self) {
        kernel::close(self.0);
    }
}

/// A text in a block of ours.
struct Text {
    at: *mut u8,
    len: usize,
    room: usize,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        self.push(part.as_bytes())
    }
}

impl Text {
    fn push(&mut self, part: &[u8]) -> core::fmt::Result {
        let end = self.len + part.len();
        if end >= self.room {
            return Err(core::fmt::Error);
        }
        // SAFETY: inside the block, with a byte for the NUL.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), self.at.add(self.len), part.len()) };
        self.len = end;
        // SAFETY: as above.
        unsafe { *self.at.add(end) = 0 };
        Ok(())
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: made below; not used any more.
        unsafe { alloc::free(self.at) };
    }
}

impl Ready {
    /// Executes a program that we map; `None`: it can't be, and nothing was done.
    ///
    /// # Safety
    /// As for `try_path`.
    pub(super) unsafe fn start_mapped(
        &self,
        environment: &Environment,
        (dirfd, path, flags): (i32, *const c_char, i32),
        argv: Strings,
    ) -> Option<isize> {
        // SAFETY: by contract.
        let name = unsafe { imports::bytes(path) };
        let by_number = flags as u32 & AT_EMPTY_PATH != 0 && name.is_empty();
        let access = [dirfd as usize, path as usize, 1, AT_EACCESS as usize | flags as usize, 0, 0];
        // SAFETY: by contract.
        let may = unsafe { sys::raw(__NR_faccessat2 as usize, access) };
        if may < 0 && !by_number {
            return Some(may);
        }
        placeholders::flush();
        let file = if by_number {
            // It may be open as a path only.
            let mut link = [0u8; 32];
            posix::proc_fd(dirfd as u32, &mut link);
            // SAFETY: a NUL-terminated name.
            unsafe { pm::call!(__NR_openat, HERE, link.as_ptr(), O_RDONLY) }
        } else {
            let nofollow = if flags as u32 & AT_SYMLINK_NOFOLLOW != 0 { O_NOFOLLOW } else { 0 };
            // SAFETY: by contract.
            unsafe { pm::call!(__NR_openat, dirfd, path, O_RDONLY | nofollow) }
        };
        let file = Opened(file.ok()?);
        let mut head = [0u8; HEAD_BYTES];
        // SAFETY: the buffer outlives the call.
        unsafe { pm::call!(__NR_pread64, file.0, head.as_mut_ptr(), HEAD_BYTES - 1, 0) }.ok()?;
        if head.starts_with(b"#!") {
            // Its interpreter is the program; that it can be mapped was seen.
            // SAFETY: by contract.
            return (!name.is_empty()).then(|| unsafe { self.exec_script(&mut head, path, argv, 0) });
        }
        if !by_number && !may_hold_programs(file.0) {
            return Some(EACCES);
        }
        if has_rights(file.0) {
            return None;
        }
        // SAFETY: by contract.
        unsafe { self.start_loader(environment, file.0, name, argv) }
    }

    /// # Safety
    /// The strings of `argv` are NUL-terminated.
    unsafe fn start_loader(&self, environment: &Environment, file: usize, name: &[u8], argv: Strings) -> Option<isize> {
        let mut text = Text { at: alloc::alloc(3 * PATH_MAX), len: 0, room: 3 * PATH_MAX };
        if text.at.is_null() {
            return Some(ENOMEM);
        }
        // SAFETY: a block of that size, ours alone.
        own_calls::loader(unsafe { core::slice::from_raw_parts_mut(text.at, PATH_MAX) })?;
        let loader: *const c_char = text.at.cast();
        text.len = PATH_MAX;
        text.push(environ::own_name()).ok()?;
        text.len += 1;
        let description = text.len;
        write!(text, "{file}:").ok()?;
        text.push(name).ok()?;
        let place = |at: usize| text.at.wrapping_add(at).cast_const().cast::<c_char>();
        // SAFETY: by contract.
        let given = unsafe { imports::strings(argv) };
        let Some(mut list) = Arguments::new(given.clone().count() + 3) else { return Some(ENOMEM) };
        list.extend([loader, place(PATH_MAX), place(description)]);
        list.extend(given.map(|text| text.cast_const()));
        Some(environment.with_library_later(|| {
            // SAFETY: texts of ours, the program's strings, and a rebuilt environment.
            unsafe { kernel_exec(HERE, loader, list.as_ptr(), environment.as_ptr(), 0) }
        }))
    }
}

/// Whether the file system of a file is mounted with programs.
fn may_hold_programs(file: usize) -> bool {
    let mut told = [0u64; 15];
    // SAFETY: a `struct statfs` has 120 bytes.
    let known = unsafe { pm::call!(__NR_fstatfs, file, told.as_mut_ptr()) };
    known.is_err() || told[STATFS_FLAGS] & NO_PROGRAMS == 0
}

/// Whether a program has rights that its user has not, who then is nobody to map it.
fn has_rights(file: usize) -> bool {
    let mut rights = [0u8; 64];
    // SAFETY: a NUL-terminated name, and as much room as we say.
    let len = unsafe { pm::call!(__NR_fgetxattr, file, c"security.capability".as_ptr(), rights.as_mut_ptr(), rights.len()) };
    len.is_ok() && kernel::own(kernel::Who::EffectiveUser) != 0
}
