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
pub(crate) mod whole;

use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::glance::offset_of;
use crate::index::{Hit, Room, Seen, Sought};
use crate::lane::Tx;
use crate::lane::record::{ClearBits, SetBits, Touch};
use crate::segment::cache::short_word;
use crate::segment::{Cachelet, LockWord};
use base::{Cred, Cx, Kind, Name, Node, Result, W, X};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use format::LINE;
use format::edentry::{self, Edentry, NAME_MAX};
use format::hash::short_words;
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

impl<'a> Parent<'a> {
    /// A copy for a call that is out of line, as [`Cx::copied`].
    #[inline(always)]
    pub(crate) fn copied(&self) -> Parent<'a> {
        let Seen { id, cachelet, word, uid, gid } = self.seen;
        let seen = Seen { id: id.rotate_left(0), cachelet, word, uid, gid };
        Parent { inode: self.inode, offset: self.offset, seen }
    }

    /// Whether names may be changed, as a rule: then they may be searched for too.
    #[inline(always)]
    pub(crate) fn is_free_to(&self, cred: &Cred) -> bool {
        cred.may(Kind::Directory, self.seen.mode(), self.seen.uid, self.seen.gid, W | X)
    }

    /// Search permission, which the kernel asks for before it looks at the name.
    #[inline(always)]
    pub(crate) fn may_search(&self, cx: &Cx) -> Result<()> {
        may_search(cx.copied(), self.seen.mode(), self.seen.uid, self.seen.gid)
    }

    /// Permission to change names.
    #[inline(always)]
    pub(crate) fn may_change(&self, cred: &Cred) -> Result<()> {
        if self.is_free_to(cred) { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    /// In a sticky directory only the owner of the victim or of the directory
    /// removes or moves a name; names may be changed in it, as a rule.
    #[inline(always)]
    pub(crate) fn may_remove(&self, cred: &Cred, victim_uid: u32, victim_gid: impl FnOnce() -> u32) -> Result<()> {
        let who = (cred.privileged, cred.privileged_within, cred.uid);
        let sticks = self.seen.mode() & STICKY != 0 && sticks(who, self.seen.uid, (victim_uid, victim_gid()));
        if sticks { Err(Errno::EPERM.into()) } else { Ok(()) }
    }
}

/// Whether a name stays in a sticky directory that belongs to these two: the owners of what is called so and of the directory.
#[cold]
#[inline(never)]
fn sticks((privileged, within, uid): (bool, bool, u32), dir_uid: u32, victim: (u32, u32)) -> bool {
    let cred = Cred { privileged, privileged_within: within, ..Cred::ROOT };
    uid != dir_uid && uid != victim.0 && !cred.is_privileged_over(victim.0, victim.1)
}

/// These bytes as a name; `ENAMETOOLONG`, or `ENOENT` if there are none.
#[inline]
pub(crate) fn proper(name: &[u8]) -> Result<Name<'_>> {
    match name.len() {
        0 => Err(Errno::ENOENT.into()),
        1..=NAME_MAX => {
            let (low, high) = short_words(name);
            Ok(Name::of(name, [low, high]))
        }
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
        let offset = offset_of(dir.id);
        if let Some(seen) = tx.enter_at_hand(dir, offset) {
            return self.parent(seen, offset);
        }
        let parent = tx.aside(
            #[inline(always)]
            |tx| self.enter_late(tx, cx.copied(), dir),
        )?;
        Ok(parent.copied())
    }

    #[cold]
    #[inline(never)]
    fn enter_late<'a>(&'a self, tx: &mut Tx<'a>, cx: Cx, mut dir: Node) -> Result<Parent<'a>> {
        let (mut attempts, offset) = (ATTEMPTS, offset_of(dir.id));
        loop {
            // Once it has been entered it is at hand.
            ([dir.hint, _], attempts) = self.enter_anyhow(tx, cx, [dir, dir], attempts)?;
            if let Some(seen) = tx.enter_at_hand(dir, offset) {
                return self.parent(seen, offset);
            }
        }
    }

    /// A cachelet is not at hand, is being changed, or a directory is closed to
    /// entry: enters the one or two, and tells the numbers of their cachelets, and how many attempts are left.
    #[cold]
    #[inline(never)]
    fn enter_anyhow<'a>(&'a self, tx: &mut Tx<'a>, cx: Cx, [a, b]: [Node; 2], attempts: u32) -> Result<([u32; 2], u32)> {
        for left in (0..attempts).rev() {
            let (first, second) = (self.cached(&cx, a).map_err(gone)?, self.cached(&cx, b).map_err(gone)?);
            let both = [(first, a.id), (second, b.id)];
            match tx.enter(&both[..1 + usize::from(a.id != b.id)]) {
                Ok(()) => {
                    self.check_directory(&cx, first, a.id)?;
                    self.check_directory(&cx, second, b.id)?;
                    return Ok(([self.cachelet_number(first), self.cachelet_number(second)], left));
                }
                Err(base::Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    /// Enters two directories (which may be the same).
    #[inline(always)]
    pub(crate) fn enter_two<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, a: Node, b: Node) -> Result<(Parent<'a>, Parent<'a>)> {
        let offsets = [offset_of(a.id), offset_of(b.id)];
        if let Some((first, second)) = tx.enter_both_at_hand([a, b], offsets) {
            return Ok((self.parent(first, offsets[0])?, self.parent(second, offsets[1])?));
        }
        let (first, second) = tx.aside(
            #[inline(always)]
            |tx| self.enter_two_late(tx, cx.copied(), a, b),
        )?;
        Ok((first.copied(), second.copied()))
    }

    #[cold]
    #[inline(never)]
    fn enter_two_late<'a>(&'a self, tx: &mut Tx<'a>, cx: Cx, mut a: Node, mut b: Node) -> Result<(Parent<'a>, Parent<'a>)> {
        let (mut attempts, offsets) = (ATTEMPTS, [offset_of(a.id), offset_of(b.id)]);
        loop {
            ([a.hint, b.hint], attempts) = self.enter_anyhow(tx, cx, [a, b], attempts)?;
            if let Some((first, second)) = tx.enter_both_at_hand([a, b], offsets) {
                return Ok((self.parent(first, offsets[0])?, self.parent(second, offsets[1])?));
            }
        }
    }

    fn check_directory(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<()> {
        let seen = self.seen(cx, cachelet, id).map_err(gone)?;
        if seen.is(Kind::Directory) { Ok(()) } else { Err(Errno::ENOTDIR.into()) }
    }

    #[inline(always)]
    fn parent<'a>(&'a self, seen: Seen<'a>, offset: u64) -> Result<Parent<'a>> {
        Ok(Parent { inode: self.inode(offset)?, offset, seen })
    }

    /// Takes the inode of a node that the index says is there and whose bucket
    /// is locked, so that it stays.
    #[inline(always)]
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
        let cachelet = tx.aside_locking(
            #[inline(always)]
            |tx| self.lock_named_anyhow(tx, cx.copied(), node),
        )?;
        Ok(cachelet)
    }

    #[cold]
    #[inline(never)]
    fn lock_named_anyhow<'a>(&'a self, tx: &mut Tx<'a>, cx: Cx, node: Node) -> Result<&'a Cachelet> {
        match self.lock_node(tx, &cx, node) {
            Err(base::Error::Posix(Errno::ESTALE)) => Err(corrupt("edentry without inode", node_offset(node.id))),
            result => result,
        }
    }

    /// Takes the bucket of a name that is to be made in a directory entered: its lock, and the room for an entry. `EEXIST`.
    #[inline(always)]
    pub(crate) fn new_name<'a>(&'a self, tx: &mut Tx<'a>, sought: &Sought) -> Result<(&'a LockWord, Room<'a>)> {
        let lock = tx.lock_bucket(sought.hash)?;
        Ok((lock, self.room_for(sought)?))
    }

    /// The room for an entry of a name whose bucket is locked. `EEXIST`.
    #[inline(always)]
    fn room_for(&self, sought: &Sought) -> Result<Room<'_>> {
        match self.room(sought)? {
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
        sought: &Sought,
        kind: u8,
        child: u64,
        slot: u64,
    ) -> Result<(u64, SetBits<'a>)> {
        let (at, edentry, allocated) = if sought.name.len() <= edentry::WORDS * 8 {
            tx.new_place::<Edentry>(1, Arena::Edentries)?
        } else {
            let (at, allocated) = tx.aside(
                #[inline(always)]
                |tx| self.long_edentry(tx, sought.name),
            )?;
            tx.lines_aside(edentry::lines(sought.name.len()).into());
            (at, self.edentry(at)?, allocated)
        };
        let image = &self.image;
        image.store(&edentry.head, sought.head(kind));
        image.store(&edentry.parent, sought.parent);
        image.store(&edentry.child, child);
        image.store(&edentry.slot, slot);
        if sought.is_short() {
            // What stands behind is nobody's to read.
            let [low, high, ..] = &edentry.name;
            image.store(low, sought.low);
            image.store(high, sought.high);
        } else {
            self.write_long_name(edentry, sought.name);
        }
        tx.object(at, edentry::lines(sought.name.len()))?;
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
    #[inline(always)]
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
    #[inline(always)]
    pub(crate) fn old_edentry<'a>(&self, tx: &mut Tx<'a>, at: u64, len: usize) -> Result<ClearBits<'a>> {
        if len <= edentry::WORDS * 8 {
            return tx.old_lines(at, 1);
        }
        let cleared = tx.aside(
            #[inline(always)]
            |tx| self.old_long_edentry(tx, at, len),
        )?;
        tx.lines_aside(-i64::from(cleared.count));
        Ok(cleared)
    }

    #[cold]
    #[inline(never)]
    fn old_long_edentry<'a>(&self, tx: &mut Tx<'a>, at: u64, len: usize) -> Result<ClearBits<'a>> {
        tx.old_lines(at, edentry::lines(len))
    }
}

/// See [`Parent::may_search`].
#[cold]
#[inline(never)]
fn may_search(cx: Cx, mode: u16, uid: u32, gid: u32) -> Result<()> {
    if cx.cred.may(Kind::Directory, mode, uid, gid, X) { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// The stores for a change of names in the directory `inode`.
#[inline(always)]
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
