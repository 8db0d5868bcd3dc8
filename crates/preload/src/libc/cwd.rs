//! Working directory, umask, root.

use super::Text;
use crate::process::hand_over;
use crate::runtime::errno::{ret_int, set};
use crate::runtime::front_end::PROCESS;
use crate::runtime::{alloc, call, imports, phase, session};
use crate::{next, serve};
use core::ffi::c_char;
use core::ptr::null_mut;
use pm::sys::abi::*;

const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;

const PATH_MAX: usize = 4096;

type GetCwd = unsafe extern "C" fn(*mut c_char, usize) -> *mut c_char;

/// `getcwd`; a result that the caller frees comes from the program's `malloc`.
///
/// # Safety
/// `out` is null or has room for `len` bytes.
unsafe fn getcwd_call(out: *mut c_char, len: usize) -> *mut c_char {
    if len == 0 && !out.is_null() {
        set(EINVAL);
        return null_mut();
    }
    if out.is_null() && len == 0 {
        return own_cwd();
    }
    let at = if out.is_null() {
        // SAFETY: plain allocation.
        unsafe { imports::malloc(len) }.cast::<u8>()
    } else {
        out.cast::<u8>()
    };
    if at.is_null() {
        return null_mut();
    }
    // SAFETY: `at` has `len` bytes.
    let result = unsafe { asked(at, len) };
    if result > 0 {
        return at.cast();
    }
    if out.is_null() {
        // SAFETY: allocated above.
        unsafe { imports::free(at.cast()) };
    }
    if result == -(ENAMETOOLONG as isize) {
        if PROCESS.descriptors.get(posix::CWD_FD).is_none() {
            // The kernel's: libc finds it step by step.
            return match next!(GetCwd, "getcwd") {
                // SAFETY: by contract.
                Some(next) => unsafe { next(out, len) },
                None => null_mut(),
            };
        }
        if out.is_null() {
            return long_cwd(len);
        }
        set(ERANGE);
        return null_mut();
    }
    set(-result as i32);
    null_mut()
}

/// The kernel's `getcwd`; `ENOENT` for its "(unreachable)".
///
/// # Safety
/// `at` has `room` bytes.
unsafe fn asked(at: *mut u8, room: usize) -> isize {
    // SAFETY: by contract.
    let result = unsafe { serve!(__NR_getcwd, at, room) };
    // SAFETY: the call wrote at least one byte.
    if result > 0 && unsafe { *at } != b'/' { -(ENOENT as isize) } else { result }
}

/// In a block that is as long as the path: `getcwd(NULL, 0)`.
fn own_cwd() -> *mut c_char {
    let own = alloc::alloc(PATH_MAX);
    if own.is_null() {
        set(ENOMEM);
        return null_mut();
    }
    // SAFETY: a block of that size.
    let result = unsafe { asked(own, PATH_MAX) };
    let copy = if result > 0 {
        // SAFETY: plain allocation.
        let copy = unsafe { imports::malloc(result as usize) }.cast::<u8>();
        if !copy.is_null() {
            // SAFETY: so many bytes were written, and there is room for them.
            unsafe { core::ptr::copy_nonoverlapping(own, copy, result as usize) };
        }
        copy.cast()
    } else {
        null_mut()
    };
    // SAFETY: not used any more.
    unsafe { alloc::free(own) };
    match -result as i32 {
        ENAMETOOLONG if PROCESS.descriptors.get(posix::CWD_FD).is_some() => long_cwd(0),
        ENAMETOOLONG => match next!(GetCwd, "getcwd") {
            // SAFETY: libc finds the kernel's step by step.
            Some(next) => unsafe { next(null_mut(), 0) },
            None => null_mut(),
        },
        errno @ 1.. => {
            set(errno);
            null_mut()
        }
        _ => copy,
    }
}

/// A working directory of ours whose path is longer than a page, in a block of `len` bytes, or of as many as it takes.
#[cold]
fn long_cwd(len: usize) -> *mut c_char {
    let mut room = if len == 0 { 2 * PATH_MAX } else { len };
    loop {
        // SAFETY: plain allocation.
        let block = unsafe { imports::malloc(room) };
        if block.is_null() {
            return null_mut();
        }
        // SAFETY: the block has `room` bytes.
        let result = unsafe { serve!(__NR_getcwd, block, room) };
        if result >= 0 {
            return block.cast();
        }
        // SAFETY: allocated just now.
        unsafe { imports::free(block) };
        set(-result as i32);
        if result != -(ERANGE as isize) || len != 0 {
            return null_mut();
        }
        room *= 2;
    }
}

/// Device and inode of a path.
///
/// # Safety
/// `path` is NUL-terminated.
unsafe fn identity(path: *const c_char) -> Option<[u64; 2]> {
    let mut stat = [0u64; 32];
    // SAFETY: by contract; the array is larger than a `struct stat`.
    let result = unsafe { serve!(__NR_newfstatat, super::HERE, path, stat.as_mut_ptr(), 0) };
    (result >= 0).then_some([stat[0], stat[1]])
}

export! {
    fn [chdir, __chdir](path: Text) -> i32 {
        ret_int(serve!(__NR_chdir, path))
    }
    fn [fchdir, __fchdir](fd: i32) -> i32 {
        ret_int(serve!(__NR_fchdir, fd))
    }
    fn getcwd(out: *mut c_char, len: usize) -> *mut c_char {
        getcwd_call(out, len)
    }
    fn __getcwd_chk(out: *mut c_char, len: usize, room: usize) -> *mut c_char {
        if len > room { crate::runtime::panic::overflow() }
        getcwd_call(out, len)
    }
    fn getwd(out: *mut c_char) -> *mut c_char {
        if out.is_null() {
            set(EINVAL);
            return null_mut();
        }
        getcwd_call(out, 4096)
    }
    fn __getwd_chk(out: *mut c_char, room: usize) -> *mut c_char {
        let result = getcwd_call(out, room.min(4096));
        if result.is_null() && crate::runtime::errno::get() == ERANGE { crate::runtime::panic::overflow() }
        result
    }
    fn get_current_dir_name() -> *mut c_char {
        if let Some(pwd) = crate::runtime::imports::get_variable(crate::runtime::imports::environ, b"PWD")
            && pwd.to_bytes().first() == Some(&b'/')
            && let Some(named) = identity(pwd.as_ptr())
            && identity(c".".as_ptr()) == Some(named)
        {
            return imports::duplicate(pwd.to_bytes());
        }
        getcwd_call(null_mut(), 0)
    }
    fn [umask, __umask](mask: u32) -> u32 {
        serve!(__NR_umask, mask) as u32
    }
    fn chroot(path: Text) -> i32 {
        ret_int(change_root(__NR_chroot as usize, [path as usize, 0, 0, 0, 0, 0]))
    }
    fn mount(source: Text, target: Text, kind: Text, flags: usize, data: *const u8) -> i32 {
        ret_int(serve!(__NR_mount, source, target, kind, flags, data))
    }
    fn move_mount(from: i32, source: Text, to: i32, target: Text, flags: u32) -> i32 {
        ret_int(serve!(__NR_move_mount, from, source, to, target, flags))
    }
    fn pivot_root(new: Text, old: Text) -> i32 {
        ret_int(change_root(__NR_pivot_root as usize, [new as usize, old as usize, 0, 0, 0, 0]))
    }
}

/// `chroot` or `pivot_root`. From another root directory than the session's no path leads to the mounts, which do not belong
/// there; nor where what they need is out of sight, which to the session's programs is not gone. What is open stays so.
///
/// # Safety
/// As for the system calls.
pub unsafe fn change_root(nr: usize, args: [usize; 6]) -> isize {
    hand_over::keep_root();
    // SAFETY: by contract.
    let result = unsafe { call::call(nr, args) };
    if result == 0 && phase::is_mounted() {
        PROCESS.mounts.set_named(session::belongs_here() && session::is_reachable());
    }
    result
}
