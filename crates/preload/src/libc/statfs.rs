//! statfs, statvfs, pathconf.

use super::{HERE, Text};
use crate::runtime::call::{is_ours, path_is_ours};
use crate::runtime::errno::{ret_int, set};
use crate::runtime::placeholders;
use crate::{next, serve};
use core::mem::MaybeUninit;
use pm::sys::abi::*;

/// The kernel's `struct statfs` on 64-bit machines.
#[repr(C)]
struct StatFs {
    kind: i64,
    block_bytes: i64,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    id: [u32; 2],
    name_max: i64,
    fragment_bytes: i64,
    flags: i64,
    spare: [i64; 4],
}

/// `struct statvfs`.
#[repr(C)]
struct StatVfs {
    block_bytes: u64,
    fragment_bytes: u64,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    files_available: u64,
    id: u64,
    flags: u64,
    name_max: u64,
    spare: [i32; 6],
}

/// The kernel's flag "`f_flags` is filled in", which `statvfs` does not show.
const ST_VALID: u64 = 0x20;

/// Converts after a successful call.
///
/// # Safety
/// `out` points to a `struct statvfs`.
unsafe fn convert(result: isize, from: &MaybeUninit<StatFs>, out: *mut StatVfs) -> i32 {
    if result < 0 {
        return ret_int(result);
    }
    // SAFETY: the call succeeded and wrote it.
    let from = unsafe { from.assume_init_ref() };
    let fragment = if from.fragment_bytes != 0 { from.fragment_bytes } else { from.block_bytes };
    let value = StatVfs {
        block_bytes: from.block_bytes as u64,
        fragment_bytes: fragment as u64,
        blocks: from.blocks,
        blocks_free: from.blocks_free,
        blocks_available: from.blocks_available,
        files: from.files,
        files_free: from.files_free,
        files_available: from.files_free,
        id: from.id[0] as u64 | (from.id[1] as u64) << 32,
        flags: from.flags as u64 & !ST_VALID,
        name_max: from.name_max as u64,
        spare: [0; 6],
    };
    // SAFETY: by contract.
    unsafe { out.write(value) };
    0
}

/// Limits of a file of ours, by `_PC_*` number, as libc tells them of a file system
/// that it does not know; `None` for an unknown one, −1 where there is no limit.
fn limit(name: i32) -> Option<i64> {
    Some(match name {
        0 => i64::from(i32::MAX), // LINK_MAX
        1 | 2 => 255,             // MAX_CANON, MAX_INPUT
        3 => 255,                 // NAME_MAX
        4 => 4096,                // PATH_MAX
        5 => 4096,                // PIPE_BUF
        6 | 7 => 1,               // CHOWN_RESTRICTED, NO_TRUNC
        8 => 0,                   // VDISABLE
        9 => -1,                  // SYNC_IO
        10 => 1,                  // ASYNC_IO, of regular files
        11 | 12 => -1,            // PRIO_IO, SOCK_MAXBUF
        13 => 32,                 // FILESIZEBITS
        14 | 15 => -1,            // REC_INCR_XFER_SIZE, REC_MAX_XFER_SIZE
        16 | 17 => 4096,          // REC_MIN_XFER_SIZE, REC_XFER_ALIGN
        18 => 4096,               // ALLOC_SIZE_MIN
        19 => -1,                 // SYMLINK_MAX
        20 => 1,                  // 2_SYMLINKS
        _ => return None,
    })
}

const ASYNC_IO: i32 = 10;

/// Whether libc looks at the file before it answers: with the effective IDs.
fn is_looked_at(name: i32) -> bool {
    matches!(name, 0 | 3 | 6 | ASYNC_IO | 13 | 16..=18 | 20)
}

/// The answer for a file of which `stat` says this; negative errors of the look.
fn answer(name: i32, look: impl FnOnce(*mut stat) -> isize) -> i64 {
    let mut known = MaybeUninit::<stat>::uninit();
    if is_looked_at(name) {
        let looked = look(known.as_mut_ptr());
        if looked < 0 {
            return i64::from(ret_int(looked));
        }
        // SAFETY: the look succeeded, so it is filled.
        if name == ASYNC_IO && !matches!(unsafe { known.assume_init_ref() }.st_mode & S_IFMT, S_IFREG | S_IFBLK) {
            return -1;
        }
    }
    limit(name).unwrap_or_else(|| {
        set(22);
        -1
    })
}

export! {
    fn [statfs, statfs64, __statfs](path: Text, out: *mut u8) -> i32 {
        ret_int(serve!(__NR_statfs, path, out))
    }
    fn [fstatfs, fstatfs64, __fstatfs](fd: i32, out: *mut u8) -> i32 {
        ret_int(serve!(__NR_fstatfs, fd, out))
    }
    fn [statvfs, statvfs64](path: Text, out: *mut StatVfs) -> i32 {
        let mut from = MaybeUninit::<StatFs>::uninit();
        let result = serve!(__NR_statfs, path, from.as_mut_ptr());
        convert(result, &from, out)
    }
    fn [fstatvfs, fstatvfs64](fd: i32, out: *mut StatVfs) -> i32 {
        let mut from = MaybeUninit::<StatFs>::uninit();
        let result = serve!(__NR_fstatfs, fd, from.as_mut_ptr());
        convert(result, &from, out)
    }
    fn pathconf(path: Text, name: i32) -> i64 {
        let ours = || answer(name, |stat| serve!(__NR_newfstatat, HERE, path, stat, 0));
        if path_is_ours(HERE, path.cast()) {
            // An empty path is an error for every name, also for those that look at no file.
            return if *path == 0 { i64::from(ret_int(-(pm::Errno::ENOENT.0 as isize))) } else { ours() };
        }
        match next!(unsafe extern "C" fn(Text, i32) -> i64, "pathconf") {
            Some(next) => next(path, name),
            None => ours(),
        }
    }
    fn fpathconf(fd: i32, name: i32) -> i64 {
        let ours = || answer(name, |stat| serve!(__NR_fstat, fd, stat));
        if is_ours(fd) {
            return ours();
        }
        placeholders::flush();
        match next!(unsafe extern "C" fn(i32, i32) -> i64, "fpathconf") {
            Some(next) => next(fd, name),
            None => ours(),
        }
    }
}
