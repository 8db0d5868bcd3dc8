//! The kernel's `struct stat`, put where a program wants it.

#[cfg(target_arch = "x86_64")]
use crate::faults;
pub use crate::sys::abi::stat as Stat;
use core::mem::MaybeUninit;
#[cfg(target_arch = "x86_64")]
use core::mem::offset_of;

/// Writes the structure; false if there is no memory at either end of it. It is shorter than a page, so that there is
/// some for the rest of it if there is at both ends.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn put(out: &mut MaybeUninit<Stat>, stat: Stat) -> bool {
    const LAST: usize = size_of::<Stat>() - 8;
    const { assert!(offset_of!(Stat, st_dev) == 0 && offset_of!(Stat, __unused) + 16 == LAST) }
    let at = out.as_mut_ptr();
    // SAFETY: both words are the structure's.
    if !unsafe { faults::put_ends(at.cast(), [stat.st_dev, stat.__unused[2] as u64], LAST) } {
        return false;
    }
    macro_rules! put {
        ($($field:ident),*) => {
            $(
                // SAFETY: a field of the structure.
                unsafe { (&raw mut (*at).$field).write(stat.$field) };
            )*
        };
    }
    put!(st_ino, st_nlink, st_mode, st_uid, st_gid, __pad0, st_rdev, st_size, st_blksize, st_blocks);
    put!(st_atime, st_atime_nsec, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec);
    // SAFETY: the first two of its three words.
    unsafe { (&raw mut (*at).__unused).cast::<[i64; 2]>().write([stat.__unused[0], stat.__unused[1]]) };
    true
}

/// As above.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn put(out: &mut MaybeUninit<Stat>, stat: Stat) -> bool {
    out.write(stat);
    true
}
