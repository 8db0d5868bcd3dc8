//! Where a file's bytes lie in the image, run by run: what `FIEMAP` says.

use super::block_of;
use crate::fs::{Fs, corrupt};
use base::{Cx, FileRun, Node, Result};
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::fence;
use format::BLOCK;
use format::extent::Extent;

/// How often a file may change while it is looked at.
const ATTEMPTS: u32 = 10_000;

impl Fs {
    /// The first run of a file's blocks that ends behind byte `at`, all of which other extents have too, or none. No lock: it is
    /// as it was at one moment. `None`: there is nothing more.
    pub fn run_at(&self, cx: &Cx, node: Node, at: u64) -> Result<Option<FileRun>> {
        for _ in 0..ATTEMPTS {
            let cachelet = self.cached(cx, node)?;
            self.is_file(cachelet)?;
            let before = cachelet.map_sequence.load(Acquire);
            let found = self.run_in(cachelet.root.load(Acquire), block_of(at));
            fence(Acquire);
            let is_still = before & 1 == 0 && cachelet.map_sequence.load(Acquire) == before;
            if is_still && cachelet.node.load(Acquire) == node.id {
                return found;
            }
            core::hint::spin_loop();
        }
        Err(corrupt("map of a file", format::inode::node_offset(node.id)))
    }

    fn run_in(&self, root: u64, block: u64) -> Result<Option<FileRun>> {
        let Some(e) = self.find_extent(root, block)? else { return Ok(None) };
        let first = e.file.max(block);
        let (is_shared, len) = self.shared_run(e.part(first, e.end()))?;
        let end = first + len;
        let is_last = self.find_extent(root, end)?.is_none();
        let image = (e.block + (first - e.file)) * BLOCK;
        Ok(Some(FileRun { start: first * BLOCK, image, len: len * BLOCK, is_shared, is_last }))
    }

    /// Whether others have the first block of an extent too, and how many behind it are the same in that.
    fn shared_run(&self, e: Extent) -> Result<(bool, u64)> {
        if !e.shared {
            return Ok((false, e.len));
        }
        let (count, mut len) = self.count_of(e.block, e.len)?;
        while len < e.len {
            let (next, more) = self.count_of(e.block + len, e.len - len)?;
            if (next != 0) != (count != 0) {
                break;
            }
            len += more;
        }
        Ok((count != 0, len))
    }
}
