//! Directory streams: `opendir` … `closedir`.
//!
//! libc's streams make their system calls inside libc, where no exported symbol
//! is passed, so every stream that a program gets is one of these, of kernel
//! directories too: one way for all, and a directory that is reached through a
//! link into or out of a mount needs no second thought. An entry is handed out
//! where `getdents64` put it: `struct dirent` is the kernel's `linux_dirent64`.
//!
//! ```text
//! Dir: [ fd | magic | next | end | position | lock | … | records of one getdents64 … | slack ]
//! ```
//!
//! Invariants
//! - `magic` lies where libc's own stream has its lock word (0, 1 or 2), and both
//!   begin with the descriptor: a stream that is libc's is told apart by one load.
//! - `next <= end <= BUFFER_BYTES`; the kernel's records between them are whole.
//! - `ended` says that the next fill would find nothing: a listing of ours says where
//!   it ends. It serves once: a reader who asks again after the end sees what is new.
//! - Behind the last record at least a whole `struct dirent` can be read, because
//!   programs copy `*readdir(d)` without looking at `d_reclen`.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

use pm::sys::abi;

use crate::runtime::front_end::PROCESS;
use crate::runtime::{alloc, call, errno};
use crate::{direct, next, serve};

const MAGIC: u32 = 0x5344_7042;
/// The block of the allocator is 32 KiB with its 16-byte header.
const DIR_BYTES: usize = 32768 - 16;
const HEAD_BYTES: usize = 64;
/// `sizeof(struct dirent)`.
const DIRENT_BYTES: usize = 280;
const BUFFER_BYTES: usize = DIR_BYTES - HEAD_BYTES - DIRENT_BYTES;

const ENOENT: isize = -(pm::Errno::ENOENT.0 as isize);
const ENOMEM: i32 = pm::Errno::ENOMEM.0;

/// A directory stream.
#[repr(C)]
pub struct Dir {
    fd: c_int,
    magic: u32,
    /// Offset of the next record in `buffer`.
    next: usize,
    /// End of the records in `buffer`.
    end: usize,
    /// `d_off` of the entry handed out last: where `telldir` is.
    position: i64,
    /// Held by `readdir_r`, which threads may call on one stream.
    lock: AtomicU32,
    /// 1: the records in `buffer` are the last ones.
    ended: u32,
    reserved: [u32; 6],
    buffer: [u8; BUFFER_BYTES],
    slack: [u8; DIRENT_BYTES],
}

const _: () = assert!(core::mem::size_of::<Dir>() == DIR_BYTES);
const _: () = assert!(core::mem::offset_of!(Dir, buffer) == HEAD_BYTES);

/// `struct dirent` and `struct dirent64`; only the head, the name follows.
#[repr(C)]
pub struct Dirent {
    /// Inode number.
    pub ino: u64,
    /// Position after this entry.
    pub off: i64,
    /// Length of the record in bytes.
    pub reclen: u16,
    /// `DT_*`.
    pub kind: u8,
    /// The name's first byte; it goes on to a NUL.
    pub name: [u8; 1],
}

/// Whether a stream was made here.
///
/// # Safety
/// `dir` is a live stream, ours or libc's.
#[inline(always)]
unsafe fn is_here(dir: *const Dir) -> bool {
    // SAFETY: both kinds of stream begin with eight readable bytes.
    unsafe { (&raw const (*dir).magic).read() == MAGIC }
}

/// A stream on descriptor `fd`, which it owns from now on; null with `ENOMEM`.
fn make(fd: c_int) -> *mut Dir {
    let dir = alloc::alloc(DIR_BYTES).cast::<Dir>();
    if dir.is_null() {
        errno::set(ENOMEM);
        return dir;
    }
    // SAFETY: a fresh block of DIR_BYTES, which only this thread knows; the head is
    // written through its bytes, the buffer stays as it is until it is filled.
    unsafe { core::ptr::write_bytes(dir.cast::<u8>(), 0, HEAD_BYTES) };
    // SAFETY: as above.
    unsafe { (&raw mut (*dir).fd).write(fd) };
    // SAFETY: as above.
    unsafe { (&raw mut (*dir).magic).write(MAGIC) };
    dir
}

/// `opendir` relative to `dirfd`.
///
/// # Safety
/// `path` is a string of the program.
pub unsafe fn open_at(dirfd: c_int, path: *const c_char) -> *mut Dir {
    let flags = abi::O_RDONLY | abi::O_NONBLOCK | abi::O_DIRECTORY | abi::O_CLOEXEC | abi::O_LARGEFILE;
    // SAFETY: the program's string.
    let fd = errno::ret_int(unsafe { direct!(path: openat, abi::__NR_openat, dirfd, path, flags, 0) });
    if fd < 0 {
        return core::ptr::null_mut();
    }
    let dir = make(fd);
    if dir.is_null() {
        // SAFETY: the descriptor was opened above.
        unsafe { direct!(close, abi::__NR_close, fd) };
        errno::set(ENOMEM);
    }
    dir
}

/// `opendir(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut Dir {
    // SAFETY: by contract.
    unsafe { open_at(abi::AT_FDCWD, path) }
}

/// `fdopendir(3)`: `ENOTDIR` if not a directory, `EINVAL` if open for writing only.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut Dir {
    let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
    // SAFETY: `stat` has room for the answer.
    if errno::ret_int(unsafe { direct!(fd: fstat, abi::__NR_fstat, fd, stat.as_mut_ptr()) }) < 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: filled in, since the call succeeded.
    let mode = unsafe { stat.assume_init_ref() }.st_mode;
    if mode & abi::S_IFMT != abi::S_IFDIR {
        errno::set(pm::Errno::ENOTDIR.0);
        return core::ptr::null_mut();
    }
    let flags = errno::ret_int(call::fcntl(fd, abi::F_GETFL, 0));
    if flags < 0 {
        return core::ptr::null_mut();
    }
    if flags as u32 & abi::O_ACCMODE == abi::O_WRONLY {
        errno::set(pm::Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    make(fd)
}

/// `closedir(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut Dir) -> c_int {
    if dir.is_null() {
        errno::set(pm::Errno::EINVAL.0);
        return -1;
    }
    // SAFETY: a live stream.
    if !unsafe { is_here(dir) } {
        return match next!(unsafe extern "C" fn(*mut Dir) -> c_int, "closedir") {
            // SAFETY: libc's stream.
            Some(libc) => unsafe { libc(dir) },
            None => -1,
        };
    }
    // SAFETY: our stream.
    let fd = unsafe { (*dir).fd };
    // SAFETY: no longer a stream: a second `closedir` of it is not taken for one.
    unsafe { (&raw mut (*dir).magic).write(0) };
    // SAFETY: the block came from `make`.
    unsafe { alloc::free(dir.cast()) };
    // SAFETY: the stream owned it.
    errno::ret_int(unsafe { direct!(close, abi::__NR_close, fd) })
}

/// Reads the next records: bytes, 0 at the end, or a negative errno.
#[cold]
#[inline(never)]
unsafe fn refill(dir: *mut Dir) -> isize {
    // SAFETY: our stream.
    if unsafe { (&raw mut (*dir).ended).replace(0) } != 0 {
        return 0;
    }
    // SAFETY: our stream; the buffer is BUFFER_BYTES long.
    let (fd, buffer) = unsafe { ((*dir).fd, (&raw mut (*dir).buffer).cast::<u8>()) };
    let (number, mut ended) = (abi::__NR_getdents64 as usize, false);
    let args = [fd as usize, buffer as usize, BUFFER_BYTES, 0, 0, 0];
    // SAFETY: as above.
    let list = |thread: &posix::ThreadState| unsafe { PROCESS.list(thread, args, &mut ended) };
    // SAFETY: as above.
    let got = unsafe { call::serve_fd(number, args, list) };
    // SAFETY: our stream.
    unsafe { (*dir).ended = ended.into() };
    // SAFETY: our stream.
    unsafe { (*dir).next = 0 };
    // SAFETY: our stream.
    unsafe { (*dir).end = got.max(0) as usize };
    // A directory that was removed while open has no entries.
    if got == ENOENT { 0 } else { got }
}

/// The next entry, or null with the result of the last fill (0: the end).
///
/// # Safety
/// `dir` is a live stream made here.
#[inline(always)]
unsafe fn step(dir: *mut Dir) -> Result<*mut Dirent, isize> {
    loop {
        // SAFETY: our stream.
        let (at, end) = unsafe { ((*dir).next, (*dir).end) };
        if at >= end {
            // SAFETY: our stream.
            let got = unsafe { refill(dir) };
            if got <= 0 {
                return Err(got);
            }
            continue;
        }
        // SAFETY: `at` is the start of a record in the buffer, 8-byte aligned.
        let entry = unsafe { (&raw mut (*dir).buffer).cast::<u8>().add(at) }.cast::<Dirent>();
        // SAFETY: a whole record.
        let (ino, off, reclen) = unsafe { ((*entry).ino, (*entry).off, (*entry).reclen) };
        // SAFETY: our stream.
        unsafe { (*dir).next = at + (reclen as usize).max(24) };
        // SAFETY: our stream.
        unsafe { (*dir).position = off };
        if ino != 0 {
            return Ok(entry);
        }
    }
}

/// `readdir(3)`; `struct dirent` is `struct dirent64` on 64-bit machines.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(dir: *mut Dir) -> *mut Dirent {
    // SAFETY: a live stream.
    if !unsafe { is_here(dir) } {
        return match next!(unsafe extern "C" fn(*mut Dir) -> *mut Dirent, "readdir64") {
            // SAFETY: libc's stream.
            Some(libc) => unsafe { libc(dir) },
            None => core::ptr::null_mut(),
        };
    }
    // SAFETY: our stream.
    match unsafe { step(dir) } {
        Ok(entry) => entry,
        Err(code) => {
            if code < 0 {
                errno::set(-code as i32);
            }
            core::ptr::null_mut()
        }
    }
}

/// `readdir_r(3)`: 0 and `*result` the entry or null at the end, or an error number.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64_r(dir: *mut Dir, entry: *mut Dirent, result: *mut *mut Dirent) -> c_int {
    type Libc = unsafe extern "C" fn(*mut Dir, *mut Dirent, *mut *mut Dirent) -> c_int;
    // SAFETY: a live stream.
    if !unsafe { is_here(dir) } {
        return match next!(Libc, "readdir64_r") {
            // SAFETY: libc's stream.
            Some(libc) => unsafe { libc(dir, entry, result) },
            None => pm::Errno::EBADF.0,
        };
    }
    // SAFETY: our stream.
    let lock = unsafe { &(*dir).lock };
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        // SAFETY: no arguments.
        let _ = unsafe { pm::call!(abi::__NR_sched_yield) };
    }
    // SAFETY: our stream.
    let (found, code) = match unsafe { step(dir) } {
        Ok(source) => {
            // SAFETY: a record; names have at most 255 bytes, so it fits `struct dirent`.
            let len = unsafe { (*source).reclen } as usize;
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(source.cast::<u8>(), entry.cast::<u8>(), len.min(DIRENT_BYTES)) };
            (entry, 0)
        }
        Err(code) => (core::ptr::null_mut(), -code as c_int),
    };
    lock.store(0, Release);
    // SAFETY: the program's pointer.
    unsafe { *result = found };
    code
}

/// Moves a stream to `position` and forgets what was read ahead.
unsafe fn move_to(dir: *mut Dir, position: i64) {
    // SAFETY: our stream; no pointers. A failure shows at the next `readdir`, as in libc.
    unsafe { serve!(abi::__NR_lseek, (*dir).fd, position, abi::SEEK_SET) };
    // SAFETY: our stream.
    unsafe { (*dir).next = 0 };
    // SAFETY: our stream.
    unsafe { (*dir).end = 0 };
    // SAFETY: our stream.
    unsafe { (*dir).ended = 0 };
    // SAFETY: our stream.
    unsafe { (*dir).position = position };
}

/// `rewinddir(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(dir: *mut Dir) {
    // SAFETY: a live stream.
    if unsafe { is_here(dir) } {
        // SAFETY: our stream.
        unsafe { move_to(dir, 0) };
    } else if let Some(libc) = next!(unsafe extern "C" fn(*mut Dir), "rewinddir") {
        // SAFETY: libc's stream.
        unsafe { libc(dir) };
    }
}

/// `telldir(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(dir: *mut Dir) -> c_long {
    // SAFETY: a live stream.
    if unsafe { is_here(dir) } {
        // SAFETY: our stream.
        return unsafe { (*dir).position };
    }
    match next!(unsafe extern "C" fn(*mut Dir) -> c_long, "telldir") {
        // SAFETY: libc's stream.
        Some(libc) => unsafe { libc(dir) },
        None => -1,
    }
}

/// `seekdir(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(dir: *mut Dir, position: c_long) {
    // SAFETY: a live stream.
    if unsafe { is_here(dir) } {
        // SAFETY: our stream.
        unsafe { move_to(dir, position) };
    } else if let Some(libc) = next!(unsafe extern "C" fn(*mut Dir, c_long), "seekdir") {
        // SAFETY: libc's stream.
        unsafe { libc(dir, position) };
    }
}

/// `dirfd(3)`: both kinds of stream begin with it.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dirfd(dir: *mut Dir) -> c_int {
    // SAFETY: a live stream.
    unsafe { (*dir).fd }
}

/// `getdents64(2)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    // The kernel's count is an `unsigned int`.
    let bytes = bytes.min(i32::MAX as usize);
    // SAFETY: the program's buffer.
    errno::ret(unsafe { direct!(fd: getdents64, abi::__NR_getdents64, fd, buffer, bytes) })
}

/// `getdirentries(3)`: `getdents64` that also reports where it began.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getdirentries64(fd: c_int, buffer: *mut c_void, bytes: usize, base: *mut i64) -> isize {
    // SAFETY: no pointers.
    let position = unsafe { serve!(abi::__NR_lseek, fd, 0, abi::SEEK_CUR) };
    // SAFETY: the program's buffer.
    let got = unsafe { getdents64(fd, buffer, bytes) };
    if got != -1 {
        // SAFETY: the program's pointer.
        unsafe { *base = position as i64 };
    }
    got
}

export! {
    fn readdir(dir: *mut Dir) -> *mut Dirent {
        readdir64(dir)
    }
    fn readdir_r(dir: *mut Dir, entry: *mut Dirent, result: *mut *mut Dirent) -> c_int {
        readdir64_r(dir, entry, result)
    }
    fn getdirentries(fd: c_int, buffer: *mut c_void, bytes: usize, base: *mut i64) -> isize {
        getdirentries64(fd, buffer, bytes, base)
    }
}
