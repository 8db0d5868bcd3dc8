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

/// Limits of a file of ours, by `_PC_*` number; `None` for an unknown one,
/// −1 where there is no limit.
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
        10 => -1,                 // ASYNC_IO
        11 | 12 => -1,            // PRIO_IO, SOCK_MAXBUF
        13 => 64,                 // FILESIZEBITS
        14..=17 => 4096,          // REC_*
        18 => 4096,               // ALLOC_SIZE_MIN
        19 => -1,                 // SYMLINK_MAX
        20 => 1,                  // 2_SYMLINKS
        _ => return None,
    })
}

fn answer(name: i32) -> i64 {
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
        if path_is_ours(HERE, path.cast()) {
            let result = serve!(__NR_faccessat, HERE, path, 0);
            return if result < 0 { ret_int(result) as i64 } else { answer(name) };
        }
        match next!(unsafe extern "C" fn(Text, i32) -> i64, "pathconf") {
            Some(next) => next(path, name),
            None => answer(name),
        }
    }
    fn fpathconf(fd: i32, name: i32) -> i64 {
        if is_ours(fd) {
            return answer(name);
        }
        placeholders::flush();
        match next!(unsafe extern "C" fn(i32, i32) -> i64, "fpathconf") {
            Some(next) => next(fd, name),
            None => answer(name),
        }
    }
}
