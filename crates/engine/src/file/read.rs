//! Reading: no lock, nothing shared is written. Copy, then see whether the map
//! has changed meanwhile; if so, copy again.

use super::cursor::Cursor;
use crate::fs::{Fs, corrupt};
use crate::lane::lock::Waiter;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Fast, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::inode::node_offset;
use pm::{Errno, UserSlice};

/// Attempts to read a consistent map: nobody who means well keeps a reader so long.
const ROUNDS: u32 = 1 << 20;

impl Fs {
    /// Reads at `offset` into the buffers in turn; bytes read, 0 at the end.
    #[inline]
    pub fn read(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        if let [buffer] = into
            && let Fast::Done(done) = self.read_fast(node, offset, *buffer)
        {
            return Ok(done);
        }
        self.read_slow(cx, node, offset, into)
    }

    #[inline(never)]
    fn read_slow(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        let mut wait = Waiter::by(self, cx);
        for _ in 0..ROUNDS {
            let cachelet = self.cached(cx, node)?;
            let before = cachelet.map_sequence.load(Acquire);
            if before & 1 == 1 {
                if !wait.once(self, cachelet.owner.load(Acquire)) {
                    // Nobody is changing it: somebody has left it so.
                    let _ = cachelet.map_sequence.compare_exchange(before, before.wrapping_add(1), Acquire, Relaxed);
                }
                wait.check(self)?;
                if wait.is_nonsense() {
                    break;
                }
                continue;
            }
            if cachelet.flags.load(Acquire) & cachelet::INVALID != 0 || cachelet.node.load(Acquire) != node.id {
                continue;
            }
            self.is_file(cachelet)?;
            if cachelet.flags.load(Acquire) & cachelet::OVERWRITTEN != 0 && self.is_left_overwritten(cx, cachelet) {
                continue;
            }
            let result = self.read_pieces(cachelet, offset, into);
            fence(Acquire);
            if cachelet.map_sequence.load(Relaxed) == before {
                return result;
            }
        }
        Err(corrupt("cachelet", node_offset(node.id)))
    }

    fn read_pieces(&self, cachelet: &Cachelet, offset: u64, into: &[UserSlice]) -> Result<usize> {
        let size = cachelet.size.load(Acquire);
        let root = cachelet.root.load(Acquire);
        let end = size.min(offset.saturating_add(UserSlice::total(into) as u64));
        let (mut at, mut cursor) = (offset, Cursor::new(into));
        while at < end {
            let piece = self.piece(root, at, end - at)?;
            if let Some(from) = piece.image {
                self.present(from, piece.len)?;
            }
            let mut done = 0;
            while done < piece.len {
                let Some(part) = cursor.next(piece.len - done) else { return Ok((at + done - offset) as usize) };
                let moved = match piece.image {
                    Some(from) => match self.image.copy_out_some(from + done, part) {
                        Err(Errno::EFAULT) if self.image.holds(from + done, part.len as u64) => 0,
                        moved => moved?,
                    },
                    None => part.zero(),
                };
                done += moved as u64;
                if moved < part.len {
                    // The buffer ends before it says.
                    return match (at + done - offset) as usize {
                        0 => Err(Errno::EFAULT.into()),
                        all => Ok(all),
                    };
                }
            }
            at += piece.len;
        }
        Ok(at.saturating_sub(offset) as usize)
    }
}
