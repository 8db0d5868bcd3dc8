//! What programs have open: their slots and descriptors, open files, locks.
//!
//! A program has a slot from its first descriptor on. How slots, fork, exec and
//! death are dealt with: [`openfiles`]; how open files are counted: [`openfiles::refcount`].
//! An open file keeps its node as long as it names it; naming and counting change
//! together, under the lock. So a maker who dies leaves nothing kept for good: its
//! open file is ended by whoever finds it dead.

use super::{DESCRIPTIONS, DESCRIPTIONS_AT, DESCRIPTORS, DESCRIPTORS_AT, LOCKS, LOCKS_AT, MUTEXES_AT, NO_NODE, NOTHING};
use super::{PROCESSES, PROCESSES_AT, SessionCache, take_word};
use base::{Cx, DescriptionId, Errno, Error, Lock, LockKind, Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use openfiles::OpenFile;
use openfiles::refcount::{self, Holders};
use openfiles::{CHAINS, Forks, HeldLock, LockEntry, Locks, PAGE, ProcessSlot, Processes, is_refused, state};
use pm::mutex::RobustMutex;
use pm::{Table, host};

/// Lock entries that get memory at a time.
const LOCKS_STEP: u32 = CHAINS;
/// Open files that get memory at a time.
const STEP: u32 = 64;

const _: () = assert!(
    PROCESSES as u64 <= refcount::PROCESSES_MAX
        && DESCRIPTORS as u64 <= refcount::ENTRIES_MAX
        && DESCRIPTIONS as u64 <= refcount::DESCRIPTIONS_MAX
);

/// Who is told of the last close of an open file, before it gives up its node.
pub trait Ends {
    /// It is marked as being ended.
    fn ended(&self, cx: &Cx, id: DescriptionId);

    /// The process in a slot ends, and may have locked records by an open file's own handle ([`super::lock_handles`]).
    fn unlocks(&self, cx: &Cx, id: DescriptionId, process: u32) {
        let _ = (cx, id, process);
    }
}

/// Who only looks: nothing ends by it.
struct Nobody;

impl Ends for Nobody {
    fn ended(&self, _: &Cx, _: DescriptionId) {}
}

/// The open files of a session, and who is told when they end.
#[derive(Clone, Copy)]
pub struct OpenFiles<'a> {
    session: &'a SessionCache,
    ends: &'a dyn Ends,
}

impl SessionCache {
    /// The open files; `ends` is told when they end.
    pub fn open_files<'a>(&'a self, ends: &'a dyn Ends) -> OpenFiles<'a> {
        OpenFiles { session: self, ends }
    }

    pub(super) fn process_slot(&self, number: u32) -> Option<&ProcessSlot> {
        if number >= PROCESSES {
            return None;
        }
        self.region.at(PROCESSES_AT + u64::from(number) * size_of::<ProcessSlot>() as u64)
    }

    fn place(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        if process >= PROCESSES || fd >= DESCRIPTORS {
            return None;
        }
        self.region.at(DESCRIPTORS_AT + (u64::from(process) * u64::from(DESCRIPTORS) + u64::from(fd)) * 4)
    }

    /// The open file with this number.
    #[inline]
    pub fn description(&self, id: DescriptionId) -> &OpenFile {
        self.descriptions.get(id).unwrap_or(&NOTHING)
    }

    /// All open files, by their numbers.
    pub fn descriptions(&self) -> Table<OpenFile> {
        self.descriptions
    }

    /// Drops all locks of a node's file that stand in the table; whether there were any.
    pub(super) fn drop_all_locks_of(&self, node: Node) -> bool {
        let files = self.open_files(&Nobody);
        let key = files.lock_key(node.id);
        files.has_locks(key) && files.with_table(|| files.drop_all_locks_on(key)).unwrap_or(false)
    }

    /// What `fd` stands for in this program.
    pub fn holding(&self, fd: u32) -> Option<DescriptionId> {
        let process = self.process.load(Acquire).checked_sub(1)?;
        refcount::held(self.entry(process, fd)?.load(Acquire))
    }

    /// Gives memory to slots up to this one, with mutexes that nobody has; its mutex.
    #[cold]
    fn new_slots(&self, number: u32) -> Option<&RobustMutex> {
        let _guard = self.lock();
        let high = &self.header().processes_high;
        // Nobody looks at one before it lies below.
        for new in high.load(Acquire)..=number {
            let size = size_of::<ProcessSlot>() as u64;
            self.space(PROCESSES_AT + u64::from(new) * size, size).ok()?;
            self.space(MUTEXES_AT + u64::from(new) * 64, 64).ok()?;
            self.mutex_at(new)?.init();
            high.store(new + 1, Release);
        }
        self.mutex_at(number)
    }

    fn mutex_at(&self, number: u32) -> Option<&RobustMutex> {
        RobustMutex::at(&self.region, MUTEXES_AT + u64::from(number) * 64)
    }

    // ---- offsets ----

    /// Takes an open file's offset for this process's thread.
    pub fn offset_lock(&self, id: DescriptionId) {
        take_word(&self.description(id).offset_owner, host::own_mark());
    }

    /// Gives it back.
    pub fn offset_unlock(&self, id: DescriptionId) {
        self.description(id).offset_owner.store(0, Release);
    }

    /// The words of whoever has this node, or another name of it, to himself, in the order in which they are
    /// taken. Two, since daemons call one file by two ids at times (Go's, after an inode number has been used
    /// again), and one id's inode number may change. The second is the first if they fall together.
    fn owner_words(&self, node: Node) -> Result<[&AtomicU32; 2]> {
        let record = self.get(node)?;
        let words = &self.header().owners;
        let place = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % words.len();
        let by_key = place(record.key.load(Relaxed));
        // Without a number all would wait for each other.
        let by_number = match record.ino.load(Relaxed) {
            0 => by_key,
            ino => place(ino),
        };
        Ok([&words[by_key.min(by_number)], &words[by_key.max(by_number)]])
    }

    /// Runs with a node to itself: a write at its end, a look through a directory.
    /// Not to be nested.
    pub fn alone<T>(&self, node: Node, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let [first, second] = self.owner_words(node)?;
        let own = host::own_mark();
        take_word(first, own);
        let is_one = core::ptr::eq(first, second);
        if !is_one {
            take_word(second, own);
        }
        let result = run();
        if !is_one {
            second.store(0, Release);
        }
        first.store(0, Release);
        result
    }
}

impl OpenFiles<'_> {
    /// This program's slot, taken at the first call. `ENFILE`.
    fn own(&self, cx: &Cx) -> Result<u32> {
        self.own_slot().or_else(|_| self.join(cx))
    }

    #[cold]
    fn join(&self, cx: &Cx) -> Result<u32> {
        let number = self.claim_slot(cx).map_err(|_| Errno::ENFILE)?;
        let slot = self.slot(number).ok_or(Errno::ENFILE)?;
        slot.note_own();
        slot.state.store(state::USED, Release);
        // Another thread may have been quicker; then its slot counts.
        match self.session.process.compare_exchange(0, number + 1, AcqRel, Acquire) {
            Ok(_) => Ok(number),
            Err(other) => {
                self.free_slot(number);
                Ok(other - 1)
            }
        }
    }

    /// A program about to fork that has nothing open has no slot, and gets none.
    pub fn has_slot(&self) -> bool {
        self.own_slot().is_ok()
    }

    /// See [`openfiles::Handover::inherited`]; for a program whose parent had no slot yet, too.
    pub fn inherited(&self, cx: &Cx, fd: u32, known: Option<DescriptionId>) -> Option<DescriptionId> {
        if known.is_some() {
            self.own(cx).ok()?;
        }
        openfiles::Handover::inherited(self, cx, fd, known)
    }

    /// Opens `node` as `fd`; `opened` asks the lower file system in between.
    pub fn open(
        &self,
        cx: &Cx,
        node: Node,
        (kind, flags): (base::Kind, u32),
        fd: u32,
        opened: impl FnOnce() -> Result<()>,
    ) -> Result<DescriptionId> {
        let id = self.make(cx, node, kind, flags)?;
        if let Err(error) = opened().and_then(|()| self.hand_out(cx, id, fd)) {
            self.end_open_file(cx, id);
            return Err(error);
        }
        Ok(id)
    }

    /// A new open file that keeps `node`. Nothing stands for it yet: [`OpenFiles::hand_out`] follows, or its end, or its
    /// maker's death.
    fn make(&self, cx: &Cx, node: Node, kind: base::Kind, flags: u32) -> Result<DescriptionId> {
        let id = self.take_description(self.own(cx)?)?;
        let description = self.session.description(id);
        description.flags.store(flags, Relaxed);
        description.offset.store(0, Relaxed);
        description.offset_owner.store(0, Relaxed);
        description.kind.store(kind as u32, Relaxed);
        description.generation.fetch_add(1, Relaxed);
        if let Err(error) = self.session.keep(description, node) {
            description.refs.store(0, Release);
            return Err(error);
        }
        Ok(id)
    }

    /// `fd` stands for an open file that this program has just made.
    fn hand_out(&self, cx: &Cx, id: DescriptionId, fd: u32) -> Result<()> {
        let process = self.own(cx)?;
        self.ready(process, fd)?;
        refcount::install(self, process, fd, id, |last| self.end_open_file(cx, last));
        self.session.description(id).refs.store(refcount::opened(process, fd), Release);
        Ok(())
    }

    /// `fd` has a place in the table. `EBADF` past its end, `ENFILE`.
    fn ready(&self, process: u32, fd: u32) -> Result<()> {
        if fd >= DESCRIPTORS {
            return Err(Errno::EBADF.into());
        }
        match self.entry(process, fd) {
            Some(_) => Ok(()),
            None => self.give_page_memory(process, fd / PAGE),
        }
    }

    fn take_description(&self, process: u32) -> Result<DescriptionId> {
        let header = self.session.header();
        loop {
            let high = header.descriptions_high.load(Acquire).min(DESCRIPTIONS);
            let hint = header.description_hint.load(Relaxed);
            for step in 0..high {
                let id = hint.wrapping_add(step) % high;
                let refs = &self.session.description(id).refs;
                if refs.compare_exchange(0, refcount::making(process), AcqRel, Relaxed).is_ok() {
                    header.description_hint.store(id + 1, Relaxed);
                    return Ok(id);
                }
            }
            if high >= DESCRIPTIONS {
                return Err(Error::Posix(Errno::ENFILE));
            }
            self.more_descriptions(high)?;
        }
    }

    /// Some more than the `known` open files can be used. One that nobody uses keeps no node.
    fn more_descriptions(&self, known: u32) -> Result<()> {
        let header = self.session.header();
        let _guard = self.session.lock();
        if header.descriptions_high.load(Acquire) == known {
            let high = (known + STEP).min(DESCRIPTIONS);
            let size = size_of::<OpenFile>() as u64;
            self.session.space(DESCRIPTIONS_AT + u64::from(known) * size, u64::from(high - known) * size)?;
            (known..high).for_each(|id| self.session.description(id).node.store(NO_NODE, Release));
            header.descriptions_high.store(high, Release);
            header.description_hint.store(known, Relaxed);
        }
        Ok(())
    }

    /// `fd` stands for `id` too.
    pub fn dup(&self, cx: &Cx, id: DescriptionId, fd: u32) -> Result<()> {
        let process = self.own(cx)?;
        self.ready(process, fd)?;
        if self.entry(process, fd).is_some_and(|entry| entry.load(Acquire) != 0) {
            self.close(cx, fd);
        }
        if refcount::get(self, process, fd, id) { Ok(()) } else { Err(Error::Posix(Errno::EBADF)) }
    }

    /// `fd` gives up whatever it stands for.
    pub fn close(&self, cx: &Cx, fd: u32) {
        let Ok(process) = self.own_slot() else { return };
        if let Some(id) = refcount::put(self, process, fd) {
            self.end_open_file(cx, id);
        }
    }

    // ---- advisory locks ----

    /// Sets or clears a lock; `EAGAIN` if another holds a conflicting one.
    pub fn lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<()> {
        let wanted = self.wanted(cx, node, lock)?;
        let attempt = || self.with_table(|| self.set_lock(&wanted, lock.kind)).flatten();
        let result = attempt();
        if !is_refused(&result) {
            return result;
        }
        // Perhaps the holder is dead.
        self.adopt_those_gone(cx);
        attempt()
    }

    /// As [`OpenFiles::lock`], for who waits for the lock since `since`: `EDEADLK` where it would wait for ever.
    pub fn lock_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        let result = self.lock(cx, node, lock);
        if is_refused(&result) {
            self.still_waiting(cx, node, lock, since)?;
        }
        result
    }

    /// Somebody waits for a lock since `since` and has just been refused it: `EDEADLK` where it would wait for ever.
    pub fn still_waiting(&self, cx: &Cx, node: Node, lock: &Lock, since: u32) -> Result<()> {
        let wanted = self.wanted(cx, node, lock)?;
        self.with_table(|| self.still_waits(&wanted, lock.kind, since)).flatten()
    }

    /// The first lock that conflicts with this one; with [`LockKind::Unlock`], the first of the owner's own in the range.
    pub fn conflicting_lock(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<Option<Lock>> {
        if !self.any_lock() {
            return Ok(None);
        }
        let wanted = self.wanted(cx, node, lock)?;
        let look = || self.with_table(|| self.first_conflict(&wanted, lock.kind));
        let mut found = look()?;
        if found.is_some() && lock.kind != LockKind::Unlock {
            self.adopt_those_gone(cx);
            found = look()?;
        }
        Ok(found.map(|held| held.as_lock()))
    }

    /// Drops this process's record locks on a node.
    pub fn drop_process_locks(&self, node: Node) {
        let key = self.lock_key(node.id);
        if let Ok(process) = self.own_slot()
            && self.has_locks(key)
        {
            let _ = self.with_table(|| self.drop_process_locks_on(key, process));
        }
    }

    /// An open file ends: its locks go.
    fn drop_locks_of(&self, id: DescriptionId) {
        let description = self.session.description(id);
        if description.locks.load(SeqCst) != 0 {
            let key = self.lock_key(description.node.load(Relaxed));
            let _ = self.with_table(|| self.drop_locks_of_open_file(id, key));
            description.locks.store(0, SeqCst);
        }
    }

    /// This program's slot, whom locks of a process belong to; `ENFILE`.
    pub fn lock_owner(&self, cx: &Cx) -> Result<u32> {
        self.own(cx)
    }

    fn with_table<T>(&self, run: impl FnOnce() -> T) -> Result<T> {
        let _guard = self.session.lock();
        self.free_lost()?;
        Ok(run())
    }

    fn wanted(&self, cx: &Cx, node: Node, lock: &Lock) -> Result<HeldLock> {
        let process = self.own(cx)?;
        self.session.get(node)?;
        Ok(HeldLock::wanted(self.lock_key(node.id), lock, process, host::own_pid_cached()))
    }
}

impl Holders for SessionCache {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        // A page without memory stands for nothing.
        let pages = self.process_slot(process)?.table_pages.load(Acquire);
        if pages.checked_shr(fd / PAGE)? & 1 == 0 {
            return None;
        }
        self.place(process, fd)
    }

    fn refs(&self, id: DescriptionId) -> &AtomicU64 {
        &self.description(id).refs
    }

    fn pause(&self, turns: u32) -> bool {
        pm::file::pause(turns)
    }
}

impl Holders for OpenFiles<'_> {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.session.entry(process, fd)
    }

    fn refs(&self, id: DescriptionId) -> &AtomicU64 {
        self.session.refs(id)
    }

    fn pause(&self, turns: u32) -> bool {
        self.session.pause(turns)
    }
}

impl Processes for OpenFiles<'_> {
    const SLOTS: u32 = PROCESSES;
    const DESCRIPTORS: u32 = DESCRIPTORS;

    fn slot(&self, number: u32) -> Option<&ProcessSlot> {
        self.session.process_slot(number)
    }

    fn slot_mutex(&self, number: u32) -> Option<&RobustMutex> {
        match number {
            _ if number < self.slots_high() => self.session.mutex_at(number),
            PROCESSES.. => None,
            _ => self.session.new_slots(number),
        }
    }

    fn slots_high(&self) -> u32 {
        self.session.header().processes_high.load(Acquire).min(PROCESSES)
    }

    fn give_slot_memory(&self, _number: u32) -> Result<()> {
        // With its mutex.
        Ok(())
    }

    fn give_page_memory(&self, number: u32, page: u32) -> Result<()> {
        let first = u64::from(number) * u64::from(DESCRIPTORS) + u64::from(page * PAGE);
        self.session.space(DESCRIPTORS_AT + first * 4, u64::from(PAGE) * 4)?;
        self.slot(number).ok_or(Errno::ENFILE)?.table_pages.fetch_or(1 << page, AcqRel);
        Ok(())
    }

    fn process_word(&self) -> &AtomicU32 {
        &self.session.process
    }

    fn set_process(&self, process: u32, _pages: u32) {
        self.session.process.store(process, Release);
    }

    fn forks(&self) -> Forks<'_> {
        let SessionCache { robust_list, forking_thread, parent, .. } = self.session;
        Forks { robust_list, thread: forking_thread, parent }
    }

    fn count_look(&self) -> u32 {
        self.session.header().looks.fetch_add(1, Relaxed)
    }

    fn end_open_file(&self, cx: &Cx, id: DescriptionId) {
        if self.session.description(id).node.load(Acquire) != NO_NODE {
            self.drop_locks_of(id);
            self.ends.ended(cx, id);
            self.session.let_go(id, true);
        }
        self.session.description(id).refs.store(0, Release);
    }

    fn end_half_made(&self, cx: &Cx, number: u32) -> bool {
        for id in 0..self.session.header().descriptions_high.load(Acquire).min(DESCRIPTIONS) {
            if self.session.description(id).refs.load(Acquire) == refcount::making(number) {
                self.end_open_file(cx, id);
            }
        }
        true
    }

    fn process_goes(&self, cx: &Cx, number: u32) {
        if self.session.has_lock_handles() {
            let held = self.descriptors_of(number).filter_map(|(_, id)| id);
            held.filter(|id| self.session.has_records(*id, number)).for_each(|id| self.ends.unlocks(cx, id, number));
        }
    }

    fn process_ends(&self, _cx: &Cx, number: u32) {
        if self.any_lock() {
            let drop = |chain| self.drop_locks_of_process_in(chain, number);
            let _ = self.with_table(|| (0..CHAINS).filter(|chain| self.has_chain(*chain)).for_each(drop));
        }
    }
}

impl Locks for OpenFiles<'_> {
    const ENTRIES: u32 = LOCKS;

    fn lock_entries(&self) -> u32 {
        self.session.header().locks_high.load(SeqCst).min(LOCKS)
    }

    fn lock_entry(&self, number: u32) -> Option<&LockEntry> {
        if number >= self.lock_entries() {
            return None;
        }
        self.session.region.at(LOCKS_AT + u64::from(number) * size_of::<LockEntry>() as u64)
    }

    fn more_lock_entries(&self) -> Result<()> {
        let high = self.lock_entries();
        if high >= LOCKS {
            return Err(Errno::ENOLCK.into());
        }
        let size = size_of::<LockEntry>() as u64;
        let space = self.session.space(LOCKS_AT + u64::from(high) * size, u64::from(LOCKS_STEP) * size);
        space.map_err(|_| Errno::ENOLCK)?;
        self.session.header().locks_high.store(high + LOCKS_STEP, SeqCst);
        Ok(())
    }

    fn open_file(&self, id: DescriptionId) -> &OpenFile {
        self.session.description(id)
    }

    /// All names of a file are locked by its key; 0 stands for nothing.
    fn lock_key(&self, node: u64) -> u64 {
        let key = self.session.get(Node { id: node, hint: 0 }).map_or(0, |record| record.key.load(Relaxed));
        key.wrapping_add(1).max(1)
    }
}

#[cfg(test)]
mod tests;
