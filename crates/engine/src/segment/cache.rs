//! Finding, loading and reading cachelets (ByVFS §3.2: the inode's non-volatile
//! pointer to its cached self, valid under the generation it was made in).
//!
//! Loading: a cachelet is taken (new, or from an inode that nobody uses), made
//! this node's with an odd sequence, published in the inode's reference by
//! compare-and-swap, and only then filled: from publication on nobody else can
//! change the inode, so what is filled in cannot be stale. Of two loaders one wins.
//!
//! A node that is gone must not be published: its line may hold anything by now, a file's contents too. So a
//! loader looks whether the node is there after he has said, by his lane, that he is loading it; and
//! who has published it waits for those who said so before he does anything with it
//! ([`Fs::wait_for_loaders`]). Without a cachelet nobody can free an inode: what a loader found there stays
//! until he has published it, or failed to.
//!
//! A directory's size, counts and times are changed by several lanes at once;
//! they are read from the inode, never from the cachelet.

use super::cachelet::{self, Cachelet, NAME_SHORT, pack_mode};
use super::device::UNTOLD;
use crate::fs::{Fs, corrupt};
use crate::index::{EntryKey, Seen};
use crate::lane::lock::Waiter;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use format::inode::{self, Inode, node_generation, node_offset, unpack_links};
use pm::Errno;

/// Attempts to read a cachelet consistently: nobody who means well keeps a reader so long.
const ROUNDS: u32 = 1 << 20;
/// How often somebody else may be faster at loading an inode, and its cachelet be gone again.
const LOADERS: u32 = 10_000;

/// A consistent copy of what a cachelet holds of its inode.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Snapshot {
    pub kind: Kind,
    /// 12 bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub mtime: i64,
    pub ctime: i64,
    pub blocks: u32,
    /// Cachelet flags.
    pub flags: u32,
}

/// Makes a cachelet's sequence odd for as long as it lives. Only for the holder of `owner`.
pub(crate) struct Change<'a>(&'a Cachelet);

impl core::ops::Deref for Change<'_> {
    type Target = Cachelet;
    #[inline]
    fn deref(&self) -> &Cachelet {
        self.0
    }
}

impl<'a> Change<'a> {
    /// Ends the change; returns the cachelet.
    pub(crate) fn end(self) -> &'a Cachelet {
        self.0
    }
}

impl Drop for Change<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.sequence.store(self.0.sequence.load(Relaxed).wrapping_add(1) & !1, Release);
    }
}

impl Fs {
    /// The cachelet of a node, loaded if need be. `ESTALE` if the node is gone.
    #[inline]
    pub(crate) fn cached(&self, cx: &Cx, node: Node) -> Result<&Cachelet> {
        if let Some(cachelet) = self.cachelet(node.hint)
            && cachelet.node.load(Acquire) == node.id
            && cachelet.flags.load(Relaxed) & (cachelet::DEAD | cachelet::INVALID) == 0
        {
            return Ok(cachelet);
        }
        self.cached_by_inode(cx, node.id)
    }

    /// What `with` makes of a node's cachelet. Where that is taken away meanwhile, of which `ESTALE` from `with`
    /// tells, it is looked for again: to the caller `ESTALE` says that the node is gone, and nothing else.
    #[inline]
    pub(crate) fn with_cached<'a, T>(
        &'a self,
        cx: &Cx,
        node: Node,
        mut with: impl FnMut(&'a Cachelet) -> Result<T>,
    ) -> Result<T> {
        match with(self.cached(cx, node)?) {
            Err(base::Error::Posix(Errno::ESTALE)) => self.with_cached_again(cx, node, &mut with),
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn with_cached_again<'a, T>(&'a self, cx: &Cx, node: Node, with: &mut dyn FnMut(&'a Cachelet) -> Result<T>) -> Result<T> {
        for _ in 0..LOADERS {
            match with(self.cached(cx, node)?) {
                Err(base::Error::Posix(Errno::ESTALE)) => core::hint::spin_loop(),
                result => return result,
            }
        }
        Err(corrupt("cachelet", node_offset(node.id)))
    }

    /// What a walk needs to know of a node, loaded if need be. `ESTALE` if the node is gone.
    #[inline]
    pub(crate) fn see<'a>(&'a self, cx: &Cx, node: Node) -> Result<Seen<'a>> {
        self.with_cached(cx, node, |cachelet| self.seen(cx, cachelet, node.id))
    }

    /// The valid reference from an inode to its cachelet, if it has one.
    #[inline]
    pub(crate) fn reference(&self, inode: &Inode, id: u64) -> Option<&Cachelet> {
        let word = inode.cachelet.load(Acquire);
        if (word >> 32) as u32 != self.generation {
            return None;
        }
        let cachelet = self.cachelet((word as u32).checked_sub(1)?)?;
        (cachelet.node.load(Acquire) == id).then_some(cachelet)
    }

    /// Checks that the inode at a node's place is that node.
    fn proven(&self, id: u64) -> Result<&Inode> {
        let inode = self.inode(node_offset(id))?;
        let head = inode.head();
        if head.generation & 0xff_ffff != node_generation(id) || Kind::from_dt(head.kind).is_none() {
            return Err(Errno::ESTALE.into());
        }
        Ok(inode)
    }

    #[cold]
    #[inline(never)]
    fn cached_by_inode(&self, cx: &Cx, id: u64) -> Result<&Cachelet> {
        for _ in 0..LOADERS {
            let inode = self.proven(id)?;
            if let Some(cachelet) = self.reference(inode, id) {
                let flags = cachelet.flags.load(Acquire);
                if cachelet.node.load(Acquire) != id {
                    // Taken away: they may be another's.
                    continue;
                }
                if flags & cachelet::DEAD != 0 {
                    return Err(Errno::ESTALE.into());
                }
                if flags & cachelet::INVALID == 0 {
                    return Ok(cachelet);
                }
                match self.revalidate(cx, cachelet, id) {
                    Ok(()) => return Ok(cachelet),
                    // Taken away, or gone: the inode tells.
                    Err(base::Error::Posix(Errno::ESTALE)) => continue,
                    Err(error) => return Err(error),
                }
            }
            if let Some(cachelet) = self.load(cx, inode, id)? {
                return Ok(cachelet);
            }
        }
        Err(corrupt("cachelet", node_offset(id)))
    }

    /// Loads an inode into a cachelet; `None` if somebody else was faster.
    fn load(&self, cx: &Cx, inode: &Inode, id: u64) -> Result<Option<&Cachelet>> {
        let lane = self.lane_of(cx)?;
        let cachelet = self.new_cachelet(lane, self.lane_state(lane))?;
        // Ours now: `owner` is taken and listed, nobody refers to it.
        cachelet.sequence.store(cachelet.sequence.load(Relaxed) | 1, SeqCst);
        // What follows may not be seen before that, on no machine.
        fence(Release);
        cachelet.flags.store(cachelet::INVALID, SeqCst);
        cachelet.parent.store(0, Relaxed);
        // `opens` is not touched: an opener of the node before may be about to take back his count.
        cachelet.node.store(id, SeqCst);
        // What follows is seen after that: see `wait_for_loaders`.
        fence(SeqCst);
        let result = self.publish(lane, cachelet, inode, id);
        let published = result == Ok(true);
        if !published {
            cachelet.node.store(0, SeqCst);
        }
        cachelet.sequence.store(cachelet.sequence.load(Relaxed).wrapping_add(1) & !1, Release);
        self.let_go(lane, cachelet);
        result.map(|published| published.then_some(cachelet))
    }

    /// Makes a cachelet that says so the inode's, and fills it; false if the inode has another one.
    fn publish(&self, lane: u32, cachelet: &Cachelet, inode: &Inode, id: u64) -> Result<bool> {
        let reference = u64::from(self.generation) << 32 | u64::from(self.cachelet_number(cachelet) + 1);
        // Before we look: whoever else gives it a cachelet changes this word. So it may not be ours left from before.
        let seen = inode.cachelet.load(Acquire);
        if seen == reference || self.reference(inode, id).is_some() {
            return Ok(false);
        }
        self.proven(id)?;
        if self.image.swap_if(&inode.cachelet, seen, reference).is_err() {
            return Ok(false);
        }
        self.wait_for_loaders(lane, cachelet, id);
        self.fill(cachelet, inode, id).map(|()| true)
    }

    /// Waits for other lanes that said that they are loading the node of `cachelet` before it was published: each
    /// finds that it is, or has found something else before, and fails to publish it once more.
    fn wait_for_loaders(&self, own: u32, cachelet: &Cachelet, id: u64) {
        // After the publication.
        fence(SeqCst);
        let mut wait = Waiter::of(own);
        for lane in (0..self.header().lanes_high.get()).filter(|lane| *lane != own) {
            let listed = &self.lane_state(lane).loading_cachelet;
            let is_loading = || {
                let owner = listed.load(SeqCst);
                let loading = if owner == 0 { None } else { self.cachelet_of_owner(owner) };
                loading.is_some_and(|one| !core::ptr::eq(one, cachelet) && one.node.load(SeqCst) == id)
            };
            while is_loading() && wait.once(self, lane + 1) {}
        }
    }

    /// Fills a cachelet from its inode. The sequence is odd and `owner` held.
    fn fill(&self, cachelet: &Cachelet, inode: &Inode, id: u64) -> Result<()> {
        let head = inode.head();
        if head.generation & 0xff_ffff != node_generation(id) || Kind::from_dt(head.kind).is_none() {
            return Err(Errno::ESTALE.into());
        }
        let (uid, gid, mode) = self.permission(head.permission)?;
        let name_len = if cachelet.parent.load(Relaxed) == 0 { 0 } else { (cachelet.mode.load(Relaxed) >> 24) as u8 };
        cachelet.mode.store(pack_mode(name_len, head.kind, mode), Relaxed);
        cachelet.uid.store(uid, Relaxed);
        cachelet.gid.store(gid, Relaxed);
        if head.kind != Kind::Directory as u8 {
            let (nlink, blocks) = unpack_links(inode.links.load(Acquire));
            cachelet.nlink.store(nlink, Relaxed);
            cachelet.blocks.store(blocks, Relaxed);
            cachelet.size.store(inode.size.load(Acquire), Relaxed);
            cachelet.mtime.store(inode.mtime.load(Relaxed), Relaxed);
            cachelet.ctime.store(inode.ctime.load(Relaxed), Relaxed);
            cachelet.root.store(inode.root.load(Acquire), Relaxed);
        } else {
            // Volatile slot cursor, the block looked at last, and `st_dev`: unknown.
            cachelet.root.store(0, Relaxed);
            cachelet.size.store(0, Relaxed);
            cachelet.mtime.store(UNTOLD, Relaxed);
        }
        let mut cold = if head.flags & inode::COLD != 0 { cachelet::COLD | cachelet::CAPABLE } else { 0 };
        if cold != 0 && self.is_cache() {
            cold = self.fill_lower(cachelet, inode)?.map_or(cold, |cold| cold | self.uncompared());
        }
        let recount = if head.flags & inode::RECOUNT != 0 { cachelet::RECOUNT } else { 0 };
        let frozen = if head.flags & inode::FROZEN != 0 { cachelet::EXECUTED } else { 0 };
        // A directory that was removed while open, by a lane that died before it could say so here.
        let removed = if self.is_removed_directory(inode, id)? { cachelet::REMOVED } else { 0 };
        // Flags of others (closed to entry, mapped, …) stay.
        cachelet.flags.fetch_and(!(cachelet::INVALID | cachelet::COLD | cachelet::CAPABLE | cachelet::RECOUNT), SeqCst);
        cachelet.flags.fetch_or(cold | recount | frozen | removed | cachelet::REFERENCED, SeqCst);
        Ok(())
    }

    /// Whether an inode is a directory that has lost its name: it has no own edentry, and is not the root.
    pub(crate) fn is_removed_directory(&self, inode: &Inode, id: u64) -> Result<bool> {
        let offset = node_offset(id);
        Ok(inode.head().kind == Kind::Directory as u8
            && offset != self.root().root_inode.load(Relaxed)
            && self.own_edentry(offset)? == 0)
    }

    /// Loads a cachelet again that a dead lane left behind. The caller, of `lane`, holds
    /// `owner`. `ESTALE` if the inode has another one by now.
    pub(crate) fn reload(&self, lane: u32, cachelet: &Cachelet, id: u64) -> Result<()> {
        let inode = self.proven(id)?;
        if !self.reference(inode, id).is_some_and(|current| core::ptr::eq(current, cachelet)) {
            return Err(Errno::ESTALE.into());
        }
        let change = self.change(cachelet);
        // Who loaded it may have died before he did so.
        self.wait_for_loaders(lane, cachelet, id);
        self.fill(&change, inode, id)
    }

    /// Takes `owner` for as long as it needs to load an invalid cachelet again.
    #[cold]
    #[inline(never)]
    pub(crate) fn revalidate(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<()> {
        let lane = self.lane_of(cx)?;
        self.lane_state(lane).loading_cachelet.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        let mut wait = Waiter::of(lane);
        if cachelet.owner.load(Acquire) == lane + 1 || !wait.take(self, &cachelet.owner, lane + 1) {
            self.lane_state(lane).loading_cachelet.store(0, SeqCst);
            wait.check(self)?;
            // Ours already: an operation of this thread holds the inode.
            let is_ours = cachelet.owner.load(Acquire) == lane + 1;
            return if is_ours { self.reload(lane, cachelet, id) } else { Err(corrupt("cachelet", node_offset(id))) };
        }
        let result = if cachelet.node.load(SeqCst) != id {
            Err(Errno::ESTALE.into())
        } else if cachelet.flags.load(SeqCst) & cachelet::INVALID != 0 {
            self.reload(lane, cachelet, id)
        } else {
            Ok(())
        };
        self.let_go(lane, cachelet);
        result
    }

    /// Gives back the `owner` of a cachelet taken for loading.
    pub(crate) fn let_go(&self, lane: u32, cachelet: &Cachelet) {
        cachelet.owner.store(0, SeqCst);
        self.lane_state(lane).loading_cachelet.store(0, SeqCst);
    }

    /// Starts a change of a cachelet; only for the holder of `owner`.
    #[inline]
    pub(crate) fn change<'a>(&self, cachelet: &'a Cachelet) -> Change<'a> {
        cachelet.sequence.store(cachelet.sequence.load(Relaxed) | 1, Relaxed);
        fence(Release);
        Change(cachelet)
    }

    /// Reads a cachelet consistently with `read`; `ESTALE` if it is no longer `id`'s.
    #[inline]
    pub(crate) fn consistent<T>(&self, cx: &Cx, cachelet: &Cachelet, id: u64, read: impl Fn(&Cachelet) -> T) -> Result<T> {
        let before = cachelet.sequence.load(Acquire);
        if before & 1 == 0
            && cachelet.node.load(Relaxed) == id
            && cachelet.flags.load(Relaxed) & (cachelet::INVALID | cachelet::DEAD) == 0
        {
            let value = read(cachelet);
            fence(Acquire);
            if cachelet.sequence.load(Relaxed) == before {
                return Ok(value);
            }
        }
        self.consistent_slow(cx, cachelet, id, &read)
    }

    #[cold]
    #[inline(never)]
    fn consistent_slow<T>(&self, cx: &Cx, cachelet: &Cachelet, id: u64, read: &dyn Fn(&Cachelet) -> T) -> Result<T> {
        let mut wait = Waiter::by(self, cx);
        for _ in 0..ROUNDS {
            let before = cachelet.sequence.load(Acquire);
            if cachelet.node.load(Acquire) != id || cachelet.flags.load(Acquire) & cachelet::DEAD != 0 {
                return Err(Errno::ESTALE.into());
            }
            if before & 1 == 1 {
                if !wait.once(self, cachelet.owner.load(Acquire)) {
                    // Nobody is changing it: somebody has left it so.
                    cachelet.flags.fetch_or(cachelet::INVALID, SeqCst);
                    self.revalidate(cx, cachelet, id)?;
                }
                wait.check(self)?;
                if wait.is_nonsense() {
                    break;
                }
                continue;
            }
            if cachelet.flags.load(Acquire) & cachelet::INVALID != 0 {
                self.revalidate(cx, cachelet, id)?;
                continue;
            }
            let value = read(cachelet);
            fence(Acquire);
            if cachelet.sequence.load(Relaxed) == before {
                return Ok(value);
            }
        }
        Err(corrupt("cachelet", node_offset(id)))
    }

    /// A consistent copy of the attributes.
    #[inline]
    pub(crate) fn snapshot(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<Snapshot> {
        let (mode, mut copy) = self.consistent(cx, cachelet, id, |c| {
            let mode = c.mode.load(Relaxed);
            let copy = Snapshot {
                kind: Kind::Regular,
                mode: mode as u16,
                uid: c.uid.load(Relaxed),
                gid: c.gid.load(Relaxed),
                nlink: c.nlink.load(Relaxed),
                size: c.size.load(Relaxed),
                mtime: c.mtime.load(Relaxed) as i64,
                ctime: c.ctime.load(Relaxed) as i64,
                blocks: c.blocks.load(Relaxed),
                flags: c.flags.load(Relaxed),
            };
            (mode, copy)
        })?;
        copy.kind = Kind::from_dt((mode >> 16) as u8).ok_or(Errno::ESTALE)?;
        if copy.kind == Kind::Directory {
            self.directory_snapshot(&mut copy, id)?;
        }
        Ok(copy)
    }

    /// What of a directory is read from the inode: entries become a size as tmpfs shows it.
    #[inline]
    fn directory_snapshot(&self, copy: &mut Snapshot, id: u64) -> Result<()> {
        let inode = self.inode(node_offset(id))?;
        copy.nlink = (inode.links.load(Acquire) as u32).wrapping_add(2);
        copy.size = inode.size.load(Acquire).wrapping_mul(20).wrapping_add(40);
        copy.mtime = inode.mtime.load(Acquire) as i64;
        copy.ctime = inode.ctime.load(Acquire) as i64;
        copy.blocks = 0;
        if inode.head().flags & inode::RECOUNT != 0 {
            copy.flags |= cachelet::RECOUNT;
        }
        if copy.flags & cachelet::REMOVED != 0 {
            copy.nlink = 0;
        }
        Ok(())
    }

    /// Writes a name of at most [`NAME_SHORT`] bytes into a cachelet whose `owner` is held.
    pub(crate) fn set_name(&self, cachelet: &Cachelet, key: &EntryKey) {
        let change = self.change(cachelet);
        change.mode.store(change.mode.load(Relaxed) & 0xff_ffff | (key.name.len() as u32) << 24, Relaxed);
        write_name(&change, key);
    }

    /// Takes the name out of a cachelet whose `owner` is held (it was removed or moved).
    pub(crate) fn forget_name(&self, cachelet: &Cachelet) {
        let change = self.change(cachelet);
        change.parent.store(0, Relaxed);
    }

    /// Whether a cachelet carries exactly this name. Identity only: read the rest consistently.
    #[inline]
    pub(crate) fn carries_name(&self, cachelet: &Cachelet, parent: u64, name: &[u8]) -> bool {
        if cachelet.parent.load(Relaxed) != parent
            || (cachelet.mode.load(Relaxed) >> 24) as usize != name.len()
            || name.len() > NAME_SHORT
        {
            return false;
        }
        let mut rest = name;
        let mut words = cachelet.name.iter();
        while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
            let Some(word) = words.next() else { return false };
            if word.load(Relaxed) != u64::from_le_bytes(*chunk) {
                return false;
            }
            rest = tail;
        }
        rest.is_empty() || words.next().is_some_and(|word| word.load(Relaxed) == short_word(rest))
    }
}

/// Up to 7 bytes as a little-endian word, without reading past them.
#[inline]
pub(crate) fn short_word(rest: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        let (first, last) = (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
        return first | last << (8 * (rest.len() - 4));
    }
    // One to three: the same byte may be taken twice, for the same place.
    let (Some(first), Some(last)) = (rest.first(), rest.last()) else { return 0 };
    let middle = rest.len() / 2;
    let shifted = |byte: u8, place: usize| u64::from(byte) << (8 * place);
    u64::from(*first) | shifted(rest[middle], middle) | shifted(*last, rest.len() - 1)
}

/// Writes a name of at most [`NAME_SHORT`] bytes, and where it stands, into a
/// cachelet that is being changed; its length is the caller's to write.
#[inline]
pub(crate) fn write_name(cachelet: &Cachelet, key: &EntryKey) {
    cachelet.parent.store(key.parent, Relaxed);
    if !key.is_short() {
        return write_name_long(cachelet, key.name);
    }
    // What is behind is nobody's to read.
    let [low, high, ..] = &cachelet.name;
    low.store(key.low, Relaxed);
    high.store(key.high, Relaxed);
}

#[inline(never)]
fn write_name_long(cachelet: &Cachelet, name: &[u8]) {
    name_words(name, |i, word| {
        if let Some(place) = cachelet.name.get(i) {
            place.store(word, Relaxed);
        }
    });
}

/// A short name as five zero-filled words.
fn name_words(name: &[u8], mut each: impl FnMut(usize, u64)) {
    let (mut rest, mut i) = (name, 0);
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        each(i, u64::from_le_bytes(*chunk));
        (rest, i) = (tail, i + 1);
    }
    each(i, short_word(rest));
    for left in i + 1..5 {
        each(left, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last word of a name is its bytes, zero-filled.
    #[test]
    fn short_words_agree() {
        let text = b"abcdefg";
        for len in 1..=7 {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&text[..len]);
            assert_eq!(short_word(&text[..len]), u64::from_le_bytes(bytes), "{len}");
            let mut words = [1; 5];
            name_words(&text[..len], |i, word| words[i] = word);
            assert_eq!(words, [u64::from_le_bytes(bytes), 0, 0, 0, 0], "{len}");
        }
    }
}
