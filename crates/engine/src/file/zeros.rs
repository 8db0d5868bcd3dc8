//! Zero pages that can be taken away: what a mapping that is only read shows of a file's holes.
//!
//! Holes have no pages. Whoever maps some to read gets pages of zeroes in their place, at no cost to the image; when
//! somebody fills a hole of such a file later, who reads must see that, and nobody can change another's mapping.
//! But everybody can make a file shorter, and what was mapped of it is gone for all. So the zeroes are a window of
//! the file of the segment, behind the segment:
//!
//! ```text
//! segment │ … │ window 2 │ window 1 │ window 0 │      file: nothing but holes from the segment on
//!                                   └ the file ends here at first, at generation 1 there ┐
//!                        └──────────────────────────────────────────────────────────────┘
//! ```
//! - Who maps holes asks for the window first, then marks the file ([`HOLES`]) and looks where its holes are.
//! - Who fills a hole looks at the mark afterwards, and if it is there takes the window away, for the holes of all
//!   files, before the call returns. Whoever touches one then gets `SIGBUS`, and maps anew.
//!
//! Not where the file can't be so long, nor in the last generation: then there is no window.
//!
//! [`HOLES`]: cachelet::HOLES

use crate::fs::Fs;
use crate::segment::{Cachelet, cachelet};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;
use pm::Errno;
use pm::file::File;
use pm::sys::abi;

/// Bytes of a window: a file's byte at `offset` is shown by that at `offset % WINDOW` of it.
const WINDOW: u64 = base::ZEROS;
/// How often it can be taken away in the life of a segment.
const GENERATIONS: u64 = 1 << 11;

/// Length of the file of a segment of `len` bytes when windows have been taken away so often.
pub(crate) fn file_len(len: u64, generation: u32) -> u64 {
    len.next_multiple_of(WINDOW) + GENERATIONS.saturating_sub(u64::from(generation)) * WINDOW
}

impl Fs {
    /// The file whose window shows zeroes, open to be read, and where the window begins.
    pub fn zeros(&self) -> Option<(File, u64)> {
        let generation = self.header().zeros.load(SeqCst);
        let (file, len) = (self.segment_file(abi::O_RDONLY).ok()?, file_len(self.areas.len, generation));
        let size = file.stat().ok()?.size;
        if size > len {
            // Whoever was to cut it is at it, or could not.
            self.cut_zeros();
        }
        // One that is gone meanwhile is found out when it is touched.
        let there = size >= len || self.header().zeros.load(SeqCst) != generation;
        (there && u64::from(generation) < GENERATIONS).then_some((file, len - WINDOW))
    }

    /// The segment's file, if it is still at its path.
    fn segment_file(&self, flags: u32) -> Result<File, Errno> {
        let path = self.segment_path.split_inclusive(|byte| *byte == 0).next().unwrap_or(b"\0");
        File::open_known(path, flags | abi::O_NOFOLLOW, self.files.segment)
    }

    /// Somebody died who had a file locked: he may have filled a hole of it, and not got so far as to tell.
    pub(crate) fn hole_filled_by_dead(&self, file: &Cachelet) {
        self.hole_filled(file);
        self.cut_zeros_left();
    }

    /// Cuts what somebody has left uncut who has died, or was not let.
    pub(crate) fn cut_zeros_left(&self) {
        if self.header().zeros.load(SeqCst) != 0 {
            self.cut_zeros();
        }
    }

    /// A hole of a file has been filled: who has mapped holes maps anew.
    #[inline]
    pub(super) fn hole_filled(&self, file: &Cachelet) {
        fence(SeqCst);
        if file.flags.load(SeqCst) & cachelet::HOLES != 0 {
            self.take_zeros_away(file);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_zeros_away(&self, file: &Cachelet) {
        // Once before the mark goes, so that who adopts us sees one or the other; and once after it: whoever of those
        // that hold no lock (of a session that may only read) has set it in between has a window of then.
        self.header().zeros.fetch_add(1, SeqCst);
        file.flags.fetch_and(!cachelet::HOLES, SeqCst);
        self.header().zeros.fetch_add(1, SeqCst);
        self.cut_zeros();
    }

    /// Makes the segment's file as long as the generation says. Not every process may open it, or has a descriptor left
    /// for it: then whoever looks for what is left does it.
    fn cut_zeros(&self) {
        let segment = match self.segment_file(abi::O_RDWR) {
            Ok(segment) => segment,
            // It is gone, for everybody.
            Err(Errno::ENOENT | Errno::ESTALE) => return,
            Err(_) => return self.note_leftovers(),
        };
        loop {
            let generation = self.header().zeros.load(SeqCst);
            let len = file_len(self.areas.len, generation);
            if segment.stat().is_ok_and(|stat| stat.size > len) && segment.truncate(len).is_err() {
                self.note_leftovers();
            }
            // Who was faster may have made it shorter between the two.
            if self.header().zeros.load(SeqCst) == generation {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use base::{Kind, MapFor, NewNode, Node, SetAttr};
    use core::sync::atomic::Ordering::Relaxed;
    use format::BLOCK;
    use pm::UserSlice;
    use std::vec::Vec;

    const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

    /// A file of 64 blocks, the 8th of which is there.
    fn sparse(test: &TestFs) -> Node {
        let node = test.create(&test.cx(), test.root_node(), b"sparse", &FILE).unwrap();
        test.open(&test.cx(), node, 2, 3).unwrap();
        let size = SetAttr { size: Some(64 * BLOCK), size_checked: true, ..SetAttr::default() };
        test.set_attr(&test.cx(), node, &size).unwrap();
        write(test, node, 8);
        node
    }

    fn write(test: &TestFs, node: Node, block: u64) {
        test.write(&test.cx(), node, Some(block * BLOCK), &[UserSlice::from_ref(b"x")]).unwrap();
    }

    fn map(test: &TestFs, node: Node, what: MapFor) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        test.map(&test.cx(), node, 0, 64 * BLOCK, what, &mut |file, _, len| ranges.push((file / BLOCK, len / BLOCK))).unwrap();
        ranges
    }

    fn blocks(test: &TestFs, node: Node) -> u64 {
        test.attr(&test.cx(), node).unwrap().blocks / 8
    }

    /// Goal: holes that are mapped to be read stay holes, and who fills one takes the zeroes away, once.
    #[test]
    fn zeroes_go_when_a_hole_is_filled() {
        let test = TestFs::new(64 << 20);
        let node = sparse(&test);
        let taken = || test.header().zeros.load(Relaxed);
        let len = || test.fs.zeros().map(|(file, window)| (file.stat().unwrap().size, window)).unwrap();
        let before = len();
        assert_eq!(before.0 - before.1, base::ZEROS);
        write(&test, node, 9);
        assert_eq!(taken(), 0, "not mapped");
        assert_eq!(map(&test, node, MapFor::Reading), [(8, 1), (9, 1)]);
        assert_eq!(blocks(&test, node), 2);
        write(&test, node, 9);
        assert_eq!(taken(), 0, "no hole");
        write(&test, node, 20);
        write(&test, node, 21);
        assert_eq!(taken(), 2);
        assert_eq!(len(), (before.0 - 2 * base::ZEROS, before.1 - 2 * base::ZEROS));
        let allocate = base::Fallocate::Allocate;
        map(&test, node, MapFor::Reading);
        test.fallocate(&test.cx(), node, allocate, 30 * BLOCK, BLOCK).unwrap();
        assert_eq!(taken(), 4);
        map(&test, node, MapFor::Reading);
        map(&test, node, MapFor::Writing);
        assert_eq!(taken(), 6);
    }

    /// Goal: what could not be cut is cut by whoever looks for what is left, or maps.
    #[test]
    fn a_window_left_uncut_is_cut_later() {
        let test = TestFs::new(64 << 20);
        let node = sparse(&test);
        let len = || test.fs.zeros().map(|(file, window)| (file.stat().unwrap().size, window)).unwrap();
        let before = len();
        let path = std::str::from_utf8(test.segment_path()).unwrap();
        // A symlink in its place is not opened.
        let (moved, file_len) = (std::format!("{path}~"), || std::fs::metadata(path).unwrap().len());
        map(&test, node, MapFor::Reading);
        std::fs::rename(path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, path).unwrap();
        write(&test, node, 20);
        assert_eq!((file_len(), test.header().zeros.load(Relaxed)), (before.0, 2));
        std::fs::rename(&moved, path).unwrap();
        test.adopt_dead_processes(&test.cx());
        assert_eq!(file_len(), before.0 - 2 * base::ZEROS);
        test.header().zeros.fetch_add(2, Relaxed);
        len();
        assert_eq!(len(), (before.0 - 4 * base::ZEROS, before.1 - 4 * base::ZEROS));
    }

    /// Goal: a mapping to be written takes what it covers where there is plenty of space, and nothing where there is not;
    /// then what is touched is made, or there is no space.
    #[test]
    fn writable_mappings_take_what_fits() {
        let test = TestFs::new(64 << 20);
        let node = sparse(&test);
        assert_eq!(map(&test, node, MapFor::Writing).iter().map(|(_, len)| len).sum::<u64>(), 64);
        let size = |blocks: u64| SetAttr { size: Some(blocks * BLOCK), size_checked: true, ..SetAttr::default() };
        test.set_attr(&test.cx(), node, &size(1 << 20)).unwrap();
        let (before, free) = (blocks(&test, node), || test.statfs().unwrap().blocks_free);
        let all = |what| test.map(&test.cx(), node, 0, BLOCK << 20, what, &mut |_, _, _| ());
        let left = free();
        all(MapFor::Writing).unwrap();
        assert_eq!((blocks(&test, node), free()), (before, left));
        test.map(&test.cx(), node, 99 * BLOCK, BLOCK, MapFor::Touching, &mut |_, _, _| ()).unwrap();
        assert_eq!(blocks(&test, node), before + 1);
        assert!(all(MapFor::Touching).is_err());
    }
}
