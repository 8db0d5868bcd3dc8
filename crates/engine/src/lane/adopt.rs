//! Adopting the lane of a dead thread: its operation happens entirely or not at
//! all, and everything it held is free again. Whoever meets the dead does it.

use super::{Tx, apply};
use crate::fs::Fs;
use crate::segment::{Cachelet, LaneState, LockWord, cachelet};
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use format::lane::{Kind, State, word};
use pm::life::Look;
use pm::mutex::{Attempt, Whose};

/// How often, and for how long each time, another adopter is waited for: some 100 ms in all.
const PATIENCE: u32 = 2000;
const NAP: i64 = 50_000;

impl Fs {
    /// Adopts lane `number` if its holder is dead; otherwise does nothing. True
    /// if nobody holds the lane now; while a truncation is left to do the dead holds it.
    #[cold]
    pub(crate) fn adopt_if_dead(&self, number: u32) -> bool {
        self.adopt_in_part(number) == Some(true)
    }

    /// As `adopt_if_dead`: `None` if the holder lives, else whether nothing is left to do.
    #[cold]
    pub(crate) fn adopt_in_part(&self, number: u32) -> Option<bool> {
        self.adopt_after(number, Look::Quick)
    }

    /// As `adopt_if_dead`, after a thorough look.
    #[cold]
    pub(crate) fn adopt_if_proven(&self, number: u32) -> bool {
        self.adopt_after(number, Look::Thorough) == Some(true)
    }

    fn adopt_after(&self, number: u32, look: Look) -> Option<bool> {
        let mutex = self.lane_mutex(number)?;
        if matches!(mutex.try_take_from(Whose::Thread, look), Attempt::Inherited | Attempt::Taken) {
            // A damaged record is kept for the checker; the locks go either way.
            let finished = self.adopt_lane(number) != Ok(false);
            mutex.give_back();
            return Some(finished);
        }
        None
    }

    /// Looks at one lane, another one each time that `turn` is another, and
    /// adopts it if its holder died in the middle of something. So whatever the
    /// dead left half done is finished soon, even if nobody needs its names.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_at_a_lane(&self, own: u32, turn: u32) {
        let high = self.header().lanes_high.get();
        let number = turn % high.max(1);
        // In the middle of a truncation, perhaps a dead one's, which is enough: one adoption is not begun within another.
        if self.lane(own).intent.load(Relaxed) != 0 {
            return;
        }
        // A lane that holds nothing can wait for its next user.
        if number != own && self.is_lane_busy(number) {
            self.adopt_if_dead(number);
        }
    }

    /// Whether a lane's state tells of an operation in progress.
    pub(crate) fn is_lane_busy(&self, number: u32) -> bool {
        let (lane, state) = (self.lane(number), self.lane_state(number));
        let word = lane.state.load(Acquire);
        let (stamp, released) = (State::stamp(word).max(1), state.released.load(Relaxed));
        let words = [&state.held[0], &state.entered[0], &state.closed, &state.slot, &state.loading, &state.loading_cachelet];
        State::counts(word)
            // The record is gone, and what it freed is not the reservation bitmap's yet.
            || ![0, stamp].contains(&released)
            || state.reserved_count.load(Relaxed) != 0
            || words.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Adopts the lanes of the process in slot `process`, which has died, and those
    /// that it may have been adopting: of them, only that they are busy tells. Another
    /// who is adopting one is waited for, so that nothing of the dead happens later.
    pub(crate) fn adopt_lanes_of(&self, process: u32) {
        // An adopter that is stopped is not waited for for ever.
        let mut patience = PATIENCE;
        for number in 0..self.header().lanes_high.get() {
            let its = || self.lane_state(number).process.load(Relaxed) == process + 1;
            if !its() && !self.is_lane_busy(number) {
                continue;
            }
            while !self.adopt_if_proven(number) && its() && patience > 0 {
                patience -= 1;
                pm::file::nap(NAP);
            }
        }
    }

    /// Cleans up after the last user of a lane. The caller holds its mutex.
    ///
    /// Order: the record first (its words are still protected by the locks),
    /// then reservations and slots, the directories, and the locks last. What is
    /// listed stays so until it is given up: an adopter may die too.
    ///
    /// False if a truncation is left to do, which an adopter does in portions: the
    /// lane keeps its note and the file's lock, and is nobody's until all is done.
    pub(crate) fn adopt_lane(&self, number: u32) -> Result<bool> {
        let (lane, state) = (self.lane(number), self.lane_state(number));
        let mut result = Ok(());
        let word = lane.state.load(Acquire);
        if State::counts(word) {
            let record = apply::valid_record(self, lane);
            if let Some(record) = record {
                result = apply::apply::<true>(self, lane, usize::from(record.ops));
                self.image.fence();
            }
            self.image.store(&lane.state, State::ended(word));
            self.image.flush(self.image.offset_of(lane), 8);
            self.image.fence();
            // Not before: were we to die now, the record would be made again, over
            // what others have put into the space that it freed.
            self.forget_loading(number, state);
            if let Some(record) = record {
                self.release_freed(number, usize::from(record.ops));
                state.released.store(State::stamp(word), Release);
            }
        }
        self.forget_loading(number, state);
        // Death came after the end of the record: some of it may have been released.
        let (stamp, released) = (State::stamp(word), state.released.load(Acquire));
        // 0: no record since the segment was made, which has what earlier ones freed.
        if ![0, stamp].contains(&released) {
            self.release_freed_again(number);
        }
        state.released.store(stamp.max(1), Release);
        self.settle_reservations(number, state);
        if result.is_ok() && lane.intent.load(Acquire) != 0 && !self.finish_noted(number) {
            return Ok(false);
        }
        self.return_arenas(number, state);
        self.return_slot(number, state.slot.load(Acquire));
        state.slot.store(0, Release);
        let closed = state.closed.load(Relaxed);
        if let (1.., Some(directory)) = (closed, self.segment.at::<Cachelet>(closed)) {
            self.reopen(directory, number);
        }
        state.closed.store(0, SeqCst);
        for entered in &state.entered {
            entered.store(0, SeqCst);
        }
        // Offsets of open files come first, the lock taken first comes last: by it a lane is known to be busy.
        for held in state.offsets.iter().chain([&state.loading_cachelet]).chain(state.held.iter().rev()) {
            self.free_lock(number, held.load(Acquire));
            held.store(0, Release);
        }
        state.unopened.store(0, Release);
        state.waits_for.store(0, Relaxed);
        state.called_off.store(0, Relaxed);
        // What was recorded has happened: whoever reads the tree next sees it.
        state.changing.store(0, SeqCst);
        for word in [&state.cursor, &state.slot_block].into_iter().chain(&state.chunks) {
            word.store(0, Relaxed);
        }
        result.map(|()| true)
    }

    /// Goes on with the truncation that a dead lane has noted, on that lane, so that
    /// the next adopter goes on where we die; whether it is finished.
    ///
    /// A note counts only while its lane has the file's lock: until then nobody can
    /// have freed the inode. So the lock goes after the note.
    fn finish_noted(&self, number: u32) -> bool {
        let (lane, state) = (self.lane(number), self.lane_state(number));
        let (id, end) = (lane.intent.load(Acquire), lane.intent_arg.load(Acquire));
        let file = state.held.iter().find_map(|held| {
            let file = self.cachelet_locked_by(number, held.load(Acquire))?;
            let is_its = file.node.load(Acquire) == id && file.flags.load(Acquire) & cachelet::DEAD == 0;
            (is_its && self.reload(number, file, id).is_ok() && self.is_as_noted(id, end)).then_some(file)
        });
        // Its lock comes first in the list; the others go, and those that we need follow it.
        if let Some(file) = file {
            let at = self.segment.offset_of(&file.owner);
            for held in state.held.iter().rev().map(|held| held.load(Acquire)).filter(|held| *held != at) {
                self.free_lock(number, held);
            }
            state.held[0].store(at, Release);
            state.held.iter().skip(1).for_each(|held| held.store(0, Release));
        }
        let mut tx = self.tx_of_dead(number);
        let finished = file.is_none_or(|file| self.cut_noted(&mut tx, file, id));
        tx.abandon();
        if finished {
            let at = self.image.offset_of(lane) + word::INTENT;
            // Two stores to the lane itself.
            let _ = tx.set(at, 0).and_then(|()| tx.commit());
        }
        tx.unlock_to(1);
        finished
    }

    /// An operation that goes on for a dead lane, whose lock listed first stays: its end is for `adopt_lane`.
    fn tx_of_dead(&self, number: u32) -> Tx<'_> {
        let mut tx = Tx::new(self, number, Kind::Truncate, false);
        (tx.held, tx.over) = (1, true);
        tx
    }

    /// The cachelet whose `owner`, at segment offset `at`, is lane `number`.
    fn cachelet_locked_by(&self, number: u32, at: u64) -> Option<&Cachelet> {
        self.cachelet_of_owner(at).filter(|file| file.owner.load(Acquire) == number + 1)
    }

    /// The cachelet whose `owner` is at segment offset `at`.
    pub(crate) fn cachelet_of_owner(&self, at: u64) -> Option<&Cachelet> {
        let index = at.checked_sub(self.areas.cachelets)? / size_of::<Cachelet>() as u64;
        let cachelet = self.cachelet(u32::try_from(index).ok()?)?;
        (self.segment.offset_of(&cachelet.owner) == at).then_some(cachelet)
    }

    /// Frees the lock at segment offset `at` if lane `number` holds it; an inode
    /// that was being changed is loaded again by whoever comes next.
    fn free_lock(&self, number: u32, at: u64) {
        let Some(word) = (at != 0).then(|| self.segment.at::<LockWord>(at)).flatten() else { return };
        if word.load(Acquire) != number + 1 {
            return;
        }
        if at >= self.areas.cachelets {
            let index = (at - self.areas.cachelets) / size_of::<Cachelet>() as u64;
            if let Some(cachelet) = self.cachelet(index as u32) {
                cachelet.flags.fetch_or(cachelet::INVALID, SeqCst);
                self.overwritten_by_dead(cachelet);
                self.hole_filled_by_dead(cachelet);
                // The record may have taken its name away.
                cachelet.parent.store(0, SeqCst);
                cachelet.map_sequence.store((cachelet.map_sequence.load(Acquire).wrapping_add(2)) & !1, Release);
                self.reopen(cachelet, number);
                if cachelet.sequence.load(Acquire) & 1 == 1 {
                    cachelet.sequence.fetch_add(1, AcqRel);
                }
            }
        }
        let _ = word.compare_exchange(number + 1, 0, AcqRel, Relaxed);
    }

    /// The dead lane was loading a chunk of the reservation bitmap: nobody could use the chunk yet, so it starts afresh.
    fn forget_loading(&self, number: u32, state: &LaneState) {
        let loading = state.loading.load(Acquire);
        if loading != 0
            && let Some(chunk) = self.chunk(loading - 1)
        {
            let _ = chunk.ready.compare_exchange(crate::alloc::loading_by(number), 0, AcqRel, Relaxed);
        }
        state.loading.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use crate::{Cred, Cx, Kind, NewNode, Thread};
    use core::sync::atomic::Ordering::{Acquire, Relaxed};
    use format::lane::{self, State};
    use openfiles::Handover;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn raise(signal: i32) -> i32;
    }

    /// Publishes the record of an operation and makes its stores, as far as a death lets it: it is not retired.
    fn die_applied(tx: super::super::Tx) -> u32 {
        let (fs, number, lane) = (tx.fs, tx.number, tx.lane);
        let ops = lane.ops.iter().take_while(|op| op.place.load(Relaxed) != 0).count();
        let state = State { sequence: 4711, kind: lane::Kind::Unlink as u16, objects: 0, ops: ops as u8 };
        fs.image.store(&lane.checksum, super::apply::mark(state));
        fs.image.store(&lane.state, state.pack());
        super::apply::apply::<false>(fs, lane, ops).unwrap();
        core::mem::forget(tx);
        number
    }

    /// An operation on a lane whose earlier records are forgotten.
    fn fresh_tx<'a>(test: &'a TestFs, thread: &'a Thread) -> super::super::Tx<'a> {
        let tx = test.begin(&Cx { cred: Cred::ROOT, umask: 0, thread }, lane::Kind::Unlink).unwrap();
        tx.lane.ops.iter().for_each(|op| op.place.store(0, Relaxed));
        tx
    }

    /// Goal: what a record has freed is nobody else's before the record is gone, even where the chunk of the reservation bitmap
    /// is loaded just then: it would be freed once more, under its new owner. Method: death between the stores and
    /// the end of the record; another lane loads the chunk, and takes all it gets; then the dead is adopted.
    #[test]
    fn what_a_record_frees_is_not_taken_while_it_can_be_made_again() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&cx, root, b"file", &new).unwrap();
        test.give_lane_back(&test.thread);
        let offset = format::inode::node_offset(node.id);
        let block = offset / format::layout::BLOCK;
        let bit = 1u64 << (offset % format::layout::BLOCK / format::LINE);
        let chunk = test.chunk(block / crate::alloc::reservation::CHUNK_BLOCKS).unwrap();
        chunk.ready.store(0, Relaxed);

        let dead = Thread::new();
        let mut tx = fresh_tx(&test, &dead);
        tx.free_lines(offset, 1).unwrap();
        let number = die_applied(tx);
        let used = || test.fs.image.word(format::layout::Layout::bitmap_word(block)).unwrap().load(Acquire);
        assert_eq!(used() & bit, 0);

        let thread = Thread::new();
        let mut tx = test.begin(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, lane::Kind::Create).unwrap();
        test.ready_chunk(tx.number, tx.state, block / crate::alloc::reservation::CHUNK_BLOCKS).unwrap();
        let reserved = || test.reservation_word(block).unwrap().load(Acquire);
        assert_ne!(reserved() & bit, 0, "free for others while its record can be made again");
        let first = block / crate::alloc::reservation::CHUNK_BLOCKS * crate::alloc::reservation::CHUNK_BLOCKS;
        let words = (first..first + crate::alloc::reservation::CHUNK_BLOCKS)
            .map(|block| test.reservation_word(block).unwrap().load(Acquire));
        assert_eq!(chunk.free.load(Relaxed), words.map(u64::count_zeros).sum());
        tx.new_lines(1, crate::alloc::Arena::Inodes).unwrap();
        test.adopt_lane(number).unwrap();
        assert_eq!((used() & bit, reserved() & bit), (0, 0), "lost");
        drop(tx);
    }

    /// Goal: a slot that a record has emptied and another name has got since then keeps that name when the record
    /// is made again. Method: as above.
    #[test]
    fn a_slot_taken_again_is_not_emptied_again() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        test.create(&cx, root, b"file", &new).unwrap();
        let slot = test.slot_offset(test.inode(format::inode::node_offset(root.id)).unwrap(), 0).unwrap().unwrap();
        let word = test.fs.image.word(slot).unwrap();
        let (was, theirs) = (word.load(Acquire), 0x12_3400);
        for (again, after) in [(theirs, theirs), (was, 0), (0, 0)] {
            word.store(was, Relaxed);
            let dead = Thread::new();
            let mut tx = fresh_tx(&test, &dead);
            tx.list(super::super::record::Empty { word, was }).unwrap();
            let number = die_applied(tx);
            assert_eq!(word.load(Acquire), 0);
            word.store(again, Relaxed);
            test.adopt_lane(number).unwrap();
            assert_eq!(word.load(Acquire), after);
            test.lane_mutex(number).unwrap().give_back();
        }
    }

    /// Goal: an operation cut off between its record and its stores is finished
    /// though nobody needs what it had locked. Method: a child does just that
    /// and dies; this process works on other names until a look came to the lane.
    #[test]
    fn the_dead_are_met_in_passing() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let node = test.create(&cx, root, b"touched", &new).unwrap();
        let mtime = || test.inode(format::inode::node_offset(node.id)).unwrap().mtime.load(Relaxed);
        // In no bucket whose lock the names below need.
        let lock = test.bucket_lock(777);
        let token = test.fork_prepare(&cx).unwrap();
        // SAFETY: the child ends itself.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            test.fork_child(token);
            let mut tx = test.begin(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, lane::Kind::SetAttr).unwrap();
            tx.lock_bucket(777).unwrap();
            let inode = test.inode(format::inode::node_offset(node.id)).unwrap();
            tx.set(test.fs.image.offset_of(&inode.mtime), 4711).unwrap();
            let state = State { sequence: 1, kind: lane::Kind::SetAttr as u16, objects: 0, ops: 1 };
            test.fs.image.store(&tx.lane.checksum, super::apply::mark(state));
            test.fs.image.store(&tx.lane.state, state.pack());
            // SAFETY: a signal to ourselves.
            unsafe { raise(9) };
        }
        // SAFETY: a child of ours.
        unsafe { waitpid(pid, core::ptr::null_mut(), 0) };
        assert_ne!(lock.load(Acquire), 0);
        assert_ne!(mtime(), 4711);
        for i in 0..super::super::LOOK_EVERY * (test.header().lanes_high.get() + 1) {
            test.set_attr(&cx, node, &crate::SetAttr { mode: Some(0o600 | (i & 0o77) as u16), ..Default::default() }).unwrap();
        }
        assert_eq!((lock.load(Acquire), mtime()), (0, 4711));
    }
}
