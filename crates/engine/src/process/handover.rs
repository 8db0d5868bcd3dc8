//! Descriptors over fork and exec.
//!
//! Fork: the parent readies a slot with a copy of its table, in state FORKING
//! and with its own PID; the child takes the slot's mutex as its first step.
//! Exec: the slot is marked EXECUTING; the kernel gives the mutex up with the old
//! program, the new one shows a nonce and takes it. In both states nobody holds
//! the mutex, and yet the slot is not given up for as long as the PID lives: that
//! of the program (exec), that of the child, which the parent notes (fork). For
//! the moment before it is noted there is a grace time, a shorter one once the parent is dead.
//!
//! Whoever looks for dead processes does not take such a mutex unless the
//! process seems dead, and holds it only for a look even then: so the step that
//! follows waits for it, asleep, and never goes on without it.

use super::adopt::GRACE_FORK;
use super::kernel;
use super::table::{PAGE_DESCRIPTORS, state};
use crate::fs::Fs;
use crate::segment::ProcessSlot;
use base::{Cx, DescriptionId, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use pm::Errno;
use pm::mutex::{Attempt, RobustMutex};

/// How long a step waits for a mutex before it looks whether it still should, nanoseconds.
const LOOK: i64 = 50_000_000;

/// A token: nonce 48 | slot + 1 16.
fn token(number: u32, nonce: u64) -> u64 {
    nonce << 16 | u64::from(number + 1)
}

/// The slot and the nonce of a token.
fn untoken(token: u64) -> Option<(u32, u64)> {
    Some((u32::try_from(token & 0xffff).ok()?.checked_sub(1)?, token >> 16))
}

/// What the parent notes of its child: half of the nonce 32 | PID 32.
fn noted_child(pid: u32, nonce: u64) -> u64 {
    nonce << 32 | u64::from(pid)
}

/// The PID of the child that a slot was readied for; 0 if it is not noted yet.
pub(super) fn child_of(slot: &ProcessSlot) -> u32 {
    let noted = slot.child.load(Acquire);
    let pid = noted as u32;
    if noted == noted_child(pid, slot.nonce.load(Acquire)) { pid } else { 0 }
}

impl Fs {
    /// Before `fork`: a copy of this process's descriptors for the child, under
    /// a token for [`Fs::fork_child`], and for [`Fs::fork_done`] or [`Fs::fork_failed`]. `EAGAIN`, `ENOSPC`.
    pub fn fork_prepare(&self, cx: &Cx) -> Result<u64> {
        let parent = self.own_process()?;
        // A child is not refused for a full disk.
        let in_memory = |error| if error == Errno::ENOSPC.into() { Errno::ENOMEM.into() } else { error };
        let number = self.claim_slot(cx).map_err(in_memory)?;
        let slot = self.process_slot(number).ok_or(Errno::EAGAIN)?;
        let nonce = nonce();
        slot.nonce.store(nonce, Relaxed);
        slot.pid.store(kernel::pid(), Relaxed);
        slot.pid_namespace.store(self.process_slot(parent).map_or(0, |own| own.pid_namespace.load(Relaxed)), Relaxed);
        slot.since.store(0, Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
        slot.child.store(0, Relaxed);
        slot.state.store(state::FORKING, Release);
        let copied = self.copy_table(parent, number);
        if copied.is_err() {
            self.empty_process(cx, number);
        }
        self.robust_list.store(pm::mutex::robust_list(), Relaxed);
        self.forking_thread.store(pm::mutex::thread_number(), Relaxed);
        if let Some(mutex) = self.process_mutex(number) {
            mutex.give_back();
        }
        // Where a dead process was met on the way.
        self.finish_beside_others(cx);
        copied.map(|()| token(number, nonce))
    }

    fn copy_table(&self, from: u32, to: u32) -> Result<()> {
        let mut ready = u32::MAX;
        for (fd, id) in self.descriptors_of(from) {
            // What another thread is taking or giving up at this moment the child has not got.
            let Some(id) = id else { continue };
            if ready != fd / 1024 {
                ready = fd / 1024;
                self.ready_descriptor_page(to, u64::from(ready)).map_err(|_| Errno::ENOMEM)?;
            }
            base::hold::take(self, to, fd, id);
        }
        Ok(())
    }

    /// In the child, first thing: takes the slot that the parent readied.
    pub fn fork_child(&self, token: u64) {
        pm::life::forget();
        pm::mutex::renew_robust_list(self.robust_list.load(Relaxed), self.forking_thread.load(Relaxed));
        self.forked_from.store(self.process.load(Relaxed), Relaxed);
        self.set_process(0, 0);
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.process_mutex(number), self.process_slot(number)) else { return };
        if self.take_prepared(mutex, slot, nonce, state::FORKING).is_err() {
            // Others may have these descriptions by now, and this child must not write where they do.
            kernel::abort("bypath: this child of a fork was taken for dead, and what it had open is lost; it can't go on\n");
        }
        // The slot is ours with its mutex. PID before state: dead in between,
        // it must not look alive for as long as our parent is.
        self.become_process(number);
        slot.state.store(state::USED, Release);
    }

    /// In a child of a program with other threads, after `fork_child`: what `fd` holds. If the table that came with
    /// our memory has `known` there, which was not copied, and the parent's number still holds that, so does ours.
    pub fn inherited(&self, cx: &Cx, fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        let holding = |process: u32| {
            let pages = Self::table_pages(self.process_slot(process)?).load(Acquire);
            let is_ready = pages & 1u64.checked_shl(fd / PAGE_DESCRIPTORS as u32)? != 0;
            base::hold::held(self.descriptor(process, fd).filter(|_| is_ready)?.load(Acquire))
        };
        let held = holding(self.own_process().ok()?);
        let (None, Some(id)) = (held, known) else { return held };
        let parent = self.forked_from.load(Relaxed).checked_sub(1)?;
        let is_parents = || {
            let lives = self.process_slot(parent).is_some_and(|slot| slot.pid.load(Relaxed) == kernel::parent_pid());
            lives && holding(parent) == Some(id)
        };
        if !is_parents() || self.dup(id, fd).is_err() {
            return None;
        }
        if is_parents() {
            return Some(id);
        }
        self.close(cx, fd);
        None
    }

    /// In the parent, when `fork` has made process `pid`: from now on the slot is
    /// given back as soon as somebody finds the child dead.
    pub fn fork_done(&self, token: u64, pid: u32) {
        let Some((number, nonce)) = untoken(token) else { return };
        let Some(slot) = self.process_slot(number) else { return };
        // By now the slot may be somebody else's: half of the nonce tells.
        slot.child.store(noted_child(pid, nonce), Release);
    }

    /// In the parent, when `fork` failed.
    pub fn fork_failed(&self, cx: &Cx, token: u64) {
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.process_mutex(number), self.process_slot(number)) else { return };
        if self.take_prepared(mutex, slot, nonce, state::FORKING).is_ok() {
            self.empty_process(cx, number);
            mutex.give_back();
        }
    }

    /// In a child that borrows its parent's memory, just before `exec`: the slot that
    /// [`Fs::fork_prepare`] readied is the new program's, which claims it by the same token
    /// ([`Fs::exec_claim`]). Nobody takes the slot's mutex before, and nothing of the parent's is touched.
    pub fn spawn_exec(&self, token: u64) {
        let Some((number, nonce)) = untoken(token) else { return };
        let Some(slot) = self.process_slot(number).filter(|slot| slot.nonce.load(Acquire) == nonce) else { return };
        let pid = kernel::pid();
        // Nothing of what this process keeps of itself: the memory is the parent's.
        slot.pid_namespace.store(pm::life::namespace(), Relaxed);
        slot.since.store(pm::life::now(), Relaxed);
        slot.pid.store(pid, Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
        let _ = slot.state.compare_exchange(state::FORKING, state::EXECUTING, AcqRel, Relaxed);
    }

    /// In the parent, when a child that borrowed our memory has ended without `exec`, or was never made.
    pub fn spawn_failed(&self, cx: &Cx, token: u64) {
        let slot = untoken(token).and_then(|(number, nonce)| Some((self.process_slot(number)?, nonce)));
        if let Some((slot, nonce)) = slot
            && slot.nonce.load(Acquire) == nonce
        {
            let _ = slot.state.compare_exchange(state::EXECUTING, state::FORKING, AcqRel, Relaxed);
        }
        self.fork_failed(cx, token);
    }

    /// In such a child, when `exec` failed: as before `spawn_exec`.
    pub fn spawn_undone(&self, token: u64) {
        let Some((number, nonce)) = untoken(token) else { return };
        let Some(slot) = self.process_slot(number).filter(|slot| slot.nonce.load(Acquire) == nonce) else { return };
        // State first: readied for a fork it is kept for as long as the PID in it lives, whenever that began.
        if slot.state.compare_exchange(state::EXECUTING, state::FORKING, AcqRel, Relaxed).is_ok() {
            slot.since.store(0, Relaxed);
            slot.pid.store(kernel::parent_pid(), Relaxed);
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
        slot.since.store(pm::life::now(), Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
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
        if !self.header().processes_high.has(number) {
            return Err(Errno::EINVAL.into());
        }
        self.take_prepared(mutex, slot, nonce, state::EXECUTING)?;
        slot.state.store(state::USED, Release);
        slot.nonce.store(0, Relaxed);
        let attached_as = self.own_process();
        self.become_process(number);
        if let Ok(attached_as) = attached_as {
            self.free_slot(attached_as);
        }
        for (fd, id) in self.descriptors_of(number) {
            match id {
                Some(id) => each(fd, id),
                // A thread that exec ended was at it.
                None => self.with_own_context(|cx| self.empty_entry(cx, number, fd)),
            }
        }
        Ok(())
    }

    /// Takes the mutex of a slot that stands ready in `state`. Only somebody's
    /// look can keep it from us; `EINVAL` if the slot is not (or no longer) ready.
    fn take_prepared(&self, mutex: &RobustMutex, slot: &ProcessSlot, nonce: u64, state: u32) -> Result<()> {
        let is_ready = || slot.nonce.load(Acquire) == nonce && slot.state.load(Acquire) == state;
        let mut left = GRACE_FORK / LOOK;
        while is_ready() && left > 0 {
            match mutex.take_within(LOOK) {
                Attempt::Taken | Attempt::Inherited if is_ready() => return Ok(()),
                Attempt::Taken | Attempt::Inherited => mutex.give_back(),
                Attempt::Busy => left -= 1,
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
        self.set_process(0, 0);
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
