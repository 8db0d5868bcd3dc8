//! Operations on names: each one record, each without a lock on a directory.
//!
//! An operation enters the directories whose names it changes (`lane::enter`),
//! takes the bucket locks of the names, then the inodes it changes, and commits
//! new edentry, index entry, directory slot, counts and times as one. Cachelets
//! follow while the locks are still held.
//!
//! Errors come in the kernel's order: what exists is looked at before what the
//! caller may do, except for the search permission on the directory.

pub(crate) mod create;
pub(crate) mod inode;
pub(crate) mod link;
pub(crate) mod orphan;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod rmdir;
pub(crate) mod symlink;
#[cfg(test)]
mod tests;

use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::index::{Hit, Scan, Seen};
use crate::lane::Tx;
use crate::segment::Cachelet;
use crate::segment::cache::short_word;
use base::{Cred, Cx, Kind, Node, Result, W, X};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use format::edentry::{self, Head, NAME, NAME_MAX};
use format::inode::{node_offset, word};
use format::lane::Op;
use pm::Errno;

/// The sticky bit of a directory.
pub(crate) const STICKY: u16 = 0o1000;
/// Set-group-id.
pub(crate) const SET_GID: u16 = 0o2000;
/// Set-user-id.
pub(crate) const SET_UID: u16 = 0o4000;
/// Most names of one inode.
pub(crate) const LINKS_MAX: u32 = u32::MAX - 1;
/// Attempts of an operation whose objects keep changing under it.
pub(crate) const ATTEMPTS: u32 = 100_000;

/// A directory entered, to change its names.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'a> {
    pub(crate) cachelet: &'a Cachelet,
    /// Node id.
    pub(crate) id: u64,
    /// Offset of the inode.
    pub(crate) offset: u64,
    /// Owner and mode.
    pub(crate) seen: Seen<'a>,
}

impl Parent<'_> {
    /// Search permission, which the kernel asks for before it looks at the name.
    #[inline(always)]
    pub(crate) fn may_search(&self, cred: &Cred) -> Result<()> {
        self.may(cred, X)
    }

    /// Permission to change names.
    #[inline(always)]
    pub(crate) fn may_change(&self, cred: &Cred) -> Result<()> {
        self.may(cred, W | X)
    }

    #[inline(always)]
    fn may(&self, cred: &Cred, want: u16) -> Result<()> {
        if cred.may(Kind::Directory, self.seen.mode(), self.seen.uid, self.seen.gid, want) {
            return Ok(());
        }
        Err(Errno::EACCES.into())
    }

    /// In a sticky directory only the owner of the victim or of the directory
    /// removes or moves a name.
    #[inline(always)]
    pub(crate) fn may_remove(&self, cred: &Cred, victim_uid: u32) -> Result<()> {
        self.may_change(cred)?;
        if self.seen.mode() & STICKY != 0 && !cred.privileged && cred.uid != victim_uid && cred.uid != self.seen.uid {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }
}

/// `ENAMETOOLONG`, or `ENOENT` for the empty name.
#[inline]
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if name.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    Ok(())
}

/// What becomes of a failure to find a directory that was there a moment ago.
#[inline]
pub(crate) fn gone(error: base::Error) -> base::Error {
    if error == base::Error::Posix(Errno::ESTALE) { Errno::ENOENT.into() } else { error }
}

impl Fs {
    /// Enters one directory. `ENOTDIR`, or `ENOENT` if it is gone.
    #[inline(always)]
    pub(crate) fn enter<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, dir: Node) -> Result<Parent<'a>> {
        match tx.enter_at_hand(dir) {
            Some(seen) => Ok(Parent { cachelet: seen.cachelet, id: dir.id, offset: node_offset(dir.id), seen }),
            None => self.enter_anyhow(tx, cx, dir),
        }
    }

    /// Its cachelet is not at hand, is being changed, or it is closed to entry.
    #[cold]
    #[inline(never)]
    fn enter_anyhow<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, dir: Node) -> Result<Parent<'a>> {
        for _ in 0..ATTEMPTS {
            let cachelet = self.cached(cx, dir).map_err(gone)?;
            match tx.enter(&[(cachelet, dir.id)]) {
                Ok(()) => return self.parent(cx, cachelet, dir.id),
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    /// Enters two directories (which may be the same).
    pub(crate) fn enter_two<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, a: Node, b: Node) -> Result<(Parent<'a>, Parent<'a>)> {
        for _ in 0..ATTEMPTS {
            let (first, second) = (self.cached(cx, a).map_err(gone)?, self.cached(cx, b).map_err(gone)?);
            let both = [(first, a.id), (second, b.id)];
            match tx.enter(&both[..1 + usize::from(a != b)]) {
                Ok(()) => return Ok((self.parent(cx, first, a.id)?, self.parent(cx, second, b.id)?)),
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    #[inline(always)]
    fn parent<'a>(&self, cx: &Cx, cachelet: &'a Cachelet, id: u64) -> Result<Parent<'a>> {
        let seen = self.seen(cx, cachelet, id).map_err(gone)?;
        if !seen.is(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(Parent { cachelet, id, offset: node_offset(id), seen })
    }

    /// Takes the inode of a node that the index says is there and whose bucket
    /// is locked, so that it stays.
    #[inline(always)]
    pub(crate) fn lock_named<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a Cachelet> {
        if let Some(cachelet) = self.cachelet(node.hint)
            && cachelet.node.load(Acquire) == node.id
        {
            match tx.lock_inode(cachelet, node.id) {
                Ok(()) => return Ok(cachelet),
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        self.lock_named_anyhow(tx, cx, node)
    }

    #[cold]
    #[inline(never)]
    fn lock_named_anyhow<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a Cachelet> {
        for _ in 0..ATTEMPTS {
            let cachelet = match self.cached(cx, node) {
                Ok(cachelet) => cachelet,
                Err(base::Error::Posix(Errno::ESTALE)) => return Err(corrupt("edentry without inode", node_offset(node.id))),
                Err(error) => return Err(error),
            };
            match tx.lock_inode(cachelet, node.id) {
                Ok(()) => return Ok(cachelet),
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    /// Enters a directory and takes the bucket of a name that is to be made there:
    /// the directory, the name's hash, and the place for it. `EEXIST`, `EACCES`.
    #[inline(always)]
    pub(crate) fn new_name<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        cx: &Cx,
        dir: Node,
        name: &[u8],
    ) -> Result<(Parent<'a>, u64, Scan<'a>)> {
        let parent = self.enter(tx, cx, dir)?;
        parent.may_search(&cx.cred)?;
        let hash = self.hash(parent.offset, name);
        tx.lock_bucket(hash)?;
        let scan = self.scan(parent.offset, name, hash)?;
        if scan.hit.is_some() {
            return Err(Errno::EEXIST.into());
        }
        Ok((parent, hash, scan))
    }

    /// Allocates and writes an edentry, and puts it under the record's checksum:
    /// its offset, and the store that allocates it, for the record.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new_edentry(
        &self,
        tx: &mut Tx,
        hash: u64,
        kind: u8,
        parent: u64,
        child: u64,
        slot: u64,
        name: &[u8],
    ) -> Result<(u64, Op)> {
        let lines = if name.len() <= edentry::WORDS * 8 { 2 } else { edentry::lines(name.len()) };
        let (at, allocated) =
            if lines == 2 { tx.new_lines(2, Arena::Edentries)? } else { self.long_edentry(tx, lines, at_rest(name))? };
        let (image, edentry) = (&self.image, self.edentry(at)?);
        image.store(&edentry.head, Head { hash: (hash >> 32) as u32, kind, name_len: name.len() as u8 }.pack());
        image.store(&edentry.parent, parent);
        image.store(&edentry.child, child);
        image.store(&edentry.slot, slot);
        image.store(&edentry.reserved, 0);
        let (mut rest, mut words) = (name, edentry.name.iter());
        for word in &mut words {
            let Some((chunk, tail)) = rest.split_first_chunk::<8>() else {
                image.store(word, short_word(rest));
                break;
            };
            image.store(word, u64::from_le_bytes(*chunk));
            rest = tail;
        }
        for word in words {
            image.store(word, 0);
        }
        tx.object(at, lines)?;
        Ok((at, allocated))
    }

    /// Allocates an edentry of more than two lines, and writes what of the name is behind these.
    #[cold]
    #[inline(never)]
    fn long_edentry(&self, tx: &mut Tx, lines: u32, rest: &[u8]) -> Result<(u64, Op)> {
        let (at, allocated) = tx.new_lines(lines, Arena::Edentries)?;
        for i in 0..(lines as usize - 2) * 8 {
            let word: &AtomicU64 = self.at(at + NAME + (edentry::WORDS + i) as u64 * 8, "name")?;
            self.image.store(word, rest.chunks(8).nth(i).map_or(0, chunk_word));
        }
        Ok((at, allocated))
    }

    /// The slot that an edentry stands in, checked: the slot must refer to it.
    #[inline(always)]
    pub(crate) fn slot_of(&self, edentry: u64) -> Result<u64> {
        let slot = self.edentry(edentry)?.slot.load(Acquire);
        if self.at::<AtomicU64>(slot, "directory slot")?.load(Acquire) != edentry {
            return Err(corrupt("directory slot", slot));
        }
        Ok(slot)
    }

    /// The store that frees an edentry's lines.
    #[inline(always)]
    pub(crate) fn old_edentry(&self, tx: &mut Tx, at: u64) -> Result<Op> {
        let head = Head::unpack(self.edentry(at)?.head.load(Acquire)).ok_or(corrupt("edentry", at))?;
        tx.old_lines(at, edentry::lines(usize::from(head.name_len)))
    }

    /// What a change of names does to the directory: times and counts.
    #[inline(always)]
    pub(crate) fn touch_directory(&self, offset: u64, now: i64, entries: i32, directories: i32) -> (Op, Op, Option<Op>) {
        let counted = entries != 0 || directories != 0;
        (
            Op::Max { at: offset + word::MTIME, value: now },
            Op::Max { at: offset + word::CTIME, value: now },
            counted.then_some(Op::Count { at: offset, entries, directories }),
        )
    }

    /// Looks up a name of a directory entered, without the bucket's lock; for
    /// those who look again with it.
    pub(crate) fn peek(&self, parent: &Parent, name: &[u8], hash: u64) -> Result<Option<Hit>> {
        self.find_hit(parent.offset, name, hash)
    }
}

/// What of a name is behind the first two lines of its edentry.
fn at_rest(name: &[u8]) -> &[u8] {
    name.get(edentry::WORDS * 8..).unwrap_or_default()
}

/// Up to 8 bytes as a little-endian word, zero-filled.
#[inline]
pub(crate) fn chunk_word(chunk: &[u8]) -> u64 {
    if let Some(whole) = chunk.first_chunk::<8>() {
        return u64::from_le_bytes(*whole);
    }
    short_word(chunk)
}
