//! Another name for an inode.

use super::inode::links_change;
use super::{Parent, SET_GID, SET_UID, proper, touch_directory};
use crate::fs::Fs;
use crate::index::Seen;
use crate::lane::Tx;
use crate::lane::lock::LATER;
use crate::lane::record::Set;
use crate::segment::Cachelet;
use base::{Cx, Kind, Name, Node, R, Result, W};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::inode::{self, Head, node_offset, unpack_links, word};
use format::lane;
use pm::Errno;

impl Fs {
    /// Gives `node` the name `name` in `dir`. See `vfs::Backend::link`.
    pub fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.link_in_line(cx, node, dir, proper(name)?)
    }

    /// As [`Fs::link`], in one function with the caller.
    #[inline(always)]
    pub fn link_in_line(&self, cx: &Cx, node: Node, dir: Node, name: Name) -> Result<()> {
        let done = match self.is_plain() {
            true => self.link_as::<true>(cx, node, dir, name),
            false => self.link_in_any(cx.copied(), node, dir, name.bytes()),
        };
        match done {
            Err(LATER) => {
                self.link_later(cx.copied(), node, dir, name.bytes())?;
                Ok(())
            }
            done => done,
        }
    }

    /// Once the inode is free whose holder kept us waiting.
    #[cold]
    #[inline(never)]
    fn link_later(&self, cx: Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.until_free(&cx, &|| self.link_in_any(cx, node, dir, name))
    }

    /// In any image, where that is allowed.
    #[inline(never)]
    fn link_in_any(&self, cx: Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.link_as::<false>(&cx, node, dir, proper(name)?)
    }

    /// `PLAIN`: as of [`Fs::is_plain`].
    #[inline(always)]
    fn link_as<const PLAIN: bool>(&self, cx: &Cx, node: Node, dir: Node, name: Name) -> Result<()> {
        let mut tx = match self.begin_as(cx, lane::Kind::Link, PLAIN) {
            Ok(tx) => tx,
            Err(error) => match self.unless_exists(cx.copied(), dir, name.bytes(), error)? {},
        };
        let parent = self.enter(&mut tx, cx, dir)?;
        let free = parent.is_free_to(&cx.cred);
        if !free {
            parent.may_search(cx)?;
        }
        let sought = self.sought(parent.offset, name);
        let (lock, room) = self.new_name(&mut tx, &sought)?;
        let (at, slot, cachelet, seen) = self.prepare_link(&mut tx, cx, node, &parent, free)?;

        let inode = self.inode(node_offset(node.id))?;
        let links = inode.links.load(Acquire);
        let (nlink, _) = unpack_links(links);
        self.check_links(nlink)?;
        if nlink == 0 {
            tx.aside_taking(
                #[inline(always)]
                |tx| self.adopt_nameless(tx, node.id),
            )?;
        }
        let now = self.clock.now();
        let kind = (seen.word >> 16) as u8;
        let (edentry, allocated) = self.new_edentry(&mut tx, &sought, kind, node.id, at)?;
        let (spot, entry) = self.insert(&mut tx, room, sought.hash, edentry)?;
        self.lead(&spot, self.cachelet_number(cachelet));
        let counted = links_change(inode, links, nlink + 1, now);
        let touched = touch_directory(parent.inode, now, 1, 0);
        tx.commit_with((allocated, Set { word: slot, value: edentry }, entry, counted, touched))?;
        tx.slot_filled();

        let change = self.change(cachelet);
        change.nlink.store(nlink + 1, Relaxed);
        change.ctime.store(now as u64, Relaxed);
        drop(change);
        if cachelet.parent.load(Relaxed) == 0 {
            self.name_cachelet(cachelet, &sought.copied());
        }
        tx.finish_holding([lock, &cachelet.owner]);
        if spot.is_full() {
            self.grow_index(cx.copied());
        }
        Ok(())
    }

    /// Checks who may link what, reserves a slot, and takes the inode.
    #[inline(always)]
    fn prepare_link<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        node: Node,
        parent: &Parent<'a>,
        free: bool,
    ) -> Result<(u64, &'a AtomicU64, &'a Cachelet, Seen<'a>)> {
        let seen = self.see(cx, node).map_err(super::gone)?;
        may_link(cx, &seen)?;
        if !free {
            return Err(Errno::EACCES.into());
        }
        if seen.is(Kind::Directory) {
            return Err(Errno::EPERM.into());
        }
        let (at, slot) = self.reserve_any_slot(tx, parent)?;
        match tx.lock_inode(seen.cachelet, node.id) {
            Ok(()) => Ok((at, slot, seen.cachelet, seen)),
            Err(base::Error::Posix(Errno::ESTALE)) => {
                let cachelet = tx
                    .aside_locking(
                        #[inline(always)]
                        |tx| self.lock_node(tx, &cx.copied(), node),
                    )
                    .map_err(super::gone)?;
                Ok((at, slot, cachelet, seen))
            }
            Err(error) => Err(error),
        }
    }

    /// A file from `O_TMPFILE` gets its first name; no other nameless inode may have one.
    #[cold]
    fn adopt_nameless<'a>(&'a self, tx: &mut Tx<'a>, id: u64) -> Result<()> {
        let offset = node_offset(id);
        let head = self.inode(offset)?.head();
        if head.flags & inode::LINKABLE == 0 {
            return Err(Errno::ENOENT.into());
        }
        let flag = Head { generation: 0, flags: inode::LINKABLE, kind: 0, permission: 0 }.pack();
        tx.clear_bits(offset + word::HEAD, flag)?;
        self.remove_orphan(tx, id)
    }
}

/// The kernel's `protected_hardlinks`: without privilege only one's own files,
/// or plain ones that one may read and write.
#[inline(always)]
fn may_link(cx: &Cx, seen: &Seen) -> Result<()> {
    let cred = &cx.cred;
    if cred.uid == seen.uid || cred.is_privileged_over(seen.uid, seen.gid) {
        return Ok(());
    }
    let mode = seen.mode();
    let special = mode & SET_UID != 0 || mode & (SET_GID | 0o10) == SET_GID | 0o10;
    if seen.is(Kind::Regular) && !special && cred.may(Kind::Regular, mode, seen.uid, seen.gid, R | W) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}
