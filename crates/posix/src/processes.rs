//! What a door needs to carry descriptors and working directory over `fork`
//! and `exec`.
//!
//! The state for a new program is a small text for an environment variable:
//!
//! ```text
//! 2;1234;0:3f,2:40;0-2,7,16383;22
//! | |    |         |           umask, octal
//! | |    |         numbers that stay open, in ranges
//! | |    slot:token (hexadecimal) of each mount
//! | PID: what a program that we were not in has left in its children's environment is not for them
//! version
//! ```

use crate::descriptors::{CWD_FD, Entry, FD_MAX, MAP_FD};
use crate::process::RECORD_LOCKS;
use crate::text_out::TextOut;
use crate::{Process, ThreadState};
use base::{DescriptionId, Kind, MOUNTS_MAX};
use core::sync::atomic::Ordering;
use pm::Errno;
use pm::sys::abi;
use vfs::Mount;

/// Room for the PID of a child that is not made yet.
const PID_DIGITS: usize = 20;

/// What `fork_prepare` returned by mount slot.
#[derive(Clone, Copy, Debug)]
pub struct ForkToken([Option<u64>; MOUNTS_MAX]);

impl Process {
    /// Before `fork`: readies a copy of the descriptors for the child.
    pub fn fork_prepare(&self, thread: &ThreadState) -> Result<ForkToken, Errno> {
        let cx = self.cx(thread);
        let mut token = ForkToken([None; MOUNTS_MAX]);
        for (slot, mount) in self.mounts.iter() {
            match mount.backend.handover().fork_prepare(&cx) {
                Ok(one) => token.0[slot] = Some(one),
                Err(error) => {
                    self.fork_failed(thread, token);
                    return Err(error.errno());
                }
            }
        }
        Ok(token)
    }

    /// In the child, before anything else and with a fresh [`ThreadState`].
    pub fn fork_child(&self, token: ForkToken) {
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().fork_child(one);
            }
        }
        // Record locks are not inherited.
        self.closing.fetch_and(!RECORD_LOCKS, Ordering::Relaxed);
        self.moving.fork_child();
        self.mappings.fork_child();
        self.watch_stores_again();
    }

    /// In the child of a program with other threads, after `fork_child`: what the table says they have left in the
    /// middle of things. It becomes what the file systems hold for this process.
    pub fn fork_settled(&self, thread: &ThreadState) {
        let cx = self.cx(thread);
        for fd in self.descriptors.ever_put().chain(core::iter::once(CWD_FD)) {
            let entry = self.descriptors.get(fd);
            let mut kept = None;
            for (slot, mount) in self.mounts.iter() {
                let known = entry.filter(|entry| entry.slot() == slot).map(Entry::description);
                let Some(id) = mount.backend.handover().inherited(&cx, fd, known) else { continue };
                match entry {
                    Some(entry) if known == Some(id) => kept = Some(entry),
                    // Another thread put something else there since this was copied.
                    Some(entry) if kept.is_none() => kept = Some(described(slot, mount, id, entry.cloexec())),
                    _ => mount.backend.close(&cx, fd),
                }
            }
            match kept {
                Some(kept) if entry != Some(kept) => drop(self.descriptors.put(fd, kept)),
                None if entry.is_some() => drop(self.descriptors.take(fd)),
                _ => {}
            }
        }
        self.settle_here();
        if self.descriptors.get(CWD_FD).is_none() {
            self.kernel_cwd_changed();
        }
    }

    /// In that child: the kernel has something else under `fd`.
    pub fn fork_lost(&self, thread: &ThreadState, fd: u32) {
        if let Some(entry) = self.descriptors.take(fd)
            && let Some(mount) = self.mounts.get(entry.slot())
        {
            mount.backend.close(&self.cx(thread), fd);
        }
    }

    /// In the parent, when the child is process `pid`.
    pub fn fork_done(&self, token: ForkToken, pid: u32) {
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().fork_done(one, pid);
            }
        }
    }

    /// In the parent, when `fork` failed.
    pub fn fork_failed(&self, thread: &ThreadState, token: ForkToken) {
        let cx = self.cx(thread);
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().fork_failed(&cx, one);
            }
        }
    }

    /// Before a child that borrows our memory until it executes a program: a copy of the
    /// descriptors for that program, and into `out` the state for its environment, which
    /// `spawn_exec` completes. Returns the state's length. `ENOSYS`: not with these mounts.
    pub fn spawn_prepare(&self, thread: &ThreadState, out: &mut [u8]) -> Result<(ForkToken, usize), Errno> {
        let token = self.guest_prepare(thread)?;
        let mut text = TextOut::new(out, Errno::E2BIG);
        let begun = text.put(b"2;").and_then(|()| text.put(&[b'0'; PID_DIGITS])).and_then(|()| text.put(b";"));
        let written = begun.and_then(|()| self.write_tokens(&mut text, |slot, _| token.0[slot].unwrap_or(0)));
        match written.and_then(|()| self.write_kept(&mut text, self.kept())) {
            Ok(()) => Ok((token, text.bytes().len())),
            Err(errno) => {
                self.spawn_failed(thread, token);
                Err(errno)
            }
        }
    }

    /// Before `vfork`, whose child borrows our memory and does as it likes: a copy of the
    /// descriptors, for a program that it executes (`guest_state`, `spawn_exec`) or, if it gets
    /// memory of its own, for itself (`fork_child`, `guest_settled`). `ENOSYS`: not with these mounts.
    pub fn guest_prepare(&self, thread: &ThreadState) -> Result<ForkToken, Errno> {
        if !self.mounts.iter().all(|(_, mount)| mount.backend.handover().spawns()) {
            return Err(Errno::ENOSYS);
        }
        self.fork_prepare(thread)
    }

    /// In that child: writes the state for a program that is to have `numbers` (the working
    /// directory's last) of those copied, as `exec_prepare` does. Changes nothing.
    pub fn guest_state(&self, token: &ForkToken, numbers: impl Iterator<Item = u32>, out: &mut [u8]) -> Result<usize, Errno> {
        let mut text = TextOut::new(out, Errno::E2BIG);
        text.put(b"2;").and_then(|()| text.number(pid(), 10)).and_then(|()| text.put(b";"))?;
        self.write_tokens(&mut text, |slot, _| token.0[slot].unwrap_or(0))?;
        self.write_kept(&mut text, numbers)?;
        Ok(text.bytes().len())
    }

    /// In that child, when it has memory of its own and was `fork_child`: `numbers` are those
    /// copied (the working directory's last), and whether it still has them.
    pub fn guest_settled(&self, thread: &ThreadState, numbers: impl Iterator<Item = (u32, Entry, bool)>) {
        // The table is that of our parent's other threads, which have gone on.
        for fd in self.descriptors.range(0, FD_MAX).map(|(fd, _)| fd).chain(core::iter::once(CWD_FD)) {
            self.descriptors.take(fd);
        }
        self.credentials_changed();
        let cx = self.cx(thread);
        for (fd, entry, has) in numbers {
            if has {
                self.descriptors.put(fd, entry);
            } else if let Some(mount) = self.mounts.get(entry.slot()) {
                mount.backend.close(&cx, fd);
            }
        }
        self.settle_here();
        if self.descriptors.get(CWD_FD).is_none() {
            self.kernel_cwd_changed();
        }
    }

    /// In that child, when `exec` failed.
    pub fn spawn_undone(&self, token: &ForkToken) {
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().spawn_undone(one);
            }
        }
    }

    /// In the child, just before `exec`: `state` is what `spawn_prepare` wrote. Raw
    /// system calls and stores only.
    pub fn spawn_exec(&self, token: &ForkToken, state: &mut [u8]) {
        let mut left = pid();
        for digit in state.iter_mut().skip(2).take(PID_DIGITS).rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().spawn_exec(one);
            }
        }
    }

    /// In the parent, when there is no such child, or it did not come to `exec`.
    pub fn spawn_failed(&self, thread: &ThreadState, token: ForkToken) {
        let cx = self.cx(thread);
        for (slot, mount) in self.mounts.iter() {
            if let Some(one) = token.0[slot] {
                mount.backend.handover().spawn_failed(&cx, one);
            }
        }
    }

    /// Numbers of ours that stay open over `exec` (not close-on-exec): the door
    /// keeps their placeholders open in the kernel.
    pub fn kept_over_exec(&self) -> impl Iterator<Item = u32> {
        self.descriptors.range(0, FD_MAX).filter(|(_, e)| !e.cloexec()).map(|(fd, _)| fd)
    }

    /// Before `exec`: writes the state for the new program's environment into
    /// `out`, returns its length. `E2BIG` if it does not fit.
    pub fn exec_prepare(&self, out: &mut [u8]) -> Result<usize, Errno> {
        let mut text = TextOut::new(out, Errno::E2BIG);
        let begun = text.put(b"2;").and_then(|()| text.number(pid(), 10)).and_then(|()| text.put(b";"));
        let done = begun.and_then(|()| self.write_tokens(&mut text, |_, mount| mount.backend.handover().exec_prepare()));
        let done = done.and_then(|()| self.write_kept(&mut text, self.kept()));
        if let Err(errno) = done {
            self.exec_failed();
            return Err(errno);
        }
        Ok(text.bytes().len())
    }

    /// Numbers that a new program keeps, the working directory's last.
    fn kept(&self) -> impl Iterator<Item = u32> {
        self.kept_over_exec().chain(self.descriptors.get(CWD_FD).map(|_| CWD_FD))
    }

    /// Writes each mount's token, unless it is 0.
    fn write_tokens(&self, text: &mut TextOut, token: impl Fn(usize, &Mount) -> u64) -> Result<(), Errno> {
        let mut first = true;
        for (slot, mount) in self.mounts.iter() {
            let token = token(slot, mount);
            if token == 0 {
                continue;
            }
            if !core::mem::take(&mut first) {
                text.put(b",")?;
            }
            text.number(slot as u64, 10)?;
            text.put(b":")?;
            text.number(token, 16)?;
        }
        Ok(())
    }

    /// Writes what stays open and the umask.
    fn write_kept(&self, text: &mut TextOut, kept: impl Iterator<Item = u32>) -> Result<(), Errno> {
        text.put(b";")?;
        let mut open: Option<(u32, u32)> = None;
        let mut first = true;
        for fd in kept.chain(core::iter::once(u32::MAX)) {
            match &mut open {
                Some((_, last)) if fd != u32::MAX && *last + 1 == fd => *last = fd,
                _ => {
                    if let Some((from, to)) = open {
                        if !core::mem::take(&mut first) {
                            text.put(b",")?;
                        }
                        text.number(from as u64, 10)?;
                        if to > from {
                            text.put(b"-")?;
                            text.number(to as u64, 10)?;
                        }
                    }
                    open = Some((fd, fd));
                }
            }
        }
        text.put(b";")?;
        text.number(self.umask_now() as u64, 8)
    }

    /// `exec` failed: everything as before.
    pub fn exec_failed(&self) {
        for (_, mount) in self.mounts.iter() {
            mount.backend.handover().exec_failed();
        }
    }

    /// In the new program, after the same mounts were made in the same order:
    /// takes over what `exec_prepare` described, closes what was close-on-exec.
    /// A text written by another process is not for this one: nothing happens.
    /// Any error means that descriptors or the working directory are lost.
    pub fn exec_claim(&self, thread: &ThreadState, text: &[u8]) -> Result<(), Errno> {
        let mut parts = text.split(|&b| b == b';');
        if parts.next() != Some(b"2") {
            return Err(Errno::EINVAL);
        }
        if parts.next().and_then(|text| parse(text, 10)) != Some(pid()) {
            return Ok(());
        }
        let (Some(tokens), Some(kept)) = (parts.next(), parts.next()) else {
            return Err(Errno::EINVAL);
        };
        let mut above = MAP_FD;
        for token in tokens.split(|&b| b == b',').filter(|t| !t.is_empty()) {
            let mut pair = token.split(|&b| b == b':');
            let slot = pair.next().and_then(|t| parse(t, 10)).ok_or(Errno::EINVAL)? as usize;
            let token = pair.next().and_then(|t| parse(t, 16)).ok_or(Errno::EINVAL)?;
            let mount = self.mounts.get(slot).ok_or(Errno::EINVAL)?;
            let claimed = mount.backend.handover().exec_claim(token, &mut |fd, id| {
                if fd > CWD_FD {
                    above = above.max(fd + 1);
                    return;
                }
                self.descriptors.put(fd, described(slot, mount, id, true));
            });
            claimed.map_err(|e| e.errno())?;
            // Mappings do not outlive the old program.
            let cx = self.cx(thread);
            for fd in MAP_FD..above {
                mount.backend.close(&cx, fd);
            }
        }
        for range in kept.split(|&b| b == b',').filter(|t| !t.is_empty()) {
            let mut ends = range.split(|&b| b == b'-');
            let first = ends.next().and_then(|t| parse(t, 10)).ok_or(Errno::EINVAL)? as u32;
            let last = ends.next().map_or(Some(first as u64), |t| parse(t, 10)).ok_or(Errno::EINVAL)? as u32;
            for fd in first..=last.min(CWD_FD) {
                self.descriptors.set_cloexec(fd, false);
            }
        }
        self.close_on_exec(thread);
        self.settle_here();
        // Where the kernel's is was not handed on: beside a mount it may be the same directory.
        let mount = self.descriptors.get(CWD_FD).and_then(|cwd| self.mounts.get(cwd.slot()));
        self.cwd_is_virtual.store(mount.is_some_and(|mount| !mount.is_served()), Ordering::Relaxed);
        Ok(())
    }

    /// Ends every descriptor that carries the close-on-exec flag; its number is
    /// no longer the kernel's either.
    fn close_on_exec(&self, thread: &ThreadState) {
        let cwd = self.descriptors.get(CWD_FD).map(|entry| (CWD_FD, entry));
        for (fd, entry) in self.descriptors.range(0, FD_MAX).chain(cwd) {
            if entry.cloexec()
                && let Some(mount) = self.mounts.get(entry.slot())
            {
                self.descriptors.take(fd);
                mount.backend.close(&self.cx(thread), fd);
            }
        }
    }

    /// At orderly exit: gives everything back to the file systems.
    pub fn detach(&self, thread: &ThreadState) {
        for (_, mount) in self.mounts.iter() {
            mount.backend.detach(&self.cx(thread));
        }
    }
}

/// The entry of a number that holds description `id` of a mount, by what that says of itself.
fn described(slot: usize, mount: &Mount, id: DescriptionId, cloexec: bool) -> Entry {
    let description = mount.backend.description(id);
    let kind = Kind::from_dt(description.kind.load(Ordering::Relaxed) as u8).unwrap_or(Kind::Regular);
    let flags = description.flags.load(Ordering::Relaxed);
    Entry::new(slot, id, kind, cloexec, flags & abi::O_PATH != 0).with_access(flags)
}

fn pid() -> u64 {
    // SAFETY: no arguments.
    unsafe { pm::call!(abi::__NR_getpid) }.unwrap_or(0) as u64
}

fn parse(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, radix).ok()
}
