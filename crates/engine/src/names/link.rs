//! Another name for an inode.

use super::{Parent, SET_GID, SET_UID, check_name};
use crate::fs::Fs;
use crate::index::Seen;
use crate::lane::Tx;
use base::{Cx, Kind, Node, R, Result, W};
use core::sync::atomic::Ordering::Relaxed;
use format::inode::{self, Head, node_offset, unpack_links, word};
use format::lane::{self, Op};
use pm::Errno;

impl Fs {
    /// Gives `node` the name `name` in `dir`. See `vfs::Backend::link`.
    pub fn link(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let mut tx = match self.begin(cx, lane::Kind::Link) {
            Ok(tx) => tx,
            Err(error) => return Err(self.unless_exists(cx, dir, name, error)),
        };
        let (parent, hash, scan) = self.new_name(&mut tx, cx, dir, name)?;
        let (slot, cachelet, seen) = self.prepare_link(&mut tx, cx, node, &parent)?;

        let offset = node_offset(node.id);
        let links = self.links_word(offset)?;
        let (nlink, _) = unpack_links(links);
        self.check_links(nlink)?;
        if nlink == 0 {
            self.adopt_nameless(&mut tx, node.id)?;
        }
        let now = pm::clock::now();
        let kind = (seen.word >> 16) as u8;
        let (edentry, allocated) = self.new_edentry(&mut tx, hash, kind, parent.offset, node.id, slot, name)?;
        let (spot, entry) = self.insert(&mut tx, &scan, hash, edentry)?;
        self.lead(&spot, self.cachelet_number(cachelet));
        let counted = self.links_change(offset, links, nlink + 1, now);
        let touched = self.touch_directory(parent.offset, now, 1, 0);
        tx.commit_with((allocated, Op::Set { at: slot, value: edentry }, entry, counted, touched))?;
        tx.slots_filled();

        let change = self.change(cachelet);
        change.nlink.store(nlink + 1, Relaxed);
        change.ctime.store(now as u64, Relaxed);
        drop(change);
        if cachelet.parent.load(Relaxed) == 0 {
            self.name_cachelet(cachelet, parent.offset, name);
        }
        drop(tx);
        if scan.full {
            self.grow_index(cx);
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
        parent: &Parent,
    ) -> Result<(u64, &'a crate::segment::Cachelet, Seen<'a>)> {
        let seen = self.seen(cx, self.cached(cx, node).map_err(super::gone)?, node.id).map_err(super::gone)?;
        may_link(cx, &seen)?;
        parent.may_change(&cx.cred)?;
        if seen.is(Kind::Directory) {
            return Err(Errno::EPERM.into());
        }
        let slot = self.reserve_any_slot(tx, parent.cachelet, parent.id)?;
        match tx.lock_inode(seen.cachelet, node.id) {
            Ok(()) => Ok((slot, seen.cachelet, seen)),
            Err(base::Error::Posix(Errno::ESTALE)) => Ok((slot, self.lock_again(tx, cx, node)?, seen)),
            Err(error) => Err(error),
        }
    }

    /// Its cachelet was taken away before we had it.
    #[cold]
    #[inline(never)]
    fn lock_again<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a crate::segment::Cachelet> {
        for _ in 0..super::ATTEMPTS {
            let cachelet = self.cached(cx, node).map_err(super::gone)?;
            match tx.lock_inode(cachelet, node.id) {
                Ok(()) => return Ok(cachelet),
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    /// A file from `O_TMPFILE` gets its first name; no other nameless inode may have one.
    #[cold]
    fn adopt_nameless(&self, tx: &mut Tx, id: u64) -> Result<()> {
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
    if cred.privileged || cred.uid == seen.uid {
        return Ok(());
    }
    let mode = seen.mode();
    let special = mode & SET_UID != 0 || mode & (SET_GID | 0o10) == SET_GID | 0o10;
    if seen.is(Kind::Regular) && !special && cred.may(Kind::Regular, mode, seen.uid, seen.gid, R | W) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}
