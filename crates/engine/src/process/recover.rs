//! Nobody lives: what the lanes' records say is finished, and what was begun is not there.
//! Others live: what the dead have left is finished beside them.
//!
//! The same `apply` as in life. Nothing here depends on the number of files:
//! records are found in the lanes; orphans and half-done truncations are
//! finished a few at a time, the rest at the next opportunity.

use crate::fs::Fs;
use crate::lane::apply;
use base::{Cx, Node, Result};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use format::inode::{node_offset, word};
use format::lane::{Op, State};
use format::{Lane, layout};
use pm::Errno;

/// How long attaching may spend on orphans, nanoseconds.
const WORK_NS: i64 = 2_000_000;

/// How many truncations under way are believed: one is a thread's that had to be killed. The other lanes stay usable.
const NOTES: u32 = layout::LANES / 2;

/// A bit for each lane.
pub(crate) type Lanes = [u64; LANE_WORDS];
const LANE_WORDS: usize = layout::LANES as usize / 64;

/// Nothing is left to finish.
const NOTHING: u32 = 0;
/// There may be something.
const WORK: u32 = 1;
/// What can be done beside others is done.
const NO_MORE: u32 = 2;

impl Fs {
    /// Applies every whole record and retires it. Alone, before the segment is made.
    /// Returns the lanes whose record went on with the truncation that they have noted.
    pub(crate) fn recover_records(&self) -> Result<Lanes> {
        let mut any = false;
        let mut cutting = [0; LANE_WORDS];
        for number in self.lane_numbers() {
            let lane = self.lane(number);
            let word = lane.state.load(Acquire);
            if !State::counts(word) {
                continue;
            }
            any = true;
            if let Some(record) = apply::valid_record(self, lane) {
                apply::apply::<true>(self, lane, usize::from(record.ops))?;
                self.image.fence();
                if self.cuts_noted(lane, usize::from(record.ops)) {
                    cutting[number as usize / 64] |= 1 << (number % 64);
                }
            }
            self.image.store(&lane.state, State::ended(word));
            self.image.flush(self.image.offset_of(lane), 8);
        }
        if any {
            self.image.fence();
        }
        Ok(cutting)
    }

    /// Whether the first `count` operations in a lane change the blocks of the file whose truncation it has
    /// noted: each record of a truncation does. Else other work came after the note, and the inode may be gone.
    fn cuts_noted(&self, lane: &Lane, count: usize) -> bool {
        let links = node_offset(lane.intent.load(Relaxed)) + word::LINKS;
        let ops = lane.ops.iter().take(count);
        ops.filter_map(|op| Op::unpack(op.place.load(Relaxed), op.value.load(Relaxed)))
            .any(|op| matches!(op, Op::Set { at, .. } if at == links))
    }

    /// Locks the files whose truncation the lanes have noted for these lanes, as
    /// they were when all died: from here on nobody can take their inodes away
    /// before that is finished, and whoever meets such a lane goes on with it.
    /// Alone, in a segment just made. What no truncation can have noted is forgotten:
    /// a line that was given back may hold anything by now, even what looks like an inode.
    pub(super) fn lock_noted(&self, cx: &Cx, cutting: &Lanes) {
        let (mut locked, mut forgotten) = (0, 0);
        for number in self.lane_numbers() {
            let lane = self.lane(number);
            let (id, end) = (lane.intent.load(Relaxed), lane.intent_arg.load(Relaxed));
            if id == 0 {
                continue;
            }
            let is_last = cutting[number as usize / 64] & 1 << (number % 64) != 0
                || self.cuts_noted(lane, State::ops_of(State::stamp(lane.state.load(Relaxed))));
            let is_so = is_last && locked < NOTES && self.is_as_noted(id, end);
            if is_so && self.lock_noted_by(cx, number, id).is_ok() {
                locked += 1;
                continue;
            }
            self.image.store(&lane.intent, 0);
            self.image.flush(self.image.offset_of(&lane.intent), 8);
            forgotten += 1;
        }
        if forgotten != 0 {
            self.image.fence();
        }
        if locked != 0 {
            // Taken before this process had its number.
            self.give_lane_back(cx.thread);
        }
    }

    fn lock_noted_by(&self, cx: &Cx, number: u32, id: u64) -> Result<()> {
        self.lane_space(number)?;
        let file = self.cached(cx, Node { id, hint: u32::MAX })?;
        let held = &self.lane_state(number).held[0];
        held.store(self.segment.offset_of(&file.owner), SeqCst);
        if file.owner.compare_exchange(0, number + 1, SeqCst, Relaxed).is_err() {
            // Another lane's note has it already, which is one too many.
            held.store(0, SeqCst);
            return Err(Errno::EBUSY.into());
        }
        Ok(())
    }

    /// Frees inodes that nobody refers to any more, and finishes truncations
    /// that somebody left; for as long as attaching may take. Nobody else uses
    /// the image.
    pub(super) fn finish_work(&self, cx: &Cx) {
        let leftovers = self.leftovers();
        if self.read_only || leftovers.load(Acquire) == NOTHING {
            return;
        }
        if self.finish_leftovers(cx, &mut for_a_while()) {
            leftovers.store(NOTHING, Release);
        }
    }

    /// As `finish_work`, beside others.
    pub(crate) fn finish_beside_others(&self, cx: &Cx) {
        if self.read_only || !self.has_leftovers() {
            return;
        }
        let leftovers = self.leftovers();
        // First: a death from here on, ours too, is work for another one.
        leftovers.store(NO_MORE, SeqCst);
        self.cut_zeros_left();
        if !self.finish_what_nobody_has(cx, &mut for_a_while()) {
            leftovers.store(WORK, SeqCst);
        }
    }

    /// There may be work that the dead have left: in a new segment, and after every adoption; or that could not be done.
    pub(crate) fn note_leftovers(&self) {
        self.leftovers().store(WORK, SeqCst);
    }

    /// Whether some may be left that can be finished beside others.
    pub(super) fn has_leftovers(&self) -> bool {
        self.leftovers().load(Acquire) == WORK
    }

    fn leftovers(&self) -> &AtomicU32 {
        &self.header().leftovers
    }
}

/// True until attaching has spent what it may, from the first time that it is asked: mostly there is nothing to do.
fn for_a_while() -> impl FnMut() -> bool {
    let mut end = None;
    move || {
        let now = pm::clock::monotonic();
        now < *end.get_or_insert(now.saturating_add(WORK_NS))
    }
}
