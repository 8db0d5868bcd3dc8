//! Making room in a cache: what is here and below too may go.
//!
//! Who makes room goes through the buckets of the index, whose order is that of hashes: as good as chance, and nothing is
//! noted for it when files are read. Contents of files that nobody has open, and that nobody has changed, go first.
//!
//! Names that go make their directory one that is not listed. Whoever is listing it at that moment must not call it
//! listed afterwards: [`Fs::forget`] comes before, and [`Fs::mark_listed`] looks, with the directory locked, whether
//! anybody has forgotten names since the listing began.

use super::bits;
use crate::dir::NameBuffer;
use crate::fs::Fs;
use crate::segment::cachelet;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use format::bucket::{self, ENTRIES};
use format::inode::{node_offset, unpack_links};
use format::lane;
use pm::Errno;

/// Most buckets of one chain that are looked at.
const CHAIN: usize = 64;

impl Fs {
    /// In how many steps all names come by ([`Fs::next_names`]).
    pub fn names_steps(&self) -> u64 {
        self.root().buckets.load(Acquire)
    }

    /// Calls `each` with the names that come next, in no order: directory, child, and its type. Some may be gone.
    pub fn next_names(&self, each: &mut dyn FnMut(Node, Node, Kind)) -> Result<()> {
        let number = self.cache_state()?.hand.fetch_add(1, Relaxed) % self.names_steps().max(1);
        self.names_at(number, each)
    }

    /// The same of step `number`.
    pub fn names_at(&self, number: u64, each: &mut dyn FnMut(Node, Node, Kind)) -> Result<()> {
        self.names_in(number, &mut |edentry| self.name_at(edentry, each))
    }

    /// Calls `each` with the offsets of the edentries in a bucket of the index.
    pub(super) fn names_in(&self, number: u64, each: &mut dyn FnMut(u64)) -> Result<()> {
        let mut offset = self.bucket_place(number)?;
        for _ in 0..CHAIN {
            let bucket = self.bucket(offset)?;
            for index in 0..ENTRIES {
                let entry = bucket.entries[index].load(Acquire);
                if entry != 0 {
                    each(bucket::entry_offset(entry));
                }
            }
            offset = bucket.next.load(Acquire);
            if offset == 0 {
                break;
            }
        }
        Ok(())
    }

    /// What an edentry says, if it is one: it may be another thing's by now.
    fn name_at(&self, edentry: u64, each: &mut dyn FnMut(Node, Node, Kind)) {
        let Ok(entry) = self.read_edentry(edentry, &mut NameBuffer::new()) else { return };
        let (Some(kind), Ok(dir)) = (Kind::from_dt(entry.head.kind), self.node_at(entry.parent)) else { return };
        each(dir, Node { id: entry.child, hint: u32::MAX }, kind);
    }

    /// Takes away what is here of a file, unless somebody has it open or has changed it; how many blocks that were.
    pub fn evict_contents(&self, cx: &Cx, node: Node) -> Result<u64> {
        self.drop_clean_contents(cx, node, false)
    }

    /// The same if somebody has it open, too: what is read from now on is asked for below. `EBUSY` if it is mapped.
    pub fn ask_contents_again(&self, cx: &Cx, node: Node) -> Result<()> {
        self.drop_clean_contents(cx, node, true).map(drop)
    }

    fn drop_clean_contents(&self, cx: &Cx, node: Node, also_open: bool) -> Result<u64> {
        let inode = self.inode(node_offset(node.id))?;
        if inode.head().kind != Kind::Regular as u8 || inode.root.load(Acquire) == 0 {
            return Ok(0);
        }
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let is_clean = self.known(node)?.is_some_and(|known| known.state & (bits::DIRTY | bits::PARKED | bits::UNSTAMPED) == 0);
        if !is_clean || cachelet.opens.load(SeqCst) != 0 && !also_open {
            return Ok(0);
        }
        let (_, blocks) = unpack_links(inode.links.load(Acquire));
        self.drop_contents(&mut tx, cachelet, node.id)?;
        Ok(blocks.into())
    }

    /// Whether somebody has a node open.
    pub fn is_open(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(self.cached(cx, node)?.opens.load(SeqCst) != 0)
    }

    /// Whether bytes of a file may be missing here, so that its original is to be compared before it is opened.
    pub fn is_unsure(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(self.cached(cx, node)?.flags.load(SeqCst) & cachelet::UNSURE != 0)
    }

    /// All bytes of a file are here: from now on the fast path opens it.
    pub fn is_sure(&self, cx: &Cx, node: Node) -> Result<()> {
        // The same bit refuses writers of a file that is executed.
        if !self.any_executed() {
            self.cached(cx, node)?.flags.fetch_and(!cachelet::UNSURE, SeqCst);
        }
        Ok(())
    }

    /// How many names a node has here.
    pub fn names_here(&self, node: Node) -> Result<u32> {
        Ok(unpack_links(self.inode(node_offset(node.id))?.links.load(Acquire)).0)
    }

    /// Changes when blocks are taken from a file.
    pub fn moves(&self, cx: &Cx, node: Node) -> Result<u32> {
        Ok(self.cached(cx, node)?.map_sequence.load(Acquire))
    }

    /// How often names have gone that there are below.
    pub fn forgotten(&self) -> u64 {
        self.cache_state().map_or(0, |state| state.forgotten.load(SeqCst))
    }

    /// Some are about to go, of a directory that is then marked as not listed.
    pub fn forget(&self) {
        if let Ok(state) = self.cache_state() {
            state.forgotten.fetch_add(1, AcqRel);
        }
    }

    /// All names of a directory are here, unless some have gone since [`Fs::forgotten`] was `before`; whether they are.
    pub fn mark_listed(&self, cx: &Cx, dir: Node, before: u64) -> Result<bool> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, dir)?;
        if self.forgotten() != before {
            return Ok(false);
        }
        let inode = self.inode(node_offset(dir.id))?;
        let (_, lower) = self.lower_lines(inode)?.ok_or(Errno::ESTALE)?;
        self.change_marks(cachelet, inode, lower, (bits::LISTED, 0));
        Ok(true)
    }
}
