//! Truncating, up and down, and taking back what was given out ahead.
//!
//! Down: the first record has the new size and as many blocks as fit; more
//! records take the rest. Death in between leaves blocks beyond the end, which
//! harm nobody. Up: what is allocated there is zeroed, then the size word.

use super::job::Job;
use super::{BLOCKS_MAX, blocks_for};
use crate::fs::Fs;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::extent::FILE_MAX;
use format::lane::{Kind, word};
use pm::{Domain, Errno};

impl Fs {
    /// Sets the size of a regular file. `stamp`: the times change even if the
    /// size does not (`ftruncate`). `EISDIR`, `EINVAL`, `EFBIG`.
    pub(crate) fn truncate(&self, cx: &Cx, node: Node, size: u64, stamp: bool) -> Result<()> {
        if size > FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut tx = self.begin(cx, Kind::Truncate)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        let mut job = Job::new(&mut tx, cachelet, node.id)?;
        let before = job.size();
        job.drop_set_id(cx)?;
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
        let mut tx = self.begin(cx, Kind::Truncate)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        // Opened again meanwhile, perhaps mapped.
        if cachelet.opens.load(SeqCst) != 0 {
            return Ok(());
        }
        let before = cachelet.flags.fetch_and(!cachelet::MAPPED, SeqCst);
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

    /// Finishes truncations that a dead lane has noted. For a time when nobody
    /// uses the lanes.
    pub(crate) fn finish_truncations(&self, cx: &Cx, go_on: &mut dyn FnMut() -> bool) {
        for number in self.lane_numbers() {
            let intent = &self.lane(number).intent;
            let id = intent.load(Relaxed);
            if id == 0 {
                continue;
            }
            if !go_on() {
                return;
            }
            if let Ok(cachelet) = self.cached(cx, Node { id, hint: u32::MAX }) {
                cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
                self.trim(cx, cachelet, id);
            }
            self.image.store(intent, 0);
            self.image.flush(self.image.offset_of(intent), 8);
        }
    }
}

impl Job<'_, '_> {
    pub(super) fn shrink(&mut self, size: u64) -> Result<()> {
        if self.is_mapped() {
            // A mapping may reach there: the blocks stay, empty, to the last close.
            let before = self.size();
            self.publish(size);
            self.zero_allocated(size, before)?;
            self.cachelet.flags.fetch_or(cachelet::AHEAD, Relaxed);
            return Ok(());
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
        self.commit(edited, 0, size, true)?;
        if rest > end {
            self.cut(end, rest)?;
            self.tx.set(lane + word::INTENT, 0)?;
            self.tx.commit()?;
        }
        Ok(())
    }
}
