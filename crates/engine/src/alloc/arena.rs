//! Lines from a lane's own magazine: a block's worth of lines is reserved at a time,
//! and handed out with a few instructions.
//!
//! The reservation bitmap has a bit for every line in a magazine, so nobody else takes them.
//! [`LaneState::magazine`] names those that are left, `taken` those that the operation
//! under way has taken out: the image's once its record has committed, back in
//! the magazine if it does not. A line is in `taken` before it leaves its magazine, so
//! whoever adopts a dead lane finds each of them, and gives back to the reservation bitmap
//! what the bitmap does not have.
//!
//! When the image is nearly full no magazine is filled: lines are reserved one by
//! one, and a lane's own magazine goes back before `ENOSPC` is said.

use super::Arena;
use super::reservation::WAITS;
use super::search::{free_run, free_start, run};
use crate::fs::Fs;
use crate::segment::LaneState;
use crate::segment::lane_state::{ARENAS, Magazine};
use base::Result;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Fs {
    /// Takes `count` (1–64) neighbouring lines of one block: (block, the first of them, bits). `ENOSPC`.
    #[inline]
    pub(crate) fn take_lines(&self, number: u32, state: &LaneState, count: u32, arena: Arena) -> Result<(u64, u32, u64)> {
        let (Magazine { block, lines }, taken) = (state.magazine(arena as usize), &state.taken[arena as usize]);
        let left = lines.load(Relaxed);
        let Some(start) = free_start(!left, count) else {
            let (block, bits) = self.take_lines_elsewhere(number, state, count, arena)?;
            return Ok((block, bits.trailing_zeros(), bits));
        };
        let bits = run(start, count);
        // In this order: see the module.
        taken.store(taken.load(Relaxed) | bits, Release);
        // All of them are in it. (Without that bit, for one: the compiler makes `btr`, which valgrind has in memory.)
        lines.store(left - bits, Release);
        Ok((block.load(Relaxed), start, bits))
    }

    /// The magazine does not have them.
    #[cold]
    #[inline(never)]
    fn take_lines_elsewhere(&self, number: u32, state: &LaneState, count: u32, arena: Arena) -> Result<(u64, u64)> {
        let place = arena as usize;
        if state.taken[place].load(Relaxed) != 0 {
            // The arena's block must stay the one that `taken` is about.
            return self.reserve_lines(number, state, count, arena, false);
        }
        self.return_stock(number, state, place);
        let (block, bits) = self.reserve_lines(number, state, count, arena, true)?;
        if !self.stock_up(state, place, block, bits) {
            return Ok((block, bits));
        }
        let mine = free_run(!bits, count).unwrap_or(bits);
        state.taken[place].store(mine, Release);
        state.magazine(place).lines.store(bits & !mine, Release);
        Ok((block, mine))
    }

    /// Makes the lines reserved last an arena's magazine; false if they are just what was asked for.
    ///
    /// The list entry goes in two steps, so that the lines are listed all the
    /// time, but as certainly reserved never twice: once not counted any more, it
    /// is only believed where no arena has its block (`settle_reservations`).
    fn stock_up(&self, state: &LaneState, place: usize, block: u64, bits: u64) -> bool {
        let Some(last) = (state.reserved_count.load(Relaxed) as usize).checked_sub(1) else { return false };
        state.reserved_count.store(last as u32, Release);
        let magazine = state.magazine(place);
        magazine.block.store(block, Release);
        magazine.lines.store(bits, Release);
        if let Some(entry) = state.reserved.get(last) {
            entry.run.store(0, Release);
        }
        true
    }

    /// Gives what is left in a magazine back to the reservation bitmap; listed once more, so that death in between
    /// loses nothing.
    pub(crate) fn return_stock(&self, number: u32, state: &LaneState, place: usize) {
        let Magazine { block, lines } = state.magazine(place);
        let left = lines.load(Relaxed);
        if left == 0 {
            return;
        }
        let run = block.load(Relaxed) | 1 << 40;
        let listed = state.reserved.get(state.reserved_count.load(Relaxed) as usize);
        if let Some(entry) = listed {
            entry.bits.store(left, Relaxed);
            entry.run.store(run, Release);
        }
        lines.store(0, Release);
        self.release(number, run, left);
        if let Some(entry) = listed {
            entry.run.store(0, Release);
        }
    }

    /// Gives all magazines of a lane back: at the end of its use, or when there is no other space.
    pub(crate) fn return_stocks(&self, number: u32, state: &LaneState) {
        for place in 0..ARENAS {
            self.return_stock(number, state, place);
        }
    }

    /// Puts back what an operation has taken and no record has made the image's.
    #[inline]
    pub(crate) fn put_back_lines(&self, state: &LaneState) {
        for (place, taken) in state.taken.iter().enumerate() {
            let magazine = state.magazine(place);
            magazine.lines.store(magazine.lines.load(Relaxed) | taken.load(Relaxed), Release);
            taken.store(0, Release);
        }
    }

    /// After a death: gives back what a lane had in a magazine, and what it had taken
    /// unless its record, which has been applied, made that the image's.
    pub(crate) fn return_arenas(&self, number: u32, state: &LaneState) {
        let mut waits = WAITS;
        for place in 0..ARENAS {
            let (Magazine { block, lines }, taken) = (state.magazine(place), &state.taken[place]);
            let bits = lines.load(Relaxed) | taken.load(Relaxed);
            if bits != 0 {
                self.release_own(number, block.load(Relaxed), bits, &mut waits);
            }
            for word in [lines, taken, block] {
                word.store(0, Release);
            }
        }
    }
}

/// The lines of `block` that the arenas of a lane have.
pub(crate) fn in_magazines(state: &LaneState, block: u64) -> u64 {
    let places = (0..ARENAS).filter(|place| state.magazine(*place).block.load(Relaxed) == block);
    // Taken out they are in both for a moment, put back too: so in this order nothing is missed.
    let both = |place: usize| {
        let (magazine, taken) = (&state.magazine(place).lines, &state.taken[place]);
        magazine.load(Acquire) | taken.load(Acquire) | magazine.load(Acquire)
    };
    places.fold(0, |lines, place| lines | both(place))
}

/// How many lines the arenas of a lane have.
#[cfg(any(test, feature = "check"))]
pub(crate) fn lines_stocked(state: &LaneState) -> u64 {
    let lines = |place: usize| state.magazine(place).lines.load(Relaxed) | state.taken[place].load(Relaxed);
    (0..ARENAS).map(|place| u64::from(lines(place).count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::reservation::CHUNK_BLOCKS;
    use crate::testing::TestFs;
    use base::{Cred, Cx, Kind, NewNode, Node, Thread};
    use core::sync::atomic::AtomicU64;
    use format::lane;
    use format::layout::Layout;
    use pm::Errno;
    use std::format;
    use std::vec::Vec;

    fn cx(thread: &Thread) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0, thread }
    }

    fn create(fs: &Fs, cx: &Cx, name: &str) -> Result<Node> {
        fs.create(cx, fs.root_node(), name.as_bytes(), &NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" })
    }

    /// The reservation bitmap is the bitmap and what lanes keep, each line once. Returns how many are kept.
    fn settled(fs: &Fs) -> u32 {
        let mut kept = Vec::new();
        for number in 0..fs.header().lanes_high.get() {
            let state = fs.lane_state(number);
            for place in 0..ARENAS {
                assert_eq!(state.taken[place].load(Relaxed), 0);
                kept.push((state.magazine(place).block.load(Relaxed), state.magazine(place).lines.load(Relaxed)));
            }
        }
        let mut count = 0;
        for block in fs.layout.first_block()..fs.root().grown.load(Relaxed) {
            if fs.chunk(block / CHUNK_BLOCKS).is_none_or(|chunk| chunk.ready.load(Relaxed) != 1) {
                continue;
            }
            let mut expected = fs.at::<AtomicU64>(Layout::bitmap_word(block), "").unwrap().load(Relaxed);
            if fs.is_spare(block) {
                assert_eq!(expected, 0, "block {block}: kept back, and used");
                expected = u64::MAX;
            }
            for (_, bits) in kept.iter().filter(|(of, _)| *of == block) {
                assert_eq!(expected & bits, 0, "block {block}: a line twice");
                expected |= bits;
                count += bits.count_ones();
            }
            assert_eq!(fs.reservation_word(block).unwrap().load(Relaxed), expected, "block {block}");
        }
        count
    }

    /// Goal: no line is kept twice or lost, whatever lanes make and free, and all
    /// go back with the lane. Method: two lanes make and remove names of all
    /// lengths by turns; the reservation bitmap is compared with the bitmap and the magazines.
    #[test]
    fn every_line_once() {
        let test = TestFs::new(64 << 20);
        let threads = [Thread::new(), Thread::new()];
        let mut there = Vec::new();
        let mut seed = 1u64;
        for step in 0..6000u32 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let cx = cx(&threads[(seed >> 40) as usize % 2]);
            if (seed >> 50) % 5 < 2 && !there.is_empty() {
                let name: std::string::String = there.swap_remove((seed >> 20) as usize % there.len());
                test.unlink(&cx, test.root_node(), name.as_bytes()).unwrap();
            } else {
                let name = format!("{step:0width$}", width = 5 + (seed >> 33) as usize % 240);
                create(&test, &cx, &name).unwrap();
                there.push(name);
            }
            if step % 500 == 0 {
                settled(&test);
            }
        }
        assert!(settled(&test) > 0, "nobody keeps anything");
        threads.iter().for_each(|thread| test.give_lane_back(thread));
        assert_eq!(settled(&test), 0);
    }

    /// Goal: what a dead lane had taken and not committed, and what it kept, is
    /// free again. Method: an operation is left in the middle, and adopted.
    #[test]
    fn the_dead_keep_nothing() {
        let test = TestFs::new(64 << 20);
        let thread = Thread::new();
        create(&test, &cx(&thread), "one").unwrap();
        test.unlink(&cx(&thread), test.root_node(), b"one").unwrap();
        let mut tx = test.begin(&cx(&thread), lane::Kind::Create).unwrap();
        tx.new_lines(3, Arena::Edentries).unwrap();
        tx.new_lines(1, Arena::Inodes).unwrap();
        let (number, state) = (tx.number, test.lane_state(tx.number));
        core::mem::forget(tx);
        assert_ne!(state.taken[Arena::Edentries as usize].load(Relaxed), 0);
        test.adopt_lane(number).unwrap();
        assert_eq!(settled(&test), 0);
    }

    /// Goal: an operation that fails leaves its lines in a magazine.
    #[test]
    fn given_up() {
        let test = TestFs::new(64 << 20);
        let cx = test.cx();
        create(&test, &cx, "one").unwrap();
        let before = settled(&test);
        let mut tx = test.begin(&cx, lane::Kind::Create).unwrap();
        tx.new_lines(5, Arena::Edentries).unwrap();
        drop(tx);
        assert_eq!(settled(&test), before);
    }

    /// Goal: no lane says `ENOSPC` while it keeps lines itself, and what is freed
    /// then can be used. Method: an image is filled by two lanes.
    #[test]
    fn full_image() {
        let test = TestFs::new(16 << 20);
        let threads = [Thread::new(), Thread::new()];
        let mut made = 0;
        for turn in 0usize.. {
            let cx = cx(&threads[turn % 2]);
            match create(&test, &cx, &format!("file{turn}")) {
                Ok(_) => made += 1,
                Err(error) => {
                    assert_eq!(error.errno(), Errno::ENOSPC);
                    let state = test.lane_state(test.own_lane(&threads[turn % 2]).get() - 1);
                    // The inode's line, which the failed operation has put back.
                    let left: u32 = (0..ARENAS).map(|place| state.magazine(place).lines.load(Relaxed).count_ones()).sum();
                    assert!(left <= 1, "{left} lines");
                    break;
                }
            }
        }
        // What one of the two may still keep is little.
        assert!(settled(&test) <= 6 * 64);
        // A new name may need a bucket behind a full one besides.
        let remove = |turn: usize| test.unlink(&cx(&threads[turn % 2]), test.root_node(), format!("file{turn}").as_bytes());
        (100..110).try_for_each(remove).unwrap();
        for round in 0..100 {
            let cx = cx(&threads[round % 2]);
            remove(round).unwrap();
            create(&test, &cx, &format!("again{round}")).unwrap();
        }
        settled(&test);
        assert!(made > 10_000, "{made}");
    }
}
