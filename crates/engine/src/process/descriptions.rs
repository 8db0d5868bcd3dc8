//! Open file descriptions: made, held by descriptors of any process, ended by the last.
//!
//! How they are counted, and why nobody's death leaves a count: [`openfiles::refcount`].
//!
//! A description pins its node's cachelet (`opens`). Pinning and taking away are
//! a matter of flag and count: an opener counts first and then looks at the
//! flags; whoever wants to evict the cachelet, or to free the inode, sets
//! `EVICTING` (or `DELETING`) first and then looks at the count. One of the two
//! sees the other. An opener who finds the flag waits with his count in place:
//! either the other saw it and leaves the inode (as an orphan, if its last name
//! is gone), or he did not, and the node or `DEAD` tells. Whoever takes the
//! count to 0 does what is left to do for an inode without names.
//!
//! Counting and noting that one has counted are two steps. Between them the mark
//! in `pin` says `DOUBT`; if death comes then, the adopter counts the marks
//! of all descriptions (`recount_pins`), one adopter at a time, under the lock of
//! the descriptions. `generation` rises before a mark goes, so that nobody can
//! count and be counted unnoticed while that is going on.

use super::table::PAGE_DESCRIPTORS;
use crate::alloc::fault;
use crate::fs::{Fs, corrupt};
use crate::lane::lock::Waiter;
use crate::segment::cachelet::EXECUTED;
use crate::segment::{Cachelet, DESCRIPTIONS, DESCRIPTORS, cachelet};
use base::{Cred, Cx, DescriptionId, Node, Result, Thread};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};
use format::inode::node_offset;
use format::lane::Kind;
use openfiles::OpenFile;
use openfiles::Processes;
use openfiles::TOLD;
use openfiles::refcount::{self, Holders};
use pm::Errno;
use pm::life::Look;
use pm::sys::abi;

/// In `pin`: the description holds a pin on its cachelet.
pub(crate) const PINNED: u32 = 1;
/// In `pin`: the pin is being taken or given up.
pub(crate) const DOUBT: u32 = 2;
/// In `pin`: died in doubt, and is being settled.
const SETTLING: u32 = 3;
/// How often an adopter counts until nobody else is in doubt.
const COUNTS: u32 = 100;
/// Flags of a cachelet that is to be looked at before it is pinned.
const ODD: u32 = cachelet::EVICTING | cachelet::DELETING | cachelet::DEAD | cachelet::INVALID;
/// How often a cachelet may be another node's by the time it has been pinned.
const PINS: u32 = 64;
/// Descriptions that get real space at a time.
const STEP: u32 = 256;
/// Marks an owner of an offset that has no lane: process number + 1 below.
const BY_PROCESS: u32 = 1 << 31;

const _: () = assert!(
    format::layout::PROCESSES as u64 <= refcount::PROCESSES_MAX
        && DESCRIPTORS <= refcount::ENTRIES_MAX
        && DESCRIPTIONS as u64 <= refcount::DESCRIPTIONS_MAX
);

/// What stands for a description that does not exist.
static NOTHING: OpenFile = OpenFile::new();

impl Fs {
    /// Makes a description of `node`, held by descriptor `fd` of this process.
    /// `ENFILE` when there are too many, `ESTALE` if the node is gone, `ENOSPC`; `EROFS` to write to one that is frozen.
    pub fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        let process = self.own_process()?;
        let writes = flags & abi::O_ACCMODE != abi::O_RDONLY && flags & abi::O_PATH == 0;
        let place = self.own_descriptor(fd)?;
        let (id, description) = self.take_description(cx, process)?;
        description.node.store(node.id, Relaxed);
        let cachelet = match self.pin(cx, node, description) {
            Ok(cachelet) => cachelet,
            Err(error) => {
                description.refs.store(0, Release);
                return Err(error);
            }
        };
        // Counted first, then looked at: who freezes a file looks the other way round.
        if writes
            && cachelet.flags.load(SeqCst) & EXECUTED != 0
            && let Err(error) = self.may_change(node)
        {
            self.unpin(cx, cachelet, description);
            description.refs.store(0, Release);
            return Err(error);
        }
        description.flags.store(flags, Relaxed);
        description.offset.store(0, Relaxed);
        description.offset_owner.store(0, Relaxed);
        description.kind.store(cachelet.mode.load(Relaxed) >> 16 & 0xff, Relaxed);
        if place.compare_exchange(0, id + 1, AcqRel, Relaxed).is_err() {
            self.put(cx, process, fd, id);
        }
        pm::touched();
        description.refs.store(refcount::opened(process, fd), Release);
        Ok(id)
    }

    /// The table of descriptions.
    pub fn descriptions(&self) -> pm::Table<OpenFile> {
        self.opens.descriptions
    }

    /// The description with this number.
    #[inline]
    pub fn description(&self, id: DescriptionId) -> &OpenFile {
        self.opens.descriptions.get(id).unwrap_or(&NOTHING)
    }

    /// Descriptor `fd` of this process holds `id` too. `EBADF` if nobody holds it.
    pub fn dup(&self, id: DescriptionId, fd: u32) -> Result<()> {
        let place = self.own_descriptor(fd)?;
        let process = self.own_process()?;
        if place.load(Acquire) != 0 {
            self.with_own_context(|cx| self.give_up(cx, process, fd));
        }
        if refcount::get(self, process, fd, id) { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    /// Descriptor `fd` of this process lets go of whatever it holds.
    pub fn close(&self, cx: &Cx, fd: u32) {
        if let Some(rest) = self.close_fast(fd) {
            self.close_rest(cx, fd, rest);
        }
    }

    /// A descriptor of this process lets go of whatever it holds, shared or not.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_up(&self, cx: &Cx, process: u32, fd: u32) {
        if let Some(id) = refcount::put(self, process, fd) {
            self.end_description(cx, id, self.description(id));
        }
    }

    /// A descriptor of this process holds a description that is being made, in place of whatever it holds.
    #[cold]
    #[inline(never)]
    pub(super) fn put(&self, cx: &Cx, process: u32, fd: u32, id: DescriptionId) {
        refcount::install(self, process, fd, id, |last| self.end_description(cx, last, self.description(last)));
    }

    /// Ends a description that is marked as being ended.
    #[inline(never)]
    pub(crate) fn end_description(&self, cx: &Cx, id: DescriptionId, description: &OpenFile) {
        let told = description.locks.load(SeqCst) & TOLD != 0;
        if told {
            self.tell_closed(cx, description);
        }
        self.description_ends(cx, id, description.node.load(Relaxed));
        if description.pin.load(Acquire) == PINNED
            && let Some(cachelet) = self.cachelet(description.hint.load(Relaxed))
        {
            self.unpin(cx, cachelet, description);
        }
        if told {
            self.tell_if_gone(cx, description.node.load(Relaxed));
        }
        description.refs.store(0, Release);
        self.description_hint.store(id, Relaxed);
    }

    /// Ends the descriptions that a dead process was making or ending. False if some are left, for the next who looks.
    pub(super) fn end_half_made_of(&self, cx: &Cx, process: u32) -> bool {
        let half_made = || {
            (0..self.header().descriptions_high.get())
                .map(|id| (id, self.description(id)))
                .filter(|(_, description)| description.refs.load(Acquire) == refcount::making(process))
        };
        // All of them first: one thread's doubt is not to be waited for when another's is settled.
        for (_, description) in half_made().filter(|(_, description)| description.pin.load(Acquire) == DOUBT) {
            // Not counted from here on; if we die too, the next adopter finds it again.
            description.pin.store(SETTLING, SeqCst);
        }
        let mut ended = true;
        for (id, description) in half_made() {
            if self.settle_pin(cx, description) {
                self.end_description(cx, id, description);
            } else {
                ended = false;
            }
        }
        ended
    }

    /// After a death between counting a pin and noting it. False if that can't be settled now.
    fn settle_pin(&self, cx: &Cx, description: &OpenFile) -> bool {
        let (mark, number) = (description.pin.load(Acquire), description.hint.load(Relaxed));
        let Some(cachelet) = self.cachelet(number) else { return true };
        if mark == SETTLING && !self.recount_pins(cx, number, cachelet) {
            return false;
        }
        if mark != PINNED {
            forget_pin(description, 0);
            let id = cachelet.node.load(SeqCst);
            // The last one may have died before he did what the last one does.
            if id == description.node.load(Relaxed) && cachelet.opens.load(SeqCst) == 0 {
                self.last_close(cx, cachelet, id);
            }
        }
        true
    }

    /// Takes off the count of a cachelet what nobody's mark stands for. False if somebody stays in doubt. Where
    /// no lane is to be had that is left to whoever settles the next one, at the latest to whoever attaches alone.
    fn recount_pins(&self, cx: &Cx, number: u32, cachelet: &Cachelet) -> bool {
        for count in 0..COUNTS {
            if self.try_recount(cx, number, cachelet).unwrap_or(true) {
                return true;
            }
            // Somebody alive is in doubt, but not for long once he runs.
            if count < 10 { pm::file::give_way() } else { pm::file::nap(50_000) }
        }
        false
    }

    /// One try; whether it was one: nobody was in doubt, and nothing moved.
    fn try_recount(&self, cx: &Cx, number: u32, cachelet: &Cachelet) -> Result<bool> {
        let mut tx = self.begin(cx, Kind::SetAttr)?;
        // Two who have counted the same would both take off what is too much.
        tx.lock(&self.header().descriptions.0)?;
        let before = self.count_pins(number);
        let opens = cachelet.opens.load(SeqCst);
        let is_certain = before == self.count_pins(number) && before.1 == 0;
        if is_certain {
            // This is how it was at one instant, and what was too much then is too
            // much now: nobody else takes it off.
            cachelet.opens.fetch_sub(opens.saturating_sub(before.0), SeqCst);
        }
        Ok(is_certain)
    }

    /// Marks on a cachelet: certain ones, doubtful ones; and the generations of all descriptions.
    fn count_pins(&self, number: u32) -> (u32, u32, u64) {
        let (mut certain, mut doubtful, mut generations) = (0, 0, 0u64);
        for id in 0..self.header().descriptions_high.get() {
            let description = self.description(id);
            // In this order: the generation rises before a mark goes.
            let mark = description.pin.load(SeqCst);
            if description.hint.load(SeqCst) == number {
                certain += u32::from(mark == PINNED);
                doubtful += u32::from(mark == DOUBT);
            }
            generations += u64::from(description.generation.load(SeqCst));
        }
        (certain, doubtful, generations)
    }

    /// Whether any description is in use.
    pub(super) fn any_description(&self) -> bool {
        let high = self.header().descriptions_high.get();
        (0..high).any(|id| self.description(id).refs.load(Acquire) != 0)
    }

    /// A free description, marked as being made by `process`.
    #[inline]
    fn take_description(&self, cx: &Cx, process: u32) -> Result<(DescriptionId, &OpenFile)> {
        if fault::strikes(fault::Kind::Description) {
            return Err(Errno::ENFILE.into());
        }
        let hint = self.description_hint.load(Relaxed);
        if self.header().descriptions_high.has(hint)
            && let Some(found) = self.try_description(hint, process)
        {
            return Ok(found);
        }
        self.search_description(cx, process)
    }

    #[inline]
    pub(crate) fn try_description(&self, id: DescriptionId, process: u32) -> Option<(DescriptionId, &OpenFile)> {
        let description = self.opens.descriptions.get(id)?;
        if description.refs.load(Relaxed) == 0
            && description.refs.compare_exchange(0, refcount::making(process), AcqRel, Relaxed).is_ok()
        {
            self.description_hint.store(id + 1, Relaxed);
            return Some((id, description));
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn search_description(&self, cx: &Cx, process: u32) -> Result<(DescriptionId, &OpenFile)> {
        let header = self.header();
        for attempt in 0..2 {
            for _ in 0..=DESCRIPTIONS / STEP {
                let high = header.descriptions_high.get();
                let start = self.description_hint.load(Relaxed);
                for i in 0..high {
                    if let Some(found) = self.try_description(start.wrapping_add(i) % high, process) {
                        return Ok(found);
                    }
                }
                if high >= DESCRIPTIONS {
                    break;
                }
                self.more_descriptions(high)?;
            }
            if attempt == 0 {
                self.adopt_dead_processes(cx);
            }
        }
        Err(Errno::ENFILE.into())
    }

    /// Memory for some more descriptions than `high`. `ENFILE` where there is none: to open is no reason to be told of a full disk.
    pub(super) fn more_descriptions(&self, high: u32) -> Result<()> {
        let size = size_of::<OpenFile>() as u64;
        let space = self.segment_space(self.areas.descriptions + u64::from(high) * size, u64::from(STEP) * size);
        space.map_err(|_| Errno::ENFILE)?;
        self.header().descriptions_high.raise(high + STEP);
        if self.is_watched() {
            self.mark_descriptions();
        }
        Ok(())
    }

    /// Where no call's context is at hand: with a lane of its own for the moment.
    #[cold]
    pub(crate) fn with_own_context(&self, run: impl FnOnce(&Cx)) {
        let thread = Thread::new();
        run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        self.give_lane_back(&thread);
    }

    // ---- pins ----

    /// Pins a node's cachelet: neither it nor the inode goes away. `ESTALE` if the node is gone.
    fn pin(&self, cx: &Cx, node: Node, description: &OpenFile) -> Result<&Cachelet> {
        for _ in 0..PINS {
            let cachelet = self.cached(cx, node)?;
            description.hint.store(self.cachelet_number(cachelet), Relaxed);
            description.pin.store(DOUBT, Release);
            pm::touched();
            // Count first, then look: see above.
            cachelet.opens.fetch_add(1, SeqCst);
            pm::touched();
            let flags = cachelet.flags.load(SeqCst);
            let pinned = flags & ODD == 0 && cachelet.node.load(SeqCst) == node.id;
            let kept = if pinned { Ok(true) } else { self.pin_slow(cx, cachelet, node.id) };
            if kept == Ok(true) {
                description.pin.store(PINNED, Release);
                return Ok(cachelet);
            }
            self.unpin(cx, cachelet, description);
            kept?;
        }
        Err(corrupt("cachelet", node_offset(node.id)))
    }

    /// Waits until nobody wants to take the cachelet away; whether it is still the node's.
    #[cold]
    #[inline(never)]
    pub(super) fn pin_slow(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<bool> {
        let mut wait = Waiter::by(self, cx);
        loop {
            let flags = cachelet.flags.load(SeqCst);
            if cachelet.node.load(SeqCst) != id || flags & cachelet::DEAD != 0 {
                return Ok(false);
            }
            if flags & ODD == 0 {
                return Ok(true);
            }
            if flags & cachelet::INVALID != 0 {
                // Left by the dead, who may have removed the node.
                match self.revalidate(cx, cachelet, id) {
                    Ok(()) => continue,
                    Err(base::Error::Posix(Errno::ESTALE)) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            if !wait.once(self, cachelet::closer(flags)) {
                self.reopen_forgotten(cachelet, flags);
            }
            wait.check(self)?;
            if wait.is_nonsense() {
                return Err(corrupt("flags of a cachelet", node_offset(id)));
            }
        }
    }

    /// Gives up a pin; the last one does what is left to do for an inode without names.
    pub(crate) fn unpin(&self, cx: &Cx, cachelet: &Cachelet, description: &OpenFile) {
        description.pin.store(DOUBT, Release);
        pm::touched();
        let last = cachelet.opens.fetch_sub(1, SeqCst) == 1;
        pm::touched();
        forget_pin(description, 0);
        pm::touched();
        if last {
            self.last_unpin(cx, cachelet);
        }
    }

    /// Nobody has the node of a cachelet open any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn last_unpin(&self, cx: &Cx, cachelet: &Cachelet) {
        let id = cachelet.node.load(SeqCst);
        if id != 0 && cachelet.flags.load(SeqCst) & cachelet::DEAD == 0 {
            self.last_close(cx, cachelet, id);
        }
    }

    // ---- offsets ----

    /// Takes a description's offset for this thread.
    #[inline]
    pub fn offset_lock(&self, cx: &Cx, id: DescriptionId) {
        let word = &self.description(id).offset_owner;
        let owner = self.offset_owner(cx, word);
        if word.compare_exchange(0, owner, Acquire, Relaxed).is_err() {
            self.offset_wait(cx, word, owner);
        }
    }

    /// Gives the offset back.
    #[inline]
    pub fn offset_unlock(&self, cx: &Cx, id: DescriptionId) {
        let word = &self.description(id).offset_owner;
        word.store(0, Release);
        if let Some(number) = self.own_lane(cx.thread).get().checked_sub(1) {
            let at = self.segment.offset_of(word);
            for listed in &self.lane_state(number).offsets {
                if listed.load(Relaxed) == at {
                    listed.store(0, Release);
                }
            }
        }
    }

    /// Who takes the offset: the lane of this thread, which lists it first.
    #[inline]
    fn offset_owner(&self, cx: &Cx, word: &AtomicU32) -> u32 {
        let Ok(number) = self.lane_of(cx) else {
            return BY_PROCESS | self.process.load(Relaxed);
        };
        let list = &self.lane_state(number).offsets;
        if let Some(free) = list.iter().find(|listed| listed.load(Relaxed) == 0) {
            free.store(self.segment.offset_of(word), Release);
        }
        number + 1
    }

    /// An offset whose word names nobody again and again is not worth more: it is whoever's comes.
    #[cold]
    #[inline(never)]
    fn offset_wait(&self, cx: &Cx, word: &AtomicU32, owner: u32) {
        let mut wait = Waiter::by(self, cx);
        // For processes, which it knows nothing of.
        let mut process_wait = Waiter::new();
        let mut rounds = 0u32;
        while let Err(holder) = word.compare_exchange(0, owner, Acquire, Relaxed) {
            rounds = rounds.wrapping_add(1);
            if holder & BY_PROCESS == 0 {
                if !wait.once(self, holder) {
                    // Nobody who is there has it.
                    let _ = word.compare_exchange(holder, 0, AcqRel, Relaxed);
                }
                if wait.is_nonsense() {
                    break;
                }
                continue;
            }
            process_wait.once(self, 0);
            let process = (holder & !BY_PROCESS).wrapping_sub(1);
            if rounds.is_multiple_of(1000) && !self.adopt_process_if_dead(cx, process, Look::Thorough) {
                let _ = word.compare_exchange(holder, 0, AcqRel, Relaxed);
            }
        }
    }
}

impl Holders for Fs {
    fn entry(&self, process: u32, fd: u32) -> Option<&AtomicU32> {
        // A table without space yet holds nothing; a word may say it does.
        let page = self.process_slot(process).map_or(0, |slot| slot.table_pages.load(Acquire));
        if page.checked_shr(fd / PAGE_DESCRIPTORS as u32).unwrap_or(0) & 1 == 0 {
            return None;
        }
        self.descriptor(process, fd)
    }

    fn refs(&self, id: DescriptionId) -> &AtomicU64 {
        &self.description(id).refs
    }

    fn pause(&self, turns: u32) -> bool {
        pm::file::pause(turns)
    }
}

/// Takes the mark off a description: `none` is 0.
#[inline]
pub(crate) fn forget_pin(description: &OpenFile, none: u32) {
    description.generation.store(description.generation.load(Relaxed).wrapping_add(1), Release);
    description.pin.store(none, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewNode;
    use crate::testing::TestFs;
    use std::sync::Barrier;

    /// Goal: a peer's word about the table's length gives nobody a description that is not there. Method: the
    /// word says anything while this process looks behind the table's end first, as it does after the last one.
    #[test]
    fn no_description_behind_the_end() {
        let test = TestFs::new(64 << 20);
        let (cx, new) = (test.cx(), NewNode { kind: base::Kind::Regular, mode: 0o644, rdev: 0, target: b"" });
        let node = test.create(&cx, test.root_node(), b"file", &new).unwrap();
        test.open(&cx, node, 0, 3).unwrap();
        let at = core::mem::offset_of!(crate::segment::Header, descriptions_high) as u64;
        test.fs.segment.at::<AtomicU32>(at).unwrap().store(u32::MAX, SeqCst);
        for hint in [DESCRIPTIONS, u32::MAX] {
            test.description_hint.store(hint, SeqCst);
            assert!(test.open(&cx, node, 0, 4).unwrap() < DESCRIPTIONS);
            test.close(&cx, 4);
            assert_eq!(NOTHING.refs.load(SeqCst), 0);
        }
    }

    /// Goal: adopters who settle doubts on one file at the same time take off what is
    /// too much once. Method: two processes that died in doubt, both after they had
    /// counted, beside a pin that stays; two threads adopt one each.
    #[test]
    fn two_adopters_take_a_surplus_off_once() {
        let test = TestFs::new(64 << 20);
        let new = NewNode { kind: base::Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&test.cx(), test.root_node(), b"file", &new).unwrap();
        let fs: &Fs = &test;
        let kept = fs.description(test.open(&test.cx(), node, 0, 3).unwrap());
        let cachelet = fs.cachelet(kept.hint.load(Relaxed)).unwrap();
        // Far above what this process has.
        let dead = [200, 201].map(|id| fs.description(id));
        let barrier = Barrier::new(dead.len());
        let adopt = |description: &OpenFile, process: u32| {
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            for _ in 0..2000 {
                description.node.store(node.id, Relaxed);
                description.hint.store(kept.hint.load(Relaxed), Relaxed);
                description.pin.store(DOUBT, SeqCst);
                cachelet.opens.fetch_add(1, SeqCst);
                description.refs.store(refcount::making(process), SeqCst);
                barrier.wait();
                fs.end_half_made_of(&cx, process);
                barrier.wait();
                assert_eq!(cachelet.opens.load(SeqCst), 1);
                barrier.wait();
            }
            fs.give_lane_back(&thread);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| adopt(dead[0], 5));
            adopt(dead[1], 6);
        });
        assert_eq!(test.census().pins, 1);
    }

    /// Goal: a doubt of somebody who lives and does not run keeps no adopter long, and leaves no count: the dead
    /// is settled later. Method: a process that died in doubt, and a description in doubt on the same file.
    #[test]
    fn what_is_kept_in_doubt_is_settled_later() {
        let test = TestFs::new(64 << 20);
        let new = NewNode { kind: base::Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&test.cx(), test.root_node(), b"file", &new).unwrap();
        let kept = test.description(test.open(&test.cx(), node, 0, 3).unwrap());
        let cachelet = test.cachelet(kept.hint.load(Relaxed)).unwrap();
        let [dead, living] = [200, 201].map(|id| test.description(id));
        for (description, process) in [(dead, 5), (living, 6)] {
            description.node.store(node.id, Relaxed);
            description.hint.store(kept.hint.load(Relaxed), Relaxed);
            description.pin.store(DOUBT, SeqCst);
            cachelet.opens.fetch_add(1, SeqCst);
            description.refs.store(refcount::making(process), SeqCst);
        }
        assert!(!test.end_half_made_of(&test.cx(), 5));
        assert_eq!((cachelet.opens.load(SeqCst), dead.refs.load(SeqCst)), (3, refcount::making(5)));
        living.pin.store(PINNED, SeqCst);
        assert!(test.end_half_made_of(&test.cx(), 5));
        assert_eq!((cachelet.opens.load(SeqCst), dead.refs.load(SeqCst)), (2, 0));
        assert!(test.end_half_made_of(&test.cx(), 6));
        assert_eq!(test.census().pins, 1);
    }
}
