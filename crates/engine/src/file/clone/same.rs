//! Files that have the same bytes: found to be so, they share the blocks.
//!
//! Both are locked while they are compared and until the last record, so nobody changes either in between. Neither size nor
//! times change. A file that is mapped is left alone: what is stored into it is not seen.

use super::{Place, are_mapped};
use crate::file::cursor::Piece;
use crate::fs::Fs;
use crate::lane::Tx;
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::BLOCK;
use format::lane::Kind;
use pm::{Errno, UserSlice};

/// Bytes that are compared at a time.
const COMPARED: u64 = 2048;

impl Fs {
    /// Has `len` bytes of a file share the blocks of another one's (or of the same where they do not overlap) if they are the
    /// same: how many do then; `None` if they differ. As `FIDEDUPERANGE`: `EINVAL` for what does not begin with a block, or
    /// lies behind an end; a part of a block counts only where both files end. `EOPNOTSUPP`: one of them is mapped. In a
    /// cache both are here (`EAGAIN`).
    pub fn dedupe_range(&self, cx: &Cx, (from, from_at): (Node, u64), (to, to_at): (Node, u64), len: u64) -> Result<Option<u64>> {
        let mut tx = self.begin(cx, Kind::Clone)?;
        let (source, target) = self.lock_two(&mut tx, cx, from, to)?;
        let (size, target_size) = (source.size.load(Relaxed), target.size.load(Relaxed));
        let (end, to_end) = (from_at.checked_add(len).ok_or(Errno::EINVAL)?, to_at.checked_add(len).ok_or(Errno::EINVAL)?);
        let are_whole = from_at.is_multiple_of(BLOCK) && to_at.is_multiple_of(BLOCK);
        if !are_whole || from_at >= size || to_at >= target_size || end > size || to_end > target_size {
            return Err(Errno::EINVAL.into());
        }
        let len = if (end, to_end) == (size, target_size) { len } else { len - len % BLOCK };
        let room = len.next_multiple_of(BLOCK);
        if from == to && from_at < to_at + room && to_at < from_at + room {
            return Err(Errno::EINVAL.into());
        }
        self.may_share(&mut tx)?;
        if are_mapped(source, target) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.is_here((source, from), from_at, end)?;
        self.is_here((target, to), to_at, to_end)?;
        let (from, to) = ((source, from, from_at), (target, to, to_at));
        if !self.are_same(from, to, len)? {
            return Ok(None);
        }
        self.share_same(&mut tx, from, to, len).map(|()| Some(len))
    }

    /// What two locked files have at a byte each, as far as both have it in one piece.
    fn both_pieces(&self, from: Place, to: Place, len: u64) -> Result<(Piece, Piece, u64)> {
        let a = self.piece(from.0.root.load(Acquire), from.2, len)?;
        let b = self.piece(to.0.root.load(Acquire), to.2, len)?;
        let len = a.len.min(b.len);
        Ok((a, b, len))
    }

    fn are_same(&self, from: Place, to: Place, len: u64) -> Result<bool> {
        let mut done = 0;
        while done < len {
            let (a, b, step) = self.both_pieces((from.0, from.1, from.2 + done), (to.0, to.1, to.2 + done), len - done)?;
            if a.image != b.image && !self.have_same(a.image, b.image, step)? {
                return Ok(false);
            }
            done += step;
        }
        Ok(true)
    }

    /// Whether bytes at two places of the image are the same; where one is none, zeros.
    fn have_same(&self, a: Option<u64>, b: Option<u64>, len: u64) -> Result<bool> {
        let mut at = 0;
        while at < len {
            let step = COMPARED.min(len - at) as usize;
            let mut bytes = [[0u8; COMPARED as usize]; 2];
            for (place, bytes) in [a, b].into_iter().zip(&mut bytes) {
                if let Some(place) = place {
                    self.present(place + at, step as u64)?;
                    self.image.copy_out(place + at, UserSlice::from_mut(&mut bytes[..step]))?;
                }
            }
            if bytes[0][..step] != bytes[1][..step] {
                return Ok(false);
            }
            at += step as u64;
        }
        Ok(true)
    }

    fn share_same<'a>(&'a self, tx: &mut Tx<'a>, from: Place<'a>, to: Place<'a>, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let (from, to) = ((from.0, from.1, from.2 + done), (to.0, to.1, to.2 + done));
            let (a, b, step) = self.both_pieces(from, to, len - done)?;
            if a.image == b.image {
                done += step;
                continue;
            }
            done += self.share_once(tx, from, to, step, false).inspect_err(|_| tx.abandon())?;
            tx.unlock_shares();
        }
        Ok(())
    }
}
