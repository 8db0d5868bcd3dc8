//! Programs, their descriptors, and the open file descriptions that these hold.
//!
//! A program has a slot from its first descriptor on. Its PID tells whether it
//! lives; what a dead one held goes back when somebody looks ([`SessionCache::reap`]).
//! PID and state are one word, so that whoever gives back what a dead one held
//! can be followed by the next, if he dies too. How descriptions are counted:
//! [`base::hold`]. A description keeps its node as long as it names it; naming and
//! counting change together, under the lock. So a maker who dies leaves nothing
//! kept for good: his description is ended by whoever finds him dead.

use super::{
    DESCRIPTIONS, DESCRIPTIONS_AT, DESCRIPTORS, DESCRIPTORS_AT, NOTHING, PROCESSES, PROCESSES_AT, ProcessSlot, SessionCache,
};
use super::{NO_NODE, damaged, take_word};
use base::hold::{self, Holders, Settled};
use base::{Description, DescriptionId, Errno, Error, Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::life::{self, Look, Who};
use pm::{Table, host};

const PAGE: u32 = 1024;

const FREE: u32 = 0;
const LIVES: u32 = 1;
/// Made for a child that has not begun yet; the PID is the parent's.
const FORKING: u32 = 2;
/// Being made, or what it held is being given back; the PID is of whoever does that.
const CHANGING: u32 = 3;

const _: () = assert!(
    PROCESSES as u64 <= hold::PROCESSES_MAX
        && DESCRIPTORS as u64 <= hold::ENTRIES_MAX
        && DESCRIPTIONS as u64 <= hold::DESCRIPTIONS_MAX
);

/// PID and state as one word.
const fn who(pid: u32, state: u32) -> u64 {
    (pid as u64) << 32 | state as u64
}

impl ProcessSlot {
    /// PID and state.
    pub(super) fn who(&self) -> (u32, u32) {
        let who = self.who.load(Acquire);
        ((who >> 32) as u32, who as u32)
    }

    /// Whether it is somebody's who isn't known to be dead.
    pub(super) fn is_used(&self) -> bool {
        let (pid, state) = self.who();
        state != FREE && !self.is_dead((pid, state))
    }

    /// Whether whoever it belonged to then is dead.
    fn is_dead(&self, (pid, state): (u32, u32)) -> bool {
        // In the other states it is not the one whose time stands there.
        let since = if state == LIVES { self.since.load(Acquire) } else { 0 };
        Who { pid, namespace: self.namespace.load(Acquire), since }.lives(Look::Thorough) == Some(false)
    }

    /// It is this process's from now on, by `turn`; whether that came to be. Until all is noted nobody takes it for dead.
    fn becomes_ours(&self, turn: impl FnOnce() -> bool) -> bool {
        let own = life::own();
        self.since.store(0, Release);
        self.namespace.store(0, Release);
        let turned = turn();
        if turned {
            self.since.store(own.since, Release);
            self.namespace.store(own.namespace, Release);
        }
        turned
    }

    /// From one state to another; whether it was in the first.
    fn turns(&self, from: (u32, u32), to: (u32, u32)) -> bool {
        self.who.compare_exchange(who(from.0, from.1), who(to.0, to.1), AcqRel, Acquire).is_ok()
    }
}

impl SessionCache {
    pub(super) fn process_slot(&self, index: u32) -> Option<&ProcessSlot> {
        if index >= PROCESSES {
            return None;
        }
        self.region.at(PROCESSES_AT + u64::from(index) * size_of::<ProcessSlot>() as u64)
    }

    fn place(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        if process >= PROCESSES || fd >= DESCRIPTORS {
            return None;
        }
        self.region.at(DESCRIPTORS_AT + (u64::from(process) * u64::from(DESCRIPTORS) + u64::from(fd)) * 4)
    }

    /// The description with this number.
    #[inline]
    pub fn description(&self, id: DescriptionId) -> &Description {
        self.descriptions.get(id).unwrap_or(&NOTHING)
    }

    /// All descriptions, by their numbers.
    pub fn descriptions(&self) -> Table<Description> {
        self.descriptions
    }

    /// A slot for a program with this PID.
    fn take_process(&self, pid: u32, state: u32) -> Result<u32> {
        for index in 0..PROCESSES {
            let Some(slot) = self.process_slot(index) else { return damaged() };
            if slot.who() == (0, FREE) && slot.turns((0, FREE), (host::own_pid_cached(), CHANGING)) {
                slot.pages.store(0, Relaxed);
                slot.nonce.store(0, Relaxed);
                slot.becomes_ours(|| {
                    slot.who.store(who(pid, state), Release);
                    true
                });
                self.header().processes_high.fetch_max(index + 1, AcqRel);
                return Ok(index);
            }
        }
        Err(Error::Posix(Errno::ENFILE))
    }

    /// This program's slot.
    fn own(&self) -> Result<u32> {
        match self.process.load(Acquire) {
            0 => {
                let index = self.take_process(host::own_pid_cached(), LIVES)?;
                // Another thread may have been quicker; then its slot counts.
                if let Err(other) = self.process.compare_exchange(0, index + 1, AcqRel, Acquire) {
                    if let Some(slot) = self.process_slot(index) {
                        slot.who.store(who(0, FREE), Release);
                    }
                    return Ok(other - 1);
                }
                Ok(index)
            }
            known => Ok(known - 1),
        }
    }

    fn list(&self, process: u32, fd: u32) -> Result<&AtomicU32> {
        let (Some(slot), Some(place)) = (self.process_slot(process), self.place(process, fd)) else {
            return Err(Error::Posix(Errno::EBADF));
        };
        if slot.pages.load(Acquire) & 1 << (fd / PAGE) == 0 {
            let first = u64::from(process) * u64::from(DESCRIPTORS) + u64::from(fd / PAGE * PAGE);
            self.space(DESCRIPTORS_AT + first * 4, u64::from(PAGE) * 4)?;
            slot.pages.fetch_or(1 << (fd / PAGE), AcqRel);
        }
        Ok(place)
    }

    /// A new description that keeps `node`. Nothing holds it yet: [`SessionCache::hand_out`]
    /// or [`SessionCache::abandon`] follows, or its maker's death.
    pub fn make_description(&self, node: Node, kind: base::Kind, flags: u32) -> Result<DescriptionId> {
        let id = self.take_description(self.own()?)?;
        let description = self.description(id);
        description.flags.store(flags, Relaxed);
        description.offset.store(0, Relaxed);
        description.offset_owner.store(0, Relaxed);
        description.kind.store(kind as u32, Relaxed);
        description.generation.fetch_add(1, Relaxed);
        if let Err(error) = self.keep(description, node) {
            description.refs.store(0, Release);
            return Err(error);
        }
        Ok(id)
    }

    /// `fd` holds a description that this program has just made.
    pub fn hand_out(&self, id: DescriptionId, fd: u32, ended: &mut dyn FnMut(DescriptionId)) -> Result<()> {
        let process = self.own()?;
        self.list(process, fd)?;
        hold::put(self, process, fd, id, |last| self.end_description(last, ended));
        self.description(id).refs.store(hold::opened(process, fd), Release);
        Ok(())
    }

    /// A description that this program has just made is not wanted.
    pub fn abandon(&self, id: DescriptionId, ended: &mut dyn FnMut(DescriptionId)) {
        self.end_description(id, ended);
    }

    fn take_description(&self, process: u32) -> Result<DescriptionId> {
        let header = self.header();
        loop {
            let high = header.descriptions_high.load(Acquire).min(DESCRIPTIONS);
            let hint = header.description_hint.load(Relaxed);
            for step in 0..high {
                let id = hint.wrapping_add(step) % high;
                if self.description(id).refs.compare_exchange(0, hold::making(process), AcqRel, Relaxed).is_ok() {
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

    /// Some more than the `known` descriptions can be used. One that nobody uses keeps no node.
    fn more_descriptions(&self, known: u32) -> Result<()> {
        let header = self.header();
        let _guard = self.lock();
        if header.descriptions_high.load(Acquire) == known {
            let high = (known + 64).min(DESCRIPTIONS);
            let size = size_of::<Description>() as u64;
            self.space(DESCRIPTIONS_AT + u64::from(known) * size, u64::from(high - known) * size)?;
            (known..high).for_each(|id| self.description(id).node.store(NO_NODE, Release));
            header.descriptions_high.store(high, Release);
            header.description_hint.store(known, Relaxed);
        }
        Ok(())
    }

    /// `fd` holds `id` too.
    pub fn dup(&self, id: DescriptionId, fd: u32, ended: &mut dyn FnMut(DescriptionId)) -> Result<()> {
        let process = self.own()?;
        if self.list(process, fd)?.load(Acquire) != 0 {
            self.give_up(process, fd, ended);
        }
        if hold::take(self, process, fd, id) { Ok(()) } else { Err(Error::Posix(Errno::EBADF)) }
    }

    /// A number of a program that runs lets go of what it holds.
    fn give_up(&self, process: u32, fd: u32, ended: &mut dyn FnMut(DescriptionId)) {
        if let Some(id) = hold::give(self, process, fd) {
            self.end_description(id, ended);
        }
    }

    /// Ends a description that is marked as being made or ended.
    fn end_description(&self, id: DescriptionId, ended: &mut dyn FnMut(DescriptionId)) {
        if self.description(id).node.load(Acquire) != NO_NODE {
            ended(id);
            self.let_go(id, true);
        }
        self.description(id).refs.store(0, Release);
    }

    fn own_place(&self, fd: u32) -> Option<&AtomicU32> {
        let process = self.process.load(Acquire).checked_sub(1)?;
        let pages = self.process_slot(process)?.pages.load(Acquire);
        if pages & 1u32.checked_shl(fd / PAGE)? == 0 { None } else { self.place(process, fd) }
    }

    /// What `fd` holds.
    pub fn holding(&self, fd: u32) -> Option<DescriptionId> {
        hold::held(self.own_place(fd)?.load(Acquire))
    }

    /// `fd` lets go of whatever it holds; `ended` is told if nobody else holds it.
    pub fn close(&self, fd: u32, ended: &mut dyn FnMut(DescriptionId)) {
        if self.own_place(fd).is_some()
            && let Some(process) = self.process.load(Acquire).checked_sub(1)
        {
            self.give_up(process, fd, ended);
        }
    }

    /// Descriptors of a program that are in use, and what they hold if that is certain.
    fn held(&self, process: u32) -> impl Iterator<Item = (u32, Option<DescriptionId>)> + '_ {
        let pages = self.process_slot(process).map_or(0, |slot| slot.pages.load(Acquire));
        (0..32u32).filter(move |page| pages & (1 << page) != 0).flat_map(move |page| {
            (page * PAGE..(page + 1) * PAGE)
                .filter_map(move |fd| Some((fd, self.place(process, fd)?.load(Acquire))))
                .filter(|(_, entry)| *entry != 0)
                .map(|(fd, entry)| (fd, hold::held(entry)))
        })
    }

    // ---- fork, exec, death ----

    /// A copy of this program's descriptors for a child; the token (0: there are none).
    pub fn fork_prepare(&self) -> Result<u64> {
        let Some(own) = self.process.load(Acquire).checked_sub(1) else { return Ok(0) };
        let child = self.take_process(host::own_pid_cached(), FORKING)?;
        for (fd, id) in self.held(own) {
            // What another thread is taking or giving up at this moment the child has not got.
            if let Some(id) = id {
                if let Err(error) = self.list(child, fd) {
                    // The parent has what the child would have had.
                    self.end_process(child, (host::own_pid_cached(), FORKING), &mut |_| ());
                    return Err(error);
                }
                hold::take(self, child, fd, id);
            }
        }
        Ok(u64::from(child) + 1)
    }

    /// In the child.
    pub fn fork_child(&self, token: u64) {
        host::forget_pid();
        self.parent.store(self.process.load(Acquire), Relaxed);
        let slot = (token as u32).checked_sub(1).and_then(|index| self.process_slot(index));
        let taken = slot.is_some_and(|slot| {
            let parents = slot.who();
            parents.1 == FORKING && slot.becomes_ours(|| slot.turns(parents, (host::own_pid_cached(), LIVES)))
        });
        self.process.store(if taken { token as u32 } else { 0 }, Release);
    }

    /// In a child of a program with other threads, after `fork_child`: what `fd` holds. If the table that came with
    /// our memory has `known` there, which was not copied, and the parent's number still holds that, so does ours.
    pub fn inherited(
        &self,
        fd: u32,
        known: Option<DescriptionId>,
        ended: &mut dyn FnMut(DescriptionId),
    ) -> Option<DescriptionId> {
        let (held, Some(id)) = (self.holding(fd), known) else { return self.holding(fd) };
        if held.is_some() {
            return held;
        }
        let parent = self.parent.load(Relaxed).checked_sub(1)?;
        let is_parents = || {
            let lives = self.process_slot(parent).is_some_and(|slot| slot.who() == (host::parent_pid(), LIVES));
            lives && self.place(parent, fd).is_some_and(|place| hold::held(place.load(Acquire)) == Some(id))
        };
        if !is_parents() || self.dup(id, fd, ended).is_err() {
            return None;
        }
        if is_parents() {
            return Some(id);
        }
        self.close(fd, ended);
        None
    }

    /// In the parent, when there is no child after all.
    pub fn fork_failed(&self, token: u64, ended: &mut dyn FnMut(DescriptionId)) {
        if let Some(index) = (token as u32).checked_sub(1) {
            self.end_process(index, (host::own_pid_cached(), FORKING), ended);
        }
    }

    /// What lets the next program in this process take over; 0: there is nothing.
    pub fn exec_prepare(&self) -> u64 {
        let Some(own) = self.process.load(Acquire).checked_sub(1) else { return 0 };
        let Some(slot) = self.process_slot(own) else { return 0 };
        let nonce = slot.nonce.fetch_add(1, AcqRel) + 1;
        u64::from(nonce) << 32 | u64::from(own + 1)
    }

    /// In the new program: takes over what stands under `token`. `ESTALE` if it is not there.
    pub fn exec_claim(&self, token: u64, each: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        let stale = Error::Posix(Errno::ESTALE);
        let index = (token as u32).checked_sub(1).ok_or(stale)?;
        let slot = self.process_slot(index).ok_or(stale)?;
        let is_ours = slot.who() == (host::own_pid_cached(), LIVES) && slot.nonce.load(Acquire) == (token >> 32) as u32;
        if !is_ours {
            return Err(stale);
        }
        self.process.store(index + 1, Release);
        // What a thread was at that exec ended goes with this process.
        self.held(index).filter_map(|(fd, id)| Some((fd, id?))).for_each(|(fd, id)| each(fd, id));
        Ok(())
    }

    /// At orderly exit: gives everything back.
    pub fn detach(&self, ended: &mut dyn FnMut(DescriptionId)) {
        if let Some(own) = self.process.swap(0, AcqRel).checked_sub(1) {
            self.end_process(own, (host::own_pid_cached(), LIVES), ended);
        }
    }

    /// Gives back what dead programs held.
    pub fn reap(&self, ended: &mut dyn FnMut(DescriptionId)) {
        for index in 0..self.header().processes_high.load(Acquire).min(PROCESSES) {
            let Some(slot) = self.process_slot(index) else { return };
            let who = slot.who();
            if who.1 != FREE && slot.is_dead(who) {
                self.end_process(index, who, ended);
            }
        }
        self.drop_dead_locks();
    }

    fn end_process(&self, index: u32, as_seen: (u32, u32), ended: &mut dyn FnMut(DescriptionId)) {
        let Some(slot) = self.process_slot(index) else { return };
        if !slot.turns(as_seen, (host::own_pid_cached(), CHANGING)) {
            return;
        }
        for (fd, _) in self.held(index) {
            loop {
                match hold::settle(self, index, fd) {
                    Settled::Empty => break,
                    Settled::Last(id) => break self.end_description(id, ended),
                    Settled::Again => {}
                }
            }
        }
        // What it was making or ending.
        for id in 0..self.header().descriptions_high.load(Acquire).min(DESCRIPTIONS) {
            if self.description(id).refs.load(Acquire) == hold::making(index) {
                self.end_description(id, ended);
            }
        }
        slot.who.store(who(0, FREE), Release);
    }

    // ---- offsets ----

    /// Takes a description's offset for this process's thread.
    pub fn offset_lock(&self, id: DescriptionId) {
        let word = &self.description(id).offset_owner;
        take_word(word, host::own_pid_cached());
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

    fn take(word: &AtomicU32) {
        take_word(word, host::own_pid_cached());
    }

    /// Runs with a node to itself: a write at its end, a look through a directory.
    /// Not to be nested.
    pub fn alone<T>(&self, node: Node, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let [first, second] = self.owner_words(node)?;
        Self::take(first);
        let is_one = core::ptr::eq(first, second);
        if !is_one {
            Self::take(second);
        }
        let result = run();
        if !is_one {
            second.store(0, Release);
        }
        first.store(0, Release);
        result
    }
}

impl Holders for SessionCache {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        self.place(process, fd)
    }

    fn refs(&self, id: DescriptionId) -> &AtomicU64 {
        &self.description(id).refs
    }

    fn pause(&self, turns: u32) -> bool {
        pm::file::pause(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Caching;
    use super::super::nodes::Entry;
    use super::*;
    use base::{Attr, Kind};

    /// The PID of nobody.
    fn dead() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// A session with one file in it.
    fn session(name: &str) -> (SessionCache, Node) {
        let path = std::env::temp_dir().join(std::format!("bypath-holders-{}-{name}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(SessionCache::bytes()).unwrap();
        let session = SessionCache::open(std::format!("{}\0", path.display()).as_bytes()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let attr = Attr { ino: 2, kind: Kind::Regular, mode: 0o644, nlink: 1, ..Attr::EMPTY };
        let (entry_ns, attr_ns) = (1 << 40, 1 << 40);
        let entry = Entry { key: 2, device: 0, attr, entry_ns, attr_ns, incarnation: 0, handle: None, caching: Caching::None };
        let node = session.enter(session.root(), b"file", &entry, session.moment(), &mut |_, _, _| ()).unwrap();
        (session, node)
    }

    /// Goal: whoever dies while he makes a description, or while he ends one, keeps no node. Method:
    /// the PID of a dead process in this one's slot, at each step; once the one who gives back dies too.
    #[test]
    fn the_dead_keep_no_node() {
        let (session, node) = session("dead");
        let never = &mut |_| panic!("nothing ends yet");
        for step in 0..4 {
            let id = session.make_description(node, Kind::Regular, 0).unwrap();
            if step > 0 {
                session.hand_out(id, 5, never).unwrap();
            }
            let own = session.process.load(Acquire) - 1;
            if step > 1 {
                assert_eq!(hold::give(&session, own, 5), Some(id));
            }
            if step > 2 {
                session.let_go(id, true);
            }
            assert_eq!(session.holds(node), u32::from(step < 3));
            let state = if step == 2 { CHANGING } else { LIVES };
            session.process_slot(own).unwrap().who.store(who(dead(), state), Release);
            let mut ended = std::vec::Vec::new();
            session.reap(&mut |id| ended.push(id));
            assert_eq!(ended.len(), usize::from(step < 3), "told unless it had no node any more");
            assert_eq!((session.holds(node), session.description(id).refs.load(Acquire)), (0, 0));
            session.process.store(0, Release);
        }
    }

    /// Goal: a process that has the PID of one that held something is not taken for it, and one of another PID namespace
    /// is not taken for dead. Method: a living child, and nobody, in this process's slot.
    #[test]
    fn others_of_the_same_number() {
        let (session, _) = session("numbers");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let own = life::own();
        let second = 1_000_000_000;
        std::thread::sleep(std::time::Duration::from_millis(30));
        for (pid, since, namespace, used) in [
            (child.id(), life::now(), own.namespace, true),
            (child.id(), 0, own.namespace, true),
            (child.id(), life::now() - second, own.namespace, false),
            (dead(), life::now(), own.namespace, false),
            (dead(), life::now(), own.namespace + 1, true),
            (dead(), life::now(), 0, true),
        ] {
            let slot = session.process_slot(session.take_process(pid, LIVES).unwrap()).unwrap();
            slot.since.store(since, Relaxed);
            slot.namespace.store(namespace, Relaxed);
            assert_eq!((slot.is_used(), session.programs()), (used, u32::from(used)));
            session.reap(&mut |_| ());
            assert_eq!(slot.who().1 != FREE, used);
            slot.who.store(who(0, FREE), Release);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Goal: death with the lock in hand, between counting and naming, changes no count. Method: counts
    /// that are wrong, and the PID of a dead process in the lock.
    #[test]
    fn holds_are_counted_anew() {
        let (session, node) = session("anew");
        let id = session.make_description(node, Kind::Regular, 0).unwrap();
        for wrong in [0, 2, 7] {
            session.get(node).unwrap().holds.store(wrong, Relaxed);
            session.header().lock.store(dead(), Release);
            drop(session.lock());
            assert_eq!((session.holds(node), session.holds(session.root())), (1, 1));
        }
        assert!(!session.let_go_if_shared(id), "it is the last");
        let other = session.make_description(node, Kind::Regular, 0).unwrap();
        assert!(session.let_go_if_shared(id) && !session.let_go_if_shared(other), "one is told, not both");
    }

    /// Goal: who has a file to himself has it under its other id too, and under its other inode number; files without a
    /// number don't wait for each other.
    #[test]
    fn a_file_of_two_ids_has_one_owner() {
        let (session, node) = session("ids");
        let enter = |name: &[u8], key, ino| {
            let attr = Attr { ino, kind: Kind::Regular, mode: 0o644, nlink: 1, ..Attr::EMPTY };
            let entry = Entry {
                key,
                device: 0,
                attr,
                entry_ns: 1 << 40,
                attr_ns: 1 << 40,
                incarnation: 0,
                handle: None,
                caching: Caching::None,
            };
            session.enter(session.root(), name, &entry, session.moment(), &mut |_, _, _| ()).unwrap()
        };
        let meet = |one, other| {
            let (one, other) = (session.owner_words(one).unwrap(), session.owner_words(other).unwrap());
            one.iter().any(|word| other.iter().any(|same| core::ptr::eq(*word, *same)))
        };
        // What is meant to be apart falls into different words by its numbers.
        assert!(meet(node, enter(b"other id", 3, 2)) && meet(node, enter(b"other number", 2, 3)));
        assert!(!meet(node, enter(b"other", 3, 3)) && !meet(enter(b"none", 4, 0), enter(b"none too", 5, 0)));
        let are_held = || session.owner_words(node).unwrap().iter().all(|word| word.load(Relaxed) != 0);
        assert_eq!(session.alone(node, || Ok(are_held())), Ok(true));
        assert!(!are_held());
    }
}
