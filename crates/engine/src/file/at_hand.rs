//! Writing where everything is at hand: one buffer into one run of blocks that
//! are there, in one piece, without an operation (there is no record to write).
//! What is locked and listed, and in which order, is as in `write`.

use super::job::stamp;
use crate::fs::Fs;
use crate::segment::{LaneState, LockWord, cachelet};
use base::{DescriptionId, Kind, Node, Thread};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use format::BLOCK;
use format::extent::Root;
use format::inode::node_offset;
use pm::UserSlice;

/// In the mode word: a regular file without set-id bits, whose mode a write does not change.
const PLAIN: (u32, u32) = ((Kind::Regular as u32) << 16, 0xff_0000 | 0o6000);

/// A word that names the lane that has it, listed in the lane's state for as long.
struct Held<'a> {
    listed: &'a AtomicU64,
    word: &'a AtomicU32,
    owner: u32,
}

impl<'a> Held<'a> {
    /// Takes it if it is free, and nothing else is listed there.
    #[inline(always)]
    fn take(fs: &Fs, listed: &'a AtomicU64, word: &'a LockWord, owner: u32) -> Option<Held<'a>> {
        if listed.load(Relaxed) != 0 {
            return None;
        }
        // Listed before it is taken, so that whoever finds the holder dead knows.
        listed.store(fs.segment.offset_of(word), Release);
        if word.compare_exchange(0, owner, Acquire, Relaxed).is_err() {
            listed.store(0, Release);
            return None;
        }
        Some(Held { listed, word, owner })
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.word.load(Relaxed) == self.owner {
            self.word.store(0, Release);
        }
        self.listed.store(0, Release);
    }
}

impl Fs {
    /// As [`Fs::write`] of one buffer (`None` for the offset: at the end), where
    /// that is quick; the offset after it. `None`: do it properly, nothing has been done.
    #[inline(always)]
    pub fn write_at_hand(&self, thread: &Thread, node: Node, offset: Option<u64>, from: UserSlice) -> Option<u64> {
        let owner = thread.lanes[self.slot].get();
        let state = self.lane_state(owner.checked_sub(1)?);
        self.write_in_lane(state, owner, node, offset, from)
    }

    /// As [`Fs::write_at_hand`] at a description's offset, or at the end, which moves the offset.
    #[inline(always)]
    pub fn write_on_at_hand(&self, thread: &Thread, id: DescriptionId, node: Node, append: bool, from: UserSlice) -> Option<u64> {
        let owner = thread.lanes[self.slot].get();
        let state = self.lane_state(owner.checked_sub(1)?);
        let description = self.descriptions.get(id)?;
        let _held = Held::take(self, &state.spare2[0], &description.offset_owner, owner)?;
        let offset = if append { None } else { Some(description.offset.load(Relaxed)) };
        let end = self.write_in_lane(state, owner, node, offset, from)?;
        description.offset.store(end, Relaxed);
        Some(end)
    }

    #[inline(always)]
    fn write_in_lane(&self, state: &LaneState, owner: u32, node: Node, offset: Option<u64>, from: UserSlice) -> Option<u64> {
        let cachelet = self.cachelet_of_file(node.hint)?;
        let at = node_offset(node.id);
        let inode = self.image.at::<format::Inode>(at)?;
        if !self.is_writable() {
            return None;
        }
        let _held = Held::take(self, &state.held[0], &cachelet.owner, owner)?;
        let unusable = cachelet.flags.load(Acquire) & (cachelet::DEAD | cachelet::INVALID);
        let other = cachelet.mode.load(Relaxed) & PLAIN.1 ^ PLAIN.0;
        if unusable | other != 0 || cachelet.node.load(Acquire) != node.id {
            return None;
        }
        let size = cachelet.size.load(Relaxed);
        let (start, len) = (offset.unwrap_or(size), from.len as u64);
        let (block, blocks) = Root::one(inode.root.load(Relaxed))?;
        let room = blocks * BLOCK;
        // `copy_in` looks where the blocks end; nothing before them is a file's.
        if start > size || start > room || len > room - start || block < self.layout.first_block() {
            return None;
        }
        self.image.copy_in(block * BLOCK + start, from).ok()?;
        let end = start + len;
        // Asked for last, where little is left that has to be kept over the call.
        let now = pm::clock::now() as u64;
        stamp(self, cachelet, inode, at, size.max(end), now);
        Some(end)
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

    /// Goal: the quick way does what the proper one does, or nothing. Method: the
    /// same writes to two files, one by either way, inside, across and at the end.
    #[test]
    fn agrees_with_write() {
        let test = TestFs::new(64 << 20);
        let (cx, quick, plain) = (test.cx(), make(&test, b"quick", 0o644), make(&test, b"plain", 0o644));
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
            let end = test.write_at_hand(&test.thread, quick, offset, from);
            done += u32::from(end.is_some());
            let slow = || test.write(&cx, quick, offset, &[from]).unwrap().1;
            assert_eq!(end.unwrap_or_else(slow), test.write(&cx, plain, offset, &[from]).unwrap().1);
            let attr = |node| test.attr(&cx, node).map(|attr| (attr.size, attr.blocks)).unwrap();
            assert_eq!((contents(&test, quick), attr(quick)), (contents(&test, plain), attr(plain)), "{offset:?} {len}");
        }
        assert!(done >= 5, "{done} the quick way");
        assert_eq!(test.census().locks, 0);
    }

    /// Goal: what the quick way must not do it does not begin, and it holds nothing afterwards.
    #[test]
    fn leaves_the_rest_alone() {
        let test = TestFs::new(64 << 20);
        let (cx, plain) = (test.cx(), make(&test, b"plain", 0o644));
        let from = UserSlice::from_ref(&[9; 100]);
        let write = |node, offset| test.write_at_hand(&test.thread, node, offset, from);
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
        assert_eq!(test.write_on_at_hand(&test.thread, id, plain, false, from), None, "an offset is held");
        test.offset_unlock(&cx, id);
        assert_eq!(contents(&test, plain), [1; 6000]);
        let on = |append| test.write_on_at_hand(&test.thread, id, plain, append, from);
        assert_eq!((on(false), on(false), on(true), on(false)), (Some(100), Some(200), Some(6100), Some(6200)));
        assert_eq!(test.description(id).offset_owner.load(Relaxed), 0);
        test.close(&cx, 5);
        test.set_attr(&cx, plain, &SetAttr { size: Some(10), size_checked: true, ..SetAttr::default() }).unwrap();
        assert_eq!(write(plain, Some(11)), None, "beyond the end, where blocks may be");
        assert_eq!(test.census().locks, 0);
    }
}
