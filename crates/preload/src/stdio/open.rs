//! `fopen`, `fdopen`, `freopen`.
//!
//! `fopen` of a path that may be ours opens the file by a call like any other and so
//! learns whose it is. libc makes the stream; it gets our descriptor. Its `fdopen` asks the kernel
//! for the access mode and sees our placeholder, which is neither readable nor
//! writable but says "read-only"; so a stream is made for reading, and its flags
//! are then set as libc sets them from the mode. Modes with a character set
//! (`,ccs=`) need what only libc's `fopen` builds: such a stream is opened on
//! `/dev/null`, and our descriptor takes its number.

use core::ffi::{CStr, c_char, c_int};

use pm::Errno;
use pm::sys::abi;

use super::table::{self, APPENDING, CLOSE_ON_EXEC, File, IS_FILE, NO_READS, NO_WRITES};
use crate::runtime::call::{is_ours, path_is_ours};
use crate::runtime::kernel_path::is_kernel_path;
use crate::runtime::{call, errno, imports, placeholders, tls, vfork_child};
use crate::{direct, next, serve};

type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut File;
type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut File;
type Freopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut File) -> *mut File;
type Fseek = unsafe extern "C" fn(*mut File, i64, c_int) -> c_int;
type OnFile = unsafe extern "C" fn(*mut File);
type Fclose = unsafe extern "C" fn(*mut File) -> c_int;

const NULL_DEVICE: &CStr = c"/dev/null";
/// Longest mode that is taken; a character set's name is far shorter.
const MODE_BYTES: usize = 128;

/// A mode of `fopen`, understood.
struct Mode {
    /// `O_*` for `open`.
    open: u32,
    /// [`NO_READS`], [`NO_WRITES`], [`APPENDING`].
    flags: c_int,
    /// Names a character set, or says that calls are no cancellation points (`c`):
    /// only libc's `fopen` understands it.
    special: bool,
}

impl Mode {
    /// As `_IO_file_fopen` reads it: a letter, then up to six more of which the
    /// unknown ones mean nothing.
    fn parse(text: &[u8]) -> Option<Mode> {
        let mut special = text.windows(5).any(|at| at == b",ccs=");
        let (mut access, mut open, mut flags) = match text.first()? {
            b'r' => (abi::O_RDONLY, 0, NO_WRITES),
            b'w' => (abi::O_WRONLY, abi::O_CREAT | abi::O_TRUNC, NO_READS),
            b'a' => (abi::O_WRONLY, abi::O_CREAT | abi::O_APPEND, NO_READS | APPENDING),
            _ => return None,
        };
        for &letter in text.iter().skip(1).take(6) {
            match letter {
                b'+' => {
                    access = abi::O_RDWR;
                    flags &= APPENDING;
                }
                b'x' => open |= abi::O_EXCL,
                b'e' => open |= abi::O_CLOEXEC,
                b'c' => special = true,
                b',' => break,
                _ => {}
            }
        }
        Some(Mode { open: open | access | abi::O_LARGEFILE, flags, special })
    }

    /// `a`: libc moves such a stream to the end when it is opened.
    fn starts_at_end(&self) -> bool {
        self.flags & (APPENDING | NO_READS) == APPENDING | NO_READS
    }
}

/// `fseeko64`, which libc's own opening functions do inside themselves.
fn seek_to_end(file: *mut File) {
    let saved = errno::get();
    if let Some(seek) = next!(Fseek, "fseeko64") {
        // SAFETY: a live stream. What can't seek is left where it is, as in libc.
        unsafe { seek(file, 0, abi::SEEK_END as c_int) };
    }
    errno::set(saved);
}

fn fail(errno: Errno) -> *mut File {
    errno::set(errno.0);
    core::ptr::null_mut()
}

/// Closes `fd`, keeping `errno`.
fn close_quietly(fd: c_int) {
    call::close(fd);
}

/// A stream of libc's on `fd`, which is ours; null with `errno`.
unsafe fn stream_on(fd: c_int, mode: &Mode) -> *mut File {
    if !table::prepare() {
        crate::complain!("this C library's streams are not known: no fopen on paths in a mount");
        return fail(Errno::EOPNOTSUPP);
    }
    let Some(fdopen) = next!(Fdopen, "fdopen") else { return fail(Errno::ENOSYS) };
    // SAFETY: the kernel knows the number (a placeholder); the mode is a string.
    let mut file = unsafe { fdopen(fd, c"r".as_ptr()) };
    if file.is_null() && errno::get() == Errno::EINVAL.0 {
        // A number that is not a placeholder but a real descriptor, open for writing only.
        // SAFETY: as above.
        file = unsafe { fdopen(fd, c"w".as_ptr()) };
    }
    if file.is_null() {
        return file;
    }
    // SAFETY: a fresh stream that only this thread knows.
    unsafe { (*file).flags = ((*file).flags & !(NO_READS | NO_WRITES | APPENDING)) | mode.flags };
    if mode.open & abi::O_CLOEXEC != 0 {
        // SAFETY: as above.
        unsafe { (*file).flags2 |= CLOSE_ON_EXEC };
    }
    if mode.starts_at_end() {
        seek_to_end(file);
    }
    file
}

/// `mode` without `x`, which would refuse the null device, and without `m`, for
/// which libc would map the descriptor.
fn mode_for_null(mode: &[u8], out: &mut [u8; MODE_BYTES]) -> bool {
    let mut len = 0;
    for (i, &letter) in mode.iter().enumerate() {
        if i < 7 && matches!(letter, b'x' | b'm') {
            continue;
        }
        if len + 1 == MODE_BYTES {
            return false;
        }
        out[len] = letter;
        len += 1;
    }
    out[len] = 0;
    true
}

/// Puts `fd` under `file`, whose own descriptor (the null device) goes.
unsafe fn put_under(file: *mut File, fd: c_int, mode: &Mode) -> Result<(), isize> {
    // SAFETY: a live stream.
    let number = unsafe { (*file).fileno };
    if number == fd {
        return Ok(());
    }
    let moved = call::dup3(fd, number, mode.open & abi::O_CLOEXEC);
    close_quietly(fd);
    if moved < 0 {
        return Err(moved);
    }
    if mode.starts_at_end() {
        seek_to_end(file);
    }
    Ok(())
}

/// `fopen` with a character set: libc's stream first, our descriptor under it.
unsafe fn open_wide(path: *const c_char, text: &[u8], mode: &Mode) -> *mut File {
    let mut plain_mode = [0; MODE_BYTES];
    if !table::prepare() || !mode_for_null(text, &mut plain_mode) {
        return fail(Errno::EINVAL);
    }
    let (Some(fopen), Some(fclose)) = (next!(Fopen, "fopen"), next!(Fclose, "fclose")) else {
        return fail(Errno::ENOSYS);
    };
    // libc opens inside itself: no number may be kept from it.
    placeholders::flush();
    // SAFETY: two strings.
    let file = unsafe { fopen(NULL_DEVICE.as_ptr(), plain_mode.as_ptr().cast()) };
    if file.is_null() {
        return file;
    }
    // SAFETY: the program's string.
    let fd = unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, path, mode.open, 0o666) };
    // SAFETY: a fresh stream.
    let put = if fd < 0 { Err(fd) } else { unsafe { put_under(file, fd as c_int, mode) } };
    match put {
        Ok(()) => file,
        Err(code) => {
            // SAFETY: the stream is ours to close.
            unsafe { fclose(file) };
            fail(Errno(-code as i32))
        }
    }
}

/// libc's own `fopen`.
unsafe fn open_elsewhere(path: *const c_char, mode: *const c_char) -> *mut File {
    placeholders::flush();
    match next!(Fopen, "fopen64") {
        // SAFETY: the program's strings.
        Some(libc) => unsafe { libc(path, mode) },
        None => fail(Errno::ENOSYS),
    }
}

/// Opens `path` as a stream; null with `errno`.
unsafe fn open_file(path: *const c_char, text: *const c_char) -> *mut File {
    // SAFETY: the program's string.
    let text_bytes = unsafe { imports::bytes(text) };
    let Some(mode) = Mode::parse(text_bytes) else { return fail(Errno::EINVAL) };
    if mode.special {
        // SAFETY: the program's strings.
        return match unsafe { path_is_ours(abi::AT_FDCWD, path.cast()) } {
            // SAFETY: the program's strings.
            true => unsafe { open_wide(path, text_bytes, &mode) },
            // SAFETY: the program's strings.
            false => unsafe { open_elsewhere(path, text) },
        };
    }
    // SAFETY: the program's string.
    let fd = errno::ret_int(unsafe { direct!(path: openat, abi::__NR_openat, abi::AT_FDCWD, path, mode.open, 0o666) });
    if fd < 0 {
        return core::ptr::null_mut();
    }
    let file = if is_ours(fd) {
        // SAFETY: `fd` is ours and open.
        unsafe { stream_on(fd, &mode) }
    } else {
        // A descriptor of the kernel's, whether the path said so or a FIFO was behind it.
        match next!(Fdopen, "fdopen") {
            // SAFETY: a kernel descriptor and the program's mode.
            Some(fdopen) => unsafe { fdopen(fd, text) },
            None => fail(Errno::ENOSYS),
        }
    };
    if file.is_null() {
        let saved = errno::get();
        close_quietly(fd);
        errno::set(saved);
    }
    file
}

/// `fopen(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut File {
    // SAFETY: the program's string.
    if vfork_child::serves(tls::get()) && !unsafe { is_kernel_path(path as usize) } {
        // SAFETY: the program's strings.
        return unsafe { open_file(path, mode) };
    }
    // SAFETY: the program's strings.
    let file = unsafe { open_elsewhere(path, mode) };
    let led_in = file.is_null() && matches!(Errno(errno::get()), Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES);
    // A symlink may lead into a mount; the kernel does not know what is there.
    // SAFETY: the program's strings.
    if led_in && vfork_child::serves(tls::get()) { unsafe { open_file(path, mode) } } else { file }
}

/// `fdopen(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut File {
    if is_ours(fd) {
        // SAFETY: the program's string.
        return unsafe { fdopen_here(fd, mode) };
    }
    // A number that only our pool still holds is closed for the program: libc must see that.
    placeholders::flush();
    match next!(Fdopen, "fdopen") {
        // SAFETY: the program's string.
        Some(libc) => unsafe { libc(fd, mode) },
        None => fail(Errno::ENOSYS),
    }
}

unsafe fn fdopen_here(fd: c_int, text: *const c_char) -> *mut File {
    // SAFETY: the program's string.
    let Some(mut mode) = Mode::parse(unsafe { imports::bytes(text) }) else { return fail(Errno::EINVAL) };
    let flags = errno::ret_int(call::fcntl(fd, abi::F_GETFL, 0));
    if flags < 0 {
        return core::ptr::null_mut();
    }
    let access = flags as u32 & abi::O_ACCMODE;
    let wants_write = mode.flags & NO_WRITES == 0;
    let wants_read = mode.flags & NO_READS == 0;
    if (access == abi::O_RDONLY && wants_write) || (access == abi::O_WRONLY && wants_read) {
        return fail(Errno::EINVAL);
    }
    if mode.flags & APPENDING != 0 && flags as u32 & abi::O_APPEND == 0 {
        let set = errno::ret_int(call::fcntl(fd, abi::F_SETFL, flags as u32 | abi::O_APPEND));
        if set < 0 {
            return core::ptr::null_mut();
        }
    }
    // As in libc, `e` of `fdopen` does not touch the descriptor.
    mode.open &= !abi::O_CLOEXEC;
    // SAFETY: `fd` is ours and open.
    unsafe { stream_on(fd, &mode) }
}

/// `freopen(3)`: the same `FILE` on another file, with the same number.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(path: *const c_char, mode: *const c_char, file: *mut File) -> *mut File {
    let Some(libc) = next!(Freopen, "freopen64") else { return fail(Errno::ENOSYS) };
    // SAFETY: a live stream.
    let (flags, fd) = unsafe { ((*file).flags, (*file).fileno) };
    // SAFETY: the program's string.
    let here = flags & IS_FILE != 0 && (is_ours(fd) || unsafe { path_is_ours(abi::AT_FDCWD, path.cast()) });
    if !here {
        placeholders::flush();
        // SAFETY: the program's arguments.
        let result = unsafe { libc(path, mode, file) };
        if result.is_null() && fd >= 0 {
            placeholders::kernel_closed(fd as usize);
        }
        return result;
    }
    let (Some(lock), Some(unlock)) = (next!(OnFile, "flockfile"), next!(OnFile, "funlockfile")) else {
        return fail(Errno::ENOSYS);
    };
    // SAFETY: a live stream.
    unsafe { lock(file) };
    // SAFETY: the program's arguments, the stream is locked.
    let result = unsafe { reopen_here(libc, path, mode, file) };
    // SAFETY: locked above; `freopen` never frees a stream.
    unsafe { unlock(file) };
    match result {
        Ok(()) => file,
        Err(code) => fail(Errno(-code as i32)),
    }
}

/// Opens what the stream shall be on: the path, or without one the same file again.
unsafe fn open_again(path: *const c_char, fd: c_int, mode: &Mode) -> isize {
    if !path.is_null() {
        // SAFETY: the program's string.
        return unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, path, mode.open, 0o666) };
    }
    let mut name = [0; 32];
    posix::proc_fd(fd.max(0) as u32, &mut name);
    // SAFETY: a string on the stack.
    unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, name.as_ptr(), mode.open & !abi::O_CREAT, 0) }
}

/// The stream is flushed, put on the null device by libc's own `freopen` (which
/// makes it new in every respect and keeps its number), and the new descriptor
/// then takes that number. On failure it is closed, as libc leaves it.
unsafe fn reopen_here(libc: Freopen, path: *const c_char, text: *const c_char, file: *mut File) -> Result<(), isize> {
    let invalid = -(Errno::EINVAL.0 as isize);
    // SAFETY: the program's string.
    let text = unsafe { imports::bytes(text) };
    let mut plain_mode = [0; MODE_BYTES];
    let mode = Mode::parse(text).filter(|_| table::prepare() && mode_for_null(text, &mut plain_mode));
    if let Some(flush) = next!(Fclose, "fflush") {
        // SAFETY: a live stream; a failure is ignored, as in libc.
        unsafe { flush(file) };
    }
    // SAFETY: a live stream.
    let fd = unsafe { (*file).fileno };
    // SAFETY: the program's string.
    let opened = mode.as_ref().map_or(invalid, |mode| unsafe { open_again(path, fd, mode) });
    if is_ours(fd) {
        // libc works on the kernel's number alone: take ours from it first.
        // SAFETY: a string.
        let null = unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, NULL_DEVICE.as_ptr(), abi::O_RDWR | abi::O_CLOEXEC, 0) };
        if null < 0 {
            close_quietly(fd);
        } else {
            call::dup3(null, fd, 0);
            close_quietly(null as c_int);
        }
    }
    let Some(mode) = mode.filter(|_| opened >= 0) else {
        // An empty path: libc closes the stream and its number.
        placeholders::flush();
        // SAFETY: two strings and a live stream.
        unsafe { libc(c"".as_ptr(), c"r".as_ptr(), file) };
        if fd >= 0 {
            placeholders::kernel_closed(fd as usize);
        }
        return Err(opened);
    };
    placeholders::flush();
    // SAFETY: two strings and a live stream.
    if unsafe { libc(NULL_DEVICE.as_ptr(), plain_mode.as_ptr().cast(), file) }.is_null() {
        close_quietly(opened as c_int);
        return Err(-(errno::get() as isize));
    }
    // SAFETY: a live stream.
    let put = unsafe { put_under(file, opened as c_int, &mode) };
    if put.is_err() {
        // SAFETY: as above.
        unsafe { libc(c"".as_ptr(), c"r".as_ptr(), file) };
    }
    put
}

/// `fopen(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut File {
    // SAFETY: by contract.
    unsafe { fopen64(path, mode) }
}

export! {
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut File {
        fopen64(path, mode)
    }
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut File {
        fdopen(fd, mode)
    }
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut File) -> *mut File {
        freopen64(path, mode, file)
    }
}
