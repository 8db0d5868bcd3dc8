//! Rights and advice for parts of mappings in which something stands for holes, or for what lies past the end.
//!
//! What stands there has rights of its own: made writable by the kernel it would take stores that reach no file.

use super::fault::Touch;
use super::*;
use core::sync::atomic::Ordering::Relaxed;
use pm::UserSlice;

/// Most bytes that are put in place for one call of the kernel's.
const BRING_MAX: usize = 16 << 20;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mprotect(address, len, prot)`.
    pub unsafe fn mprotect(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let [start, len, prot, ..] = args;
        let Some(end) = pages(len).and_then(|len| start.checked_add(len)) else { return Outcome::Kernel };
        if !self.maps_partially.load(Relaxed) || !start.is_multiple_of(PAGE) || prot & !7 != 0 {
            return Outcome::Kernel;
        }
        let cx = self.cx(thread);
        let changed = self.mappings.with(|table| {
            if !table.iter().any(|one| one.is_partial() && one.start < end && start < one.end) {
                return None;
            }
            Some(self.protect_parts(&cx, table, start, end, prot))
        });
        changed.map_or(Outcome::Kernel, |result| done(result.map(|()| 0)))
    }

    fn protect_parts(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], start: usize, end: usize, prot: usize) -> base::Result<()> {
        let mut at = start;
        while at < end {
            let inside = table.iter_mut().find(|one| one.is_partial() && one.start <= at && at < one.end);
            if let Some(one) = inside {
                let to = one.end.min(end);
                self.protect_part(cx, one, at, to, prot)?;
                at = to;
                continue;
            }
            let starts = table.iter().filter(|one| one.is_partial() && one.start > at).map(|one| one.start);
            let to = starts.fold(end, usize::min);
            // SAFETY: the program's own call, on a part.
            unsafe { pm::call!(abi::__NR_mprotect, at, to - at, prot) }?;
            at = to;
        }
        Ok(())
    }

    /// Puts a part of a mapping in place anew, with other rights. What lies past the end stays without any.
    fn protect_part(&self, cx: &Cx, one: &mut Mapping, from: usize, to: usize, prot: usize) -> base::Result<()> {
        let file = self.mapped_file(one).ok_or(Error::Posix(Errno::ENOMEM))?;
        if one.shared && prot & PROT_WRITE != 0 && !writable(file.flags()) {
            return err(Errno::EACCES);
        }
        let filled = to.min(one.filled);
        if from < filled && one.holes {
            let offset = one.offset + (from - one.start) as u64;
            let put = self.fill(cx, &file, from, filled - from, prot, one.shared, offset)?;
            one.holes |= put.holes;
        } else if from < filled {
            // SAFETY: the program's own call, on a part.
            unsafe { pm::call!(abi::__NR_mprotect, from, filled - from, prot) }?;
        }
        let whole = from == one.start && to == one.end;
        one.prot = if whole { prot as u8 } else { one.prot | prot as u8 };
        Ok(())
    }

    /// `madvise(address, len, advice)`.
    pub unsafe fn madvise(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let [start, len, advice, ..] = args;
        let Some(end) = pages(len).and_then(|len| start.checked_add(len)) else { return Outcome::Kernel };
        if self.mappings.is_empty() {
            return Outcome::Kernel;
        }
        match advice as u32 {
            abi::MADV_POPULATE_READ | abi::MADV_POPULATE_WRITE => {
                self.bring(&self.cx(thread), start, end - start);
                Outcome::Kernel
            }
            abi::MADV_REMOVE => self.remove(thread, start, end).map_or(Outcome::Kernel, |result| done(result.map(|()| 0))),
            _ => Outcome::Kernel,
        }
    }

    /// Makes a hole in a mapped file: the kernel would make one in the image. `None` if it is none of ours.
    fn remove(&self, thread: &ThreadState, start: usize, end: usize) -> Option<base::Result<()>> {
        let cx = self.cx(thread);
        self.mappings.with(|table| {
            let one = table.iter().find(|one| one.start <= start && start < one.end)?;
            if !one.shared || !start.is_multiple_of(PAGE) || end > one.end {
                return Some(err(Errno::EINVAL));
            }
            let file = self.mapped_file(one)?;
            if !writable(file.flags()) {
                return Some(err(Errno::EACCES));
            }
            let (offset, len) = (one.offset + (start - one.start) as u64, (end - start) as u64);
            Some(file.mount.backend.fallocate(&cx, file.node, base::Fallocate::PunchHole, offset, len))
        })
    }

    /// Puts in place what the kernel could not touch: for call `nr` of the program's that failed with `EFAULT`. Whether it
    /// may be made again.
    pub fn bring_buffers(&self, thread: &ThreadState, nr: usize, args: &[usize; 6]) -> bool {
        if !self.maps_partially.load(Relaxed) {
            return false;
        }
        let cx = self.cx(thread);
        match nr as u32 {
            abi::__NR_readv
            | abi::__NR_writev
            | abi::__NR_preadv
            | abi::__NR_pwritev
            | abi::__NR_preadv2
            | abi::__NR_pwritev2 => {
                let mut buffers = [[0usize; 2]; 16];
                let count = args[2].min(buffers.len());
                // Its place may be what the kernel could not read: it is asked to, and not believed.
                let (own, theirs) = ([buffers.as_mut_ptr() as usize, count * 16], [args[1], count * 16]);
                // SAFETY: takes no arguments.
                let pid = unsafe { pm::sys::raw(abi::__NR_getpid as usize, [0; 6]) };
                // SAFETY: room for as much as is read, from this process.
                let read = unsafe { pm::call!(abi::__NR_process_vm_readv, pid, own.as_ptr(), 1, theirs.as_ptr(), 1, 0) };
                let read = &buffers[..read.unwrap_or(0) / 16];
                read.iter().fold(false, |brought, [at, len]| brought | self.bring(&cx, *at, *len))
            }
            // A buffer is followed by its length, in all calls that have one.
            _ => (1..args.len() - 1).fold(false, |brought, index| brought | self.bring(&cx, args[index], args[index + 1])),
        }
    }

    /// Puts what stands for holes in place before a call of ours uses buffers.
    #[inline(always)]
    pub(crate) fn bring_ahead(&self, cx: &Cx, buffers: &[UserSlice]) {
        if self.maps_partially.load(Relaxed) {
            self.bring_all(cx, buffers);
        }
    }

    #[cold]
    #[inline(never)]
    fn bring_all(&self, cx: &Cx, buffers: &[UserSlice]) {
        for buffer in buffers {
            self.bring(cx, buffer.ptr as usize, buffer.len);
        }
    }

    /// Puts in place what stands for holes in a range, as if it were touched. Whether something did.
    fn bring(&self, cx: &Cx, start: usize, len: usize) -> bool {
        let end = start.saturating_add(len.clamp(1, BRING_MAX));
        let high = self.mappings.high.load(Relaxed) as usize;
        self.mappings.with(|table| {
            let mut brought = false;
            let parts = table.iter_mut().take(high).filter(|one| one.holes && one.prot != 0);
            for one in parts.filter(|one| one.start < end && start < one.filled) {
                let mut at = start.max(one.start) & !(PAGE - 1);
                while at < end.min(one.filled) {
                    let Touch { next, touched } = self.touch(cx, one, at, end);
                    brought |= touched;
                    at = next;
                }
            }
            brought
        })
    }
}
