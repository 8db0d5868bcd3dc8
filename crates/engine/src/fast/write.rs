//! Writing one buffer into one run of blocks that are there, without an operation (there is no record to write).
//! What is locked and listed, and in which order, is as in `file::write`.

use crate::file::job::stamp;
use crate::fs::Fs;
use crate::segment::{Cachelet, LaneState, LockWord, cachelet};
use base::{DescriptionId, Fast, Kind, Node, Thread};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::BLOCK;
use format::extent::Root;
use format::inode::node_offset;
use pm::UserSlice;

/// In the mode word: a regular file without set-id bits, whose mode a write does not change. (Of capabilities, the
/// other thing that a write takes away, [`cachelet::CAPABLE`] tells.)
const ORDINARY: (u32, u32) = ((Kind::Regular as u32) << 16, 0xff_0000 | 0o6000);

/// Takes a word that names the lane that has it, if it is free and nothing else is listed where the lane's state lists it.
#[inline]
fn take(fs: &Fs, listed: &AtomicU64, word: &LockWord, owner: u32) -> Option<()> {
    if listed.load(Relaxed) != 0 {
        return None;
    }
    // Listed before it is taken, so that whoever finds the holder dead knows.
    listed.store(fs.segment.offset_of(word), Release);
    if word.compare_exchange(0, owner, Acquire, Relaxed).is_err() {
        listed.store(0, Release);
        return None;
    }
    Some(())
}

/// Gives it back. Nobody takes it from the living: what else is there is a peer's mistake, which should keep nobody waiting.
#[inline]
fn give_back(listed: &AtomicU64, word: &LockWord) {
    word.store(0, Release);
    listed.store(0, Release);
}

/// Where bytes go.
struct Place {
    /// The file's size before.
    size: u64,
    /// Where they end in the file.
    end: u64,
    /// Where they begin in the image.
    at: u64,
}

impl Fs {
    /// As [`Fs::write`] of one buffer (`None` for the offset: at the end); the offset after it.
    #[inline(always)]
    pub fn write_fast(&self, thread: &Thread, node: Node, offset: Option<u64>, from: UserSlice) -> Fast<u64> {
        let owner = self.own_lane(thread).get();
        self.state_of(owner).and_then(|state| self.try_write(state, owner, node, offset, from)).into()
    }

    /// As [`Fs::write_fast`] at a description's offset, or at the end, which moves the offset.
    #[inline(always)]
    pub fn write_on_fast(&self, thread: &Thread, id: DescriptionId, node: Node, append: bool, from: UserSlice) -> Fast<u64> {
        self.try_write_on(thread, id, node, append, from).into()
    }

    fn try_write_on(&self, thread: &Thread, id: DescriptionId, node: Node, append: bool, from: UserSlice) -> Option<u64> {
        let owner = self.own_lane(thread).get();
        let state = self.state_of(owner)?;
        let description = self.opens.descriptions.get(id)?;
        take(self, &state.offsets[0], &description.offset_owner, owner)?;
        let offset = if append { None } else { Some(description.offset.load(Relaxed)) };
        let end = self.try_write(state, owner, node, offset, from);
        if let Some(end) = end {
            description.offset.store(end, Relaxed);
        }
        give_back(&state.offsets[0], &description.offset_owner);
        end
    }

    #[inline]
    fn try_write(&self, state: &LaneState, owner: u32, node: Node, offset: Option<u64>, from: UserSlice) -> Option<u64> {
        if !self.may_overwrite() {
            return self.try_append(state, owner, node, offset, from);
        }
        let cachelet = self.cachelet(node.hint)?;
        take(self, &state.held[0], &cachelet.owner, owner)?;
        let end = self.write_held(cachelet, node, offset, from);
        give_back(&state.held[0], &cachelet.owner);
        end
    }

    /// As [`Fs::try_write`], where what a file has is overwritten whole or not at all: at its end alone.
    #[cold]
    #[inline(never)]
    fn try_append(&self, state: &LaneState, owner: u32, node: Node, offset: Option<u64>, from: UserSlice) -> Option<u64> {
        if !self.is_writable() {
            return None;
        }
        let cachelet = self.cachelet(node.hint)?;
        take(self, &state.held[0], &cachelet.owner, owner)?;
        let is_behind = offset.is_none_or(|offset| offset >= cachelet.size.load(Relaxed));
        let end = if is_behind { self.write_held(cachelet, node, offset, from) } else { None };
        give_back(&state.held[0], &cachelet.owner);
        end
    }

    /// The cachelet is held.
    #[inline]
    fn write_held(&self, cachelet: &Cachelet, node: Node, offset: Option<u64>, from: UserSlice) -> Option<u64> {
        let place = self.place_of(cachelet, node, offset, from.len as u64)?;
        self.image.copy_in(place.at, from).ok()?;
        // From here on nothing fails.
        let now = self.clock.now() as u64;
        if place.end > place.size || cachelet.mtime.load(Relaxed) != now || cachelet.ctime.load(Relaxed) != now {
            self.stamp_fast(cachelet, place.end.max(place.size), now);
        } else {
            self.image.fence();
        }
        Some(place.end)
    }

    /// Where `len` bytes go, if that is into one run of blocks. The cachelet is held.
    #[inline]
    fn place_of(&self, cachelet: &Cachelet, node: Node, offset: Option<u64>, len: u64) -> Option<Place> {
        let unusable = cachelet.flags.load(Acquire) & (cachelet::DEAD | cachelet::INVALID | cachelet::CAPABLE);
        let other = cachelet.mode.load(Relaxed) & ORDINARY.1 ^ ORDINARY.0;
        if unusable | other != 0 || cachelet.node.load(Acquire) != node.id {
            return None;
        }
        let size = cachelet.size.load(Relaxed);
        let start = offset.unwrap_or(size);
        if start > size {
            return None;
        }
        let (block, blocks) = Root::own(cachelet.root.load(Relaxed))?;
        // Of a size that is none they wrap; so it is the place itself that is looked at: nothing before the
        // blocks is a file's, and `copy_in` looks where they end.
        let (end, at) = (start.wrapping_add(len), (block * BLOCK).wrapping_add(start));
        (end <= blocks * BLOCK && at >= self.layout.blocks).then_some(Place { size, end, at })
    }

    /// Publishes the size and time of a file whose cachelet is held.
    #[inline]
    fn stamp_fast(&self, cachelet: &Cachelet, size: u64, now: u64) {
        let at = node_offset(cachelet.node.load(Relaxed));
        match self.image.at(at) {
            Some(inode) => stamp(self, cachelet, inode, at, size, now),
            None => self.stamp_added(cachelet, at, size, now),
        }
    }

    /// The inode is in what another process has added to the image since we looked, and the blocks in what we know. (Or a
    /// peer has written nonsense into the cachelet: then there is nothing to stamp.)
    #[cold]
    #[inline(never)]
    fn stamp_added(&self, cachelet: &Cachelet, at: u64, size: u64, now: u64) {
        if let Ok(inode) = self.inode(at) {
            stamp(self, cachelet, inode, at, size, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{NewNode, SetAttr};
    use core::sync::atomic::Ordering::SeqCst;
    use std::vec;
    use std::vec::Vec;

    /// What was done.
    fn done_of<T>(fast: Fast<T>) -> Option<T> {
        match fast {
            Fast::Done(done) => Some(done),
            Fast::Absent | Fast::Slow => None,
        }
    }

    fn make(test: &TestFs, name: &[u8], mode: u16) -> Node {
        let new = NewNode { kind: Kind::Regular, mode, rdev: 0, target: b"" };
        let node = test.create(&test.cx(), test.root_node(), name, &new).unwrap();
        test.write(&test.cx(), node, Some(0), &[UserSlice::from_ref(&[1; 6000])]).unwrap();
        node
    }

    fn contents(test: &TestFs, node: Node) -> Vec<u8> {
        let mut bytes = vec![0; 100_000];
        let done = test.read(&test.cx(), node, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap();
        bytes.truncate(done);
        bytes
    }

    /// Goal: the fast path does what the slow one does, or nothing. Method: the
    /// same writes to two files, one by either way, inside, across and at the end.
    #[test]
    fn agrees_with_write() {
        let test = TestFs::new(64 << 20);
        let (cx, fast, plain) = (test.cx(), make(&test, b"fast", 0o644), make(&test, b"plain", 0o644));
        let mut done = 0;
        for (i, (offset, len)) in [
            (Some(0), 1),
            (Some(5999), 1),
            (Some(6000), 9),
            (None, 700),
            (Some(3), 6700),
            (Some(9000), 5),
            (None, 4096),
            (None, 8192),
        ]
        .into_iter()
        .enumerate()
        {
            let bytes = vec![i as u8 + 2; len];
            let from = UserSlice::from_ref(&bytes);
            let end = done_of(test.write_fast(&test.thread, fast, offset, from));
            done += u32::from(end.is_some());
            let slow = || test.write(&cx, fast, offset, &[from]).unwrap().1;
            assert_eq!(end.unwrap_or_else(slow), test.write(&cx, plain, offset, &[from]).unwrap().1);
            let attr = |node| test.attr(&cx, node).map(|attr| (attr.size, attr.blocks)).unwrap();
            assert_eq!((contents(&test, fast), attr(fast)), (contents(&test, plain), attr(plain)), "{offset:?} {len}");
        }
        assert!(done >= 5, "{done} on the fast path");
        assert_eq!(test.census().locks, 0);
    }

    /// Goal: a write on the fast path has its size and time on the medium, also where the file's inode lies in what another
    /// process has added to the image, and its blocks in what this one knows. Method: a child makes files until the image
    /// grows; the last one is given a block of an older file, and is appended to without a look at its inode before.
    #[test]
    fn stamps_what_another_process_has_added() {
        const FILES: usize = 3000;
        let test = TestFs::new(64 << 20);
        let (root, old) = (test.root_node(), make(&test, b"old", 0o644));
        let name = |i: usize| std::format!("{i}");
        let known = || test.fs.image.valid();
        // Its cachelet stays.
        test.open(&test.cx(), old, 0, 4).unwrap();
        let mut added = 0;
        for round in 0..16 {
            test.dying(|cx| {
                let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
                (0..FILES).all(|i| test.create(cx, root, name(round * FILES + i).as_bytes(), &new).is_ok())
            });
            let text = std::format!("{}\0", name(round * FILES + FILES - 1));
            let who = base::Caller { uid: 0, privileged: true };
            // SAFETY: the text ends in a NUL, and is dropped only afterwards.
            let path = unsafe { pm::Text::new(text.as_ptr()) };
            // What the child has added to the shared cache is known, what it has added to the image is not.
            test.learn_cachelets();
            let sight = match test.find_fast(&who, (root, path), true, |_| false) {
                Fast::Done(sight) if node_offset(sight.node.id) >= known() => sight,
                _ => continue,
            };
            added += 1;
            let (cachelet, other) = (test.cachelet(sight.node.hint).unwrap(), test.cachelet(old.hint).unwrap());
            cachelet.root.store(other.root.load(Relaxed), Relaxed);
            let end = done_of(test.write_fast(&test.thread, sight.node, None, UserSlice::from_ref(&[9; 10])));
            cachelet.root.store(0, Relaxed);
            assert_eq!((end, cachelet.size.load(Relaxed)), (Some(10), 10));
            assert_eq!(test.inode(node_offset(sight.node.id)).unwrap().size.load(Relaxed), 10);
        }
        assert!(added > 0, "none of the files was in space that was not known");
    }

    /// Goal: what the fast path must not do it does not begin, and it holds nothing afterwards.
    #[test]
    fn leaves_the_rest_alone() {
        let test = TestFs::new(64 << 20);
        let (cx, plain) = (test.cx(), make(&test, b"plain", 0o644));
        let from = UserSlice::from_ref(&[9; 100]);
        let write = |node, offset| done_of(test.write_fast(&test.thread, node, offset, from));
        let set_id = make(&test, b"set-id", 0o4755);
        let empty =
            test.create(&cx, test.root_node(), b"empty", &NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" });
        let gone = make(&test, b"gone", 0o644);
        test.unlink(&cx, test.root_node(), b"gone").unwrap();
        let cachelet = test.cachelet(plain.hint).unwrap();
        for offset in [6001, 1 << 40, u64::MAX - 50, u64::MAX] {
            assert_eq!(write(plain, Some(offset)), None, "{offset}");
        }
        for node in [set_id, empty.unwrap(), gone, test.root_node()] {
            assert_eq!(write(node, Some(0)), None, "{node:?}");
        }
        cachelet.owner.store(700, SeqCst);
        assert_eq!(write(plain, Some(0)), None, "held by another");
        cachelet.owner.store(0, SeqCst);
        test.open(&cx, plain, 2, 5).unwrap();
        let id = (0..).find(|id| test.description(*id).node.load(Relaxed) == plain.id).unwrap();
        test.offset_lock(&cx, id);
        assert_eq!(test.write_on_fast(&test.thread, id, plain, false, from), Fast::Slow, "an offset is held");
        test.offset_unlock(&cx, id);
        assert_eq!(contents(&test, plain), [1; 6000]);
        let on = |append| done_of(test.write_on_fast(&test.thread, id, plain, append, from));
        assert_eq!((on(false), on(false), on(true), on(false)), (Some(100), Some(200), Some(6100), Some(6200)));
        assert_eq!(test.description(id).offset_owner.load(Relaxed), 0);
        test.close(&cx, 5);
        test.set_attr(&cx, plain, &SetAttr { size: Some(10), size_checked: true, ..SetAttr::default() }).unwrap();
        assert_eq!(write(plain, Some(11)), None, "beyond the end, where blocks may be");
        assert_eq!(test.census().locks, 0);
    }
}
