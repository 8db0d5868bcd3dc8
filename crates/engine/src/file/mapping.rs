//! Mapped ranges: a file's blocks are pages of the image, so a process maps them as they are.

use super::BLOCKS_MAX;
use super::job::Job;
use crate::fs::Fs;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Error, MapFor, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::BLOCK;
use format::lane::Kind;
use pm::Errno;

impl Fs {
    /// Reports where the bytes `offset..offset + len` (page-aligned) lie, in
    /// order, as (file offset, image offset, length). The caller holds a description for as long as
    /// he uses them.
    pub fn map(
        &self,
        cx: &Cx,
        node: Node,
        offset: u64,
        len: u64,
        what: MapFor,
        each: &mut dyn FnMut(u64, u64, u64),
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= BLOCKS_MAX * BLOCK).ok_or(Errno::EOVERFLOW)?;
        let mut tx = match self.begin(cx, Kind::Fallocate) {
            Ok(tx) => tx,
            Err(Error::Posix(Errno::EROFS)) if matches!(what, MapFor::Private | MapFor::Reading) => {
                let cachelet = self.cached(cx, node)?;
                if what == MapFor::Reading {
                    // Others may.
                    cachelet.flags.fetch_or(cachelet::HOLES, SeqCst);
                }
                return self.report_ranges(cachelet, offset, end, each);
            }
            Err(error) => return Err(error),
        };
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        // What is mapped must stay where it is, and be nobody else's.
        job.own_all(0, BLOCKS_MAX * BLOCK)?;
        job.mark_mapped(what);
        let size = job.size();
        let past = size.next_multiple_of(BLOCK);
        job.prepare_holes(offset, end.min(past), what)?;
        // What lies behind the end in its last page reads as zeros.
        if past > size && offset < past && end > size {
            job.zero_allocated(size, past)?;
        }
        self.report_ranges(cachelet, offset, end, each)
    }

    /// A file was stored into by a mapping: stamps it. Returns the time.
    pub fn stored(&self, cx: &Cx, node: Node) -> Result<i64> {
        let mut tx = self.begin(cx, Kind::Write)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let size = job.size();
        job.publish(size);
        Ok(job.now)
    }

    pub(super) fn report_ranges(
        &self,
        cachelet: &Cachelet,
        offset: u64,
        end: u64,
        each: &mut dyn FnMut(u64, u64, u64),
    ) -> Result<()> {
        self.is_file(cachelet)?;
        let end = end.min(cachelet.size.load(Relaxed).next_multiple_of(BLOCK));
        let (root, mut at) = (cachelet.root.load(Acquire), offset);
        while at < end {
            let piece = self.piece(root, at, end - at)?;
            if let Some(place) = piece.image {
                self.present(place, piece.len)?;
                each(at, place, piece.len);
            }
            at += piece.len;
        }
        Ok(())
    }
}

impl Job<'_, '_> {
    /// Does to the holes among `from..to` what a mapping needs; see [`MapFor`].
    fn prepare_holes(&mut self, from: u64, to: u64, what: MapFor) -> Result<()> {
        match what {
            MapFor::Private => Ok(()),
            MapFor::Reading => {
                if self.holes(from, to)? != 0 {
                    self.cachelet.flags.fetch_or(cachelet::HOLES, SeqCst);
                }
                Ok(())
            }
            MapFor::Writing => {
                // No more than half of what is left, or who maps much and stores little has all.
                let fits = self.holes(from, to)? <= self.fs.statfs()?.blocks_free / 2;
                match if fits { self.fill_holes(from, to, u64::MAX) } else { Ok(()) } {
                    Err(Error::Posix(Errno::ENOSPC)) => Ok(()),
                    result => result,
                }
            }
            MapFor::Touching => self.fill_holes(from, to, u64::MAX),
        }
    }
}
