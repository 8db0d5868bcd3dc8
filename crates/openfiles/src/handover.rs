//! Descriptors over `fork`, `vfork`, spawn and `exec`.
//!
//! Fork: the parent readies a slot with a copy of its table, in state `FORKING`
//! and with its own PID; the child takes the slot's mutex as its first step.
//! Exec: the slot is marked `EXECUTING`; the kernel gives the mutex up with the old
//! program, the new one shows a nonce and takes it. In both states nobody holds
//! the mutex, and yet the slot is not given up for as long as the PID lives: that
//! of the program (exec), that of the child, which the parent notes (fork). For
//! the moment before it is noted there is a grace time, a shorter one once the parent is dead.
//!
//! Whoever looks for dead processes does not take such a mutex unless the
//! process seems dead, and holds it only for a look even then: so the step that
//! follows waits for it, asleep, and never goes on without it.

use crate::processes::{PAGE, Processes};
use crate::refcount;
use crate::slot::{GRACE_FORK, ProcessSlot, noted_child, state};
use base::{Cred, Cx, DescriptionId, Result, Thread};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use pm::mutex::{Attempt, RobustMutex};
use pm::sys::abi;
use pm::{Errno, host};

/// How long a step waits for a mutex before it looks whether it still should, nanoseconds.
const LOOK: i64 = 50_000_000;

/// What a process notes of forks, each in a word.
#[derive(Debug)]
pub struct Forks<'a> {
    /// Robust list of the thread that is about to fork (`pm::mutex::renew_robust_list`).
    pub robust_list: &'a AtomicUsize,
    /// Number of that thread.
    pub thread: &'a AtomicU32,
    /// Slot + 1 of the process that this one was forked from; 0: none.
    pub parent: &'a AtomicU32,
}

/// A token: nonce 48 | slot + 1 16.
fn token(number: u32, nonce: u64) -> u64 {
    nonce << 16 | u64::from(number + 1)
}

/// The slot and the nonce of a token.
fn untoken(token: u64) -> Option<(u32, u64)> {
    Some((u32::try_from(token & 0xffff).ok()?.checked_sub(1)?, token >> 16))
}

/// The steps. A process that has no slot has nothing to hand over.
pub trait Handover: Processes {
    /// Before `fork`: a copy of this process's descriptors for the child, under
    /// a token for [`Handover::fork_child`], and for [`Handover::fork_done`] or [`Handover::fork_failed`].
    /// `EAGAIN`, `ENOMEM`, `ENFILE`.
    fn fork_prepare(&self, cx: &Cx) -> Result<u64> {
        let parent = self.own_slot()?;
        // A child is not refused for a full disk.
        let in_memory = |error| if error == Errno::ENOSPC.into() { Errno::ENOMEM.into() } else { error };
        let number = self.claim_slot(cx).map_err(in_memory)?;
        let slot = self.slot(number).ok_or(Errno::EAGAIN)?;
        let nonce = nonce();
        slot.nonce.store(nonce, Relaxed);
        slot.pid.store(host::own_pid(), Relaxed);
        slot.pid_namespace.store(self.slot(parent).map_or(0, |own| own.pid_namespace.load(Relaxed)), Relaxed);
        slot.watching.store(self.slot(parent).map_or(0, |own| own.watching.load(Relaxed)), Relaxed);
        slot.since.store(0, Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
        slot.child.store(0, Relaxed);
        slot.state.store(state::FORKING, Release);
        let copied = copy_table(self, parent, number);
        if copied.is_err() {
            self.empty_process(cx, number);
        }
        let forks = self.forks();
        forks.robust_list.store(pm::mutex::robust_list(), Relaxed);
        forks.thread.store(pm::mutex::thread_number(), Relaxed);
        if let Some(mutex) = self.slot_mutex(number) {
            mutex.give_back();
        }
        // Where a dead process was met on the way.
        self.finish_of_the_dead(cx);
        copied.map(|()| token(number, nonce))
    }

    /// In the child, first thing: takes the slot that the parent readied.
    fn fork_child(&self, token: u64) {
        host::forget_pid();
        let forks = self.forks();
        pm::mutex::renew_robust_list(forks.robust_list.load(Relaxed), forks.thread.load(Relaxed));
        forks.parent.store(self.process_word().load(Relaxed), Relaxed);
        self.set_process(0, 0);
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.slot_mutex(number), self.slot(number)) else { return };
        if take_prepared(mutex, slot, nonce, state::FORKING).is_err() {
            // Others may have these open files by now, and this child must not write where they do.
            abort("bypath: this child of a fork was taken for dead, and what it had open is lost; it can't go on\n");
        }
        // The slot is ours with its mutex. PID before state: dead in between,
        // it must not look alive for as long as our parent is.
        self.become_process(number);
        slot.state.store(state::USED, Release);
    }

    /// In a child of a program with other threads, after `fork_child`: what `fd` stands for. If the table that came with
    /// our memory has `known` there, which was not copied, and the parent's `fd` still stands for that, so does ours.
    fn inherited(&self, cx: &Cx, fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        let own = self.own_slot().ok()?;
        let listed = |number: u32| refcount::held(self.entry(number, fd)?.load(Acquire));
        let (None, Some(id)) = (listed(own), known) else { return listed(own) };
        let parent = self.forks().parent.load(Relaxed).checked_sub(1)?;
        let is_parents = || {
            let lives = self.slot(parent).is_some_and(|slot| slot.pid.load(Relaxed) == host::parent_pid());
            lives && listed(parent) == Some(id)
        };
        if !is_parents() {
            return None;
        }
        if !has_memory(self, own, fd) {
            self.give_page_memory(own, fd / PAGE).ok()?;
        }
        if !refcount::get(self, own, fd, id) {
            return None;
        }
        if is_parents() {
            return Some(id);
        }
        self.empty_entry(cx, own, fd);
        None
    }

    /// In the parent, when `fork` has made process `pid`: from now on the slot is
    /// given back as soon as somebody finds the child dead.
    fn fork_done(&self, token: u64, pid: u32) {
        let Some((number, nonce)) = untoken(token) else { return };
        let Some(slot) = self.slot(number) else { return };
        // By now the slot may be somebody else's: half of the nonce tells.
        slot.child.store(noted_child(pid, nonce), Release);
    }

    /// In the parent, when `fork` failed.
    fn fork_failed(&self, cx: &Cx, token: u64) {
        let Some((number, nonce)) = untoken(token) else { return };
        let (Some(mutex), Some(slot)) = (self.slot_mutex(number), self.slot(number)) else { return };
        if take_prepared(mutex, slot, nonce, state::FORKING).is_ok() {
            self.empty_process(cx, number);
            mutex.give_back();
        }
    }

    /// In a child that borrows its parent's memory, just before `exec`: the slot that
    /// [`Handover::fork_prepare`] readied is the new program's, which claims it by the same token
    /// ([`Handover::exec_claim`]). Nobody takes the slot's mutex before, and nothing of the parent's is touched.
    fn spawn_exec(&self, token: u64) {
        let Some((_, slot)) = readied(self, token) else { return };
        // Nothing of what this process notes of itself: the memory is the parent's.
        slot.pid_namespace.store(pm::life::namespace(), Relaxed);
        slot.since.store(pm::life::now(), Relaxed);
        slot.pid.store(host::own_pid(), Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
        let _ = slot.state.compare_exchange(state::FORKING, state::EXECUTING, AcqRel, Relaxed);
    }

    /// In the parent, when a child that borrowed our memory has ended without `exec`, or was never made.
    fn spawn_failed(&self, cx: &Cx, token: u64) {
        if let Some((_, slot)) = readied(self, token) {
            let _ = slot.state.compare_exchange(state::EXECUTING, state::FORKING, AcqRel, Relaxed);
        }
        self.fork_failed(cx, token);
    }

    /// In such a child, when `exec` failed: as before `spawn_exec`.
    fn spawn_undone(&self, token: u64) {
        let Some((_, slot)) = readied(self, token) else { return };
        // State first: readied for a fork it is kept for as long as the PID in it lives, whenever that began.
        if slot.state.compare_exchange(state::EXECUTING, state::FORKING, AcqRel, Relaxed).is_ok() {
            slot.since.store(0, Relaxed);
            slot.pid.store(host::parent_pid(), Relaxed);
        }
    }

    /// Before `exec`: marks this process as replacing itself. The token lets the
    /// new program claim the descriptors; 0: it cannot.
    fn exec_prepare(&self) -> u64 {
        let Ok(number) = self.own_slot() else { return 0 };
        let Some(slot) = self.slot(number) else { return 0 };
        let nonce = nonce();
        slot.nonce.store(nonce, Relaxed);
        slot.pid.store(host::own_pid(), Relaxed);
        slot.since.store(pm::life::now(), Relaxed);
        slot.begun.store(pm::clock::monotonic() as u64, Relaxed);
        slot.state.store(state::EXECUTING, Release);
        token(number, nonce)
    }

    /// `exec` failed: everything as before.
    fn exec_failed(&self) {
        if let Some(slot) = self.own_slot().ok().and_then(|number| self.slot(number)) {
            let _ = slot.state.compare_exchange(state::EXECUTING, state::USED, AcqRel, Relaxed);
        }
    }

    /// In the new program: becomes the process that prepared `exec`, and reports
    /// each descriptor. `EINVAL` if the token is not (or no longer) good.
    fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        let (number, nonce) = untoken(token).ok_or(Errno::EINVAL)?;
        if number >= self.slots_high() {
            return Err(Errno::EINVAL.into());
        }
        let slot = self.slot(number).ok_or(Errno::EINVAL)?;
        let mutex = self.slot_mutex(number).ok_or(Errno::EINVAL)?;
        take_prepared(mutex, slot, nonce, state::EXECUTING)?;
        slot.state.store(state::USED, Release);
        slot.nonce.store(0, Relaxed);
        let attached_as = self.own_slot();
        self.become_process(number);
        if let Ok(attached_as) = attached_as {
            self.free_slot(attached_as);
        }
        for (fd, id) in self.descriptors_of(number) {
            match id {
                Some(id) => each(fd, id),
                None => {
                    // A thread that exec ended was at it.
                    let thread = Thread::new();
                    self.empty_entry(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, number, fd);
                    self.give_back_thread(&thread);
                }
            }
        }
        Ok(())
    }

    /// At orderly exit: gives everything back. Calls that need this process's slot fail from now on.
    fn leave_table(&self, cx: &Cx) {
        let Ok(number) = self.own_slot() else { return };
        self.empty_process(cx, number);
        self.give_back_thread(cx.thread);
        self.set_process(0, 0);
        if let Some(mutex) = self.slot_mutex(number) {
            mutex.give_back();
        }
    }
}

impl<T: Processes> Handover for T {}

/// The slot that a token names, if it was readied for it.
fn readied(processes: &impl Processes, token: u64) -> Option<(u32, &ProcessSlot)> {
    let (number, nonce) = untoken(token)?;
    let slot = processes.slot(number).filter(|slot| slot.nonce.load(Acquire) == nonce)?;
    Some((number, slot))
}

fn has_memory(processes: &impl Processes, number: u32, fd: u32) -> bool {
    let pages = processes.slot(number).map_or(0, |slot| slot.table_pages.load(Acquire));
    pages.checked_shr(fd / PAGE).unwrap_or(0) & 1 != 0
}

fn copy_table(processes: &impl Processes, from: u32, to: u32) -> Result<()> {
    let mut ready = u32::MAX;
    for (fd, id) in processes.descriptors_of(from) {
        // What another thread is taking or giving up at this moment the child has not got.
        let Some(id) = id else { continue };
        if ready != fd / PAGE {
            ready = fd / PAGE;
            processes.give_page_memory(to, ready).map_err(|_| Errno::ENOMEM)?;
        }
        refcount::get(processes, to, fd, id);
    }
    Ok(())
}

/// Takes the mutex of a slot that stands ready in `state`. Only somebody's
/// look can keep it from us; `EINVAL` if the slot is not (or no longer) ready.
fn take_prepared(mutex: &RobustMutex, slot: &ProcessSlot, nonce: u64, state: u32) -> Result<()> {
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

/// A random number of 48 bits, never 0.
fn nonce() -> u64 {
    let mut bytes = [0u8; 8];
    let _ = pm::file::random(&mut bytes);
    (u64::from_ne_bytes(bytes) ^ pm::clock::monotonic() as u64) >> 16 | 1
}

/// Ends this process, by `SIGABRT` where nobody catches it, after one line on stderr.
#[cold]
fn abort(line: &str) -> ! {
    // SAFETY: the text outlives the call.
    let _ = unsafe { pm::call!(abi::__NR_write, 2, line.as_ptr(), line.len()) };
    // SAFETY: no pointers; a signal to ourselves.
    let _ = unsafe { pm::call!(abi::__NR_kill, host::own_pid(), abi::SIGABRT) };
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { pm::call!(abi::__NR_exit_group, 134) };
    }
}
