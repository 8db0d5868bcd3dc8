//! Taking a directory's counts again, after an adopted record left them in doubt.

use super::NameBuffer;
use crate::fs::Fs;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::inode::{self, Head, node_offset, word};
use format::lane;
use pm::Errno;

impl Fs {
    /// Counts the entries of a directory that is flagged for it, with nobody
    /// inside. Does nothing if another is at it.
    #[cold]
    #[inline(never)]
    pub(crate) fn recount(&self, cx: &Cx, dir: Node) -> Result<()> {
        self.with_cached(cx, dir, |cachelet| self.recount_in(cx, dir, cachelet))
    }

    /// `ESTALE` if the cachelet is taken away before it is held.
    fn recount_in(&self, cx: &Cx, dir: Node, cachelet: &Cachelet) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        match tx.close_directory(cachelet, dir.id, cachelet::UNREADABLE) {
            Ok(()) => {}
            Err(base::Error::Posix(Errno::EBUSY)) => return Ok(()),
            Err(error) => return Err(error),
        }
        tx.lock_inode(cachelet, dir.id)?;
        let offset = node_offset(dir.id);
        let inode = self.inode(offset)?;
        let head = inode.head();
        if head.flags & inode::RECOUNT == 0 {
            return Ok(());
        }
        let (entries, directories) = self.count_slots(offset)?;
        tx.set(offset + word::SIZE, entries)?;
        tx.set(offset + word::LINKS, directories)?;
        tx.set(offset + word::HEAD, Head { flags: head.flags & !inode::RECOUNT, ..head }.pack())?;
        tx.commit()?;
        cachelet.flags.fetch_and(!cachelet::RECOUNT, core::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Entries and sub-directories of a directory that nobody changes.
    fn count_slots(&self, offset: u64) -> Result<(u64, u64)> {
        let inode = self.inode(offset)?;
        let mut name = NameBuffer::new();
        let (mut entries, mut directories) = (0, 0);
        for block in 0..self.slot_blocks(inode)? {
            let Some(at) = self.slot_offset(inode, block * SLOTS_PER_BLOCK)? else { break };
            let slots: &[AtomicU64; SLOTS_PER_BLOCK as usize] = self.at(at, "directory block")?;
            for slot in slots {
                let slot = slot.load(Acquire);
                if slot != 0 && reserved_by(slot).is_none() {
                    entries += 1;
                    directories += u64::from(self.read_edentry(slot, &mut name)?.head.kind == Kind::Directory as u8);
                }
            }
        }
        Ok((entries, directories))
    }
}
