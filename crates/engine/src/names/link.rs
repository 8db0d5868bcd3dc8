//! Another name for an inode.

use super::inode::links_change;
use super::{Parent, proper, touch_directory};
use crate::fs::Fs;
use crate::index::Seen;
use crate::lane::Tx;
use crate::lane::record::Set;
use crate::rights::may_link;
use crate::segment::Cachelet;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::inode::{self, Head, node_offset, unpack_links, word};
use format::lane;
use pm::Errno;

impl Fs {
    /// Gives `node` the name `name` in `dir`. See `vfs::Backend::link`.
    pub fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.link_unless(cx, node, (dir, name), 0)
    }

    /// The same, unless the directory's state has one of these bits (`format::cache::state`): `EAGAIN`.
    pub fn link_unless(&self, cx: &Cx, node: Node, (dir, name): (Node, &[u8]), unless: u64) -> Result<()> {
        let name = proper(name)?;
        self.until_free(cx, || self.try_link(cx, node, dir, name, unless))
    }

    fn try_link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8], unless: u64) -> Result<()> {
        let mut tx = match self.begin(cx, lane::Kind::Link) {
            Ok(tx) => tx,
            Err(error) => return Err(self.unless_exists(cx, dir, name, error)),
        };
        let parent = self.enter(&mut tx, cx, dir)?;
        let free = parent.is_free_to(&cx.cred);
        if !free {
            parent.may_search(cx)?;
        }
        let key = self.entry_key(parent.offset, name);
        let room = self.new_name(&mut tx, &key)?;
        let (at, slot, cachelet, seen) = self.prepare_link(&mut tx, cx, node, &parent, free)?;
        self.keep_marks(&mut tx, &parent, unless)?;

        let inode = self.inode(node_offset(node.id))?;
        let links = inode.links.load(Acquire);
        let (nlink, _) = unpack_links(links);
        self.check_links(nlink)?;
        if nlink == 0 {
            self.adopt_nameless(&mut tx, node.id)?;
        }
        let now = self.clock.now();
        let kind = (seen.word >> 16) as u8;
        let (edentry, allocated) = self.new_edentry(&mut tx, &key, kind, node.id, at)?;
        let (spot, entry) = self.insert(&mut tx, room, key.hash, edentry)?;
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
            self.name_cachelet(cachelet, &key);
        }
        drop(tx);
        if spot.is_full() {
            self.grow_index(cx);
        }
        Ok(())
    }

    /// Checks who may link what, reserves a slot, and takes the inode.
    fn prepare_link<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        node: Node,
        parent: &Parent<'a>,
        free: bool,
    ) -> Result<(u64, &'a AtomicU64, &'a Cachelet, Seen<'a>)> {
        let seen = self.see(cx, node).map_err(super::gone)?;
        self.may_change(node).map_err(super::gone)?;
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
                let cachelet = self.lock_node(tx, cx, node).map_err(super::gone)?;
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
