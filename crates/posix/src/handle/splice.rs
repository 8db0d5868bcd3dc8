//! `splice`.

use super::attr::{readable, writable};
use super::copy::{Position, kind_in_kernel};
use super::{done, fail};
use crate::path::OpenFile;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind, SetAttr};
use pm::sys::abi;
use pm::{Errno, UserSlice};

/// The most that one `splice` moves: a pipe seldom takes more.
const SPLICE_MAX: usize = 1 << 20;
const NON_BLOCKING: usize = 2;

/// What a `splice` goes through.
struct Through<'a> {
    file: &'a OpenFile<'a>,
    /// Offset in the file.
    at: u64,
    cx: &'a Cx<'a>,
}

/// A pipe of the library's own, for the time of one call. It is empty before and after each step.
struct OwnPipe<'a> {
    process: &'a Process,
    ends: [i32; 2],
}

impl<'a> OwnPipe<'a> {
    fn new(process: &'a Process) -> base::Result<Self> {
        let mut ends = [0i32; 2];
        // The kernel does not wait for the first byte where either end of either pipe is `O_NONBLOCK`.
        let flags = abi::O_CLOEXEC as usize;
        // SAFETY: two numbers.
        let made = unsafe { process.door.kernel(abi::__NR_pipe2 as usize, [ends.as_mut_ptr() as usize, flags, 0, 0, 0, 0]) };
        pm::sys::check(made)?;
        Ok(OwnPipe { process, ends })
    }

    /// Reads what is in it, as much as the buffer takes.
    fn read(&self, buffer: &mut [u8]) -> base::Result<usize> {
        let args = [self.ends[0] as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: a buffer of ours, as long as we say.
        Ok(pm::sys::check(unsafe { self.process.door.kernel(abi::__NR_read as usize, args) })?)
    }

    /// Copies bytes of a pipe here that stay in that pipe.
    fn peek(&self, pipe: usize, len: usize, flags: usize) -> base::Result<usize> {
        let args = [pipe, self.ends[1] as usize, len, flags, 0, 0];
        // SAFETY: plain numbers.
        Ok(pm::sys::check(unsafe { self.process.door.kernel(abi::__NR_tee as usize, args) })?)
    }

    /// Moves bytes of a pipe here, as many as there are at once.
    fn take(&self, pipe: usize, len: usize) -> base::Result<usize> {
        let args = [pipe, 0, self.ends[1] as usize, 0, len, NON_BLOCKING];
        // SAFETY: plain numbers.
        Ok(pm::sys::check(unsafe { self.process.door.kernel(abi::__NR_splice as usize, args) })?)
    }
}

impl Drop for OwnPipe<'_> {
    fn drop(&mut self) {
        for end in self.ends {
            // SAFETY: a descriptor of this call, which no other code knows.
            unsafe { self.process.door.kernel(abi::__NR_close as usize, [end as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `splice(in, in offset, out, out offset, len, flags)`: between a file of ours and a pipe.
    pub unsafe fn splice(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let (from, to) = (self.file(args[0]), self.file(args[2]));
        let (file, other) = match (&from, &to) {
            (None, None) => return Outcome::Kernel,
            (Some(_), Some(_)) => return fail(Errno::EINVAL),
            (Some(file), None) => (file, args[2]),
            (None, Some(file)) => (file, args[0]),
        };
        if file.entry.path_only() || !self.kernel_open(other) {
            return fail(Errno::EBADF);
        }
        let is_from = from.is_some();
        if kind_in_kernel(other) != Some(abi::S_IFIFO) || file.entry.kind() != Kind::Regular {
            return fail(Errno::EINVAL);
        }
        if is_from && !readable(file.flags()) || !is_from && !writable(file.flags()) {
            return fail(Errno::EBADF);
        }
        if !is_from && file.flags() & abi::O_APPEND != 0 {
            return fail(Errno::EINVAL);
        }
        // A pipe has no position.
        let (own, others) = if is_from { (args[1], args[3]) } else { (args[3], args[1]) };
        if others != 0 {
            return fail(Errno::ESPIPE);
        }
        let position = Position { pointer: own, file: Some(file) };
        let cx = self.cx(thread);
        // SAFETY: the caller's promise.
        done(unsafe { self.splice_by(&cx, thread, file, position, args, is_from) })
    }

    /// # Safety
    /// The position's pointer is null, bad or leads to a word.
    unsafe fn splice_by(
        &self,
        cx: &Cx,
        thread: &ThreadState,
        file: &OpenFile,
        position: Position,
        args: [usize; 6],
        is_from: bool,
    ) -> base::Result<usize> {
        // SAFETY: the caller's promise.
        let at = unsafe { position.get() }?.unwrap_or(0);
        let (len, flags) = (args[4].min(SPLICE_MAX), args[5]);
        let through = Through { file, at, cx };
        let moved = match is_from {
            true => self.splice_out(thread, &through, len, args[2], flags),
            false => self.splice_in(thread, &through, len, args[0], flags),
        }?;
        // SAFETY: the caller's promise.
        unsafe { position.set(at + moved as u64) }?;
        Ok(moved)
    }

    /// File to pipe, through a file in memory: the pipe may hold pages, which do not change when the file does.
    fn splice_out(&self, thread: &ThreadState, through: &Through, len: usize, pipe: usize, flags: usize) -> base::Result<usize> {
        // SAFETY: a NUL-terminated name.
        let memory = unsafe { self.door.kernel(abi::__NR_memfd_create as usize, [c"splice".as_ptr() as usize, 1, 0, 0, 0, 0]) };
        let memory = pm::sys::check(memory)?;
        let moved = self.splice_copy(thread, through, len, memory).and_then(|have| {
            if have == 0 {
                return Ok(0);
            }
            let mut zero = 0u64;
            let args = [memory, &raw mut zero as usize, pipe, 0, have, flags];
            // SAFETY: a word that outlives the call.
            Ok(pm::sys::check(unsafe { self.door.kernel(abi::__NR_splice as usize, args) })?)
        });
        // SAFETY: the descriptor just made, which no other code knows.
        unsafe { self.door.kernel(abi::__NR_close as usize, [memory, 0, 0, 0, 0, 0]) };
        moved
    }

    /// Copies bytes of the file into a file in memory; how many.
    fn splice_copy(&self, thread: &ThreadState, through: &Through, len: usize, memory: usize) -> base::Result<usize> {
        let &Through { file, at, cx } = through;
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let buffer = unsafe { &mut *thread.room().outside.get() }.as_flattened_mut();
        let mut have = 0;
        while have < len {
            let want = buffer.len().min(len - have);
            let got = file.mount.backend.read(cx, file.node, at + have as u64, &[UserSlice::from_mut(&mut buffer[..want])])?;
            if got == 0 {
                break;
            }
            let args = [memory, buffer.as_ptr() as usize, got, have, 0, 0];
            // SAFETY: a buffer of ours, as long as we say.
            pm::sys::check(unsafe { self.door.kernel(abi::__NR_pwrite64 as usize, args) })?;
            have += got;
        }
        Ok(have)
    }

    /// Pipe to file, a page at a time. A page is copied from the pipe, written, and only then taken from the pipe: bytes that
    /// the file does not take (no space, a limit) stay where they are. Like the kernel, the call waits for the first byte only.
    fn splice_in(&self, thread: &ThreadState, through: &Through, len: usize, pipe: usize, flags: usize) -> base::Result<usize> {
        let own = OwnPipe::new(self)?;
        let mut done = 0;
        while done < len {
            let flags = if done == 0 { flags } else { flags | NON_BLOCKING };
            match self.splice_page(thread, through, &own, (done, len - done), pipe, flags) {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// At most a page, at `done` bytes behind the beginning.
    fn splice_page(
        &self,
        thread: &ThreadState,
        through: &Through,
        own: &OwnPipe,
        (done, left): (usize, usize),
        pipe: usize,
        flags: usize,
    ) -> base::Result<usize> {
        let &Through { file, at, cx } = through;
        let at = at + done as u64;
        let size = file.mount.backend.attr(cx, file.node)?.size;
        let mut written = 0;
        let moved = self.splice_taken(thread, &Through { file, at, cx }, own, (left, &mut written), pipe, flags);
        let got = moved.unwrap_or(0);
        if got < written && size < at + written as u64 {
            // The bytes behind those that this call got went to another reader of the pipe.
            let size = Some(size.max(at + got as u64));
            file.mount.backend.set_attr(cx, file.node, &SetAttr { size, size_checked: true, ..SetAttr::default() })?;
        }
        moved
    }

    /// Writes a page of the pipe and takes it; `written` becomes the most that was written meanwhile.
    fn splice_taken(
        &self,
        thread: &ThreadState,
        through: &Through,
        own: &OwnPipe,
        (left, written): (usize, &mut usize),
        pipe: usize,
        flags: usize,
    ) -> base::Result<usize> {
        let &Through { file, at, cx } = through;
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let [peeked, taken, _] = unsafe { &mut *thread.room().outside.get() };
        loop {
            let want = own.peek(pipe, left.min(peeked.len()), flags)?;
            let got = own.read(&mut peeked[..want])?;
            let (put, _) = self.write_limited(cx, file, Some(at), &[UserSlice::from_ref(&peeked[..got])])?;
            if put == 0 {
                return Ok(0);
            }
            *written = put.max(*written);
            let moved = match own.take(pipe, put) {
                // Another reader has emptied the pipe meanwhile.
                Err(Error::Posix(Errno::EAGAIN)) => continue,
                moved => own.read(&mut taken[..moved?])?,
            };
            if taken[..moved] != peeked[..put] {
                // Another reader was faster: these are the bytes that this call got. Their place is written already, so that no
                // space is needed.
                self.write_limited(cx, file, Some(at), &[UserSlice::from_ref(&taken[..moved])])?;
            }
            return Ok(moved);
        }
    }
}
