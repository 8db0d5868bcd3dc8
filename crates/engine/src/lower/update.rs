//! Taking note of what has become of an original.

use super::{Stamp, bits};
use crate::dir::NameBuffer;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::names::Parent;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::Inode;
use format::cache::Lower;
use format::inode::{node_offset, word};
use format::lane;
use pm::Errno;

/// What an original is like now.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size, times, and which file it is.
    pub stamp: Stamp,
    /// What was known when it was looked at: if that is another by now, it may have been looked at too early (`ESTALE`).
    pub before: Option<Stamp>,
}

impl Fs {
    /// Sets and clears bits of a node's state. Of a directory: what is not here may be there, unless it is listed.
    pub fn mark(&self, cx: &Cx, node: Node, set: u64, clear: u64) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let inode = self.inode(node_offset(node.id))?;
        let (_, lower) = self.lower_lines(inode)?.ok_or(Errno::ESTALE)?;
        self.change_marks(cachelet, inode, lower, (set, clear));
        Ok(())
    }

    /// The same of a node that is locked.
    pub(super) fn change_marks(&self, cachelet: &Cachelet, inode: &Inode, lower: &Lower, (set, clear): (u64, u64)) {
        let image = &self.image;
        // What is newer here than below is not asked for below.
        let clear = if lower.state.load(Relaxed) & bits::DIRTY == 0 { clear } else { clear & !(bits::LISTED | bits::XATTRS) };
        if set & !lower.state.load(Relaxed) != 0 {
            image.or(&lower.state, set);
        }
        if clear & lower.state.load(Relaxed) != 0 {
            image.and(&lower.state, !clear);
        }
        image.flush(image.offset_of(lower), format::LINE);
        image.fence();
        self.show_listed(cachelet, inode.head().kind, lower.state.load(Relaxed));
    }

    /// Has the cachelet of a directory that is locked say whether all its names are here.
    fn show_listed(&self, cachelet: &Cachelet, kind: u8, state: u64) {
        if kind != Kind::Directory as u8 {
            return;
        }
        // Its sequence changes, so that who has looked for a name before does not believe what it says after.
        let change = self.change(cachelet);
        match state & bits::LISTED {
            0 => change.flags.fetch_or(cachelet::PARTIAL, SeqCst),
            _ => change.flags.fetch_and(!cachelet::PARTIAL, SeqCst),
        };
    }

    /// `EAGAIN` where the state of a directory has one of these bits; else it gets none of them before this operation is over.
    pub(crate) fn keep_marks<'a>(&'a self, tx: &mut Tx<'a>, dir: &Parent<'a>, unless: u64) -> Result<()> {
        if unless == 0 {
            return Ok(());
        }
        tx.lock_inode(dir.seen.cachelet, dir.seen.id)?;
        match self.lower_lines(dir.inode)? {
            Some((_, lower)) if lower.state.load(Acquire) & unless != 0 => Err(Errno::EAGAIN.into()),
            _ => Ok(()),
        }
    }

    /// The original of a node has changed, or been looked at again. Contents that are not its any more go: `EBUSY` if
    /// they are mapped, `ESTALE` if the original is another file. Nothing happens to a node that is newer here.
    pub fn restamp(&self, cx: &Cx, node: Node, new: &Change) -> Result<()> {
        self.restamp_if(cx, node, new, |known, _| known.is_same_file(&new.stamp))
    }

    /// Another file has taken the place of the original, and becomes it: only of a file that is not open (`ESTALE`), so
    /// that an open file stays the one that was opened. `EBUSY` if it is mapped.
    pub fn restamp_as_another(&self, cx: &Cx, node: Node, new: &Change) -> Result<()> {
        let cachelet = self.cached(cx, node)?;
        let is_free = || cachelet.opens.load(SeqCst) == 0;
        self.restamp_if(cx, node, new, |_, inode| inode.head().kind == Kind::Regular as u8 && is_free())
    }

    fn restamp_if(&self, cx: &Cx, node: Node, new: &Change, may: impl Fn(&Stamp, &Inode) -> bool) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let inode = self.inode(node_offset(node.id))?;
        let known = self.known(node)?.filter(|known| may(&known.stamp, inode)).ok_or(Errno::ESTALE)?;
        if known.is_dirty() {
            return Ok(());
        }
        if new.before.is_some_and(|before| before != known.stamp) {
            return Err(Errno::ESTALE.into());
        }
        let is_file = inode.head().kind == Kind::Regular as u8;
        if is_file && !known.stamp.has_same_contents(&new.stamp) {
            self.drop_contents(&mut tx, cachelet, node.id)?;
        }
        self.record_stamp(&mut tx, node, new, is_file)?;
        // Its number changes with the file.
        let change = self.change(cachelet);
        tx.commit()?;
        if !known.stamp.is_same_file(&new.stamp)
            && let Some((_, lower)) = self.lower_lines(inode)?
        {
            self.image.and(&lower.state, !bits::MADE);
        }
        change.uid.store(new.uid, Relaxed);
        change.gid.store(new.gid, Relaxed);
        change.mode.store(change.mode.load(Relaxed) & 0xffff_0000 | u32::from(new.mode), Relaxed);
        let inode = self.inode(node_offset(node.id))?;
        if inode.head().kind != Kind::Directory as u8 {
            change.mtime.store(new.stamp.mtime as u64, Relaxed);
            change.ctime.store(new.stamp.ctime as u64, Relaxed);
            if is_file {
                change.size.store(new.stamp.size, Relaxed);
            }
        }
        let flags = self.show_lower(&change, inode)?.unwrap_or(0);
        change.flags.fetch_and(!cachelet::COLD, SeqCst);
        change.flags.fetch_or(flags, SeqCst);
        drop(change);
        self.tell_shown(cx, node);
        Ok(())
    }

    /// Has the path of a file go by another of its names, if one is here in another directory than `not_in`: the one that
    /// it went by is gone. Looks through the whole index. `ENOENT` if there is none.
    pub fn go_by_another_name(&self, cx: &Cx, node: Node, not_in: Node) -> Result<()> {
        let (mut name, mut found) = (NameBuffer::new(), None);
        for number in 0..self.names_steps() {
            self.names_in(number, &mut |edentry| {
                if let Ok(entry) = self.read_edentry(edentry, &mut name)
                    && (entry.child, entry.parent != node_offset(not_in.id)) == (node.id, true)
                {
                    found = Some(edentry);
                }
            })?;
        }
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        self.lock_node(&mut tx, cx, node)?;
        let (cold, _) = self.lower_lines(self.inode(node_offset(node.id))?)?.ok_or(Errno::ESTALE)?;
        // Gone again meanwhile: whoever goes by it finds out.
        tx.set(self.image.offset_of(&cold.own), found.ok_or(Errno::ENOENT)?)?;
        tx.commit()
    }

    fn record_stamp<'a>(&'a self, tx: &mut Tx<'a>, node: Node, new: &Change, is_file: bool) -> Result<()> {
        let offset = node_offset(node.id);
        let inode = self.inode(offset)?;
        let (before, after) =
            (u64::from(inode.head().permission), u64::from(self.permission_index(tx, new.uid, new.gid, new.mode)?));
        // Bit by bit: another may flag the directory for a recount at any time.
        tx.clear_bits(offset + word::HEAD, before & !after)?;
        tx.set_bits(offset + word::HEAD, after & !before)?;
        if is_file {
            tx.set(offset + word::SIZE, new.stamp.size)?;
        }
        tx.set(offset + word::MTIME, new.stamp.mtime as u64)?;
        tx.set(offset + word::CTIME, new.stamp.ctime as u64)?;
        let (cold, lower) = self.lower_lines(inode)?.ok_or(corrupt("lower line", offset))?;
        for (word, value) in [
            (&cold.shown, new.stamp.shown()),
            (&lower.number, new.stamp.number),
            (&lower.device, new.stamp.device),
            (&lower.end, new.stamp.size),
            (&lower.size, new.stamp.size),
            (&lower.mtime, new.stamp.mtime as u64),
            (&lower.ctime, new.stamp.ctime as u64),
            (&lower.seen, pm::clock::now() as u64),
        ] {
            tx.set(self.image.offset_of(word), value)?;
        }
        Ok(())
    }
}
