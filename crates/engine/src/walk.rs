//! The steps of a walk: down by a name, without a lock, and up to the parent.

use crate::dir::NameBuffer;
use crate::fs::{Fs, corrupt};
use crate::index::Seen;
use crate::names::{gone, proper};
use crate::rights::may_search;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::inode::{node_id, node_offset};
use pm::Errno;

impl Fs {
    /// The root directory.
    #[inline]
    pub fn root_node(&self) -> Node {
        self.node_at(self.root().root_inode.load(Relaxed)).unwrap_or(Node { id: 0, hint: u32::MAX })
    }

    /// The node whose inode is at an offset.
    #[inline]
    pub(crate) fn node_at(&self, offset: u64) -> Result<Node> {
        let inode = self.inode(offset)?;
        let reference = inode.cachelet.load(Acquire);
        Ok(Node { id: node_id(offset, inode.head().generation), hint: (reference as u32).wrapping_sub(1) })
    }

    /// One component down.
    #[inline]
    fn step<'f>(&'f self, cx: &Cx, dir: &Seen, name: &[u8]) -> Result<Option<Seen<'f>>> {
        let found = self.find(cx, &self.entry_key(node_offset(dir.id), proper(name)?))?;
        // The place may have become another directory's while we looked.
        if dir.cachelet.node.load(Relaxed) != dir.id {
            self.still(dir.id)?;
        }
        Ok(found)
    }

    /// `ENOENT` if a directory that had lost its cachelet is gone.
    #[cold]
    #[inline(never)]
    fn still(&self, id: u64) -> Result<()> {
        match self.node_at(node_offset(id))?.id == id {
            true => Ok(()),
            false => Err(Errno::ENOENT.into()),
        }
    }

    /// The node called `name` in `dir`. See `vfs::Backend::lookup`.
    pub fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        self.lookup_kind(cx, dir, name).map(|(node, _)| node)
    }

    /// The same and its type: a step of a walk.
    pub fn lookup_kind(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
        let parent = self.searched(cx, dir)?;
        let child = self.step(cx, &parent, name)?.ok_or(Errno::ENOENT)?;
        if parent.cachelet.told_device().is_none() {
            self.learn_device(cx, &parent);
        }
        let kind = Kind::from_dt((child.word >> 16) as u8).ok_or(Errno::ESTALE)?;
        Ok((self.node_seen(&child), kind))
    }

    /// A directory to look for names in: `ENOTDIR`, or `EACCES` if it may not be searched.
    pub(crate) fn searched(&self, cx: &Cx, dir: Node) -> Result<Seen<'_>> {
        let seen = self.see(cx, dir).map_err(gone)?;
        if !seen.is(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        may_search(&cx.cred, &seen)?;
        Ok(seen)
    }

    /// The directory that holds directory `dir`; the root's is the root.
    /// `ENOENT` for a directory that was removed.
    pub fn parent_of(&self, cx: &Cx, dir: Node) -> Result<Node> {
        self.directory(cx, dir)?;
        for _ in 0..1000 {
            let offset = self.parent_offset(node_offset(dir.id))?;
            let parent = self.node_at(offset)?;
            self.still(dir.id)?;
            // The parent was that directory only if it still is the parent.
            if self.parent_offset(node_offset(dir.id))? == offset {
                return Ok(parent);
            }
        }
        Err(Errno::ENOENT.into())
    }

    /// Offset of the inode of the directory that holds the one at `offset`.
    pub(crate) fn parent_offset(&self, offset: u64) -> Result<u64> {
        if offset == self.root().root_inode.load(Relaxed) {
            return Ok(offset);
        }
        for _ in 0..1000 {
            let own = self.own_edentry(offset)?;
            if own == 0 {
                return Err(Errno::ENOENT.into());
            }
            let edentry = self.edentry(own)?;
            let (parent, child) = (edentry.parent.load(Acquire), edentry.child.load(Acquire));
            fence(Acquire);
            // The child tells an edentry from a cold line just put in its place.
            if self.own_edentry(offset)? == own && node_offset(child) == offset {
                return Ok(parent);
            }
        }
        Err(corrupt("own edentry of a directory", offset))
    }

    /// The name of directory `dir` in its parent; its length.
    pub fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        self.step_up(cx, dir, name).map(|(len, _)| len)
    }

    /// The name of directory `dir` in its parent, its length, and the parent: one step of `getcwd`. Both are of one moment, from
    /// one look at the directory's own edentry.
    pub fn step_up(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<(usize, Node)> {
        self.directory(cx, dir)?;
        let offset = node_offset(dir.id);
        let mut buffer = NameBuffer::new();
        for _ in 0..1000 {
            let word = self.own_word(offset, self.inode(offset)?)?;
            let word = self.at::<AtomicU64>(word, "own edentry")?;
            let own = word.load(Acquire);
            if own == 0 {
                return Err(Errno::ENOENT.into());
            }
            // Before the name and after it: an edentry's place may be another name's, and this directory's again, in between.
            let before = self.edentry(own)?.parent.load(Acquire);
            let entry = self.read_edentry(own, &mut buffer);
            fence(Acquire);
            if word.load(Relaxed) != own {
                continue;
            }
            self.still(dir.id)?;
            let entry = entry?;
            if node_offset(entry.child) != offset || entry.parent != before {
                continue;
            }
            let parent = self.node_at(entry.parent);
            fence(Acquire);
            // The parent was that directory only if it still is the parent.
            let after = self.edentry(own)?;
            let is_same = after.parent.load(Relaxed) == entry.parent && after.child.load(Relaxed) == entry.child;
            fence(Acquire);
            if !is_same || word.load(Relaxed) != own {
                continue;
            }
            self.still(dir.id)?;
            let found = buffer.name(entry.head.name_len, own)?;
            name[..found.len()].copy_from_slice(&found);
            return Ok((found.len(), parent?));
        }
        Err(Errno::ENOENT.into())
    }

    /// `ENOTDIR` if a node is no directory, `ENOENT` if it is gone.
    fn directory(&self, cx: &Cx, dir: Node) -> Result<Seen<'_>> {
        let seen = self.see(cx, dir).map_err(gone)?;
        if seen.is(Kind::Directory) { Ok(seen) } else { Err(Errno::ENOTDIR.into()) }
    }
}
