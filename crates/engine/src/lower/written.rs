//! A node that was made or changed here has been written to the lower file system.

use super::{Stamp, bits};
use crate::alloc::Arena;
use crate::fs::Fs;
use crate::lane::Tx;
use base::{Cx, Kind, Node, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::cache::Lower;
use format::inode::{self, Head, Inode, node_offset, unpack_links, word};
use format::{Cold, LINE, lane};
use pm::Errno;

/// What has become of a node below.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Which file it is there, and what that is like.
    pub stamp: Stamp,
    /// Nothing here is newer than there any more.
    pub is_clean: bool,
    /// One of its names: by that it is found below.
    pub name: Option<(Node, &'a [u8])>,
}

impl Fs {
    /// Takes note of which file a node is below, and what that is like. Contents and attributes here stay: they are the
    /// newer ones. A node that the lower file system did not have gets its lower line, by the record; none of its holes
    /// are to be fetched. `ESTALE`: it is gone here, or has no name any more.
    pub fn written(&self, cx: &Cx, node: Node, written: &Written) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let offset = node_offset(node.id);
        let inode = self.inode(offset)?;
        if inode.head().kind != Kind::Directory as u8 && unpack_links(inode.links.load(Acquire)).0 == 0 {
            // Open without a name: what is below goes with the next round.
            tx.abandon();
            return Err(Errno::ESTALE.into());
        }
        let is_directory = inode.head().kind == Kind::Directory as u8;
        let is_new = is_directory && self.known(node)?.is_none_or(|known| !known.stamp.is_same_file(&written.stamp));
        let own = match written.name {
            Some((dir, name)) if inode.head().kind != Kind::Directory as u8 => self.edentry_of(node, dir, name)?,
            _ => 0,
        };
        match self.lower_lines(inode)? {
            Some((cold, lower)) => self.record_written(&mut tx, (cold, lower), written, own)?,
            None if inode.head().flags & inode::COLD != 0 => self.record_lower(&mut tx, inode, written, own)?,
            None => self.record_both(&mut tx, (offset, inode), written, own)?,
        }
        // Odd while head and extra change: a directory's own edentry moves.
        let change = self.change(cachelet);
        tx.commit()?;
        if written.is_clean
            && let Some((_, lower)) = self.lower_lines(inode)?
        {
            self.image.and(&lower.state, !bits::DIRTY);
            self.image.flush(self.image.offset_of(lower), LINE);
            self.image.fence();
        }
        let flags = self.show_lower(&change, inode)?.unwrap_or(0);
        change.flags.fetch_or(flags, SeqCst);
        drop(change);
        self.tell_shown(cx, node);
        if is_new {
            self.count_made();
            self.watch_soon(node);
        }
        Ok(())
    }

    /// The edentry that leads from `name` in `dir` to the node; 0 if none does.
    fn edentry_of(&self, node: Node, dir: Node, name: &[u8]) -> Result<u64> {
        let hit = self.find_hit(&self.entry_key(node_offset(dir.id), name))?;
        Ok(hit.filter(|hit| hit.node.id == node.id).map_or(0, |hit| hit.edentry))
    }

    /// Of a node that had its lower line before.
    fn record_written(&self, tx: &mut Tx, (cold, lower): (&Cold, &Lower), written: &Written, own: u64) -> Result<()> {
        let stamp = &written.stamp;
        for (word, value) in [
            (&lower.number, stamp.number),
            (&lower.device, stamp.device),
            (&lower.size, stamp.size),
            (&lower.mtime, stamp.mtime as u64),
            (&lower.ctime, stamp.ctime as u64),
            (&lower.seen, pm::clock::now() as u64),
        ] {
            tx.set(self.image.offset_of(word), value)?;
        }
        if written.is_clean {
            // What has been done to its names since would be lost.
            tx.set(self.image.offset_of(&cold.shown), stamp.shown())?;
            // All of it is below: what goes here can be had there again.
            tx.set(self.image.offset_of(&lower.end), stamp.size)?;
        }
        if own != 0 {
            tx.set(self.image.offset_of(&cold.own), own)?;
        }
        Ok(())
    }

    /// What is shown of a node that was made here: its names here, its space there.
    fn shown_first(&self, inode: &Inode, written: &Written) -> u64 {
        let (nlink, _) = unpack_links(inode.links.load(Acquire));
        Stamp { nlink, ..written.stamp }.shown()
    }

    /// Of a node that has a cold line without a lower one.
    fn record_lower<'a>(&'a self, tx: &mut Tx<'a>, inode: &Inode, written: &Written, own: u64) -> Result<()> {
        let line = tx.lines(1, Arena::Other)?;
        self.write_line(line, inode, &written.stamp)?;
        tx.object(line, 1)?;
        let cold = inode.extra.load(Acquire);
        tx.set(cold + offset_of!(Cold, shown) as u64, self.shown_first(inode, written))?;
        if own != 0 {
            tx.set(cold + offset_of!(Cold, own) as u64, own)?;
        }
        tx.set(cold + offset_of!(Cold, lower) as u64, line)
    }

    /// Of a node that has neither.
    fn record_both<'a>(&'a self, tx: &mut Tx<'a>, (offset, inode): (u64, &Inode), written: &Written, own: u64) -> Result<()> {
        let is_directory = inode.head().kind == Kind::Directory as u8;
        let own = if is_directory { inode.extra.load(Acquire) } else { own };
        let line = tx.lines(2, Arena::Other)?;
        self.write_lower(line, own, &written.stamp, 0)?;
        self.write_line(line + LINE, inode, &written.stamp)?;
        let cold: &Cold = self.at(line, "cold line")?;
        self.image.store(&cold.shown, self.shown_first(inode, written));
        tx.object(line, 2)?;
        tx.set(offset + word::EXTRA, line)?;
        tx.set_bits(offset + word::HEAD, Head { generation: 0, flags: inode::COLD, kind: 0, permission: 0 }.pack())
    }

    /// The lower line of a node that was made here: all of it is here.
    fn write_line(&self, at: u64, inode: &Inode, stamp: &Stamp) -> Result<()> {
        let lower: &Lower = self.at(at, "lower line")?;
        let listed = if inode.head().kind == Kind::Directory as u8 { bits::LISTED } else { 0 };
        for (word, value) in [
            (&lower.number, stamp.number),
            (&lower.device, stamp.device),
            (&lower.end, 0),
            (&lower.size, stamp.size),
            (&lower.mtime, stamp.mtime as u64),
            (&lower.ctime, stamp.ctime as u64),
            (&lower.seen, pm::clock::now() as u64),
            (&lower.state, bits::PRESENT | bits::DIRTY | bits::XATTRS | bits::MADE | listed),
        ] {
            self.image.store(word, value);
        }
        Ok(())
    }

    /// A node that the lower file system has got so many names more, or fewer, here: what `st_nlink` shows until that is
    /// written. `None`: before that the lower file system did not have it, so all its names are here.
    pub fn count_names(&self, cx: &Cx, node: Node, more: Option<i32>) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let inode = self.inode(node_offset(node.id))?;
        let Some((cold, _)) = self.lower_lines(inode)? else { return Ok(()) };
        let shown = cold.shown.load(Relaxed);
        let names = match more {
            Some(more) => (shown as u32).saturating_add_signed(more),
            None => unpack_links(inode.links.load(Acquire)).0,
        };
        tx.set(self.image.offset_of(&cold.shown), shown & !0xffff_ffff | u64::from(names))?;
        let change = self.change(cachelet);
        tx.commit()?;
        self.show_lower(&change, inode)?;
        Ok(())
    }

    /// All bytes of a file are here: none of its holes is to be fetched.
    pub fn all_is_here(&self, cx: &Cx, node: Node) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        self.lock_node(&mut tx, cx, node)?;
        match self.lower_lines(self.inode(node_offset(node.id))?)? {
            Some((_, lower)) if lower.end.load(Relaxed) != 0 => {
                tx.set(self.image.offset_of(&lower.end), 0)?;
                tx.commit()
            }
            _ => Ok(()),
        }
    }

    /// One of a node's names: the directory it is in, and the name's length. `None`: of none it is known. `ESTALE`.
    pub fn named(&self, node: Node, name: &mut [u8; 255]) -> Result<Option<(Node, usize)>> {
        let offset = node_offset(node.id);
        let inode = self.inode(offset)?;
        let has_own = inode.head().kind == Kind::Directory as u8 || self.lower_lines(inode)?.is_some();
        if !has_own {
            return Ok(None);
        }
        let mut buffer = crate::dir::NameBuffer::new();
        for _ in 0..100 {
            let own = self.own_edentry(offset)?;
            if own == 0 {
                return Ok(None);
            }
            let Ok(entry) = self.read_edentry(own, &mut buffer) else { continue };
            let parent = self.node_at(entry.parent);
            core::sync::atomic::fence(Acquire);
            let stands = self.at::<core::sync::atomic::AtomicU64>(entry.slot, "directory slot").map(|slot| slot.load(Acquire));
            if self.own_edentry(offset)? == own && stands == Ok(own) && node_offset(entry.child) == offset {
                if inode.head().generation & 0xff_ffff != inode::node_generation(node.id) {
                    return Err(Errno::ESTALE.into());
                }
                let text = buffer.name(entry.head.name_len, own)?;
                name[..text.len()].copy_from_slice(&text);
                return Ok(Some((parent?, text.len())));
            }
        }
        Ok(None)
    }
}
