//! New cachelets: never used ones first, then the CLOCK takes those nobody uses.

use super::cachelet::{self, Cachelet};
use crate::alloc::fault;
use crate::fs::Fs;
use crate::segment::LaneState;
use base::Result;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use format::inode::node_offset;
use pm::Errno;

/// Cachelets that get real space at a time, at first; later a huge page of them.
const STEP: u32 = 4096;
/// When there is no space for a step, smaller ones are tried down to a page of them; all are multiples of that.
const STEP_LAST: u32 = 32;
/// So many get space if there is any. The others leave some for what can't be had by taking something away.
const FEW: u32 = 512;
/// What they leave: a part of the file system, and no more than that.
const LEFT: u64 = 8;
const LEFT_MAX: u64 = 16 << 20;
const STEP_MAX: u32 = (pm::huge::HUGE_PAGE / size_of::<Cachelet>() as u64) as u32;
/// How often somebody else may be faster at taking a new one: after that one is taken away.
const LOADERS: u32 = 1 << 16;

impl Fs {
    /// A cachelet for another node, `owner` held by `lane` and listed as the
    /// `loading_cachelet` of its `state`; `node` is 0. `ENOMEM` if all are in use.
    #[inline]
    pub(crate) fn new_cachelet(&self, lane: u32, state: &LaneState) -> Result<&Cachelet> {
        let header = self.header();
        let next = header.cachelet_next.load(Acquire);
        if next < header.cachelet_ready.load(Acquire)
            && let Some(cachelet) = self.cachelet(next)
            && header.cachelet_next.compare_exchange(next, next + 1, AcqRel, Relaxed).is_ok()
            && self.take_for_loading(lane, state, cachelet)
        {
            return Ok(cachelet);
        }
        self.new_cachelet_slow(lane)
    }

    #[cold]
    #[inline(never)]
    fn new_cachelet_slow(&self, lane: u32) -> Result<&Cachelet> {
        if fault::strikes(fault::Kind::Cachelet) {
            return Err(Errno::ENOMEM.into());
        }
        if let Some(cachelet) = self.unused_cachelet(lane) {
            return Ok(cachelet);
        }
        let count = self.header().cachelet_next.load(Acquire).clamp(1, self.areas.cachelet_count);
        // Twice around clears every reference bit; once more is for those in use meanwhile.
        for _ in 0..u64::from(count) * 3 {
            let number = self.header().cachelet_hand.fetch_add(1, Relaxed) % count;
            let Some(cachelet) = self.cachelet(number) else { continue };
            if self.reuse(lane, cachelet) {
                return Ok(cachelet);
            }
        }
        Err(Errno::ENOMEM.into())
    }

    /// The next cachelet never used so far, once there is space for it; `None`
    /// when there are no more, or no space.
    fn unused_cachelet(&self, lane: u32) -> Option<&Cachelet> {
        let header = self.header();
        for _ in 0..LOADERS {
            let next = header.cachelet_next.load(Acquire);
            if next >= self.areas.cachelet_count || next >= header.cachelet_ready.load(Acquire) && !self.more_cachelets(next) {
                return None;
            }
            if header.cachelet_next.compare_exchange(next, next + 1, AcqRel, Relaxed).is_ok() {
                let cachelet = self.cachelet(next)?;
                if self.take_for_loading(lane, self.lane_state(lane), cachelet) {
                    return Some(cachelet);
                }
            }
        }
        None
    }

    /// Gives space to some more cachelets than the first `next`; false where there is none to be had: then one that is
    /// there is taken away from its node. Having been refused, nobody asks again for a second.
    pub(crate) fn more_cachelets(&self, next: u32) -> bool {
        let header = self.header();
        let now = (pm::clock::coarse() / 1_000_000_000) as u32;
        if next >= FEW && header.cachelet_refused.load(Relaxed) == now {
            return false;
        }
        let size = size_of::<Cachelet>() as u64;
        let mut step = (STEP_MAX - next % STEP_MAX).min(next.max(STEP));
        loop {
            let count = step.min(self.areas.cachelet_count - next.min(self.areas.cachelet_count));
            let bytes = u64::from(count) * size;
            let may = next < FEW && step <= FEW || self.has_room(bytes);
            if may && count > 0 && self.segment_space(self.areas.cachelets + u64::from(next) * size, bytes).is_ok() {
                header.cachelet_ready.fetch_max(next + count, AcqRel);
                return true;
            }
            if step <= STEP_LAST {
                header.cachelet_refused.store(now, Relaxed);
                return false;
            }
            step = (step / 2).next_multiple_of(STEP_LAST);
        }
    }

    /// Whether the directory of the segment has room for so many bytes, and some that is left.
    fn has_room(&self, bytes: u64) -> bool {
        let path = self.segment_path.split_inclusive(|byte| *byte == 0).next().unwrap_or(b"\0");
        // A file system that doesn't tell is asked for the space itself; so is memory that is no file.
        path == b"\0" || pm::file::room(path).map_or(true, |(free, all)| all == 0 || free >= bytes + (all / LEFT).min(LEFT_MAX))
    }

    /// Takes `owner`, listed first; false if somebody has it.
    #[inline]
    fn take_for_loading(&self, lane: u32, state: &LaneState, cachelet: &Cachelet) -> bool {
        let listed = &state.loading_cachelet;
        listed.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        let taken = cachelet.owner.compare_exchange(0, lane + 1, SeqCst, Relaxed).is_ok();
        if !taken {
            listed.store(0, SeqCst);
        }
        taken
    }

    /// Tries to take a cachelet away from its node.
    fn reuse(&self, lane: u32, cachelet: &Cachelet) -> bool {
        if cachelet.owner.load(Relaxed) != 0 || cachelet.opens.load(Relaxed) != 0 {
            return false;
        }
        let flags = cachelet.flags.load(Relaxed);
        if cachelet.node.load(Relaxed) != 0 && flags & cachelet::REFERENCED != 0 {
            cachelet.flags.fetch_and(!cachelet::REFERENCED, Relaxed);
            return false;
        }
        if cachelet::closer(flags) != 0 || !self.take_for_loading(lane, self.lane_state(lane), cachelet) {
            return false;
        }
        if self.empty(lane, cachelet) {
            return true;
        }
        self.let_go(lane, cachelet);
        false
    }

    /// Makes a cachelet whose `owner` is held nobody's; false if it is in use.
    /// Flag first, then look: openers and lanes that enter do it the other way round.
    fn empty(&self, lane: u32, cachelet: &Cachelet) -> bool {
        let id = cachelet.node.load(SeqCst);
        if id == 0 {
            return true;
        }
        let closed = cachelet::EVICTING | cachelet::closed_by(lane);
        let free = |flags: u32| (cachelet::closer(flags) == 0).then_some(flags | closed);
        if cachelet.flags.fetch_update(SeqCst, SeqCst, free).is_err() {
            return false;
        }
        let used = cachelet.opens.load(SeqCst) != 0 || self.is_entered(node_offset(id));
        if used {
            cachelet.flags.fetch_and(!(cachelet::EVICTING | cachelet::CLOSER), SeqCst);
            return false;
        }
        if cachelet.flags.load(SeqCst) & cachelet::KNOWN != 0 {
            // The flag goes; whoever changes the inode and does not find it finds this.
            self.tell_later(id);
        }
        let flags = cachelet.flags.load(SeqCst);
        // Of one that the dead left the inode tells. What is gone has a line that may be another's.
        let is_there = flags & cachelet::DEAD == 0 && (flags & cachelet::INVALID == 0 || self.reload(lane, cachelet, id).is_ok());
        // Nobody reads half of the one and half of the other, or a node without a number.
        let change = self.change(cachelet);
        // Before the inode lets go: from here on nobody takes this for the inode's. Whoever gives it another one
        // waits until the number is gone (`wait_for_loaders`), so that the line stays an inode until then.
        cachelet.flags.fetch_or(cachelet::INVALID, SeqCst);
        if let (true, Ok(inode)) = (is_there, self.inode(node_offset(id))) {
            let own = u64::from(self.generation) << 32 | u64::from(self.cachelet_number(cachelet) + 1);
            let _ = self.image.swap_if(&inode.cachelet, own, 0);
        }
        cachelet.node.store(0, SeqCst);
        cachelet.parent.store(0, SeqCst);
        cachelet.flags.store(0, SeqCst);
        cachelet.map_sequence.fetch_add(2, SeqCst);
        drop(change);
        true
    }

    /// Whether any lane is changing names in the directory at `offset`.
    fn is_entered(&self, offset: u64) -> bool {
        let lanes = self.header().lanes_high.get();
        (0..lanes).any(|lane| self.lane_state(lane).entered.iter().any(|e| e.load(SeqCst) == offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Options;
    use crate::testing::{TestFs, TestImage};
    use crate::{Cred, Cx, Error, Kind, NewNode, Node, Thread};
    use base::stat::Stat;
    use base::{Caller, Fast, RenameMode};
    use core::mem::MaybeUninit;
    use core::sync::atomic::AtomicBool;
    use pm::Text;
    use std::format;

    const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
    const STALE: Error = Error::Posix(Errno::ESTALE);

    /// Takes a node's cachelet away, whatever speaks for it.
    fn take_away(test: &TestFs, node: Node) {
        let (cachelet, lane) = (test.cachelet(node.hint).unwrap(), test.lane_of(&test.cx()).unwrap());
        assert!(test.take_for_loading(lane, test.lane_state(lane), cachelet) && test.empty(lane, cachelet));
        test.let_go(lane, cachelet);
    }

    /// Goal: what loses its cachelet in the middle of a call is looked for again, and is not taken to be gone;
    /// what is gone is. Method: the cachelet is taken away between the look for it and the look at it.
    #[test]
    fn taken_away_in_the_middle() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let node = test.create(&cx, root, b"file", &FILE).unwrap();
        let mut looks = 0;
        let mut look = |gone: bool| {
            let seen = test.with_cached(&cx, node, |cachelet| {
                looks += 1;
                if looks == 1 {
                    if gone {
                        test.unlink(&cx, root, b"file").unwrap();
                    }
                    take_away(&test, node);
                }
                test.seen(&cx, cachelet, node.id)
            });
            (seen.map(|seen| seen.id), core::mem::take(&mut looks))
        };
        assert_eq!(look(false), (Ok(node.id), 2));
        // It has another one now.
        let again = test.lookup(&cx, root, b"file").unwrap();
        assert_eq!(test.attr(&cx, again).unwrap().ino, test.attr(&cx, node).unwrap().ino);
    }

    /// Goal: what is freed does not come back, and nothing is written to its line, which may hold a file's contents.
    /// Method: the cachelet that says so is taken away; or the remover has died before he could say so, and left it
    /// to be loaded again.
    #[test]
    fn freed_stays_gone() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        for left_by_the_dead in [false, true] {
            let node = test.create(&cx, root, b"file", &FILE).unwrap();
            test.unlink(&cx, root, b"file").unwrap();
            let word = &test.inode(node_offset(node.id)).unwrap().cachelet;
            let contents = word.load(SeqCst);
            if left_by_the_dead {
                let cachelet = test.cachelet(node.hint).unwrap();
                cachelet.flags.store(cachelet::INVALID, SeqCst);
            } else {
                take_away(&test, node);
            }
            assert_eq!(test.open(&cx, node, 2, 5).err(), Some(STALE), "{left_by_the_dead}");
            assert_eq!(test.attr(&cx, node).err(), Some(STALE), "{left_by_the_dead}");
            assert_eq!(word.load(SeqCst), contents, "{left_by_the_dead}");
        }
    }

    /// Goal: nobody does anything with a node that has just got a cachelet while another is about to give it one:
    /// he might free it, and the other write into a line that is no inode any more. Method: a lane that says so.
    #[test]
    fn other_loaders_are_waited_for() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let node = test.create(&cx, root, b"file", &FILE).unwrap();
        take_away(&test, node);
        let (loading, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let fs = test.fs;
        std::thread::scope(|scope| {
            let (loading, done) = (&loading, &done);
            scope.spawn(move || {
                let thread = Thread::new();
                let lane = fs.lane_of(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }).unwrap();
                let cachelet = fs.new_cachelet(lane, fs.lane_state(lane)).unwrap();
                cachelet.node.store(node.id, SeqCst);
                loading.store(true, SeqCst);
                // Long enough for whoever does not wait.
                std::thread::sleep(std::time::Duration::from_millis(50));
                cachelet.node.store(0, SeqCst);
                done.store(true, SeqCst);
                fs.let_go(lane, cachelet);
                fs.give_lane_back(&thread);
            });
            while !loading.load(SeqCst) {
                std::thread::yield_now();
            }
            test.cached(&cx, node).unwrap();
            assert!(done.load(SeqCst), "not waited for");
        });
    }

    /// Goal: however few cachelets there are, every call finds what is there, and nothing of another's. Method: a
    /// thread makes and removes files, each of which takes a cachelet away; others stat, open, list, move and read
    /// attributes of what nobody else touches, and must succeed each time.
    #[test]
    fn thrashing() {
        const ROUNDS: u32 = 100_000;
        let image = TestImage::new(16 << 20);
        let thread = Thread::new();
        let options = Options { segment_dir: Some(image.directory().as_bytes()), cachelets: Some(16), ..Default::default() };
        let fs = image.attach_with(&thread, &options).unwrap();
        let root = fs.root_node();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..2u32 {
                let done = &done;
                scope.spawn(move || {
                    let thread = Thread::new();
                    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
                    let [home, one, two] = ["d", "one", "two"].map(|name| format!("{name}{number}"));
                    let dir = NewNode { kind: Kind::Directory, mode: 0o755, ..FILE };
                    fs.create(&cx, root, home.as_bytes(), &dir).unwrap();
                    let path = format!("{home}/{one}\0");
                    let directory = || fs.lookup(&cx, root, home.as_bytes()).unwrap();
                    let node = fs.create(&cx, directory(), one.as_bytes(), &FILE).unwrap();
                    let ino = fs.attr(&cx, node).unwrap().ino;
                    for round in 0..ROUNDS {
                        let mut stat = MaybeUninit::<Stat>::zeroed();
                        let caller = Caller { uid: 0, privileged: true };
                        // SAFETY: the text ends in a NUL, and outlives the call.
                        let text = unsafe { Text::new(path.as_ptr()) };
                        match fs.stat_fast(&caller, (root, text), true, |_| false, &mut stat) {
                            // SAFETY: zeroed, then filled.
                            Fast::Done(()) => assert_eq!(unsafe { stat.assume_init() }.st_ino, ino, "round {round}"),
                            Fast::Slow => {}
                            other => panic!("round {round}: {other:?}"),
                        }
                        let found = fs.lookup(&cx, directory(), one.as_bytes()).unwrap();
                        assert_eq!(fs.attr(&cx, found).unwrap().ino, ino, "round {round}");
                        fs.rename(&cx, directory(), one.as_bytes(), root, two.as_bytes(), RenameMode::NoReplace).unwrap();
                        fs.rename(&cx, root, two.as_bytes(), directory(), one.as_bytes(), RenameMode::NoReplace).unwrap();
                        assert_eq!(
                            fs.get_xattr(&cx, node, b"user.a", pm::UserSlice::from_mut(&mut [])),
                            Err(Errno::ENODATA.into())
                        );
                    }
                    done.store(true, SeqCst);
                    fs.give_lane_back(&thread);
                });
            }
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            while !done.load(SeqCst) {
                fs.create(&cx, root, b"passing", &FILE).unwrap();
                fs.unlink(&cx, root, b"passing").unwrap();
            }
        });
    }
}
