//! Inodes without a name that somebody still has open, or whose blocks are many:
//! a table in the image, so that a crash does not lose their space.
//!
//! A slot holds a node id, or 0. It is filled and emptied by the record of the
//! operation, under a leaf lock held to the end of it. Searches stop at a
//! volatile high-water mark (`Header::orphans_high`, slots used ever + 1; 0 after
//! a new segment, when the whole table counts): a program with many open files
//! that have no name is rare, so a search touches little.

use crate::alloc::fault;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::inode::{node_offset, unpack_links};
use format::{lane, layout};
use pm::Errno;

impl Fs {
    /// A slot of the orphan table.
    pub(crate) fn orphan_slot(&self, number: u64) -> Result<&AtomicU64> {
        self.at(layout::ORPHAN_TABLE + number * 8, "orphan table")
    }

    /// The slots of the orphan table, without stretches known to be empty.
    pub(crate) fn orphan_numbers(&self) -> impl Iterator<Item = u64> {
        let block = layout::BLOCK / 8;
        let known = move |first: &u64| !self.image.known_zero(layout::ORPHAN_TABLE + first * 8, layout::BLOCK);
        (0..layout::ORPHANS).step_by(block as usize).filter(known).flat_map(move |first| first..first + block)
    }

    /// Slots that a search must look at.
    #[inline]
    pub(crate) fn orphans_high(&self) -> Result<u64> {
        match self.header().orphans_high.load(Acquire) {
            0 => self.find_orphans_high(),
            known => Ok(u64::from(known - 1).min(layout::ORPHANS)),
        }
    }

    /// Looks through the whole table. Beside others too: whoever adds one has raised the mark above it before.
    #[cold]
    #[inline(never)]
    fn find_orphans_high(&self) -> Result<u64> {
        let mut high = 0;
        for number in self.orphan_numbers() {
            if self.orphan_slot(number)?.load(Relaxed) != 0 {
                high = number + 1;
            }
        }
        self.header().orphans_high.fetch_max(high as u32 + 1, SeqCst);
        Ok(high)
    }

    /// Records an orphan. `ENOSPC` if the table is full. Keeps the table's lock.
    #[cold]
    pub(crate) fn add_orphan<'a>(&'a self, tx: &mut Tx<'a>, id: u64) -> Result<()> {
        self.lock_orphans(tx)?;
        if fault::strikes(fault::Kind::Orphan) {
            return Err(Errno::ENOSPC.into());
        }
        let high = self.orphans_high()?;
        for number in 0..(high + 1).min(layout::ORPHANS) {
            if self.orphan_slot(number)?.load(Acquire) == 0 {
                if number >= high {
                    self.header().orphans_high.fetch_max(number as u32 + 2, SeqCst);
                }
                return tx.set(layout::ORPHAN_TABLE + number * 8, id);
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// Records that an inode is no orphan any more. Keeps the table's lock.
    #[cold]
    pub(crate) fn remove_orphan<'a>(&'a self, tx: &mut Tx<'a>, id: u64) -> Result<()> {
        self.lock_orphans(tx)?;
        for number in 0..self.orphans_high()? {
            if self.orphan_slot(number)?.load(Acquire) == id {
                return tx.set(layout::ORPHAN_TABLE + number * 8, 0);
            }
        }
        Err(corrupt("orphan without a slot", node_offset(id)))
    }

    /// Takes the table's lock, once in an operation.
    fn lock_orphans<'a>(&'a self, tx: &mut Tx<'a>) -> Result<()> {
        let lock = &self.header().orphan.0;
        if lock.load(Relaxed) == tx.number + 1 {
            return Ok(());
        }
        tx.lock(lock)
    }

    /// Whether a node has no name left. The caller holds `owner`, or can live with an answer of the past.
    pub(crate) fn is_nameless(&self, cachelet: &Cachelet, id: u64) -> Result<bool> {
        if (cachelet.mode.load(Acquire) >> 16) as u8 == Kind::Directory as u8 {
            // The flag may be missing if the lane that removed it has died.
            let removed = cachelet.flags.load(Acquire) & cachelet::REMOVED != 0;
            return Ok(removed || self.is_removed_directory(self.inode(node_offset(id))?, id)?);
        }
        Ok(unpack_links(self.inode(node_offset(id))?.links.load(Acquire)).0 == 0)
    }

    /// Frees an orphan that nobody has open any more. What cannot be freed now stays
    /// in the table: whoever attaches, forks or removes another tries again.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_orphan(&self, cx: &Cx, node: Node) {
        if !self.try_orphan(cx, node) {
            self.note_leftovers();
        }
    }

    /// Frees an orphan that nobody has open; false if that is to be tried again.
    pub(crate) fn try_orphan(&self, cx: &Cx, node: Node) -> bool {
        match self.reclaim_orphan(cx, node) {
            Ok(()) => true,
            // Damage stays for the repair; who may write nothing leaves it to whoever attaches next.
            Err(base::Error::Corrupt { .. } | base::Error::Posix(Errno::EROFS)) => true,
            Err(_) => false,
        }
    }

    /// Frees an orphan that nobody has open any more: at the last close, or when
    /// what a crash left is cleared up. Does nothing if it has a name or is open.
    #[cold]
    #[inline(never)]
    fn reclaim_orphan(&self, cx: &Cx, node: Node) -> Result<()> {
        if fault::strikes(fault::Kind::Reclaim) {
            return Err(Errno::ENOLCK.into());
        }
        let mut tx = self.begin(cx, lane::Kind::Orphan)?;
        let cachelet = match self.lock_node(&mut tx, cx, node) {
            Ok(cachelet) => cachelet,
            // Somebody else has freed it.
            Err(base::Error::Posix(Errno::ESTALE)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.is_nameless(cachelet, node.id)? {
            return Ok(());
        }
        // As in `give_up_inode`: flag first, then look.
        cachelet.flags.fetch_or(cachelet::EVICTING | cachelet::closed_by(tx.number), SeqCst);
        if cachelet.opens.load(SeqCst) != 0 {
            self.settle_victim(tx.number, cachelet, false);
            return Ok(());
        }
        let result = self.reclaim_changing(&mut tx, cachelet, node_offset(node.id));
        self.settle_victim(tx.number, cachelet, result.is_ok());
        result
    }

    /// A chain of records if it is large; the entry in the table goes with the
    /// last one, so whoever comes after a crash finds it again.
    fn reclaim_changing<'a>(&'a self, tx: &mut Tx<'a>, cachelet: &Cachelet, offset: u64) -> Result<()> {
        let change = self.change(cachelet);
        let result = self.reclaim(tx, offset);
        drop(change);
        result
    }
}
