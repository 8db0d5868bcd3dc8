//! What an image that is a cache knows of the originals of its files (`format::cache`).
//!
//! A node that the lower file system has carries a cold line with a [`Lower`] line beside it: which file that is there,
//! what it was like when it was last seen, and how much of it is here. The inode's own words say the same of mode, owner,
//! size and times, so that whoever reads goes by the inode alone, as in any image.
//!
//! Invariants
//! - A node is named with its lower line in one record ([`Fs::create_whole`](crate::names::whole)): nobody sees half of one.
//! - Stamps change under the inode's lock, by a record; a bit of the state by one store.
//! - What the lower file system says of `st_nlink` and `st_blocks` stands in the cold line, and in the cachelet; the
//!   inode's own word counts what is here, as the check wants it.
//! - A directory that is not listed has [`PARTIAL`](cachelet::PARTIAL) in its cachelet: that a name is not here says nothing.

mod compare;
mod evict;
mod fetched;
mod gate;
mod number;
mod state;
#[cfg(test)]
mod tests;
mod update;
mod writer;
mod written;

pub use crate::file::fetch::{Fetch, Hole};
pub use crate::names::whole::Whole;
pub use compare::Cursor;
pub(crate) use compare::Freshness;
pub use fetched::Fetched;
pub use format::cache::state as bits;
pub(crate) use number::Numbers;
pub use state::{Identity, News, PLACE_MAX};
pub use update::Change;
pub use writer::{Answer, Changing, Closed};
pub use written::Written;

use crate::dir::NameBuffer;
use crate::fs::{Fs, corrupt};
use crate::segment::{Cachelet, cachelet};
use base::stat::Figures;
use base::{Attr, Cx, Kind, Node, Result};
use core::sync::atomic;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::fence;
use format::cache::Lower;
use format::inode::{self, Inode, node_generation, node_offset};
use format::{Cold, LINE};
use pm::Errno;

/// Units of `st_blocks` in a block.
pub(crate) const UNITS: u64 = format::BLOCK / 512;

/// What the lower file system says of a file, beside what stands in the inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Inode number there.
    pub number: u64,
    /// Device number there.
    pub device: u64,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since the epoch.
    pub mtime: i64,
    /// Nanoseconds since the epoch.
    pub ctime: i64,
    /// Names.
    pub nlink: u32,
    /// Space, in units of 512 bytes.
    pub blocks: u32,
}

impl Stamp {
    /// What the cold line shows of it: names and space in one word.
    fn shown(&self) -> u64 {
        u64::from(self.blocks) << 32 | u64::from(self.nlink)
    }

    /// Whether both are of the same file.
    pub fn is_same_file(&self, other: &Stamp) -> bool {
        (self.number, self.device) == (other.number, other.device)
    }

    /// Whether both are of the same file with the same contents.
    pub fn has_same_contents(&self, other: &Stamp) -> bool {
        self.is_same_file(other) && (self.size, self.mtime) == (other.size, other.mtime)
    }
}

/// What is known of a node's original.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it was like.
    pub stamp: Stamp,
    /// Bytes below which a hole is to be fetched.
    pub end: u64,
    /// When it was seen, nanoseconds since the epoch.
    pub seen: i64,
    /// [`bits`].
    pub state: u64,
}

impl Known {
    /// Whether something here is newer than below.
    pub fn is_dirty(&self) -> bool {
        self.state & bits::DIRTY != 0
    }

    /// Whether all names of the directory are here.
    pub fn is_listed(&self) -> bool {
        self.state & bits::LISTED != 0
    }
}

impl Fs {
    /// Whether the image was made to be a cache.
    #[inline]
    pub fn is_cache(&self) -> bool {
        self.files.features.load(core::sync::atomic::Ordering::Relaxed) & format::Features::CACHE.0 != 0
    }

    /// The cold and the lower line of an inode, if it has them.
    pub(crate) fn lower_lines(&self, inode: &Inode) -> Result<Option<(&Cold, &Lower)>> {
        if inode.head().flags & inode::COLD == 0 {
            return Ok(None);
        }
        let cold: &Cold = self.at(inode.extra.load(Acquire), "cold line")?;
        match cold.lower.load(Acquire) {
            0 => Ok(None),
            at => Ok(Some((cold, self.at(at, "lower line")?))),
        }
    }

    /// What is known of a node's original; `None` if the lower file system does not have it. `ESTALE`.
    pub fn known(&self, node: Node) -> Result<Option<Known>> {
        let inode = self.inode(node_offset(node.id))?;
        for _ in 0..1000 {
            let known = self.known_of(inode);
            fence(Acquire);
            if inode.head().generation & 0xff_ffff != node_generation(node.id) || inode.head().kind == 0 {
                return Err(Errno::ESTALE.into());
            }
            match known {
                // Read again: a change of stamps was under way.
                Ok(Some(first)) => {
                    if let Ok(Some(second)) = self.known_of(inode)
                        && second.stamp == first.stamp
                    {
                        return Ok(Some(second));
                    }
                }
                other => return other,
            }
        }
        Err(corrupt("lower line", node_offset(node.id)))
    }

    /// Whether a node has any of these [`bits`], or is not below at all; one load, where [`Fs::known`] compares two looks.
    /// `ESTALE`.
    pub fn is_marked(&self, node: Node, any: u64) -> Result<bool> {
        let inode = self.inode(node_offset(node.id))?;
        let is_marked = self.lower_lines(inode).map(|lines| lines.is_none_or(|(_, lower)| lower.state.load(Acquire) & any != 0));
        fence(Acquire);
        if inode.head().generation & 0xff_ffff != node_generation(node.id) || inode.head().kind == 0 {
            return Err(Errno::ESTALE.into());
        }
        is_marked
    }

    fn known_of(&self, inode: &Inode) -> Result<Option<Known>> {
        let Some((cold, lower)) = self.lower_lines(inode)? else { return Ok(None) };
        let shown = cold.shown.load(Relaxed);
        let stamp = Stamp {
            number: lower.number.load(Relaxed),
            device: lower.device.load(Relaxed),
            size: lower.size.load(Relaxed),
            mtime: lower.mtime.load(Relaxed) as i64,
            ctime: lower.ctime.load(Relaxed) as i64,
            nlink: shown as u32,
            blocks: (shown >> 32) as u32,
        };
        let (end, seen, state) = (lower.end.load(Relaxed), lower.seen.load(Relaxed) as i64, lower.state.load(Acquire));
        let stamp = if state & bits::DIRTY == 0 { stamp } else { Stamp { blocks: self.space_of(inode, lower) as u32, ..stamp } };
        Ok(Some(Known { stamp, end, seen, state }))
    }

    /// As [`Fs::show_lower`], of a cachelet that is being loaded.
    #[cold]
    pub(crate) fn fill_lower(&self, cachelet: &Cachelet, inode: &Inode) -> Result<Option<u32>> {
        if inode.head().kind == Kind::Directory as u8 {
            cachelet.flags.fetch_and(!cachelet::PARTIAL, SeqCst);
        }
        self.show_lower(cachelet, inode)
    }

    /// Fills in what a cachelet shows of a node of a cache beside what stands in its inode; its flags, in place of
    /// those that a cold line asks for. `None`: it is no such node.
    pub(crate) fn show_lower(&self, cachelet: &Cachelet, inode: &Inode) -> Result<Option<u32>> {
        let Some((cold, lower)) = self.lower_lines(inode)? else { return Ok(None) };
        let (mut shown, state) = (cold.shown.load(Relaxed), lower.state.load(Acquire));
        if inode.head().kind == Kind::Directory as u8 {
            let partial = if state & bits::LISTED == 0 { cachelet::PARTIAL } else { 0 };
            let is_plain = cold.flags.load(Relaxed) == 0 && cold.xattr.load(Relaxed) == 0 && !self.is_elsewhere(lower);
            return Ok(Some(partial | if is_plain { 0 } else { cachelet::COLD }));
        }
        if state & bits::DIRTY != 0 {
            shown = shown & 0xffff_ffff | self.space_of(inode, lower) << 32;
        }
        cachelet.nlink.store(shown as u32, Relaxed);
        cachelet.blocks.store((shown >> 32).div_ceil(UNITS) as u32, Relaxed);
        // Whoever asks for what only the cold line has must look there. The fast path shows whole blocks, of files, and one
        // `st_dev`.
        let is_shown =
            if inode.head().kind == Kind::Regular as u8 { (shown >> 32).is_multiple_of(UNITS) } else { shown >> 32 == 0 };
        let is_plain = cold.flags.load(Relaxed) == 0 && cold.xattr.load(Relaxed) == 0 && is_shown && !self.is_elsewhere(lower);
        let is_unsure = inode.head().kind == Kind::Regular as u8 && lower.end.load(Relaxed) != 0;
        Ok(Some(if is_plain { 0 } else { cachelet::COLD } | if is_unsure { cachelet::UNSURE } else { 0 }))
    }

    /// Space of a file that is newer here than below, as far as that is known, in units of 512 bytes.
    fn space_of(&self, inode: &Inode, lower: &Lower) -> u64 {
        if inode.head().kind != Kind::Regular as u8 {
            return 0;
        }
        let (_, blocks) = inode::unpack_links(inode.links.load(Relaxed));
        u64::from(blocks).max(lower.end.load(Relaxed).div_ceil(format::BLOCK)).saturating_mul(UNITS).min(u64::from(u32::MAX))
    }

    /// Whether any name of a directory is here.
    pub fn has_names(&self, dir: Node) -> Result<bool> {
        Ok(self.inode(node_offset(dir.id))?.size.load(Acquire) != 0)
    }

    /// Attributes, of a directory too as its original has them.
    pub fn attr_as_original(&self, cx: &Cx, node: Node) -> Result<Attr> {
        let mut attr = self.attr(cx, node)?;
        let Some(known) = self.known(node)? else { return Ok(attr) };
        let stamp = known.stamp;
        if attr.kind != Kind::Directory {
            (attr.nlink, attr.blocks) = (stamp.nlink, u64::from(stamp.blocks));
        } else if !(known.is_dirty() && known.is_listed()) {
            // Names that are not here have not been changed here.
            (attr.size, attr.nlink, attr.blocks) = (stamp.size, stamp.nlink, u64::from(stamp.blocks));
        }
        Ok(attr)
    }

    /// What a directory with a cold line shows if it has an original; false if it has none, or more than that.
    #[cold]
    #[inline(never)]
    pub(crate) fn directory_figures_lower(&self, inode: &Inode, figures: &mut Figures) -> bool {
        let Ok(Some((cold, lower))) = self.lower_lines(inode) else { return false };
        let read = || {
            let (shown, words) = (cold.shown.load(Acquire), [&lower.size, &lower.mtime, &lower.ctime]);
            (shown, words.map(|word| word.load(Acquire)))
        };
        let (shown, [size, mtime, ctime]) = read();
        (figures.nlink, figures.blocks, figures.size) = (shown as u32, shown >> 32, size);
        (figures.mtime, figures.ctime, figures.atime) = (mtime as i64, ctime as i64, mtime as i64);
        // A record may be under way that changes them.
        let is_plain = cold.flags.load(Relaxed) == 0 && cold.xattr.load(Relaxed) == 0;
        // While it is newer here its own figures count.
        let is_plain = is_plain && lower.state.load(Acquire) & bits::DIRTY == 0;
        is_plain && read() == (shown, [size, mtime, ctime]) && inode.head().flags & inode::RECOUNT == 0
    }

    /// The path of a node from the root of the image, into the end of `into`: where it begins there. For a file it is
    /// that of one of its names, as long as that is there (`ENOENT`).
    pub fn path_of(&self, node: Node, top: Node, into: &mut [u8]) -> Result<usize> {
        let (mut at, mut offset) = (into.len(), node_offset(node.id));
        self.known(node)?;
        let mut name = NameBuffer::new();
        while offset != node_offset(top.id) {
            let own = self.own_edentry(offset)?;
            if own == 0 {
                return Err(Errno::ENOENT.into());
            }
            // Of a name that has gone the line may be anything by now.
            let entry = self.read_edentry(own, &mut name).map_err(|_| Errno::ENOENT)?;
            fence(Acquire);
            let slot: &core::sync::atomic::AtomicU64 = self.at(entry.slot, "directory slot").map_err(|_| Errno::ENOENT)?;
            if slot.load(Acquire) != own || node_offset(entry.child) != offset {
                return Err(Errno::ENOENT.into());
            }
            let text = name.name(entry.head.name_len, own)?;
            at = at.checked_sub(text.len() + 1).ok_or(Errno::ENAMETOOLONG)?;
            into[at] = b'/';
            into[at + 1..at + 1 + text.len()].copy_from_slice(&text);
            offset = entry.parent;
        }
        Ok(at)
    }

    /// Writes a new cold line at `at`, and the lower line behind it.
    pub(crate) fn write_lower(&self, at: u64, own: u64, stamp: &Stamp, state: u64) -> Result<()> {
        let (cold, lower): (&Cold, &Lower) = (self.at(at, "cold line")?, self.at(at + LINE, "lower line")?);
        let image = &self.image;
        for (word, value) in [
            (&cold.atime, 0),
            (&cold.btime, 0),
            (&cold.xattr, 0),
            (&cold.own, own),
            (&cold.flags, 0),
            (&cold.lower, at + LINE),
            (&cold.shown, stamp.shown()),
            (&cold.reserved[0], 0),
            (&lower.number, stamp.number),
            (&lower.device, stamp.device),
            (&lower.end, stamp.size),
            (&lower.size, stamp.size),
            (&lower.mtime, stamp.mtime as u64),
            (&lower.ctime, stamp.ctime as u64),
            (&lower.seen, pm::clock::now() as u64),
            (&lower.state, bits::PRESENT | state),
        ] {
            image.store(word, value);
        }
        Ok(())
    }
}
