//! Reading directories.

use super::err;
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, DirEntry, Kind};
use core::sync::atomic::Ordering::Relaxed;
use pm::{Errno, faults};

const PAGE: usize = 4096;
/// Bytes of `struct linux_dirent64` before the name: ino, next, length, type.
const HEAD: usize = 19;
/// The older `struct linux_dirent` has its type behind the name.
#[cfg(target_arch = "x86_64")]
const OLD_HEAD: usize = 18;

/// Writes one entry at `out` with the name at `head`; the record ends at `len`.
///
/// # Safety
/// `out` is writable for `len` bytes, which hold head, name and a NUL.
#[inline]
unsafe fn write_entry(out: *mut u8, entry: &DirEntry, head: usize, len: usize) {
    // SAFETY: within the record.
    unsafe { out.cast::<u64>().write_unaligned(entry.ino) };
    // SAFETY: within the record.
    unsafe { out.add(8).cast::<u64>().write_unaligned(entry.next) };
    // SAFETY: within the record.
    unsafe { out.add(16).cast::<u16>().write_unaligned(len as u16) };
    // SAFETY: within the record.
    unsafe { core::ptr::copy_nonoverlapping(entry.name.as_ptr(), out.add(head), entry.name.len()) };
    // SAFETY: within the record: the NUL, and the type in its place.
    unsafe { *out.add(head + entry.name.len()) = 0 };
    let kind = if head == HEAD { 18 } else { len - 1 };
    // SAFETY: within the record.
    unsafe { *out.add(kind) = entry.kind as u8 };
}

/// Fills `out` with entries from the description's position on; `ended` becomes
/// true if nothing comes after them.
///
/// # Safety
/// `out` is [bad](crate::bad_pointer) or writable for `room` bytes.
#[inline]
unsafe fn read_entries(cx: &Cx, file: &OpenFile, out: usize, room: usize, head: usize, ended: &mut bool) -> base::Result<usize> {
    if file.entry.kind() != Kind::Directory {
        return err(Errno::ENOTDIR);
    }
    let backend = file.mount.backend;
    let id = file.entry.description();
    // `there`: so many bytes can be written.
    let (mut used, mut there, mut full, mut fault) = (0usize, 0usize, false, false);
    backend.offset_lock(cx, id);
    let cookie = file.description.offset.load(Relaxed);
    let mut next = cookie;
    let result = backend.readdir(cx, file.node, cookie, &mut |entry| {
        // Name, NUL, and in the older form the type.
        let len = (head + entry.name.len() + 1 + (HEAD - head) + 7) & !7;
        if used + len > room {
            full = true;
            return false;
        }
        if bad(out) {
            fault = true;
            return false;
        }
        if used + len > there {
            // SAFETY: the caller's promise; it is about to be written.
            if unsafe { faults::writable((out + used) as *mut u8, len) } < len {
                fault = true;
                return false;
            }
            there = (out + used + len).next_multiple_of(PAGE) - out;
        }
        // SAFETY: the caller's promise, and there is room for `len` more.
        unsafe { write_entry((out + used) as *mut u8, &entry, head, len) };
        used += len;
        next = entry.next;
        true
    });
    file.description.offset.store(next, Relaxed);
    backend.offset_unlock(cx, id);
    *ended = result.is_ok() && !full && !fault;
    match result {
        Err(error) if used == 0 => Err(error),
        _ if used == 0 && fault => err(Errno::EFAULT),
        _ if used == 0 && full => err(Errno::EINVAL),
        _ => Ok(used),
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `getdents64(fd, buffer, len)`.
    pub unsafe fn getdents64(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.list(thread, args, &mut false) }
    }

    /// As `getdents64`, and says whether these were the last entries, so that a
    /// stream need not look through the rest of the directory once more to learn that.
    pub unsafe fn list(&self, thread: &ThreadState, args: [usize; 6], ended: &mut bool) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            unsafe { read_entries(cx, &file, args[1], args[2] as u32 as usize, HEAD, ended) }
        })
    }

    /// `getdents(fd, buffer, len)`, the older form.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn getdents(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        self.on(thread, args[0], |cx, file| {
            // SAFETY: the caller's promise.
            unsafe { read_entries(cx, &file, args[1], args[2] as u32 as usize, OLD_HEAD, &mut false) }
        })
    }
}
