//! The kernel's `struct stat`, as programs get it.

use core::mem::MaybeUninit;
pub use pm::stat::Stat;

const NSEC: i64 = 1_000_000_000;

/// What goes into a [`Stat`]; times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Figures {
    pub device: u64,
    pub ino: u64,
    /// With the bits of the type.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
}

impl Figures {
    /// Writes the structure; false if it is a program's, and there is no memory.
    #[inline]
    pub fn write(self, out: &mut MaybeUninit<Stat>) -> bool {
        let mtime = split(self.mtime);
        let ctime = if self.ctime == self.mtime { mtime } else { split(self.ctime) };
        let atime = if self.atime == self.mtime { mtime } else { split(self.atime) };
        let stat = Stat {
            st_dev: self.device as _,
            st_ino: self.ino as _,
            st_nlink: self.nlink as _,
            st_mode: self.mode as _,
            st_uid: self.uid as _,
            st_gid: self.gid as _,
            st_rdev: self.rdev as _,
            st_size: self.size as _,
            st_blksize: 4096,
            st_blocks: self.blocks as _,
            st_atime: atime.0 as _,
            st_atime_nsec: atime.1 as _,
            st_mtime: mtime.0 as _,
            st_mtime_nsec: mtime.1 as _,
            st_ctime: ctime.0 as _,
            st_ctime_nsec: ctime.1 as _,
            #[cfg(target_arch = "x86_64")]
            __pad0: 0,
            #[cfg(target_arch = "x86_64")]
            __unused: [0; 3],
            #[cfg(not(target_arch = "x86_64"))]
            __pad1: 0,
            #[cfg(not(target_arch = "x86_64"))]
            __pad2: 0,
            #[cfg(not(target_arch = "x86_64"))]
            __unused4: 0,
            #[cfg(not(target_arch = "x86_64"))]
            __unused5: 0,
        };
        pm::stat::put(out, stat)
    }
}

/// Seconds and nanoseconds of a time; before 1970 the latter still count forward.
#[inline]
pub fn split(time: i64) -> (i64, i64) {
    if time >= 0 {
        let seconds = time as u64 / NSEC as u64;
        (seconds as i64, (time as u64 - seconds * NSEC as u64) as i64)
    } else {
        (time.div_euclid(NSEC), time.rem_euclid(NSEC))
    }
}
