//! Files that share blocks: sharing them, and breaking that.
//!
//! Sharing: an extent of the source says that it may be shared (a record; nothing has changed by that), then a record
//! counts one extent more for its blocks and puts it into the target's map, with the size that shows it. Where the
//! target has an extent the record replaces just that one: it was split before, which changes nothing either.
//!
//! Breaking ([`Job::own`]), before a byte of such an extent changes: the extent is split to the blocks that are meant,
//! these are copied into blocks that are nobody's yet, and one record replaces the extent and counts one fewer for the
//! blocks it had. If no other has them any more, they are the file's own again by one word.
//!
//! A file that is mapped, or has been since it was last closed by all, shares nothing: what is stored into a mapping is
//! not seen, and what it shows must stay where it is. So it is copied, and a file is made its own before it is mapped.

use super::cursor::Source;
use super::edit::Edit;
use super::job::Job;
use super::{block_of, blocks_for};
use crate::fs::Fs;
use crate::lane::Tx;
use crate::lane::record::Set;
use crate::segment::{Cachelet, cachelet};
use base::{Cx, Error, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::extent::{Extent, FILE_MAX, Root, SHARED};
use format::lane::Kind;
use format::{BLOCK, Features, Inode};
use pm::Errno;

/// Most blocks that are copied at a time where sharing is broken.
const COPIED_MAX: u64 = 256;
/// From so many bytes on a copy from file to file shares what it can: fewer are copied sooner than they are broken apart.
const COPY_SHARES: u64 = 64 << 10;

/// A file whose inode is locked, and a byte of it.
type Place<'a> = (&'a Cachelet, Node, u64);

impl Fs {
    /// Makes `len` bytes (0: all up to its end) of a file, from an offset on, those of another one from an offset on, or of the
    /// same where they do not overlap: they share the blocks. As `FICLONERANGE`: `EINVAL` for what is not of whole blocks;
    /// `EOPNOTSUPP` in an image that shares nothing (an old one). In a cache the bytes, and all of the target, are here
    /// (`EAGAIN`).
    pub fn clone_range(&self, cx: &Cx, (from, from_at): (Node, u64), (to, to_at): (Node, u64), len: u64) -> Result<()> {
        let mut tx = self.begin(cx, Kind::Clone)?;
        let (source, target) = self.lock_two(&mut tx, cx, from, to)?;
        let (size, target_size) = (source.size.load(Relaxed), target.size.load(Relaxed));
        let len = if len == 0 { size.saturating_sub(from_at) } else { len };
        let (end, to_end) = (from_at.checked_add(len).ok_or(Errno::EINVAL)?, to_at.checked_add(len).ok_or(Errno::EINVAL)?);
        let is_whole = len.is_multiple_of(BLOCK) || end == size && to_end >= target_size;
        let overlaps = from == to && from_at < to_end && to_at < end;
        if from_at % BLOCK != 0 || to_at % BLOCK != 0 || end > size || !is_whole || overlaps {
            return Err(Errno::EINVAL.into());
        }
        if to_end > FILE_MAX {
            return Err(Errno::EFBIG.into());
        }
        if len == 0 {
            return Ok(());
        }
        self.may_share(&mut tx)?;
        self.is_here((source, from), from_at, end)?;
        if self.is_fetched(to)? {
            return Err(Errno::EAGAIN.into());
        }
        if are_mapped(source, target) {
            return self.copy_whole(cx, &mut tx, (source, from_at), (target, to, to_at), len);
        }
        self.share_all(cx, &mut tx, (source, from, from_at), (target, to, to_at), len)
    }

    /// Whether files of this image may share blocks; from here on no older program uses it.
    pub(crate) fn may_share<'a>(&'a self, tx: &mut Tx<'a>) -> Result<()> {
        self.allow(tx, Features::SHARED)
    }

    /// In a cache: `EAGAIN` if some of these bytes of a file, which is locked, are still to be fetched.
    pub(crate) fn is_here(&self, (file, node): (&Cachelet, Node), from: u64, end: u64) -> Result<()> {
        if self.is_cache() && self.hole_in(file, node, from, end)?.is_some() { Err(Errno::EAGAIN.into()) } else { Ok(()) }
    }

    /// In a cache: whether holes of a file are filled from below, so that none can be made in it.
    fn is_fetched(&self, node: Node) -> Result<bool> {
        Ok(self.is_cache() && self.known(node)?.is_some_and(|known| known.end != 0))
    }

    /// As a part of a record that makes a file of `size` bytes, whose source is locked: the root word it is to have, its
    /// blocks, and the store that lets the source's extent say that it may be shared. `None`: one record does not do.
    /// Keeps the lock of the counts.
    pub(crate) fn share_new<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        source: &Cachelet,
        inode: &'a Inode,
        size: u64,
    ) -> Result<Option<(u64, u32, Option<Set<'a>>)>> {
        let (word, wanted) = (source.root.load(Acquire), blocks_for(size));
        if word == 0 || wanted == 0 {
            return Ok(Some((0, 0, None)));
        }
        let is_mapped = source.flags.load(Acquire) & cachelet::MAPPED != 0;
        let Some((block, len)) = Root::one(word).filter(|_| !is_mapped && self.may_share(tx).is_ok()) else { return Ok(None) };
        let len = len.min(wanted);
        tx.lock_shares()?;
        let sharing = match self.sharing(block, len) {
            Ok(sharing) if sharing.len >= len => sharing,
            Ok(_) | Err(Error::Posix(Errno::EMLINK)) => {
                tx.unlock_shares();
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        tx.share(&sharing, len)?;
        // What the source's last writer wrote is the new file's too: on the medium before it is.
        tx.order();
        let mark = (word & SHARED == 0).then_some(Set { word: &inode.root, value: word | SHARED });
        Ok(Some((Root::One { block, len, shared: true }.pack(), len as u32, mark)))
    }

    /// The first bytes from `at` on in which two files may differ, since they do not have them in the same place, as offset
    /// and length; `None` if there are none up to the end of the shorter one. No lock: where a map changes meanwhile
    /// that is all that is left.
    pub fn differs(&self, cx: &Cx, a: Node, b: Node, at: u64) -> Result<Option<(u64, u64)>> {
        let both = [self.cached(cx, a)?, self.cached(cx, b)?];
        let state = || both.map(|cachelet| cachelet.map_sequence.load(Acquire));
        let before = state();
        let roots = both.map(|cachelet| cachelet.root.load(Acquire));
        let sizes = both.map(|cachelet| cachelet.size.load(Acquire));
        let end = sizes[0].min(sizes[1]);
        let found = self.first_apart(roots, at, end);
        fence(Acquire);
        let is_still = before == state() && before.iter().all(|sequence| sequence & 1 == 0);
        let are_theirs = both[0].node.load(Acquire) == a.id && both[1].node.load(Acquire) == b.id;
        match found {
            found if is_still && are_theirs => found,
            _ => Ok((at < end).then(|| (at, end - at))),
        }
    }

    fn first_apart(&self, [a, b]: [u64; 2], at: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let mut at = at;
        while at < end {
            let (a, b) = (self.piece(a, at, end - at)?, self.piece(b, at, end - at)?);
            let len = a.len.min(b.len);
            if a.image != b.image {
                return Ok(Some((at, len)));
            }
            at += len;
        }
        Ok(None)
    }

    /// Copies all, or says why not.
    fn copy_whole<'a>(
        &'a self,
        cx: &Cx,
        tx: &mut Tx<'a>,
        (source, at): (&Cachelet, u64),
        (target, to, to_at): Place<'a>,
        len: u64,
    ) -> Result<()> {
        let mut job = Job::new(tx, target, to.id)?;
        job.drop_rights(cx)?;
        let end = job.fill(to_at, to_at + len, &mut Source::File { cachelet: source, at })?;
        if end == to_at + len { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// What of a copy of `len` bytes from file to file can be shared, is: how many from the beginning.
    pub(super) fn share_copied<'a>(&'a self, cx: &Cx, tx: &mut Tx<'a>, from: Place<'a>, to: Place<'a>, len: u64) -> Result<u64> {
        let is_last = from.2 + len == from.0.size.load(Relaxed) && to.2 + len >= to.0.size.load(Relaxed);
        let whole = if is_last { len } else { len - len % BLOCK };
        if whole < COPY_SHARES
            || !from.2.is_multiple_of(BLOCK)
            || !to.2.is_multiple_of(BLOCK)
            || are_mapped(from.0, to.0)
            || self.may_share(tx).is_err()
            || self.is_here((from.0, from.1), from.2, from.2 + len).is_err()
            || self.is_fetched(to.1)?
        {
            return Ok(0);
        }
        let kind = tx.now(Kind::Clone);
        let shared = self.share_all(cx, tx, from, to, whole);
        tx.now(kind);
        match shared {
            Ok(()) => Ok(whole),
            // There may be room for a part of it: what has been shared is written over by the same bytes.
            Err(Error::Posix(Errno::ENOSPC | Errno::EMLINK)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Shares `len` bytes, whole blocks or up to the source's end.
    fn share_all<'a>(
        &'a self,
        cx: &Cx,
        tx: &mut Tx<'a>,
        from: Place<'a>,
        (target, to, to_at): Place<'a>,
        len: u64,
    ) -> Result<()> {
        let mut job = Job::new(tx, target, to.id)?;
        job.drop_rights(cx)?;
        let size = job.size();
        if to_at > size {
            job.zero_allocated(size, to_at)?;
        }
        let mut done = 0;
        while done < len {
            let step = self.share_once(tx, (from.0, from.1, from.2 + done), (target, to, to_at + done), len - done, true);
            done += step.inspect_err(|_| {
                tx.abandon();
                // Blocks behind the end, perhaps.
                target.flags.fetch_or(cachelet::AHEAD, Relaxed);
            })?;
            tx.unlock_shares();
        }
        let mut job = Job::new(tx, target, to.id)?;
        let size = job.size().max(to_at + len);
        job.publish(size);
        Ok(())
    }

    /// Shares what one record can of `len` bytes, or does what must be done before; how many bytes are the target's now.
    /// The size grows with the last of them. `stamps`: the target's times say so.
    fn share_once<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        (source, from, at): Place<'a>,
        (target, to, to_at): Place<'a>,
        len: u64,
        stamps: bool,
    ) -> Result<u64> {
        let (block, file, want) = (block_of(at), block_of(to_at), blocks_for(len));
        let there = self.find_extent(source.root.load(Acquire), block)?;
        let Some(there) = there.filter(|e| e.file <= block) else {
            let hole = there.map_or(want, |e| want.min(e.file - block));
            Job::new(tx, target, to.id)?.cut(file, file + hole)?;
            return Ok(len.min(hole * BLOCK));
        };
        let is_same = from.id == to.id;
        if !there.shared || is_same {
            // Not with what is to be written over, which becomes its own.
            let mut job = Job::new(tx, source, from.id)?;
            if is_same && (job.split(block)? || job.split(block + want)?) {
                return Ok(0);
            }
        }
        if !there.shared {
            Job::new(tx, source, from.id)?.mark(Extent { shared: true, ..there })?;
            return Ok(0);
        }
        tx.lock_shares()?;
        let first = there.block + (block - there.file);
        let sharing = self.sharing(first, want.min(there.end() - block))?;
        let mut len_blocks = sharing.len;
        let mut job = Job::new(tx, target, to.id)?;
        let before = self.find_extent(job.root(), file)?;
        let replaced = before.filter(|e| e.file <= file);
        if let Some(e) = replaced {
            len_blocks = len_blocks.min(e.end() - file);
            if e.shared {
                job.own(to_at, to_at + len_blocks * BLOCK)?;
                return Ok(0);
            }
            if job.split(file)? || job.split(file + len_blocks)? {
                return Ok(0);
            }
        } else if let Some(e) = before {
            len_blocks = len_blocks.min(e.file - file);
        }
        job.tx.share(&sharing, len_blocks)?;
        // What the source's last writer wrote is the target's too: on the medium before it is.
        job.tx.order();
        let new = Extent { file, block: first, len: len_blocks, shared: true };
        let mut edit = Edit::new(job.tx, job.inode.root.load(Relaxed));
        if replaced.is_some() { edit.replace(new) } else { edit.insert(new) }?;
        let (edited, done) = (edit.finish(), len.min(len_blocks * BLOCK));
        let size = if done == len { job.size().max(to_at + done) } else { job.size() };
        job.commit(edited, len_blocks, size, stamps)?;
        Ok(done)
    }
}

/// Whether one of two files is mapped.
fn are_mapped(source: &Cachelet, target: &Cachelet) -> bool {
    (source.flags.load(Acquire) | target.flags.load(Acquire)) & cachelet::MAPPED != 0
}

impl Job<'_, '_> {
    /// Lets an extent be one end to end with this one, but for the word that says whether it is shared.
    fn mark(&mut self, e: Extent) -> Result<()> {
        self.edit_alone(|edit| edit.replace(e))
    }

    /// Splits the extent that covers block `at` there, if it begins before; whether it did.
    fn split(&mut self, at: u64) -> Result<bool> {
        let is_within = self.fs.find_extent(self.root(), at)?.is_some_and(|e| e.file < at);
        if is_within {
            self.edit_alone(|edit| edit.split(at))?;
        }
        Ok(is_within)
    }

    /// A record of one edit, after which the file has the same bytes in the same blocks.
    fn edit_alone(&mut self, what: impl FnOnce(&mut Edit) -> Result<()>) -> Result<()> {
        let mut edit = Edit::new(self.tx, self.inode.root.load(Relaxed));
        if let Err(error) = what(&mut edit) {
            self.tx.abandon();
            return Err(error);
        }
        let (edited, size) = (edit.finish(), self.size());
        self.commit(edited, 0, size, false)
    }

    /// Makes what is shared among bytes `from..to` the file's own.
    pub(super) fn own_all(&mut self, from: u64, to: u64) -> Result<()> {
        // Nothing is shared; and of this file, which is locked, nothing will be.
        if self.fs.root().shares.load(Acquire) == 0 {
            return Ok(());
        }
        let (mut block, end) = (block_of(from), blocks_for(to));
        while block < end {
            match self.fs.find_extent(self.root(), block)? {
                Some(e) if e.shared && e.file < end => {
                    let first = block.max(e.file);
                    self.own(first * BLOCK, e.end().min(end) * BLOCK)?;
                    block = first;
                }
                Some(e) => block = e.end(),
                None => break,
            }
        }
        Ok(())
    }

    /// Makes blocks from that of byte `at` on, which are shared, the file's own: some of those that lie together up to byte `end`.
    /// Who wants more calls again. `ENOSPC`.
    #[cold]
    #[inline(never)]
    pub(super) fn own(&mut self, at: u64, end: u64) -> Result<()> {
        let first = block_of(at);
        let Some(e) = self.fs.find_extent(self.root(), first)?.filter(|e| e.shared && e.file <= first) else { return Ok(()) };
        let last = e.end().min(blocks_for(end));
        self.tx.lock_shares()?;
        let (is_own, count) = if self.fs.is_unshared(e.block, e.len)? {
            (true, (0, 0))
        } else {
            (false, self.fs.count_of(e.block + (first - e.file), last - first)?)
        };
        self.tx.unlock_shares();
        if is_own {
            // Nobody gets it but from this file, which is locked.
            return self.mark(Extent { shared: false, ..e });
        }
        let last = first + count.1.min(COPIED_MAX);
        self.split(first)?;
        self.split(last)?;
        if count.0 == 0 {
            return self.mark(Extent { shared: false, ..e.part(first, last) });
        }
        let copied = self.copy_shared(e.part(first, last));
        copied.inspect_err(|_| self.tx.abandon())
    }

    /// Copies an extent, and has the copy in its place.
    fn copy_shared(&mut self, e: Extent) -> Result<()> {
        let near = self.fs.near(self.root(), e.file);
        let (block, len) = self.tx.blocks(e.len, near)?;
        if len < e.len {
            // As much as lies together, the next time.
            self.tx.abandon();
            return self.split(e.file + len).map(drop);
        }
        self.fs.present(e.block * BLOCK, len * BLOCK)?;
        self.fs.present(block * BLOCK, len * BLOCK)?;
        self.fs.image.copy_within(e.block * BLOCK, block * BLOCK, len * BLOCK)?;
        self.tx.order();
        self.tx.lock_shares()?;
        if self.fs.release_start(e.block, len)? != e.block {
            // Others have given up parts of it meanwhile: its counts are to be looked at again.
            self.tx.abandon();
            self.tx.unlock_shares();
            return Ok(());
        }
        let mut edit = Edit::new(self.tx, self.inode.root.load(Relaxed));
        edit.replace(Extent { block, shared: false, ..e })?;
        let (edited, size) = (edit.finish(), self.size());
        self.commit(edited, len, size, false)?;
        self.tx.unlock_shares();
        Ok(())
    }
}

mod same;
#[cfg(test)]
mod tests;
