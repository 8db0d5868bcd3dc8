//! `splice`.

use super::attr::{readable, writable};
use super::copy::{Position, kind_in_kernel};
use super::{done, fail};
use crate::path::OpenFile;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Kind};
use pm::sys::abi;
use pm::{Errno, UserSlice};

/// The most that one `splice` moves: a pipe seldom takes more.
const SPLICE_MAX: usize = 1 << 20;

/// What a `splice` goes through.
struct Through<'a> {
    /// The file in memory.
    memory: usize,
    buffer: &'a mut [u8],
    file: &'a OpenFile<'a>,
    at: u64,
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `splice(in, in offset, out, out offset, len, flags)`: between a file of ours and a pipe. The kernel does it with a file
    /// in memory that stands for ours, as a pipe may go on holding what it was given.
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
        // SAFETY: a NUL-terminated name.
        let memory = unsafe { self.door.kernel(abi::__NR_memfd_create as usize, [c"splice".as_ptr() as usize, 1, 0, 0, 0, 0]) };
        let memory = pm::sys::check(memory)?;
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let buffer = unsafe { &mut *thread.room().outside.get() }.as_flattened_mut();
        let through = Through { memory, buffer, file, at };
        let moved = match is_from {
            true => self.splice_out(cx, through, len, args[2], flags),
            false => self.splice_in(cx, through, len, args[0], flags),
        };
        // SAFETY: the descriptor just made, which nobody knows.
        unsafe { self.door.kernel(abi::__NR_close as usize, [memory, 0, 0, 0, 0, 0]) };
        let moved = moved?;
        // SAFETY: the caller's promise.
        unsafe { position.set(at + moved as u64) }?;
        Ok(moved)
    }

    fn splice_out(&self, cx: &Cx, through: Through, len: usize, pipe: usize, flags: usize) -> base::Result<usize> {
        let Through { memory, buffer, file, at } = through;
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
        if have == 0 {
            return Ok(0);
        }
        let mut zero = 0u64;
        // SAFETY: a word that outlives the call.
        let moved =
            unsafe { self.door.kernel(abi::__NR_splice as usize, [memory, &raw mut zero as usize, pipe, 0, have, flags]) };
        Ok(pm::sys::check(moved)?)
    }

    fn splice_in(&self, cx: &Cx, through: Through, len: usize, pipe: usize, flags: usize) -> base::Result<usize> {
        let Through { memory, buffer, file, at } = through;
        let mut zero = 0u64;
        // SAFETY: a word that outlives the call.
        let came = unsafe { self.door.kernel(abi::__NR_splice as usize, [pipe, 0, memory, &raw mut zero as usize, len, flags]) };
        let came = pm::sys::check(came)?;
        let mut written = 0;
        while written < came {
            let want = buffer.len().min(came - written);
            let args = [memory, buffer.as_mut_ptr() as usize, want, written, 0, 0];
            // SAFETY: a buffer of ours, as long as we say.
            let got = pm::sys::check(unsafe { self.door.kernel(abi::__NR_pread64 as usize, args) })?;
            let part = UserSlice::from_ref(&buffer[..got]);
            match self.write_limited(cx, file, Some(at + written as u64), &[part]) {
                Ok((done @ 1.., _)) => written += done,
                Ok(_) => break,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(written)
    }
}
