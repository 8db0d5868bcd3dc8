//! Huge pages: mappings that can have them, and memory that consists of them.
//!
//! A scan of a big tree, or a read of big files, costs each process that does it
//! a page fault for every 16 pages of image or segment that are in place, and a
//! new page costs one of its own. A huge page costs one fault in all.

use crate::file::{advise, unmap};
use crate::{Errno, sys::abi};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a huge page: what one entry of the processor's page tables maps in place of 512.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Maps a file by `map(address, length, flag)` where huge pages of it can be mapped as such: at a multiple of their
/// length, if it has one.
#[inline]
pub(crate) fn place(len: u64, map: impl Fn(usize, usize, u32) -> Result<usize, Errno>) -> Result<usize, Errno> {
    if len < HUGE_PAGE {
        return map(0, len as usize, 0);
    }
    let len = len.next_multiple_of(4096) as usize;
    // Where the kernel has put one before, or would: below that there is room more often than not.
    let place = map(wished(len), len, 0)?;
    if place.is_multiple_of(HUGE_PAGE as usize) {
        BELOW.store(place, Relaxed);
        return Ok(place);
    }
    // SAFETY: ours, and nobody knows of it.
    unsafe { unmap(place as *mut u8, len as u64) };
    let room = map(0, len + HUGE_PAGE as usize, 0)?;
    let (start, end) = (room.next_multiple_of(HUGE_PAGE as usize), room + len + HUGE_PAGE as usize);
    if start != room {
        // If it fails, addresses are lost, no more.
        map(start, len, abi::MAP_FIXED)?;
    }
    for (from, to) in [(room, start), (start + len, end)] {
        if from < to {
            // SAFETY: as above.
            unsafe { unmap(from as *mut u8, (to - from) as u64) };
        }
    }
    BELOW.store(start, Relaxed);
    Ok(start)
}

/// Where the last such mapping began.
static BELOW: AtomicUsize = AtomicUsize::new(0);

/// The address to ask for: the kernel takes it if nothing is there.
fn wished(len: usize) -> usize {
    /// The program's other libraries lie below this one.
    const OTHERS: usize = 64 << 20;
    let below = match BELOW.load(Relaxed) {
        0 => ((&raw const BELOW) as usize).saturating_sub(OTHERS),
        below => below,
    };
    below.saturating_sub(len) & !(HUGE_PAGE as usize - 1)
}

/// Puts memory behind the huge pages that lie wholly in a range of a mapping on tmpfs: a fault for each in place of 32
/// to 512, in every process, and a tenth of the time of `MADV_POPULATE_WRITE`. Contents stay. Returns how many there
/// are; it ends at the first that cannot be had (the mapping begins elsewhere, another file system, a kernel before
/// 6.1, memory in pieces or none), and leaves what follows as it was, but for a page.
pub fn gather(address: *mut u8, len: u64) -> u64 {
    let skip = (address as u64).next_multiple_of(HUGE_PAGE) - address as u64;
    let whole = (0..len.saturating_sub(skip) / HUGE_PAGE).map(|page| address.wrapping_add((skip + page * HUGE_PAGE) as usize));
    // The kernel gathers only where a page is mapped.
    let gathered =
        |page| advise(page, 4096, abi::MADV_POPULATE_WRITE).is_ok() && advise(page, HUGE_PAGE, abi::MADV_COLLAPSE).is_ok();
    whole.take_while(|page| gathered(*page)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use std::format;

    /// Goal: large files are mapped where huge pages can be, whole ones are gathered, and nothing that was stored is
    /// lost. Method: a file with a byte here and there, gathered but for its first page; what a plain advice says of
    /// that first huge page tells whether this kernel has such pages.
    #[test]
    fn huge_pages_keep_what_was_stored() {
        let path = format!("/dev/shm/bypath-gather-{}\0", std::process::id());
        let file = File::open(path.as_bytes(), abi::O_RDWR | abi::O_CREAT | abi::O_EXCL, 0o600).unwrap();
        std::fs::remove_file(&path[..path.len() - 1]).unwrap();
        let len = 4 * HUGE_PAGE;
        file.truncate(len).unwrap();
        let address = file.map(len, true, false).unwrap();
        assert!((address as u64).is_multiple_of(HUGE_PAGE), "{address:?}");
        // SAFETY: just mapped, shared and writable, unmapped below.
        let stored = |at: u64| unsafe { core::sync::atomic::AtomicU8::from_ptr(address.add(at as usize)) };
        let places = [0, 5000, HUGE_PAGE - 1, HUGE_PAGE + 4096, 3 * HUGE_PAGE, len - 1];
        places.iter().for_each(|at| stored(*at).store(at.trailing_ones() as u8 + 7, core::sync::atomic::Ordering::Relaxed));
        let gathered = gather(address.wrapping_add(4096), len - 4096);
        assert_eq!(gathered * HUGE_PAGE, file.stat().unwrap().allocated.saturating_sub(3 * 4096) & !(HUGE_PAGE - 1));
        let able = advise(address, HUGE_PAGE, abi::MADV_COLLAPSE).is_ok();
        assert_eq!(gathered, if able { 3 } else { 0 });
        for at in places {
            assert_eq!(stored(at).load(core::sync::atomic::Ordering::Relaxed), at.trailing_ones() as u8 + 7, "{at}");
        }
        // SAFETY: nothing refers to it any more.
        unsafe { unmap(address, len) };
    }
}
