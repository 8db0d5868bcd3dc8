//! Attributes out of a cachelet, into the program's `struct stat`.

use crate::fs::Fs;
use crate::segment::cachelet::{Cachelet, ODD_ATTRIBUTES};
use base::stat::{Figures, Stat};
use base::{Caller, Fast, Kind, Node};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::BLOCK;
use format::inode::node_offset;
use pm::Text;

impl Fs {
    /// The attributes at the end of `path`. `out` is left as it was unless they were found, or it is not all there.
    #[inline(always)]
    pub fn stat_fast(
        &self,
        who: &Caller,
        from: (Node, Text),
        follow: bool,
        covered: impl Fn(u64) -> bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Fast<()> {
        match self.resolve_fast(who, from, covered) {
            Fast::Done(found) => match found.dir.told_device() {
                Some(device) => self.stat_of(found.cachelet, found.sequence, (found.id, device), follow, out),
                None => Fast::Slow,
            },
            Fast::Absent => Fast::Absent,
            Fast::Slow => Fast::Slow,
        }
    }

    /// The attributes of an open node, as `stat_fast`.
    pub fn fstat_fast(&self, node: Node, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        let Some(cachelet) = self.cachelets.get(node.hint) else { return Fast::Slow };
        let sequence = cachelet.sequence.load(Acquire);
        if sequence & 1 != 0 || cachelet.node.load(Relaxed) != node.id {
            return Fast::Slow;
        }
        self.stat_of(cachelet, sequence, (node.id, self.device()), false, out)
    }

    /// The attributes of node `id` on `device`, read while its sequence was `sequence`.
    #[inline(always)]
    fn stat_of(
        &self,
        cachelet: &Cachelet,
        sequence: u32,
        (id, device): (u64, u64),
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Fast<()> {
        let word = cachelet.mode.load(Relaxed);
        if (word >> 16) as u8 != Kind::Regular as u8 {
            return self.stat_of_other(cachelet, sequence, (id, device), follow, out);
        }
        let figures = self.figures(cachelet, (id, device), word);
        let blocks = u64::from(cachelet.blocks.load(Relaxed)) * (BLOCK / 512);
        let is_done = cachelet.is_still(sequence, ODD_ATTRIBUTES) && (Figures { blocks, ..figures }).write(out);
        if is_done { Fast::Done(()) } else { Fast::Slow }
    }

    /// As `stat_of`, for directories, whose inode knows more, and symlinks.
    #[inline(never)]
    fn stat_of_other(
        &self,
        cachelet: &Cachelet,
        sequence: u32,
        (id, device): (u64, u64),
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Fast<()> {
        let word = cachelet.mode.load(Relaxed);
        let mut figures = self.figures(cachelet, (id, device), word);
        let is_plain = match (word >> 16) as u8 {
            kind if kind == Kind::Directory as u8 => self.directory_figures(node_offset(id), &mut figures),
            kind => kind == Kind::Symlink as u8 && !follow,
        };
        if is_plain && cachelet.is_still(sequence, ODD_ATTRIBUTES) && figures.write(out) { Fast::Done(()) } else { Fast::Slow }
    }

    /// What the cachelet of anything but a directory tells.
    #[inline(always)]
    fn figures(&self, cachelet: &Cachelet, (id, device): (u64, u64), word: u32) -> Figures {
        let mtime = cachelet.mtime.load(Relaxed) as i64;
        Figures {
            device,
            ino: self.ino(id),
            mode: word >> 4 & 0xf000 | word & 0xfff,
            nlink: cachelet.nlink.load(Relaxed),
            uid: cachelet.uid.load(Relaxed),
            gid: cachelet.gid.load(Relaxed),
            rdev: 0,
            size: cachelet.size.load(Relaxed),
            blocks: 0,
            atime: mtime,
            mtime,
            ctime: cachelet.ctime.load(Relaxed) as i64,
        }
    }

    /// What of a directory only its inode knows; false if that is to be counted again.
    #[inline]
    fn directory_figures(&self, offset: u64, figures: &mut Figures) -> bool {
        let Ok(inode) = self.inode(offset) else { return false };
        figures.nlink = (inode.links.load(Acquire) as u32).wrapping_add(2);
        figures.size = inode.size.load(Acquire).wrapping_mul(20).wrapping_add(40);
        figures.mtime = inode.mtime.load(Acquire) as i64;
        figures.ctime = inode.ctime.load(Acquire) as i64;
        figures.atime = figures.mtime;
        match inode.head().flags & (format::inode::RECOUNT | format::inode::COLD) {
            0 => true,
            format::inode::COLD if self.is_cache() => self.directory_figures_lower(inode, figures),
            _ => false,
        }
    }
}
