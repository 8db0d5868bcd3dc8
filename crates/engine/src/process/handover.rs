//! Descriptors over fork and exec.
//!
//! Fork: the parent readies a slot with a copy of its table, in state FORKING
//! and with its own PID; the child takes the slot's mutex as its first step.
//! Exec: the slot is marked EXECUTING; the kernel gives the mutex up with the old
//! program, the new one shows a nonce and takes it. In both states nobody holds
//! the mutex, and yet the slot is not given up: for a grace time (fork), for as
//! long as the PID lives (exec).

use super::kernel;
use super::table::state;
use crate::fs::Fs;
use base::{Cx, DescriptionId, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use pm::Errno;
use pm::mutex::Attempt;

/// A token: nonce 48 | slot + 1 16.
fn token(number: u32, nonce: u64) -> u64 {
    nonce << 16 | u64::from(number + 1)
}

/// The slot and the nonce of a token.
fn untoken(token: u64) -> Option<(u32, u64)> {
    Some((u32::try_from(token & 0xffff).ok()?.checked_sub(1)?, token >> 16))
}

impl Fs {
    /// Before `fork`: a copy of this process's descriptors for the child, under
    /// a token for [`Fs::fork_child`] or [`Fs::fork_failed`]. `EAGAIN`, `ENOSPC`.
    pub fn fork_prepare(&self, cx: &Cx) -> Result<u64> {
        let parent = self.own_process()?;
        let number = self.claim_slot(cx)?;
        let slot = self.process_slot(number).ok_or(Errno::EAGAIN)?;
        let nonce = nonce();
        slot.nonce.store(nonce, Relaxed);
        slot.pid.store(kernel::pid(), Relaxed);
        slot.pid_namespace.store(self.process_slot(parent).map_or(0, |own| own.pid_namespace.load(Relaxed)), Relaxed);
        slot.started.store(0, Relaxed);
        slot.reserved[1].store(pm::clock::monotonic() as u64, Relaxed);
        slot.state.store(state::FORKING, Release);
        let copied = self.copy_table(parent, number);
        if copied.is_err() {
            self.empty_process(cx, number);
        }
        self.robust_list.store(pm::mutex::robust_list(), Relaxed);
        if let Some(mutex) = self.process_mutex(number) {
            mutex.give_back();
        }
        copied.map(|()| token(number, nonce))
    }

    fn copy_table(&self, from: u32, to: u32) -> Result<()> {
        let mut ready = u32::MAX;
        for (fd, _, id) in self.descriptors(from) {
            if ready != fd / 1024 {
                ready = fd / 1024;
                self.ready_descriptor_page(to, u64::from(ready))?;
            }
            // Another thread may be closing it at this moment: then the child has not got it.
            if self.add_reference(id).is_ok()
                && let Some(entry) = self.descriptor(to, fd)
            {
                entry.store(id + 1, Release);
            }
        }
        Ok(())
    }

    /// In the child, first thing: takes the slot that the parent readied.
    pub fn fork_child(&self, token: u64) {
        pm::mutex::renew_robust_list(self.robust_list.load(Relaxed));
        self.process.store(0, Relaxed);
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.process_mutex(number), self.process_slot(number)) else { return };
        // Somebody may be looking at this moment whether the slot is still needed.
        for _ in 0..1000 {
            match mutex.try_take() {
                Attempt::Taken | Attempt::Inherited => break,
                Attempt::Busy => pm::file::give_way(),
                Attempt::Broken => return,
            }
        }
        if slot.nonce.load(Acquire) == nonce && slot.state.load(Acquire) == state::FORKING {
            // The slot is ours with its mutex. PID before state: dead in between,
            // it must not look alive for as long as our parent is.
            slot.pid_namespace.store(kernel::pid_namespace(), Relaxed);
            self.become_process(number);
            slot.state.store(state::USED, Release);
        } else {
            // The grace time is over: others may have these descriptions by now,
            // and this child must not write where they do.
            mutex.give_back();
            kernel::abort();
        }
    }

    /// In the parent, when `fork` failed.
    pub fn fork_failed(&self, cx: &Cx, token: u64) {
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.process_mutex(number), self.process_slot(number)) else { return };
        if matches!(mutex.try_take(), Attempt::Taken | Attempt::Inherited) {
            if slot.nonce.load(Acquire) == nonce && slot.state.load(Acquire) == state::FORKING {
                self.empty_process(cx, number);
            }
            mutex.give_back();
        }
    }

    /// Before `exec`: marks this process as replacing itself. The token lets the
    /// new program claim the descriptors; 0: it cannot.
    pub fn exec_prepare(&self) -> u64 {
        let Ok(number) = self.own_process() else { return 0 };
        let Some(slot) = self.process_slot(number) else { return 0 };
        let nonce = nonce();
        let pid = kernel::pid();
        slot.nonce.store(nonce, Relaxed);
        slot.pid.store(pid, Relaxed);
        slot.started.store(kernel::start_time(pid), Relaxed);
        slot.reserved[1].store(pm::clock::monotonic() as u64, Relaxed);
        slot.state.store(state::EXECUTING, Release);
        token(number, nonce)
    }

    /// `exec` failed: everything as before.
    pub fn exec_failed(&self) {
        if let Some(slot) = self.own_process().ok().and_then(|number| self.process_slot(number)) {
            let _ = slot.state.compare_exchange(state::EXECUTING, state::USED, AcqRel, Relaxed);
        }
    }

    /// In the new program: becomes the process that prepared `exec`, and reports
    /// each descriptor. `EINVAL` if the token is not (or no longer) good.
    pub fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        let (number, nonce) = untoken(token).ok_or(Errno::EINVAL)?;
        let slot = self.process_slot(number).ok_or(Errno::EINVAL)?;
        let mutex = self.process_mutex(number).ok_or(Errno::EINVAL)?;
        if number >= self.header().processes_high.load(Acquire) {
            return Err(Errno::EINVAL.into());
        }
        self.take_soon(mutex)?;
        let good = slot.nonce.load(Acquire) == nonce
            && slot.state.compare_exchange(state::EXECUTING, state::USED, AcqRel, Acquire).is_ok();
        if !good {
            mutex.give_back();
            return Err(Errno::EINVAL.into());
        }
        slot.nonce.store(0, Relaxed);
        let attached_as = self.own_process();
        self.become_process(number);
        if let Ok(attached_as) = attached_as {
            self.free_slot(attached_as);
        }
        for (fd, _, id) in self.descriptors(number) {
            each(fd, id);
        }
        Ok(())
    }

    /// Takes a mutex that only somebody's passing look can keep from us.
    fn take_soon(&self, mutex: &pm::mutex::RobustMutex) -> Result<()> {
        for _ in 0..1000 {
            match mutex.try_take() {
                Attempt::Taken | Attempt::Inherited => return Ok(()),
                Attempt::Busy => pm::file::give_way(),
                Attempt::Broken => break,
            }
        }
        Err(Errno::EINVAL.into())
    }

    /// Frees a slot whose mutex this thread holds and whose table is empty.
    fn free_slot(&self, number: u32) {
        if let Some(slot) = self.process_slot(number) {
            slot.state.store(state::FREE, Release);
        }
        if let Some(mutex) = self.process_mutex(number) {
            mutex.give_back();
        }
    }

    /// At orderly exit: gives everything back. Calls that need this process's slot fail from now on.
    pub fn detach(&self, cx: &Cx) {
        let Ok(number) = self.own_process() else { return };
        self.empty_process(cx, number);
        self.give_lane_back(cx.thread);
        self.process.store(0, Relaxed);
        self.descriptor_pages.store(0, Relaxed);
        if let Some(mutex) = self.process_mutex(number) {
            mutex.give_back();
        }
        self.tidy_up();
    }

    /// [`Fs::detach`] for a program that keeps no context at hand.
    pub fn leave(&self) {
        let thread = base::Thread::new();
        self.detach(&Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread });
    }
}

/// A random number of 48 bits, never 0.
fn nonce() -> u64 {
    let mut bytes = [0u8; 8];
    let _ = pm::file::random(&mut bytes);
    (u64::from_ne_bytes(bytes) ^ pm::clock::monotonic() as u64) >> 16 | 1
}
