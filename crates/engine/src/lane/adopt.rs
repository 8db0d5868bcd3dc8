//! Adopting the lane of a dead thread: its operation happens entirely or not at
//! all, and everything it held is free again. Whoever meets the dead does it.

use super::apply;
use crate::fs::Fs;
use crate::segment::{Cachelet, LaneState, LockWord, cachelet};
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use pm::mutex::Attempt;

impl Fs {
    /// Adopts lane `number` if its holder is dead; otherwise does nothing. True
    /// if nobody holds the lane now.
    #[cold]
    pub(crate) fn adopt_if_dead(&self, number: u32) -> bool {
        let Some(mutex) = self.lane_mutex(number) else { return false };
        if matches!(mutex.try_take(), Attempt::Inherited | Attempt::Taken) {
            // A damaged record is kept for the checker; the locks go either way.
            let _ = self.adopt_lane(number);
            mutex.give_back();
            return true;
        }
        false
    }

    /// Looks at one lane, another one each time that `turn` is another, and
    /// adopts it if its holder died in the middle of something. So whatever the
    /// dead left half done is finished soon, even if nobody needs its names.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_at_a_lane(&self, own: u32, turn: u32) {
        let high = self.header().lanes_high.get();
        let number = turn % high.max(1);
        // A lane that holds nothing can wait for its next user.
        if number != own && self.is_lane_busy(number) {
            self.adopt_if_dead(number);
        }
    }

    /// Whether a lane's state tells of an operation in progress.
    pub(crate) fn is_lane_busy(&self, number: u32) -> bool {
        let state = self.lane_state(number);
        let words =
            [&state.held[0], &state.entered[0], &state.closed[0], &state.slots[0], &state.loading, &state.loading_cachelet];
        self.lane(number).state.load(Acquire) != 0
            || state.reserved_count.load(Relaxed) != 0
            || words.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Adopts the lanes of the process in slot `process`, which has died.
    pub(crate) fn adopt_lanes_of(&self, process: u32) {
        for number in 0..self.header().lanes_high.get() {
            if self.lane_state(number).process.load(Relaxed) == process + 1 {
                self.adopt_if_dead(number);
            }
        }
    }

    /// Cleans up after the last user of a lane. The caller holds its mutex.
    ///
    /// Order: the record first (its words are still protected by the locks),
    /// then reservations and slots, the directories, and the locks last.
    pub(crate) fn adopt_lane(&self, number: u32) -> Result<()> {
        let (lane, state) = (self.lane(number), self.lane_state(number));
        let mut result = Ok(());
        if lane.state.load(Acquire) != 0 {
            let record = apply::valid_record(self, lane);
            if let Some(record) = record {
                result = apply::apply::<true>(self, lane, usize::from(record.ops));
                self.image.fence();
            }
            self.image.store(&lane.state, 0);
            self.image.flush(self.image.offset_of(lane), 8);
            self.image.fence();
            // Not before: were we to die now, the record would be made again, over
            // what others have put into the space that it freed.
            if let Some(record) = record {
                self.release_freed(lane, usize::from(record.ops));
            }
        }
        let sequence = lane.sequence.load(Acquire);
        if state.released.load(Acquire) != sequence {
            // Death came between the end of the record and this.
            self.release_freed_again(number, lane);
            state.released.store(sequence, Release);
        }
        self.forget_loading(number, state);
        self.settle_reservations(number, state);
        self.return_arenas(number, state);
        for slot in &state.slots {
            self.return_slot(number, slot.swap(0, AcqRel));
        }
        for closed in &state.closed {
            if let (1.., Some(directory)) = (closed.load(Relaxed), self.segment.at::<Cachelet>(closed.load(Relaxed))) {
                self.reopen(directory, number);
            }
            closed.store(0, SeqCst);
        }
        for entered in &state.entered {
            entered.store(0, SeqCst);
        }
        for held in state.held.iter().rev() {
            self.free_lock(number, held.load(Acquire));
            held.store(0, Release);
        }
        self.free_lock(number, state.loading_cachelet.swap(0, AcqRel));
        // Offsets of open files that it held.
        for offset in &state.spare2[..crate::process::descriptions::OFFSETS] {
            self.free_lock(number, offset.swap(0, AcqRel));
        }
        for word in [&state.cursor, &state.slot_block].into_iter().chain(&state.pages) {
            word.store(0, Relaxed);
        }
        result
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

    /// The dead lane was loading a page of the shadow: nobody could use the page yet, so it starts afresh.
    fn forget_loading(&self, number: u32, state: &LaneState) {
        let loading = state.loading.swap(0, AcqRel);
        if loading != 0
            && let Some(page) = self.page(loading - 1)
        {
            let _ = page.ready.compare_exchange(crate::alloc::loading_by(number), 0, AcqRel, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use crate::{Cred, Cx, Kind, NewNode, Thread};
    use core::sync::atomic::Ordering::{Acquire, Relaxed};
    use format::lane::{self, State};

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn raise(signal: i32) -> i32;
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
