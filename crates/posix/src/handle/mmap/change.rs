//! Rights and advice for parts of mappings in which something stands for holes, or for what lies past the end.
//!
//! What stands there has rights of its own: made writable by the kernel it would take stores that reach no file.

use super::fault::Touch;
use super::stores::{WATCHED, rights};
use super::*;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use pm::UserSlice;

/// Most bytes that are put in place for one call of the kernel's.
const BRING_MAX: usize = 16 << 20;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mprotect(address, len, prot)`.
    pub unsafe fn mprotect(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let [start, len, prot, ..] = args;
        let Some(end) = pages(len).and_then(|len| start.checked_add(len)) else { return Outcome::Kernel };
        if self.mappings.is_empty() || !start.is_multiple_of(PAGE) || prot & !7 != 0 {
            return Outcome::Kernel;
        }
        let cx = self.cx(thread);
        let changed = self.mappings.with(|table| {
            if !self.known(table).iter().any(|one| one.start < end && start < one.end) {
                return None;
            }
            let changed = self.protect_parts(&cx, table, start, end, prot);
            self.join_parts(&cx, table, start, end);
            Some(changed)
        });
        changed.map_or(Outcome::Kernel, |result| done(result.map(|()| 0)))
    }

    /// `remap_file_pages(address, len, prot, page, flags)`: another part of the same file there, as the kernel does it.
    pub unsafe fn remap_file_pages(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let [start, len, prot, page, flags, _] = args;
        let (start, len) = (start & !(PAGE - 1), len & !(PAGE - 1));
        let Some(end) = start.checked_add(len) else { return Outcome::Kernel };
        if self.mappings.is_empty() {
            return Outcome::Kernel;
        }
        let found = self.mappings.with(|table| {
            let one = self.known(table).iter().find(|one| one.start <= start && start < one.end)?;
            let file = self.mapped_file(one)?;
            let is_whole = one.shared && end <= one.end && len > 0 && prot == 0;
            Some(is_whole.then_some((file, one.prot as usize)))
        });
        match found {
            None => Outcome::Kernel,
            Some(Some((file, prot))) if page.checked_mul(PAGE).is_some() => {
                let flags = SHARED | FIXED | POPULATE | flags & NON_BLOCKING;
                done(self.map_file(&self.cx(thread), &file, [start, len, prot, flags, 0, page * PAGE]).map(|_| 0))
            }
            Some(_) => fail(Errno::EINVAL),
        }
    }

    /// As much of the table as was ever used.
    pub(super) fn known<'t>(&self, table: &'t [Mapping; MAPS_MAX]) -> &'t [Mapping] {
        &table[..self.mappings.high.load(Relaxed) as usize]
    }

    fn protect_parts(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], start: usize, end: usize, prot: usize) -> base::Result<()> {
        let mut at = start;
        while at < end {
            if let Some(index) = self.known(table).iter().position(|one| one.start <= at && at < one.end) {
                let to = table[index].end.min(end);
                self.protect_part(cx, table, index, at..to, prot)?;
                at = to;
                continue;
            }
            let starts = self.known(table).iter().filter(|one| one.start > at).map(|one| one.start);
            let to = starts.fold(end, usize::min);
            // SAFETY: the program's own call, on a part.
            unsafe { pm::call!(abi::__NR_mprotect, at, to - at, prot) }?;
            at = to;
        }
        Ok(())
    }

    /// Gives a part of a mapping other rights: it is a mapping of its own from then on, as what is put in place there later
    /// must have them too. What stands for holes is put in place anew; what lies past the end stays without any rights.
    fn protect_part(
        &self,
        cx: &Cx,
        table: &mut [Mapping; MAPS_MAX],
        index: usize,
        part: Range<usize>,
        prot: usize,
    ) -> base::Result<()> {
        let file = self.mapped_file(&table[index]).ok_or(Error::Posix(Errno::ENOMEM))?;
        if table[index].shared && prot & PROT_WRITE != 0 && !writable(file.flags()) {
            return err(Errno::EACCES);
        }
        let is_open = table[index].prot as usize & (PROT_WRITE | WATCHED) == PROT_WRITE;
        if is_open && prot & PROT_WRITE == 0 {
            self.stamp_again(cx, &mut table[index]);
        }
        // Stores that were seen once are not watched again until a program takes the right to store away.
        let prot = if is_open { prot } else { self.watched(table[index].shared, prot) };
        self.set_rights(cx, table, index, part, prot, &file)
    }

    /// [`Process::protect_part`], by rights that may be [`WATCHED`].
    pub(super) fn set_rights(
        &self,
        cx: &Cx,
        table: &mut [Mapping; MAPS_MAX],
        index: usize,
        part: Range<usize>,
        prot: usize,
        file: &OpenFile,
    ) -> base::Result<()> {
        let index = if usize::from(table[index].prot) == prot {
            index
        } else {
            let index = self.split(table, index, part.start)?;
            self.split(table, index, part.end)?;
            index
        };
        let one = &mut table[index];
        let filled = part.end.min(one.filled);
        if part.start < filled && one.holes {
            let offset = one.offset + (part.start - one.start) as u64;
            let put = self.fill(cx, file, part.start, filled - part.start, prot, one.shared, offset)?;
            one.holes |= put.holes;
        } else if part.start < filled {
            // SAFETY: the program's own call, on a part.
            unsafe { pm::call!(abi::__NR_mprotect, part.start, filled - part.start, rights(prot)) }?;
        }
        one.prot = prot as u8;
        Ok(())
    }

    /// Makes two mappings of one, of which the second begins at `at`; that one's place in the table. Where `at` does not lie
    /// within it, it stays as it is.
    pub(super) fn split(&self, table: &mut [Mapping; MAPS_MAX], index: usize, at: usize) -> base::Result<usize> {
        let old = table[index];
        if at <= old.start || old.end <= at {
            return Ok(index);
        }
        let mount = self.mounts.get(old.slot as usize).ok_or(Error::Posix(Errno::ENOMEM))?;
        let free = table.iter().position(|one| one.end == 0).ok_or(Error::Posix(Errno::ENOMEM))?;
        mount.backend.dup(old.description, MAP_FD + free as u32)?;
        self.mappings.high.fetch_max(free as u32 + 1, Relaxed);
        self.mappings.used.fetch_add(1, AcqRel);
        table[free] = Mapping { start: at, filled: old.filled.max(at), offset: old.offset + (at - old.start) as u64, ..old };
        table[index] = Mapping { end: at, filled: old.filled.min(at), ..old };
        Ok(free)
    }

    /// Mappings at `start..end` that go on in one another are one again, as they are for the kernel.
    fn join_parts(&self, cx: &Cx, table: &mut [Mapping; MAPS_MAX], start: usize, end: usize) {
        for index in 0..self.known(table).len() {
            loop {
                let one = table[index];
                if one.end < start || end < one.start {
                    break;
                }
                let Some(next) = self.known(table).iter().position(|next| one.goes_on_in(next)) else { break };
                let Mapping { end, filled, holes, .. } = table[next];
                let filled = if one.filled == one.end { filled } else { one.filled };
                table[index] = Mapping { end, filled, holes: one.holes || holes, ..one };
                table[next] = FREE;
                self.mappings.used.fetch_sub(1, AcqRel);
                if let Some(mount) = self.mounts.get(one.slot as usize) {
                    mount.backend.close(cx, MAP_FD + next as u32);
                }
            }
        }
    }

    /// `madvise(address, len, advice)`.
    pub unsafe fn madvise(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let [start, len, advice, ..] = args;
        let Some(end) = pages(len).and_then(|len| start.checked_add(len)) else { return Outcome::Kernel };
        if self.mappings.is_empty() {
            return Outcome::Kernel;
        }
        match advice as u32 {
            abi::MADV_POPULATE_READ => {
                self.bring(&self.cx(thread), start, end - start, false);
                Outcome::Kernel
            }
            abi::MADV_POPULATE_WRITE => {
                self.bring(&self.cx(thread), start, end - start, true);
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
            let one = self.known(table).iter().find(|one| one.start <= start && start < one.end)?;
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

    /// The kernel is to store into a range. Whether that had to be made possible.
    pub fn store_ahead(&self, thread: &ThreadState, start: usize, len: usize) -> bool {
        self.bring(&self.cx(thread), start, len, true)
    }

    /// Puts in place what the kernel could not touch: for call `nr` of the program's that failed with `EFAULT`. Whether it
    /// may be made again.
    pub fn bring_buffers(&self, thread: &ThreadState, nr: usize, args: &[usize; 6]) -> bool {
        if !self.maps_partially.load(Relaxed) && !self.watches_stores() {
            return false;
        }
        let cx = self.cx(thread);
        // The kernel can read all that is in place: what it could not touch it was to store into.
        let bring = |at, len| self.bring(&cx, at, len, true);
        match nr as u32 {
            abi::__NR_readv
            | abi::__NR_writev
            | abi::__NR_preadv
            | abi::__NR_pwritev
            | abi::__NR_preadv2
            | abi::__NR_pwritev2 => each_buffer(args[1], args[2], bring),
            abi::__NR_recvmsg => each_message(args[1], 1, bring),
            abi::__NR_recvmmsg => each_message(args[1], args[2], bring),
            // A buffer is followed by its length, in all calls that have one.
            _ => (0..args.len() - 1).fold(false, |brought, index| brought | bring(args[index], args[index + 1])),
        }
    }

    /// Puts what stands for holes in place before a call of ours uses buffers.
    #[inline]
    pub(crate) fn bring_ahead(&self, cx: &Cx, buffers: &[UserSlice]) {
        if self.maps_partially.load(Relaxed) {
            self.bring_all(cx, buffers);
        }
    }

    #[cold]
    #[inline(never)]
    fn bring_all(&self, cx: &Cx, buffers: &[UserSlice]) {
        for buffer in buffers {
            self.bring(cx, buffer.ptr as usize, buffer.len, false);
        }
    }

    /// Puts in place what stands for holes in a range, as if it were touched, or stored into. Whether something did.
    fn bring(&self, cx: &Cx, start: usize, len: usize, stores: bool) -> bool {
        let end = start.saturating_add(len.clamp(1, BRING_MAX));
        let high = self.mappings.high.load(Relaxed) as usize;
        self.mappings.with(|table| {
            let mut brought = stores && self.first_stores(cx, table, start..end);
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

/// Hands the buffers of a vector at `vector` to `bring`; whether one was put in place. The vector's place may be what the
/// kernel could not read: the kernel copies it.
fn each_buffer(vector: usize, count: usize, bring: impl Fn(usize, usize) -> bool) -> bool {
    let mut buffers = [[0usize; 2]; 16];
    let read = copy_in(vector, &mut buffers[..count.min(16)]);
    read.iter().fold(false, |brought, [at, len]| brought | bring(*at, *len))
}

/// The same of all memory that `count` messages (`struct mmsghdr`, or one `struct msghdr`) name.
fn each_message(messages: usize, count: usize, bring: impl Fn(usize, usize) -> bool) -> bool {
    // A `struct msghdr`: name and its length, vector and its length, control data and its length, flags; in a
    // `struct mmsghdr`, a word follows.
    const WORDS: usize = 8;
    let mut brought = bring(messages, count.min(16) * WORDS * 8);
    for index in 0..count.min(16) {
        let mut message = [[0usize; 2]; 3];
        if let [name, vector, control] = *copy_in(messages + index * WORDS * 8, &mut message) {
            brought |= bring(name[0], name[1] as u32 as usize) | bring(control[0], control[1]);
            brought |= each_buffer(vector[0], vector[1], &bring);
        }
    }
    brought
}

/// Copies pairs of words of the program's memory as the kernel can read it: as many as are there.
fn copy_in(from: usize, into: &mut [[usize; 2]]) -> &[[usize; 2]] {
    let (own, theirs) = ([into.as_mut_ptr() as usize, into.len() * 16], [from, into.len() * 16]);
    // SAFETY: takes no arguments.
    let pid = unsafe { pm::sys::raw(abi::__NR_getpid as usize, [0; 6]) };
    // SAFETY: room for as much as is read, from this process.
    let read = unsafe { pm::call!(abi::__NR_process_vm_readv, pid, own.as_ptr(), 1, theirs.as_ptr(), 1, 0) };
    &into[..read.unwrap_or(0) / 16]
}
