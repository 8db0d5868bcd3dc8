//! The functions of libc that are replaced.

use super::{RING, number};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use fuse_client::ring::{MESSAGE_MAX, Ring};
use fuse_client::{DEFAULT_PERMISSIONS, READ_ONLY};
use pm::sys::abi::{self, *};
use pm::{Errno, UserSlice};
use std::sync::Mutex;
use std::sync::atomic::Ordering::*;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// A result as libc gives it.
fn done(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(errno) => {
            // SAFETY: this thread's own word.
            unsafe { *__errno_location() = errno.0 };
            -1
        }
    }
}

thread_local! {
    /// This thread has a request: libfuse's comes back for the next when it has replied. A
    /// daemon's own threads reply to what another has received, and don't.
    static HAS_REQUEST: Cell<bool> = const { Cell::new(false) };
}

fn receive(ring: &Ring, into: &[UserSlice]) -> Result<usize, Errno> {
    let received = ring.receive(into);
    HAS_REQUEST.set(received.is_ok());
    received
}

fn reply(ring: &Ring, parts: &[UserSlice]) -> Result<usize, Errno> {
    ring.reply(parts, HAS_REQUEST.replace(false))
}

/// Where the daemon believes to be mounted.
static POINT: Mutex<Option<Vec<u8>>> = Mutex::new(None);

unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // SAFETY: the daemon's own text.
    if RING.get().is_some() && !path.is_null() && unsafe { CStr::from_ptr(path) }.to_bytes() == b"/dev/fuse" {
        return done(number::open(flags as u32 & O_CLOEXEC != 0).map(|fd| fd as usize)) as c_int;
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_openat, dir, path, flags, mode) }) as c_int
}

macro_rules! opens {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: u32) -> c_int {
            // SAFETY: the daemon's own call.
            unsafe { open_at(AT_FDCWD, path, flags, mode) }
        }
    )*};
}
opens! { open open64 __open_2 __open64_2 }

macro_rules! opens_at {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
            // SAFETY: the daemon's own call.
            unsafe { open_at(dir, path, flags, mode) }
        }
    )*};
}
opens_at! { openat openat64 __openat_2 __openat64_2 }

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    number::closed(fd);
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_close, fd) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mount(
    source: *const c_char,
    target: *const c_char,
    kind: *const c_char,
    flags: c_ulong,
    data: *const c_void,
) -> c_int {
    // SAFETY: the daemon's own text.
    let is_fuse = !kind.is_null() && unsafe { CStr::from_ptr(kind) }.to_bytes().starts_with(b"fuse");
    let (Some(ring), true) = (RING.get(), is_fuse) else {
        // SAFETY: the daemon's own call.
        return done(unsafe { pm::call!(__NR_mount, source, target, kind, flags, data) }) as c_int;
    };
    let mut said = if flags & c_ulong::from(MS_RDONLY) != 0 { READ_ONLY } else { 0 };
    if !data.is_null() {
        // SAFETY: options are a text.
        let options = unsafe { CStr::from_ptr(data.cast()) }.to_bytes();
        for word in options.split(|&b| b == b',') {
            match word {
                b"default_permissions" => said |= DEFAULT_PERMISSIONS,
                b"ro" => said |= READ_ONLY,
                _ => {}
            }
        }
    }
    if let Ok(header) = ring.header() {
        header.mount_flags.fetch_or(said, AcqRel);
    }
    if !target.is_null()
        && let Ok(mut point) = POINT.lock()
    {
        // SAFETY: the daemon's own text.
        *point = Some(unsafe { CStr::from_ptr(target) }.to_bytes().to_vec());
    }
    0
}

unsafe fn unmount(target: *const c_char, flags: c_int) -> c_int {
    if !target.is_null() {
        // SAFETY: the daemon's own text.
        let target = unsafe { CStr::from_ptr(target) }.to_bytes();
        if POINT.lock().is_ok_and(|point| point.as_deref() == Some(target)) {
            return 0;
        }
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_umount2, target, flags) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn umount(target: *const c_char) -> c_int {
    // SAFETY: the daemon's own call.
    unsafe { unmount(target, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn umount2(target: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the daemon's own call.
    unsafe { unmount(target, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: usize) -> isize {
    if let Some(ring) = number::ring(fd) {
        // SAFETY: the daemon's own buffer.
        let into = unsafe { UserSlice::new(into.cast(), len) };
        return done(receive(ring, &[into]));
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_read, fd, into, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, into: *mut c_void, len: usize, _room: usize) -> isize {
    // SAFETY: the daemon's own call; what its compiler knew of the buffer is enough.
    unsafe { read(fd, into, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, parts: *const UserSlice, count: c_int) -> isize {
    if let Some(ring) = number::ring(fd) {
        // SAFETY: the daemon's own list, laid out as ours.
        return done(receive(ring, unsafe { core::slice::from_raw_parts(parts, count.max(0) as usize) }));
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_readv, fd, parts, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    if let Some(ring) = number::ring(fd) {
        // SAFETY: the daemon's own buffer, which is only read.
        let from = unsafe { UserSlice::new(from.cast_mut().cast(), len) };
        return done(reply(ring, &[from]));
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_write, fd, from, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const UserSlice, count: c_int) -> isize {
    if let Some(ring) = number::ring(fd) {
        // SAFETY: the daemon's own list, laid out as ours.
        return done(reply(ring, unsafe { core::slice::from_raw_parts(parts, count.max(0) as usize) }));
    }
    // SAFETY: the daemon's own call.
    done(unsafe { pm::call!(__NR_writev, fd, parts, count) })
}

/// libfuse moves requests and replies through pipes where it may.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: usize, flags: u32) -> isize {
    let (source, target) = (number::ring(from), number::ring(to));
    if source.is_none() && target.is_none() {
        // SAFETY: the daemon's own call.
        return done(unsafe { pm::call!(abi::__NR_splice, from, from_offset, to, to_offset, len, flags) });
    }
    let mut message = vec![0u8; MESSAGE_MAX];
    done(match (source, target) {
        (Some(ring), _) => receive(ring, &[UserSlice::from_mut(&mut message)]).and_then(|got| fill_pipe(to, &message[..got])),
        (_, Some(ring)) if len <= MESSAGE_MAX => {
            drain_pipe(from, &mut message[..len]).and_then(|got| reply(ring, &[UserSlice::from_ref(&message[..got])]))
        }
        _ => Err(Errno::EINVAL),
    })
}

fn fill_pipe(to: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        // SAFETY: our own buffer.
        done += unsafe { pm::call!(__NR_write, to, bytes[done..].as_ptr(), bytes.len() - done) }?;
    }
    Ok(done)
}

fn drain_pipe(from: c_int, into: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        // SAFETY: our own buffer.
        match unsafe { pm::call!(__NR_read, from, into[done..].as_mut_ptr(), into.len() - done) }? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}
