//! Waiting for descriptors: files of ours are always ready. If one is in the
//! set, the kernel is asked about the others without waiting.

use super::fail;
use crate::text::bad;
use crate::{FD_MAX, Outcome, Process, ThreadState};
use pm::Errno;
use pm::sys::abi;

#[derive(Clone, Copy)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

/// `POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM`.
const READY: i16 = 0x1 | 0x4 | 0x40 | 0x100;
const POLLNVAL: i16 = 0x20;
/// Descriptors that one `select` looks at.
const SELECT_WORDS: usize = FD_MAX as usize / 64 + 1;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `poll(fds, count, timeout_ms)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn poll(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.poll_any(thread, abi::__NR_poll as usize, args, |args| args[2] = 0) }
    }

    /// `ppoll(fds, count, timeout, mask, mask size)`.
    pub unsafe fn ppoll(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        static NOW: [u64; 2] = [0; 2];
        // SAFETY: the caller's promise.
        unsafe { self.poll_any(thread, abi::__NR_ppoll as usize, args, |args| args[2] = &raw const NOW as usize) }
    }

    unsafe fn poll_any(&self, _thread: &ThreadState, nr: usize, args: [usize; 6], no_wait: impl Fn(&mut [usize; 6])) -> Outcome {
        let (list, count) = (args[0] as *mut PollFd, args[1] as u32 as usize);
        if bad(args[0]) || count > 1 << 20 {
            return Outcome::Kernel;
        }
        let bytes = count * size_of::<PollFd>();
        // SAFETY: the kernel would write there too; what is there stays as it is.
        if unsafe { pm::faults::writable(args[0] as *mut u8, bytes) } < bytes {
            return Outcome::Kernel;
        }
        // SAFETY: the caller's promise: `count` entries.
        let ours = |index: usize| unsafe { self.file((*list.add(index)).fd as u32 as usize) };
        if !(0..count).any(|i| ours(i).is_some()) {
            return Outcome::Kernel;
        }
        let mut ready = 0;
        for index in 0..count {
            if let Some(file) = ours(index) {
                // SAFETY: as above.
                let entry = unsafe { &mut *list.add(index) };
                entry.revents = if file.entry.path_only() { POLLNVAL } else { entry.events & READY };
                ready += (entry.revents != 0) as isize;
                // The kernel passes over negative numbers; undone below.
                entry.fd = !entry.fd;
            }
        }
        let mut call = args;
        if ready > 0 {
            no_wait(&mut call);
        }
        let was_ours = |fd: i32| fd < 0 && self.file(!fd as u32 as usize).is_some();
        // Kept aside: the kernel clears what it passes over.
        // SAFETY: the caller's promise; the door's call.
        let result = if self.door.has_kernel() { unsafe { self.door.kernel(nr, call) } } else { 0 };
        for index in 0..count {
            // SAFETY: as above.
            let entry = unsafe { &mut *list.add(index) };
            if was_ours(entry.fd) {
                entry.fd = !entry.fd;
                let path_only = self.file(entry.fd as u32 as usize).is_some_and(|f| f.entry.path_only());
                entry.revents = if path_only { POLLNVAL } else { entry.events & READY };
            }
        }
        match result {
            result if result >= 0 => Outcome::Done(result + ready),
            _ if ready > 0 && result == -(Errno::EINTR.0 as isize) => Outcome::Done(ready),
            _ => Outcome::Done(result),
        }
    }

    /// `select(count, read, write, except, timeout)`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn select(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.select_any(thread, abi::__NR_select as usize, args) }
    }

    /// `pselect6(count, read, write, except, timeout, mask)`.
    pub unsafe fn pselect6(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.select_any(thread, abi::__NR_pselect6 as usize, args) }
    }

    unsafe fn select_any(&self, thread: &ThreadState, nr: usize, args: [usize; 6]) -> Outcome {
        let count = args[0] as i32;
        if count < 0 || args[1..4].iter().any(|&set| set != 0 && bad(set)) {
            return if self.door.has_kernel() { Outcome::Kernel } else { fail(Errno::EINVAL) };
        }
        let words = (count as usize).div_ceil(64).min(SELECT_WORDS);
        let bytes = words * 8;
        // SAFETY: the kernel would write there too; what is there stays as it is.
        let is_there = |set: usize| set == 0 || unsafe { pm::faults::writable(set as *mut u8, bytes) } == bytes;
        if !args[1..4].iter().all(|&set| is_there(set)) {
            return if self.door.has_kernel() { Outcome::Kernel } else { fail(Errno::EFAULT) };
        }
        // The program's sets: words that are there, as `select` itself reads them.
        let word = |set: usize, index: usize| {
            if set == 0 {
                return 0;
            }
            // SAFETY: the caller's promise: each set holds `count` bits, in whole words.
            unsafe { *(set as *const u64).add(index) }
        };
        let mine = |set: usize, index: usize| {
            let (mut left, mut mine) = (word(set, index), 0u64);
            if !(count as usize).is_multiple_of(64) && index == count as usize / 64 {
                left &= (1 << (count % 64)) - 1;
            }
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                if self.descriptors.is_ours(index * 64 + bit as usize) {
                    mine |= 1 << bit;
                }
            }
            mine
        };
        if !(0..words).any(|i| args[1..4].iter().any(|&set| mine(set, i) != 0)) {
            return Outcome::Kernel;
        }
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let kept = unsafe { &mut *thread.room().outside.get().cast::<[[u64; SELECT_WORDS]; 2]>() };
        let mut ready = 0;
        for (which, &set) in args[1..4].iter().enumerate().filter(|s| *s.1 != 0) {
            for index in 0..words {
                let bits = mine(set, index);
                // SAFETY: as above.
                unsafe { *(set as *mut u64).add(index) &= !bits };
                // Exceptional conditions don't happen to files.
                if let Some(kept) = kept.get_mut(which) {
                    kept[index] = bits;
                    ready += bits.count_ones() as isize;
                }
            }
        }
        static NOW: [u64; 2] = [0; 2];
        let mut call = args;
        // `select` would write the time left into it.
        let mut now = NOW;
        if ready > 0 {
            call[4] = now.as_mut_ptr() as usize;
        }
        // SAFETY: the caller's promise; the door's call.
        let result = if self.door.has_kernel() { unsafe { self.door.kernel(nr, call) } } else { 0 };
        if result < 0 && !(ready > 0 && result == -(Errno::EINTR.0 as isize)) {
            return Outcome::Done(result);
        }
        for (kept, &set) in kept.iter().zip(&args[1..3]).filter(|s| *s.1 != 0) {
            for (index, bits) in kept[..words].iter().enumerate() {
                // SAFETY: as above.
                unsafe { *(set as *mut u64).add(index) |= bits };
            }
        }
        Outcome::Done(result.max(0) + ready)
    }
}
