//! The data of files: where it lies, reading, writing, giving space and taking it.
//!
//! | file | what |
//! |---|---|
//! | `extents` | finding a block in the map of `format::extent` |
//! | `edit` | changing the map: one edit a record |
//! | `cursor` | a program's buffers, or another file, as a stream of bytes |
//! | `read` | without locks, "copy, then see whether the map has changed" |
//! | `write`, `job` | overwrite, extend, fill holes |
//! | `atomic` | overwriting whole or not at all |
//! | `truncate`, `reclaim` | giving blocks back, in records of bounded size |
//! | `allocate`, `mapping` | fallocate, seek, copy; mapped ranges |
//! | `clone`, `shares` | files that share blocks: sharing, breaking it; the counts |
//! | `places` | where a file's bytes lie |
//! | `sync` | what fsync does |
//!
//! Invariants
//! - Only the holder of the inode's lock changes data root, size, blocks and
//!   times of a file; `cachelet.root` and `.size` follow the inode, the root
//!   before the size, so that a reader who loads the size first finds its blocks.
//! - `cachelet.map_sequence` is odd from before a record that takes blocks from
//!   the map (or moves entries in it) until the cachelet has the new root.
//! - **Bytes beyond the end of the file mean nothing.** Whoever raises the size
//!   zeroes what lies between the old end and what he writes. So blocks can be
//!   given out ahead of need, and a truncation cut short by death leaves nothing
//!   but blocks beyond the end, which the next one or the last close takes.
//! - Data are durable before the record or the size word that makes them seen.
//! - Blocks of a file that is mapped (`MAPPED`) are zeroed, not freed, and are no other file's.
//! - Blocks of an extent that says it is shared are not written. Only the holder of the inode changes that word, and
//!   only the holder of the counts' lock the counts (`shares`).

mod allocate;
pub(crate) mod atomic;
mod clone;
mod cursor;
mod edit;
mod extents;
pub(crate) mod fetch;
pub(crate) mod job;
mod mapping;
mod places;
mod read;
pub(crate) mod reclaim;
pub(crate) mod shares;
mod sync;
#[cfg(test)]
mod tests;
mod truncate;
mod write;
pub(crate) mod zeros;

use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::segment::Cachelet;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use format::BLOCK;
use pm::Errno;

/// First block number that no file can have.
pub(crate) const BLOCKS_MAX: u64 = 1 << 32;

/// Block of a file that holds this byte.
#[inline]
pub(crate) const fn block_of(byte: u64) -> u64 {
    byte / BLOCK
}

/// Blocks that hold this many bytes.
#[inline]
pub(crate) const fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK)
}

/// Makes a file's map sequence odd for as long as it lives: readers wait, or
/// copy again. Only for the holder of the inode.
pub(crate) struct Moving<'a>(&'a Cachelet);

impl<'a> Moving<'a> {
    pub(crate) fn begin(cachelet: &'a Cachelet) -> Moving<'a> {
        cachelet.map_sequence.store(cachelet.map_sequence.load(Relaxed) | 1, SeqCst);
        fence(SeqCst);
        Moving(cachelet)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.map_sequence.store(self.0.map_sequence.load(Relaxed).wrapping_add(1) & !1, Release);
    }
}

impl Fs {
    /// Locks the inode of a node and returns its cachelet. `ESTALE` if it is gone.
    #[inline]
    pub(crate) fn lock_node<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a Cachelet> {
        self.with_cached(cx, node, |cachelet| tx.lock_inode(cachelet, node.id).map(|()| cachelet))
    }

    /// As `lock_node`, for a regular file: `EISDIR`, `EINVAL`.
    #[inline]
    pub(crate) fn lock_file<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a Cachelet> {
        let cachelet = self.lock_node(tx, cx, node)?;
        self.is_file(cachelet)?;
        Ok(cachelet)
    }

    /// `EISDIR` for a directory, `EINVAL` for what is no regular file either.
    #[inline]
    pub(crate) fn is_file(&self, cachelet: &Cachelet) -> Result<()> {
        match (cachelet.mode.load(Relaxed) >> 16) as u8 {
            kind if kind == Kind::Regular as u8 => Ok(()),
            kind if kind == Kind::Directory as u8 => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Makes sure that a range of the image is mapped, which another process may have grown.
    #[inline]
    pub(crate) fn present(&self, offset: u64, len: u64) -> Result<()> {
        if self.image.holds(offset, len) { Ok(()) } else { self.present_grown(offset, len) }
    }

    #[cold]
    #[inline(never)]
    fn present_grown(&self, offset: u64, len: u64) -> Result<()> {
        self.refresh_valid();
        if self.image.holds(offset, len) { Ok(()) } else { Err(corrupt("extent", offset)) }
    }
}
