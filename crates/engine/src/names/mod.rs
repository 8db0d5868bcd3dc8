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
mod move_plainly;
pub(crate) mod orphan;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod rmdir;
pub(crate) mod symlink;
#[cfg(test)]
mod tests;
pub(crate) mod twin;
pub(crate) mod whole;

use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::index::{EntryKey, Hit, Room, Seen};
use crate::lane::Tx;
use crate::lane::record::{ClearBits, SetBits, Touch};
use crate::rights::may_search;
use crate::segment::Cachelet;
use crate::segment::cache::short_word;
use base::{Cred, Cx, Kind, Node, Result, W, X};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use format::LINE;
use format::edentry::{self, Edentry, NAME_MAX};
use format::inode::{Inode, node_offset};
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
    pub(crate) inode: &'a Inode,
    /// Offset of the inode.
    pub(crate) offset: u64,
    /// Cachelet, node id, owner and mode.
    pub(crate) seen: Seen<'a>,
}

impl Parent<'_> {
    /// Whether names may be changed, as a rule: then they may be searched for too.
    pub(crate) fn is_free_to(&self, cred: &Cred) -> bool {
        cred.may(Kind::Directory, self.seen.mode(), self.seen.uid, self.seen.gid, W | X)
    }

    /// Search permission, which the kernel asks for before it looks at the name.
    pub(crate) fn may_search(&self, cx: &Cx) -> Result<()> {
        may_search(&cx.cred, &self.seen)
    }

    /// Permission to change names.
    pub(crate) fn may_change(&self, cred: &Cred) -> Result<()> {
        if self.is_free_to(cred) { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    /// In a sticky directory only the owner of the victim or of the directory
    /// removes or moves a name; names may be changed in it, as a rule.
    pub(crate) fn may_remove(&self, cred: &Cred, victim_uid: u32, victim_gid: u32) -> Result<()> {
        let is_owner = || cred.uid == self.seen.uid || cred.uid == victim_uid;
        let sticks = self.seen.mode() & STICKY != 0 && !is_owner() && !cred.is_privileged_over(victim_uid, victim_gid);
        if sticks { Err(Errno::EPERM.into()) } else { Ok(()) }
    }
}

/// These bytes as a name; `ENAMETOOLONG`, or `ENOENT` if there are none.
#[inline]
pub(crate) fn proper(name: &[u8]) -> Result<&[u8]> {
    match name.len() {
        0 => Err(Errno::ENOENT.into()),
        1..=NAME_MAX => Ok(name),
        _ => Err(Errno::ENAMETOOLONG.into()),
    }
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
        if let Some([seen, _]) = tx.enter_fast([dir, dir]) {
            return self.parent(seen);
        }
        self.enter_two(tx, cx, dir, dir).map(|(parent, _)| parent)
    }

    /// Enters two directories (which may be the same).
    pub(crate) fn enter_two<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, a: Node, b: Node) -> Result<(Parent<'a>, Parent<'a>)> {
        let mut nodes = [a, b];
        for _ in 0..ATTEMPTS {
            if let Some([first, second]) = tx.enter_fast(nodes) {
                return Ok((self.parent(first)?, self.parent(second)?));
            }
            self.enter_slow(tx, cx, &mut nodes)?;
        }
        Err(Errno::EIO.into())
    }

    /// A cachelet is not where its node says, is being changed, or a directory is closed to entry: waits, enters the one
    /// or two, and notes where their cachelets are.
    #[cold]
    #[inline(never)]
    fn enter_slow<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, [a, b]: &mut [Node; 2]) -> Result<()> {
        let (first, second) = (self.cached(cx, *a).map_err(gone)?, self.cached(cx, *b).map_err(gone)?);
        let both = [(first, a.id), (second, b.id)];
        match tx.enter(&both[..1 + usize::from(a.id != b.id)]) {
            Ok(()) => {
                self.check_directory(cx, first, a.id)?;
                self.check_directory(cx, second, b.id)?;
                (a.hint, b.hint) = (self.cachelet_number(first), self.cachelet_number(second));
                Ok(())
            }
            // A cachelet was taken away meanwhile.
            Err(base::Error::Posix(Errno::ESTALE)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn check_directory(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<()> {
        let seen = self.seen(cx, cachelet, id).map_err(gone)?;
        if seen.is(Kind::Directory) { Ok(()) } else { Err(Errno::ENOTDIR.into()) }
    }

    #[inline(always)]
    fn parent<'a>(&'a self, seen: Seen<'a>) -> Result<Parent<'a>> {
        let offset = node_offset(seen.id);
        Ok(Parent { inode: self.inode(offset)?, offset, seen })
    }

    /// Takes the inode of a node that the index says is there and whose bucket
    /// is locked, so that it stays.
    pub(crate) fn lock_named<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, node: Node) -> Result<&'a Cachelet> {
        if let Some(cachelet) = self.cachelet(node.hint)
            && cachelet.node.load(Acquire) == node.id
        {
            let keep = tx.held;
            tx.lock(&cachelet.owner)?;
            if cachelet.is_sound(node.id) {
                return Ok(cachelet);
            }
            tx.unlock_to(keep);
        }
        match self.lock_node(tx, cx, node) {
            Err(base::Error::Posix(Errno::ESTALE)) => Err(corrupt("edentry without inode", node_offset(node.id))),
            result => result,
        }
    }

    /// Takes the bucket of a name that is to be made in a directory entered: its lock, and the room for an entry. `EEXIST`.
    pub(crate) fn new_name<'a>(&'a self, tx: &mut Tx<'a>, key: &EntryKey) -> Result<Room<'a>> {
        tx.lock_bucket(key.hash)?;
        match self.room(key)? {
            Room::Taken => Err(Errno::EEXIST.into()),
            room => Ok(room),
        }
    }

    /// Allocates and writes an edentry, and puts it under the record's checksum:
    /// its offset, and the store that allocates it, for the record.
    #[inline(always)]
    pub(crate) fn new_edentry<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        key: &EntryKey,
        kind: u8,
        child: u64,
        slot: u64,
    ) -> Result<(u64, SetBits<'a>)> {
        let (at, edentry, allocated) = if key.name.len() <= edentry::WORDS * 8 {
            tx.new_place::<Edentry>(1, Arena::Edentries)?
        } else {
            let (at, allocated) = self.long_edentry(tx, key.name)?;
            (at, self.edentry(at)?, allocated)
        };
        let image = &self.image;
        image.store(&edentry.head, key.head(kind));
        image.store(&edentry.parent, key.parent);
        image.store(&edentry.child, child);
        image.store(&edentry.slot, slot);
        if key.is_short() {
            // What stands behind is nobody's to read.
            let [low, high, ..] = &edentry.name;
            image.store(low, key.low);
            image.store(high, key.high);
        } else {
            self.write_long_name(edentry, key.name);
        }
        tx.object(at, edentry::lines(key.name.len()))?;
        Ok((at, allocated))
    }

    /// Writes the words of a name as far as they stand in an edentry's first line.
    #[cold]
    #[inline(never)]
    fn write_long_name(&self, edentry: &Edentry, name: &[u8]) {
        let mut chunks = name.chunks(8);
        for word in &edentry.name {
            self.image.store(word, chunks.next().map_or(0, chunk_word));
        }
    }

    /// Allocates an edentry of more than one line, and writes what of the name is behind that.
    #[cold]
    #[inline(never)]
    fn long_edentry<'a>(&'a self, tx: &mut Tx<'a>, name: &[u8]) -> Result<(u64, SetBits<'a>)> {
        let (lines, rest) = (edentry::lines(name.len()), &name[edentry::WORDS * 8..]);
        let (at, allocated) = tx.new_lines(lines, Arena::Edentries)?;
        let mut chunks = rest.chunks(8);
        for word in self.words(at + LINE, (lines as usize - 1) * 8, "name")? {
            self.image.store(word, chunks.next().map_or(0, chunk_word));
        }
        Ok((at, allocated))
    }

    /// The slot that the edentry of a hit stands in, and its offset, checked: the slot must refer to it.
    pub(crate) fn slot_of(&self, hit: &Hit) -> Result<(u64, &AtomicU64)> {
        let Some((_, edentry)) = hit.place else { return Err(Errno::EIO.into()) };
        let slot = edentry.slot.load(Acquire);
        let word: &AtomicU64 = self.at(slot, "directory slot")?;
        if word.load(Acquire) != hit.edentry {
            return Err(corrupt("directory slot", slot));
        }
        Ok((slot, word))
    }

    /// The store that frees the lines of an edentry with a name of `len` bytes.
    pub(crate) fn old_edentry<'a>(&self, tx: &mut Tx<'a>, at: u64, len: usize) -> Result<ClearBits<'a>> {
        tx.old_lines(at, edentry::lines(len))
    }
}

/// The stores for a change of names in the directory `inode`.
pub(crate) fn touch_directory(inode: &Inode, now: i64, entries: i8, directories: i8) -> Touch<'_> {
    Touch { inode, now, entries, directories }
}

/// Up to 8 bytes as a little-endian word, zero-filled.
#[inline]
pub(crate) fn chunk_word(chunk: &[u8]) -> u64 {
    if let Some(whole) = chunk.first_chunk::<8>() {
        return u64::from_le_bytes(*whole);
    }
    short_word(chunk)
}
