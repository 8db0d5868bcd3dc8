//! Truncating, up and down, and taking back what was given out ahead.
//!
//! Down: the first record has the new size and as many blocks as fit; more
//! records take the rest, which the lane has noted (`Lane::intent`) and whoever
//! adopts it goes on with, before the file is unlocked. Up: what is allocated there is zeroed, then the size word.

use super::job::Job;
use super::{BLOCKS_MAX, blocks_for};
use crate::fs::Fs;
use crate::lane::Tx;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::extent::FILE_MAX;
use format::inode::{node_generation, node_offset};
use format::lane::{self, word};
use format::layout::Layout;
use format::{BLOCK, LINE};
use pm::{Domain, Errno};

/// Records in which an adopter goes on with a truncation before it returns to its own work: a millisecond.
const RECORDS: u32 = if cfg!(test) { 16 } else { 256 };

impl Fs {
    /// Sets the size of a regular file. `stamp`: the times change even if the
    /// size does not (`ftruncate`). `EISDIR`, `EINVAL`, `EFBIG`.
    pub(crate) fn truncate(&self, cx: &Cx, node: Node, size: u64, stamp: bool) -> Result<()> {
        if size > FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut tx = self.begin(cx, lane::Kind::Truncate)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let before = job.size();
        job.drop_rights(cx)?;
        if size < before {
            return job.shrink(size);
        }
        if size > before {
            job.zero_allocated(before, size)?;
        } else if !job.is_mapped() {
            // What was allocated beyond the end goes, as when the file gets shorter.
            job.cut(blocks_for(size), BLOCKS_MAX)?;
        }
        if size > before || stamp {
            job.publish(size);
        }
        Ok(())
    }

    /// At the last close of a file: gives back the blocks given out ahead, and
    /// forgets that it was mapped. Cheap if there is nothing to do.
    #[inline]
    pub(crate) fn trim(&self, cx: &Cx, cachelet: &Cachelet, id: u64) {
        if cachelet.flags.load(Relaxed) & (cachelet::AHEAD | cachelet::MAPPED) != 0 {
            // What fails now is tried again at the next last close.
            let _ = self.trim_now(cx, Node { id, hint: self.cachelet_number(cachelet) });
        }
    }

    #[cold]
    #[inline(never)]
    fn trim_now(&self, cx: &Cx, node: Node) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::Truncate)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        // Opened again meanwhile, perhaps mapped.
        if cachelet.opens.load(SeqCst) != 0 {
            return Ok(());
        }
        let before = cachelet.flags.fetch_and(!(cachelet::MAPPED | cachelet::HOLES), SeqCst);
        if before & cachelet::MAPPED != 0 && matches!(self.image.domain(), Domain::Power | Domain::Sim) {
            // The last who knows that programs may have stored into it: a later `fsync` only orders.
            self.write_back_contents(cachelet)?;
        }
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let end = blocks_for(job.size());
        job.cut(end, BLOCKS_MAX)?;
        cachelet.flags.fetch_and(!cachelet::AHEAD, SeqCst);
        if cachelet.flags.load(SeqCst) & cachelet::KNOWN != 0 {
            self.tell_later(node.id);
        }
        Ok(())
    }

    /// Finishes truncations that dead lanes have noted, while `go_on` says so; false if some are left.
    pub(crate) fn finish_truncations(&self, go_on: &mut dyn FnMut() -> bool) -> bool {
        for number in 0..self.header().lanes_high.get() {
            while self.lane(number).intent.load(Relaxed) != 0 && self.adopt_in_part(number) == Some(false) {
                if !go_on() {
                    return false;
                }
            }
        }
        true
    }

    /// Takes blocks behind the end from a file that a dead lane has locked and was
    /// making shorter, in `RECORDS` records at most; whether that was all, or all that can be done.
    pub(crate) fn cut_noted<'a>(&'a self, tx: &mut Tx<'a>, file: &'a Cachelet, id: u64) -> bool {
        let mut cut = || -> Result<bool> {
            let mut job = Job::new(tx, file, id)?;
            let (end, mut to) = (blocks_for(job.size()), BLOCKS_MAX);
            for _ in 0..RECORDS {
                if end >= to {
                    break;
                }
                to = job.cut_once(end, to)?;
            }
            Ok(end >= to)
        };
        cut().unwrap_or_else(|_| {
            // The next last close tries again.
            file.flags.fetch_or(cachelet::AHEAD, Relaxed);
            true
        })
    }

    /// Whether a node is a file of `end` blocks in lines that the image counts as used: so
    /// it was when its truncation was noted, and it stays so while the note's lane has it locked.
    pub(crate) fn is_as_noted(&self, id: u64, end: u64) -> bool {
        let offset = node_offset(id);
        let Ok(inode) = self.inode(offset) else { return false };
        let (block, line) = (offset / BLOCK, offset % BLOCK / LINE);
        let used = self.image.word(Layout::bitmap_word(block)).map_or(0, |word| word.load(Relaxed));
        let head = inode.head();
        self.is_allocatable(block, 1)
            && used & 1 << line != 0
            && head.kind == Kind::Regular as u8
            && head.generation & 0xff_ffff == node_generation(id)
            && blocks_for(inode.size.load(Relaxed)) == end
    }
}

impl Job<'_, '_> {
    pub(super) fn shrink(&mut self, size: u64) -> Result<()> {
        let (end, rest) = self.shrink_at_first(size)?;
        if rest > end {
            let cut = self.cut(end, rest);
            if cut.is_err() {
                // The note goes with the lock, whatever happens; the last close tries again.
                self.tx.abandon();
                self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
            }
            let lane = self.fs.image.offset_of(self.tx.lane);
            self.tx.set(lane + word::INTENT, 0)?;
            self.tx.commit()?;
            cut?;
        }
        Ok(())
    }

    /// The first record, with the new size, and the note if it does not take all. Returns which blocks are left to take.
    fn shrink_at_first(&mut self, size: u64) -> Result<(u64, u64)> {
        if self.is_mapped() {
            // A mapping may reach there: the blocks stay, empty, to the last close.
            let before = self.size();
            if self.lower_end(size)? {
                self.tx.set(self.at + format::inode::word::SIZE, size)?;
                self.tx.commit()?;
            }
            self.publish(size);
            self.zero_allocated(size, before)?;
            self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
            return Ok((0, 0));
        }
        let (end, now) = (blocks_for(size), self.now);
        let mut edit = super::edit::Edit::new(self.tx, self.inode.root.load(Relaxed));
        let rest = edit.cut(end, BLOCKS_MAX)?;
        let mut edited = edit.finish();
        // Readers must not take bytes beyond the new end for the file's.
        edited.moved = true;
        let lane = self.fs.image.offset_of(self.tx.lane);
        if rest > end {
            let id = self.cachelet.node.load(Relaxed);
            self.tx.set(lane + word::INTENT, id)?;
            self.tx.set(lane + word::INTENT_ARG, end)?;
        }
        self.now = now;
        self.lower_end(size)?;
        self.commit(edited, 0, size, true)?;
        Ok((end, rest))
    }

    /// Of a cached file: bytes of its original behind `size` do not count any more, by the record under way; whether
    /// there were any.
    fn lower_end(&mut self, size: u64) -> Result<bool> {
        if !self.fs.is_cache() {
            return Ok(false);
        }
        match self.fs.lower_lines(self.inode)? {
            Some((_, lower)) if lower.end.load(Relaxed) > size => {
                self.tx.set(self.fs.image.offset_of(&lower.end), size)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestFs, TestImage};
    use crate::{Cred, NewNode, Thread};
    use core::sync::atomic::Ordering::Acquire;
    use openfiles::Handover;
    use pm::UserSlice;

    const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

    /// A file of that many extents, a block each.
    fn scattered(test: &TestFs, name: &[u8], extents: u64) -> Node {
        let node = test.create(&test.cx(), test.root_node(), name, &FILE).unwrap();
        for extent in 0..extents {
            test.write(&test.cx(), node, Some(extent * 2 * BLOCK), &[UserSlice::from_ref(b"x")]).unwrap();
        }
        node
    }

    /// What a truncation to nothing does before it has taken all; whether it has.
    fn cut_off(test: &TestFs, cx: &Cx, node: Node) -> bool {
        let mut tx = test.begin(cx, lane::Kind::Truncate).unwrap();
        let file = test.lock_file(&mut tx, cx, node).unwrap();
        Job::new(&mut tx, file, node.id).unwrap().shrink_at_first(0).unwrap();
        core::mem::forget(tx);
        noted(test).is_some()
    }

    fn noted(test: &TestFs) -> Option<u32> {
        test.lane_numbers().find(|number| test.lane(*number).intent.load(Relaxed) != 0)
    }

    fn blocks(test: &TestFs, node: Node) -> u64 {
        test.attr(&test.cx(), node).unwrap().blocks
    }

    fn free(test: &TestFs) -> u64 {
        test.statfs().unwrap().blocks_free
    }

    fn is_whole(test: &TestFs) {
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!(report.issues, []);
    }

    /// Goal: a truncation that death has cut off is finished beside the living, in portions, by whoever adopts the
    /// lane; until then nobody else gets the lane or the file. Method: a child dies after the first record, adopters
    /// after their first portion.
    #[test]
    fn finished_beside_the_living() {
        let test = TestFs::new(64 << 20);
        let before = free(&test);
        let node = scattered(&test, b"file", 4_000);
        // First: who readies a slot adopts the dead.
        let adopters = [0; 2].map(|_| test.fork_prepare(&test.cx()).unwrap());
        test.dying(|cx| cut_off(&test, cx, node));
        let number = noted(&test).unwrap();
        let owner = &test.cached(&test.cx(), node).unwrap().owner;
        let mut left = free(&test);
        for adopter in adopters {
            test.dying_as(adopter, |_| test.adopt_in_part(number) == Some(false));
            assert!(free(&test) > left);
            left = free(&test);
            assert_eq!((noted(&test), owner.load(Acquire)), (Some(number), number + 1));
            let thread = Thread::new();
            assert_ne!(test.take_lane(&thread).unwrap(), number);
            test.give_lane_back(&thread);
        }
        assert_eq!(test.adopt_dead_processes(&test.cx()), 0);
        assert_eq!((noted(&test), owner.load(Acquire)), (None, 0));
        assert_eq!(blocks(&test, node), 0);
        test.unlink(&test.cx(), test.root_node(), b"file").unwrap();
        // The root's block of slots.
        assert!(before - free(&test) <= 8, "{before} {}", free(&test));
        assert!(!test.is_lane_busy(number));
        is_whole(&test);
    }

    /// Goal: so it is when who dies has the file open, and when somebody waits for the file.
    #[test]
    fn who_waits_for_the_file_finishes_it() {
        let test = TestFs::new(64 << 20);
        let node = scattered(&test, b"file", 2_000);
        test.open(&test.cx(), node, 2, 3).unwrap();
        test.dying(|cx| cut_off(&test, cx, node));
        test.write(&test.cx(), node, Some(9 * BLOCK), &[UserSlice::from_ref(b"y")]).unwrap();
        assert_eq!(noted(&test), None);
        test.close(&test.cx(), 3);
        // In units of 512 bytes.
        assert_eq!(blocks(&test, node), 8);
        is_whole(&test);
    }

    /// Goal: where nobody lives who knows of the locks, whoever attaches finishes it. Method: as above; the segment goes.
    #[test]
    fn finished_by_who_comes_next() {
        let test = TestFs::new(64 << 20);
        let node = scattered(&test, b"file", 2_000);
        test.dying(|cx| cut_off(&test, cx, node));
        let TestFs { thread, fs, image } = test;
        fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        std::fs::remove_file(std::str::from_utf8(fs.segment_path()).unwrap()).unwrap();
        let mut test = TestFs::from_image(image).unwrap();
        // On a slow machine one attaches more than once.
        for _ in 0..20 {
            test = if noted(&test).is_some() { test.again() } else { test };
        }
        assert_eq!((noted(&test), blocks(&test, node)), (None, 0));
        is_whole(&test);
    }

    /// Goal: a note is not believed once its inode may be gone: bytes of a file that look like an inode are none.
    /// Method: a file's block holds such bytes, whose data are those of another file; a lane notes a truncation
    /// of it, as if it had done so long ago. Adopted beside the living, and with nobody there.
    #[test]
    fn a_stale_note_is_forgotten() {
        let image = TestImage::new(64 << 20);
        let mut test = TestFs::from_image(image).unwrap();
        let victim = scattered(&test, b"victim", 3);
        let root = test.inode(node_offset(victim.id)).unwrap().root.load(Relaxed);
        let forger = test.create(&test.cx(), test.root_node(), b"forger", &FILE).unwrap();
        let mut bytes = [0u64; 8];
        let permission = test.inode(node_offset(victim.id)).unwrap().head().permission;
        let head = format::inode::Head { generation: 5, flags: 0, kind: Kind::Regular as u8, permission };
        (bytes[0], bytes[1], bytes[5]) = (head.pack(), 1, root);
        let text: std::vec::Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
        test.write(&test.cx(), forger, Some(0), &[UserSlice::from_ref(&text)]).unwrap();
        let block = (0..test.layout.block_count()).find(|block| {
            let there = test.fs.image.word(block * BLOCK).is_some_and(|word| word.load(Relaxed) == bytes[0]);
            test.is_allocatable(*block, 1) && there
        });
        let id = format::inode::node_id(block.unwrap() * BLOCK, 5);
        assert!(test.is_as_noted(id, 0), "it looks like one");
        let note = |fs: &Fs, number: u32| {
            fs.image.store(&fs.lane(number).intent, id);
            fs.image.store(&fs.lane(number).intent_arg, 0);
        };
        for gone in [false, true] {
            if gone {
                let TestFs { thread, fs, image } = test;
                fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
                std::fs::remove_file(std::str::from_utf8(fs.segment_path()).unwrap()).unwrap();
                note(fs, 700);
                test = TestFs::from_image(image).unwrap();
            } else {
                test.dying(|cx| test.lane_of(cx).map(|number| note(&test, number)).is_ok());
                let number = noted(&test).unwrap();
                assert_eq!(test.adopt_in_part(number), Some(true));
            }
            assert_eq!(noted(&test), None);
            assert_eq!(test.inode(node_offset(victim.id)).unwrap().root.load(Relaxed), root);
            is_whole(&test);
        }
    }
}
