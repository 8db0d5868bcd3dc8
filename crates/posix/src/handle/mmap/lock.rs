//! Memory that is locked.
//!
//! `mlockall` means all that a program has mapped. An image and what its users share are mapped into it without its
//! knowledge, far larger than what is used of them, and locking fills what it locks: so all else is locked range by
//! range, as `/proc/self/maps` tells it. `MCL_FUTURE` is the kernel's; nothing of ours is mapped after the start but
//! files that the program maps itself.

use super::*;
use core::sync::atomic::Ordering::Relaxed;

const CURRENT: usize = 1;
const FUTURE: usize = 2;
const ON_FAULT: usize = 4;
/// Flag of `mlock2`.
const LOCK_ON_FAULT: usize = 1;
/// Where the name in a line begins, at the latest.
const LINE: usize = 128;
/// Bit of the capability to lock without bounds.
const CAP_IPC_LOCK: u32 = 14;

/// Calls `each` with the ranges that the kernel lists, until it fails. `ENOENT` without `/proc`.
fn each_range(each: &mut dyn FnMut(usize, usize) -> Result<(), Errno>) -> Result<(), Errno> {
    let maps = pm::file::File::open(b"/proc/self/maps\0", abi::O_RDONLY, 0)?;
    let (mut text, mut kept) = ([0u8; 4096], 0);
    loop {
        // SAFETY: the rest of the buffer.
        let read = unsafe { pm::call!(abi::__NR_read, maps.number(), text[kept..].as_mut_ptr(), text.len() - kept) }?;
        let end = kept + read;
        let mut from = 0;
        while let Some(len) = text[from..end].iter().position(|byte| *byte == b'\n') {
            if let Some((start, end)) = range(&text[from..from + len]) {
                each(start, end)?;
            }
            from += len + 1;
        }
        if read == 0 {
            return Ok(());
        }
        text.copy_within(from..end, 0);
        // A line that does not fit has a long name, which nobody asks for: its beginning is enough.
        kept = if from == 0 && end == text.len() { LINE } else { end - from };
    }
}

/// `start-end perms …`; `None` for what the kernel has put there.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let number = |digits: &[u8]| usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok();
    let name = line.split(|byte| *byte == b' ').next_back()?;
    if name.starts_with(b"[v") {
        return None;
    }
    let mut ends = line.split(|byte| *byte == b' ').next()?.split(|byte| *byte == b'-');
    Some((number(ends.next()?)?, number(ends.next()?)?))
}

/// The parts of the program's memory that are its own.
fn each_own(each: &mut dyn FnMut(usize, usize) -> Result<(), Errno>) -> Result<(), Errno> {
    each_range(&mut |start, end| {
        let mut at = start;
        while at < end {
            // What is ours lies in whole ranges, but the kernel joins neighbours.
            let inside = pm::own::ranges().find(|(from, to)| *from <= at && at < *to);
            let next = match inside {
                Some((_, to)) => to.min(end),
                None => pm::own::ranges().map(|(from, _)| from).filter(|from| *from > at).fold(end, usize::min),
            };
            if inside.is_none() {
                each(at, next)?;
            }
            at = next;
        }
        Ok(())
    })
}

/// Whether so much may be locked: `EPERM`, `ENOMEM`.
fn may_lock(len: usize) -> Result<(), Errno> {
    let mut limit = [0u64; 2];
    const RLIMIT_MEMLOCK: u32 = 8;
    // SAFETY: the array is a `struct rlimit64`.
    unsafe { pm::call!(abi::__NR_prlimit64, 0, RLIMIT_MEMLOCK, 0, limit.as_mut_ptr()) }?;
    // Version 3, this thread; effective, permitted, inheritable, of 32 bits each.
    let (head, mut sets) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: a header and room for both sets.
    let known = unsafe { pm::call!(abi::__NR_capget, head.as_ptr(), sets.as_mut_ptr()) }.is_ok();
    match known && sets[0] & 1 << CAP_IPC_LOCK != 0 {
        true => Ok(()),
        false if limit[0] == 0 => Err(Errno::EPERM),
        false if len as u64 > limit[0] => Err(Errno::ENOMEM),
        false => Ok(()),
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mlockall(flags)`.
    pub unsafe fn mlockall(&self, _thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let flags = args[0] as u32 as usize;
        if pm::own::ranges().next().is_none() {
            return Outcome::Kernel;
        }
        if flags & !(CURRENT | FUTURE | ON_FAULT) != 0 || flags & (CURRENT | FUTURE) == 0 {
            return fail(Errno::EINVAL);
        }
        done(self.lock_all(flags).map(|()| 0).map_err(Error::Posix))
    }

    fn lock_all(&self, flags: usize) -> Result<(), Errno> {
        if flags & CURRENT != 0 {
            let mut len = 0;
            each_own(&mut |start, end| {
                len += end - start;
                Ok(())
            })?;
            may_lock(len)?;
        }
        if flags & FUTURE != 0 {
            // Says nothing of what is mapped now.
            // SAFETY: no pointers.
            unsafe { pm::call!(abi::__NR_mlockall, flags & !CURRENT) }?;
        } else if self.mappings.future.load(Relaxed) != 0 {
            // SAFETY: no pointers.
            unsafe { pm::call!(abi::__NR_munlockall) }?;
        }
        self.mappings.future.store(if flags & FUTURE != 0 { flags as u32 } else { 0 }, Relaxed);
        if flags & CURRENT != 0 {
            each_own(&mut |start, end| lock(start, end - start, flags & ON_FAULT != 0))?;
        }
        Ok(())
    }

    /// `munlockall()`: nothing of ours is locked.
    pub unsafe fn munlockall(&self, _thread: &ThreadState, _args: [usize; 6]) -> Outcome {
        self.mappings.future.store(0, Relaxed);
        Outcome::Kernel
    }

    /// After a file's pages were put in place: locks them and brings them, if the program wants that of its mapping.
    pub(super) fn settle_memory(&self, start: usize, len: usize, prot: usize, flags: usize) {
        if len == 0 {
            return;
        }
        let future = self.mappings.future.load(Relaxed) as usize;
        let mut brings = flags & (POPULATE | NON_BLOCKING) == POPULATE;
        if flags & LOCKED != 0 || future != 0 {
            // SAFETY: changes no contents.
            let _ = unsafe { pm::call!(abi::__NR_mlock2, start, len, LOCK_ON_FAULT) };
            brings |= flags & LOCKED != 0 || future & ON_FAULT == 0;
        }
        if brings {
            let writes = prot & PROT_WRITE != 0 && flags & MAP_TYPE == PRIVATE;
            let advice = if writes { abi::MADV_POPULATE_WRITE } else { abi::MADV_POPULATE_READ };
            let _ = pm::file::advise(start as *mut u8, len as u64, advice);
        }
    }
}

/// Locks a range. What cannot be brought (no rights, no file behind it) stays locked for later, as `mlockall` does.
fn lock(start: usize, len: usize, on_fault: bool) -> Result<(), Errno> {
    // SAFETY: changes no contents.
    match unsafe { pm::call!(abi::__NR_mlock2, start, len, LOCK_ON_FAULT) } {
        // Unmapped meanwhile, perhaps; or more than may be, which was asked before.
        Err(errno) if errno != Errno::ENOMEM => return Err(errno),
        _ => {}
    }
    if !on_fault {
        // SAFETY: as above.
        let _ = unsafe { pm::call!(abi::__NR_mlock2, start, len, 0) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Goal: lines of the kernel's list are understood, and what it has put there itself is left out.
    #[test]
    fn lines() {
        assert_eq!(range(b"7f00-8f00 rw-s 00000000 00:1a 12    /dev/shm/a b"), Some((0x7f00, 0x8f00)));
        assert_eq!(range(b"1000-2000 ---p 00000000 00:00 0 "), Some((0x1000, 0x2000)));
        assert_eq!(range(b"ff600000-ff601000 --xp 00000000 00:00 0   [vsyscall]"), None);
        assert_eq!(range(b"nonsense"), None);
    }

    /// Goal: all of the process's memory is listed, in order, whatever the lines' lengths. Method: 300 mappings.
    #[test]
    fn all_ranges() {
        let maps: Vec<usize> = (0..300)
            .map(|number: usize| {
                let prot = number & 1;
                // SAFETY: new memory.
                unsafe { pm::call!(abi::__NR_mmap, 0, PAGE, prot, PRIVATE | ANONYMOUS, usize::MAX, 0) }.unwrap()
            })
            .collect();
        let mut listed = Vec::new();
        each_range(&mut |start, end| {
            listed.push((start, end));
            Ok(())
        })
        .unwrap();
        assert!(listed.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert!(maps.iter().all(|map| listed.iter().any(|(start, end)| start <= map && map < end)));
        // SAFETY: mapped above.
        maps.iter().for_each(|map| _ = unsafe { pm::call!(abi::__NR_munmap, *map, PAGE) });
    }
}
