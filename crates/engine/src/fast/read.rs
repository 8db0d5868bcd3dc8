//! Reading one buffer out of one extent. Copy, then see whether the map has changed meanwhile.

use crate::fs::Fs;
use crate::segment::{Cachelet, cachelet};
use base::{Fast, Kind, Node};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::BLOCK;
use format::extent::Root;
use pm::UserSlice;

impl Fs {
    /// Reads at `offset` from a regular file: bytes read, 0 at the end.
    #[inline(always)]
    pub fn read_fast(&self, node: Node, offset: u64, buffer: UserSlice) -> Fast<usize> {
        self.try_read(node, offset, buffer).into()
    }

    #[inline(always)]
    fn try_read(&self, node: Node, offset: u64, buffer: UserSlice) -> Option<usize> {
        let cachelet = self.cachelet(node.hint)?;
        let before = cachelet.map_sequence.load(Acquire);
        let unusable = cachelet.flags.load(Acquire) & (cachelet::DEAD | cachelet::INVALID | cachelet::OVERWRITTEN);
        let other = cachelet.mode.load(Relaxed) >> 16 & 0xff ^ Kind::Regular as u32;
        if before & 1 | unusable | other != 0 || cachelet.node.load(Acquire) != node.id {
            return None;
        }
        let done = self.read_one(cachelet, offset, buffer)?;
        fence(Acquire);
        (cachelet.map_sequence.load(Relaxed) == before).then_some(done)
    }

    /// The common case: one buffer, out of one extent.
    #[inline(always)]
    fn read_one(&self, cachelet: &Cachelet, offset: u64, buffer: UserSlice) -> Option<usize> {
        // The size first: whoever raises it has set the root before.
        let size = cachelet.size.load(Acquire);
        let root = cachelet.root.load(Acquire);
        let (block, len) = match Root::own(root) {
            Some(run) => run,
            None => shared_run(root)?,
        };
        let count = size.saturating_sub(offset).min(buffer.len as u64);
        if count == 0 {
            return Some(0);
        }
        if offset + count > len * BLOCK {
            return None;
        }
        let part = buffer.part(0, count as usize);
        self.image.copy_out(block * BLOCK + offset, part).ok()?;
        Some(part.len)
    }
}

/// A run of blocks that others may have too. Out of line: who reads what is not shared does not pay for the question.
#[cold]
#[inline(never)]
fn shared_run(root: u64) -> Option<(u64, u64)> {
    Root::one(root)
}
