//! `ioctl(FS_IOC_FIEMAP)`: where a file's bytes lie, and which of them other files have too.

use super::err;
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Process, ThreadState};
use base::{Cx, FileRun, Kind, Result};
use pm::{Errno, faults};

pub(super) const FS_IOC_FIEMAP: u32 = 0xc020_660b;
/// What is asked for that is always so: written data is in its place.
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;
const EXTENT_SHARED: u32 = 0x2000;
/// First byte that no file has.
const FILE_MAX: u64 = 16 << 40;
/// Most extents whose bytes can be counted in 32 bits.
const EXTENTS_MAX: u32 = u32::MAX / size_of::<Extent>() as u32;

/// `struct fiemap` without its extents.
#[derive(Clone, Copy)]
#[repr(C)]
struct Map {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

const _: () = assert!(size_of::<Map>() == 32 && size_of::<Extent>() == 56);

impl Process {
    /// Fills in where the bytes of a file lie. Physical is: in the image.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub(super) unsafe fn runs(&self, thread: &ThreadState, file: &OpenFile, argument: usize) -> Result<usize> {
        if file.entry.kind() != Kind::Regular {
            return err(Errno::EOPNOTSUPP);
        }
        let (cx, backend) = (&self.cx(thread), file.mount.backend);
        // Whether there is such a thing comes before what is asked.
        backend.run_at(cx, file.node, FILE_MAX)?;
        if bad(argument) {
            return err(Errno::EFAULT);
        }
        // SAFETY: the caller's promise.
        let mut map = unsafe { faults::read(argument as *const Map) }?;
        if map.count > EXTENTS_MAX {
            return err(Errno::EINVAL);
        }
        let first = argument + size_of::<Map>();
        map.mapped = 0;
        let result = match prepared(&mut map) {
            // SAFETY: as many extents as the caller says that there is room for.
            Ok(end) => each_run(cx, file, map.start, end, |run| unsafe { fill(&mut map, first, run) }),
            Err(error) => Err(error),
        };
        // SAFETY: the caller's promise.
        unsafe { faults::write(argument as *mut Map, &map) }?;
        result.map(|()| 0)
    }
}

/// The end of what is asked for, if it can be asked for.
fn prepared(map: &mut Map) -> Result<u64> {
    if map.len == 0 {
        return err(Errno::EINVAL);
    }
    if map.start >= FILE_MAX {
        return err(Errno::EFBIG);
    }
    if map.flags & !FLAG_SYNC != 0 {
        map.flags &= !FLAG_SYNC;
        return err(Errno::EBADR);
    }
    Ok(map.start.saturating_add(map.len).min(FILE_MAX))
}

/// Calls `each` with the runs between two bytes, until it says that it wants no more.
fn each_run(cx: &Cx, file: &OpenFile, start: u64, end: u64, mut each: impl FnMut(&FileRun) -> Result<bool>) -> Result<()> {
    let mut at = start;
    while let Some(run) = file.mount.backend.run_at(cx, file.node, at)? {
        at = run.start + run.len;
        if run.start >= end || !each(&run)? || run.is_last || at >= end {
            break;
        }
    }
    Ok(())
}

/// Adds a run, or counts it; whether there is room for more.
///
/// # Safety
/// Room for `map.count` extents at `first`.
unsafe fn fill(map: &mut Map, first: usize, run: &FileRun) -> Result<bool> {
    if map.count == 0 {
        map.mapped += 1;
        return Ok(true);
    }
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let extent = Extent {
        logical: run.start,
        physical: run.image,
        len: run.len,
        reserved: [0; 2],
        flags: flag(run.is_last, EXTENT_LAST) | flag(run.is_shared, EXTENT_SHARED),
        reserved_too: [0; 3],
    };
    let at = first + map.mapped as usize * size_of::<Extent>();
    if bad(at) {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    unsafe { faults::write(at as *mut Extent, &extent) }?;
    map.mapped += 1;
    Ok(map.mapped < map.count)
}
