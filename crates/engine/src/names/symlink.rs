//! Symlinks: a text in lines of its own.

use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::lane::record::SetBits;
use base::{Cx, Kind, Node, PATH_MAX, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::extent::symlink_lines;
use format::inode::node_offset;
use format::{BLOCK, LINE};
use pm::{Errno, UserSlice};

/// Largest text whose lines are put under the record's checksum.
const SHORT: u32 = 4;

/// `ENOENT` for an empty target, `ENAMETOOLONG` for one that is no path.
pub(super) fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(Errno::ENOENT.into()),
        1..PATH_MAX => Ok(()),
        _ => Err(Errno::ENAMETOOLONG.into()),
    }
}

impl Fs {
    /// Allocates and writes the text of a symlink; returns its offset, and the
    /// store that allocates it, for the record.
    pub(super) fn new_text<'a>(&'a self, tx: &mut Tx<'a>, target: &[u8]) -> Result<(u64, SetBits<'a>)> {
        let lines = symlink_lines(target.len() as u64);
        let (at, allocated) = tx.new_lines(lines, Arena::Other)?;
        self.present(at, target.len() as u64)?;
        self.image.copy_in(at, UserSlice::from_ref(target))?;
        // So that a damaged length shows.
        self.image.zero(at + target.len() as u64, u64::from(lines) * LINE - target.len() as u64)?;
        if lines <= SHORT {
            tx.object(at, lines)?;
        } else {
            tx.order();
        }
        Ok((at, allocated))
    }

    /// Copies the target of a symlink, as much as fits; returns how much. `EINVAL` if it is none.
    pub fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let cachelet = self.cached(cx, node)?;
        for _ in 0..super::ATTEMPTS {
            let before = cachelet.sequence.load(Acquire);
            let (kind, at, len) = self.consistent(cx, cachelet, node.id, |c| {
                ((c.mode.load(Relaxed) >> 16) as u8, c.root.load(Relaxed), c.size.load(Relaxed))
            })?;
            if kind != Kind::Symlink as u8 {
                return Err(Errno::EINVAL.into());
            }
            if len >= PATH_MAX as u64 || at % LINE != 0 || at % BLOCK + len > BLOCK {
                return Err(corrupt("text of a symlink", node_offset(node.id)));
            }
            self.at::<core::sync::atomic::AtomicU64>(at, "text of a symlink")?;
            let take = (len as usize).min(out.len);
            let copied = self.image.copy_out(at, UserSlice { ptr: out.ptr, len: take });
            core::sync::atomic::fence(Acquire);
            // The text goes with its inode, whose cachelet changes before that.
            if cachelet.sequence.load(Relaxed) == before {
                copied.map_err(|_| corrupt("text of a symlink", at))?;
                return Ok(take);
            }
        }
        Err(Errno::EIO.into())
    }
}
